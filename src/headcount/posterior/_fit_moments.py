"""What the model says about the observed counts before seeing them: exact means and covariances, and simulated data sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headcount.individual._tree_passes import node_marginals
from headcount.observe import Gaussian
from headcount.observe._site import by_family
from headcount.population import CGM
from headcount.population._law import multinomial
from headcount.tables import dense

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headcount.individual import RootedTree
    from headcount.observe import Problem, Site

    Array = NDArray[np.float64]

FEWEST_SIMULATED, MOST_SIMULATED = 200, 1000
"""Data sets simulated from the model, as many as `MOST_MOVES` allows: the spread of a statistic is known to 5 % from 200 of them, and
a probability of 0.005 is seen in 1000."""
MOST_MOVES = 1_500_000
"""Most binomial draws spent on simulated data sets, about 0.2 s. Where fewer than `FEWEST_SIMULATED` data sets would come of them, the
spread of the statistics is a Gaussian's."""
CHECK_SEED = 0
"""Simulated data sets and the randomised PIT are the same every time."""


class Counts(NamedTuple):
    """The observed counts that can be checked, with the moments of their noise at the prior mean."""

    place: NDArray[np.intp]
    """Positions among all observed entries."""
    y: Array
    slope: Array
    """a."""
    mean: Array
    """E y."""
    cov_n: Array
    noise: Array
    """D."""
    whole: NDArray[np.bool_]


def counts_of(problem: Problem, window: list[int]) -> Counts | None:
    """Everything observed at the sites of a window, or what of it has a noise with moments."""
    sites = [problem.sites[k] for k in window]
    n, cov = prior_moments(problem, sites)
    size = len(n)
    y, slope, mean, spread = (np.zeros(size) for _ in range(4))
    noise = np.zeros((size, size))
    whole = np.zeros(size, bool)
    for index, law in by_family(sites):
        at = n[index]
        (m0, v0), (m1, v1), (_, v2) = law.moments(at), law.moments(at + 1.0), law.moments(at + 2.0)
        y[index], slope[index], mean[index], whole[index] = law.counts, m1 - m0, m0, law.whole
        # E v(n) for a variance up to quadratic in n, as every noise of ours has.
        spread[index] = v0 + 0.5 * (v2 - 2.0 * v1 + v0) * np.diag(cov)[index]
        if isinstance(law, Gaussian) and law.covariance is not None:
            noise[np.ix_(index, index)] = law.covariance
    np.fill_diagonal(noise, spread)
    fine = np.flatnonzero(np.isfinite(mean) & np.isfinite(spread))
    if not len(fine):
        return None
    both = np.ix_(fine, fine)
    starts = np.concatenate([[0], np.cumsum([len(site) for site in problem.sites])])
    place = np.concatenate([np.arange(starts[k], starts[k + 1]) for k in window])
    return Counts(place[fine], y[fine], slope[fine], mean[fine], cov[both], noise[both], whole[fine])


def prior_moments(problem: Problem, sites: Sequence[Site]) -> tuple[Array, Array]:
    """Exact mean and covariance under the model of the entries that some sites observe."""
    tree = problem.model.rooted()
    if tree is not None and all(len(site.scope) == 1 for site in sites):
        nodes = [tree.index[site.scope[0]] for site in sites]
        first, last = (min(nodes), max(nodes)) if tree.is_chain else (0, len(tree.sizes) - 1)
        law, joint, begins = _tree_moments(tree, first, last)
        where = [slice(begins[v - first], begins[v - first + 1]) for v in nodes]
        rows = np.concatenate([site.margin(joint[at].T).T for site, at in zip(sites, where, strict=True)])
        cov = np.concatenate(
            [site.margin(rows[:, at]) for site, at in zip(sites, where, strict=True)], axis=1
        )
        mean = np.concatenate([site.margin(law[at]) for site, at in zip(sites, where, strict=True)])
        return problem.population * mean, problem.population * cov
    population = CGM(problem.model, problem.population)
    mean = np.concatenate([site.margin(population.mean(site.scope).ravel()) for site in sites])
    starts = np.concatenate([[0], np.cumsum([len(site) for site in sites])])
    cov = np.zeros((len(mean), len(mean)))
    for i, one in enumerate(sites):
        for j, other in enumerate(sites[: i + 1]):
            block = other.margin(one.margin(population.covariance(one.scope, other.scope).T).T)
            cov[starts[i] : starts[i + 1], starts[j] : starts[j + 1]] = block
            cov[starts[j] : starts[j + 1], starts[i] : starts[i + 1]] = block.T
    return mean, cov


def _tree_moments(tree: RootedTree, first: int, last: int) -> tuple[Array, Array, NDArray[np.intp]]:
    """Of the nodes from ``first`` to ``last``: μ, P(x_u = i, x_v = j) − μ_u(i) μ_v(j) for all pairs, and where every node starts.

    ``first`` is the root, or any node of a chain.
    """
    starts = np.concatenate([[0], np.cumsum(tree.sizes[first : last + 1])]).astype(np.intp)
    joint = np.zeros((starts[-1], starts[-1]))
    mean = np.zeros(starts[-1])
    mean[: starts[1]] = tree.initial if first == 0 else node_marginals(tree)[first]
    for v in range(first, last + 1):
        at = slice(starts[v - first], starts[v - first + 1])
        if v > first:
            before, parent = at.start, tree.parents[v] - first
            above = slice(starts[parent], starts[parent + 1])
            step = tree.transitions[v]
            mean[at] = mean[above] @ step
            joint[:before, at] = joint[:before, above] @ step
            joint[at, :before] = joint[:before, at].T
        joint[at, at] = np.diag(mean[at])
    return mean, joint - np.outer(mean, mean), starts


def simulated(problem: Problem, counts: Counts) -> Array | None:
    """Deviations y − E y of data sets simulated from the model, one per row; None where they would cost too much."""
    tree = problem.model.rooted()
    if tree is None or any(len(site.scope) > 1 for site in problem.sites):
        return None
    size = affordable(tree)
    if size < FEWEST_SIMULATED:
        return None
    rng = np.random.default_rng(CHECK_SEED)
    nodes = _simulated_nodes(tree, problem.population, size, rng)
    n = np.concatenate([site.margin(nodes[tree.index[site.scope[0]]]) for site in problem.sites], axis=1)
    y = np.zeros(n.shape)
    for index, law in problem.noises:
        try:
            y[:, index] = law.sample(n[:, index], rng=rng)
        except NotImplementedError:
            continue
    return np.asarray(y[:, counts.place] - counts.mean)


def affordable(tree: RootedTree) -> int:
    """How many data sets may be simulated."""
    moves = sum(step.shape[0] * step.shape[1] for step in tree.transitions[1:]) + tree.sizes[0]
    return int(min(MOST_SIMULATED, MOST_MOVES // moves))


def _simulated_nodes(
    tree: RootedTree, population: int, size: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Node counts of ``size`` populations."""
    nodes = [next_margins(np.full((size, 1), population), tree.initial[None], rng)]
    for v in range(1, len(tree.sizes)):
        nodes.append(next_margins(nodes[tree.parents[v]], dense(tree.transitions[v]), rng))
    return nodes


def next_margins(n: NDArray[np.int64], step: Array, rng: np.random.Generator) -> NDArray[np.int64]:
    """The next margin of several populations (rows of n), each individual moving by ``step``."""
    moved = multinomial(n.ravel(), np.tile(step, (len(n), 1)), rng=rng)
    return np.asarray(moved.reshape(len(n), *step.shape).sum(axis=1))
