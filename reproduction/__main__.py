"""``python -m reproduction``: the paper's tables and figures, ours beside them."""

from pathlib import Path
from typing import Annotated

import typer

from reproduction.run import EXPERIMENTS, ReproductionError, reproduce

HERE = Path(__file__).parent


def main(
    experiments: Annotated[list[str], typer.Argument(help=", ".join(EXPERIMENTS) + ", or all.")],
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
        typer.Option(
            help="Recompute the results of an engine or kind of task, and what reads them (repeat)."
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes on this machine; 0 computes in this one.")] = 2,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler, to use its workers: tcp://….")
    ] = None,
) -> None:
    """Run the paper's experiments and compare with its printed numbers.

    What the folder already holds is not computed again, so an interrupted run continues where it stopped.
    """
    folder = out if out is not None else (HERE.with_name("reproduction-quick") if quick else HERE)
    try:
        written = reproduce(
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
            "Interrupted; finished tasks are kept, and the same command continues from there.", err=True
        )
        raise typer.Exit(130) from None
    except (ValueError, ReproductionError, ImportError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2 if isinstance(error, ValueError) else 1) from None
    for path in written:
        typer.echo(path)


if __name__ == "__main__":
    typer.run(main)
