"""What is asked of a posterior with wrong arguments: an answer or words, never a raw error."""

import functools
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.constructors import GARBAGE, hashable

import headcount as hc
from headcount.errors import FaultsError

SRC = str(Path(hc.__file__).parent)


@functools.cache
def posteriors() -> dict[str, Any]:
    """A chain's posterior, one of a tree, one of two groups, one of an open population, one by sampling."""
    move = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])
    counts = np.array([[8, 5, 7], [6, 9, 5], [7, 6, np.nan]])
    chain = hc.MarkovChain([0.4, 0.3, 0.3], [move] * 2, times=["a", "b", "c"], cells=["x", "y", "z"])
    plain = hc.Problem(chain, population=20, observations=[hc.Poisson(counts)])
    ages = {"young": hc.Group(chain, 8), "old": hc.Group(chain, 12)}
    groups = hc.Problem(groups=ages, observations=hc.Poisson(counts))
    return {
        "chain": hc.infer(plain),
        "groups": hc.infer(groups),
        "sampled": hc.infer(plain, engine=hc.engines.PathGibbs(), rng=1),
    }


def asks(post: Any, file: bool = False) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """The questions, each with arguments that work."""
    made = {
        "node": (lambda variable: post.node(variable).mean, {"variable": "a"}),
        "edge": (lambda u, v: post.edge(u, v).mean, {"u": "a", "v": "b"}),
        "clique": (lambda *, first, second: post.clique(first, second).sd, {"first": "a", "second": "b"}),
        "interval": (lambda level: post.node("a").interval(level), {"level": 0.9}),
        "size": (lambda level: post.population.interval(level), {"level": 0.9}),
        "covariance": (lambda other: post.node("a").covariance(other), {"other": None}),
        "total": (post.total, {"weights": {"a": [1, 0, 1]}, "level": 0.9}),
        "weight": (lambda key, value: post.total({key: value}), {"key": "a", "value": [1.0, 0.0, 1.0]}),
        "sample": (post.sample, {"size": 2, "rng": 1}),
        "routes": (post.routes, {"size": 3, "rng": 1, "from_": None, "to": None}),
        "route ends": (
            lambda time, cell: post.routes(2, rng=1, from_={time: cell}),
            {"time": "a", "cell": "x"},
        ),
        "connectivity": (
            post.connectivity,
            {
                "regions_a": None,
                "regions_b": {"all": ["x", "y", "z"]},
                "t0": "a",
                "t1": "c",
                "level": 0.9,
                "draws": 20,
                "rng": 0,
            },
        ),
        "log_prob": (post.log_prob, {"tracks": {"id": [0, 0], "time": ["a", "b"], "cell": ["x", "y"]}}),
        "group": (post.group, {"name": "young"}),
        "to_frame": (post.to_frame, {"what": "nodes"}),
        "arrivals": (post.arrivals, {}),
    }
    if not file:
        made |= {
            "integer": (lambda integer: post.sample(2, rng=1, integer=integer), {"integer": True}),
            "predictive": (post.predictive, {"size": 2, "rng": 1}),
            "frame level": (lambda level: post.to_frame("flows", level=level), {"level": 0.9}),
            "open level": (lambda level: post.departures(level=level), {"level": 0.9}),
            "to_xarray": (post.to_xarray, {"level": 0.9, "draws": 2, "draw_flows": False}),
            "more_draws": (post.more_draws, {"draws": 2}),
        }
    return made


def raw(function: Callable[..., Any], arguments: dict[str, Any]) -> str | None:
    """The error of a call in other words than ours; None where it worked or was refused by one of our own lines."""
    try:
        function(**arguments)
    except FaultsError as error:
        return None if str(error).strip() else "an error without a message"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        kind = isinstance(error, (ValueError, NotImplementedError, AttributeError))
        if kind and where.filename.startswith(SRC) and "raise" in (where.line or "") and str(error).strip():
            return None
        return f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
    return None


def wrong(post: Any, *, file: bool = False) -> Iterator[str]:
    for name, (function, arguments) in asks(post, file).items():
        for argument in arguments:
            for value in filter(hashable, GARBAGE) if argument in {"key", "time"} else GARBAGE:
                said = raw(function, {**arguments, argument: value})
                if said is not None:
                    yield f"{name}({argument}={repr(value)[:50]}): {said[:200]}"


@pytest.mark.parametrize("kind", ["chain", "groups", "sampled"])
def test_wrong_questions_are_refused_in_words(kind: str) -> None:
    """Every question with one wrong argument is answered, or refused by an error of ours."""
    assert list(wrong(posteriors()[kind])) == []


def test_wrong_questions_to_a_file_are_refused_in_words(tmp_path: Path) -> None:
    """The same of a posterior read from a file."""
    posteriors()["chain"].save(tmp_path / "post.nc")
    assert list(wrong(hc.Posterior.load(tmp_path / "post.nc"), file=True)) == []


def test_a_total_from_a_file_is_the_one_before_or_says_its_error(tmp_path: Path) -> None:
    """A single entry's total is the same after loading; the sd of a sum is within four of the Monte-Carlo errors that it states."""
    post = posteriors()["chain"]
    post.save(tmp_path / "post.nc")
    stored = hc.Posterior.load(tmp_path / "post.nc")
    one, several = {"a": [0, 1, 0]}, {"a": [1, 1, 0], "c": [0, 0, 1]}
    assert stored.total(one) == post.total(one)
    before, after = post.total(several), stored.total(several)
    assert before.mc_error == 0 < after.mc_error < 0.1 * after.sd
    assert abs(after.sd - before.sd) < 4 * after.mc_error
