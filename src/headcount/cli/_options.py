"""Options that several commands share: the tables of a problem, its noise, and the engine.

They are declared once, as the fields of `Options`; `takes_options` puts them into a command's signature, where the parser reads them.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

_TABLES = "Tables"
_NOISE = "Noise"
_ENGINE = "Engine"
_PAIR = "NAME=VALUE"


def _option(text: str, panel: str, *names: str, show: str | bool = False, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, show_default=show, metavar=metavar)


@dataclass(frozen=True)
class Options:
    """What infer, fit and plan are told beside their own options."""

    population: Annotated[int | None, _option("How many individuals there are.", _TABLES)] = None
    transitions: Annotated[
        Path | None,
        _option("How they move: from, to, probability[, time of departure]; or an OMX file.", _TABLES),
    ] = None
    features: Annotated[
        Path | None, _option("How they move: from, to, one column per feature[, time].", _TABLES)
    ] = None
    weights: Annotated[
        str | None, _option("One per feature: 1,2,2,2, or a table feature, weight.", _TABLES)
    ] = None
    initial: Annotated[
        str,
        _option(
            "Where they start: counts (shares of the first), smoothed, uniform, or a table cell, probability.",
            _TABLES,
            show="counts",
        ),
    ] = "counts"
    cells: Annotated[Path | None, _option("All cells: cell[, x, y] or cell[, lon, lat].", _TABLES)] = None
    flows: Annotated[Path | None, _option("Observed flows: time, origin, dest, count.", _TABLES)] = None
    network: Annotated[
        Path | None,
        _option("A network in BIF instead of a chain; COUNTS are tables of its variables.", _TABLES),
    ] = None
    column: Annotated[
        list[str] | None,
        _option("Which column is which: count=birds (repeat).", _TABLES, "--column", metavar=_PAIR),
    ] = None
    encoding: Annotated[str | None, _option("Of text files; UTF-8 unless given.", _TABLES)] = None
    uneven: Annotated[
        bool, _option("Take times with gaps between them as successive.", _TABLES, "--uneven")
    ] = False
    normalise: Annotated[
        bool, _option("Divide every origin's values by their sum.", _TABLES, "--normalise")
    ] = False
    noise: Annotated[
        str,
        _option("poisson, binomial, negative-binomial, gaussian, laplace or exact.", _NOISE, show="poisson"),
    ] = "poisson"
    rate: Annotated[float | None, _option("Expected counts per individual present.", _NOISE)] = None
    background: Annotated[float | None, _option("Expected counts where nobody is.", _NOISE)] = None
    detection: Annotated[
        float | None, _option("Probability that an individual is counted (binomial).", _NOISE)
    ] = None
    sd: Annotated[float | None, _option("Standard deviation (gaussian).", _NOISE)] = None
    scale: Annotated[float | None, _option("Scale b (laplace).", _NOISE)] = None
    dispersion: Annotated[float | None, _option("Dispersion r (negative-binomial).", _NOISE)] = None
    flow_noise: Annotated[str, _option("Noise of the observed flows.", _NOISE, show="poisson")] = "poisson"
    flow_rate: Annotated[float | None, _option("Share of each flow that is seen (poisson).", _NOISE)] = None
    flow_detection: Annotated[
        float | None, _option("Probability that a move is seen (binomial).", _NOISE)
    ] = None
    flow_sd: Annotated[
        float | None, _option("Standard deviation of the observed flows (gaussian).", _NOISE)
    ] = None
    engine: Annotated[
        str,
        _option("auto, TiltedEP, Laplace, MAP, PathGibbs, … (see the documentation).", _ENGINE, show="auto"),
    ] = "auto"
    setting: Annotated[
        list[str] | None,
        _option("A setting of the engine: damping=0.3 (repeat).", _ENGINE, "--set", metavar=_PAIR),
    ] = None
    seed: Annotated[int | None, _option("For random engines, which need one.", _ENGINE)] = None
    memory_limit: Annotated[
        str | None, _option("Refuse to take more: 8GB, 500MB; 80 % of what is free unless given.", _ENGINE)
    ] = None


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the shared options to a command, which gets them as one object named ``options``."""
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "options"]
    shared = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type)
        for f in fields(Options)
    ]

    @wraps(command)
    def wrapped(**given: Any) -> None:
        options = Options(**{parameter.name: given.pop(parameter.name) for parameter in shared})
        command(**given, options=options)

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + shared
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped
