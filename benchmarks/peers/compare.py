"""Claim: on what peers can do, ours is as good and faster; and there is much that they cannot do.

Five tasks, the same arrays for everyone, every solver in a process of its own. A peer that is not there is reported, not dropped.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import headcount as hc
from benchmarks._measure import distance, in_child
from benchmarks._problems import birds, edge_means, node_means
from benchmarks._report import ROOT, Check, Report, Table
from headcount import engines

ENVIRONMENT = ROOT / ".venv-bench" / "bin" / "python"

CANNOT = (
    (
        "cvxpy + Clarabel",
        "any convex noise",
        "no",
        "yes",
        "if the noise is concave",
        "yes",
        "a model written by hand; T·L² cones",
    ),
    (
        "pycbp",
        "exact totals only",
        "no",
        "no: every leaf is seen",
        "no",
        "trees",
        "clips zeros; messages copied to tables",
    ),
    (
        "mbi",
        "fits totals, weighs nothing",
        "no",
        "yes",
        "no",
        "yes",
        "no prior strength: noise is fitted, not weighed",
    ),
    ("dynamax, Kalman", "Gaussian", "nodes", "no", "no", "no", "full-rank noise only"),
    (
        "dynamax, CMGF",
        "two moments of any noise",
        "nodes",
        "no",
        "two moments",
        "no",
        "full-rank noise; counts may turn negative",
    ),
    ("POT, ott-jax", "exact totals", "no", "no", "no", "two times", "two times only"),
    (
        "NumPyro, NUTS",
        "any smooth noise",
        "by sampling",
        "yes",
        "of a Gaussian model",
        "no",
        "not the counts' own law; minutes",
    ),
    (
        "headcount",
        "exact, Gaussian, counts, your own",
        "nodes, flows, sums",
        "yes",
        "yes",
        "yes",
        "covariances above 4096 cells",
    ),
)


@dataclass(frozen=True)
class Rival:
    """A peer's module, and what to call it."""

    module: str
    name: str


CVXPY = Rival("with_cvxpy", "cvxpy + Clarabel")
PYCBP = Rival("with_pycbp", "pycbp")
MBI = Rival("with_mbi", "mbi")
DYNAMAX = Rival("with_dynamax", "dynamax")
POT = Rival("with_pot", "POT")
OTT = Rival("with_ott", "ott-jax")
NUMPYRO = Rival("with_numpyro", "NumPyro NUTS")
OURS = Rival("ours", "headcount")


def run(*, quick: bool) -> Report:
    rows: list[list[Any]] = []
    checks: list[Check] = []
    sizes = (3,) if quick else (4, 5, 6)
    for side in sizes:
        _add(rows, checks, f"MAP, L = {side**2}, T = 20", *_map(side, 100 * side**2), rivals=(CVXPY,))
    for cells, steps in ((9, 5),) if quick else ((16, 10), (36, 20)):
        name = f"exact totals, chain, L = {cells}, T = {steps}"
        _add(rows, checks, name, *_exact(cells, steps), rivals=(PYCBP, MBI))
    for cells in (25,) if quick else (100, 400):
        _add(rows, checks, f"exact totals, two times, L = {cells}", *_exact(cells, 2), rivals=(POT, OTT))
    for side in (3,) if quick else (4, 10):
        _add(rows, checks, f"Gaussian noise, L = {side**2}, T = 20", *_gaussian(side), rivals=(DYNAMAX,))
    side, population, draws, sweeps = (3, 270, 30, 200) if quick else (4, 480, 500, 1500)
    _add(
        rows,
        checks,
        f"Poisson noise, L = {side**2}, T = 20, N = {population}",
        *_poisson(side, population, draws=draws, sweeps=sweeps),
        rivals=(DYNAMAX, NUMPYRO),
    )
    columns = [
        "task",
        "package",
        "s",
        "compile, s",
        "peak, GiB",
        "error of nodes",
        "error of flows",
        "error of sds",
        "remark",
    ]
    note = (
        "The second run of two in a fresh process is timed; the first one's surplus is the compile time. Errors are relative L1 "
        "distances from the reference named in the remark of our own row."
    )
    cannot = Table(
        "What each can take and give",
        ["package", "noise", "uncertainty", "missing data", "count noise", "flows", "what else it lacks"],
        CANNOT,
    )
    return Report(
        "peers",
        "Other packages on the same problems.",
        checks=checks,
        tables=[Table("Side by side", columns, rows, note), cannot],
        seeds=[1],
    )


