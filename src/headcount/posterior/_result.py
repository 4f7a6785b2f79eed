"""A finished run as tables, without its engine: what files, pictures, the page and other programs are made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headcount.posterior._frames import label_array, largest_flows, place_frame, possible_flows, to_frame
from headcount.posterior._parts import stored_open_frame
from headcount.posterior._provenance import provenance

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from headcount.posterior._posterior import Posterior


@dataclass(frozen=True, eq=False)
class Result:
    """Summaries of a posterior as tables; read-only, light, the same from memory and from a file.

    Attributes
    ----------
    nodes
        ``time, cell, observed, mean, median, sd, lower, upper, reliable``, one row per time and cell (``observed`` NaN where nobody
        looked; ``median``, ``sd`` and ends NaN from an engine that gives none). Models other than chains have ``variable, state`` for
        ``time, cell``.
    flows
        ``time, origin, dest, mean, median, sd, lower, upper, reliable``; ``time`` is that of departure, and only moves that the model
        allows have a row. Other models: ``variable, state, other, other_state``.
    trace
        ``iteration, residual, seconds`` and what else the engine reports, one row per iteration; may be empty.
    attributes
        How it was got: ``status, good, engine, settings, iterations, residual, tolerance, seconds, seed, population,
        log_evidence, interval_level, observations, versions, created_at`` and, from the command line, ``command``.
    coordinates
        ``cell, x, y`` where the cells have places (lon and lat are x and y too: see `geographic`); None otherwise.
    weights
        ``feature, weight[, standard_error]`` where the model was fitted; None otherwise.
    ascent
        One row per iteration of learning; None where nothing was learned.
    check
        ``name, time, cell, observed, expected, sd, residual, pit``, one row per count: the check of fit; None where there was none.
    arrivals, departures
        ``time, cell, mean, median, sd, lower, upper`` of an open population; None of a closed one.
    sizes
        ``size, probability``: the posterior of the number of individuals where that was not known; None otherwise.
    groups
        One result per group by its name, of a problem with groups; `nodes` and `flows` are then their sum.
    path
        The file it was read from.
    shapes
        Areas of the cells where they are known: rings of points, shape (K, 2), in the units of the coordinates; None otherwise.
    """

    nodes: pd.DataFrame
    flows: pd.DataFrame
    trace: pd.DataFrame
    attributes: Mapping[str, Any]
    coordinates: pd.DataFrame | None = None
    weights: pd.DataFrame | None = None
    ascent: pd.DataFrame | None = None
    arrivals: pd.DataFrame | None = None
    departures: pd.DataFrame | None = None
    path: Path | None = field(default=None, repr=False)
    shapes: Mapping[Hashable, Sequence[NDArray[np.float64]]] | None = field(default=None, repr=False)
    check: pd.DataFrame | None = None
    sizes: pd.DataFrame | None = None
    groups: Mapping[Hashable, Result] = field(default_factory=dict)

    @property
    def plot(self) -> Any:
        """Pictures: ``result.plot.counts()``, ``result.plot.flows(time)`` and others."""
        from headcount.posterior._posterior import pictures

        return pictures(self)

    @property
    def level(self) -> float:
        """The probability that an interval holds its count: 0.9 for the ends at 5 % and 95 %."""
        return float(self.attributes["interval_level"])

    @property
    def good(self) -> bool:
        """Whether the engine reached what it promises."""
        return bool(self.attributes["good"])

    @property
    def population(self) -> int:
        """N; the nearest whole number to its mean where it was not known."""
        return int(self.attributes["population"])

    @property
    def population_text(self) -> str:
        """N, or its estimate with the interval, in words."""
        found = self.attributes.get("population_estimate")
        if found is None:
            return f"{self.population:,}"
        if not isinstance(found["sd"], float):
            return f"{found['mean']:,.0f}, the most probable number ({found['law']} was given)"
        ends = f"{self.level:.0%} interval {found['lower']:,.0f} to {found['upper']:,.0f}"
        return f"{found['mean']:,.0f} ± {found['sd']:,.2g} ({ends}; {found['law']} was given)"

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
    def of(cls, posterior: Posterior, *, level: float = 0.9, most_flows: int | None = None) -> Result:
        """The result of a posterior in memory, as ``load_result`` would read it back; with ``most_flows``, of the largest flows only."""
        import pandas as pd

        if most_flows is None:
            flows, cut = to_frame(posterior, "flows", level=level, stored=True), {}
        else:
            flows = largest_flows(posterior, most_flows, level=level)
            cut = {"flows_in_all": possible_flows(posterior.problem.model)}
        places = place_frame(posterior)
        degrees = places is not None and places.attrs["names"] == ("lon", "lat")
        found = posterior.population
        names = list(posterior.problem.groups or ())
        groups = zip(label_array(names).tolist(), names, strict=True)
        return cls(
            to_frame(posterior, "nodes", level=level, stored=True),
            flows,
            posterior.trace if posterior.outcome.trace else pd.DataFrame(columns=["iteration"]),
            provenance(posterior, level=level) | {"geographic": degrees} | cut,
            places,
            check=checked_counts(posterior),
            arrivals=stored_open_frame(posterior, "arrivals", level=level),
            departures=stored_open_frame(posterior, "departures", level=level),
            sizes=None
            if found.known or not posterior.beliefs.has_spread
            else pd.DataFrame({"size": found.values, "probability": found.probabilities}),
            groups={stored: cls.of(posterior.group(name), level=level) for stored, name in groups},
        )


def checked_counts(posterior: Posterior) -> pd.DataFrame | None:
    """The check of fit, one row per count, with labels as files hold them; None where nothing was checked."""
    check = posterior.fit_check
    if not len(check.residual):
        return None
    frame = check.to_frame()
    for column in check.axes:
        some = frame[column].notna().to_numpy()
        labels = frame[column].to_numpy(dtype=object, copy=True)  # pandas may lend it read-only
        labels[~some] = ""
        frame[column] = label_array(labels.tolist())
    return frame
