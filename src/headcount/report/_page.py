"""The page as one text: template, style, scripts and data, joined so that nothing a user wrote can act as code.

Three measures keep a label from acting as code: labels in words are escaped as HTML; labels in data are JSON without ``<``, ``>`` or
``&``; and the page's own policy (CSP) lets only scripts run whose SHA-256 it names, and lets nothing be fetched.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import json
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from headcount._disk import replacing
from headcount.engines import Status
from headcount.io.write import as_result, load_result
from headcount.observe import NOISES
from headcount.plot.picture import count_text, label, percent, visible
from headcount.plot.words import DISAGREES, FEW, UNTOLD, WHY, trust
from headcount.posterior import Posterior
from headcount.posterior.dataset import sums_of
from headcount.posterior.result import MC_ERROR
from headcount.report._background import Background
from headcount.report._payload import has_margins, payload, time_labels

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from headcount.io import Result

SHARED = ("core.js", "map.js")
SCRIPTS = (*SHARED, "time.js", "bars.js", "series.js", "matrix.js", "tables.js", "start.js")
"""Our own scripts, in the order in which they are joined; they share one scope."""
_SECTIONS = {"map": "Map", "moves": "Moves", "series": "One cell", "tables": "Tables", "about": "About"}
_MATRIX_SECTIONS = {"map": "Map", "moves": "Matrix", "tables": "Tables", "about": "About"}
"""Of a table with two margins: nothing happens over time."""
PAGE_FILE = "report.html"


def write(
    result: Result | Posterior | str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
    background: str | os.PathLike[str] | None = None,
    tiles: str | None = None,
    before: pd.DataFrame | None = None,
) -> Path:
    """Write the page of a result and return where it is.

    Parameters
    ----------
    result : Result, Posterior or path
        A result or posterior in memory, a folder that ``headcount infer`` or ``fit`` wrote, or a ``.nc`` file.
    path : path, optional
        Where the page goes; ``report.html`` beside the result's file if left out.
    title : str, optional
        What stands on top of the page.
    background : path, optional
        GeoJSON with lines (streets, rivers) or areas to draw under the map, in the units of the cells' places.
    tiles : str, optional
        Address of map tiles (Web Mercator) with ``{z}``, ``{x}`` and ``{y}``, for places in degrees. The page asks that server only once
        a reader switches the tiles on, and says so.
    before : frame, optional
        Of a table with two margins, the old matrix ``origin, dest, before``, to be shown beside the new one; ``changes`` beside the result
        has it where a run was given one.

    Returns
    -------
    Path
        Of the page: one file, whole or not written at all, which needs no network.
    """
    known = as_result(result)
    if isinstance(result, Posterior):  # a file has the spread of sums already
        known = replace(known, sums=sums_of(result))
    known = with_forecast(known)
    if path is None:
        if known.path is None:
            message = "a result in memory has no folder; give path, for example path='report.html'"
            raise ValueError(message)
        path = known.path.parent / PAGE_FILE
    old = _old_matrix(known) if before is None else before
    text = render(known, title=title, background=Background.of(background, tiles), before=old)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return Path(path)


def _old_matrix(result: Result) -> pd.DataFrame | None:
    """The old matrix of a table with two margins, from ``changes`` in its folder; None where there is none."""
    if result.path is None or not has_margins(result):
        return None
    file = result.path.parent / "changes.csv"
    if file.exists():
        return pd.read_csv(file, dtype={"origin": str, "dest": str})
    file = file.with_suffix(".parquet")
    return pd.read_parquet(file) if file.exists() else None


FORECAST_FOLDER = "forecast"
"""Folder inside a results folder where ``headcount forecast`` writes."""


def with_forecast(result: Result) -> Result:
    """The result with its forecast after its last time, where the forecast lies in its folder and goes on from that time."""
    if result.path is None or not result.is_chain:
        return result
    folder = result.path.parent / FORECAST_FOLDER
    if not (folder / result.path.name).exists():
        return result
    ahead = load_result(folder)
    told = ahead.attributes.get("forecast")
    if told is None or ahead.times[0] != result.times[-1] or ahead.level != result.level:
        return result  # the forecast of an earlier run

    later = ahead.nodes[ahead.nodes["time"] != result.times[-1]]
    nodes = pd.concat([result.nodes, later], ignore_index=True)
    flows = pd.concat([result.flows, ahead.flows], ignore_index=True)
    nodes.attrs, flows.attrs = result.nodes.attrs, result.flows.attrs
    return replace(result, nodes=nodes, flows=flows, attributes={**result.attributes, "forecast": told})


def is_page(path: Path) -> bool:
    """Whether a file is a page that `write` made."""
    with path.open("rb") as file:
        return b'<meta name="generator" content="headcount">' in file.read(1000)


def render(
    result: Result,
    *,
    title: str | None = None,
    background: Background | None = None,
    before: pd.DataFrame | None = None,
) -> str:
    """The page as one text."""
    data = payload(result, background, before)
    told = check(result)
    if told.mood == "bad":  # said in full above the map
        told = told._replace(text="The warning above says how.")
    if title is None:
        title = "Where they were and how they moved" if result.is_chain else "How many there were"
        title = "Who went from where to where" if has_margins(result) else title
    parts = {
        "title": safe(title),
        "finding": safe(finding(result)),
        "warnings": notices("warning", _warnings(result)),
        "mark": told.mark,
        "mood": told.mood,
        "check_title": safe(told.title),
        "check": safe(told.text),
        "verdict": safe(str(result.attributes["status"]).capitalize()),
        "lead": safe(_lead(result)),
        "notices": notices("note", _notes(result, data)),
        "credit": credit(data),
        "asked": _terms(_asked(result)),
        "went": _terms(_went(result)),
        "provenance": _terms(_provenance(result)),
        "command": _command(result.attributes.get("command")),
    }
    sections = _MATRIX_SECTIONS if has_margins(result) else _SECTIONS
    scripts = [plotly_script(), own_script(SCRIPTS)]
    return filled("page.html", sections, parts, data, scripts, (background or Background()).origin)


def filled(
    template: str,
    sections: Mapping[str, str],
    parts: Mapping[str, str],
    data: Mapping[str, Any],
    scripts: Sequence[str],
    images: str = "",
) -> str:
    """A template between the head and the foot that all pages share, with its parts, the style, the data and the scripts.

    ``sections`` are the links at the top, ``images`` the one server that pictures may be asked of.
    """
    whole = {
        **parts,
        "sections": "".join(f'<a href="#{name}">{title}</a>' for name, title in sections.items()),
        "style": asset("page.css"),
        "policy": policy(*scripts, images=images),
        "data": embedded(data),
        "scripts": "".join(f"<script>{script}</script>\n" for script in scripts),
    }
    page = "".join(map(asset, ("head.html", template, "foot.html")))
    # One pass, so that a placeholder inside what was put in stays text.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: whole[found[1]], page)


def safe(text: str) -> str:
    """Text that HTML does not read as code and that has no control characters."""
    return html.escape(visible(text))


def asset(name: str) -> str:
    """A file of this package, as text."""
    return resources.files("headcount.report").joinpath("assets", name).read_text(encoding="utf-8")


def own_script(names: Sequence[str] = SCRIPTS) -> str:
    """Scripts of ours as one, which leaves no name behind."""
    return '(() => {\n"use strict";\n' + "\n".join(asset(name) for name in names) + "\n})();\n"


@functools.cache
def plotly_script() -> str:
    """Plotly's script, from the Python package that carries it, with nothing in it that could end its element."""
    from plotly.offline import get_plotlyjs

    text = get_plotlyjs().replace("\r\n", "\n").replace("\r", "\n")  # a browser reads it so before it hashes
    if re.search(r"</script|<!--", text, re.IGNORECASE):
        message = (
            "this version of plotly carries a script that cannot stand inside a page; install plotly 7.1"
        )
        raise RuntimeError(message)
    return text


