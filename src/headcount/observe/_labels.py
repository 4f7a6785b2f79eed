"""Counts, parameters and sums as plain tables: arrays as they are, labelled data by label, NaN where there is no row."""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from headcount._types import Array, Index
from headcount.checks import brief, numbers
from headcount.errors import ModelError, ProblemError, shown
from headcount.labels import is_dataarray, is_frame, is_series, item, meant, plain

ROW_NAMES = ("sum", "region", "cell", "state")
"""Names the axis of sums may have in labelled counts."""
_COUNT = "count"
"""The column of a tidy frame that holds the numbers."""
_SHOWN = 5
"""Labels that a message lists before it only counts them."""


class Misfit(ValueError):
    """Data that do not fit the table they are meant for; the text says how."""


@dataclass(frozen=True)
class Axis:
    """One axis of a table: the names its dimension, level or column may have, and the labels along it."""

    names: tuple[Hashable, ...]
    labels: tuple[Hashable, ...]


def is_sparse(data: Any) -> bool:
    """Whether `data` is a scipy sparse matrix or array."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(data))


def is_labelled(data: Any) -> bool:
    """Whether `data` carries labels of its own."""
    return is_dataarray(data) or is_series(data) or is_frame(data)


def as_data(value: Any, what: str) -> Any:
    """Plain numbers as a read-only float array, masked entries NaN; labelled data, mappings and sparse matrices untouched."""
    if is_labelled(value) or is_sparse(value) or isinstance(value, Mapping):
        return value
    if value is None or isinstance(value, (bool, np.bool_)):
        raise ProblemError(f"{what} is {brief(value)}: give numbers, or labelled data; NaN is not observed")
    try:
        if isinstance(value, np.ma.MaskedArray):
            array = np.ma.filled(np.ma.array(numbers(value.data, what), mask=value.mask), np.nan)
        else:
            array = np.array(numbers(value, what))
    except ModelError as error:
        raise ProblemError(error.problems) from None
    array.setflags(write=False)
    return array


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
            f"the model has {shown(known, _SHOWN)}"
        )
    return np.array([place[key] for key in keys], dtype=np.intp)


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
    raise Misfit(f"shape {data.shape} where the table has {shape}; NaN marks what was not observed")


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
    rows = _distinct(positions(data.index, axes[0].labels, "the index"), axes[0].labels, "the index")
    columns = _distinct(positions(data.columns, axes[1].labels, "the columns"), axes[1].labels, "the columns")
    table = np.full(_shape(axes), np.nan)
    table[np.ix_(rows, columns)] = data.to_numpy(dtype=float, na_value=np.nan)
    return table


@dataclass(frozen=True, eq=False)
class Sums:
    """n_k = sum_i weights[k, i] n(i): the matrix, and the sums as an axis of the counts' table."""

    weights: csr_array
    axis: Axis


def read_sums(sums: Any, axes: Sequence[Axis]) -> Sums:
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
    elif is_sparse(sums):
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
    return Sums(_checked_sums(matrix, size, labels), Axis(row_names, labels))


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
    dense = csr_array((len(sums), math.prod(shape)))
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
    return csr_array((np.ones(len(rows)), (rows, columns)), shape=dense.shape)


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
