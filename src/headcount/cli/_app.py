"""The commands: parse, call, save."""

from pathlib import Path
from typing import Annotated

import typer

from headcount._version import __version__
from headcount.cli._guard import guarded
from headcount.cli._options import Options, takes_options

app = typer.Typer(
    name="headcount",
    help="Recover how many were where, and how they moved, from noisy totals.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
simulate = typer.Typer(no_args_is_help=True, help="Make data with a known truth.")
app.add_typer(simulate, name="simulate")

Counts = Annotated[
    list[Path],
    typer.Argument(
        help="time, cell, count (CSV, Parquet or NetCDF); with --network, tables of its variables."
    ),
]
Out = Annotated[Path, typer.Option(help="Folder for what is written.")]
Level = Annotated[float, typer.Option(help="What the intervals hold.")]
Format = Annotated[str, typer.Option(help="Of the tables: csv or parquet.")]
Omx = Annotated[bool, typer.Option("--omx", help="Write the flows as OMX matrices too.")]
Keep = Annotated[bool, typer.Option("--keep", help="Write the answer even when it did not converge.")]


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"headcount {__version__}")
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
    out: Out = Path("results"),
    level: Level = 0.9,
    format: Format = "csv",
    omx: Omx = False,
    keep: Keep = False,
    options: Options,
) -> None:
    """Infer how many were where and how they moved, with intervals.

    Exit codes: 2 bad input, 3 too large for the memory limit, 4 not converged, 130 interrupted.
    """
    with guarded():
        from headcount.cli._run import Output, run_infer

        run_infer(counts, options, Output(out, level, format, omx, keep))


@app.command()
@takes_options
def fit(
    counts: Counts,
    *,
    method: Annotated[str, typer.Option(help="ascent or em.")] = "ascent",
    ridge: Annotated[float, typer.Option(help="Strength of the prior −½ ridge w² on every weight.")] = 0.0,
    out: Out = Path("results"),
    level: Level = 0.9,
    format: Format = "csv",
    omx: Omx = False,
    keep: Keep = False,
    options: Options,
) -> None:
    """Learn the weights of features from counts, then infer with them."""
    with guarded():
        from headcount.cli._run import Output, run_fit

        run_fit(counts, options, Output(out, level, format, omx, keep), method=method, ridge=ridge)


@app.command()
@takes_options
def plan(counts: Counts, *, options: Options) -> None:
    """Predict memory and time and name the engine; nothing runs."""
    with guarded():
        from headcount.cli._run import run_plan

        run_plan(counts, options)


@simulate.command()
def birds(
    *,
    side: Annotated[int, typer.Option(help="The map has side² cells.")] = 6,
    weights: Annotated[str, typer.Option(help="Of distance, direction, wind and stay.")] = "1,2,2,2",
    population: Annotated[int, typer.Option(help="How many birds.")] = 1080,
    steps: Annotated[int, typer.Option(help="How many times.")] = 20,
    rate: Annotated[float, typer.Option(help="Expected counts per bird.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")],
    out: Out = Path("data"),
) -> None:
    """Birds that fly over a map from one corner to the other."""
    with guarded():
        from headcount.cli._run import run_birds

        run_birds(side, weights, population, steps=steps, rate=rate, seed=seed, out=out)


@simulate.command()
def chain(
    transitions: Annotated[Path, typer.Argument(help="from, to, probability[, time of departure].")],
    *,
    population: Annotated[int, typer.Option(help="How many individuals.")],
    initial: Annotated[str, typer.Option(help="uniform, or a table cell, probability.")] = "uniform",
    steps: Annotated[int | None, typer.Option(help="How many times, where all steps are alike.")] = None,
    cells: Annotated[Path | None, typer.Option(help="cell[, x, y] or cell[, lon, lat].")] = None,
    noise: Annotated[str, typer.Option(help="poisson, binomial, gaussian or exact.")] = "poisson",
    rate: Annotated[float, typer.Option(help="Expected counts per individual (poisson).")] = 1.0,
    detection: Annotated[float | None, typer.Option(help="Probability to be counted (binomial).")] = None,
    sd: Annotated[float | None, typer.Option(help="Standard deviation (gaussian).")] = None,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")],
    out: Out = Path("data"),
) -> None:
    """Individuals that move by your own transitions."""
    with guarded():
        from headcount.cli._run import run_chain

        run_chain(
            transitions,
            population,
            initial=initial,
            steps=steps,
            cells=cells,
            noise=noise,
            rate=rate,
            detection=detection,
            sd=sd,
            seed=seed,
            out=out,
        )


@app.command()
def report(
    results: Annotated[Path, typer.Argument(help="A folder that infer or fit wrote, or a .nc file.")],
    *,
    out: Annotated[
        Path | None, typer.Option(help="The page; report.html beside the results unless given.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="What stands on top of the page.")] = None,
) -> None:
    """Make one self-contained HTML page of a finished run."""
    with guarded():
        from headcount.report import write

        typer.echo(write(results, out, title=title))


@app.command()
def doctor() -> None:
    """Say what this machine and environment offer, and what is missing."""
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
    app()
