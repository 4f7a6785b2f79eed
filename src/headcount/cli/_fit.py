"""``headcount fit``: learn the weights of features, then write what was learned and inferred."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from headcount.cli._guard import NOT_CONVERGED
from headcount.cli._infer import check_output, said_by_the_user
from headcount.cli._problem import named_engine, planned, read_case, refuse_too_large
from headcount.cli._show import console, show_files, show_notes, show_posterior

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from headcount.learn import Fit


def run_fit(
    counts: Sequence[Path],
    options: Mapping[str, Any],
    *,
    method: str,
    ridge: float,
    out: Path,
    level: float,
    format: str,
    keep: bool,
    omx: bool,
) -> None:
    """Read, plan, learn, say how it went, write."""
    from headcount.io import TableError, write_results
    from headcount.learn import LogisticChain, fit

    check_output(level, format)
    if options["features"] is None:
        raise TableError(
            "features: what the moves depend on is missing: give --features FILE with from, to and one column a feature[, time]"
        )
    case = read_case(counts, options)
    engine = named_engine(options)
    refuse_too_large(*planned(case.problem, engine, options))
    start = None if options["weights"] is None else _start(case, options)
    family = LogisticChain(case.features, names=case.feature_names, mask=case.mask, ridge=ridge)
    made = fit(
        family, case.problem, engine, method=_method(method), start=start, rng=options["seed"], strict=False
    )
    table = weight_table(made, level)
    notes = [*case.notes, *made.notes]
    good = made.status.good and made.posterior.status.good
    _show_weights(made, table, level)
    if good or keep:
        facts = said_by_the_user(notes) | {
            "fit": {
                "status": made.status.value,
                "method": made.method,
                "e_steps": made.e_steps,
                "seconds": round(made.seconds, 3),
                "evidence": _number(made.evidence),
            }
        }
        result, files = write_results(
            made.posterior,
            out,
            level=level,
            format=format,
            attributes=facts,
            weights=table,
            ascent=made.trace.select_dtypes("number"),
            omx=omx,
        )
        show_posterior(result)
        show_notes(notes)
        show_files(files, good=good)
    else:
        show_notes([*notes, made.status.causes, "nothing was written; --keep writes the answer all the same"])
    if not good:
        raise typer.Exit(NOT_CONVERGED)


def weight_table(made: Fit, level: float) -> pd.DataFrame:
    """``feature, weight, standard_error, lower, upper, level``."""
    table = made.table(level=level).rename(columns={"parameter": "feature", "estimate": "weight"})
    return table.assign(level=level)


def _show_weights(made: Fit, table: pd.DataFrame, level: float) -> None:
    from rich.markup import escape
    from rich.table import Table

    out = console()
    colour = "green" if made.status.good else "red"
    out.print(
        f"[bold {colour}]{made.status.value}[/]  fit by {made.method} with {made.engine}, {made.e_steps} E-steps, "
        f"{made.seconds:.2g} s, log evidence {made.evidence:.6g}",
        soft_wrap=True,
    )
    shown = Table(
        title=f"weights, with {level:.0%} intervals", title_justify="left", box=None, pad_edge=False
    )
    for name in ("feature", "weight", "standard error", "interval"):
        shown.add_column(name, justify="left" if name == "feature" else "right")
    for row in table.to_dict("records"):
        shown.add_row(
            escape(str(row["feature"])),
            f"{row['weight']:.4f}",
            f"{row['standard_error']:.4f}",
            f"{row['lower']:.3f} … {row['upper']:.3f}",
        )
    out.print()
    out.print(shown)
    out.print()


def _start(case: Any, options: Mapping[str, Any]) -> dict[str, float]:
    from headcount.cli._problem import parse_weights
    from headcount.io import read_weights

    values = read_weights(parse_weights(options["weights"]), case.feature_names, encoding=options["encoding"])
    return dict(zip(case.feature_names, values.tolist(), strict=True))


def _method(name: str) -> Any:
    if name not in {"ascent", "em"}:
        raise ValueError(f"--method is ascent or em, got {name!r}")
    return name


def _number(value: float) -> float | None:
    return None if value != value else float(value)
