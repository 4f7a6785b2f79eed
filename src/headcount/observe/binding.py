"""From what the user gives to sites: `bind` makes the sites of an observation, `read_table` plain tables of labelled data.

A site is one noise on some entries, or sums of entries, of one table. Binding finds which table, which entries, and one parameter per
entry: arrays are taken as they are, labelled data by label, NaN where there is no row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, issparse

from headcount._types import Array, Index
from headcount.checks import brief, numbers
from headcount.dates import readable
from headcount.errors import Faults, named, shown
from headcount.individual import Model
from headcount.labels import is_dataarray, is_frame, is_series, item, meant, plain
from headcount.observe._base import Observation, is_labelled
from headcount.tables import Domain, Scope

_TIME = ("time", "variable")
_CELL = ("cell", "state")
_FLOW = (("origin", "from"), ("dest", "destination", "to"))
ROW_NAMES = ("sum", "region", "cell", "state")
"""Names the axis of sums may have in labelled counts."""
_COUNT = "count"
"""The column of a tidy frame that holds the numbers."""
_SHOWN = 5
"""Labels that a message lists before it only counts them."""


@dataclass(frozen=True, eq=False)
class Site:
    """What one observation says about one table: y_k ~ l(· | n_k), n_k an entry or a sum of entries.

    Attributes
    ----------
    scope
        The table's variables, in the model's order.
    size
        The number of entries of the table.
    index
        Flat entries (C order, increasing), shape (K,); None when sums are seen.
    weights
        0/1 matrix, shape (K, size), one row per sum; None when entries are seen.
    noise
        The observation on these K counts, 1-D, with one parameter per entry.
    names
        One readable name per count, for messages.
    source
        Which of the problem's observations this is.
    """

    scope: tuple[Hashable, ...]
    size: int
    index: Index | None
    weights: csr_array | None
    noise: Observation
    names: Sequence[str]
    source: int = 0

    def __len__(self) -> int:
        return int(self.noise.counts.size)

    @property
    def whole(self) -> bool:
        """Whether every entry of the table is seen, each by itself."""
        return self.index is not None and len(self) == self.size

    @property
    def label(self) -> str:
        """The name of the observation that the site comes from, for messages."""
        return f"observations[{self.source}] ({type(self.noise).__name__})"

    def margin(self, table: ArrayLike) -> Array:
        """n_k from a flat table: entries or sums, shape (..., size) to (..., K)."""
        flat = np.asarray(table)
        if self.index is not None:
            return flat[..., self.index]
        return self._applied(self.weights, flat)

    def added(self, entries: Index) -> Array:
        """What one individual in each of these flat entries adds to every count, (entries, K)."""
        if self.index is not None:
            return np.asarray(entries[:, None] == self.index, dtype=float)
        return np.asarray(csr_array(self.weights)[:, entries].toarray().T)

    def spread(self, values: ArrayLike) -> Array:
        """The adjoint of `margin`, (..., K) to (..., size): every entry adds up the counts it is part of."""
        values = np.asarray(values)
        if self.index is None:
            return self._applied(self.weights.T, values)  # type: ignore[union-attr]
        flat = np.zeros((*values.shape[:-1], self.size), dtype=values.dtype)
        flat[..., self.index] = values
        return flat

    @staticmethod
    def _applied(matrix: Any, values: Array) -> Array:
        columns = values.reshape(-1, values.shape[-1]).T
        return np.asarray((matrix @ columns).T.reshape(*values.shape[:-1], matrix.shape[0]))


@dataclass(frozen=True, eq=False)
class EntryNames(Sequence[str]):
    """``"time 3, cell 'A'"`` for entry k of a table.

    A map of 10 000 cells over a year has half a million entries, so names are made when a message needs one.

    Attributes
    ----------
    scope
        The table's variables.
    states
        The labels of each variable's states.
    entries
        Flat entries of the table; for sums, which of `sums`.
    chain
        Whether names say "time" and "cell" rather than the variable's name.
    sums
        The names of the sums, when these are sums and not entries.
    """

    scope: tuple[Hashable, ...]
    states: tuple[tuple[Hashable, ...], ...]
    entries: Index
    chain: bool
    sums: tuple[Hashable, ...] | None = None

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, k: int) -> str: ...

    @overload
    def __getitem__(self, k: slice) -> list[str]: ...

    def __getitem__(self, k: int | slice) -> str | list[str]:
        if isinstance(k, slice):
            return [self[j] for j in range(*k.indices(len(self)))]
        entry = int(self.entries[k])
        if self.sums is not None:
            where = ", ".join(f"time {readable(v)}" if self.chain else readable(v) for v in self.scope)
            return f"sum {named(self.sums[entry])} of {where}"
        return entry_name(self.scope, self.states, entry, chain=self.chain)


def entry_name(
    scope: tuple[Hashable, ...], states: Sequence[tuple[Hashable, ...]], entry: int, *, chain: bool
) -> str:
    """The name of one flat entry of a table."""
    place = np.unravel_index(entry, [len(s) for s in states])
    parts = [(v, labels[i]) for v, labels, i in zip(scope, states, place, strict=True)]
    if chain:
        return " to ".join(f"time {readable(v)}, cell {named(label)}" for v, label in parts)
    return ", ".join(f"{readable(v)} = {named(label)}" for v, label in parts)


Part = tuple[Index, Observation]
"""Positions among all observed entries (concatenated over sites), and the noise on them."""


def by_family(sites: Sequence[Site]) -> tuple[Part, ...]:
    """Every observed entry with its noise: noises of one family are joined into one, so that one call serves them all.

    Noises with correlated errors are not joined.
    """
    found: dict[Hashable, list[Part]] = {}
    start = 0
    for k, site in enumerate(sites):
        entries = np.arange(start, start + len(site))
        found.setdefault(k if site.noise.correlated else site.noise.family, []).append((entries, site.noise))
        start += len(site)
    return tuple(map(_joined, found.values()))


def _joined(parts: list[Part]) -> Part:
    """One noise for all parts, with their parameters concatenated."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0][1]
    held = [noise.entry_parameters() for _, noise in parts]
    values = {"counts": np.concatenate([noise.counts for _, noise in parts])}
    for name in held[0]:
        each = zip(held, parts, strict=True)
        values[name] = np.concatenate([np.broadcast_to(h[name], entries.shape) for h, (entries, _) in each])
    return np.concatenate([entries for entries, _ in parts]), first.replaced(values)


