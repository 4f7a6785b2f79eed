"""What else the stored results of a table say: convergence, agreement of the two routes to GCGM, the samplers' behaviour."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from headcount.paper._tables import Table


def of_table(table: Table, frame: pd.DataFrame) -> list[str]:
    """Bullet points under a table."""
    del table
    return [*_agreement(frame), *_convergence(frame), *_references(frame), *_below_zero(frame), ""]


def _values(frame: pd.DataFrame, kind: str, quantity: str) -> pd.Series:
    return frame[(frame["kind"] == kind) & (frame["quantity"] == quantity)]["value"]


def _agreement(frame: pd.DataFrame) -> list[str]:
    modes, edges = _values(frame, "agreement", "modes_node"), _values(frame, "agreement", "apart_edge")
    if modes.empty:
        return []
    return [
        f"* The paper's sweeps (`EdgeEP`) and the joint mode (`Laplace`) differ by at most {modes.max():.1e}·N at the nodes and "
        f"{edges.max():.1e}·N at the edges, over {len(modes)} data sets."
    ]


def _convergence(frame: pd.DataFrame) -> list[str]:
    part = frame[(frame["kind"] == "errors") & (frame["quantity"] == "converged")]
    if part.empty:
        return []
    missed = part[part["value"] < 1].groupby("engine", observed=True).size()
    if missed.empty:
        return [f"* Every engine converged on every data set ({len(part)} runs)."]
    return [
        "* Runs that did not converge: "
        + ", ".join(f"{name} {count}" for name, count in missed.items())
        + "."
    ]


def _references(frame: pd.DataFrame) -> list[str]:
    ratio, burn = _values(frame, "reference", "r_hat"), frame[frame["quantity"] == "burn_in"]
    out = []
    if not ratio.empty:
        out.append(f"* Largest R-hat of a node count over all references: {ratio.max():.3f}.")
    if not burn.empty:
        asked = burn["value"].min()
        longer = burn[burn["value"] > asked]
        if len(longer):
            worst = longer.groupby("population", observed=True)["value"].agg(["max", "size"])
            said = "; ".join(
                f"N = {n}: {int(row['size'])} runs, up to {row['max'] / 1e6:g} million"
                for n, row in worst.iterrows()
            )
            out.append(
                f"* {asked / 1e6:g} million moves of burn-in, started from a draw of the model, did not reach a "
                f"table that the data allow in "
                f"{len(longer)} of {len(burn)} runs; these were burnt in for longer ({said})."
            )
    return out


def _below_zero(frame: pd.DataFrame) -> list[str]:
    part = frame[(frame["kind"] == "errors") & (frame["quantity"] == "lowest")]
    low = part.groupby("engine", observed=True)["value"].min()
    bad = low[low < -1e-9]
    if bad.empty:
        return []
    return [
        "* Lowest expected count: "
        + ", ".join(f"{name} {value:.2f}" for name, value in bad.items())
        + "; the other engines' are ≥ 0."
    ]
