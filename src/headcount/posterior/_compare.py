"""Two results held against each other: what differs, by how much, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.errors import FaultsError

if TYPE_CHECKING:
    import pandas as pd

    from headcount.posterior._result import Result


class ComparisonError(FaultsError):
    """Two results that cannot be held against each other."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """The second result minus the first.

    Attributes
    ----------
    nodes, flows
        The labels of a table, then ``first, second`` (their means), ``difference, lower, upper`` and ``clear``: whether the interval
        of the difference leaves zero out. Only rows that both results have.
    facts
        One row per result: ``engine, status, population, log_evidence, agrees, verdict``.
    evidence
        log evidence of the second minus the first, where both have one and were made from the same observations; None otherwise.
    notes
        What to know before reading it.
    """

    nodes: pd.DataFrame
    flows: pd.DataFrame
    facts: pd.DataFrame
    evidence: float | None
    notes: tuple[str, ...]


def compare_results(first: Result, second: Result) -> Comparison:
    r"""Differences of counts and flows, second minus first, with intervals.

    The two answers are taken as independent. With means m, and ends l and u of their intervals, the ends of the interval of
    :math:`d = m_2 - m_1` are (Zou and Donner 2008)

    .. math:: d - \sqrt{(m_2 - l_2)^2 + (u_1 - m_1)^2}, \qquad d + \sqrt{(u_2 - m_2)^2 + (m_1 - l_1)^2} .

    Results of the same data share its noise, so that their difference is then less uncertain than the interval says.

    Raises
    ------
    ComparisonError
        Different kinds of models, intervals of different levels, or no label in common.
    """
    problems = []
    if first.nodes.columns[0] != second.nodes.columns[0]:
        problems.append(
            "one result has times and cells, the other variables and states: compare like with like"
        )
    if not np.isclose(first.level, second.level):
        levels = f"{first.level:g} and {second.level:g}"
        problems.append(f"the intervals hold {levels}: write both results with the same level (--level)")
    if problems:
        raise ComparisonError(problems)
    nodes = _difference(first.nodes, second.nodes, 2)
    if not len(nodes):
        raise ComparisonError(
            "the results have no time and cell in common: check that they are of the same map and period"
        )
    flows = _difference(first.flows, second.flows, 3 if first.is_chain else 4)
    evidence, notes = _evidence(first, second)
    if len(nodes) < max(len(first.nodes), len(second.nodes)):
        notes.append(
            f"{len(nodes)} counts are in both results, of {len(first.nodes)} and {len(second.nodes)}"
        )
    facts = _facts(first, second)
    return Comparison(nodes, flows, facts, evidence, tuple(notes))


def _difference(first: pd.DataFrame, second: pd.DataFrame, labels: int) -> pd.DataFrame:
    names = list(first.columns[:labels])
    ends = ["mean", "lower", "upper"]
    both = first[[*names, *ends]].merge(second[[*names, *ends]], on=names, suffixes=("_1", "_2"))
    m1, l1, u1 = (both[f"{name}_1"].to_numpy(dtype=float) for name in ends)
    m2, l2, u2 = (both[f"{name}_2"].to_numpy(dtype=float) for name in ends)
    change = m2 - m1
    # Whole-number ends may lie on the wrong side of a mean below one half; a distance is never negative.
    below = np.hypot(np.maximum(m2 - l2, 0), np.maximum(u1 - m1, 0))
    above = np.hypot(np.maximum(u2 - m2, 0), np.maximum(m1 - l1, 0))
    lower, upper = change - below, change + above
    with np.errstate(invalid="ignore"):
        clear = (lower > 0) | (upper < 0)
    return both[names].assign(first=m1, second=m2, difference=change, lower=lower, upper=upper, clear=clear)


def _evidence(first: Result, second: Result) -> tuple[float | None, list[str]]:
    """log evidence of the second minus the first; None, and why, where they cannot be compared."""
    told = [result.attributes.get("log_evidence") for result in (first, second)]
    if any(value is None for value in told):
        return None, [
            "one of the results has no evidence, so the models cannot be weighed against each other"
        ]
    if not _same_counts(first, second):
        return None, ["the results were made from different counts, so their evidences cannot be compared"]
    return float(told[1]) - float(told[0]), []  # type: ignore[arg-type]


def _same_counts(first: Result, second: Result) -> bool:
    if first.attributes.get("observations") != second.attributes.get("observations"):
        return False
    a, b = first.nodes["observed"].to_numpy(dtype=float), second.nodes["observed"].to_numpy(dtype=float)
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=True)


def _facts(*results: Result) -> pd.DataFrame:
    import pandas as pd

    def row(result: Result) -> dict[str, Any]:
        known, check = result.attributes, result.attributes.get("fit_check", {})
        plain = {name: known.get(name) for name in ("engine", "status", "population", "log_evidence")}
        return plain | {"agrees": check.get("agrees"), "verdict": check.get("verdict")}

    return pd.DataFrame([row(result) for result in results])