@dataclass(frozen=True, eq=False)
class _Table:
    """One table with the data on it, flat: counts (M,), parameters (M,) and (M, M), sums (M, size)."""

    scope: Scope
    counts: Array
    entry: dict[str, Array]
    pair: dict[str, Array]
    sums: ObservedSums | None


def bind(observation: Observation, model: Model, *, source: int, chain: bool, faults: Faults) -> list[Site]:
    """The sites of one observation: one per table of which something was seen.

    What does not fit is noted in `faults`, and the table left out.
    """
    what = f"observations[{source}] ({observation.name})"
    sites = []
    try:
        for table in _tables(observation, model):
            seen = np.flatnonzero(~np.isnan(table.counts))
            if seen.size:
                sites.append(_site(observation, model, _canonical(table, model), source, chain))
    except Misfit as misfit:
        faults.add(what, str(misfit))
        return []
    if not sites:
        faults.add(what, "nothing is observed: every count is NaN or absent; leave the observation out")
    return sites


def _tables(observation: Observation, model: Model) -> Iterator[_Table]:
    """The observation as one table of data per scope."""
    counts, on = observation.counts, observation.on
    if isinstance(counts, Mapping):
        if on is not None:
            raise Misfit(f"on={on!r} beside counts that already name their variables: leave it out")
        for key, value in counts.items():
            yield _one_table(_for_key(observation, key, value), _scope(key, model), model)
        return
    if on is not None:
        yield _one_table(observation, _scope(on, model), model)
        return
    named = dimension_names(counts)
    if named is not None and named and all(name in model.states for name in named):
        yield _one_table(observation, _scope(named, model), model)
        return
    yield from _node_tables(observation, model)


