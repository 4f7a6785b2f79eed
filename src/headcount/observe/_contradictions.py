"""Exact margins that contradict each other, the population, or what the other observations saw."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from headcount.individual import Model
from headcount.observe._base import Array, Scope
from headcount.observe._check import label, note_impossible
from headcount.observe._complaints import Complaints
from headcount.observe._names import entry_name
from headcount.observe._site import Site

_KNOWN = "this count cannot occur given the exact counts of the other observations; correct one of them"


def check_exact(sites: Sequence[Site], model: Model, population: int, complaints: Complaints) -> None:
    """Note exact counts that no table of N individuals can have, and other counts they make impossible."""
    exact = [site for site in sites if site.noise.exact]
    if not exact:
        return
    known = {scope: np.full(model.size(scope), np.nan) for scope in dict.fromkeys(s.scope for s in sites)}
    for site in exact:
        if site.index is not None:
            _fill(known[site.scope].reshape(-1), site, complaints)
    for scope, table in known.items():
        table[np.isnan(table) & (np.asarray(model.marginal(scope)) == 0)] = 0.0
    for scope in dict.fromkeys(site.scope for site in exact):
        _check_total(scope, known[scope], population, complaints)
    _check_margins(known, model, complaints)
    _project(known)
    for scope in dict.fromkeys(site.scope for site in exact if site.weights is not None):
        sums = [site for site in exact if site.weights is not None and site.scope == scope]
        fits = [_sums_fit(site, known[scope].ravel(), complaints) for site in sums]
        if all(fits):
            _check_feasible(scope, sums, known[scope].ravel(), population, complaints)
    for site in sites:
        if not site.noise.exact:
            truth = site.margin(known[site.scope].ravel())
            where = np.flatnonzero(~np.isnan(truth))
            note_impossible(site, where, truth[where], _KNOWN, complaints)


def _fill(flat: Array, site: Site, complaints: Complaints) -> None:
    """Write a site's exact counts into the known table; two readings of one entry must agree."""
    before = flat[site.index]
    for k in np.flatnonzero(~np.isnan(before) & (before != site.noise.counts)):
        text = f"another exact observation says {before[k]:.15g}; drop one of the two"
        complaints.add(label(site), text, site.names[int(k)], site.noise.counts[k])
    flat[site.index] = site.noise.counts


def _check_total(scope: Scope, table: Array, population: int, complaints: Complaints) -> None:
    """All entries known: they sum to N. Some known: they do not exceed it."""
    total, complete = float(np.nansum(table)), not np.isnan(table).any()
    what = f"exact counts of {', '.join(map(repr, scope))}"
    if complete and total != population:
        text = f"they add up to {total:.15g}, the population is N = {population}; correct one of them"
        complaints.add(what, text)
    elif total > population:
        text = f"they add up to {total:.15g}, above the population N = {population}; correct one of them"
        complaints.add(what, text)


def _check_margins(known: dict[Scope, Array], model: Model, complaints: Complaints) -> None:
    """Two exact tables must agree on the variables they share, wherever both say what the margin is."""
    by_variable: dict[Hashable, list[Scope]] = {}
    for scope in known:
        for v in scope:
            by_variable.setdefault(v, []).append(scope)
    pairs = {
        (a, b): None for scopes in by_variable.values() for i, a in enumerate(scopes) for b in scopes[i + 1 :]
    }
    for a, b in pairs:
        shared = tuple(v for v in a if v in b)
        (low_a, all_a), (low_b, all_b) = _margin(known[a], a, shared), _margin(known[b], b, shared)
        clash = (all_a & all_b & (low_a != low_b)) | (all_a & (low_b > low_a)) | (all_b & (low_a > low_b))
        for k in np.flatnonzero(clash):
            entry = entry_name(shared, [model.states[v] for v in shared], int(k), chain=False)
            text = f"the exact counts of {a!r} and {b!r} contradict each other; correct one of the two"
            against = f"{entry}: {low_a.flat[k]:.15g} against {low_b.flat[k]:.15g}"
            complaints.add("exact margins", text, against)


def _project(known: dict[Scope, Array]) -> None:
    """Fill in what a larger table says of a smaller one."""
    by_variable: dict[Hashable, list[Scope]] = {}
    for scope in known:
        by_variable.setdefault(scope[0], []).append(scope)
    for scope, table in known.items():
        if np.isnan(table).all():
            continue
        for smaller in (s for v in scope for s in by_variable.get(v, ()) if set(s) < set(scope)):
            low, complete = _margin(table, scope, smaller)
            new = complete & np.isnan(known[smaller])
            known[smaller][new] = low[new]


def _margin(table: Array, scope: Scope, shared: Scope) -> tuple[Array, NDArray[np.bool_]]:
    """The known part of a margin, and where it is all known."""
    axes = tuple(k for k, v in enumerate(scope) if v not in shared)
    return np.asarray(np.nan_to_num(table).sum(axis=axes)), np.asarray(~np.isnan(table).any(axis=axes))


def _sums_fit(site: Site, flat: Array, complaints: Complaints) -> bool:
    """Exact sums against the exact entries they are made of."""
    known = site.margin(np.nan_to_num(flat))
    unknown = site.margin(np.isnan(flat).astype(float))
    counts = site.noise.counts
    wrong = np.flatnonzero(((unknown == 0) & (known != counts)) | (known > counts))
    for k in wrong:
        text = f"the exact entries in it add up to {known[k]:.15g}; correct the sum or an entry"
        complaints.add(label(site), text, site.names[int(k)], counts[k])
    return not wrong.size


def _check_feasible(
    scope: Scope, sums: Sequence[Site], flat: Array, population: int, complaints: Complaints
) -> None:
    """Whether some table n ≥ 0 has these sums, these entries and the total N: a linear feasibility problem.

    Overlapping sums have no simpler test. In units of N, so that contradictions below 1e-7 N pass unseen.
    """
    unknown = np.flatnonzero(np.isnan(flat))
    if unknown.size == 0:
        return  # compared one by one already
    from scipy.optimize import linprog  # slow to import, and rarely needed

    known = np.nan_to_num(flat)
    everyone = csr_array(np.ones((1, flat.size)))
    matrix = csr_array(vstack([everyone, *(site.weights for site in sums)]))[:, unknown]
    gaps = [site.noise.counts - site.margin(known) for site in sums]
    right = np.concatenate([[population - known.sum()], *gaps]) / population
    if linprog(np.zeros(unknown.size), A_eq=matrix, b_eq=right, method="highs").status == 2:
        what = f"exact sums of {', '.join(map(repr, scope))}"
        text = f"no table of N = {population} individuals has all of them; correct those that overlap"
        complaints.add(what, text)
