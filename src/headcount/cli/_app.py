"""The commands and their options: parse, call, save.

Options are declared as the fields of dataclasses; `takes_options` puts them into a command's signature, where the parser reads them.
"""

# ruff: noqa: RUF009 (what `_option` returns is a field, which the rule does not know)

import inspect
import shutil
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount._version import __version__
from headcount.cli._show import guarded, say, show_files, show_notes, speak, tell, terminal, wrote

if TYPE_CHECKING:
    from headcount.io import Case

_FOUND_OUT = "(found out, and said, unless given)."
_MARK = "MARK or FILE=MARK"
_PAIR = "NAME=VALUE"
_FOLDER = "Folder for what is written."
_FORCE = "Overwrite files in the folder that headcount did not write."
_SEED = "Everything random follows from it."
_TITLE = "What stands on top of the page."
_DISPERSION = "--dispersion", "--together"


def _option(text: str, *names: str, default: Any = None, **told: Any) -> Any:
    """A field of a dataclass of options: its default, and what the parser is told; a switch is off unless it is given."""
    return field(default=default, metadata={"names": names, "help": text, **told})


_switch = partial(_option, default=False)
_table = partial(_option, rich_help_panel="Tables")
_written = partial(_option, rich_help_panel="How the files are written")
_noise = partial(_option, rich_help_panel="Noise")
_engine = partial(_option, rich_help_panel="Engine")


