"""Sums of entries: a 0/1 matrix from an array, labelled data or lists of states."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from headcount.checks import numbers
from headcount.labels import is_dataarray, is_frame
from headcount.observe._labels import Axis, Misfit, is_labelled, is_sparse, positions, read_table

ROW_NAMES = ("sum", "region", "cell", "state")
"""Names the axis of sums may have in labelled counts."""


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
        labels, matrix = tuple(sums), _from_mapping(sums, axes, shape)
    elif is_sparse(sums):
        matrix = csr_array(sums)
        labels = tuple(range(matrix.shape[0]))
    elif is_dataarray(sums):
        dim, labels, dense = _from_dataarray(sums, axes)
        row_names, matrix = (dim, *ROW_NAMES), csr_array(dense)
    elif is_frame(sums):
        labels, matrix = tuple(sums.index), _from_frame(sums, axes, shape)
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
    return Sums(_checked(matrix, size, labels), Axis(row_names, labels))


def _checked(matrix: csr_array, size: int, labels: Sequence[Hashable]) -> csr_array:
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


def _from_mapping(sums: Mapping[Any, Any], axes: Sequence[Axis], shape: tuple[int, ...]) -> csr_array:
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


def _from_dataarray(sums: Any, axes: Sequence[Axis]) -> tuple[Hashable, tuple[Hashable, ...], Any]:
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


def _from_frame(sums: Any, axes: Sequence[Axis], shape: tuple[int, ...]) -> csr_array:
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
