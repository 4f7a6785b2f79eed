"""Labelled inputs (pandas, xarray): take the labels off and put the values in the order of the cells."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.individual._model import label_tuple, repeated, shown

Labels = list[tuple[Hashable, ...] | None]


def split_labels(values: Any) -> tuple[Any, Labels]:
    """The plain array of a labelled object and the labels of its axes; anything else as it is, with none.

    Nothing is imported: an object of a library that was never loaded cannot come in.
    """
    pandas, xarray = sys.modules.get("pandas"), sys.modules.get("xarray")
    if pandas is not None and isinstance(values, pandas.Series):
        return values.to_numpy(), [label_tuple(values.index)]
    if pandas is not None and isinstance(values, pandas.DataFrame):
        return values.to_numpy(), [label_tuple(values.index), label_tuple(values.columns)]
    if xarray is not None and isinstance(values, xarray.DataArray):
        named = [label_tuple(values[d]) if d in values.coords else None for d in values.dims]
        return values.values, named
    return values, []


def take_in_order(
    values: NDArray[Any], labels: Labels, cells: Sequence[Hashable], *, what: str
) -> tuple[NDArray[Any], list[str]]:
    """`values` with labelled axes in the order of `cells`, and what is unknown, missing or named twice."""
    problems: list[str] = []
    for axis, names in enumerate(labels):
        if names is None or names == tuple(cells):
            continue
        unknown = [name for name in names if name not in set(cells)]
        missing = [cell for cell in cells if cell not in set(names)]
        twice = repeated(names)
        if unknown:
            problems.append(
                f"axis {axis} of {what} has unknown cells {shown(unknown)}: the cells are {shown(cells)}"
            )
        if missing:
            problems.append(
                f"axis {axis} of {what} has no {shown(missing)}: give every cell, with 0 where it is never "
                f"used"
            )
        if twice:
            problems.append(f"axis {axis} of {what} names {shown(twice)} twice: keep one")
        if not (unknown or missing or twice):
            values = np.take(values, [names.index(cell) for cell in cells], axis=axis)
    return values, problems
