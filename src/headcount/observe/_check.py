"""Counts and parameters that cannot be right, one entry at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headcount.individual import Model
from headcount.observe._base import Array, Observation, Scope
from headcount.observe._complaints import Complaints
from headcount.observe._site import Site

_BACKGROUND = (
    "probability 0 under the model and no background: pass background=... (a rate of false counts), "
    "set it to NaN, or correct the model"
)
_UNREACHABLE = (
    "probability 0 under the model, where this count cannot occur: set it to NaN, or correct the model"
)
_CERTAIN = (
    "every individual is there under the model (n = N), where this count cannot occur: "
    "correct it or the model"
)


def check_noise(sites: Sequence[Site], population: int, complaints: Complaints) -> None:
    """Note what each noise finds wrong with its own counts and parameters."""
    for group in _together(sites):
        noise = _concatenated([site.noise for site in group])
        lengths = [len(site) for site in group]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        for where, text, values in noise.faults(population):
            bad = np.broadcast_to(where, (starts[-1],))
            shown = np.broadcast_to(values, (starts[-1],))
            for k in np.flatnonzero(bad):
                home = int(np.searchsorted(starts, k, side="right")) - 1
                complaints.add(label(group[home]), text, group[home].names[int(k - starts[home])], shown[k])


def _together(sites: Sequence[Site]) -> list[list[Site]]:
    """Sites of one observation side by side: ten thousand times are checked at once, not one by one."""
    groups: dict[object, list[Site]] = {}
    for k, site in enumerate(sites):
        alone = bool(site.noise.pair_parameters())
        groups.setdefault((k,) if alone else site.source, []).append(site)
    return list(groups.values())


def _concatenated(noises: Sequence[Observation]) -> Observation:
    """One noise on the entries of several."""
    if len(noises) == 1:
        return noises[0]
    names = ("counts", *noises[0].entry_parameters())
    return noises[0].replaced({name: np.concatenate([getattr(n, name) for n in noises]) for name in names})


def check_reach(sites: Sequence[Site], model: Model, population: int, complaints: Complaints) -> None:
    """Note counts with l(y | 0) = 0 where mu = 0, and with l(y | N) = 0 where mu = 1."""
    supports: dict[Scope, Array] = {}
    for site in sites:
        if site.scope not in supports:
            supports[site.scope] = (np.asarray(model.marginal(site.scope)) > 0).ravel().astype(float)
        support = supports[site.scope]
        reach = site.margin(support)
        remedy = _BACKGROUND if "background" in site.noise.entry_parameters() else _UNREACHABLE
        note_impossible(site, np.flatnonzero(reach == 0), 0.0, remedy, complaints)
        if not site.noise.exact:  # exact counts that do not add up to N are noted as such
            everyone = np.flatnonzero(reach == support.sum())
            note_impossible(site, everyone, float(population), _CERTAIN, complaints)


def note_impossible(
    site: Site, where: NDArray[np.intp], n: float | Array, text: str, complaints: Complaints
) -> None:
    """Note the entries `where` whose count has probability zero given the true count `n` there."""
    if not where.size or site.noise.correlated:
        return
    noise: Observation = site.noise.take(where)
    impossible = np.isneginf(noise.log_prob(np.broadcast_to(np.asarray(n, dtype=float), where.shape)))
    for k in np.flatnonzero(impossible):
        complaints.add(label(site), text, site.names[int(where[k])], noise.counts[k])


def label(site: Site) -> str:
    """How messages call the observation a site comes from."""
    return f"observations[{site.source}] ({type(site.noise).__name__})"
