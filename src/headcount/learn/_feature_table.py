"""From a table of cells to the features of every move: what `LogisticChain` learns weights of."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._types import Array
from headcount.checks import brief, is_sequence
from headcount.errors import Faults, ModelError, did_you_mean, raise_all, shown
from headcount.labels import is_frame, plain
from headcount.places import places_of

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

_FUNCTIONS: Mapping[str, Callable[[Array], Array]] = {
    "log": np.log,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "exp": np.exp,
}
_CALL = re.compile(r"(\w+)\((.*)\)")
_OF_MOVES = ("stay", "distance", "adjacent")
"""Features that need no column of the cells' table."""


def is_formula(text: str) -> bool:
    """Whether a text is written as a formula: terms with plus signs or colons between them, functions, or the name of one feature."""
    words = re.split(r"[+:()\s]+", text.strip())
    return bool(re.search(r"[+:(]", text)) or words[0] in _OF_MOVES or words[0].endswith(("_to", "_from"))


def columns_in(formula: str) -> set[str]:
    """The columns of the cells' table that a formula names, without spaces."""
    words = set(re.split(r"[+:()]", "".join(formula.split())))
    return {word.rpartition("_")[0] for word in words if word.endswith(("_to", "_from"))}


def features(
    cells: Any,
    formula: str | None = None,
    *,
    stay: bool = True,
    distance: bool | str = False,
    adjacency: Any = None,
    destination: str | Sequence[str] = (),
    origin: str | Sequence[str] = (),
    interactions: Sequence[str | Sequence[str]] = (),
) -> xr.DataArray:
    """Features of the move from every cell to every other, from what is known of the cells.

    Parameters
    ----------
    cells
        A table with a row per cell: ``cell`` (a column, or the index), ``x, y`` or ``lon, lat`` where distances are wanted, and what else
        is known of a cell. Texts become one 0/1 column per value but the first, ``habitat[wood]``.
    formula
        The features, plus signs between them, instead of the options below:
        ``"stay + log(distance) + habitat_to + distance:habitat_to"``.
        Terms are ``stay``, ``distance``, ``adjacent``, ``NAME_to``, ``NAME_from``; ``log``, ``log1p``, ``sqrt`` and ``exp`` of them, and
        products with a colon.
    stay
        1 where i = j.
    distance
        d(i, j) in the map's unit, or in km for lon and lat; True for itself, ``"log"``, ``"sqrt"`` … for a function of it; 0 where i = j.
    adjacency
        Which cells are neighbours, the feature ``adjacent``: a matrix (L, L), pairs of cells, or the largest distance.
    destination, origin
        Columns of the table: ``habitat_to`` is the destination's value. ``habitat_from`` is the origin's for moves that leave it, and 0
        for staying: a value that all ways out of a cell share would change nothing.
    interactions
        Products of features: ``"distance:habitat_to"``, or pairs of names.

    Returns
    -------
    xarray.DataArray
        ``(feature, origin, dest)`` with the names and the cells, as `LogisticChain` takes it. Weights that vary with season or hour are
        `LogisticChain`'s ``by`` and ``basis``.

    Examples
    --------
    >>> import pandas as pd
    >>> cells = pd.DataFrame({"cell": ["a", "b", "c"], "x": [0, 1, 3], "y": 0, "food": [1.0, 0.0, 2.0]})
    >>> made = features(cells, distance=True, destination=["food"])
    >>> made.coords["feature"].values.tolist()
    ['stay', 'distance', 'food_to']
    >>> made.sel(feature="distance").values
    array([[0., 1., 3.],
           [1., 0., 2.],
           [3., 2., 0.]])
    >>> features(cells, "stay + log(distance)").shape
    (2, 3, 3)
    """
    table = _CellTable(_as_table(cells), adjacency)
    named = _named_terms(destination, origin, interactions)
    if formula is None:
        of_distance = "distance" if distance is True else f"{distance}(distance)"
        asked = {"stay": stay, of_distance: distance, "adjacent": adjacency is not None}
        terms = [*(term for term, wanted in asked.items() if wanted), *named]
    elif distance or named:
        raise ModelError(
            "a formula says everything: leave distance, destination, origin and interactions out"
        )
    else:
        terms = _terms(formula)
    return _stacked(table, terms)


def _stacked(table: _CellTable, terms: Sequence[str]) -> xr.DataArray:
    """The features of all terms, named, with the cells at both ends."""
    import xarray as xr

    made: dict[str, Array] = {}
    faults = Faults()
    for term in terms:
        try:
            made |= table.term(term)
        except ModelError as error:
            for text in error.problems:
                faults.add(text)
    faults.raise_any()
    if not made:
        raise ModelError("no feature was asked for: give a formula, or stay, distance, destination, origin")
    wrong = [name for name, values in made.items() if not np.isfinite(values).all()]
    raise_all(
        [
            f"the feature {name} is not a finite number everywhere: fill in or correct the cells' table"
            for name in wrong
        ]
    )
    ends = list(table.cells)
    return xr.DataArray(
        np.stack(list(made.values())),
        dims=("feature", "origin", "dest"),
        coords={"feature": list(made), "origin": ends, "dest": ends},
        name="features",
    )


def _as_table(cells: Any) -> pd.DataFrame:
    import pandas as pd

    try:
        table = cells if is_frame(cells) else pd.DataFrame(cells)
    except (TypeError, ValueError):
        raise ModelError(f"cells is {brief(cells)}: give a table with a row per cell") from None
    if "cell" not in table.columns:
        table = table.rename_axis("cell").reset_index()
    twice = table["cell"][table["cell"].duplicated()].tolist()
    if twice or not len(table):
        raise ModelError(
            f"cells has {shown(twice)} twice: give one row per cell" if twice else "cells has no rows"
        )
    return table


