"""Wrong values for any argument, and the check that a call either works or says in our words what is wrong."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from hypothesis import strategies as st
from scipy import sparse

from headcount.individual import FaultsError

Call = tuple[Callable[..., Any], dict[str, Any]]


GARBAGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2,
    10**18,
    10**400,
    1.5,
    -0.25,
    float("nan"),
    float("inf"),
    2j,
    Fraction(1, 3),
    "",
    "text",
    b"bytes",
    (),
    [],
    {},
    set(),
    {"a": 1},
    {0: [0.5, 0.5]},
    {("a",): "x"},
    [None],
    ["a", "b"],
    [0.5, "0.5"],
    [1, [2, 3]],
    [[0.5, 0.5], [1.0]],
    [[[0.5]]],
    [[1, 2], {"a": 1}],
    [("a", "b")],
    object(),
    lambda *_: 1,
    dt.date(2020, 1, 1),
    np.array(None),
    np.array([]),
    np.array([1 + 2j, 0]),
    np.array(["a", "b"]),
    np.array([object(), None], dtype=object),
    np.array(["2020-01-01"], dtype="datetime64[D]"),
    np.zeros((0, 2)),
    np.full((2, 2), np.nan),
    np.array([[True, False], [False, True]]),
    np.ma.masked_array([0.5, 0.5], [True, False]),
    np.zeros((2, 2, 2, 2, 2)),
    sparse.eye_array(2).tocsr(),
    sparse.csr_array(np.array([[1j, 0], [0, 1]])),
    sparse.coo_array((2, 3)),
    pd.Series(["x", None]),
    pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}),
    xr.DataArray([[0.5, 0.5]], dims=("a", "b")),
    np.datetime64("2020-01-01"),
    range(3),
    type,
)


def outcome(function: Callable[..., Any], arguments: Mapping[str, Any]) -> str | None:
    """What went wrong in other words than ours; None where the call worked, or was refused with a message that says something."""
    try:
        function(**arguments)
    except FaultsError as error:
        return None if str(error).strip() else "an error without a message"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def one_wrong(call: Call) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Every argument of a call replaced by every wrong value, one at a time."""
    _, arguments = call
    for name in arguments:
        for value in GARBAGE:
            yield name, value, {**arguments, name: value}


def misfits(calls: Mapping[str, Call]) -> list[str]:
    """Calls with one wrong argument that end in other words than ours."""
    found = []
    for name, call in calls.items():
        for argument, value, arguments in one_wrong(call):
            wrong = outcome(call[0], arguments)
            if wrong is not None:
                found.append(f"{name}({argument}={repr(value)[:60]}): {wrong[:150]}")
    return found


def broken(value: Any) -> st.SearchStrategy[Any]:
    """`value` with one part somewhere inside it replaced by a wrong value."""
    here = st.sampled_from(GARBAGE)
    if isinstance(value, dict) and value:
        inside = st.sampled_from(sorted(value, key=repr)).flatmap(
            lambda k: st.one_of(
                broken(value[k]).map(lambda new: {**value, k: new}),
                here.filter(hashable).map(lambda new: {(new if j == k else j): v for j, v in value.items()}),
            )
        )
        return st.one_of(here, inside)
    if isinstance(value, (list, tuple)) and value:
        kind = type(value)
        inside = st.integers(0, len(value) - 1).flatmap(
            lambda k: broken(value[k]).map(lambda new: kind([*value[:k], new, *value[k + 1 :]]))
        )
        return st.one_of(here, inside)
    return here


def hashable(value: Any) -> bool:
    """Whether a value can be a key."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def one_broken(calls: Mapping[str, Call]) -> st.SearchStrategy[tuple[str, str, Any]]:
    """A call, one of its arguments, and that argument with one part broken."""
    pairs = [(name, argument) for name, (_, arguments) in calls.items() for argument in arguments]
    return st.sampled_from(pairs).flatmap(
        lambda pair: broken(calls[pair[0]][1][pair[1]]).map(lambda new: (*pair, new))
    )
