"""``headcount reproduce``: the paper's tables and figures, ours beside them."""

from pathlib import Path
from typing import Annotated

import typer

from headcount.cli._guard import INTERRUPTED, guarded

_FULL, _QUICK = Path("reproduction"), Path("reproduction-quick")


def reproduce(
    experiments: Annotated[
        list[str], typer.Argument(help="table1, table2, table3, figure1, figure2, exhibits, or all.")
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the results: reproduction, or reproduction-quick.", show_default=False),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Another folder for the comparison page and its figures.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version in less than two minutes.")] = False,
    again: Annotated[
        list[str] | None,
        typer.Option(help="Compute an engine's results anew, and what depends on them: TiltedEP (repeat)."),
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes on this machine.")] = 2,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler, to use its workers: tcp://….")
    ] = None,
) -> None:
    """Run the paper's experiments and compare with its printed numbers.

    What the folder already holds is not computed again, so an interrupted run goes on where it stopped.
    """
    with guarded():
        from headcount.paper import ReproductionError
        from headcount.paper import reproduce as run

        folder = out if out is not None else (_QUICK if quick else _FULL)
        try:
            written = run(
                experiments,
                out=folder,
                page=page,
                quick=quick,
                again=again or (),
                workers=workers,
                scheduler=scheduler,
            )
        except KeyboardInterrupt:
            typer.echo(
                "Interrupted; what was finished is kept, and the same command goes on from there.", err=True
            )
            raise typer.Exit(INTERRUPTED) from None
        except (ReproductionError, ImportError) as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(1) from None
    for path in written:
        typer.echo(path)
