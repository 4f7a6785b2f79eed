r"""Counts that the data make certain, as exact counts beside them.

A reading of sd .1 leaves one whole number k: any other is :math:`e^{-10}` times as probable at most. Around it expectation propagation
has several fixed points, because the Gaussian has a width where whole numbers have none; conditioning on n = k has one, and the reading
is a constant factor :math:`\ell(y \mid k)`. At the most probable counts the prior's log-slope is −g, so

.. math:: \log\frac{p(k \pm 1)}{p(k)} \approx \log\ell(y \mid k \pm 1) - \log\ell(y \mid k) \mp g

says which readings are such. What exact counts (these among them) force other cells and flows to be is found by linear programs
(`posterior/_program.py`) and is exact as well: a flow without a choice has no Gaussian.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headcount.engines._tilting import read_twice
from headcount.engines.tilted._centre import MOST_WHOLE
from headcount.posterior._program import certain_sites, implied

if TYPE_CHECKING:
    from headcount._types import Array
    from headcount.engines._tilting import Tilts
    from headcount.observe import Observation, Site

CERTAIN_NATS = 10.0
"""By how much the log-probability of a neighbouring whole number has to be below: e⁻¹⁰ = 5e-5. The prior's slope at the most probable
counts stands for its difference between two whole numbers, which changes that by 1 to 3 nats (n log n − n for log n!)."""


def certain_counts(tilts: Tilts, g: Array) -> tuple[Site, ...]:
    """Exact sites of all entries that the data make certain and that are not seen exactly, given tilts g of the most probable counts."""
    problem = tilts.problem
    if problem.disperses:  # individuals that move together skip whole numbers
        return ()
    read = _sharply_read(tilts, g)
    forced = certain_sites(problem.with_sites((*problem.sites, *read)))
    if read and not forced and certain_sites(problem):  # the readings contradict what is exact
        return ()
    return (*read, *forced)


def _gap(noise: Observation, k: Array, g: Array, most: float) -> Array:
    """By how many nats more than `CERTAIN_NATS` each k is above its neighbours; −inf where it is impossible itself."""
    with np.errstate(all="ignore"):
        here = noise.log_prob(k)
        below = np.where(k > 0, noise.log_prob(np.maximum(k - 1, 0.0)) + g, -np.inf)
        above = np.where(k < most, noise.log_prob(k + 1) - g, -np.inf)
        gap = here - np.maximum(below, above) - CERTAIN_NATS
    return np.where(np.isfinite(here), gap, -np.inf)


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
        gap = _gap(site.noise, k, g[where], float(problem.most))
        pick = np.flatnonzero((gap > 0) & np.isnan(known[where]) & np.isfinite(g[where]))
        if len(pick):
            found.append(implied(site.scope, site.size, np.asarray(site.index)[pick], k[pick]))
    return found
