"""Fits of the same data side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headcount.learn._result import Fit

if TYPE_CHECKING:
    import pandas as pd


def compare(fits: Mapping[str, Fit] | Sequence[Fit]) -> pd.DataFrame:
    """Fits of the same data side by side, most evidence first.

    ``difference`` is the evidence less the best one's; ``akaike`` is the evidence less the number of parameters.
    In both, larger is better.

    Raises
    ------
    ValueError
        If the fits are not of the same data, or not by the same engine: their evidences mean different things.
    """
    import pandas as pd

    named = dict(fits) if isinstance(fits, Mapping) else {str(k): f for k, f in enumerate(fits)}
    if len({f.data for f in named.values()}) > 1:
        raise ValueError("the fits are of different data: only evidences of the same counts can be compared")
    if len({f.engine for f in named.values()}) > 1:
        engines = sorted({f.engine for f in named.values()})
        raise ValueError(
            f"the fits are by {' and '.join(engines)}: fit all with the same engine to compare evidences"
        )
    rows = [
        {
            "fit": name,
            "evidence": f.evidence,
            "parameters": len(f.working),
            "akaike": f.evidence - len(f.working),
            "status": f.status.value,
        }
        for name, f in named.items()
    ]
    table = pd.DataFrame(rows).sort_values("evidence", ascending=False, ignore_index=True)
    table.insert(2, "difference", table["evidence"] - table["evidence"].max())
    return table
