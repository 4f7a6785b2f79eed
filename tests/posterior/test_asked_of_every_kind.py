"""Every question, asked of every kind of population on every graph: an answer that agrees with the others, or words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.combinations import GRAPHS, Combination, problem_of
from tests.posterior.test_asked import raw

import headcount as hc
from headcount.engines import MAP, PathGibbs, TiltedEP

KINDS = [
    Combination("between", "weights", "none", False, "alone", "poisson", "cells", 6, 1),
    Combination("known", "two groups", "counted", False, "flocks", "binomial", "flows", 8, 2),
    Combination("unknown", "one", "apart", False, "alone", "gaussian", "cells", 6, 3),
    Combination("about", "one", "none", False, "rho", "exact", "sums", 8, 4),
]
"""Sizes, groups, tags, dispersion and noises that meet; each on every graph that can have them."""
ENGINES = [None, TiltedEP(), MAP(), PathGibbs(sweeps=200, burn_in=50, draws=20, workers=1)]


def on_graph(kind: Combination, graph: str) -> Combination:
    """The same kind on a graph, as far as it has times, groups and steps."""
    made = replace(kind, graph=graph)
    if graph == "arriving stays":
        made = replace(made, size="known", opens=True)
    if graph in {"tree", "loop"}:
        made = replace(made, tags="none")
    if graph == "loop":
        made = replace(made, kind="one", together="alone")
    return made


def questions(post: Any, folder: Path) -> dict[str, Callable[[], Any]]:
    """What users ask, with arguments that fit any of these posteriors."""
    names = post.problem.model.variables
    a, b, last = names[0], names[1], names[-1]
    tracks = hc.Tracks({"id": ["q", "q"], "time": [a, b], "cell": [0, 1]})

    def stored() -> Any:
        post.save(folder / "post.nc")
        found = hc.Posterior.load(folder / "post.nc")
        return found.node(a).mean, found.to_frame("flows"), found.total({a: [1.0, 0.0]}), found.fit_check

    return {
        "node": lambda: (post.node(b).interval(0.8), post.node(a).covariance(), post.node(b).reliable),
        "edge": lambda: (post.edge(a, b).sd, post.edge(a, b).interval(0.9), post.edge(b, a).mean),
        "far edge": lambda: post.edge(a, last).mean,
        "clique": lambda: post.clique(*names[:3]).mean,
        "total": lambda: (post.total({a: [1.0, 0.0], b: [0.0, 1.0]}), post.total({(a, b): np.eye(2)})),
        "population": lambda: (post.population.mean, post.population.interval(0.9)),
        "draws": lambda: (
            post.sample(2, rng=1),
            post.sample(2, rng=1, integer=False),
            post.predictive(2, rng=1),
        ),
        "frames": lambda: (post.to_frame("nodes"), post.to_frame("flows"), post.to_xarray()),
        "check": lambda: (post.fit_check.verdict, repr(post), post._repr_html_(), repr(post.problem)),
        "group": lambda: (
            post.group("a").node(b).mean,
            post.group("a").edge(a, b).sd,
            post.group("a").population,
        ),
        "nobody": lambda: post.group("nobody"),
        "comings": lambda: (post.arrivals(), post.departures(), post.survivors()),
        "connectivity": lambda: post.connectivity({"x": [0]}, None, a, last, rng=1),
        "routes": lambda: post.routes(3, rng=1, from_=0),
        "score": lambda: (post.log_prob(tracks), post.log_prob(tracks, null="stay")),
        "forecast": lambda: post.forecast(2).fit_check.verdict,
        "update": lambda: post.update([[3.0, 2.0]]).node(last).sd,
        "file": stored,
    }


def agree(post: hc.Posterior) -> None:
    """Counts sum to N, flows to counts; at neighbouring times connectivity is the flow."""
    names, people = post.problem.model.variables, float(post.population.mean)
    # A sampler smooths its counts: those of a size without a known number are apart by its Monte-Carlo error.
    apart = 0.01 if post.engine == "PathGibbs" and not post.problem.size_known else 1e-6
    near = {"rtol": apart, "atol": apart * max(people, 1.0)}
    here, flow = post.node(names[0]).mean.values, post.edge(*names[:2]).mean.values
    if not post.problem.opens:
        np.testing.assert_allclose(here.sum(), people, **near)
        if post.beliefs.has_spread:
            np.testing.assert_allclose(post.total({names[0]: [1.0, 1.0]}).mean, people, **near)
    if not post.problem.opens and post.problem.model.as_chain() is not None:
        np.testing.assert_allclose(flow.sum(axis=1), here, **near)
        table = post.connectivity(None, None, *names[:2], rng=1)
        np.testing.assert_allclose(
            table["mean"].to_numpy().reshape(2, 2), flow, rtol=1e-3, atol=1e-3 * people
        )


def _kept(found: list[hc.Posterior], problem: hc.Problem, engine: Any) -> None:
    found.append(hc.infer(problem, engine, rng=1, strict=False))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name.replace(" chain", ""))
@pytest.mark.parametrize("graph", GRAPHS)
def test_everything_is_answered_or_refused_in_words(graph: str, kind: Combination, tmp_path: Path) -> None:
    """No question ends in a raw error, and the answers agree with each other; engines refuse in words what they do not know."""
    problem = problem_of(on_graph(kind, graph))
    answered, faults = 0, []
    for engine in ENGINES:
        found: list[hc.Posterior] = []
        said = raw(partial(_kept, found, problem, engine), {})
        faults += [f"infer, {engine}: {said}"] if said else []
        for post in found:
            answered += 1
            asked = {name: raw(question, {}) for name, question in questions(post, tmp_path).items()}
            faults += [f"{name}, {post.engine}: {said}" for name, said in asked.items() if said]
            agree(post)
    assert not faults
    assert answered >= 2
