"""What ``headcount doctor`` looks at: versions, cores, memory, threads, the compiler's cache, the browser."""

from typing import Annotated

import typer

from headcount._version import __version__

app = typer.Typer(
    name="headcount",
    help="Recover how many were where, and how they moved, from noisy totals.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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
def doctor() -> None:
    """Say what this machine and environment offer, and what is missing."""
    from headcount.cli._doctor import examine, show

    findings = examine()
    show(findings)
    if not all(finding.healthy for finding in findings):
        raise typer.Exit(1)


def main() -> None:
    """Run the command line."""
    app()
