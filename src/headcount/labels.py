"""Labels of states, times and cells: as plain Python values, off pandas and xarray objects, in order, and back as coordinates.

pandas and xarray are never imported here: an object of a library that was never loaded cannot come in.
"""

from __future__ import annotations

import datetime as dt
import sys
import unicodedata
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.checks import brief
from headcount.dates import find_date, is_date, zoned_moment
from headcount.errors import ModelError, repeated, shown

AxisLabels = list[tuple[Hashable, ...] | None]
"""The labels of every axis of an array; None for an axis without."""


SPELLINGS: Mapping[str, tuple[str, ...]] = {
    role: tuple(words.split())
    for role, words in {
        "time": "time date datetime timestamp t step hour day week month year datum woche semaine fecha semana",
        "cell": "cell zone site region location area tile tile_id cell_id zone_id state ward station place "
        "zelle ort gebiet lieu commune sitio zona",
        "name": "name nom bezeichnung",
        "count": "count counts observed total n value anzahl nombre effectif conteo",
        "flow": "count flow flows counts trips n value anzahl nombre",
        "from": "from origin source origin_id i von de origine origen",
        "to": "to dest destination target dest_id destination_id j nach vers destino",
        "probability": "probability prob p share transition wahrscheinlichkeit anteil probabilite probabilidad",
        "entries": "entries origins productions boardings departures einsteiger quellverkehr out entrees emissions montees entradas "
        "producciones subidas",
        "exits": "exits destinations attractions alightings arrivals aussteiger zielverkehr in sorties descentes salidas atracciones "
        "bajadas",
        "sum": "sum screenline line cordon counter",
        "id": "id individual animal tag band ring track track_id tag_id",
        "from_time": "from_time time_from date_from from_date start_time ringed release_date banding_date marked beringt",
        "from_cell": "from_cell cell_from site_from from_site start_cell ringed_at release_site banding_site",
        "to_time": "to_time time_to date_to to_date end_time recovered recovery_date encounter_date found wiederfund",
        "to_cell": "to_cell cell_to site_to to_site end_cell recovered_at recovery_site encounter_site",
        "x": "x column easting rechtswert",
        "y": "y row northing hochwert",
        "lon": "lon longitude lng long lange laenge langengrad laengengrad longitud",
        "lat": "lat latitude breite breitengrad latitud",
    }.items()
}
"""Role → spellings in order of preference (English, German, French, Spanish); read without regard to case and accents."""


def folded(name: str) -> str:
    """A name without case and accents."""
    split = unicodedata.normalize("NFD", name.strip().casefold())
    return "".join(c for c in split if not unicodedata.combining(c))


def are_margins(times: Sequence[str]) -> bool:
    """Whether two times are the totals of a matrix of trips, by origin and by destination."""
    return len(times) == 2 and all(
        folded(time) in SPELLINGS[role] for time, role in zip(times, ("entries", "exits"), strict=True)
    )


def is_dataarray(data: Any) -> bool:
    """Whether `data` is an `xarray.DataArray`."""
    return _is(data, "xarray", "DataArray")


def is_series(data: Any) -> bool:
    """Whether `data` is a pandas Series."""
    return _is(data, "pandas", "Series")


def is_frame(data: Any) -> bool:
    """Whether `data` is a pandas DataFrame."""
    return _is(data, "pandas", "DataFrame")


def _is(data: Any, module: str, name: str) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(data, getattr(loaded, name))


def item(label: Any) -> Any:
    """A NumPy scalar as Python's own; anything else as it is."""
    return label.item() if isinstance(label, np.generic) else label


def plain(label: Any) -> Hashable:
    """A form in which equal labels are equal keys: NumPy scalars as Python's, every kind of date alike."""
    if isinstance(label, dt.datetime) and label.tzinfo is not None:
        return label
    if isinstance(label, (dt.date, np.datetime64)):
        return ("date", int(np.array(label, dtype="datetime64[ns]").astype("int64")))
    if isinstance(label, tuple):
        return tuple(plain(part) for part in label)
    return item(label)