def _map(side: int, population: int) -> tuple[dict[str, Any], dict[str, np.ndarray], str]:
    _, problem = birds(side, population)
    tight = hc.infer(problem, engines.MAP(tolerance=1e-12), strict=False)
    reference = {"nodes": node_means(tight), "edges": edge_means(tight)}
    return {"task": "map", **_arrays(problem)}, reference, "reference: the dual to 1e-12"


def _exact(cells: int, steps: int) -> tuple[dict[str, Any], dict[str, np.ndarray], str]:
    """A random chain with all of its totals known; no zeros, which the peers cannot take."""
    rng = np.random.default_rng(1)
    matrices = [rng.dirichlet(np.full(cells, 2.0), size=cells) + 1e-3 for _ in range(steps - 1)]
    matrices = [m / m.sum(axis=1, keepdims=True) for m in matrices]
    model = hc.MarkovChain(rng.dirichlet(np.full(cells, 5.0)), matrices)
    world = hc.simulate.population(model, 200 * cells, observe=hc.simulate.exact(), rng=rng)
    if (world.counts == 0).any():
        raise ValueError("a total is zero: take another seed")
    problem = hc.Problem(model, 200 * cells, [hc.Exact(world.observed)])
    tight = hc.infer(problem, engines.MAP(tolerance=1e-13), strict=False)
    reference = {"nodes": node_means(tight), "edges": edge_means(tight)}
    return {"task": "exact", **_arrays(problem, world.counts)}, reference, "reference: the dual to 1e-13"


def _gaussian(side: int) -> tuple[dict[str, Any], dict[str, np.ndarray], str]:
    """Birds seen through Gaussian noise; the dense joint Gaussian is the reference where it fits, else ours."""
    population, sd = 100 * side**2, 5.0
    arrays = _kalman_arrays(side, population)
    rng = np.random.default_rng(2)
    seen = arrays.pop("counts") + rng.normal(scale=sd, size=arrays["observed"].shape)
    model = hc.MarkovChain(arrays["initial"], list(arrays["transitions"]))
    mean, deviation = _dense_conditioning(model, population, seen, sd)
    given = {**arrays, "task": "gaussian", "gaussian": 1, "sd": sd, "observed": seen}
    return given, {"nodes": mean, "sds": deviation}, "reference: conditioning of the dense joint Gaussian"


def _dense_conditioning(
    model: hc.Model, population: int, seen: np.ndarray, sd: float
) -> tuple[np.ndarray, np.ndarray]:
    """E[z | y] and sds from the (T L)² covariance, N(⟨μ_{A,B}⟩ − μ_A μ_Bᵀ)."""
    times = model.variables
    mu = np.concatenate([model.marginal((t,)) for t in times])
    blocks = [[model.joint_marginal((s,), (t,)) for t in times] for s in times]
    covariance = population * (np.block(blocks) - np.outer(mu, mu))
    gain = np.linalg.solve(covariance + sd**2 * np.eye(len(mu)), covariance).T
    mean = population * mu + gain @ (seen.ravel() - population * mu)
    left = np.diagonal(covariance - gain @ covariance)
    return mean.reshape(seen.shape), np.sqrt(np.maximum(left, 0.0)).reshape(seen.shape)


def _poisson(
    side: int, population: int, *, draws: int, sweeps: int
) -> tuple[dict[str, Any], dict[str, np.ndarray], str]:
    arrays = _kalman_arrays(side, population)
    del arrays["counts"]
    model = hc.MarkovChain(arrays["initial"], list(arrays["transitions"]))
    problem = hc.Problem(model, population, [hc.Poisson(arrays["observed"])])
    long = hc.infer(problem, engines.PathGibbs(sweeps=sweeps, draws=0), rng=1, strict=False)
    reference = {
        "nodes": node_means(long),
        "sds": np.stack([long.sd_table((t,)) for t in model.variables]),
    }
    steps = [
        population * (np.diag(u @ p) - p.T @ (u[:, None] * p))
        for u, p in zip(_laws(model), arrays["transitions"], strict=False)
    ]
    factors = []
    for q in steps:
        values, vectors = np.linalg.eigh(q)
        factors.append(vectors * np.sqrt(np.maximum(values, 0.0)))
    given = {
        **arrays,
        "task": "poisson",
        "gaussian": 0,
        "draws": draws,
        "means": population * _laws(model),
        "factors": np.stack(factors),
    }
    floor = long.diagnostics["floor"]["node"]
    return given, reference, f"reference: PathGibbs, its own noise {floor:.2g}"


def _laws(model: hc.Model) -> np.ndarray:
    return np.stack([model.marginal((t,)) for t in model.variables])


