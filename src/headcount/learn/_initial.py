r"""Inference where nobody knows how the population was spread at the first time.

The initial distribution π has the flat prior Dirichlet(1, …, 1), with which every way to spread N individuals over the cells is
equally probable. π is found by maximising the evidence and then integrated out to second order
(`headcount.learn._uncertainty.initial_response`).

Of a few individuals, which an exact engine or a sampler takes, π is integrated out exactly: under the flat prior n₀ has the
Dirichlet–multinomial law, which is the multinomial law of π = 1/L times a factor per cell (`EqualSpreads`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from headcount import engines
from headcount._types import Array
from headcount.engines import Auto, Engine, Enumerate, PathGibbs, Posterior
from headcount.engines.choice import SAMPLING_SEED, as_engine, chosen
from headcount.individual import MarkovChain
from headcount.learn._components import Initial, with_even_initial, with_initial
from headcount.learn._family import Family, Part
from headcount.observe import Observation, Problem
from headcount.tables import Scope

SMALLEST_SHARE = 1e-9
"""Floor of the information about π as a share of that of complete counts, against rounding."""


@dataclass(frozen=True, eq=False, kw_only=True)
class EqualSpreads(Observation):
    r"""The factor on the first counts that makes all ways to spread N individuals over L cells equally probable.

    .. math:: \frac{N!\,(L-1)!}{(N+L-1)!} = \frac{N!}{\prod_i n_i!}\,L^{-N} \cdot \prod_i n_i!\,e^{c/L},
        \qquad c = N \log L + \log\frac{(L-1)!}{(N+L-1)!}
    """

    population: int = field(metadata={"per": "all"})

    def log_prob(self, n: Any) -> Array:
        """log n! + c/L."""
        cells, people = self.counts.size, self.population
        constant = people * np.log(cells) + gammaln(cells) - gammaln(people + cells)
        return np.asarray(gammaln(np.asarray(n, dtype=float) + 1.0) + np.full(cells, constant / cells))


def listed_or_sampled(problem: Problem, engine: Engine | str | None) -> bool:
    """Whether the engine that runs lists or samples individuals, so that a factor on the first counts is no matter to it."""
    closed = problem.plain and problem.dispersion is None
    if not closed or type(problem.model) is not MarkovChain:
        return False
    return (
        isinstance(chosen(problem, engine).engine, Enumerate | PathGibbs)
        and not problem.core.traits.correlated
    )


def integrated_exactly(problem: Problem, engine: Engine | str | None, **options: Any) -> Posterior:
    """The posterior with the unknown initial distribution integrated out under its flat prior."""
    model, people = problem.model, problem.population
    first = (model.variables[0],)
    cells = len(model.states[first[0]])
    factor = EqualSpreads(np.zeros(cells), on=first, population=people)
    flat = with_even_initial(problem).with_observation(factor)
    run = chosen(problem, engine)
    if isinstance(as_engine(engine), Auto) and options["rng"] is None:
        options["rng"] = SAMPLING_SEED
    found = engines.run(flat, run.engine, **options)
    shares = (found.beliefs.mean(first) + 1.0) / (people + cells)
    posterior = Posterior(with_initial(problem, shares / shares.sum()), run.engine, found.outcome)
    posterior.outcome.info["chosen"] = run
    posterior.outcome.info["initial"] = "learned from all counts under a flat prior, its uncertainty included"
    return posterior


class InitialResponse(NamedTuple):
    """What a learned initial distribution adds to a posterior at its estimate."""

    parameters: Sequence[int] = ()
    """Positions of its log-odds among all parameters where their uncertainty is found here (or cannot be), not by E-steps."""
    response: Callable[[Scope], Array] | None = None
    """Change of a table's mean per standard deviation of the log-odds, given all other parameters, shape (entries, K)."""
    log_evidence: float | None = None
    """Integrated over the initial distribution where its uncertainty is included."""


