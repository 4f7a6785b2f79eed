"""The commands and their options: parse, call, save.

Options are declared as the fields of dataclasses; `takes_options` puts them into a command's signature, where the parser reads them.
"""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount._version import __version__
from headcount.cli._show import guarded, say, speak, terminal

if TYPE_CHECKING:
    from headcount.io import Case

_TABLES = "Tables"
_WRITTEN = "How the files are written"
_FOUND_OUT = "(found out, and said, unless given)."
_MARK = "MARK or FILE=MARK"
_NOISE = "Noise"
_ENGINE = "Engine"
_PAIR = "NAME=VALUE"
_FOLDER = "Folder for what is written."


def _option(text: str, panel: str, *names: str, show: str | bool = False, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, show_default=show, metavar=metavar)


@dataclass(frozen=True)
class Options:
    """What infer, fit and plan are told beside their own options."""

    population: Annotated[
        str | None,
        _option(
            "How many individuals there are: 1080, 8000..12000, 10000±1500 (or 10000+-1500), or unknown.",
            _TABLES,
            metavar="N",
        ),
    ] = None
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
            "Where they start: learned (from all counts), counts (shares of the first), smoothed, uniform, or a table cell, probability.",
            _TABLES,
            show="learned",
        ),
    ] = "learned"
    arrivals: Annotated[
        Path | None, _option("Who comes later: time, cell, count (expected numbers).", _TABLES)
    ] = None
    survival: Annotated[
        str | None,
        _option(
            "Probability to stay for a step: a number, or a table cell, probability[, time].",
            _TABLES,
            metavar="P|FILE",
        ),
    ] = None
    dispersion: Annotated[
        str | None,
        _option(
            "How they move together: estimate, flocks:5, company:4 or rho:0.01; alone unless given.",
            _TABLES,
            "--dispersion",
            "--together",
        ),
    ] = None
    concentration: Annotated[
        float | None,
        _option(
            "How well --transitions are known: every row is Dirichlet around the given one, with this sum.",
            _TABLES,
        ),
    ] = None
    cells: Annotated[
        Path | None,
        _option(
            "All cells: cell[, x, y] or cell[, lon, lat]; or their polygons (GeoJSON, GeoPackage).", _TABLES
        ),
    ] = None
    flows: Annotated[Path | None, _option("Observed flows: time, origin, dest, count.", _TABLES)] = None
    tracks: Annotated[
        Path | None,
        _option("Followed individuals: id, time, cell[, probability][, sd]; gaps are allowed.", _TABLES),
    ] = None
    tracks_apart: Annotated[
        bool,
        _option(
            "The followed individuals are not among the population and its counts.", _TABLES, "--tracks-apart"
        ),
    ] = False
    network: Annotated[
        Path | None,
        _option("A network in BIF instead of a chain; COUNTS are tables of its variables.", _TABLES),
    ] = None
    column: Annotated[
        list[str] | None,
        _option("Which column is which: count=birds (repeat).", _TABLES, "--column", metavar=_PAIR),
    ] = None
    wide: Annotated[
        bool,
        _option(
            "Counts have one column per cell or per date, transitions one per destination.", _TABLES, "--wide"
        ),
    ] = False
    uneven: Annotated[
        bool, _option("Take times with gaps between them as successive.", _TABLES, "--uneven")
    ] = False
    normalise: Annotated[
        bool, _option("Divide every origin's values by their sum.", _TABLES, "--normalise")
    ] = False
    decimal: Annotated[
        list[str] | None, _option(f"Decimal separator: . or , {_FOUND_OUT}", _WRITTEN, metavar=_MARK)
    ] = None
    thousands: Annotated[
        list[str] | None,
        _option(f"Separator of thousands: . , ' or a space {_FOUND_OUT}", _WRITTEN, metavar=_MARK),
    ] = None
    missing: Annotated[
        list[str] | None,
        _option(
            "What stands for not observed, beside nothing, NA, n.a. and - (repeat).", _WRITTEN, metavar="TEXT"
        ),
    ] = None
    dates: Annotated[
        str | None,
        _option(f"03/04/2024 is written day-first or month-first {_FOUND_OUT}", _WRITTEN),
    ] = None
    encoding: Annotated[
        list[str] | None,
        _option(f"Of text files: utf-8, cp1252, … {_FOUND_OUT}", _WRITTEN, metavar="NAME or FILE=NAME"),
    ] = None
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
    noise_dispersion: Annotated[float | None, _option("Dispersion r (negative-binomial).", _NOISE)] = None
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
    workers: Annotated[
        int | None, _option("Processes, where the counts have several sequences.", _ENGINE)
    ] = None
    cluster: Annotated[
        str | None, _option("Or the address of a Dask scheduler: tcp://host:8786.", _ENGINE)
    ] = None
    memory_limit: Annotated[
        str | None, _option("Refuse to take more: 8GB, 500MB; 80 % of what is free unless given.", _ENGINE)
    ] = None