def policy(*scripts: str, images: str = "") -> str:
    """Content-Security-Policy: these scripts and no other, nothing from anywhere but pictures of one server, if one is named."""
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:{images and f' {images}'}; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def embedded(data: Any) -> str:
    r"""JSON that may stand inside a script element whatever the labels are: no ``<``, ``>``, ``&``, no line separators.

    Examples
    --------
    >>> embedded({"cell": "</script>"})
    '{"cell":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _terms(rows: Rows) -> str:
    def one(term: str, text: str) -> str:
        kind = ' class="wide"' if len(text) > 30 else ""
        return f"<div{kind}><dt>{safe(term)}</dt><dd>{safe(text)}</dd></div>"

    return "\n".join(one(term, text) for term, text in rows)


def credit(data: Mapping[str, Any]) -> str:
    """Whose coastlines the page's map has, and what the page asks of the network: nothing, unless tiles are switched on."""
    here = data["places"]
    tiles = here and here["tiles"]
    asks = "This file is complete and asks nothing of any network"
    asks += f" until you switch on the background, which comes from {safe(tiles['host'])}." if tiles else "."
    return asks + (" Coastlines and borders: Natural Earth." if here and here["ground"] else "")


def notices(kind: str, texts: Sequence[str]) -> str:
    """What the reader must know, as a list: ``"warning"`` where numbers may be wrong, ``"note"`` otherwise."""
    if not texts:
        return ""
    tag = f'<li class="{kind}"><span class="tag">{kind.capitalize()}</span>'
    items = "\n".join(f"{tag} {safe(text)}</li>" for text in texts)
    return f'<ul class="notices">{items}</ul>'


