"""Noisy marginals by maximum entropy with mbi (private-pgm).

It minimises the misfit to the measured totals over all laws; started at the chain's own potentials, mirror descent ends at the law
nearest to the chain among those that fit best. So it can be given exact totals, but not a noise that the prior should be weighed against.
"""

from __future__ import annotations

import json
import time
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
from mbi import CliqueVector, Domain, Factor, LinearMeasurement  # noqa: E402
from mbi.estimation import MirrorDescent  # noqa: E402

from benchmarks.peers._peer import Arrays, tell, twice  # noqa: E402

ITERATIONS = 2000
LEAST = -60.0
"""Log-potential in the place of −∞, of which mbi makes NaN: a chance of 1e-26."""


def solve(problem: Arrays) -> tuple[Arrays, dict[str, Any]]:
    """Counts and flows that fit the given node totals; or tables that fit noisy ones, of a network or of no model at all."""
    if "network" in problem:
        return fit_network(problem)
    if "pairs" in problem:
        return fit_tables(problem)
    initial, steps = problem["initial"], problem["transitions"]
    population, margins = float(problem["population"]), problem["observed"]
    cells, count = len(initial), len(margins)
    names = [f"t{t:03d}" for t in range(count)]
    domain = Domain(names, [cells] * count)
    pairs = [(names[t], names[t + 1]) for t in range(count - 1)]
    tables = {}
    for t, pair in enumerate(pairs):
        law = steps[t] * (initial[:, None] if t == 0 else 1.0)
        tables[pair] = Factor(domain.project(pair), jax.numpy.asarray(np.log(law)))
    start = CliqueVector(domain, tuple(pairs), tables)
    measured = [LinearMeasurement(margins[t], (names[t],), stddev=1.0) for t in range(count)]
    # Flows must be cliques of the model: one measurement of nothing asks for each of them.
    measured += [
        LinearMeasurement(np.full(1, population), pair, stddev=1e6, query=_Total()) for pair in pairs
    ]

    def work() -> Arrays:
        model = MirrorDescent().estimate(
            domain, measured, known_total=population, iters=ITERATIONS, warm_start=start
        )
        edges = np.stack([np.asarray(model.project(pair).values) for pair in pairs])
        nodes = np.stack([np.asarray(model.project((name,)).values) for name in names])
        return {"nodes": nodes, "edges": edges}

    answer, times = twice(work)
    return answer, {**times, "iterations": ITERATIONS}


def fit_tables(problem: Arrays) -> tuple[Arrays, dict[str, Any]]:
    """All two-way tables under the law of most entropy that fits the noisy ones, mirror descent as it comes."""
    sizes = [int(n) for n in problem["sizes"]]
    names = [f"v{k}" for k in range(len(sizes))]
    pairs = [(names[a], names[b]) for a, b in problem["pairs"]]
    parts = np.split(problem["noisy"], np.cumsum([sizes[a] * sizes[b] for a, b in problem["pairs"]])[:-1])
    domain, sd = Domain(names, sizes), float(problem["sd"])
    measured = [LinearMeasurement(y, pair, stddev=sd) for y, pair in zip(parts, pairs, strict=True)]

    def work() -> Arrays:
        model = MirrorDescent().estimate(domain, measured, known_total=float(problem["population"]))
        return {
            f"{a}-{b}": np.asarray(model.project((names[a], names[b])).values) for a, b in problem["wanted"]
        }

    return twice(work, time.process_time, later=3)


def fit_network(problem: Arrays) -> tuple[Arrays, dict[str, Any]]:
    """Tables of a known network that fit noisy ones: mirror descent from the network's own potentials, as it comes.

    ``network`` is JSON: ``factors``, ``measured`` and ``wanted``, lists of scopes (positions of variables); ``values`` are the factors'
    log tables end to end, ``noisy`` the measured ones, one row per release; ``k-r`` is the answer to the k-th wanted table of release r.
    """
    scopes = json.loads(str(problem["network"]))
    sizes = [int(n) for n in problem["sizes"]]
    names = [f"v{k:04d}" for k in range(len(sizes))]
    domain, population, sd = Domain(names, sizes), float(problem["population"]), float(problem["sd"])

    def parts(what: str, values: np.ndarray) -> list[tuple[tuple[str, ...], np.ndarray]]:
        shapes = [tuple(sizes[v] for v in scope) for scope in scopes[what]]
        cut = np.split(values, np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1])
        found = [part.reshape(shape) for part, shape in zip(cut, shapes, strict=True)]
        return [
            (tuple(names[v] for v in scope), part) for scope, part in zip(scopes[what], found, strict=True)
        ]

    tables: dict[tuple[str, ...], Any] = {}
    for scope, table in parts("factors", np.maximum(problem["values"], LEAST)):
        factor = Factor(domain.project(scope), jax.numpy.asarray(table))
        tables[scope] = tables[scope] + factor if scope in tables else factor
    start = CliqueVector(domain, tuple(tables), tables)
    # The network's tables must be cliques of the model: one measurement of nothing asks for each of them.
    nothing = [
        LinearMeasurement(np.full(1, population), scope, stddev=1e6, query=_Total()) for scope in tables
    ]
    releases = [
        [
            *(LinearMeasurement(y.ravel(), scope, stddev=sd) for scope, y in parts("measured", noisy)),
            *nothing,
        ]
        for noisy in problem["noisy"]
    ]

    def work(measured: list[LinearMeasurement]) -> list[np.ndarray]:
        model = MirrorDescent().estimate(domain, measured, known_total=population, warm_start=start)
        return [
            np.asarray(model.project(tuple(names[v] for v in scope)).values) for scope in scopes["wanted"]
        ]

    found, times = twice(lambda: work(releases[0]), time.process_time)
    answers = [found, *(work(measured) for measured in releases[1:])]
    return {f"{k}-{r}": table for r, one in enumerate(answers) for k, table in enumerate(one)}, times


class _Total:
    """The sum of a table; hashable, as a static argument must be."""

    def __call__(self, factor: Factor) -> jax.Array:
        return jax.numpy.sum(factor.values).reshape(1)

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Total)

    def op_norm_sq(self) -> float:
        """‖1‖², an overestimate for every table used here."""
        return 1e4


if __name__ == "__main__":
    tell("mbi", solve)