def meant(label: Any, labels: Sequence[Hashable]) -> Any:
    """The one of `labels` that `label` means: itself, the same date of another kind, or the date that a text names.

    "2023-03-05", "5 March 2023" and, where it names one label only, "March 2023" or "March". What means none comes back as it is.

    Raises
    ------
    ModelError
        A text that several labels answer to.
    """
    if not isinstance(label, str) and not is_date(label):
        return label
    moment = zoned_moment(label)
    if (
        moment is not None
    ):  # equal times of two zones may have different hashes, so that the label itself is no key
        return next((known for known in labels if zoned_moment(known) == moment), label)
    if label in labels:
        return label
    if is_date(label):
        return next((known for known in labels if is_date(known) and plain(known) == plain(label)), label)
    found = find_date(label, labels)
    if len(found) > 1:
        raise ModelError(f"{label!r} could be any of {shown(found, 4)}: name the date itself")
    return found[0] if found else label


def label_tuple(labels: Any, what: str = "labels", *, hashable: bool = True) -> tuple[Hashable, ...]:
    """Labels as plain Python values: messages read ``3``, not ``np.int64(3)``. Dates stay dates.

    Raises
    ------
    ModelError
        For what is not a sequence or, unless `hashable` is False, holds what cannot be a label (a list, a dict).
    """
    values = labels.values if is_dataarray(labels) else labels
    if isinstance(values, np.ndarray) and values.ndim > 0 and values.dtype.kind not in "Mm":
        values = values.tolist()
    try:
        made = tuple(values)
        if any(hasattr(part, "tocsr") for part in made):  # a sparse matrix gives its rows
            raise TypeError
        if hashable:
            hash(made)
    except TypeError:
        raise ModelError(
            f"{what} is {brief(labels)}: give a sequence of labels (text, numbers, dates)"
        ) from None
    return made


def split_labels(values: Any) -> tuple[Any, AxisLabels]:
    """The plain array of a labelled object and the labels of its axes; anything else as it is, with none."""
    if is_series(values):
        return values.to_numpy(), [label_tuple(values.index)]
    if is_frame(values):
        return values.to_numpy(), [label_tuple(values.index), label_tuple(values.columns)]
    if is_dataarray(values):
        return values.values, [label_tuple(values[d]) if d in values.coords else None for d in values.dims]
    return values, []


def take_in_order(
    values: NDArray[Any], labels: AxisLabels, cells: Sequence[Sequence[Hashable]], *, what: str
) -> tuple[NDArray[Any], list[str]]:
    """`values` with every labelled axis in the order of its `cells`, and what is unknown, missing or named twice."""
    problems: list[str] = []
    for axis, (names, wanted) in enumerate(zip(labels, cells, strict=True)):
        if names is None or names == tuple(wanted):
            continue
        wrong = label_problems(names, wanted, f"axis {axis} of {what}")
        problems += wrong
        if not wrong:
            values = np.take(values, [names.index(cell) for cell in wanted], axis=axis)
    return values, problems


def label_problems(names: Sequence[Hashable], cells: Sequence[Hashable], where: str) -> list[str]:
    """Labels that are unknown, missing or given twice where each of `cells` is expected once."""
    known, given = set(cells), set(names)
    unknown = [name for name in names if name not in known]
    missing = [cell for cell in cells if cell not in given]
    twice = repeated(names)
    problems = []
    if unknown:
        problems.append(f"{where} has unknown cells {shown(unknown)}: the cells are {shown(cells)}")
    if missing:
        problems.append(f"{where} has no {shown(missing)}: give every cell, with 0 where it is never used")
    if twice:
        problems.append(f"{where} names {shown(twice)} twice: keep one")
    return problems


def coordinate(labels: Sequence[Any]) -> NDArray[Any]:
    """Labels as a one-dimensional coordinate, whatever they are."""
    plain_labels = np.asarray(labels) if not any(isinstance(label, tuple) for label in labels) else None
    if plain_labels is not None and plain_labels.ndim == 1 and plain_labels.tolist() == list(labels):
        return plain_labels
    values = np.empty(len(labels), dtype=object)
    values[:] = labels
    return values
