"""A finished run as tables, without its engine: what files, pictures, the page and other programs are made from."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import platform
from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._version import __version__
from headcount.individual import OpenChain
from headcount.posterior._frames import label_array, largest_flows, place_frame, possible_flows, to_frame
from headcount.posterior._parts import stored_open_frames

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from pathlib import Path

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
        model, places = posterior.problem.model, place_frame(posterior)
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
            **stored_open_frames(posterior, level=level) if isinstance(model, OpenChain) else {},
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


# --- how it was got: engine, settings, status, versions, as plain values that any file can hold

_LIBRARIES = ("numpy", "scipy", "numba", "xarray", "pandas", "h5netcdf")


def provenance(posterior: Posterior, *, level: float) -> dict[str, Any]:
    """What was asked, how it went and what made it; JSON can hold every value."""
    outcome, promises = posterior.outcome, posterior.promises
    dispersion, estimate = posterior.problem.dispersion, posterior.dispersion_estimate
    return {
        "status": posterior.status.value,
        "good": posterior.status.good,
        "engine": posterior.engine,
        "settings": _settings(posterior.settings),
        "iterations": outcome.iterations,
        "residual": plain(outcome.residual),
        "tolerance": plain(outcome.tolerance),
        "seconds": plain(outcome.seconds),
        "seed": plain(outcome.info.get("seed")),
        "initial_law": outcome.info.get("initial", "given with the model"),
        "parameters": outcome.info.get("parameters", "given with the model"),
        "population": round(posterior.population.mean),
        "population_estimate": _estimate(posterior, level),
        "dispersion": None if dispersion is None else dispersion.text,
        "dispersion_estimate": None
        if estimate is None
        else {k: plain_or_dict(v) for k, v in estimate.facts.items()},
        "log_evidence": plain(posterior.log_evidence),
        "interval_level": level,
        "means_non_negative": promises.non_negative,
        "means_consistent": promises.consistent,
        "fit_check": _check(posterior),
        "diagnostics": {k: plain(v) for k, v in posterior.diagnostics.items() if _scalar(v)},
        "counts_per_individual": counts_per_individual(posterior),
        "observations": [
            type(o).__name__ for o in (*posterior.problem.observations, *posterior.problem.tracks)
        ],
        "created_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "inference_library": "headcount",
        "inference_library_version": __version__,
        "versions": {"python": platform.python_version(), **{n: _version(n) for n in _LIBRARIES}},
    }


def _settings(engine: Any) -> dict[str, Any]:
    """The fields of an engine."""
    fields = dataclasses.fields(engine) if dataclasses.is_dataclass(engine) else ()
    return {f.name: plain(getattr(engine, f.name)) for f in fields}


def _estimate(posterior: Posterior, level: float) -> dict[str, Any] | None:
    """What was said and what was found of the number of individuals; None where it was given."""
    given, found = posterior.problem.population, posterior.population
    if isinstance(given, int):
        return None
    ends = found.interval(level)
    numbers = {"mean": found.mean, "sd": found.sd, "lower": float(ends.lower), "upper": float(ends.upper)}
    return {"law": given.text, **{k: plain(v) for k, v in numbers.items()}, "note": found.note}


def _check(posterior: Posterior) -> dict[str, Any]:
    """The check of fit in numbers and words."""
    check = posterior.fit_check
    names = ("agrees", "verdict", "dispersion", "dispersion_p", "residual_dispersion", "residual_p")
    made = {name: plain(getattr(check, name)) for name in (*names, "implied_population", "population_sd")}
    if not len(check.residual):
        return made
    for axis in check.axes:
        table = check.dispersion_by(axis)
        made[f"dispersion_by_{axis}"] = {
            str(label): plain(float(value))
            for label, value in zip(table[axis], table["dispersion"], strict=True)
        }
    return made


def counts_per_individual(posterior: Posterior) -> float | list[float | None] | None:
    """Counts that one individual is expected to give: a noise's rate, a probability of detection.

    It puts counts and individuals on one scale. One number, one per row of the table of nodes where it varies, or None where nothing
    was counted entry by entry.
    """
    model = posterior.problem.model
    starts = np.cumsum([0, *(model.size((v,))[0] for v in model.variables)])
    place = {(v,): start for v, start in zip(model.variables, starts.tolist(), strict=False)}
    rates = np.full(starts[-1], np.nan)
    for site in posterior.problem.sites:
        if site.scope in place and site.index is not None:
            noise, zero = site.noise, np.zeros(len(site.index))
            rates[place[site.scope] + site.index] = noise.moments(zero + 1.0)[0] - noise.moments(zero)[0]
    rates = np.where(rates > 0, rates, np.nan)
    known = rates[np.isfinite(rates)]
    if not len(known):
        return None
    if np.allclose(known, known[0]):
        return float(known[0])
    return [None if r != r else round(r, 6) for r in rates.tolist()]


def written(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same as attributes of a NetCDF file, one each for people, and all as JSON in ``provenance`` for programs."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, bool):
            flat[name] = int(value)
        elif isinstance(value, (dict, list)):
            flat[name] = json.dumps(value)
        elif value is not None:
            flat[name] = value
    return flat | {"provenance": json.dumps(dict(values))}


def plain(value: Any) -> Any:
    """A value that JSON can hold: numbers that are not finite, and whatever is no number, as text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (bool, int, float, str)) or value is None else repr(value)


def plain_or_dict(value: Any) -> Any:
    """The same, of all values of a mapping."""
    return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else plain(value)


def _scalar(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str, np.generic))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"
