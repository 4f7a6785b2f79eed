"""How posteriors and estimates show themselves in a notebook: status, check of fit, largest numbers, a thumbnail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._html import card, heat_map
from headcount.labels import readable
from headcount.posterior._posterior import SHOWN_COUNTS
from headcount.tables import dense

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headcount.posterior._posterior import Estimate, Posterior
    from headcount.posterior._stored import StoredPosterior

_ROWS = 5
"""Rows of the largest numbers."""
_SHOWN_CELLS = 1_000_000
"""Most entries of a node table over all times that are computed for a thumbnail."""


def posterior_card(posterior: Posterior) -> str:
    """The card of a posterior: how it went, whether the data fit, the last time's largest counts, all means."""
    model = posterior.problem.model
    known = "fit_check" in vars(posterior) or sum(map(len, posterior.problem.sites)) <= SHOWN_COUNTS
    facts = {
        "engine": posterior.engine,
        "status": f"{posterior.status.value}, {posterior.outcome.iterations} iterations, {posterior.seconds:.2g} s",
        "fit": posterior.fit_check.verdict if known else "ask post.fit_check",
        "log evidence": None if posterior.log_evidence is None else f"{posterior.log_evidence:.6g}",
        "ask": "post.node(t), post.edge(t, u), post.total(…), post.plot.flows(t), post.to_frame('flows')",
    }
    last = model.variables[-1]
    size = sum(len(states) for states in model.states.values())
    equal = len({len(states) for states in model.states.values()}) == 1
    thumbnail = ""
    if equal and size <= _SHOWN_CELLS:
        means = np.stack([np.asarray(posterior.beliefs.mean((v,))) for v in model.variables])
        thumbnail = heat_map(
            means, f"expected counts: {len(model.variables)} times or variables × {means.shape[1]} cells"
        )
    header, rows = _largest(posterior.node(last))
    return card(
        "Posterior",
        facts,
        table=(header, rows),
        caption=f"largest at {readable(last)}",
        thumbnail=thumbnail,
    )


def estimate_card(estimate: Estimate) -> str:
    """The card of one table: its largest entries with intervals, and the table itself."""
    mean = dense(estimate.posterior.beliefs.mean(estimate.scope))
    facts = {
        "of": ", ".join(readable(v) for v in estimate.scope),
        "entries": " × ".join(map(str, mean.shape)),
        "total": f"{float(mean.sum()):.6g}",
        "ask": ".mean, .sd, .median, .interval(0.9), .reliable",
    }
    shown = heat_map(mean if mean.ndim == 2 else mean.reshape(mean.shape[0], -1).T, "expected counts")
    return card("Estimate", facts, table=_largest(estimate), caption="largest", thumbnail=shown)


def stored_card(stored: StoredPosterior) -> str:
    """The card of a posterior that was read from a file."""
    result = stored.result
    facts = {
        "engine": stored.engine,
        "status": stored.status.value,
        "fit": stored.fit_check.get("verdict"),
        "log evidence": None if stored.log_evidence is None else f"{stored.log_evidence:.6g}",
        "file": result.path,
        "draws": stored.size or "none",
    }
    columns = result.nodes.columns[:2]
    top = result.nodes.nlargest(_ROWS, "mean")
    rows = [
        [
            *(readable(row[c]) for c in columns),
            f"{row['mean']:.1f}",
            f"{row['lower']:.0f} … {row['upper']:.0f}",
        ]
        for row in top.to_dict("records")
    ]
    thumbnail = ""
    if result.is_chain:
        means = result.nodes["mean"].to_numpy().reshape(len(result.times), -1)
        thumbnail = heat_map(means, "expected counts: times × cells")
    header = [*columns, "mean", f"{result.level:.0%} interval"]
    return card("Posterior from a file", facts, table=(header, rows), caption="largest", thumbnail=thumbnail)


def _largest(estimate: Estimate) -> tuple[Sequence[str], list[list[str]]]:
    """Header and rows of the largest entries, with 90 % intervals."""
    summary: Any = estimate.posterior.summary(estimate.scope, 0.9)
    mean = dense(summary.mean)
    states = [estimate.posterior.problem.model.states[v] for v in estimate.scope]
    order = np.argsort(mean, axis=None)[::-1][:_ROWS]
    rows = []
    for flat in order.tolist():
        place = np.unravel_index(flat, mean.shape)
        lower, upper = dense(summary.lower)[place], dense(summary.upper)[place]
        ends = "none" if np.isnan(lower) else f"{lower:.0f} … {upper:.0f}"
        labels = " → ".join(readable(names[k]) for names, k in zip(states, place, strict=True))
        rows.append([labels, f"{mean[place]:.1f}", ends])
    return ("", "mean", "90% interval"), rows
