"""Which column is which: the names that people already have, and those the caller maps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headcount.io._errors import Findings
    from headcount.io._source import Source

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "time": ("time", "date", "datetime", "timestamp", "t", "step", "hour", "day", "week", "month", "year"),
    "cell": (
        "cell",
        "zone",
        "site",
        "region",
        "location",
        "area",
        "tile",
        "tile_id",
        "cell_id",
        "zone_id",
        "state",
    ),
    "count": ("count", "counts", "observed", "total", "n", "value"),
    "flow": ("count", "flow", "flows", "counts", "trips", "n", "value"),
    "from": ("from", "origin", "source", "origin_id", "i"),
    "to": ("to", "dest", "destination", "target", "dest_id", "destination_id", "j"),
    "probability": ("probability", "prob", "p", "share", "transition"),
    "x": ("x", "column", "easting"),
    "y": ("y", "row", "northing"),
    "lon": ("lon", "longitude", "lng", "long"),
    "lat": ("lat", "latitude"),
}
"""Role → spellings in order of preference; read without regard to case."""


def find_columns(
    source: Source,
    required: Sequence[str],
    optional: Sequence[str] = (),
    *,
    columns: Mapping[str, str] | None = None,
    findings: Findings,
) -> dict[str, str] | None:
    """``{role: column}`` of a table; None, with everything that is missing among the findings.

    Parameters
    ----------
    required, optional
        Roles; those without spellings of their own are looked for by their name.
    columns
        ``{role: column}`` as the caller says; it wins over every spelling.
    """
    given = {} if columns is None else dict(columns)
    names = [str(c) for c in source.frame.columns]
    folded: dict[str, str] = {}
    for name in names:
        folded.setdefault(name.casefold(), name)
    found: dict[str, str] = {}
    complete = True
    for role in (*required, *optional):
        if role in given:
            if given[role] in names:
                found[role] = given[role]
            elif role in required:
                findings.problem(
                    source.name, f"there is no column {given[role]!r} for {role}: it has {_list(names)}", [1]
                )
                complete = False
            continue
        taken = set(found.values()) | set(given.values())
        options = [folded[s] for s in SPELLINGS.get(role, (role,)) if s in folded and folded[s] not in taken]
        canonical = [o for o in options if o.casefold() == role]
        if len(options) > 1 and not canonical and role in required:
            text = (
                f"{_list(options)} could each be the column for {role}: say which ({_how(role, options[0])})"
            )
            findings.problem(source.name, text, [1])
            complete = False
        elif options:
            found[role] = (canonical or options)[0]
        elif role in required:
            spare = [n for n in names if n not in found.values()]
            findings.problem(source.name, _missing(role, names, spare), [1])
            complete = False
    return found if complete else None


def _missing(role: str, names: Sequence[str], spare: Sequence[str]) -> str:
    known = SPELLINGS.get(role, (role,))
    text = (
        f"there is no column for {role} (known: {', '.join(known[:5])}); it has {_list(names)}. "
        f"Rename one, or say which it is ({_how(role, spare[0] if spare else '...')})"
    )
    if role in {"cell", "count"} and len(names) > 6:
        text += ". A table with one column a cell must be made long first: one row a time and cell"
    return text


def _how(role: str, name: str) -> str:
    return f"columns={{{role!r}: {name!r}}}, --column {role}={name}"


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(repr(n) for n in names[:8])
    return shown + (f", … ({len(names)} in all)" if len(names) > 8 else "")
