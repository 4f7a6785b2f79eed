"""Small problems with every kind of parametrisation, for laws that must hold of all of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

import headcount as hc
from headcount import simulate
from headcount.individual import DiscreteModel, MarkovChain
from headcount.learn import LearnRate, LogisticChain, LogLinear, Parametrisation, TabularChain


class Case(NamedTuple):
    parametrisation: Parametrisation
    problem: hc.Problem
    parameters: np.ndarray


def _chain(cells: int, length: int, population: int, *, initial: list[float], rng: int) -> hc.Problem:
    source = np.random.default_rng(rng)
    model = MarkovChain(initial, source.dirichlet(np.full(cells, 2.0), size=cells), length=length)
    world = simulate.population(model, population, observe=simulate.poisson(0.8), rng=source)
    return hc.Problem(model, population, hc.Poisson(world.observed, rate=0.8))


def tiny_cases() -> dict[str, Case]:
    """Problems small enough to enumerate, with parameters at which to look."""
    rng = np.random.default_rng(5)
    two = _chain(2, 3, 4, initial=[0.6, 0.4], rng=1)
    features = rng.normal(size=(2, 2, 2))
    by_step = rng.normal(size=(2, 3, 2, 2))
    ring = DiscreteModel(
        dict.fromkeys("abcd", 2), {tuple(s): rng.normal(size=(2, 2)) for s in ("ab", "bc", "cd", "da")}
    )
    seen = simulate.population(ring, 3, rng=2)
    looped = hc.Problem(ring, 3, [hc.Poisson(seen.observations[(v,)], on=v) for v in "abc"])
    agree = {tuple(s): np.eye(2) for s in ("ab", "bc", "cd")}
    lean = {(v,): np.array([0.0, 1.0]) for v in "abcd"}
    return {
        "logistic": Case(LogisticChain(features), two, np.array([0.3, -0.6])),
        "logistic, changing features": Case(LogisticChain(by_step), two, np.array([0.3, -0.6, 0.5])),
        "logistic, one weight fixed, ridge": Case(
            LogisticChain(by_step, fixed={"w2": 0.7}, ridge=0.4), two, np.array([0.3, 0.5])
        ),
        "logistic, initial law learned": Case(
            LogisticChain(features, initial="learned"), two, np.array([0.3, -0.6, 0.2])
        ),
        "tabular": Case(TabularChain(), two, np.array([0.3, -0.6])),
        "tabular, prior": Case(TabularChain(dirichlet=2.0), two, np.array([0.3, -0.6])),
        "tabular by step": Case(TabularChain(homogeneous=False), two, np.array([0.3, -0.6, 0.1, 0.9])),
        "logistic, weights by class": Case(
            LogisticChain(features, by=["calm", "rush"], varying=["w1"]),
            two,
            np.array([0.3, -0.2, 0.4, -0.6]),
        ),
        "logistic, separate weights by class": Case(
            LogisticChain(features, by=2, pool=False), two, np.array([0.3, -0.2, 0.4, -0.6])
        ),
        "logistic, basis in time": Case(
            LogisticChain(by_step, basis=np.array([[1.0, 0.5], [1.0, -2.0]]), ridge=0.3),
            two,
            np.array([0.3, -0.2, 0.4, -0.6, 0.1, 0.2]),
        ),
        "logistic, sparse": Case(
            LogisticChain([sparse.csr_array(f) for f in features], prior={"w2": 1.0}, ridge="learned"),
            two,
            np.array([0.3, -0.6]),
        ),
        "tabular by class": Case(
            TabularChain(by=["a", "b"], pool=False), two, np.array([0.3, -0.6, 0.1, 0.9])
        ),
        "tabular, prior matrix": Case(
            TabularChain(prior=[[0.9, 0.1], [0.3, 0.7]], strength=3.0), two, np.array([0.3, -0.6])
        ),
        "rate": Case(LearnRate(LogisticChain(features)), two, np.array([0.3, -0.6, 0.25])),
        "loop": Case(
            LogLinear(
                {"agree": agree, "lean": lean, "odd": {("d", "a"): np.array([[0.0, 2.0], [1.0, 0.0]])}}
            ),
            looped,
            np.array([0.5, -0.3, 0.2]),
        ),
    }


def birds(
    *, side: int = 3, steps: int = 8, population: int = 200, rng: int = 1
) -> tuple[simulate.World, hc.Problem]:
    world = simulate.birds(side=side, weights=(1, 2, 2, 2), population=population, steps=steps, rng=rng)
    return world, hc.Problem(world.model, population, hc.Poisson(world.observed))


def lookup(tables: dict):
    """Tables of moves by pair of times, and the counts at the beginning of a step by time."""

    def table(scope: tuple) -> np.ndarray:
        return (
            tables[scope]
            if len(scope) == 2
            else next(t.sum(axis=1) for p, t in tables.items() if p[0] == scope[0])
        )

    return table
