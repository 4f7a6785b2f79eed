"""Small results made by hand, so that pictures and pages can be tested without running an engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from headcount.io import Result

POPULATION = 600
Z = 1.6448536269514722


def summarised(table: pd.DataFrame, mean: np.ndarray) -> pd.DataFrame:
    """Add the columns of a summary: binomial spread around the mean, 90 %."""
    sd = np.sqrt(mean * (1 - mean / POPULATION))
    table = table.assign(mean=mean, sd=sd, lower=np.maximum(0, mean - Z * sd), upper=mean + Z * sd)
    table.insert(table.columns.get_loc("sd"), "median", np.rint(mean))
    table = table.assign(reliable=mean >= 10)
    table.attrs["level"] = 0.9
    return table


def chain(*, side: int = 3, steps: int = 6, places: bool = True, seed: int = 1, **changes: Any) -> Result:
    """A chain on a grid whose flows add up to its counts; the first cell is not observed at the second time."""
    rng = np.random.default_rng(seed)
    cells = side**2
    law = np.zeros((steps, cells))
    law[0] = rng.dirichlet(np.ones(cells))
    flows = []
    for t in range(steps - 1):
        move = rng.dirichlet(np.full(cells, 0.4), size=cells)
        flows.append(POPULATION * law[t][:, None] * move)
        law[t + 1] = law[t] @ move
    grid = np.indices((steps, cells)).reshape(2, -1)
    nodes = pd.DataFrame({"time": grid[0], "cell": grid[1]})
    nodes = summarised(nodes, POPULATION * law.ravel())
    observed = rng.poisson(nodes["mean"]).astype(float)
    observed[cells] = np.nan
    nodes.insert(2, "observed", observed)
    moves = np.indices((steps - 1, cells, cells)).reshape(3, -1)
    table = pd.DataFrame({"time": moves[0], "origin": moves[1], "dest": moves[2]})
    table = summarised(table, np.array(flows).ravel())
    x, y = np.divmod(np.arange(cells), side)
    coordinates = pd.DataFrame({"cell": range(cells), "x": x * 1.0, "y": y * 1.0}) if places else None
    parts: dict[str, Any] = {
        "nodes": nodes,
        "flows": table,
        "trace": trace(),
        "attributes": attributes(),
        "coordinates": coordinates,
    }
    return Result(**(parts | changes))


def network() -> Result:
    """Two variables of unlike sizes and their joint table."""
    joint = POPULATION * np.array([[0.3, 0.2, 0.1], [0.1, 0.1, 0.2]])
    labels = [("sex", s) for s in ("f", "m")] + [("age", a) for a in ("young", "middle", "old")]
    nodes = pd.DataFrame(labels, columns=["variable", "state"])
    nodes = summarised(nodes, np.concatenate([joint.sum(axis=1), joint.sum(axis=0)]))
    nodes.insert(2, "observed", [np.nan, np.nan, 240.0, 175.0, 190.0])
    pairs = [("sex", s, "age", a) for s in ("f", "m") for a in ("young", "middle", "old")]
    flows = pd.DataFrame(pairs, columns=["variable", "state", "other", "other_state"])
    flows = summarised(flows, joint.ravel())
    return Result(nodes, flows, trace(), attributes(observations=["LaplaceNoise"]))


def trace() -> pd.DataFrame:
    steps = np.arange(1, 8)
    return pd.DataFrame(
        {"iteration": steps, "residual": 0.5**steps, "seconds": 0.1 * steps, "log_evidence": -9 - 0.5**steps}
    )


def attributes(**changes: Any) -> dict[str, Any]:
    known = {
        "status": "converged",
        "good": True,
        "engine": "TiltedEP",
        "settings": {"damping": 0.9},
        "iterations": 7,
        "residual": 0.5**7,
        "tolerance": 0.01,
        "seconds": 0.25,
        "seed": None,
        "population": POPULATION,
        "log_evidence": -9.0,
        "interval_level": 0.9,
        "means_non_negative": True,
        "means_consistent": True,
        "diagnostics": {},
        "observations": ["Poisson"],
        "created_at": "2024-05-01T00:00:00+00:00",
        "versions": {"python": "3.11.7"},
        "geographic": False,
        "command": "headcount infer counts.csv --out results/",
    }
    return known | changes


def relabelled(result: Result, cells: list[Any], times: list[Any]) -> Result:
    """The same result under other labels."""
    cell = dict(zip(result.cells, cells, strict=True))
    time = dict(zip(result.times, times, strict=True))
    nodes = result.nodes.assign(
        time=result.nodes["time"].map(time), cell=pd.Series([cell[c] for c in result.nodes["cell"]])
    )
    flows = result.flows.assign(
        time=result.flows["time"].map(time),
        origin=[cell[c] for c in result.flows["origin"]],
        dest=[cell[c] for c in result.flows["dest"]],
    )
    for table in (nodes, flows):
        table.attrs["level"] = 0.9
    places = None if result.coordinates is None else result.coordinates.assign(cell=cells)
    return Result(nodes, flows, result.trace, result.attributes, places, result.weights, result.ascent)