def initial_response(posterior: Posterior, family: Family, x: Array) -> InitialResponse:
    """The uncertainty of an initial distribution learned under the flat prior, from the covariances of the posterior."""
    initial = family.find(Initial)
    evidence = posterior.beliefs.log_evidence
    if initial is None:
        return InitialResponse(log_evidence=evidence)
    info = posterior.outcome.info
    template = family.template
    if template.as_chain() is not None and template.initial_known:
        info["initial"] = "learned from all counts without a prior"
        return InitialResponse(log_evidence=evidence)
    where = initial.where
    info["initial"] = "learned from all counts under a flat prior"
    if not posterior.beliefs.has_spread:
        return InitialResponse(where.tolist(), log_evidence=evidence)
    if "log_evidence_mc_error" in posterior.diagnostics:
        # Solved without matrices: there are no covariances of flows with the first counts.
        info["initial"] += ", its uncertainty not included"
        return InitialResponse(where.tolist(), log_evidence=evidence)
    info["initial"] += ", its uncertainty included"
    return _by_covariances(posterior, initial, x[initial.where])


def _by_covariances(posterior: Posterior, initial: Part[Initial], x: Array) -> InitialResponse:
    r"""The response cov(n_A, n₀) J^(−1/2), and the evidence integrated over log π.

    With θ = log π and n₀ the first counts, log p(n | π) is linear in θ, so that

    .. math::

        J = (N + L)(\operatorname{diag} π − ππᵀ) − \operatorname{cov}(n_0 | y, π̂)          \qquad\text{(observed information of θ)}

        \operatorname{cov}(n_A, n_B | y) = \operatorname{cov}(n_A, n_B | y, π̂)
            + \operatorname{cov}(n_A, n_0 | y, π̂)\, J^{-1} \operatorname{cov}(n_0, n_B | y, π̂)

    (the law of total covariance). For a Gaussian posterior this removes the prior that n₀ ~ Multinomial(N, π̂) would have brought, so
    no count is used twice: as data and as the initial distribution.
    """
    rows = initial.component
    first = (posterior.problem.model.variables[0],)
    free = rows.place[1]
    phi = posterior.problem.on_cells.root_phi  # log p(n | π) is linear in log π with the slope n₀/φ₀
    units = posterior.population.mean / phi
    complete = rows.information(x, np.full(rows.free.shape, units / rows.free.sum()))
    complete += rows.prior_information(x)
    hidden = score_covariance(posterior)[np.ix_(free, free)]
    lower = np.linalg.cholesky(complete)
    half = np.linalg.solve(lower, np.linalg.solve(lower, 0.5 * (hidden + hidden.T)).T)
    share, vectors = np.linalg.eigh(np.eye(len(free)) - 0.5 * (half + half.T))
    share = np.maximum(share, SMALLEST_SHARE)
    root = np.linalg.solve(lower.T, vectors / np.sqrt(share))  # root rootᵀ = J⁻¹
    evidence = posterior.beliefs.log_evidence
    if evidence is not None:
        log_det = 2 * float(np.log(np.diagonal(lower)).sum()) + float(np.log(share).sum())
        prior = rows.log_prior(x) + float(gammaln(rows.free.sum()))
        # What the evidence rises to at its maximum, where the distribution was learned under another dispersion.
        slope = rows.gradient(x, posterior.beliefs.mean(first)[None] / phi) + rows.prior_gradient(x)
        evidence += 0.5 * float(np.sum((root.T @ slope) ** 2))
        evidence += prior + 0.5 * (len(free) * np.log(2 * np.pi) - log_det)
    # partial, not a closure: it can be pickled
    response = partial(_response, posterior.beliefs, first, _score(posterior)[free].T @ root / phi)
    return InitialResponse(initial.where.tolist(), response, evidence)


def _score(posterior: Posterior) -> Array:
    """1 − π 1ᵀ: n₀ − Nπ, the score of log π, from n₀, whether N is known or not."""
    shares = np.asarray(posterior.problem.model.marginal((posterior.problem.model.variables[0],)))
    return np.eye(len(shares)) - shares[:, None]


def score_covariance(posterior: Posterior) -> Array:
    """cov((n₀ − Nπ)/φ₀ | y)."""
    first, score = (posterior.problem.model.variables[0],), _score(posterior)
    hidden = score @ np.asarray(posterior.beliefs.covariance(first, first)) @ score.T
    return np.asarray(hidden / posterior.problem.on_cells.root_phi**2)


def _response(beliefs: Any, first: Scope, directions: Array, scope: Scope) -> Array:
    """cov(n_A, n₀) times directions of n₀."""
    return np.asarray(beliefs.covariance(scope, first)) @ directions