def _named_terms(destination: Any, origin: Any, interactions: Any) -> list[str]:
    """The terms of columns of the cells' table, and of products."""
    return [
        *(f"{name}_to" for name in _names(destination, "destination")),
        *(f"{name}_from" for name in _names(origin, "origin")),
        *(term if isinstance(term, str) else ":".join(term) for term in interactions),
    ]


def _names(given: str | Sequence[str], what: str) -> list[str]:
    if isinstance(given, str):
        return [given]
    if not is_sequence(given):
        raise ModelError(f"{what} is {brief(given)}: give names of columns of the cells' table")
    return list(given)


def _terms(formula: str) -> list[str]:
    """The terms of a formula, without spaces."""
    if not isinstance(formula, str) or not formula.strip():
        raise ModelError(
            f"formula is {brief(formula)}: write features with plus signs between, such as 'stay + distance'"
        )
    return [re.sub(r"\s+", "", term) for term in formula.split("+")]


def _no_feature(text: str, columns: Mapping[str, Any]) -> ModelError:
    """The error for a term that stands for nothing, with the nearest that does."""
    known = [*_OF_MOVES, *(f"{name}_{end}" for name in columns for end in ("to", "from"))]
    return ModelError(
        f"there is no feature {text!r}{did_you_mean(text, known)}: known are {', '.join(_OF_MOVES)}, and NAME_to and NAME_from "
        f"of the columns {shown(columns.values())}"
    )


@dataclass(frozen=True, eq=False)
class _CellTable:
    """The cells, and every feature that can be made of them."""

    table: pd.DataFrame
    adjacency: Any

    @property
    def cells(self) -> tuple[Hashable, ...]:
        return tuple(self.table["cell"].tolist())

    def term(self, text: str) -> dict[str, Array]:
        """The features of one term: products of all that its factors stand for."""
        made: dict[str, Array] = {}
        for factor in text.split(":"):
            found = self._factor(factor)
            made = {f"{a}:{b}": x * y for a, x in made.items() for b, y in found.items()} if made else found
        return made

    def _factor(self, text: str) -> dict[str, Array]:
        call = _CALL.fullmatch(text)
        if call is None:
            return self._plain(text)
        name, inside = call.groups()
        if name not in _FUNCTIONS:
            hint = (
                "weights that vary with time are said by LogisticChain(..., basis=Periodic(24, 2), varying=[...])"
                if name in {"cc", "bs", "cr"}
                else f"known are {', '.join(_FUNCTIONS)}"
            )
            raise ModelError(f"the formula has {text}: there is no function {name}; {hint}")
        moved = ~np.eye(len(self.cells), dtype=bool) if inside == "distance" else True
        with np.errstate(divide="ignore", invalid="ignore"):
            return {
                f"{name}({key})": np.where(moved, _FUNCTIONS[name](np.where(moved, values, 1.0)), 0.0)
                for key, values in self._plain(inside).items()
            }

    def _plain(self, text: str) -> dict[str, Array]:
        size = len(self.cells)
        known_moves: dict[str, Callable[[], Array]] = {
            "stay": lambda: np.eye(size),
            "distance": self._distances,
            "adjacent": self._adjacent,
        }
        if text in known_moves:
            return {text: known_moves[text]()}
        word, _, side = text.rpartition("_")
        columns = {"".join(str(c).split()): c for c in self.table.columns if c != "cell"}
        if side not in {"to", "from"} or word not in columns:
            raise _no_feature(text, columns)
        column = columns[word]
        counts = np.ones((size, size)) if side == "to" else 1.0 - np.eye(size)
        return {
            f"{name}_{side}": counts * (values if side == "to" else values[:, None])
            for name, values in self._column(column).items()
        }

    def _distances(self) -> Array:
        return places_of(self.table, self.cells, "cells").distances()

    def _column(self, name: str) -> dict[str, Array]:
        """A column of numbers, or one 0/1 column per value but the first."""
        column = self.table[name]
        if column.dtype.kind in "biuf":
            return {name: column.to_numpy(dtype=float)}
        if column.isna().any():
            raise ModelError(f"the column {name} of the cells' table has empty entries: fill them in")
        levels = list(dict.fromkeys(column.tolist()))
        return {f"{name}[{level}]": (column == level).to_numpy(dtype=float) for level in levels[1:]}

    def _adjacent(self) -> Array:
        """0/1, (L, L): from a matrix, pairs of cells, or the largest distance."""
        given, size = self.adjacency, len(self.cells)
        if given is None:
            raise ModelError(
                "the feature adjacent needs adjacency: a matrix, pairs of cells, or the largest distance"
            )
        if isinstance(given, (int, float)) and not isinstance(given, bool):
            return ((self._distances() <= given) & ~np.eye(size, dtype=bool)).astype(float)
        matrix = np.asarray(given.toarray() if hasattr(given, "toarray") else given)
        if matrix.shape == (size, size) and matrix.dtype.kind in "biuf":
            return (matrix != 0).astype(float)
        return self._neighbours(given)

    def _neighbours(self, pairs: Any) -> Array:
        """0/1, (L, L), from pairs of cells."""
        size = len(self.cells)
        place = {plain(cell): k for k, cell in enumerate(self.cells)}
        made = np.zeros((size, size))
        for pair in pairs:
            if len(pair) != 2 or any(plain(cell) not in place for cell in pair):
                raise ModelError(
                    f"adjacency has {pair!r}: give pairs of cells, a matrix of {size} × {size}, or the largest distance"
                )
            i, j = (place[plain(cell)] for cell in pair)
            made[i, j] = made[j, i] = 1.0
        return made
