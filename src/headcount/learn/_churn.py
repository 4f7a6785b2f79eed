r"""How many move in a step, by the means of the counts alone.

Given the counts before a step, those after it have the mean :math:`n_t P(x)` and the covariance :math:`C_t`. With :math:`F_t = \partial
(n_t P)/\partial x` the means hold the information

.. math:: J = \sum_t F_t^\top (C_t + D_t)^{-1} F_t ,

D the variance of the noise; so do flows that were counted, and tagged individuals. To x belong two more parameters :math:`\lambda` of
nobody's model: a share stays instead, and a share goes anywhere, :math:`(1 - \lambda_1 - \lambda_2) P + \lambda_1 I + \lambda_2 1 m^\top`
with m the shares of the cells before the step. They leave a stationary law as it is, so that counts at equilibrium, which tell the
weights of a model without staying well, do not pass for knowledge of how many move. Where counts are exact their residuals say which
:math:`\lambda` they want, :math:`J^+ \sum_t F_t^\top (C_t + D_t)^{-1} (n_{t+1} - n_t P)`, and so do tags; by how much :math:`\lambda_1`
would change the share that moves is part of its error, and :math:`u^\top A^{-1} u \sim \chi^2`, u the score of :math:`\lambda` and A the
information about it beside x, tests whether they want any. What J leaves open about the share that moves, :math:`c = \sum_{t,i}
n_t(i)\,(1 - P_{ii}) / \sum_{t,i} n_t(i)`, is left to the scatter, which tells it only where nothing else makes counts scatter. A
dispersion multiplies C and divides J.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise

import numpy as np
from scipy.special import chdtrc

from headcount._types import Array, Scope
from headcount.engines import Posterior
from headcount.learn._components import Moves
from headcount.learn._family import Family
from headcount.observe import Site
from headcount.population import step_moments
from headcount.posterior.doubt import Churn
from headcount.tables import dense

STEP = 1e-4
"""Step of differences of probabilities in working parameters: its square and float64's precision over it are both below 1e-7."""
LEAST_NOISE = 0.25
"""Variance added to every count (individuals²): that of a coin, as in the check of fit."""
NOT_TOLD = 1e-9
"""Share of the largest information below which the means tell nothing: rounding of differences."""
IN_MODEL = 1e-6
"""Share of the information about λ that is left beside x below which the model has λ already: rounding of differences."""
OTHER_CAUSES = 2
"""Numbers λ: more who stay, more who go anywhere."""
MOST_CELLS = 300
"""Cells up to which it is computed: covariances of steps are dense."""


def churn_by_means(families: Sequence[Family], posteriors: Sequence[Posterior], x: Array) -> Churn | None:
    """The share that moves in a step, and its standard error by the means of all problems' counts.

    None where it is not a question: no chain with the same cells at all times whose moves were learned, hidden states, groups, or more
    than `MOST_CELLS` cells.
    """
    size, moved, present = len(x) + OTHER_CAUSES, 0.0, 0.0
    information, score, slope = np.zeros((size, size)), np.zeros(size), np.zeros(size)
    for family, posterior in zip(families, posteriors, strict=True):
        matrices = _matrices(family, posterior, x)
        if matrices is None:
            return None
        here, beside = matrices(np.zeros(size)), [[matrices(s), matrices(-s)] for s in STEP * np.eye(size)]
        for t, (u, v) in enumerate(pairwise(posterior.problem.model.variables)):
            n = np.maximum(np.asarray(posterior.beliefs.mean((u,)), dtype=float), 0.0)
            changes = np.array([(up[t] - down[t]) / (2 * STEP) for up, down in beside])
            present, moved = present + n.sum(), moved + float(n @ (1.0 - np.diag(here[t])))
            slope -= np.einsum("kii,i->k", changes, n)
            told, pull = _told(posterior, u, v, n, here[t], n @ changes)
            information, score = information + told, score + pull
            information += _of_flows(posterior, (u, v), n[:, None] * here[t], n[:, None] * changes)
        told, pull = _of_tags(posterior, here, beside)
        information, score = information + told, score + pull
    share = moved / present
    staying = slice(0, len(x) + 1)
    values, vectors = np.linalg.eigh(information[staying, staying])
    along = vectors.T @ (slope[staying] / present)
    floor = NOT_TOLD * max(float(values.max(initial=0.0)), np.finfo(float).tiny)
    variance = float(np.sum(along**2 / np.maximum(values, floor)))
    # λ beside x, along directions that the model's own parameters do not make already; of a free matrix there are none
    mine, theirs = np.split(information[:, len(x) :], [len(x)])
    own = np.linalg.pinv(information[: len(x), : len(x)], rcond=NOT_TOLD, hermitian=True) @ mine
    unit = np.sqrt(np.maximum(np.diag(theirs), np.finfo(float).tiny))
    apart = (theirs - mine.T @ own) / np.outer(unit, unit)
    pulled = (score[len(x) :] - own.T @ score[: len(x)]) / unit
    wanted = slope[len(x)] / present * pulled[0] / (apart[0, 0] * unit[0]) if apart[0, 0] > IN_MODEL else 0.0
    known, turned = np.linalg.eigh(apart)
    free = known > IN_MODEL
    other = (
        float(chdtrc(free.sum(), np.sum((turned.T @ pulled)[free] ** 2 / known[free]))) if free.any() else 1.0
    )
    odds = share * (1.0 - share)
    error = float(np.hypot(np.sqrt(variance), wanted) / odds) if odds > 0 else np.inf
    return Churn(float(share), error, other)