def _for_key(observation: Observation, key: Hashable, counts: Any) -> Observation:
    """The part of an observation given by mappings that concerns one key."""
    values: dict[str, Any] = {"counts": counts}
    for name, value in {**observation.entry_parameters(), **observation.pair_parameters()}.items():
        if isinstance(value, Mapping):
            if key not in value:
                raise Misfit(f"{name} has no value for {key!r}: give one for every key of the counts")
            values[name] = value[key]
    if isinstance(observation.sums, Mapping) and key in observation.sums:
        values["sums"] = observation.sums[key]
    return observation.replaced(values)


def _scope(on: Any, model: Model) -> Scope:
    """`on` as a scope inside a clique."""
    scope = _as_tuple(on, model)
    unknown = [v for v in scope if v not in model.states]
    if unknown or not scope:
        raise Misfit(
            f"unknown variable {shown(unknown) or '()'} in on: the model has {shown(model.variables)}"
        )
    if len(set(scope)) < len(scope):
        raise Misfit(f"on={on!r} names a variable twice")
    if len(scope) > 1 and model.junction_tree.covering(scope) is None:
        raise Misfit(
            f"the variables {scope!r} are not together in one clique of the model: "
            "observe tables inside a clique, or add a factor over them to the model"
        )
    return scope


def _as_tuple(on: Any, model: Model) -> Scope:
    """A variable as a tuple of one; a tuple may be the name of a variable too."""
    try:
        scope: Scope = tuple(on) if isinstance(on, (tuple, list)) else (on,)
        hash(scope)
    except TypeError:
        raise Misfit(f"on is {brief(on)}: give a variable or a tuple of variables") from None
    return (on,) if isinstance(on, tuple) and on in model.states else scope


def _one_table(observation: Observation, scope: Scope, model: Model) -> _Table:
    """Data on a table over one scope, axes in the user's order."""
    flow: tuple[tuple[str, ...], ...] = _FLOW if len(scope) == 2 else ((),) * len(scope)
    axes = [Axis((v, *flow[k]), model.states[v]) for k, v in enumerate(scope)]
    sums = _sums(observation, axes)
    counts, entry, pair = _read(observation, axes if sums is None else [sums.axis])
    return _Table(scope, counts.ravel(), {name: value.ravel() for name, value in entry.items()}, pair, sums)


def _node_tables(observation: Observation, model: Model) -> Iterator[_Table]:
    """Data on every variable: one row per variable."""
    variables, states = model.variables, model.states
    labelled = is_labelled(observation.counts)
    cells = Axis(_CELL, _columns(model, labelled=labelled, sums=observation.sums is not None))
    sums = _sums(observation, [cells])
    axes = [Axis(_TIME, variables), cells if sums is None else sums.axis]
    counts, entry, pair = _read(observation, axes, rows=len(variables))
    place = {label: k for k, label in enumerate(cells.labels)}
    for row, v in enumerate(variables):
        keep: Any = slice(None)
        if labelled and states[v] != cells.labels:
            keep = np.array([place[label] for label in states[v]])
            _nothing_outside(counts[row], keep, cells.labels, v)
        pairs = {name: value[row][keep][:, keep] for name, value in pair.items()}
        yield _Table((v,), counts[row][keep], {k: e[row][keep] for k, e in entry.items()}, pairs, sums)


def _columns(model: Model, *, labelled: bool, sums: bool) -> tuple[Hashable, ...]:
    """The labels along a row of counts: the states of every variable, or of all together where the counts have labels."""
    states = list(model.states.values())
    if all(some == states[0] for some in states):
        return states[0]
    if sums:
        raise Misfit(
            "sums over variables with different states: give on=..., or a mapping from variable to counts"
        )
    if labelled:
        return tuple(dict.fromkeys(label for some in states for label in some))
    if len({len(some) for some in states}) > 1:
        raise Misfit(
            "the variables have different numbers of states: give on=... or a mapping from variable to counts"
        )
    return states[0]