@dataclass(frozen=True)
class ProblemOptions:
    """What infer, fit, plan and check are told beside their own options."""

    population: str | None = _table(
        "How many individuals there are: 1080, 8000..12000, 10000±1500 (or 10000+-1500), or unknown; or a table sequence, population.",
        metavar="N",
    )
    transitions: Path | None = _table(
        "How they move: from, to, probability[, time of departure]; or an OMX file."
    )
    old_matrix: Path | None = _table(
        "An old matrix of trips, instead: origin, dest, count; one column per destination; or an OMX file."
    )
    zeros: str = _table("Pairs without trips in --old-matrix are small or impossible.", default="small")
    features: str | None = _table(
        'How they move: a table from, to, one column per feature[, time]; or a formula of --cells: "stay + log(distance) + habitat_to".',
        metavar="FILE|FORMULA",
    )
    weights: str | None = _table("One per feature: 1,2,2,2, or a table feature, weight.")
    initial: str = _table(
        "Where they start: learned (from all counts), counts (shares of the first), smoothed, uniform, or a table cell, probability.",
        default="learned",
    )
    arrivals: Path | None = _table("Who comes later: time, cell, count (expected numbers).")
    survival: str | None = _table(
        "Probability to stay for a step: a number, or a table cell, probability[, time].", metavar="P|FILE"
    )
    dispersion: str | None = _table(
        "How they move together: estimate (so beside an old matrix unless given), flocks:5, phi:4, rho:0.01 or alone.",
        *_DISPERSION,
    )
    concentration: float | None = _table(
        "How well --transitions are known: every row is Dirichlet around the given one, with this sum."
    )
    cells: Path | None = _table(
        "All cells: cell[, x, y] or cell[, lon, lat][, what --features names]; or their polygons (GeoJSON, GeoPackage)."
    )
    flows: Path | None = _table("Observed flows: time, origin, dest, count.")
    sums: Path | None = _table("Sums of flows (screenlines): sum, origin, dest[, time][, count].")
    sum_counts: Path | None = _table("Counts of these sums: sum, count.")
    tracks: Path | None = _table(
        "Followed individuals: id, time, cell[, probability][, sd]; or recoveries: from_time, from_cell, to_time, to_cell."
    )
    tracks_apart: bool = _table(
        "The followed individuals are not among the population and its counts.", default=False
    )
    snap: str | None = _table(
        "Move times of --tracks and --flows to the nearest of the counts, by no more than this: 3d, 12h, or a number.",
        metavar="TIME",
    )
    network: Path | None = _table("A network in BIF instead of a chain; COUNTS are tables of its variables.")
    alias: list[str] | None = _table(
        "Another name of a cell: old=new (repeat), or a table old, new.", "--alias", metavar="OLD=NEW|FILE"
    )
    column: list[str] | None = _table(
        "Which column is which: count=birds (repeat).", "--column", metavar=_PAIR
    )
    wide: bool = _table(
        "Counts have one column per cell or per date, transitions one per destination.", default=False
    )
    uneven: bool = _table("Take times with gaps between them as successive.", default=False)
    normalise: bool = _table("Divide every origin's values by their sum.", default=False)
    decimal: list[str] | None = _written(f"Decimal separator: . or , {_FOUND_OUT}", metavar=_MARK)
    thousands: list[str] | None = _written(
        f"Separator of thousands: . , ' or a space {_FOUND_OUT}", metavar=_MARK
    )
    missing: list[str] | None = _written(
        "What stands for not observed, beside nothing, NA, n.a. and - (repeat).", metavar="TEXT"
    )
    bounds: str | None = _written(
        "What >60 is read as: censored (a bound; so among counts unless given), number or missing (elsewhere asked about)."
    )
    dates: str | None = _written(f"03/04/2024 is written day-first or month-first {_FOUND_OUT}")
    encoding: list[str] | None = _written(
        f"Of text files: utf-8, cp1252, … {_FOUND_OUT}", metavar="NAME or FILE=NAME"
    )
    noise: str = _noise(
        "poisson, binomial, negative-binomial, gaussian, laplace or exact.", default="poisson"
    )
    rate: float | None = _noise("Expected counts per individual present.")
    background: float | None = _noise("Expected counts where nobody is.")
    detection: float | None = _noise("Probability that an individual is counted (binomial).")
    sd: float | None = _noise("Standard deviation (gaussian).")
    scale: float | None = _noise("Scale b (laplace).")
    noise_dispersion: float | None = _noise("Dispersion r (negative-binomial).")
    flow_noise: str = _noise("Noise of the observed flows.", default="poisson")
    flow_rate: float | None = _noise("Share of each flow that is seen (poisson).")
    flow_detection: float | None = _noise("Probability that a move is seen (binomial).")
    flow_sd: float | None = _noise("Standard deviation of the observed flows (gaussian).")
    engine: str = _engine(
        "auto, TiltedEP, Laplace, MAP, PathGibbs, … (see the documentation).", default="auto"
    )
    setting: list[str] | None = _engine(
        "A setting of the engine: damping=0.3 (repeat).", "--set", metavar=_PAIR
    )
    device: str | None = _engine(
        "cuda: a graphics card, for TiltedEP (then what auto is), MAP, Laplace and ClosedForm.",
        show_default="cpu",
    )
    seed: int | None = _engine("For random engines, which need one.")
    workers: int | None = _engine("Processes, where the counts have several sequences.")
    cluster: str | None = _engine("Or the address of a Dask scheduler: tcp://host:8786.")
    memory_limit: str | None = _engine("Refuse to take more: 8GB, 500MB; 80 % of what is free unless given.")


