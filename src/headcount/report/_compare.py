"""Two results held against each other: what differs, by how much, how sure that is, and a page with both maps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headcount._disk import filling
from headcount.errors import FaultsError
from headcount.io import Result
from headcount.io.write import as_result, put_table
from headcount.plot.picture import count_text, percent
from headcount.plot.words import trust
from headcount.report._page import (
    SHARED,
    check,
    credit,
    date,
    filled,
    notices,
    own_script,
    place,
    safe,
)
from headcount.report._payload import ends, numbers, payload

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from headcount.posterior import Posterior

PAGE_FILE = "comparison.html"
_SECTIONS = {"map": "Maps", "facts": "Which to believe", "tables": "Tables"}
MOST_FLOWS = 6000
"""Flows on the page, those that differ most; the table beside it has all."""


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
    evidence, notes = _weighed(first, second)
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


def _weighed(first: Result, second: Result) -> tuple[float | None, list[str]]:
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

    def row(result: Result) -> dict[str, Any]:
        known, check = result.attributes, result.attributes.get("fit_check", {})
        plain = {name: known.get(name) for name in ("engine", "status", "population", "log_evidence")}
        return plain | {"agrees": check.get("agrees"), "verdict": check.get("verdict")}

    return pd.DataFrame([row(result) for result in results])


# --- the page


def compare(
    first: Result | Posterior | str | os.PathLike[str],
    second: Result | Posterior | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    names: tuple[str, str] | None = None,
    title: str | None = None,
    force: bool = False,
) -> tuple[Comparison, list[Path]]:
    """Hold two results against each other: tables of differences with intervals, and a page with both maps.

    Parameters
    ----------
    first, second
        Results or posteriors in memory, folders that ``headcount infer`` or ``fit`` wrote, or ``.nc`` files.
    folder
        For ``nodes.csv``, ``flows.csv`` (see `Comparison`) and ``comparison.html``.
    names
        What the two are called on the page; the names of their folders unless given.
    force
        Overwrite files that headcount did not write.

    Returns
    -------
    Comparison, list of Path
    """
    one, two = as_result(first), as_result(second)
    found = compare_results(one, two)
    text = render_comparison(one, two, found, names=names or (_name(one, 0), _name(two, 1)), title=title)
    place = Path(folder)
    with filling(place, force=force) as stage:
        put_table(found.nodes, stage / "nodes.csv")
        put_table(found.flows, stage / "flows.csv")
        (stage / PAGE_FILE).write_text(text, encoding="utf-8", newline="\n")
    return found, [place / name for name in ("nodes.csv", "flows.csv", PAGE_FILE)]


def _name(result: Result, k: int) -> str:
    where = None if result.path is None else result.path.parent.name or result.path.stem
    return where or ("first", "second")[k]


def render_comparison(
    first: Result, second: Result, found: Comparison, *, names: tuple[str, str], title: str | None = None
) -> str:
    """The page as one text."""
    doubts = [
        f"{name}: {told.warning}"
        for name, told in zip(names, map(trust, (first, second)), strict=True)
        if told.warning
    ]
    if doubts:  # what rests on ranges in doubt is not clear
        found = replace(found, nodes=found.nodes.assign(clear=False), flows=found.flows.assign(clear=False))
    data = payload(first) | {"comparison": _columns(first, found)}
    data["flows"] = {name: [] for name in data["flows"]}  # the maps draw differences of flows only
    script = own_script((*SHARED, "tables.js", "compare.js"))
    cards = "\n".join(_card(name, result) for name, result in zip(names, (first, second), strict=True))
    parts = {
        "title": safe(title or f"{names[0]} and {names[1]} compared"),
        "finding": safe(_finding(first, found, names, doubts)),
        "first": safe(names[0]),
        "second": safe(names[1]),
        "cards": cards,
        "evidence": safe(_evidence(found, names)),
        "notices": notices("note", found.notes),
        "credit": credit(data),
    }
    return filled("compare.html", _SECTIONS, parts, data, [script])


def _columns(first: Result, found: Comparison) -> dict[str, Any]:
    """Both tables of differences as columns of numbers, labels as positions among the first result's."""
    flows = found.flows.reindex(found.flows["difference"].abs().nlargest(MOST_FLOWS).index)
    return {
        name: ends(table, first.times, first.cells) | _values(table)
        for name, table in (("nodes", found.nodes), ("flows", flows))
    }


def _values(table: pd.DataFrame) -> dict[str, Any]:
    columns: dict[str, Any] = {
        n: numbers(table[n]) for n in ("first", "second", "difference", "lower", "upper")
    }
    return columns | {"clear": table["clear"].astype(int).tolist()}


def _finding(first: Result, found: Comparison, names: tuple[str, str], doubts: Sequence[str]) -> str:
    """How many counts clearly differ, and where most; where ranges are in doubt or missing, the largest difference alone."""
    bare = bool(doubts) or bool(found.nodes["lower"].isna().all())
    rows = found.nodes if bare else found.nodes[found.nodes["clear"]]
    if rows.empty:
        return f"No count differs clearly between {names[0]} and {names[1]}: all differences may be chance."
    row = rows.loc[rows["difference"].abs().idxmax()]
    size = f"{count_text(abs(row['difference']))} {'more' if row['difference'] > 0 else 'fewer'}"
    if not bare:
        size += f" ({percent(first.level)}: {count_text(row['lower'])} to {count_text(row['upper'])})"
    text = f"the largest difference is {size} in {names[1]}, in {place(first, row.iloc[1])}, {date(row.iloc[0])}."
    if bare:
        told = "Whether it is more than chance cannot be said. " if doubts else ""
        return f"{text[0].upper()}{text[1:]} {told}{' '.join(doubts)}".strip()
    return f"{len(rows)} of {len(found.nodes)} counts clearly differ; {text}"


def _evidence(found: Comparison, names: tuple[str, str]) -> str:
    if found.evidence is None:
        return ""
    better = names[1] if found.evidence > 0 else names[0]
    size = abs(found.evidence)
    if size < 1:
        return f"The same counts support both models about equally (log evidence differs by {size:.1f})."
    return f"The same counts support {better}: its log evidence is larger by {size:.1f}."


def _card(name: str, result: Result) -> str:
    told = check(result)
    facts = f"{count_text(result.population)} individuals; {result.attributes['status']}"
    text = told.text if result.good else f"{told.text} The run did not finish well: do not rely on it."
    return (
        f'<div class="check-card {told.mood}"><span class="mark" aria-hidden="true">{told.mark}</span><div><strong>{safe(name)}: '
        f'{safe(told.title[0].lower() + told.title[1:])}</strong><p>{safe(text)}</p><p class="quiet">{safe(facts)}</p></div></div>'
    )