def _kalman_arrays(side: int, population: int) -> dict[str, Any]:
    """A bird world from its second time on (full-rank noise), and its linear-Gaussian form without the last cell."""
    world, _ = birds(side, population, steps=21, rng=3)
    steps = np.stack([np.asarray(m) for m in world.model.transitions])
    initial, later, cells = steps[0][0], steps[1:], side**2
    model = hc.MarkovChain(initial, list(later))
    laws = _laws(model)
    weights = np.vstack([np.eye(cells - 1), -np.ones(cells - 1)])
    offset = population * np.eye(cells)[-1]
    kept = slice(0, cells - 1)
    noises = [population * (np.diag(laws[0]) - np.outer(laws[0], laws[0]))]
    noises += [
        population * (np.diag(u @ p) - p.T @ (u[:, None] * p)) for u, p in zip(laws, later, strict=False)
    ]
    gains = [np.eye(cells - 1), *((p.T @ weights)[kept] for p in later)]
    biases = [np.zeros(cells - 1), *((p.T @ offset)[kept] for p in later)]
    return {
        "initial": initial,
        "transitions": later,
        "population": population,
        "counts": world.counts[1:],
        "observed": world.observed.values[1:],
        "weights": weights,
        "offset": offset,
        "mean": population * laws[0][kept],
        "covariance": noises[0][kept, kept],
        "gains": np.stack(gains),
        "biases": np.stack(biases),
        "noises": np.stack([q[kept, kept] for q in noises]),
    }


def _arrays(problem: hc.Problem, seen: np.ndarray | None = None) -> dict[str, Any]:
    """A chain's problem as plain arrays."""
    model = problem.model
    if seen is None:
        seen = np.stack([site.noise.counts for site in problem.sites])
    return {
        "initial": model.marginal((model.variables[0],)),
        "transitions": np.stack([np.asarray(m) for m in model.transitions]),
        "population": problem.population,
        "observed": seen,
    }


def _add(
    rows: list[list[Any]],
    checks: list[Check],
    task: str,
    given: dict[str, Any],
    reference: dict[str, np.ndarray],
    remark: str,
    *,
    rivals: Sequence[Rival],
) -> None:
    """Run ours and the rivals on one task; a row each, and a check of our time against each of theirs."""
    mine = _one(OURS, given, reference)
    rows.append([task, *mine["row"], remark])
    for rival in rivals:
        theirs = _one(rival, given, reference)
        rows.append([task, *theirs["row"], theirs["remark"]])
        if theirs["seconds"] is not None and mine["seconds"] is not None:
            ratio = theirs["seconds"] / mine["seconds"]
            name = f"{task}: {rival.name}'s time over ours"
            checks.append(Check(name, ratio, at_least=1.0, unit="times", ratio=True))
            for what in ("nodes", "flows", "sds"):
                if theirs[what] is not None and mine[what] is not None:
                    # Below 1e-6 both are right; nobody needs more.
                    better = max(theirs[what], 1e-6) / max(mine[what], 1e-6)
                    name = f"{task}: {rival.name}'s error of {what} over ours"
                    checks.append(Check(name, better, at_least=1.0, unit="times", ratio=True))


def _one(rival: Rival, given: dict[str, Any], reference: dict[str, np.ndarray]) -> dict[str, Any]:
    """Time, memory and distance of one solver."""
    python = None if rival is OURS or not ENVIRONMENT.exists() else str(ENVIRONMENT)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "problem.npz", Path(folder) / "answer.npz"
        np.savez(source, **given)
        try:
            told = in_child(f"benchmarks.peers.{rival.module}", [source, target], python=python, timeout=420)
            with np.load(target) as file:
                answer = {name: file[name] for name in file.files}
        except (RuntimeError, ValueError) as error:
            nothing = dict.fromkeys(("seconds", "nodes", "flows", "sds"))
            return {**nothing, "row": [rival.name, *[None] * 6], "remark": f"could not be run: {error}"}
    errors = {
        what: distance(answer[key], reference[key]) if key in answer and key in reference else None
        for what, key in (("nodes", "nodes"), ("flows", "edges"), ("sds", "sds"))
    }
    row = [
        f"{rival.name} {told['version']}",
        told["seconds"],
        told.get("compile_seconds"),
        told["peak_gib"],
        *errors.values(),
    ]
    notes = [
        f"{k.replace('_', ' ')}: {told[k]}" for k in ("status", "iterations", "leapfrog_steps") if k in told
    ]
    return {"seconds": told["seconds"], **errors, "row": row, "remark": "; ".join(notes)}