@dataclass(frozen=True)
class OutputOptions:
    """Where and how infer and fit write."""

    out: Path = _option(_FOLDER, default=Path("results"))
    level: float = _option("What the intervals hold.", default=0.9)
    format: str = _option("Of the tables: csv or parquet.", default="csv")
    min_flow: float = _option("Smallest expected move that gets a line in flows.geojson.", default=0.5)
    omx: bool = _switch("Write the flows as OMX matrices too.")
    keep: bool = _switch(
        "Write an answer that did not converge even where its numbers are not finite, or another run would go on from it."
    )
    report: bool = _switch("Write the page with the map too, as headcount report does.")
    safe_csv: bool = _switch("Put an apostrophe before labels that a spreadsheet would run.")
    draws: int | None = _option(
        "Joint draws in posterior.nc.", show_default="100, or as many as memory allows"
    )
    draw_flows: bool = _switch("Flows among the draws too.")
    force: bool = _switch(_FORCE)

    def check(self) -> None:
        """Refuse before the work what would fail after it."""
        from importlib.util import find_spec

        from headcount._disk import check_folder

        for holds, text in (
            (0 < self.level < 1, f"--level must lie between 0 and 1, got {self.level:g}"),
            (self.min_flow >= 0, f"--min-flow is a number ≥ 0, got {self.min_flow:g}"),
            (self.draws is None or self.draws >= 0, f"--draws must be 0 or more, got {self.draws}"),
            (self.format in {"csv", "parquet"}, f"--format is csv or parquet, got {self.format!r}"),
            (
                self.format != "parquet" or find_spec("pyarrow") is not None,
                "writing Parquet needs pyarrow: pip install 'headcount[parquet]', or choose csv",
            ),
        ):
            if not holds:
                raise ValueError(text)
        check_folder(self.out)
        if self.report:
            _check_page(self.out, self.force)

    def check_files(self, case: "Case", *, fitted: bool) -> None:
        """Refuse a folder in which files that are not ours would be overwritten."""
        from headcount._disk import check_folder
        from headcount.io import result_names

        coordinates = [getattr(seen.counts, "coords", {}) for seen in case.problem.observations]
        places = any("cell" in found and len(found) > 2 for found in coordinates)
        is_open = case.problem.opens
        names = result_names(format=self.format, omx=self.omx, places=places, fitted=fitted, is_open=is_open)
        check_folder(self.out, names, force=self.force)


@dataclass(frozen=True)
class SeriesOptions:
    """How infer goes on from an earlier run."""

    after: Path | None = _option(
        "The results folder of an earlier run: go on from its last counts. Options that are not given are those of that run."
    )
    revise: int = _option(
        "Begin this many steps earlier, so that these are revised by the new counts.", default=0
    )
    alarm: float | None = _option(
        "False-alarm rate: end with exit code 5 where the new counts are unlike the forecast from the past.",
        metavar="RATE",
    )


@dataclass(frozen=True)
class WindowOptions:
    """How infer takes a long series."""

    window: int | None = _option(
        "Infer a long series so many steps at a time, in bounded memory; a run that was stopped goes on.",
        show_default="168 where one run would not fit into memory with spreads",
        min=1,
    )


@dataclass(frozen=True)
class LearningOptions:
    """How fit learns."""

    method: str = _option("ascent or em.", default="ascent")
    prior: str = _option(
        "What weights are integrated under where counts leave them on a ridge or at an edge: neutral, or none (the plain maximum).",
        default="neutral",
    )
    ridge: float = _option(
        "Strength of the prior −½ ridge w² on every weight, instead of the neutral one.", default=0.0
    )
    start: str | None = _option(
        "Where to start: weights (1,2,2,2 or a table feature, weight), or zero, sticky, mobile. Several starts if not given."
    )


@dataclass(frozen=True, kw_only=True)
class BirdOptions:
    """What simulate birds is told."""

    side: int = _option("The map has side² cells.", default=6)
    weights: str = _option("Of distance, direction, wind and stay.", default="1,2,2,2")
    population: int = _option("How many birds.", default=1080)
    steps: int = _option("How many times.", default=20)
    rate: float = _option("Expected counts per bird.", default=1.0)
    seed: int = _option(_SEED, default=MISSING)
    out: Path = _option(_FOLDER, default=Path("data"))
    force: bool = _switch(_FORCE)


@dataclass(frozen=True, kw_only=True)
class ChainOptions:
    """What simulate chain is told."""

    population: int = _option("How many individuals.", default=MISSING)
    initial: str = _option("uniform, or a table cell, probability.", default="uniform")
    steps: int | None = _option("How many times, where all steps are alike.")
    cells: Path | None = _option("cell[, x, y] or cell[, lon, lat].")
    noise: str = _option("poisson, binomial, gaussian or exact.", default="poisson")
    rate: float = _option("Expected counts per individual (poisson).", default=1.0)
    detection: float | None = _option("Probability to be counted (binomial).")
    sd: float | None = _option("Standard deviation (gaussian).")
    dispersion: str | None = _option(
        "How they move together: flocks:5, phi:4 or rho:0.01; alone unless given.", *_DISPERSION
    )
    seed: int = _option(_SEED, default=MISSING)
    out: Path = _option(_FOLDER, default=Path("data"))
    force: bool = _switch(_FORCE)


