"""A finished run, read back without its engine: what the pictures, the page and other programs work from."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.io._errors import TableError
from headcount.posterior._export import COORDINATES

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable, Mapping

    import pandas as pd
    import xarray as xr

    from headcount.engines import Posterior

POSTERIOR_FILE = "posterior.nc"


@dataclass(frozen=True, eq=False)
class Result:
    """Summaries of a posterior as tables; read-only, light, the same from memory and from a file.

    Attributes
    ----------
    nodes
        ``time, cell, observed, mean, sd, lower, upper, reliable``, one row a time and cell (``observed`` NaN where nobody
        looked; ``sd`` NaN from an engine that gives none). Models other than chains have ``variable, state`` for
        ``time, cell``.
    flows
        ``time, origin, dest, mean, sd, lower, upper, reliable``; ``time`` is that of departure, and only moves that the model
        allows have a row. Other models: ``variable, state, other, other_state``.
    trace
        ``iteration, residual, seconds`` and what else the engine reports, one row an iteration; may be empty.
    attributes
        How it was got: ``status, good, engine, settings, iterations, residual, tolerance, seconds, seed, population,
        log_evidence, interval_level, observations, versions, created_at`` and, from the command line, ``command``.
    coordinates
        ``cell, x, y`` where the cells have places (lon and lat are x and y too: see `geographic`); None otherwise.
    weights
        ``feature, weight[, standard_error]`` where the model was fitted; None otherwise.
    ascent
        One row an iteration of learning; None where nothing was learned.
    path
        The file it was read from.
    """

    nodes: pd.DataFrame
    flows: pd.DataFrame
    trace: pd.DataFrame
    attributes: Mapping[str, Any]
    coordinates: pd.DataFrame | None = None
    weights: pd.DataFrame | None = None
    ascent: pd.DataFrame | None = None
    path: Path | None = field(default=None, repr=False)

    @property
    def level(self) -> float:
        """What the intervals hold: 0.9 for the ends at 5 % and 95 %."""
        return float(self.attributes["interval_level"])

    @property
    def good(self) -> bool:
        """Whether the engine reached what it promises."""
        return bool(self.attributes["good"])

    @property
    def population(self) -> int:
        """N."""
        return int(self.attributes["population"])

    @property
    def is_chain(self) -> bool:
        """Whether there are times and cells, rather than variables and states."""
        return "time" in self.nodes.columns

    @property
    def geographic(self) -> bool:
        """Whether the coordinates are degrees of longitude and latitude."""
        return bool(self.attributes.get("geographic", False))

    @property
    def times(self) -> list[Hashable]:
        """The times of a chain (the variables of another model), in order."""
        return self.nodes[self.nodes.columns[0]].unique().tolist()

    @property
    def cells(self) -> list[Hashable]:
        """The cells of a chain (all states of another model), in order."""
        return self.nodes[self.nodes.columns[1]].unique().tolist()

    @classmethod
    def of(cls, posterior: Posterior, *, level: float = 0.9) -> Result:
        """The result of a posterior in memory, as `load_result` would read it back."""
        return result_of(posterior.to_xarray(level=level))


def load_result(path: str | os.PathLike[str]) -> Result:
    """Read a folder written by ``headcount infer`` or ``fit``, or a file written by ``Posterior.save``.

    Raises
    ------
    TableError
        No such file, or one that holds something else.
    """
    import xarray as xr

    place = Path(path)
    file = place / POSTERIOR_FILE if place.is_dir() else place
    if not file.exists():
        remedy = (
            f"give a folder that holds {POSTERIOR_FILE}, as headcount infer --out writes it, or a .nc file"
        )
        raise TableError(f"{file}: there is no such file: {remedy}")
    try:
        with xr.open_datatree(file, engine="h5netcdf") as tree:
            return result_of(tree.load(), path=file)
    except (OSError, KeyError, ValueError) as error:
        text = f"{file}: this is not a result of headcount ({error}): write one with headcount infer or Posterior.save"
        raise TableError(text) from error


def result_of(tree: xr.DataTree, *, path: Path | None = None) -> Result:
    """The tables of a tree made by ``Posterior.to_xarray``."""
    attributes = json.loads(tree.attrs["provenance"])
    nodes, flows = tree["nodes"].to_dataset(), tree["flows"].to_dataset()
    seen = tree["observed_data/count"].variable
    level = attributes["interval_level"]
    if "time" in nodes.dims:
        node_table = _table(nodes.assign(observed=(seen.dims, seen.data)), ["time", "cell"])
        flow_table = _table(flows, ["departure", "origin", "dest"]).rename(columns={"departure": "time"})
        if "possible" in flow_table:
            flow_table = flow_table[flow_table.pop("possible")].reset_index(drop=True)
    else:
        node_table = _table(nodes.assign(observed=("entry", seen.data)), ["variable", "state"])
        flow_table = _table(flows, ["variable", "state", "other", "other_state"])
    for table in (node_table, flow_table):
        table.attrs["level"] = level
    places, geographic = _places(nodes)
    attributes["geographic"] = geographic
    return Result(
        node_table,
        flow_table,
        _optional(tree, "trace", ["iteration"]),
        attributes,
        places,
        _optional(tree, "weights", ["feature"]) if "weights" in tree else None,
        _optional(tree, "ascent", ["iteration"]) if "ascent" in tree else None,
        path,
    )


_VALUES = ["observed", "mean", "sd", "lower", "upper", "reliable", "possible"]


def _table(data: xr.Dataset, labels: list[str]) -> pd.DataFrame:
    """A dataset as a tidy table: labels first, in the order of the arrays."""
    frame = data[[name for name in _VALUES if name in data]].to_dataframe(dim_order=list(data["mean"].dims))
    frame = frame.reset_index()
    values = [name for name in _VALUES if name in frame]
    flags = [name for name in ("reliable", "possible") if name in frame]
    return frame[[*labels, *values]].astype(dict.fromkeys(flags, bool))


def _optional(tree: xr.DataTree, group: str, labels: list[str]) -> pd.DataFrame:
    import pandas as pd

    if group not in tree:
        return pd.DataFrame(columns=labels)
    frame = tree[group].to_dataset().to_dataframe().reset_index()
    return frame[[*labels, *(c for c in frame.columns if c not in labels)]]


def _places(nodes: xr.Dataset) -> tuple[pd.DataFrame | None, bool]:
    """Where the cells are, and whether in degrees."""
    import pandas as pd

    for x, y in COORDINATES:
        if x in nodes.coords and y in nodes.coords:
            values = {"cell": nodes["cell"].to_numpy(), "x": nodes[x].to_numpy(), "y": nodes[y].to_numpy()}
            return pd.DataFrame(values), x == "lon"
    return None, False
