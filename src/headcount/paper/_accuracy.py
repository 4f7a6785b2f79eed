"""What Tables 1–3 share: a reference for every data set, and each engine's distance from it.

The reference is `PathGibbs`, whose counts have exactly the posterior's law; its Monte-Carlo floor is the distance that its own noise
makes. Beside it stands the paper's reference, 1 + 10 million moves of the Markov-basis sampler, twice, to show what that noise does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headcount.engines import EdgeEP
from headcount.observe import ProblemError
from headcount.paper._kinds import Inputs
from headcount.paper._task import Result, Row, Setting, Task
from headcount.paper._worlds import problem_of, relative_error, run_engine, tables_of, world_of

ENGINES = ("MAP", "Laplace", "NLBP", "TiltedEP")
TABLES = ("node", "edge")
DATA_SETS = 10
QUICK_DATA_SETS = 2
PROOFS = 3
"""Data sets of every setting on which `EdgeEP` is compared with `Laplace`, and the paper's sampler with a second run of itself."""
LONGEST_BURN_IN = 5
"""The burn-in of the paper's sampler may be taken four times as long this many times, less one."""

# Sweeps per chain (four chains) and CPU seconds of a reference: what an hour of one core gives to all of them.
REFERENCES: Mapping[tuple[int, float, int], tuple[int, float]] = {
    (6, 1.0, 36): (21000, 27.0),
    (6, 1.0, 360): (2600, 21.0),
    (6, 1.0, 1080): (1800, 33.0),
    (6, 1.0, 3600): (1500, 69.0),
    (6, 0.5, 1080): (1600, 22.0),
    (6, 2.0, 1080): (2100, 33.0),
    (4, 1.0, 480): (2000, 13.0),
    (5, 1.0, 750): (1600, 16.0),
    (7, 1.0, 1470): (1400, 34.0),
}


def plan(settings: tuple[Setting, ...], *, quick: bool) -> list[Task]:
    """Every task of a table with these columns."""
    tasks: list[Task] = []
    for setting in settings:
        for data_set in range(QUICK_DATA_SETS if quick else DATA_SETS):
            tasks += _data_set(setting, data_set, quick=quick)
    return tasks


def _data_set(setting: Setting, data_set: int, *, quick: bool) -> list[Task]:
    """Reference, the paper's reference twice, every engine, and the proofs, on one data set."""
    sweeps, seconds = REFERENCES[(setting.side, setting.weight, setting.population)]
    options = {
        "chains": 2 if quick else 4,
        "burn_in": 40 if quick else 100,
        "sweeps": max(40, sweeps // 60) if quick else sweeps,
    }
    reference = Task(
        "reference",
        setting,
        data_set,
        "PathGibbs",
        options,
        seconds=seconds / 75 if quick else seconds,
    )
    moves = {"burn_in": 100_000, "moves": 400_000} if quick else {"burn_in": 1_000_000, "moves": 10_000_000}
    runs = [
        Task(
            "gibbs",
            setting,
            data_set,
            "Gibbs",
            {"run": run, **moves},
            seconds=sum(moves.values()) / 2_000_000,
        )
        for run in ((0, 1) if data_set < PROOFS else (0,))
    ]
    needs = {"reference": reference, "gibbs": runs[0]}
    tasks = [reference, *runs]
    if data_set < PROOFS:
        tasks.append(Task("gibbs noise", setting, data_set, needs={**needs, "second": runs[1]}, seconds=0.1))
    tasks += [Task("errors", setting, data_set, name, needs=needs, seconds=0.5) for name in ENGINES]
    if data_set < PROOFS:
        tasks.append(Task("agreement", setting, data_set, "EdgeEP", seconds=1.0))
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
    at all (y > 0 wants n > 0). Then the burn-in is taken four times as long, and again; how long it was is kept.
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
    """How far two of the paper's references lie from each other, and from ours."""
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
    problem = problem_of(world_of(setting, data_set))
    posterior = run_engine(problem, engine, options, seed=setting.seed(data_set, 9))
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
    """max |n_EdgeEP − n_Laplace| / N, the paper's sweeps against the joint mode.

    ``modes`` are the modes that the sweeps themselves end in; ``apart`` compares the two posteriors, whose means are one Newton step
    further on.
    """
    del engine, options, inputs
    problem = problem_of(world_of(setting, data_set))
    joint = run_engine(problem, "Laplace", {}, seed=[0])
    means = tables_of(joint.beliefs, setting.steps)
    sweeps = EdgeEP()
    state = sweeps.init(problem)
    count = 0
    while not sweeps.done(state) and count < sweeps.max_iterations:
        state, count = sweeps.step(state), count + 1
    modes = np.stack(
        [
            setting.population * problem.model.marginal((t,)) + edge.likelihood.coordinates.embed(mode)
            for t, (edge, mode) in enumerate(zip(state.edges, state.modes, strict=True))
        ]
    )
    own = tables_of(sweeps.finish(state), setting.steps)
    rows = [Row(f"apart_{t}", float(np.abs(own[t] - means[t]).max() / setting.population)) for t in TABLES]
    rows.append(Row("modes_node", float(np.abs(modes - means["node"]).max() / setting.population)))
    return Result((*rows, Row("sweeps", float(count)), Row("converged", float(sweeps.done(state)))))