def _command(command: str | None) -> str:
    if not command:
        return "<p>Made from Python; no command was recorded.</p>"
    return (
        f'<div class="command"><pre id="command">{safe(str(command))}</pre>'
        '<button type="button" id="copy">Copy</button></div>'
    )


# --- what the page says in words

Rows = tuple[tuple[str, str], ...]


class Check(NamedTuple):
    """Whether the counts agree with the model, for a reader: ``mood`` is ``"good"``, ``"bad"`` or ``"open"``."""

    mood: str
    title: str
    text: str

    @property
    def mark(self) -> str:
        """One character for the mood."""
        return {"good": "✓", "bad": "!"}.get(self.mood, "–")


def finding(result: Result) -> str:
    """One sentence: where most were at first and at last, and the largest single move, each with its interval."""
    if result.nodes.empty:
        return ""
    times, told = result.times, trust(result)
    ranges, doubt = told.ranges, ", in doubt" if told.warning else ""
    brackets = f" ({percent(result.level)} ranges in brackets{doubt})" if ranges else ""
    first, last = _fullest(result, times[0]), _fullest(result, times[-1])
    begun, ended = (f"{place(result, row.iloc[1])} with {_amount(row)}" for row in (first, last))
    if not result.is_chain:
        return f"Most frequent: {begun} among the states of {label(times[0])}{brackets}."
    if len(times) == 1:
        return f"The fullest cell is {begun}{brackets}."
    if has_margins(result):
        row = result.flows.loc[result.flows["mean"].idxmax()]
        ends = f"from {place(result, row['origin'])} to {place(result, row['dest'])}"
        one, two = (label(t) if isinstance(t, str) else f"at {date(t)}" for t in times)
        return (
            f"Most {one}: {begun}; most {two}: {ended}; the largest flow is {_amount(row)} {ends}{brackets}."
        )
    said = _times_in_words(result)
    size = result.attributes.get("population_estimate")
    about = "" if size is None or not ranges else f"There are about {_size(size)} individuals. "
    if first["cell"] == last["cell"]:
        text = f"The fullest cell {said(times[0])} is {begun}, and so it is {said(times[-1])}, with {_amount(last)}"
    else:
        text = f"The fullest cell {said(times[0])} is {begun}; {said(times[-1])} it is {ended}"
    moves = result.flows[result.flows["origin"] != result.flows["dest"]]
    if len(moves):
        row = moves.loc[moves["mean"].idxmax()]
        when = said(row["time"]).removeprefix("on ").removeprefix("at ")
        ends = f"from {place(result, row['origin'])} to {place(result, row['dest'])} after {when}"
        text += f"; the largest single move takes {_amount(row)} {ends}"
    return f"{about}{text}{brackets}."


