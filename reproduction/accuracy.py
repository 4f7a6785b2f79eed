"""What Tables 1–3 share: a reference for every data set, and each engine's distance from it.

The reference is `PathGibbs`, whose counts have exactly the posterior's law; its Monte-Carlo floor is the error that its own noise
makes. Beside it stands the paper's reference, 1 + 10 million moves of the Markov-basis sampler, run twice, to show its noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headcount.observe import ProblemError
from reproduction.tasks import (
    Inputs,
    Result,
    Row,
    Setting,
    Task,
    problem_of,
    relative_error,
    run_engine,
    tables_of,
    world_of,
)

ENGINES = ("MAP", "Laplace", "NLBP", "TiltedEP")
TABLES = ("node", "edge")
DATA_SETS = 10
QUICK_DATA_SETS = 2
PROOFS = 3
"""Data sets of every setting on which `EdgeEP` is compared with `Laplace`, and the paper's sampler with a second run of itself."""
LONGEST_BURN_IN = 5
"""How many burn-ins of the paper's sampler are tried, each four times as long as the one before."""

# Sweeps per chain (four chains) of a reference: chosen so that all references together take an hour of one core.
SWEEPS: Mapping[tuple[int, float, int], int] = {
    (6, 1.0, 36): 21000,
    (6, 1.0, 360): 2600,
    (6, 1.0, 1080): 1800,
    (6, 1.0, 3600): 1500,
    (6, 0.5, 1080): 1600,
    (6, 2.0, 1080): 2100,
    (4, 1.0, 480): 2000,
    (5, 1.0, 750): 1600,
    (7, 1.0, 1470): 1400,
}


def plan(settings: tuple[Setting, ...], *, quick: bool) -> list[Task]:
    """Every task of a table with these columns."""
    data_sets = range(QUICK_DATA_SETS if quick else DATA_SETS)
    return [task for setting in settings for k in data_sets for task in _data_set(setting, k, quick=quick)]


def _data_set(setting: Setting, data_set: int, *, quick: bool) -> list[Task]:
    """Reference, the paper's reference twice, every engine, and the proofs, on one data set."""
    sweeps = SWEEPS[(setting.side, setting.weight, setting.population)]
    chains = {"chains": 4, "burn_in": 100, "sweeps": sweeps}
    moves = {"burn_in": 1_000_000, "moves": 10_000_000}
    if quick:
        chains = {"chains": 2, "burn_in": 40, "sweeps": max(40, sweeps // 60)}
        moves = {"burn_in": 100_000, "moves": 400_000}
    ours = Task("reference", reference, setting, data_set, "PathGibbs", chains)
    runs = [
        Task("gibbs", gibbs, setting, data_set, "Gibbs", {"run": run, **moves})
        for run in ((0, 1) if data_set < PROOFS else (0,))
    ]
    needs = {"reference": ours, "gibbs": runs[0]}
    scale = {"quick": True} if quick else {}  # tells these apart from the results with long references
    tasks = [ours, *runs]
    tasks += [Task("errors", errors, setting, data_set, name, scale, needs) for name in ENGINES]
    if data_set < PROOFS:
        both = {**needs, "second": runs[1]}
        tasks.append(Task("gibbs noise", gibbs_noise, setting, data_set, "", scale, both))
        tasks.append(Task("agreement", agreement, setting, data_set, "EdgeEP"))
    return tasks


def reference(
    setting: Setting, data_set: int, engine: str, options: Mapping[str, Any], inputs: Inputs
) -> Result:
    """The reference means of one data set, with their floor."""
    del inputs
    problem = problem_of(world_of(setting, data_set))
    full = {**options, "workers": 1, "draws": 0, "thin": max(1, options["sweeps"] // 250)}
    posterior = run_engine(problem, engine, full, seed=setting.seed(data_set, 1))
    told = posterior.diagnostics
    rows = [Row(f"floor_{table}", float(told["floor"][table])) for table in TABLES]
    rows += [Row("r_hat", float(told["r_hat"])), Row("ess_min", float(told["ess_min"]))]
    return Result(tuple(rows), tables_of(posterior.beliefs, setting.steps))


def gibbs(setting: Setting, data_set: int, engine: str, options: Mapping[str, Any], inputs: Inputs) -> Result:
    """The paper's reference: one long chain of single moves.

    Started from a draw of the model, the chain may take longer than the paper's burn-in to reach a table that the data allow
    at all (y > 0 wants n > 0). Then the burn-in is taken four times as long, and again; its length is kept.
    """
    del inputs
    problem = problem_of(world_of(setting, data_set))
    for longer in range(LONGEST_BURN_IN):
        settings = {
            "burn_in": options["burn_in"] * 4**longer,
            "moves": options["moves"],
            "chains": 1,
            "workers": 1,
            "draws": 100,
            "configurations": 0,
        }
        try:
            posterior = run_engine(problem, engine, settings, seed=setting.seed(data_set, 2 + options["run"]))
            break
        except ProblemError:
            if longer == LONGEST_BURN_IN - 1:
                raise
    rows = (Row("burn_in", float(settings["burn_in"])), Row("moves", float(settings["moves"])))
    return Result(rows, tables_of(posterior.beliefs, setting.steps))


def gibbs_noise(
    setting: Setting, data_set: int, engine: str, options: Mapping[str, Any], inputs: Inputs
) -> Result:
    """The distance of two runs of the paper's reference from each other, and from ours."""
    del setting, data_set, engine, options
    rows = []
    for table in TABLES:
        first, second, ours = (inputs[role][table] for role in ("gibbs", "second", "reference"))
        rows.append(Row(f"apart_{table}", relative_error(first, second)))
        mean = 0.5 * (relative_error(first, ours) + relative_error(second, ours))
        rows.append(Row(f"off_{table}", mean))
    return Result(tuple(rows))


def errors(
    setting: Setting, data_set: int, engine: str, options: Mapping[str, Any], inputs: Inputs
) -> Result:
    """One engine's relative errors, against our reference and against the paper's."""
    del options
    problem = problem_of(world_of(setting, data_set))
    posterior = run_engine(problem, engine, {}, seed=setting.seed(data_set, 9))
    means = tables_of(posterior.beliefs, setting.steps)
    rows = [Row(f"error_{t}", relative_error(means[t], inputs["reference"][t])) for t in TABLES]
    rows += [Row(f"gibbs_error_{t}", relative_error(means[t], inputs["gibbs"][t])) for t in TABLES]
    rows += [
        Row("converged", float(posterior.status.good)),
        Row("iterations", float(posterior.outcome.iterations)),
        Row("lowest", float(min(means[t].min() for t in TABLES))),
    ]
    return Result(tuple(rows))


def agreement(
    setting: Setting, data_set: int, engine: str, options: Mapping[str, Any], inputs: Inputs
) -> Result:
    """max |n_EdgeEP − n_Laplace| / N: the paper's sweeps against the joint mode."""
    del options, inputs
    problem = problem_of(world_of(setting, data_set))
    sweeps, joint = (run_engine(problem, name, {}, seed=[0]) for name in (engine, "Laplace"))
    own, means = (tables_of(posterior.beliefs, setting.steps) for posterior in (sweeps, joint))
    rows = [Row(f"apart_{t}", float(np.abs(own[t] - means[t]).max() / setting.population)) for t in TABLES]
    rows.append(Row("sweeps", float(sweeps.outcome.iterations)))
    return Result((*rows, Row("converged", float(sweeps.status.good))))
