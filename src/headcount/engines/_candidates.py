r"""A population of unknown size as a known number of candidates, each of whom may be absent.

M candidates of whom each is there with probability q have :math:`N \sim \mathrm{Bin}(M, q)`; with the factor
:math:`p(N)/\mathrm{Bin}(N; M, q)` on the number that is there, N has any law p on 0 … M. A candidate that is redrawn as a whole is a path
that is born or dies. Groups have candidates of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import block_diag, csr_array, issparse
from scipy.special import gammaln, xlog1py, xlogy

from headcount.engines.sampling._sampler import SampleBeliefs
from headcount.errors import ProblemError
from headcount.individual import OpenChain, RootedTree
from headcount.observe import Observation
from headcount.observe._binding import Site
from headcount.observe._groups import Member, OpenView, Stack, View
from headcount.population import SizeLaw
from headcount.posterior._beliefs import Outcome, Sizes
from headcount.posterior._derived import GroupBeliefs

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from headcount._types import Array
    from headcount.observe import Problem


@dataclass(frozen=True, eq=False, kw_only=True)
class SizeFactor(Observation):
    """The factor on the number of candidates that are there; its one count says nothing."""

    log_factor: Callable[[Array], Array] = field(metadata={"per": "all"})

    def log_prob(self, n: ArrayLike) -> Array:
        """log p(n) − log Bin(n; M, q)."""
        return self.log_factor(np.asarray(n, dtype=float))


def among_candidates(
    problem: Problem, run: Callable[[Problem, Mapping[str, Any] | None], Outcome], about: Sequence[Sizes]
) -> Outcome:
    """Run a sampler on as many candidates as ``about``, the approximate posterior of every size that is not known, has at most.

    Raises
    ------
    ProblemError
        When the model is not a chain or tree.
    """
    made, factors = _candidates(problem, about)
    lifted = [made.lifted(site) for site in problem.full[1]]
    if len(made.members) > 1:
        lifted.append(made.sizes_site(len(problem.observations)))
    lifted += [_factor_site(made, k, factor) for k, factor in factors]
    outcome = run(problem.recast(made.model, tuple(lifted), made.population), None)
    beliefs = outcome.beliefs
    assert isinstance(beliefs, SampleBeliefs)
    first = beliefs.node_draws.reshape(-1, beliefs.arrays.cells)
    absent = {k: first[:, made.starts[0][k + 1] - 1] for k, _ in factors}
    hidden = 3 if isinstance(problem.model, OpenChain) else 1
    view = OpenView(problem.model, hidden=hidden) if problem.stack is None else View(made)
    seen = GroupBeliefs(
        beliefs,
        view,
        None,
        beliefs.diagnostics,
        _sizes_of(made.population - np.sum(list(absent.values()), axis=0)),
        {k: _sizes_of(made.members[k].size - gone) for k, gone in absent.items()},
    )
    return replace(outcome, beliefs=seen)


def _candidates(
    problem: Problem, about: Sequence[Sizes]
) -> tuple[Stack, list[tuple[int, Callable[[Array], Array]]]]:
    """The groups with candidates where their size is not known; of each of these, its position and the log factor on its number."""
    model, _ = problem.full
    tree, stack = model.rooted(), problem.stack
    if tree is None:
        raise ProblemError("PathGibbs takes a population of unknown size on chains and trees: use TiltedEP")
    if stack is None:
        everywhere = tuple(np.arange(size) for size in tree.sizes)
        stack = Stack((Member(None, 0, tree, everywhere),), dict(model.states))
    members = list(stack.members)
    factors: list[tuple[int, Callable[[Array], Array]]] = []
    for (k, law), sizes in zip(_free_sizes(problem), about, strict=True):
        most = max(int(sizes.values[-1]), 1)
        share = float(sizes.values @ sizes.probabilities) / most
        members[k] = _with_absent(members[k], most, share)
        factors.append((k, partial(_log_factor, law, most, share)))
    return Stack(tuple(members), stack.states), factors


def _free_sizes(problem: Problem) -> list[tuple[int, Callable[[Array], Array]]]:
    """The members of the stack whose size is not known, and log p of it."""
    law = problem.population
    assert isinstance(law, SizeLaw)
    if problem.groups is not None:
        sizes = [group.size for group in problem.groups.values()]
        return [(k, size.log_pmf) for k, size in enumerate(sizes) if isinstance(size, SizeLaw)]
    followed = 0 if problem.stack is None else len(problem.stack.members) - 1
    return [(followed, lambda n: law.log_pmf(n + followed))]


def _log_factor(law: Callable[[Array], Array], most: int, share: float, n: Array) -> Array:
    """log p(n) − log Bin(n; M, q)."""
    ways = gammaln(most + 1.0) - gammaln(n + 1.0) - gammaln(np.maximum(most - n, 0.0) + 1.0)
    binomial = ways + xlogy(n, share) + xlog1py(most - n, -share)
    return np.where(n <= most, law(n) - binomial, -np.inf)


def _factor_site(stack: Stack, member: int, factor: Callable[[Array], Array]) -> Site:
    """The factor on how many of a member's candidates are there: all but those in its last state at the root."""
    root, starts = next(iter(stack.states)), stack.starts[0]
    there = np.zeros((1, starts[-1]))
    there[0, starts[member] : starts[member + 1] - 1] = 1.0
    noise = SizeFactor(np.zeros(1), on=(root,), log_factor=factor)
    return Site((root,), int(starts[-1]), None, csr_array(there), noise, ["the number of individuals"])


def _sizes_of(numbers: NDArray[Any]) -> Sizes:
    values, counts = np.unique(numbers, return_counts=True)
    return Sizes(values.astype(float), counts / counts.sum())


def _with_absent(member: Member, most: int, share: float) -> Member:
    """``most`` candidates of a group, each of whom is there with probability ``share``; the last state of every node is absence."""
    tree = member.tree
    steps = [_still_absent(matrix) for matrix in tree.transitions[1:]]
    initial = np.append(share * tree.initial, 1.0 - share)
    cells = tuple(np.append(seen, -1) for seen in member.cells)
    return Member(member.name, most, RootedTree(tree.variables, tree.parent, initial, (None, *steps)), cells)


def _still_absent(matrix: Any) -> Any:
    """A step after which the absent are still absent."""
    if issparse(matrix):
        return csr_array(block_diag([matrix, np.ones((1, 1))]))
    wide = np.zeros((matrix.shape[0] + 1, matrix.shape[1] + 1))
    wide[:-1, :-1] = matrix
    wide[-1, -1] = 1.0
    return wide
