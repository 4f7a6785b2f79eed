"""What cannot be right about a problem: single counts and parameters, and exact counts that contradict each other or N."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import combinations

import numpy as np
from scipy.sparse import csr_array, vstack

from headcount._types import Index, Mask
from headcount.errors import Faults, ProblemError, shown
from headcount.individual import Model
from headcount.observe._base import Array, Observation
from headcount.observe.binding import Part, Site, entry_name
from headcount.tables import Domain, Scope

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


def check_noise(sites: Sequence[Site], noises: Sequence[Part], population: int, faults: Faults) -> None:
    """Note what each noise finds wrong with its own counts and parameters; one call serves ten thousand times."""
    starts = np.cumsum([0, *map(len, sites)])
    for entries, noise in noises:
        for where, text, values in noise.faults(population):
            shown = np.broadcast_to(values, entries.shape)
            for k in np.flatnonzero(np.broadcast_to(where, entries.shape)):
                home = int(np.searchsorted(starts, entries[k], side="right")) - 1
                site = sites[home]
                faults.add(site.label, text, site.names[int(entries[k] - starts[home])], shown[k])


def _check_reach(sites: Sequence[Site], model: Model, population: int, faults: Faults) -> None:
    """Note counts with l(y | 0) = 0 where mu = 0, and with l(y | N) = 0 where mu = 1."""
    supports: dict[Scope, Array] = {}
    for site in sites:
        if site.scope not in supports:
            supports[site.scope] = (np.asarray(model.marginal(site.scope)) > 0).ravel().astype(float)
        support = supports[site.scope]
        reach = site.margin(support)
        remedy = _BACKGROUND if "background" in site.noise.entry_parameters() else _UNREACHABLE
        _note_impossible(site, np.flatnonzero(reach == 0), 0.0, remedy, faults)
        if not site.noise.exact:  # exact counts that do not add up to N are noted as such
            everyone = np.flatnonzero(reach == support.sum())
            _note_impossible(site, everyone, float(population), _CERTAIN, faults)


def _note_impossible(site: Site, where: Index, n: float | Array, text: str, faults: Faults) -> None:
    """Note the entries `where` whose count has probability zero given the true count `n` there."""
    if not where.size or site.noise.correlated:
        return
    noise: Observation = site.noise.take(where)
    impossible = _impossible(noise, np.broadcast_to(np.asarray(n, dtype=float), where.shape))
    for k in np.flatnonzero(impossible):
        faults.add(site.label, text, site.names[int(where[k])], noise.counts[k])


def _impossible(noise: Observation, n: Array) -> Mask:
    """Where l(y | n) = 0."""
    with np.errstate(over="ignore"):  # an absurd count may be so far away that its square overflows
        return np.isneginf(noise.log_prob(n))


def check_together(
    sites: Sequence[Site],
    noises: Sequence[Part],
    model: Model,
    population: int,
    faults: Faults,
    *,
    known: bool = True,
) -> None:
    """Note counts that are each possible, but not under this model, beside each other, or for this N (``known``), or any up to it."""
    _check_reach(sites, model, population, faults)
    _check_exact(sites, model, population, faults, known)
    if not faults and any(needed > population for _, needed in _needed(sites, noises, _roughly)):
        for what, needed in _needed(sites, noises):
            if needed > population:
                text = f"they need at least {needed:.15g} individuals, the population is N = {population}; correct one of them"
                faults.add(what, text)


_KNOWN = "this count cannot occur given the exact counts of the other observations; correct one of them"


def _check_exact(
    sites: Sequence[Site], model: Model, population: int, faults: Faults, size_known: bool
) -> None:
    """Note exact counts that no table of N individuals can have, and other counts they make impossible."""
    exact = [site for site in sites if site.noise.exact]
    if not exact:
        return
    known = _known(sites, model, faults)
    for scope in _scopes(exact):
        _check_total(scope, known[scope], population, faults, size_known)
    _check_margins(known, model, faults)
    _project(known)
    for scope in _scopes(exact):
        _check_sums(scope, exact, known[scope].ravel(), population if size_known else None, faults)
    for site in sites:
        if not site.noise.exact:
            truth = site.margin(known[site.scope].ravel())
            where = np.flatnonzero(~np.isnan(truth))
            _note_impossible(site, where, truth[where], _KNOWN, faults)


def _scopes(sites: Iterable[Site]) -> list[Scope]:
    """The scopes of the sites, each once."""
    return list(dict.fromkeys(site.scope for site in sites))


def _known(sites: Sequence[Site], model: Model, faults: Faults) -> dict[Scope, Array]:
    """The true counts that exact entries, and probabilities of zero, give away; NaN elsewhere."""
    known = {scope: np.full(model.size(scope), np.nan) for scope in _scopes(sites)}
    for site in sites:
        if site.noise.exact and site.index is not None:
            _fill(known[site.scope].reshape(-1), site, faults)
    for scope, table in known.items():
        table[np.isnan(table) & (np.asarray(model.marginal(scope)) == 0)] = 0.0
    return known


def _fill(flat: Array, site: Site, faults: Faults) -> None:
    """Write a site's exact counts into the known table; two readings of one entry must agree."""
    before = flat[site.index]
    for k in np.flatnonzero(~np.isnan(before) & (before != site.noise.counts)):
        text = f"another exact observation says {before[k]:.15g}; drop one of the two"
        faults.add(site.label, text, site.names[int(k)], site.noise.counts[k])
    flat[site.index] = site.noise.counts


