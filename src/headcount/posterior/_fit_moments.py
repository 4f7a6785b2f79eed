"""What the model says about the observed counts before seeing them: exact means and covariances, and simulated data sets."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headcount.observe._binding import by_family
from headcount.population import CGM, Company, Flocks, step_moments
from headcount.population._cgm import company_moves, multinomial
from headcount.structure import TreeStructure
from headcount.tables import dense

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray

    from headcount._types import Array
    from headcount.individual import RootedTree
    from headcount.observe import Problem, Site
    from headcount.tables import Scope

    Together = tuple[Company, Array]
    """A kind of company, and the rho or phi of every row."""

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
    moments = [prior_moments(part, [part.sites[k] for k in window]) for part in problem.parts]
    n, cov = (np.asarray(sum(found)) for found in zip(*moments, strict=True))
    starts = np.concatenate([[0], np.cumsum([len(site) for site in problem.sites])])
    place = np.concatenate([np.arange(starts[k], starts[k + 1]) for k in window])
    made = _with_noise(place, sites, n, cov)
    fine = np.flatnonzero(np.isfinite(made.mean) & np.isfinite(np.diag(made.noise)))
    if not len(fine):
        return None
    return Counts._make(part[fine] if part.ndim == 1 else part[np.ix_(fine, fine)] for part in made)


def _with_noise(place: NDArray[np.intp], sites: Sequence[Site], n: Array, cov: Array) -> Counts:
    """The counts of some sites, given the mean and covariance of the entries that they observe."""
    y, slope, mean, spread = np.zeros((4, len(n)))
    noise = np.zeros((len(n), len(n)))
    whole = np.zeros(len(n), bool)
    for index, law in by_family(sites):
        at = n[index]
        (m0, v0), (m1, v1), (_, v2) = law.moments(at), law.moments(at + 1.0), law.moments(at + 2.0)
        y[index], slope[index], mean[index], whole[index] = law.counts, m1 - m0, m0, law.whole
        # E v(n) for a variance up to quadratic in n, as every noise of ours has.
        spread[index] = v0 + 0.5 * (v2 - 2.0 * v1 + v0) * np.diag(cov)[index]
        v = law.gaussian_variance
        if v is not None and v.ndim == 2:
            noise[np.ix_(index, index)] = v
    np.fill_diagonal(noise, spread)
    return Counts(place, y, slope, mean, cov, noise, whole)


def prior_moments(problem: Problem, sites: Sequence[Site]) -> tuple[Array, Array]:
    """Exact mean and covariance under the model of the entries that some sites observe."""
    tree = problem.model.rooted()
    if tree is None or any(len(site.scope) > 1 for site in sites):
        return _moments_by_tables(problem, sites)
    nodes = [tree.index[site.scope[0]] for site in sites]
    first, last = (min(nodes), max(nodes)) if tree.is_chain else (0, len(tree.sizes) - 1)
    law, joint, begins = _tree_moments(tree, first, last, problem)
    placed = [
        (site, slice(begins[v - first], begins[v - first + 1])) for site, v in zip(sites, nodes, strict=True)
    ]
    rows = np.concatenate([site.margin(joint[at].T).T for site, at in placed])
    cov = np.concatenate([site.margin(rows[:, at]) for site, at in placed], axis=1)
    return np.concatenate([site.margin(law[at]) for site, at in placed]), cov


def _moments_by_tables(problem: Problem, sites: Sequence[Site]) -> tuple[Array, Array]:
    """The same for any model and tables, from the covariance of every two tables."""
    covariance = _covariances(problem)
    means = [site.margin(problem.population * problem.model.marginal(site.scope).ravel()) for site in sites]
    mean = np.concatenate(means)
    starts = np.concatenate([[0], np.cumsum([len(site) for site in sites])])
    cov = np.zeros((len(mean), len(mean)))
    for i, one in enumerate(sites):
        for j, other in enumerate(sites[: i + 1]):
            block = other.margin(one.margin(covariance(one.scope, other.scope).T).T)
            cov[starts[i] : starts[i + 1], starts[j] : starts[j + 1]] = block
            cov[starts[j] : starts[j + 1], starts[i] : starts[i + 1]] = block.T
    return mean, cov


def _covariances(problem: Problem) -> Callable[[Scope, Scope], Array]:
    """The covariance of any two tables under the model; rho is read at the expected counts."""
    model, dispersion = problem.model, problem.dispersion
    if not isinstance(dispersion, Company):
        size = problem.root_phi
        return lambda a, b: size * CGM(model, problem.population).covariance(a, b)
    tree = model.rooted()
    assert tree is not None
    phi = dispersion.phi_of(tree, problem.population, lambda v: problem.population * model.marginal((v,)))
    return TreeStructure(replace(tree, phi=phi), problem.population, ()).field((), ()).covariance


def moved(problem: Problem, tree: RootedTree, v: int, mean: Array, cov: Array) -> tuple[Array, Array]:
    """Mean and covariance of a node's counts from those of its parent's."""
    return step_moments(mean, cov, dense(tree.transitions[v]), problem.dispersion, tree.variables[v])


def _tree_moments(
    tree: RootedTree, first: int, last: int, problem: Problem
) -> tuple[Array, Array, NDArray[np.intp]]:
    """Of the nodes from ``first`` to ``last``: mean counts, their covariance, and where every node starts.

    ``first`` is the root, or any node of a chain.
    """
    starts = np.concatenate([[0], np.cumsum(tree.sizes[first : last + 1])]).astype(np.intp)
    mean, joint = np.zeros(starts[-1]), np.zeros((starts[-1], starts[-1]))
    n, root = float(problem.population), tree.initial
    here, cov = n * root, problem.root_phi * n * (np.diag(root) - np.outer(root, root))
    for v in range(1, first + 1):
        here, cov = moved(problem, tree, v, here, cov)
    for v in range(first, last + 1):
        at = slice(starts[v - first], starts[v - first + 1])
        if v > first:
            before, parent = at.start, tree.parents[v] - first
            above = slice(starts[parent], starts[parent + 1])
            here, cov = moved(problem, tree, v, mean[above], joint[above, above])
            joint[:before, at] = joint[:before, above] @ tree.transitions[v]
            joint[at, :before] = joint[:before, at].T
        mean[at], joint[at, at] = here, cov
    return mean, joint, starts


def simulated(problem: Problem, counts: Counts) -> Array | None:
    """Deviations y − E y of data sets simulated from the model, one per row; None where they would cost too much."""
    trees = [tree for part in problem.parts if (tree := part.model.rooted()) is not None]
    known = len(trees) == len(problem.parts) and all(map(drawable, problem.parts, trees))
    size = affordable(*trees) if known else 0
    if size < FEWEST_SIMULATED:
        return None
    rng = np.random.default_rng(CHECK_SEED)
    n = np.zeros((size, sum(map(len, problem.sites))))
    for part, tree in zip(problem.parts, trees, strict=True):
        nodes = _simulated_nodes(part, tree, size, rng)
        n += np.concatenate([site.margin(nodes[tree.index[site.scope[0]]]) for site in part.sites], axis=1)
    y = np.zeros(n.shape)
    for index, law in problem.noises:
        with suppress(NotImplementedError):  # counts of a noise that cannot be drawn are not checked
            y[:, index] = law.sample(n[:, index], rng=rng)
    return np.asarray(y[:, counts.place] - counts.mean)


def drawable(problem: Problem, tree: RootedTree) -> bool:
    """Whether data sets can be simulated: counts of single variables, and moves that scatter no less than a multinomial's."""
    if any(len(site.scope) > 1 for site in problem.sites):
        return False
    if not isinstance(problem.dispersion, Company) or problem.dispersion.rho is not None:
        return True
    phi = problem.dispersion.phi_of(tree, problem.population, lambda v: np.zeros(0))
    return min(float(f.min()) for f in phi) >= 1.0