def _sums(observation: Observation, axes: list[Axis]) -> ObservedSums | None:
    if observation.sums is None:
        return None
    sums: ObservedSums = _named("sums", read_sums, observation.sums, axes)
    return sums


def _read(
    observation: Observation, axes: list[Axis], *, rows: int | None = None
) -> tuple[Array, dict[str, Array], dict[str, Array]]:
    """Counts, parameters per entry and parameters per pair over `axes`, the first of which may be the rows of variables."""
    counts = _named("counts", read_table, observation.counts, axes)
    entry = {
        name: _named(name, read_table, value, axes, partial=True)
        for name, value in observation.entry_parameters().items()
    }
    length = math.prod(len(axis.labels) for axis in axes[rows is not None :])
    lead = () if rows is None else (rows,)
    pair = {name: _pair(name, value, lead, length) for name, value in observation.pair_parameters().items()}
    return counts, entry, pair


def _nothing_outside(row: Array, keep: Index, union: tuple[Hashable, ...], variable: Hashable) -> None:
    outside = np.ones(len(union), dtype=bool)
    outside[keep] = False
    stray = [union[k] for k in np.flatnonzero(outside & ~np.isnan(row))]
    if stray:
        raise Misfit(f"counts for {stray[0]!r}, which is not a state of {variable!r}")