def _size(found: Mapping[str, Any]) -> str:
    """An estimated number of individuals with its range."""
    row = {name: float(found[name]) for name in ("mean", "lower", "upper")}
    return _amount(row)


def _fullest(result: Result, time: Any) -> pd.Series:
    """The row of the largest count at a time."""
    rows = result.nodes[result.nodes.iloc[:, 0] == time]
    return rows.loc[rows["mean"].idxmax()]


def _amount(row: Any) -> str:
    middle = count_text(round(float(row["mean"]), 0) if row["mean"] >= 10 else float(row["mean"]))
    if np.isnan(row["lower"]) or row["lower"] == row["upper"]:
        return middle
    # Word joiners: no line ends inside a range.
    return f"{middle} ({count_text(row['lower'])}\u2060–\u2060{count_text(row['upper'])})"


def _times_in_words(result: Result) -> Callable[[Any], str]:
    """How a sentence says a time: hours alone where all lie on one day."""
    if result.nodes.iloc[:, 0].dtype.kind != "M":
        return lambda time: f"at {date(time)}"
    times: list[Any] = result.times
    if times[0].date() == times[-1].date():
        return lambda time: f"at {time:%H:%M}"
    hours = any((time.hour, time.minute) != (0, 0) for time in times)  # then midnight is one of them
    return lambda time: f"on {date(time, hours=hours)}"


def date(time: Any, *, hours: bool | None = None) -> str:
    """A time inside a sentence: a date, with its hour if ``hours`` (unless it is midnight where not said); anything else with the word."""
    if hasattr(time, "strftime"):
        clock = f", {time:%H:%M}" if ((time.hour, time.minute) != (0, 0) if hours is None else hours) else ""
        return f"{time.day} {time:%B %Y}{clock}"
    return f"time {label(time)}" if isinstance(time, (int, float, np.number)) else label(time)


def place(result: Result, cell: Any) -> str:
    """A cell inside a sentence: its name, or its number with the word."""
    if label(cell) in result.attributes.get("names", {}):
        return result.name_of(cell)
    return f"cell {label(cell)}" if isinstance(cell, (int, float, np.number)) else label(cell)


_SCATTER = "They differ from what it expects by no more than chance explains."


def check(result: Result) -> Check:
    """The check of fit for a reader."""
    found = result.attributes.get("fit_check", {})
    text = in_words(
        str(found.get("verdict", "This result does not say whether the counts agree with the model."))
    )
    if found.get("doubts") and found.get("agrees") is not False:
        return Check("bad", "The counts cannot tell whether the model is right", text)
    if found.get("agrees") is True:
        more = text.replace("The data agree with the model.", "").strip()
        return Check("good", "The counts agree with the model", more or _SCATTER)
    if found.get("agrees") is False:
        return Check("bad", "The counts do not agree with the model", text)
    return Check("open", "Not checked against the model", text)


_CODE = re.compile(r"--\w|\bhc\.|\w=[\"'\w]|\w\(\S*\)")
"""Options and calls inside a sentence."""