@dataclass(frozen=True)
class PageOptions:
    """What report is told."""

    out: Path | None = _option("The page; report.html beside the results unless given.")
    title: str | None = _option(_TITLE)
    background: Path | None = _option("GeoJSON with streets, rivers or areas to draw under the map.")
    tiles: str | None = _option(
        "Address of map tiles, https://…/{z}/{x}/{y}.png; the page asks for them only when a reader switches them on."
    )
    force: bool = _switch("Overwrite a page that headcount did not write.")


@dataclass(frozen=True)
class CompareOptions:
    """What compare is told."""

    out: Path = _option(_FOLDER, default=Path("comparison"))
    title: str | None = _option(_TITLE)
    force: bool = _switch(_FORCE)


@dataclass(frozen=True)
class ExportOptions:
    """What export is told."""

    to: str = _option("flowmap, kepler, geopackage, geojson or omx.", default="flowmap")
    min_flow: float = _option("Leave out moves expected to take fewer.", default=0.5)
    out: Path | None = _option("Folder; export beside the results unless given.")
    force: bool = _switch("Overwrite files that are there.")


@dataclass(frozen=True)
class FilmOptions:
    """What animate is told."""

    out: Path | None = _option("A .gif or .mp4; moves.gif beside the results unless given.")
    largest: int = _option("Moves that are shown per step.", default=60)
    frames: int = _option("Pictures per step.", default=8)
    speed: float = _option("Steps per second.", default=1.0)
    force: bool = _switch("Overwrite a file that is there.")


@dataclass(frozen=True)
class Voice:
    """What every command takes."""

    quiet: bool = _switch("Print nothing but errors.")
    json: bool = _switch("Print one JSON object instead of text; errors are in it too.")


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace every parameter whose type is a dataclass of options by one option per field; the command gets the object.

    Every command also takes ``--quiet`` and ``--json``, and its errors become a report and an exit code.
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
        with guarded(given.get("memory_limit")):
            made = {
                name: kind(**{f.name: given.pop(f.name) for f in fields(kind)})
                for name, kind in groups.items()
            }
            command(**given, **made)

    parameters += map(_parameter, fields(Voice))
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped


def _path(text: str | Path) -> Path:
    """A path as given on the command line: an empty text names nothing, where `Path` takes it for the present folder."""
    if not str(text):
        raise typer.BadParameter("it is empty: give the name of a file or folder")
    return Path(text)