Force = Annotated[
    bool, typer.Option("--force", help="Overwrite files in the folder that headcount did not write.")
]


@dataclass(frozen=True)
class Output:
    """Where and how infer and fit write."""

    out: Annotated[Path, typer.Option(help=_FOLDER)] = Path("results")
    level: Annotated[float, typer.Option(help="What the intervals hold.")] = 0.9
    format: Annotated[str, typer.Option(help="Of the tables: csv or parquet.")] = "csv"
    min_flow: Annotated[
        float, typer.Option(help="Smallest expected move that gets a line in flows.geojson.")
    ] = 0.5
    omx: Annotated[bool, typer.Option("--omx", help="Write the flows as OMX matrices too.")] = False
    keep: Annotated[bool, typer.Option("--keep", help="Write the answer even when it did not converge.")] = (
        False
    )
    report: Annotated[
        bool, typer.Option("--report", help="Write the page with the map too, as headcount report does.")
    ] = False
    safe_csv: Annotated[
        bool,
        typer.Option("--safe-csv", help="Put an apostrophe before labels that a spreadsheet would run."),
    ] = False
    draws: Annotated[
        int | None,
        typer.Option(help="Joint draws in posterior.nc.", show_default="100, or as many as memory allows"),
    ] = None
    draw_flows: Annotated[bool, typer.Option("--draw-flows", help="Flows among the draws too.")] = False
    force: Force = False

    def check(self) -> None:
        """Refuse before the work what would fail after it."""
        from importlib.util import find_spec

        from headcount._atomic import check_folder

        if not 0 < self.level < 1:
            raise ValueError(f"--level must lie between 0 and 1, got {self.level:g}")
        if not self.min_flow >= 0:
            raise ValueError(f"--min-flow is a number ≥ 0, got {self.min_flow:g}")
        if self.draws is not None and self.draws < 0:
            raise ValueError(f"--draws must be 0 or more, got {self.draws}")
        if self.format not in {"csv", "parquet"}:
            raise ValueError(f"--format is csv or parquet, got {self.format!r}")
        if self.format == "parquet" and find_spec("pyarrow") is None:
            raise ValueError("writing Parquet needs pyarrow: pip install 'headcount[parquet]', or choose csv")
        check_folder(self.out)
        if self.report:
            from headcount.cli._run import check_page
            from headcount.report._write import PAGE_FILE

            check_page(self.out / PAGE_FILE, self.force)

    def check_files(self, case: "Case", *, fitted: bool) -> None:
        """Refuse a folder in which files that are not ours would be overwritten."""
        from headcount._atomic import check_folder
        from headcount.individual import OpenChain
        from headcount.io import result_names

        coordinates = [getattr(seen.counts, "coords", {}) for seen in case.problem.observations]
        places = any("cell" in found and len(found) > 2 for found in coordinates)
        is_open = isinstance(case.problem.model, OpenChain)
        names = result_names(format=self.format, omx=self.omx, places=places, fitted=fitted, is_open=is_open)
        check_folder(self.out, names, force=self.force)


@dataclass(frozen=True, kw_only=True)
class Chain:
    """What simulate chain is told."""

    population: Annotated[int, typer.Option(help="How many individuals.")]
    initial: Annotated[str, typer.Option(help="uniform, or a table cell, probability.")] = "uniform"
    steps: Annotated[int | None, typer.Option(help="How many times, where all steps are alike.")] = None
    cells: Annotated[Path | None, typer.Option(help="cell[, x, y] or cell[, lon, lat].")] = None
    noise: Annotated[str, typer.Option(help="poisson, binomial, gaussian or exact.")] = "poisson"
    rate: Annotated[float, typer.Option(help="Expected counts per individual (poisson).")] = 1.0
    detection: Annotated[float | None, typer.Option(help="Probability to be counted (binomial).")] = None
    sd: Annotated[float | None, typer.Option(help="Standard deviation (gaussian).")] = None
    dispersion: Annotated[
        str | None,
        typer.Option(
            "--dispersion",
            "--together",
            help="How they move together: flocks:5, company:4 or rho:0.01; alone unless given.",
        ),
    ] = None
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")]
    out: Annotated[Path, typer.Option(help=_FOLDER)] = Path("data")
    force: Force = False


