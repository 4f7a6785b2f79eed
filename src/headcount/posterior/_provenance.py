"""How a posterior was got: engine, settings, status, versions, as plain values that any file can hold."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import platform
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headcount.posterior._posterior import Posterior

_LIBRARIES = ("numpy", "scipy", "numba", "xarray", "pandas", "h5netcdf")


def provenance(posterior: Posterior, *, level: float) -> dict[str, Any]:
    """What was asked, how it went and what made it; JSON can hold every value."""
    outcome, promises = posterior.outcome, posterior.promises
    settings = posterior.settings
    names: list[str] = (
        [f.name for f in dataclasses.fields(settings)] if dataclasses.is_dataclass(settings) else []
    )
    evidence, dispersion = posterior.log_evidence, posterior.problem.dispersion
    estimate = posterior.dispersion_estimate
    return {
        "status": posterior.status.value,
        "good": posterior.status.good,
        "engine": posterior.engine,
        "settings": {name: plain(getattr(settings, name)) for name in names},
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
        "log_evidence": None if evidence is None else plain(float(evidence)),
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