def _named(name: str, read: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """``read(*arguments, **options)``; an error says which argument of the noise did not fit."""
    try:
        return read(*arguments, **options)
    except Misfit as misfit:
        raise Misfit(f"{name}: {misfit}") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise Misfit(f"{name}: must be numbers, or labelled numbers ({error})") from None


def _pair(name: str, value: Any, lead: tuple[int, ...], length: int) -> Array:
    """A (K, K) parameter, broadcast over the variables if there are several."""
    if is_labelled(value):
        raise Misfit(f"{name}: give a plain array, entries in the table's order; labels are not read here")
    array = _named(name, np.asarray, value, dtype=float)
    shape = (*lead, length, length)
    if array.shape not in (shape, shape[-2:]):
        raise Misfit(f"{name}: shape {array.shape} where {shape} is needed")
    return np.broadcast_to(array, shape)


def _canonical(table: _Table, model: Model) -> _Table:
    """The same table with its axes in the model's order, so that (u, v) and (v, u) give one site."""
    scope = tuple(sorted(table.scope, key=model.variables.index)) if len(table.scope) > 1 else table.scope
    if scope == table.scope:
        return table
    flat = Domain(scope, model.size(scope)).positions(table.scope)
    if table.sums is not None:
        sums = ObservedSums(table.sums.weights[:, flat], table.sums.axis)
        return replace(table, scope=scope, sums=sums)
    entry = {name: value[flat] for name, value in table.entry.items()}
    pair = {name: value[np.ix_(flat, flat)] for name, value in table.pair.items()}
    return _Table(scope, table.counts[flat], entry, pair, None)


def _site(observation: Observation, model: Model, table: _Table, source: int, chain: bool) -> Site:
    """Keep what was observed."""
    seen = np.flatnonzero(~np.isnan(table.counts))
    values: dict[str, Any] = {"counts": table.counts[seen], "on": table.scope, "sums": None}
    values |= {name: value[seen] for name, value in table.entry.items()}
    values |= {name: value[np.ix_(seen, seen)] for name, value in table.pair.items()}
    for value in values.values():
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
    states = tuple(model.states[v] for v in table.scope)
    names = EntryNames(
        table.scope, states, seen, chain, None if table.sums is None else table.sums.axis.labels
    )
    weights = None if table.sums is None else csr_array(table.sums.weights[seen])
    size = math.prod(len(s) for s in states)
    index = seen if table.sums is None else None
    return Site(table.scope, size, index, weights, observation.replaced(values), names, source)


class Misfit(ValueError):
    """Data that do not fit the table they are meant for; the text says how."""


@dataclass(frozen=True)
class Axis:
    """One axis of a table: the names its dimension, level or column may have, and the labels along it."""

    names: tuple[Hashable, ...]
    labels: tuple[Hashable, ...]


def read_table(data: Any, axes: Sequence[Axis], *, partial: bool = False) -> Array:
    """`data` as a float table over `axes`, NaN where it has no row.

    Parameters
    ----------
    data
        An array of exactly that shape, or labelled data in any order of labels and axes.
    axes
        The table's axes.
    partial
        For parameters: an absent axis has length one, plain arrays broadcast.

    Raises
    ------
    Misfit
        Unknown or repeated labels, unknown dimensions, wrong shape.
    """
    if is_dataarray(data):
        return _from_dataarray(data, axes, partial)
    if is_frame(data):
        data = _stacked(data, axes)
    if is_series(data):
        return _from_series(data, axes, partial)
    return _from_array(numbers(data, "it"), axes, partial)


def positions(labels: Iterable[Any], known: Sequence[Hashable], what: Hashable) -> Index:
    """Where each label stands in `known`; `Misfit` if one is not there."""
    labels = list(labels)
    keys = list(map(plain, labels))
    place = _places(keys, known)
    unknown = list(
        dict.fromkeys(item(label) for label, key in zip(labels, keys, strict=True) if key not in place)
    )
    if unknown:
        raise Misfit(
            f"unknown label{'s' if len(unknown) > 1 else ''} {shown(unknown, _SHOWN)} along {what!r}: "
            f"the model has {shown(known, _SHOWN)}{_likely(unknown, known)}"
        )
    return np.array([place[key] for key in keys], dtype=np.intp)


_MISTAKES = {
    "text, number": "they are texts, and the model's are numbers: convert them with astype(int), or give the model texts",
    "number, text": "they are numbers, and the model's are texts: convert them with astype(str), or give the model numbers",
    "aware, naive": "they have a time zone and the model's have none: take it off with tz_localize(None), or give the model times with it",
    "naive, aware": "they have no time zone and the model's have one: give them theirs with tz_localize(zone), or take it off the model's",
}
"""Likely mistakes behind unknown labels, by what they are and what the model's are."""


def _likely(unknown: Sequence[Any], known: Sequence[Any]) -> str:
    """The likely mistake behind labels that the model has not; numbers and texts only where they read alike."""
    kinds = f"{_kind_of_labels(unknown)}, {_kind_of_labels(known)}"
    alike = "text" not in kinds or {*map(str, unknown)} <= {*map(str, known)}
    return f"; {_MISTAKES[kinds]}" if alike and kinds in _MISTAKES else ""


def _kind_of_labels(labels: Sequence[Any]) -> str:
    """What all labels are; "" where they differ."""
    kinds = set(map(_kind_of_label, labels))
    return kinds.pop() if len(kinds) == 1 else ""


def _kind_of_label(label: Any) -> str:
    """Text, number, a time with a zone (aware) or without (naive), or something else."""
    if isinstance(label, str):
        return "text"
    if isinstance(label, (int, np.integer)):
        return "number"
    if not hasattr(label, "tzinfo"):
        return "other"
    return "naive" if label.tzinfo is None else "aware"


def _places(keys: Sequence[Hashable], known: Sequence[Hashable]) -> dict[Hashable, int]:
    """The position of every known label by its plain form, and by the texts among `keys` that name a date."""
    place = {plain(label): k for k, label in enumerate(known)}
    texts = {key for key in keys if isinstance(key, str)} - place.keys()
    dates = {text: plain(meant(text, known)) for text in texts}
    return place | {text: place[date] for text, date in dates.items() if date in place}


def dimension_names(data: Any) -> tuple[Hashable, ...] | None:
    """The names of the dimensions, levels or tidy columns of labelled data; None where it has none."""
    if is_dataarray(data):
        return tuple(data.dims)
    if is_series(data):
        names = tuple(data.index.names)
        return None if any(name is None for name in names) else names
    if is_frame(data) and _COUNT in data.columns:
        return tuple(c for c in data.columns if c != _COUNT)
    return None


def _shape(axes: Sequence[Axis]) -> tuple[int, ...]:
    return tuple(len(axis.labels) for axis in axes)


def _from_array(data: Array, axes: Sequence[Axis], partial: bool) -> Array:
    shape = _shape(axes)
    if data.shape == shape:
        return data
    if partial:
        try:
            return np.broadcast_to(data, shape)
        except ValueError:
            raise Misfit(f"shape {data.shape} does not broadcast to the table's {shape}") from None
    turned = data.ndim == 2 and data.shape == shape[::-1]
    hint = (
        f"it looks transposed: give its .T, {' by '.join(str(axis.names[0]) for axis in axes)}"
        if turned
        else "NaN marks what was not observed"
    )
    raise Misfit(f"shape {data.shape} where the table has {shape}; {hint}")


def _place(names: Sequence[Hashable], axes: Sequence[Axis], partial: bool) -> list[int]:
    """Which axis each named dimension is."""
    if len(names) == len(axes) == 1:
        return [0]
    expected = " × ".join(" or ".join(map(repr, axis.names)) for axis in axes)
    place = []
    for name in names:
        found = [k for k, axis in enumerate(axes) if name in axis.names and k not in place]
        if not found:
            raise Misfit(f"dimension {name!r} is not one of {expected}: rename it")
        place.append(found[0])
    if len(place) < len(axes) and not partial:
        raise Misfit(f"dimensions {tuple(names)!r} where {expected} are needed")
    return place


def _from_dataarray(data: Any, axes: Sequence[Axis], partial: bool) -> Array:
    place = _place(data.dims, axes, partial)
    columns = [_along(data, dim, axes[k].labels) for dim, k in zip(data.dims, place, strict=True)]
    shape = [len(axis.labels) if k in place else 1 for k, axis in enumerate(axes)]
    order = np.argsort(place)
    table = np.full(shape, np.nan)
    by_axis = dict(zip(place, columns, strict=True))
    grid = np.ix_(*(by_axis.get(k, np.zeros(1, dtype=np.intp)) for k in range(len(axes))))
    table[grid] = np.transpose(np.asarray(data.values, dtype=float), order).reshape(
        [len(g.ravel()) for g in grid]
    )
    return np.broadcast_to(table, _shape(axes))


def _along(data: Any, dim: Hashable, labels: Sequence[Hashable]) -> Index:
    """Where the entries of a DataArray along `dim` stand among `labels`: by label, or in order where it has none."""
    if dim in data.coords:
        return _distinct(positions(list(data.indexes[dim]), labels, dim), labels, dim)
    if data.sizes[dim] != len(labels):
        raise Misfit(
            f"dimension {dim!r} has no labels and length {data.sizes[dim]} where {len(labels)} are needed"
        )
    return np.arange(len(labels))


def _distinct(place: Index, labels: Sequence[Hashable], what: Hashable) -> Index:
    kept, times = np.unique(place, return_counts=True)
    if (times > 1).any():
        again = [labels[k] for k in kept[times > 1]]
        raise Misfit(
            f"repeated label {shown(again, _SHOWN)} along {what!r}: one row each (nothing is added up in silence)"
        )
    return place


def _from_series(data: Any, axes: Sequence[Axis], partial: bool) -> Array:
    index = data.index
    names = tuple(index.names)
    unnamed = set(names) == {None} and index.nlevels == len(axes)
    place = list(range(len(axes))) if unnamed else _place(names, axes, partial)
    labels = [axis.labels if k in place else () for k, axis in enumerate(axes)]
    shape = [max(len(known), 1) for known in labels]
    where = [np.zeros(len(data), dtype=np.intp) for _ in axes]
    for level, k in enumerate(place):
        what = names[level] if names[level] is not None else k
        where[k] = positions(index.get_level_values(level), labels[k], what)
    flat = np.ravel_multi_index(where, shape) if len(data) else np.zeros(0, dtype=np.intp)
    _refuse_repeated(flat, shape, labels)
    table = np.full(int(np.prod(shape)), np.nan)
    table[flat] = data.to_numpy(dtype=float, na_value=np.nan)
    return np.broadcast_to(table.reshape(shape), _shape(axes))


def _refuse_repeated(flat: Index, shape: Sequence[int], labels: Sequence[Sequence[Hashable]]) -> None:
    """Two rows for one entry of the table."""
    kept, times = np.unique(flat, return_counts=True)
    if (times > 1).any():
        rows = np.transpose(np.unravel_index(kept[times > 1], shape))
        again = [tuple(names[k] for names, k in zip(labels, row, strict=True) if names) for row in rows]
        raise Misfit(f"repeated row {shown(again, _SHOWN)}: one row each (nothing is added up in silence)")


def _stacked(data: Any, axes: Sequence[Axis]) -> Any:
    """A tidy frame (label columns and `count`) or a wide one (rows and columns labelled) as a Series."""
    tidy = dimension_names(data)
    known = {name for axis in axes for name in axis.names}
    if tidy is not None and all(name in known for name in tidy):
        return data.set_index(list(tidy))[_COUNT]
    if len(axes) != 2:
        raise Misfit(
            f"a DataFrame with columns {shown(data.columns, _SHOWN)} for a table with {len(axes)} "
            f"ax{'i' if len(axes) == 1 else 'e'}s: give label columns and a column 'count', or a Series"
        )
    if _turned(data, axes):
        raise Misfit("it is transposed, its rows are columns of the table: give its .T")
    rows = _distinct(positions(data.index, axes[0].labels, "the index"), axes[0].labels, "the index")
    columns = _distinct(positions(data.columns, axes[1].labels, "the columns"), axes[1].labels, "the columns")
    table = np.full(_shape(axes), np.nan)
    table[np.ix_(rows, columns)] = data.to_numpy(dtype=float, na_value=np.nan)
    return table


def _turned(data: Any, axes: Sequence[Axis]) -> bool:
    """Whether the rows of a frame are labelled as the table's second axis and its columns as the first, and not the other way round."""
    ends = [list(map(plain, labels)) for labels in (data.index, data.columns)]
    known = [{plain(label) for label in axis.labels} for axis in axes]
    right = all(known[k].issuperset(ends[k]) for k in (0, 1))
    return not right and all(known[1 - k].issuperset(ends[k]) for k in (0, 1))


@dataclass(frozen=True, eq=False)
class ObservedSums:
    """n_k = sum_i weights[k, i] n(i): the matrix, and the sums as an axis of the counts' table."""

    weights: csr_array
    axis: Axis


def read_sums(sums: Any, axes: Sequence[Axis]) -> ObservedSums:
    """`sums` as a 0/1 matrix over the entries of the table with `axes`, in C order.

    Accepted: an array or sparse matrix (K, size), an array (K, *shape), a DataFrame (one row per sum, one
    column per state), a DataArray (one dimension more than the table, the sums' own), or a mapping from a sum's name
    to the states in it (for larger tables: tuples of states).

    Raises
    ------
    Misfit
        Unknown labels, wrong shape, weights other than 0 and 1, an empty sum.
    """
    shape = tuple(len(axis.labels) for axis in axes)
    size = math.prod(shape)
    row_names: tuple[Hashable, ...] = ROW_NAMES
    if isinstance(sums, Mapping):
        labels, matrix = tuple(sums), _sums_of_mapping(sums, axes, shape)
    elif issparse(sums):
        matrix = csr_array(sums)
        labels = tuple(range(matrix.shape[0]))
    elif is_dataarray(sums):
        dim, labels, dense = _sums_of_dataarray(sums, axes)
        row_names, matrix = (dim, *ROW_NAMES), csr_array(dense)
    elif is_frame(sums):
        labels, matrix = tuple(sums.index), _sums_of_frame(sums, axes, shape)
    elif is_labelled(sums):
        raise Misfit("sums must be a matrix, a DataFrame, a DataArray or {name: [states]}, got a Series")
    else:
        dense = np.asarray(sums, dtype=float)
        if dense.shape[1:] not in ((size,), shape):
            raise Misfit(
                f"sums has shape {dense.shape} where (K, {size}) is needed: one row per sum, one column per entry"
            )
        matrix = csr_array(dense.reshape(dense.shape[0], size))
        labels = tuple(range(dense.shape[0]))
    return ObservedSums(_checked_sums(matrix, size, labels), Axis(row_names, labels))


def _checked_sums(matrix: csr_array, size: int, labels: Sequence[Hashable]) -> csr_array:
    matrix = csr_array(matrix, dtype=float)
    if matrix.shape[1] != size:
        raise Misfit(f"sums has {matrix.shape[1]} columns where the table has {size} entries")
    matrix.sum_duplicates()
    other = matrix.data[(matrix.data != 0) & (matrix.data != 1)]
    if other.size:
        raise Misfit(
            f"sums must hold 0 and 1 only, got {other[0]:g}: a count is a total of entries, each once"
        )
    matrix.eliminate_zeros()
    matrix.sort_indices()
    empty = np.flatnonzero(np.diff(matrix.indptr) == 0)
    if empty.size:
        raise Misfit(f"sum {labels[empty[0]]!r} has no entries: leave its row out")
    return matrix


def _sums_of_mapping(sums: Mapping[Any, Any], axes: Sequence[Axis], shape: tuple[int, ...]) -> csr_array:
    rows, columns = [], []
    for row, (name, members) in enumerate(sums.items()):
        if isinstance(members, str):
            raise Misfit(f"sum {name!r} must list its states, got the text {members!r}: write [{members!r}]")
        members = list(members)
        if len(axes) == 1:
            flat = positions(members, axes[0].labels, f"sum {name!r}")
        else:
            if any(not isinstance(m, tuple) or len(m) != len(axes) for m in members):
                raise Misfit(f"sum {name!r} must list tuples of {len(axes)} states, one per variable")
            by_axis = [
                positions([m[k] for m in members], axis.labels, f"sum {name!r}")
                for k, axis in enumerate(axes)
            ]
            flat = np.asarray(np.ravel_multi_index(by_axis, shape)) if members else np.zeros(0, dtype=np.intp)
        rows += [row] * len(flat)
        columns += flat.tolist()
    return csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(sums), math.prod(shape)))


