"""`Tracks`: individuals that were followed (tags, bands, GPS), with gaps and errors of position."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from headcount._types import Array, Index
from headcount.checks import brief, numbers
from headcount.errors import Faults, ModelError, ProblemError, shown
from headcount.individual import MarkovChain, Model, Records
from headcount.labels import is_frame
from headcount.observe.binding import Misfit, positions
from headcount.places import places_of

_TRACK = ("id", "time", "cell")
_RECOVERY = ("from_time", "from_cell", "to_time", "to_cell")


@dataclass(frozen=True, eq=False)
class Tracks:
    """Individuals whose positions are known at some times.

    Parameters
    ----------
    table
        One row per individual and time: ``id, time, cell``, as a frame or a mapping of columns. Times without a row are gaps. Positions
        that are not certain have one more column: ``probability``, p(what was seen | cell), with one row per possible cell; or ``sd``,
        the standard deviation of the position's error around the cell's place (needs `places`). NaN in it: the cell is certain. Band
        recoveries may have one row each instead: ``from_time, from_cell, to_time, to_cell`` (and ``id``).
    counted
        Whether these individuals are among the population and in its counts (True), or come in addition to it (False).
    places
        Where the cells lie, for ``sd``: a table ``cell, x, y`` (sd in the same unit) or ``cell, lon, lat`` (sd in km), or
        ``{cell: (x, y)}``.

    given_first
        Whether the first position was chosen, not seen: tags that were put on at one place. It then says nothing about where individuals
        are; only what comes after it counts. Needs ``counted=False`` and certain first positions.

    Notes
    -----
    The tracked individuals follow the same model as all others. Their records' probability is one forward pass along the chain, exact
    in the evidence, in the gradient of learning and in its standard errors. An individual is taken to be as likely tracked in one cell as
    in another, unless its first position is given.

    Examples
    --------
    >>> import headcount as hc
    >>> chain = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], length=3, cells=["pond", "hill"])
    >>> tags = hc.Tracks({"id": ["a", "a", "b"], "time": [0, 2, 1], "cell": ["pond", "hill", "hill"]})
    >>> tags.read(chain).ids
    ('a', 'b')
    """

    table: Any
    counted: bool = True
    places: Any = None
    given_first: bool = False

    name: ClassVar[str] = "Tracks"
    """What results call these records."""

    def __post_init__(self) -> None:
        for name, value in (("counted", self.counted), ("given_first", self.given_first)):
            if not isinstance(value, (bool, np.bool_)):
                raise ProblemError(f"Tracks({name}=...) is {brief(value)}: give True or False")
        if self.counted and self.given_first:
            raise ProblemError(
                "Tracks(given_first=True) needs counted=False: those in the counts began where all others did"
            )
        object.__setattr__(self, "table", _as_frame(self.table))

    def by_group(self, groups: list[Hashable] | None) -> dict[Hashable, Tracks]:
        """The tracks of every group, by its name; ``{None: all}`` where individuals are of one kind."""
        if groups is None:
            return {None: self}
        frame = _as_frame(self.table)
        if "group" not in frame.columns:
            raise ProblemError(
                f"Tracks: beside groups a column group must say which of {shown(groups)} each individual is of"
            )
        unknown = set(frame["group"]) - set(groups)
        if unknown:
            raise ProblemError(
                f"Tracks: group {shown(sorted(map(str, unknown)))}: the groups are {shown(groups)}"
            )
        return {
            name: replace(self, table=frame[frame["group"] == name].drop(columns="group"))
            for name in groups
            if (frame["group"] == name).any()
        }

    def read(self, model: Model) -> Records:
        """The records on a chain's times and cells.

        Raises
        ------
        ProblemError
            Labels the chain does not have, two certain cells at one time, probabilities or sds that cannot be.
        """
        chain = model.as_chain()
        if chain is None:
            raise ProblemError(
                f"Tracks need times, which a {type(model).__name__} has not: give a MarkovChain, or leave the tracks out"
            )
        faults = Faults(ProblemError)
        times = _place(self.table["time"], model.variables, "time", faults)
        records = _ids(self.table)
        faults.raise_any()
        seen: dict[int, tuple[Index, csr_array]] = {}
        for node in np.unique(times):
            rows = np.flatnonzero(times == node)
            found = self._at(chain, int(node), records[1][rows], self.table.iloc[rows], faults)
            if found is not None:
                seen[int(node)] = found
        faults.raise_any()
        made = Records(records[0], seen)
        if not self.given_first:
            return made
        if any((np.diff(likelihood.indptr) != 1).any() for _, likelihood in made.first_only().seen.values()):
            raise ProblemError(
                "Tracks(given_first=True): a first position is not certain: begin that track where it is"
            )
        return replace(made, given=np.ones(len(made), dtype=bool))

    def _at(
        self, model: MarkovChain, node: int, who: Index, table: Any, faults: Faults
    ) -> tuple[Index, csr_array] | None:
        """The likelihoods of all positions at one time: which records, and one row of cells each."""
        time = model.variables[node]
        cells = model.states[time]
        where = _place(table["cell"], cells, f"cell at time {time}", faults)
        if len(where) < len(table):
            return None
        weight, error = (_optional(table, name) for name in ("probability", "sd"))
        rows, place, repeats = np.unique(who, return_inverse=True, return_counts=True)
        likelihood = np.zeros((len(rows), len(cells)))
        if (repeats > 1).any() and (np.isnan(weight).any() or not np.isnan(error).all()):
            faults.add(
                "Tracks",
                "an individual has two positions at one time: keep one, or give the column probability",
                f"time {time}",
            )
            return None
        wrong = (weight < 0) | (weight > 1) | (error < 0) | np.isinf(error)
        if wrong.any():
            faults.add("Tracks", "probability must lie in [0, 1], sd be a number ≥ 0", f"time {time}")
            return None
        likelihood[place, where] = np.where(np.isnan(weight), 1.0, weight)
        blurred = np.flatnonzero(error > 0)
        if blurred.size:
            likelihood[place[blurred]] = self._blurred(cells, where[blurred], error[blurred])
        return rows, csr_array(likelihood)

    def _blurred(self, cells: tuple[Hashable, ...], where: Index, sd: Array) -> Array:
        """p(reported cell | cell) ∝ exp(−d²/2 sd²), normalised over the cells that could be reported, shape (K, L)."""
        if self.places is None:
            raise ProblemError(
                "Tracks: the column sd needs places=..., a table cell, x, y (or lon, lat), to know how far cells are apart"
            )
        far = places_of(self.places, cells).distances()
        weight = np.exp(-0.5 * (far[None] / sd[:, None, None]) ** 2)  # (K, reported, true)
        return np.asarray(weight[np.arange(len(where)), where] / weight.sum(axis=1))


def _as_frame(table: Any) -> Any:
    """The table as a frame with ``id, time, cell``, labels in these and numbers in the others."""
    frame = _frame_of(table)
    if set(_RECOVERY) <= set(frame.columns):
        frame = _both_ends(frame)
    missing = [name for name in _TRACK if name not in frame.columns]
    if missing or not len(frame):
        raise ProblemError(
            f"Tracks: {'no rows' if not missing else 'no column ' + ', '.join(missing)}; the table has {shown(frame.columns)}. "
            f"Give {', '.join(_TRACK)} (and probability or sd), or {', '.join(_RECOVERY)}"
        )
    for name in (*_TRACK, *({"group"} & set(frame.columns))):
        odd = [value for value in frame[name].tolist() if not _is_label(value)]
        if odd:
            raise ProblemError(f"Tracks: the column {name} holds {brief(odd[0])}: give one label per row")
    for name in {"probability", "sd"} & set(frame.columns):
        given = frame[name].tolist()
        values = numbers(given, f"Tracks: the column {name}", expected="one number per row")
        if values.ndim != 1:
            raise ProblemError(f"Tracks: the column {name} holds {brief(given[0])}: give one number per row")
        frame = frame.assign(**{name: values})
    if frame[list(_TRACK)].isna().to_numpy().any():
        raise ProblemError(
            "Tracks: a row without id, time or cell: leave it out, times without a row are gaps"
        )
    return frame.reset_index(drop=True)


def _frame_of(table: Any) -> Any:
    """A frame, or what is like one: columns by name, or rows by name."""
    import pandas as pd

    rows = isinstance(table, (list, tuple)) and all(isinstance(row, Mapping) for row in table)
    named = isinstance(table, Mapping) or rows or getattr(getattr(table, "dtype", None), "names", None)
    try:
        frame = table if is_frame(table) or not named else pd.DataFrame(table)
        if not is_frame(frame):
            raise TypeError
    except (TypeError, ValueError):
        raise ProblemError(
            f"Tracks: table is {brief(table)}: give a frame or columns id, time, cell"
        ) from None
    return frame


def _is_label(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _both_ends(recoveries: Any) -> Any:
    """Band recoveries, one row each, as tracks of two positions."""
    import pandas as pd

    recoveries = recoveries.reset_index(drop=True)
    ids = recoveries["id"] if "id" in recoveries.columns else range(len(recoveries))
    ends = [
        pd.DataFrame({"id": ids, "time": recoveries[time], "cell": recoveries[cell]})
        for time, cell in (_RECOVERY[:2], _RECOVERY[2:])
    ]
    return pd.concat(ends).sort_index(kind="stable")


def _ids(table: Any) -> tuple[tuple[Hashable, ...], Index]:
    """The individuals in their order of appearance, and which of them every row is of."""
    names = dict.fromkeys(table["id"].tolist())
    place = {name: k for k, name in enumerate(names)}
    return tuple(names), np.array([place[name] for name in table["id"].tolist()], dtype=np.intp)


def _place(labels: Any, known: tuple[Hashable, ...], what: str, faults: Faults) -> Index:
    try:
        return positions(labels.tolist(), known, what)
    except (Misfit, ModelError) as error:
        faults.add("Tracks", str(error))
        return np.zeros(0, dtype=np.intp)


def _optional(table: Any, name: str) -> Array:
    """A column of numbers, NaN where there is none."""
    if name not in table.columns:
        return np.full(len(table), np.nan)
    return np.asarray(table[name].to_numpy())