def _matrices(family: Family, posterior: Posterior, x: Array) -> Callable[[Array], list[Array]] | None:
    """The matrices of all steps by changes of (x, λ); None where there are none to ask about."""
    problem, moves = posterior.problem, family.find(Moves)  # type: ignore[type-abstract]
    model = problem.model
    plain = model.as_chain() is not None and problem.groups is None and not problem.model.has_hidden_states
    if not plain or moves is None or len({model.states[v] for v in model.variables}) != 1:
        return None
    count = len(model.variables) - 1
    if count < 1 or len(model.states[model.variables[0]]) > MOST_CELLS:
        return None
    before = [posterior.beliefs.mean((v,)) for v in model.variables[:-1]]  # not what a step is held against

    def matrices(change: Array) -> list[Array]:
        made = moves.component.matrices((x + change[:-OTHER_CAUSES])[moves.where])
        made = made if isinstance(made, list) else [made] * count
        stay, anywhere = change[-OTHER_CAUSES:]
        return [
            (1.0 - stay - anywhere) * np.asarray(dense(m)) + stay * np.eye(len(n)) + anywhere * n / n.sum()
            for m, n in zip(made, before, strict=True)
        ]

    return matrices


def _told(
    posterior: Posterior, u: object, v: object, n: Array, p: Array, means: Array
) -> tuple[Array, Array]:
    """F (C + D)⁻¹ Fᵀ of one step, (K, K), by what was counted after it, and F (C + D)⁻¹ (y − E y), zero where that is not known exactly."""
    problem = posterior.problem
    sites = [site for site in problem.sites if site.scope == (v,)]
    told, pull = np.zeros((len(means), len(means))), np.zeros(len(means))
    if not sites:
        return told, pull
    at = [site for site in problem.sites if site.scope == (u,)]
    known = bool(at) and all(site.noise.exact and site.whole for site in at)
    before = np.zeros((len(n), len(n)))
    if not known and posterior.beliefs.has_spread:
        before = np.asarray(posterior.beliefs.covariance((u,), (u,)), dtype=float)
    mean, covariance = step_moments(n, before, p, problem.dispersion, v)
    for site in sites:
        here, there = _of_site(site, mean, covariance, means)
        told += here
        if known and site.noise.exact:
            pull += there
    return told, pull


def _of_site(site: Site, mean: Array, covariance: Array, means: Array) -> tuple[Array, Array]:
    """The same of the counts of one site."""
    rows = site.margin(site.margin(covariance.T).T)
    at = site.margin(mean)
    (low, variance), (high, _) = site.noise.moments(at), site.noise.moments(at + 1.0)
    a = high - low
    fine = np.isfinite(a) & np.isfinite(variance)
    f = (site.margin(means) * a)[:, fine]
    s = (a[:, None] * rows * a)[np.ix_(fine, fine)] + np.diag(variance[fine] + LEAST_NOISE)
    weight = np.linalg.solve(s, f.T)
    return f @ weight, (site.noise.counts - low)[fine] @ weight


def _of_flows(posterior: Posterior, step: Scope, flows: Array, changes: Array) -> Array:
    """The same of flows that were counted, each by itself, (K, K)."""
    told = np.zeros((len(changes), len(changes)))
    for site in posterior.problem.sites:
        if site.scope == step:
            at = site.margin(flows.ravel())
            (low, variance), (high, _) = site.noise.moments(at), site.noise.moments(at + 1.0)
            f, s = (high - low) * site.margin(changes.reshape(len(changes), -1)), variance + LEAST_NOISE
            fine = np.isfinite(f).all(axis=0) & np.isfinite(s)
            told += (f / (s + (high - low) ** 2 * at))[:, fine] @ f[:, fine].T
    return told


def _of_tags(
    posterior: Posterior, here: list[Array], beside: Sequence[Sequence[list[Array]]]
) -> tuple[Array, Array]:
    """The same of tagged individuals, whose next position is expected given the one before; and the score of the positions they had.

    Positions that are not known to the cell are left out.
    """
    told, pull = np.zeros((len(beside), len(beside))), np.zeros(len(beside))
    for records in (one for by_group in posterior.problem.records.values() for one in by_group.values()):
        node, cell = np.full(len(records), -1), np.zeros(len(records), dtype=np.intp)
        for at, (rows, likelihood) in sorted(records.seen.items()):
            sure = np.diff(likelihood.indptr) == 1
            rows, now = rows[sure], likelihood.indices[likelihood.indptr[:-1][sure]]
            for before in np.unique(node[rows][node[rows] >= 0]):
                mine = node[rows] == before
                start, end = cell[rows[mine]], now[mine]
                p = _over(here[before:at])
                change = np.array(
                    [(_over(up[before:at]) - _over(down[before:at])) / (2 * STEP) for up, down in beside]
                )
                relative = np.divide(change, p, out=np.zeros_like(change), where=p > 0)
                told += np.einsum("kij,lij,i->kl", change, relative, np.bincount(start, minlength=len(p)))
                pull += relative[:, start, end].sum(axis=1)
            node[rows], cell[rows] = at, now
    return told, pull


def _over(steps: Sequence[Array]) -> Array:
    """The product of some steps."""
    return reduce(np.matmul, steps)
