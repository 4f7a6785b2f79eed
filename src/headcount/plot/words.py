"""What pages and pictures say about ranges, in one place: how sure a number is, and why a range cannot be relied on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headcount.posterior.result import Result

SURE, LESS_SURE, PERHAPS_NONE, IN_DOUBT = "sure", "less sure", "perhaps none", "in doubt"
CERTAINTY = {
    SURE: "the lower end of its range is at least half the mean",
    LESS_SURE: "its range is wider than that, or a rough guide",
    PERHAPS_NONE: "its range reaches below one half",
    IN_DOUBT: "its range cannot be relied on",
}
"""Classes of flows by their range, most certain first, and their meaning."""

UNFINISHED, DISAGREES, UNTOLD, ENGINE, SCATTER, FEW, MANY = (
    "unfinished",
    "disagrees",
    "untold",
    "engine",
    "scatter",
    "few",
    "many",
)
WHY = {
    UNFINISHED: "the run did not finish well: do not rely on its numbers",
    DISAGREES: "the counts do not agree with the model: no range can be relied on",
    UNTOLD: "the counts cannot tell whether the model is right: no range can be relied on",
    ENGINE: "this engine may give counts below zero, or flows that do not add up: no range can be relied on",
    SCATTER: "counts tell how much they scatter, not what moves make them scatter: no range of a move can be relied on",
    FEW: "the model expects few here: the range is a rough guide",
    MANY: "the model expects nearly all here: the range is a rough guide",
}
"""Reasons why a range is not reliable: those that hold for a whole table, then those of single entries."""


class Trust(NamedTuple):
    """What may be said about the ranges of a result.

    Attributes
    ----------
    ranges
        Whether there are any: ``MAP`` gives none, and then nothing is said about them.
    nodes, flows
        Why no range of the table can be relied on, a key of `WHY`; None where the column ``reliable`` says it row by row.
    """

    ranges: bool
    nodes: str | None
    flows: str | None

    def of(self, table: str) -> str | None:
        """The reason for ``"nodes"`` or ``"flows"``."""
        return self.nodes if table == "nodes" else self.flows

    @property
    def instruction(self) -> str:
        """What a doubt means for the reader."""
        return "No range on this page can be relied on." if self.ranges else "Do not rely on these numbers."

    @property
    def warning(self) -> str:
        """One sentence for a picture that travels without its page; empty where there is nothing to warn of."""
        reason = self.nodes or self.flows
        if reason is None:
            return ""
        text = WHY[reason] if self.ranges else WHY[reason].split(": ")[0]
        return f"{text[0].upper()}{text[1:]}."


def trust(result: Result) -> Trust:
    """Whether a result has ranges, and why none of them can be relied on, if so."""
    known = result.attributes
    ranges = bool(result.nodes["sd"].notna().any()) or bool(result.flows["sd"].notna().any())
    check: Mapping[str, Any] = known.get("fit_check") or {}
    whole = None
    if not result.good:
        whole = UNFINISHED
    elif check.get("agrees") is False:
        whole = DISAGREES
    elif check.get("doubts"):
        whole = UNTOLD
    elif known.get("means_non_negative") is False or known.get("means_consistent") is False:
        whole = ENGINE
    if whole is not None:
        return Trust(ranges, whole, whole)
    return Trust(ranges, None, SCATTER if check.get("flow_doubt") else None)


def certainty(table: pd.DataFrame) -> np.ndarray:
    """The class of every flow, a key of `CERTAINTY`; empty where there is no range.

    Never ``"sure"`` where ``reliable`` is false, and ``"in doubt"`` throughout where ``table.attrs["doubt"]`` says that no range of the
    table can be relied on.
    """
    lower, mean = (table[name].to_numpy(dtype=float) for name in ("lower", "mean"))
    reliable = table["reliable"].to_numpy(dtype=bool) if "reliable" in table else np.ones(len(table), bool)
    doubt = np.full(len(table), table.attrs.get("doubt") is not None)
    kinds = [np.isnan(lower), doubt, lower < 0.5, reliable & (lower >= mean / 2)]
    return np.select(kinds, ["", IN_DOUBT, PERHAPS_NONE, SURE], LESS_SURE)