def _parameter(option: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if option.default is MISSING else option.default
    told = dict(option.metadata)
    # Without a name the parser would add --no-… to a switch.
    names = told.pop("names") or ([f"--{option.name.replace('_', '-')}"] if option.type is bool else [])
    if option.type in (Path, Path | None):
        told = {"parser": _path, "metavar": "PATH"} | told
    kind = Annotated[option.type, typer.Option(*names, **told)]
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


app = typer.Typer(
    name="headcount",
    help="Recover how many were where, and how they moved, from noisy totals.",
    epilog="Exit codes: 0 well, 1 the system refused or something is missing, 2 bad input, 3 too large for the memory limit, 4 not "
    "converged, 5 alarm, 130 interrupted, 143 stopped.",
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
Results = Annotated[Path, typer.Argument(help="A folder that infer or fit wrote, or a .nc file.")]


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
def infer(
    counts: Counts,
    *,
    output: OutputOptions,
    series: SeriesOptions,
    windows: WindowOptions,
    options: ProblemOptions,
) -> None:
    """Infer how many were where and how they moved, with intervals.

    COUNTS may be a folder of tables (weeks), which are inferred one after the other. Exit codes: 2 bad input, 3 too large for the memory
    limit, 4 not converged, 5 alarm, 130 interrupted.
    """
    from headcount.cli._series import run_infer

    run_infer(counts, options, output, series, windows.window)


@app.command()
@takes_options
def forecast(
    results: Results,
    *,
    steps: Annotated[int, typer.Option("--steps", help="How many steps after the last time.", min=1)],
    output: OutputOptions,
    options: ProblemOptions,
) -> None:
    """Forecast counts and moves after the last time of a finished run, with intervals; options that are not given are those of that run."""
    from headcount.cli._series import newest, run_forecast

    run = newest(results)
    if output.out in {Path("results"), results}:
        output = replace(output, out=run / "forecast")
    run_forecast(run, steps, options, output)


@app.command()
@takes_options
def fit(counts: Counts, *, learning: LearningOptions, output: OutputOptions, options: ProblemOptions) -> None:
    """Learn the weights of features from counts, then infer with them."""
    from headcount.cli._run import run_fit
    from headcount.cli._series import series_facts

    run_fit(counts, options, output, learning, series_facts)


@app.command()
@takes_options
def plan(counts: Counts, *, windows: WindowOptions, options: ProblemOptions) -> None:
    """Predict memory and time and name the engine; nothing runs."""
    from headcount.cli._run import run_plan

    run_plan(counts, options, windows.window)


@app.command()
@takes_options
def check(counts: Counts, *, options: ProblemOptions) -> None:
    """Read the files as infer would, and say everything that is wrong or was decided; nothing runs, nothing is written."""
    from headcount.cli._run import run_check

    run_check(counts, options)


@app.command()
@takes_options
def new(
    field: Annotated[str, typer.Argument(help="birds, zones, od (a matrix of trips), wards or census.")],
    folder: Annotated[Path, typer.Argument(help="The folder to make.")],
    *,
    force: Annotated[bool, typer.Option("--force", help=_FORCE)] = False,
) -> None:
    """Make a folder with example tables and the commands that read them, to start from by replacing the tables."""
    from headcount._disk import MANIFEST, filling

    # Simulated with the model, the population and the noise that stand beside them (seed 1), and a few counts left out.
    examples = Path(__file__).parent / "fields"
    known = sorted(path.name for path in examples.iterdir())
    if field not in known:
        raise ValueError(f"there is no field {field!r}: use one of {', '.join(known)}")
    files = sorted((examples / field).iterdir(), key=lambda path: (path.suffix, path.name))
    with filling(folder, force=force) as stage:
        for path in files:
            shutil.copyfile(path, stage / path.name)
    _written_to(folder, [folder / name for name in (*(path.name for path in files), MANIFEST)])


@simulate.command()
@takes_options
def birds(*, options: BirdOptions) -> None:
    """Birds that fly over a map from one corner to the other."""
    from headcount._disk import check_folder
    from headcount.cli._run import parse_weights
    from headcount.io import write_world
    from headcount.simulate import birds

    weights = parse_weights(options.weights)
    if isinstance(weights, Path):
        raise ValueError(f"--weights takes four numbers with commas between them, got {options.weights!r}")
    check_folder(options.out)
    world = birds(
        options.side, weights, options.population, steps=options.steps, rate=options.rate, rng=options.seed
    )
    _written_to(options.out, write_world(world, options.out, force=options.force))


@simulate.command()
@takes_options
def chain(
    transitions: Annotated[Path, typer.Argument(help="from, to, probability[, time of departure].")],
    *,
    options: ChainOptions,
) -> None:
    """Individuals that move by your own transitions."""
    from headcount import simulate
    from headcount._disk import check_folder
    from headcount.io import read_chain, write_world
    from headcount.population import parse_dispersion

    parameters = {"poisson": "rate", "binomial": "detection", "gaussian": "sd", "exact": None}
    if options.noise not in parameters:
        raise ValueError(f"--noise is one of {', '.join(parameters)}, got {options.noise!r}")
    check_folder(options.out)
    parameter = parameters[options.noise]
    values = [] if parameter is None else [getattr(options, parameter)]
    if None in values:
        raise ValueError(f"--{parameter} is needed for this noise")
    observe = getattr(simulate, options.noise)(*values)
    made, places = read_chain(transitions, initial=options.initial, cells=options.cells, length=options.steps)
    dispersion = None if options.dispersion is None else parse_dispersion(options.dispersion)
    world = simulate.population(
        made, options.population, observe=observe, dispersion=dispersion, rng=options.seed
    )
    _written_to(options.out, write_world(world, options.out, places=places, force=options.force))


@app.command()
@takes_options
def report(results: Results, *, page: PageOptions) -> None:
    """Make one self-contained HTML page of a finished run."""
    from headcount.report import write

    _check_page(_beside(results), page.force, page.out)
    made = write(results, page.out, title=page.title, background=page.background, tiles=page.tiles)
    _made(page=made)


@app.command()
@takes_options
def compare(
    first: Results,
    second: Annotated[Path, typer.Argument(help="Another, of the same cells and times.")],
    *,
    options: CompareOptions,
) -> None:
    """Hold two results against each other: differences with intervals, evidence, checks of fit, maps side by side."""
    from headcount._disk import check_folder
    from headcount.report import compare

    check_folder(options.out)
    found, files = compare(first, second, options.out, title=options.title, force=options.force)
    clear = int(found.nodes["clear"].sum()), int(found.flows["clear"].sum())
    say(f"{clear[0]} of {len(found.nodes)} counts and {clear[1]} of {len(found.flows)} flows clearly differ")
    if found.evidence is not None:
        say(f"log evidence of the second less the first: {found.evidence:.2f}")
    tell(counts_differ=clear[0], flows_differ=clear[1], log_evidence=found.evidence)
    show_notes(found.notes)
    _written_to(options.out, files)


@app.command()
@takes_options
def export(results: Results, *, options: ExportOptions) -> None:
    """Write a finished run for flowmap.blue, kepler.gl, GIS or transport tools."""
    from headcount._disk import check_folder
    from headcount.io import export

    folder = options.out or _beside(results) / "export"
    check_folder(folder)
    files = export(results, folder, to=options.to, min_flow=options.min_flow, force=options.force)
    _written_to(folder, files)


@app.command()
@takes_options
def animate(results: Results, *, film: FilmOptions) -> None:
    r"""Make an animated map of a finished run: GIF, or MP4 (needs headcount\[video])."""
    from headcount._disk import OutputError, check_file
    from headcount.io import load_result
    from headcount.plot import animate

    target = film.out or _beside(results) / "moves.gif"
    check_file(target)
    if target.exists() and not film.force:
        raise OutputError(
            f"{target}: this file is there already: give another name, or overwrite it with --force"
        )
    moves = load_result(results)
    _made(film=animate(moves, target, largest=film.largest, frames=film.frames, speed=film.speed))


@app.command()
@takes_options
def doctor() -> None:
    """Say what this machine and environment offer, and what is missing."""
    from headcount.cli._doctor import examine, show_findings

    findings = examine()
    show_findings(findings)
    if not all(finding.healthy for finding in findings):
        raise typer.Exit(1)


def _beside(results: Path) -> Path:
    """The folder of a finished run."""
    return results if results.is_dir() else results.parent


def _made(**files: Path) -> None:
    """Name the one file that was made, by what it is."""
    tell(**{what: str(path) for what, path in files.items()})
    say(*map(str, files.values()))


def _written_to(folder: Path, files: list[Path]) -> None:
    wrote(folder)
    show_files(files, good=False)


def _check_page(folder: Path, force: bool, page: Path | None = None) -> None:
    """Refuse to write a page over a file that is none of ours."""
    from headcount._disk import OutputError, check_file
    from headcount.report._page import PAGE_FILE, is_page

    target = folder / PAGE_FILE if page is None else page
    check_file(target)
    if target.exists() and not force and not is_page(target):
        raise OutputError(
            f"{target}: headcount did not write this file: give another name, or overwrite it with --force"
        )


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
        if end.code in {128 + signal.SIGINT, 128 + signal.SIGTERM}:
            _leave_quietly(int(end.code))
        raise


def _leave_quietly(code: int) -> None:
    """After an interrupt, say nothing of files that were cut off while they were written: they complain when they are closed.

    End at once if a thread is still in the compiler: it would read an interpreter that is being taken down.
    """
    import os
    import sys
    import threading

    sys.unraisablehook = lambda _: None
    if any(thread.daemon for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