def _sums_of_dataarray(sums: Any, axes: Sequence[Axis]) -> tuple[Hashable, tuple[Hashable, ...], Any]:
    """The dimension of the sums, their labels, and the matrix; states that a DataArray does not name are in no sum."""
    known = {name for axis in axes for name in axis.names}
    own = [dim for dim in sums.dims if dim not in known]
    if len(own) != 1 or len(sums.dims) != len(axes) + 1:
        expected = " × ".join(repr(axis.names[0]) for axis in axes)
        raise Misfit(f"sums has dimensions {tuple(sums.dims)!r}: one for the sums and {expected} are needed")
    if np.isnan(numbers(sums.values, "it")).any():
        raise Misfit("sums must hold 0 and 1 only, got nan: a count is a total of entries, each once")
    labels = tuple(sums.indexes[own[0]]) if own[0] in sums.coords else tuple(range(sums.sizes[own[0]]))
    dense = np.nan_to_num(read_table(sums, [Axis((own[0],), labels), *axes]))
    return own[0], labels, dense.reshape(len(labels), -1)


def _sums_of_frame(sums: Any, axes: Sequence[Axis], shape: tuple[int, ...]) -> csr_array:
    if sums.columns.nlevels != len(axes):
        raise Misfit(
            f"sums has {sums.columns.nlevels} level(s) of columns where the table has {len(axes)} variable(s)"
        )
    by_axis = [
        positions(sums.columns.get_level_values(k), axis.labels, "the columns of sums")
        for k, axis in enumerate(axes)
    ]
    dense = np.zeros((len(sums), math.prod(shape)))
    dense[:, np.ravel_multi_index(by_axis, shape)] = sums.to_numpy(dtype=float)
    return csr_array(dense)