def _flag(name: str, text: str) -> inspect.Parameter:
    option = Annotated[bool, typer.Option(f"--{name}", help=text)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=option)


_VOICE = [
    _flag("quiet", "Print nothing but errors."),
    _flag("json", "Print one JSON object instead of text; errors are in it too."),
]
"""What every command takes."""


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace every parameter whose type is a dataclass of options by one option per field; the command gets the object.

    Every command also takes ``--quiet`` and ``--json``.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for given in inspect.signature(command).parameters.values():
        if is_dataclass(given.annotation):
            groups[given.name] = given.annotation
            parameters += map(_parameter, fields(given.annotation))
        else:
            parameters.append(given.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def wrapped(**given: Any) -> None:
        speak(quiet=given.pop("quiet"), as_json=given.pop("json"))
        made = {
            name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()
        }
        command(**given, **made)

    parameters += _VOICE
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped


def _parameter(option: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if option.default is MISSING else option.default
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option.type
    )


app = typer.Typer(
    name="headcount",
    help="Recover how many were where, and how they moved, from noisy totals.",
    epilog="Exit codes: 0 well, 1 the system refused or something is missing, 2 bad input, 3 too large for the memory limit, 4 not "
    "converged, 130 interrupted, 143 stopped.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
simulate = typer.Typer(no_args_is_help=True, help="Make data with a known truth.")
app.add_typer(simulate, name="simulate")

Counts = Annotated[
    list[Path],
    typer.Argument(
        help="time, cell, count (CSV, Excel, Parquet or NetCDF); with --network, tables of its variables."
    ),
]


def _print_version(asked: bool) -> None:
    if asked:
        say(f"headcount {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Recover how many were where, and how they moved, from noisy totals."""


@app.command()
@takes_options
def infer(counts: Counts, *, output: Output, options: Options) -> None:
    """Infer how many were where and how they moved, with intervals.

    Exit codes: 2 bad input, 3 too large for the memory limit, 4 not converged, 130 interrupted.
    """
    with guarded(options.memory_limit):
        from headcount.cli._run import run_infer

        run_infer(counts, options, output)


@app.command()
@takes_options
def fit(
    counts: Counts,
    *,
    method: Annotated[str, typer.Option(help="ascent or em.")] = "ascent",
    ridge: Annotated[float, typer.Option(help="Strength of the prior −½ ridge w² on every weight.")] = 0.0,
    start: Annotated[
        str | None,
        typer.Option(
            help="Where to start: weights (1,2,2,2 or a table feature, weight), or zero, sticky, mobile. Several starts if not given."
        ),
    ] = None,
    output: Output,
    options: Options,
) -> None:
    """Learn the weights of features from counts, then infer with them."""
    with guarded(options.memory_limit):
        from headcount.cli._run import run_fit

        run_fit(counts, options, output, method=method, ridge=ridge, start=start)


@app.command()
@takes_options
def plan(counts: Counts, *, options: Options) -> None:
    """Predict memory and time and name the engine; nothing runs."""
    with guarded(options.memory_limit):
        from headcount.cli._run import run_plan

        run_plan(counts, options)


@app.command()
@takes_options
def check(counts: Counts, *, options: Options) -> None:
    """Read the files as infer would, and say everything that is wrong or was decided; nothing runs, nothing is written."""
    with guarded(options.memory_limit):
        from headcount.cli._run import run_check

        run_check(counts, options)


@app.command()
@takes_options
def new(
    field: Annotated[str, typer.Argument(help="birds, zones, wards or census.")],
    folder: Annotated[Path, typer.Argument(help="The folder to make.")],
    *,
    force: Force = False,
) -> None:
    """Make a folder with example tables and the commands that read them, to start from by replacing the tables."""
    with guarded():
        from headcount.cli._new import run_new

        run_new(field, folder, force=force)


@simulate.command()
@takes_options
def birds(
    *,
    side: Annotated[int, typer.Option(help="The map has side² cells.")] = 6,
    weights: Annotated[str, typer.Option(help="Of distance, direction, wind and stay.")] = "1,2,2,2",
    population: Annotated[int, typer.Option(help="How many birds.")] = 1080,
    steps: Annotated[int, typer.Option(help="How many times.")] = 20,
    rate: Annotated[float, typer.Option(help="Expected counts per bird.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")],
    out: Annotated[Path, typer.Option(help=_FOLDER)] = Path("data"),
    force: Force = False,
) -> None:
    """Birds that fly over a map from one corner to the other."""
    with guarded():
        from headcount.cli._run import run_birds

        run_birds(side, weights, population, steps=steps, rate=rate, seed=seed, out=out, force=force)


@simulate.command()
@takes_options
def chain(
    transitions: Annotated[Path, typer.Argument(help="from, to, probability[, time of departure].")],
    *,
    options: Chain,
) -> None:
    """Individuals that move by your own transitions."""
    with guarded():
        from headcount.cli._run import run_chain

        run_chain(transitions, options)


@app.command()
@takes_options
def report(
    results: Annotated[Path, typer.Argument(help="A folder that infer or fit wrote, or a .nc file.")],
    *,
    out: Annotated[
        Path | None, typer.Option(help="The page; report.html beside the results unless given.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="What stands on top of the page.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite a page that headcount did not write.")
    ] = False,
) -> None:
    """Make one self-contained HTML page of a finished run."""
    with guarded():
        from headcount.cli._run import run_report

        run_report(results, out, title=title, force=force)


@app.command()
@takes_options
def compare(
    first: Annotated[Path, typer.Argument(help="A folder that infer or fit wrote, or a .nc file.")],
    second: Annotated[Path, typer.Argument(help="Another, of the same cells and times.")],
    *,
    out: Annotated[Path, typer.Option(help=_FOLDER)] = Path("comparison"),
    title: Annotated[str | None, typer.Option(help="What stands on top of the page.")] = None,
    force: Force = False,
) -> None:
    """Hold two results against each other: differences with intervals, evidence, checks of fit, maps side by side."""
    with guarded():
        from headcount.cli._results import run_compare

        run_compare(first, second, out, title=title, force=force)


@app.command()
@takes_options
def export(
    results: Annotated[Path, typer.Argument(help="A folder that infer or fit wrote, or a .nc file.")],
    *,
    to: Annotated[str, typer.Option(help="flowmap, kepler, geopackage, geojson or omx.")] = "flowmap",
    min_flow: Annotated[float, typer.Option(help="Leave out moves expected to take fewer.")] = 0.5,
    out: Annotated[Path | None, typer.Option(help="Folder; export beside the results unless given.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
) -> None:
    """Write a finished run for flowmap.blue, kepler.gl, GIS or transport tools."""
    with guarded():
        from headcount.cli._results import run_export

        run_export(results, to=to, min_flow=min_flow, out=out, force=force)


@app.command()
@takes_options
def animate(
    results: Annotated[Path, typer.Argument(help="A folder that infer or fit wrote, or a .nc file.")],
    *,
    out: Annotated[
        Path | None, typer.Option(help="A .gif or .mp4; moves.gif beside the results unless given.")
    ] = None,
    largest: Annotated[int, typer.Option(help="Moves that are shown per step.")] = 60,
    frames: Annotated[int, typer.Option(help="Pictures per step.")] = 8,
    speed: Annotated[float, typer.Option(help="Steps per second.")] = 1.0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
) -> None:
    """Make an animated map of a finished run: GIF, or MP4 (needs headcount[video])."""
    with guarded():
        from headcount.cli._results import run_animate

        run_animate(results, out, largest=largest, frames=frames, speed=speed, force=force)


@app.command()
@takes_options
def doctor() -> None:
    """Say what this machine and environment offer, and what is missing."""
    with guarded():
        from headcount.cli._doctor import examine, show

        findings = examine()
        show(findings)
        if not all(finding.healthy for finding in findings):
            raise typer.Exit(1)


def main() -> None:
    """Run the command line."""
    import signal

    def stop(number: int, frame: object) -> None:
        raise SystemExit(128 + number)  # so that what is half-written is taken away

    signal.signal(signal.SIGTERM, stop)
    try:
        with terminal():
            app()
    except SystemExit as end:
        _leave_threads(end)
        raise


def _leave_threads(end: SystemExit) -> None:
    """After an interrupt, end at once if a thread is still in the compiler: it would read an interpreter that is being taken down."""
    import os
    import signal
    import sys
    import threading

    working = any(thread.daemon for thread in threading.enumerate())
    if working and end.code in {128 + signal.SIGINT, 128 + signal.SIGTERM}:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(end.code))
