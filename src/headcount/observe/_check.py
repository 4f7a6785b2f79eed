"""Data that cannot be right: impossible entries, and exact margins that contradict each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headcount.individual import Model
from headcount.observe._base import Array, Observation, Scope
from headcount.observe._complaints import Complaints
from headcount.observe._names import entry_name
from headcount.observe._site import Site

_BACKGROUND = "probability 0 under the model and no background: pass background=... (a rate of false counts), set it to NaN, or correct the model"
_UNREACHABLE = (
    "probability 0 under the model, where this count cannot occur: set it to NaN, or correct the model"
)
_CERTAIN = "every individual is there under the model (n = N), where this count cannot occur: correct it or the model"
_KNOWN = "impossible given the exact counts of other observations"


def check_noise(sites: Sequence[Site], population: int, complaints: Complaints) -> None:
    """Note what each noise finds wrong with its own counts and parameters."""
    for site in sites:
        for where, text, values in site.noise.faults(population):
            bad = np.broadcast_to(where, (len(site),))
            shown = np.broadcast_to(values, (len(site),))
            for k in np.flatnonzero(bad):
                complaints.add(label(site), text, site.names[int(k)], shown[k])


def check_reach(sites: Sequence[Site], model: Model, population: int, complaints: Complaints) -> None:
    """Note counts with l(y | 0) = 0 where mu = 0, and counts with l(y | N) = 0 where mu = 1 (everyone is there)."""
    supports: dict[Scope, Array] = {}
    for site in sites:
        if site.scope not in supports:
            supports[site.scope] = (np.asarray(model.marginal(site.scope)) > 0).ravel().astype(float)
        support = supports[site.scope]
        reach = site.margin(support)
        remedy = _BACKGROUND if "background" in site.noise.entry_parameters() else _UNREACHABLE
        _note_impossible(site, np.flatnonzero(reach == 0), 0.0, remedy, complaints)
        _note_impossible(
            site, np.flatnonzero(reach == support.sum()), float(population), _CERTAIN, complaints
        )


def _note_impossible(
    site: Site, where: NDArray[np.intp], n: float | Array, text: str, complaints: Complaints
) -> None:
    """Note the entries `where` whose count has probability zero given the true count `n` there."""
    if not where.size or site.noise.correlated:
        return
    noise: Observation = site.noise.take(where)
    impossible = np.isneginf(noise.log_prob(np.broadcast_to(np.asarray(n, dtype=float), where.shape)))
    for k in np.flatnonzero(impossible):
        complaints.add(label(site), text, site.names[int(where[k])], noise.counts[k])


def check_exact(sites: Sequence[Site], model: Model, population: int, complaints: Complaints) -> None:
    """Note exact counts that no table of N individuals can have, and other counts they make impossible."""
    exact = [site for site in sites if site.noise.exact]
    if not exact:
        return
    known = {scope: np.full(model.size(scope), np.nan) for scope in dict.fromkeys(s.scope for s in exact)}
    for site in exact:
        if site.index is not None:
            _fill(known[site.scope].reshape(-1), site, complaints)
    for scope, table in known.items():
        table[np.isnan(table) & (np.asarray(model.marginal(scope)) == 0)] = 0.0
        _check_total(scope, table, population, complaints)
    for site in exact:
        if site.weights is not None:
            _check_sums(site, known[site.scope].ravel(), complaints)
    _check_margins(known, model, complaints)
    for site in sites:
        if not site.noise.exact and site.scope in known:
            truth = site.margin(known[site.scope].ravel())
            where = np.flatnonzero(~np.isnan(truth))
            _note_impossible(site, where, truth[where], _KNOWN, complaints)


def _fill(flat: Array, site: Site, complaints: Complaints) -> None:
    """Write a site's exact counts into the known table; two readings of one entry must agree."""
    before = flat[site.index]
    for k in np.flatnonzero(~np.isnan(before) & (before != site.noise.counts)):
        text = f"another exact observation says {before[k]:.15g}; drop one of the two"
        complaints.add(label(site), text, site.names[int(k)], site.noise.counts[k])
    flat[site.index] = site.noise.counts


def _check_total(scope: Scope, table: Array, population: int, complaints: Complaints) -> None:
    total, complete = float(np.nansum(table)), not np.isnan(table).any()
    what = f"exact counts of {', '.join(map(repr, scope))}"
    if complete and total != population:
        text = f"they add up to {total:.15g}, the population is N = {population}; correct one of them"
        complaints.add(what, text)
    elif total > population:
        complaints.add(
            what, f"they add up to {total:.15g}, above the population N = {population}; correct one of them"
        )


def _check_sums(site: Site, flat: Array, complaints: Complaints) -> None:
    """Exact sums against the exact entries they are made of."""
    known = site.margin(np.nan_to_num(flat))
    unknown = site.margin(np.isnan(flat).astype(float))
    counts = site.noise.counts
    for k in np.flatnonzero(((unknown == 0) & (known != counts)) | (known > counts)):
        text = f"the exact entries in it add up to {known[k]:.15g}; correct the sum or an entry"
        complaints.add(label(site), text, site.names[int(k)], counts[k])


def _check_margins(known: dict[Scope, Array], model: Model, complaints: Complaints) -> None:
    """Two exact tables must agree on the variables they share, wherever both say what the margin is."""
    by_variable: dict[object, list[Scope]] = {}
    for scope in known:
        for v in scope:
            by_variable.setdefault(v, []).append(scope)
    pairs = {(a, b) for scopes in by_variable.values() for i, a in enumerate(scopes) for b in scopes[i + 1 :]}
    for a, b in sorted(pairs, key=repr):
        shared = tuple(v for v in a if v in b)
        (low_a, whole_a), (low_b, whole_b) = _margin(known[a], a, shared), _margin(known[b], b, shared)
        clash = (
            (whole_a & whole_b & (low_a != low_b)) | (whole_a & (low_b > low_a)) | (whole_b & (low_a > low_b))
        )
        for k in np.flatnonzero(clash):
            entry = entry_name(shared, [model.states[v] for v in shared], int(k), chain=False)
            text = f"the exact counts of {a!r} and {b!r} contradict each other; correct one of the two"
            low = f"{entry}: {low_a.flat[k]:.15g} against {low_b.flat[k]:.15g}"
            complaints.add("exact margins", text, low)


def _margin(table: Array, scope: Scope, shared: Scope) -> tuple[Array, NDArray[np.bool_]]:
    """The known part of a margin, and where it is all known."""
    axes = tuple(k for k, v in enumerate(scope) if v not in shared)
    return np.asarray(np.nan_to_num(table).sum(axis=axes)), np.asarray(~np.isnan(table).any(axis=axes))


def label(site: Site) -> str:
    """How messages call the observation a site comes from."""
    return f"observations[{site.source}] ({type(site.noise).__name__})"
