"""Which kind of data was handed in. xarray and pandas are recognised without being imported."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from headcount.observe._errors import ProblemError


def is_dataarray(data: Any) -> bool:
    """Whether `data` is an `xarray.DataArray`; if xarray was never imported it cannot be."""
    return _is(data, "xarray", "DataArray")


def is_series(data: Any) -> bool:
    """Whether `data` is a pandas Series."""
    return _is(data, "pandas", "Series")


def is_frame(data: Any) -> bool:
    """Whether `data` is a pandas DataFrame."""
    return _is(data, "pandas", "DataFrame")


def is_sparse(data: Any) -> bool:
    """Whether `data` is a scipy sparse matrix or array."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(data))


def is_labelled(data: Any) -> bool:
    """Whether `data` carries labels of its own."""
    return is_dataarray(data) or is_series(data) or is_frame(data)


def as_data(value: Any, what: str) -> Any:
    """Plain numbers as a read-only float array, masked entries NaN; labelled data and mappings untouched."""
    if value is None or isinstance(value, (str, bool, Mapping)) or callable(value):
        return value
    if is_labelled(value) or is_sparse(value):
        return value
    try:
        raw = np.ma.asarray(value) if isinstance(value, np.ma.MaskedArray) else np.asarray(value)
        if raw.dtype.kind in "USMm":
            raise ValueError(f"it holds {raw.dtype} values")
        array = np.array(np.ma.filled(raw.astype(float), np.nan), dtype=float)
    except (TypeError, ValueError) as error:
        raise ProblemError(
            f"{what} must be numbers in a rectangular array, or labelled data, "
            f"got {type(value).__name__}: {error}"
        ) from None
    array.setflags(write=False)
    return array


def _is(data: Any, module: str, name: str) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(data, getattr(loaded, name))