def _check_total(scope: Scope, table: Array, population: int, faults: Faults, size_known: bool) -> None:
    """All entries known: they sum to N. Some known: they do not exceed it."""
    total, complete = float(np.nansum(table)), size_known and not np.isnan(table).any()
    if total > population or (complete and total != population):
        than = "the population is" if complete else "above the population"
        text = f"they add up to {total:.15g}, {than} N = {population}; correct one of them"
        faults.add(f"exact counts of {shown(scope)}", text)


def _check_margins(known: dict[Scope, Array], model: Model, faults: Faults) -> None:
    """Two exact tables must agree on the variables they share, wherever both say what the margin is."""
    for a, b in _overlapping(known):
        shared = tuple(v for v in a if v in b)
        (low_a, all_a), (low_b, all_b) = (_margin(known[scope], scope, shared) for scope in (a, b))
        clash = (all_a & all_b & (low_a != low_b)) | (all_a & (low_b > low_a)) | (all_b & (low_a > low_b))
        for k in np.flatnonzero(clash):
            entry = entry_name(shared, [model.states[v] for v in shared], int(k), chain=False)
            text = f"the exact counts of ({shown(a)}) and ({shown(b)}) contradict each other; correct one of the two"
            against = f"{entry}: {low_a.flat[k]:.15g} against {low_b.flat[k]:.15g}"
            faults.add("exact margins", text, against)


def _overlapping(scopes: Iterable[Scope]) -> Iterable[tuple[Scope, Scope]]:
    """Every two scopes that share a variable, each pair once."""
    by_variable: dict[Hashable, list[Scope]] = {}
    for scope in scopes:
        for v in scope:
            by_variable.setdefault(v, []).append(scope)
    return dict.fromkeys(pair for some in by_variable.values() for pair in combinations(some, 2))


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


def _margin(table: Array, scope: Scope, shared: Scope) -> tuple[Array, Mask]:
    """The known part of a margin, and where it is all known."""
    domain = Domain(scope, table.shape)
    return domain.project(np.nan_to_num(table), shared), ~domain.project(
        np.isnan(table), shared, total=np.any
    )


def _check_sums(
    scope: Scope, exact: Sequence[Site], flat: Array, population: int | None, faults: Faults
) -> None:
    """Exact sums over one table: each against the entries in it, then all together."""
    sums = [site for site in exact if site.weights is not None and site.scope == scope]
    fits = [_sums_fit(site, flat, faults) for site in sums]  # every one of them is checked
    if sums and all(fits):
        _check_feasible(scope, sums, flat, population, faults)