def affordable(*trees: RootedTree) -> int:
    """How many data sets may be simulated."""
    moves = sum(step.shape[0] * step.shape[1] for tree in trees for step in tree.transitions[1:])
    moves += sum(tree.sizes[0] for tree in trees)
    return int(min(MOST_SIMULATED, MOST_MOVES // moves))


def _simulated_nodes(
    problem: Problem, tree: RootedTree, size: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Node counts of ``size`` populations."""
    everyone = np.full((size, 1), problem.population)
    nodes = [next_margins(everyone, tree.initial[None], rng, whole_parties(problem, None, everyone[0]))]
    for v in range(1, len(tree.sizes)):
        above = nodes[tree.parents[v]]
        together = whole_parties(problem, tree.variables[v], above[0])
        nodes.append(next_margins(above, dense(tree.transitions[v]), rng, together))
    return nodes


def whole_parties(problem: Problem, node: Hashable | None, counts: NDArray[Any]) -> Together | None:
    """How the moves into a node (None: the first counts) are drawn; sizes are rounded to whole numbers."""
    dispersion = problem.dispersion
    if not isinstance(dispersion, (Flocks, Company)):
        return None
    if isinstance(dispersion, Company) and dispersion.rho is not None:
        rho = dispersion.rows(node, len(counts)) if node is not None else dispersion.initial or 0.0
        return dispersion, np.broadcast_to(np.asarray(rho), counts.shape)
    sizes = np.array([problem.root_phi]) if node is None else dispersion.party(node, counts.astype(float))
    return Company(phi=2.0), np.maximum(np.rint(sizes), 1.0)


def next_margins(
    n: NDArray[np.int64], step: Array, rng: np.random.Generator, together: Together | None = None
) -> NDArray[np.int64]:
    """The next margin of several populations (rows of n), each individual moving by ``step``."""
    rows = np.tile(step, (len(n), 1))
    if together is None:
        made = multinomial(n.ravel(), rows, rng=rng)
    else:
        company, factors = together
        made = company_moves(n.ravel(), rows, company, np.tile(factors, len(n)), rng)
    return np.asarray(made.reshape(len(n), *step.shape).sum(axis=1))
