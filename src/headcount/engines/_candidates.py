r"""A population of unknown size as a known number of candidates, each of whom may be absent.

M candidates of whom each is there with probability q have :math:`N \sim \mathrm{Bin}(M, q)`; with the factor
:math:`p(N)/\mathrm{Bin}(N; M, q)` on the number that is there, N has any law p on 0 … M. A candidate that is redrawn as a whole is a path
that is born or dies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import block_diag, csr_array, issparse
from scipy.special import gammaln, xlog1py, xlogy

from headcount.engines.sampling._sample_beliefs import SampleBeliefs
from headcount.errors import ProblemError
from headcount.individual import OpenChain, RootedTree
from headcount.observe import Observation
from headcount.observe._open import OpenView, lifted
from headcount.observe._site import Site
from headcount.population import SizeLaw
from headcount.posterior._beliefs import Outcome
from headcount.posterior._derived import GroupBeliefs
from headcount.posterior._sizes import Sizes

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from headcount._types import Array
    from headcount.observe import Problem

ABSENT = "absent"


@dataclass(frozen=True, eq=False, kw_only=True)
class SizeFactor(Observation):
    """The factor on the number of candidates that are there; its one count says nothing."""

    log_factor: Callable[[Array], Array] = field(metadata={"per": "all"})

    def log_prob(self, n: ArrayLike) -> Array:
        """log p(n) − log Bin(n; M, q)."""
        return self.log_factor(np.asarray(n, dtype=float))


def among_candidates(
    problem: Problem, run: Callable[[Problem, Mapping[str, Any] | None], Outcome], about: Sizes
) -> Outcome:
    """Run a sampler on as many candidates as ``about``, the approximate posterior of N, has at most.

    Raises
    ------
    ProblemError
        When the model is not a chain or tree.
    """
    law, (model, sites) = problem.population, problem.full
    tree = model.rooted()
    if tree is None or problem.stack is not None or not isinstance(law, SizeLaw):
        raise ProblemError(
            "PathGibbs takes a population of unknown size on chains and trees without tracks: use TiltedEP"
        )
    most = int(about.values[-1])
    share = float(about.values @ about.probabilities) / most
    parent = tree.parent
    steps = [_with_absent(matrix) for matrix in tree.transitions[1:]]
    initial = np.append(share * tree.initial, 1.0 - share)
    labels = {v: (*states, ABSENT) for v, states in model.states.items()}
    made = type(model).from_rooted(RootedTree(tree.variables, parent, initial, (None, *steps)), labels)  # type: ignore[attr-defined]
    view = OpenView(model, hidden=1)
    root = tree.variables[0]
    there = csr_array(np.append(np.ones(tree.sizes[0]), 0.0)[None])

    def factor(n: Array) -> Array:
        ways = gammaln(most + 1.0) - gammaln(n + 1.0) - gammaln(np.maximum(most - n, 0.0) + 1.0)
        binomial = ways + xlogy(n, share) + xlog1py(most - n, -share)
        return np.where(n <= most, law.log_pmf(n) - binomial, -np.inf)

    noise = SizeFactor(np.zeros(1), on=(root,), log_factor=factor)
    size_site = Site((root,), tree.sizes[0] + 1, None, there, noise, ["the number of individuals"])
    closed = problem.recast(made, (*(lifted(view, site) for site in sites), size_site), most)
    outcome = run(closed, None)
    beliefs = outcome.beliefs
    assert isinstance(beliefs, SampleBeliefs)
    absent = beliefs.node_draws.reshape(-1, beliefs.arrays.cells)[:, tree.sizes[0]]
    values, counts = np.unique(most - absent, return_counts=True)
    hidden = 3 if isinstance(problem.model, OpenChain) else 1
    seen = GroupBeliefs(
        beliefs,
        OpenView(problem.model, hidden=hidden),
        None,
        beliefs.diagnostics,
        Sizes(values.astype(float), counts / counts.sum()),
    )
    return Outcome(
        seen, outcome.status, outcome.iterations, outcome.residual, outcome.tolerance, trace=outcome.trace
    )


def _with_absent(matrix: Any) -> Any:
    """A step after which the absent are still absent."""
    if issparse(matrix):
        return csr_array(block_diag([matrix, np.ones((1, 1))]))
    wide = np.zeros((matrix.shape[0] + 1, matrix.shape[1] + 1))
    wide[:-1, :-1] = matrix
    wide[-1, -1] = 1.0
    return wide