def _sums_fit(site: Site, flat: Array, faults: Faults) -> bool:
    """Exact sums against the exact entries they are made of."""
    known = site.margin(np.nan_to_num(flat))
    unknown = site.margin(np.isnan(flat).astype(float))
    counts = site.noise.counts
    wrong = np.flatnonzero(((unknown == 0) & (known != counts)) | (known > counts))
    for k in wrong:
        text = f"the exact entries in it add up to {known[k]:.15g}; correct the sum or an entry"
        faults.add(site.label, text, site.names[int(k)], counts[k])
    return not wrong.size


def _check_feasible(
    scope: Scope, sums: Sequence[Site], flat: Array, population: int | None, faults: Faults
) -> None:
    """Whether some table n ≥ 0 has these sums, these entries and (where it is known) the total N: a linear feasibility problem.

    Overlapping sums have no simpler test. In units of N, so that contradictions below 1e-7 N pass unseen.
    """
    unknown = np.flatnonzero(np.isnan(flat))
    if unknown.size == 0:
        return  # compared one by one already
    from scipy.optimize import linprog  # slow to import, and rarely needed

    known = np.nan_to_num(flat)
    rows = [site.weights for site in sums]
    right = np.concatenate([site.noise.counts - site.margin(known) for site in sums])
    if population is not None:
        rows, right = [csr_array(np.ones((1, flat.size))), *rows], np.append(population - known.sum(), right)
    matrix = csr_array(vstack(rows))[:, unknown]
    right = right / max(float(np.abs(right).max()), 1.0)
    if linprog(np.zeros(unknown.size), A_eq=matrix, b_eq=right, method="highs").status == 2:
        what = f"exact sums of {shown(scope)}"
        of = "" if population is None else f" of N = {population} individuals"
        text = f"no table{of} has all of them; correct those that overlap"
        faults.add(what, text)


def needed_population(sites: Sequence[Site], noises: Sequence[Part]) -> int:
    """The fewest individuals that every table's counts allow."""
    return int(max((needed for _, needed in _needed(sites, noises)), default=0.0))


def _needed(
    sites: Sequence[Site], noises: Sequence[Part], least: Callable[[Observation], Array] | None = None
) -> list[tuple[str, float]]:
    """What needs how many individuals: every site of sums (which may overlap), and the entries of every table together.

    The fewest that each count allows, added up over a table: a binomial count y needs y individuals, a positive Poisson count without
    background one, an exact count y.
    """
    fewest = np.zeros(sum(map(len, sites)))
    for positions, noise in noises:
        fewest[positions] = (least or _fewest)(noise)
    ends = np.cumsum([len(site) for site in sites])
    by_scope: dict[Scope, Array] = {}
    found: list[tuple[str, float]] = []
    for site, end in zip(sites, ends, strict=True):
        mine = fewest[end - len(site) : end]
        table = by_scope.setdefault(site.scope, np.zeros(site.size))
        if site.index is not None:
            np.maximum.at(table, site.index, mine)
        else:
            found.append((site.label, float(mine.max())))
    named = ((f"counts of {shown(scope)}", table) for scope, table in by_scope.items())
    return [*found, *((what, float(table.sum())) for what, table in named)]


def pinned_population(sites: Sequence[Site], model: Model) -> int | None:
    """N where every entry of some table is known exactly; None elsewhere."""
    exact = [site for site in sites if site.noise.exact]
    for scope, table in (_known(exact, model, Faults(ProblemError)) if exact else {}).items():
        if scope and not np.isnan(table).any():
            return int(table.sum())
    return None


def _roughly(noise: Observation) -> Array:
    """What `_fewest` cannot exceed, without a likelihood: enough for all but contradictory counts, and a tenth of the time."""
    return np.maximum(np.ceil(noise.domain_low), 0.0) + 1.0


def _fewest(noise: Observation) -> Array:
    """The smallest whole n ≥ 0 with l(y | n) > 0, per entry; 0 where that is not found at once."""
    if noise.correlated:
        return np.zeros(noise.counts.shape)
    start = np.maximum(np.ceil(noise.domain_low), 0.0)
    excluded = np.flatnonzero(_impossible(noise, start))  # the end of the domain may be
    start[excluded] += 1.0
    still = excluded[_impossible(noise.take(excluded), start[excluded])]
    start[still] = 0.0
    return start
