r"""Counts that the data make certain, as exact counts beside them.

A reading of sd .1 leaves one whole number k: any other is :math:`e^{-10}` times as probable at most. Around it expectation propagation
has several fixed points, because the Gaussian has a width where whole numbers have none; conditioning on n = k has one, and the reading
is a constant factor :math:`\ell(y \mid k)`. At the most probable counts the prior's log-slope is −g, so

.. math:: \log\frac{p(k \pm 1)}{p(k)} \approx \log\ell(y \mid k \pm 1) - \log\ell(y \mid k) \mp g

says which readings are such (one individual more here is one fewer elsewhere). What exact counts, these among them, force other cells
and flows to be is found by linear programs (`posterior/program.py`) and is exact as well: a flow without a choice has no Gaussian.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import issparse

from headcount.engines._tilting import read_twice
from headcount.engines.tilted._centre import MOST_WHOLE
from headcount.posterior.program import IMPLIED, certain_sites, implied

if TYPE_CHECKING:
    from headcount._types import Array
    from headcount.engines._tilting import Tilts
    from headcount.observe import ClosedProblem, Observation, Site

CERTAIN_NATS = 10.0
"""By how much the log-probability of a neighbouring whole number has to be below: e⁻¹⁰ = 5e-5. The prior's slope at the most probable
counts stands for its difference between two whole numbers, which changes that by 1 to 3 nats (n log n − n for log n!)."""

FAR = 1e9
"""Nats that stand for infinity, so that two of them can be added."""


MOST_PER_MOVE = 25
"""Individuals per possible move up to which tables beside exact counts are few. Tilted EP, converged, was then off by more than .2 sd, or
an sd by more than 10 %, in 41 of 146 random sparse maps of 4 to 6 cells with both margins and some flows read and about 20, 60 or 150
individuals; evidence by up to 3.3 nats."""


def few_tables(problem: ClosedProblem) -> bool:
    """Whether few individuals move where exact counts and readings tell whole tables of moves apart, which no Gaussian does.

    That is beside exact counts where moves are read, where some are impossible, and where two times are counted exactly but for one cell.
    """
    tree = problem.model.rooted()
    if tree is None or len(tree.sizes) == 1:
        return False
    possible = np.array([np.count_nonzero(p.data if issparse(p) else p) for p in tree.transitions[1:]])
    if problem.scale > MOST_PER_MOVE * possible.min():
        return False
    told = moves_told(problem)
    return told is not None and (told or any(possible != [np.prod(p.shape) for p in tree.transitions[1:]]))


def moves_told(problem: ClosedProblem) -> bool | None:
    """Whether moves are read, or two times counted exactly but for one cell, beside exact counts; None without these."""
    sites = [site for site in problem.sites if site.source > IMPLIED]
    exact = [site for site in sites if site.noise.exact]
    counted = {site.scope for site in exact if len(site) >= site.size - 1}
    return (len(counted) > 1 or any(len(site.scope) == 2 for site in sites)) if exact else None


def certain_counts(tilts: Tilts, g: Array) -> tuple[Site, ...]:
    """Exact sites of all entries that the data make certain and that are not seen exactly, given tilts g of the most probable counts."""
    problem = tilts.problem
    if problem.disperses:  # individuals that move together skip whole numbers
        return ()
    read = _sharply_read(tilts, g)
    forced = certain_sites(problem.with_sites((*problem.sites, *read)))
    if forced is None:  # the readings contradict what is exact
        read, forced = [], certain_sites(problem) or []
    return (*read, *forced)


def _sharply_read(tilts: Tilts, g: Array) -> list[Site]:
    """Exact sites of the readings that leave one whole number."""
    problem, found = tilts.problem, []
    if problem.scale > MOST_WHOLE:
        return []
    known, expected = read_twice(problem), tilts.evaluate(g)[1]
    for start, site in zip(tilts.offsets, problem.sites, strict=False):
        where = slice(start, start + len(site))
        if site.index is None or site.noise.exact or site.noise.correlated or site.noise.of_size:
            continue
        k = np.rint(expected[where])
        complete = site.whole and problem.numbers is None
        if complete and k.sum() != problem.population:
            continue
        gap = _gap(site.noise, k, g[where], float(problem.most), complete=complete)
        pick = np.flatnonzero((gap > CERTAIN_NATS) & np.isnan(known[where]) & np.isfinite(g[where]))
        if len(pick):
            found.append(implied(site.scope, site.size, np.asarray(site.index)[pick], k[pick]))
    return found


def _gap(noise: Observation, k: Array, g: Array, most: float, *, complete: bool) -> Array:
    """By how many nats the other counts nearest to k are less probable than k, for each entry; −inf where k is impossible itself.

    One individual more in an entry is one fewer in another: one that was not seen, or, in a ``complete`` table of N individuals, the entry
    that loses least by it. (There tilts are known up to a constant only.)
    """
    with np.errstate(all="ignore"):
        here = noise.log_prob(k)
        fewer = np.where(k > 0, noise.log_prob(np.maximum(k - 1, 0.0)) - here + g, -np.inf)
        more = np.where(k < most, noise.log_prob(k + 1) - here - g, -np.inf)
    fewer, more = (np.nan_to_num(x, nan=FAR, posinf=FAR, neginf=-FAR) for x in (fewer, more))
    gap = -np.maximum(fewer, more)
    if complete:
        gap = -np.maximum(fewer + _largest_other(more), more + _largest_other(fewer))
    return np.where(np.isfinite(here), gap, -np.inf)


def _largest_other(values: Array) -> Array:
    """The largest of all other values, for each."""
    largest = int(np.argmax(values))
    found = np.full(len(values), values[largest])
    found[largest] = np.delete(values, largest).max(initial=-np.inf)
    return found