def in_words(text: str) -> str:
    """The sentences of a verdict that a reader without a terminal can use: those with options or Python in them are left to "About"."""
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z])", text)
    return " ".join(s for s in sentences if not _CODE.search(s)) or text


def whole(value: int) -> str:
    """A whole number with its thousands apart."""
    return f"{value:,}".replace(",", "\u202f")


def _plural(count: int, noun: str) -> str:
    return f"{whole(count)} {noun}" + ("" if count == 1 else "s")


def _lead(result: Result) -> str:
    noise = _noise(result)
    seen = int(result.nodes["observed"].notna().sum())
    people = _plural(result.population, "individual")
    if result.attributes.get("population_estimate") is not None:
        people = f"about {people}"
    if result.is_chain:
        cells, times = _plural(len(result.cells), "cell"), _plural(len(result.times), "time")
        where = f"How many of {people} were in each of {cells} at {times}, and how they moved in between"
        return f"{where}, from {whole(seen)} {noise}." if seen else f"{where}, from {noise}."
    where = f"How many of {people} were in each state of {_plural(len(result.times), 'variable')}, and of each pair"
    return f"{where}, from {noise}."


def _noise(result: Result) -> str:
    kinds = sorted({str(kind) for kind in result.attributes.get("observations", [])})
    words = {noise.__name__: noise.words for noise in NOISES}

    def said(kind: str) -> str:
        noise = kind.removeprefix("Censored ")
        return ("bounds on " if noise != kind else "") + words.get(noise, f"counts with {noise} noise")

    return " and ".join(map(said, kinds)) or "no observations"


def _dispersion(found: Mapping[str, Any]) -> str:
    """An estimated dispersion in words."""
    value, error, lower, upper = (
        _number(found[name]) for name in ("value", "standard_error", "lower", "upper")
    )
    return (
        f"{found['name']} {value} (standard error {error}, {percent(found['level'])} interval {lower} to {upper}); evidence "
        f"{_number(found['gain'])} nats against independent individuals"
    )


def _group(result: Result) -> str:
    """How many a group has, and where most of them are at first and at last."""
    ends = (result.times[0], result.times[-1])
    most = [f"{result.name_of(_fullest(result, time).iloc[1])} at {label(time)}" for time in ends]
    return f"{result.population_text} individuals, most in {' and '.join(most)}"


def _asked(result: Result) -> Rows:
    nodes = result.nodes
    seen = int(nodes["observed"].notna().sum())
    rows = [("Population", _plural(result.population, "individual"))]
    if result.attributes.get("population_estimate") is not None:
        rows = [("Population", result.population_text.replace(",", "\u202f"))]
    rows += [(f"Group {label(name)}", _group(part)) for name, part in result.groups.items()]
    if result.attributes.get("dispersion") is not None:
        rows.append(("Moving together", str(result.attributes["dispersion"])))
    found = result.attributes.get("dispersion_estimate")
    if found is not None:
        rows.append(("Estimated from the data", _dispersion(found)))
    if result.is_chain:
        first, *_, last = 2 * time_labels(result.times)
        rows += [
            ("Times", f"{whole(len(result.times))} ({first} to {last})"),
            ("Cells", whole(len(result.cells))),
        ]
        counted = f"{whole(seen)} of {whole(len(nodes))} cells and times observed"
    else:
        rows += [("Variables", whole(len(result.times)))]
        counted = f"{whole(seen)} of {whole(len(nodes))} states observed one by one"
    rows += [
        *([("Ranges", f"{percent(result.level)}, central")] if trust(result).ranges else []),
        (
            "Parameters",
            str(result.attributes.get("parameters", "given with the model"))
            if result.weights is None
            else f"{_plural(len(result.weights), 'weight')}, {result.attributes.get('parameters', 'learned')}",
        ),
        ("Initial law", str(result.attributes.get("initial_law", "given with the model"))),
        ("Observations", f"{_noise(result)}; {counted}"),
    ]
    return tuple(rows)


def _went(result: Result) -> Rows:
    known = result.attributes
    rows = [
        ("Status", str(known["status"])),
        ("Engine", str(known["engine"])),
        ("Iterations", _number(known.get("iterations"))),
        ("Residual", f"{_number(known.get('residual'))} (asked: {_number(known.get('tolerance'))})"),
        ("Time taken", _seconds(known.get("seconds"))),
        (
            "Log evidence",
            "not given by this engine"
            if known.get("log_evidence") is None
            else f"{known['log_evidence']:.2f} nats".replace("-", "−"),
        ),
        *_evidence_of_fit(known),
        ("Means ≥ 0", _promise(known.get("means_non_negative"))),
        ("Flows agree with counts", _promise(known.get("means_consistent"))),
    ]
    for name, table in (("counts", result.nodes), ("flows", result.flows)):
        if MC_ERROR in table and len(table):
            share = _mc_share(table)
            rows.append((f"Monte-Carlo error of sds, {name}", f"{100 * share:.1f} % of an sd (rms)"))
    verdict = str(known.get("fit_check", {}).get("verdict", ""))
    if verdict and in_words(verdict) != verdict:
        rows.append(("Check of fit, with what helps", verdict))
    worst = _sum_error(result)
    if worst is not None:
        rows.append(("Counts sum to N", f"within {worst:.1g}, checked here"))
    rows += [(name.replace("_", " "), _number(value)) for name, value in known.get("diagnostics", {}).items()]
    if "fit" in known:
        rows.append(("Learning", _learning(known["fit"])))
    settings = ", ".join(f"{name} = {_number(value)}" for name, value in known.get("settings", {}).items())
    if settings:
        rows.append(("Settings", settings))
    return tuple(rows)


def _evidence_of_fit(known: Mapping[str, Any]) -> Rows:
    """The evidence that a fit maximised, where it is not that of the posterior, which may be integrated over an initial law."""
    found, other = known.get("fit", {}).get("evidence"), known.get("log_evidence")
    if found is None or (other is not None and abs(found - other) < 0.005):
        return ()
    text = f"{found:.2f} nats: what the search maximised; that above is of the posterior, integrated over what it includes"
    return (("Log evidence at the estimate", text.replace("-", "−", 1)),)


def _mc_share(table: pd.DataFrame) -> float:
    """Root mean square of the Monte-Carlo errors, as shares of the sds."""
    wide = table[table["sd"] > 0]
    return float(np.sqrt(np.mean((wide[MC_ERROR] / wide["sd"]) ** 2))) if len(wide) else 0.0


def _learning(fit: Mapping[str, Any]) -> str:
    parts = [str(fit.get("status", "–"))]
    if "method" in fit:
        parts[0] += f" by {fit['method']}"
    if "e_steps" in fit:
        parts.append(f"{_number(fit['e_steps'])} runs of the engine")
    if "seconds" in fit:
        parts.append(_seconds(fit["seconds"]))
    return ", ".join(parts)


def _promise(value: Any) -> str:
    return "not stated" if value is None else "promised" if value else "not promised by this engine"


def _number(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "–" if value is None else str(value)
    if isinstance(value, int):
        return whole(value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _seconds(value: Any) -> str:
    if not isinstance(value, (int, float)):
        return _number(value)
    if value < 1:
        return f"{1000 * value:.0f} ms"
    return f"{value:.3g} s" if value < 120 else f"{value / 60:.1f} min"


def _sum_error(result: Result) -> float | None:
    """max_t |Σ_c mean(t, c) − N|, of the tables themselves."""
    if result.nodes.empty:
        return None
    totals = result.nodes.groupby(result.nodes.columns[0], sort=False)["mean"].sum()
    found = result.attributes.get("population_estimate")
    return float(np.abs(totals.to_numpy() - (result.population if found is None else found["mean"])).max())


def _warnings(result: Result) -> list[str]:
    """Where numbers may be wrong."""
    known, found = result.attributes, []
    if known.get("alarm", {}).get("raised"):
        found.append(str(known["alarm"]["words"]))
    told, verdict = trust(result), str(known.get("fit_check", {}).get("verdict", ""))
    if told.nodes in {DISAGREES, UNTOLD}:
        found.append(f"{in_words(verdict)} {told.instruction}")
    elif told.nodes is None and told.flows is not None:
        found.append(told.warning)
    if not result.good:
        status = next((s for s in Status if s.value == known["status"]), None)
        remedy = f" What usually helps: {status.causes}." if status is not None and status.causes else ""
        found.append(f"{told.warning} It ended with: {known['status']}.{remedy}")
    if known.get("means_non_negative") is False:
        lowest = count_text(float(result.nodes["mean"].min()))
        found.append(
            f"This engine does not keep means at or above zero; the lowest count here is {lowest}. TiltedEP or MAP keep it."
        )
    if known.get("means_consistent") is False:
        found.append("This engine does not make flows add up to counts. TiltedEP or MAP do.")
    return found


def _notes(result: Result, data: Mapping[str, Any]) -> list[str]:
    """What stands with the diagnostics: what has no interval, or a rough one, and what was left out."""
    found = []
    if result.nodes["sd"].isna().all():
        found.append(f"{result.attributes['engine']} gives the most probable counts only.")
    found += [*_reliability(result), *map(str, result.attributes.get("notes", []))]
    for which, shown, known in (
        ("fullest of {} cells", len(data["cells"]), data["cellsInAll"]),
        ("largest of {} flows", len(data["flows"]["mean"]), data["flowsInAll"]),
    ):
        if shown < known:
            kept = f"the {whole(shown)} {which.format(whole(known))}"
            found.append(f"To stay small, this page has {kept}. The tables beside it have all.")
    return found


def _reliability(result: Result) -> list[str]:
    """How many of the numbers that matter (an interval at least one individual wide) are marked as not reliable."""
    told, shares = trust(result), []
    if told.nodes is not None or not told.ranges:
        return []  # a warning has said more already, or there is nothing to say
    both = ((result.nodes, "counts"), (result.flows, "flows" if result.is_chain else "pairs"))
    for table, noun in both[: 2 if told.flows is None else 1]:
        wide = table["upper"] - table["lower"] >= 1.0
        doubtful = int((wide & ~table["reliable"]).sum())
        if doubtful:
            shares.append(f"{whole(doubtful)} of {whole(int(wide.sum()))} {noun}")
    if not shares:
        return []
    text = f"whose range is at least one individual wide are marked as not reliable: {WHY[FEW].replace('here', 'there')}."
    return [f"{' and '.join(shares)} {text}"]


def _provenance(result: Result) -> Rows:
    known = result.attributes
    rows = [("Made", str(known.get("created_at", "–"))), ("Seed", _number(known.get("seed")))]
    if "inference_library_version" in known:
        rows.append(("headcount", str(known["inference_library_version"])))
    rows += [(str(name), str(version)) for name, version in known.get("versions", {}).items()]
    if result.path is not None:
        rows.append(("Read from", result.path.name))
    said = {
        "status", "good", "engine", "settings", "iterations", "residual", "tolerance", "seconds", "seed", "population",
        "log_evidence", "interval_level", "means_non_negative", "means_consistent", "diagnostics", "observations", "created_at",
        "inference_library", "inference_library_version", "versions", "command", "geographic", "notes", "fit",
        "dispersion", "dispersion_estimate", "fit_check", "counts_per_individual", "names", "told_by_data",
        "series", "alarm", "forecast", "flows_in_all", "initial_law", "parameters", "population_estimate", "group",
    }  # fmt: skip
    extra = [(str(name), _text(value)) for name, value in known.items() if name not in said]
    return tuple(rows + extra)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else _number(value)
