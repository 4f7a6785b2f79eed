"""The table of awkward graphs: tiny models, each hard in its own way, that every part is tested on."""

from __future__ import annotations

import numpy as np

from headcount.individual import DiscreteModel, MarkovChain, Model, Tree


def awkward_models() -> dict[str, Model]:
    """Every shape that breaks a careless model, at most 32 joint states each, the same on every call."""
    rng = np.random.default_rng(20140621)

    def law(size: int) -> np.ndarray:
        return rng.dirichlet(np.ones(size))

    def matrix(rows: int, columns: int) -> np.ndarray:
        return rng.dirichlet(np.ones(columns), size=rows)

    def potential(*shape: int) -> np.ndarray:
        return rng.normal(size=shape)

    zeros = potential(2, 3)
    zeros[0, 1] = zeros[1, 2] = -np.inf
    absorbing = np.array([[0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.5, 0.0, 0.5]])
    return {
        "chain": MarkovChain(law(3), [matrix(3, 3), matrix(3, 3)], times=["mon", "tue", "wed"], cells="abc"),
        "homogeneous chain": MarkovChain(law(2), matrix(2, 2), length=5),
        "chain of changing cells": MarkovChain(law(2), [matrix(2, 4), matrix(4, 3)]),
        "chain of length one": MarkovChain(law(4), [], cells=list("wxyz")),
        "chain with one cell": MarkovChain([1.0], [[1.0]], length=3),
        "deterministic start": MarkovChain([0.0, 1.0, 0.0], matrix(3, 3), length=3),
        "absorbing and unreachable cells": MarkovChain([0.5, 0.5, 0.0], absorbing, length=3),
        "star": Tree(law(2), {leaf: ("hub", matrix(2, 2)) for leaf in ("north", "east", "south")}),
        "tree with unequal domains": Tree(
            law(2), {"b": ("a", matrix(2, 3)), "c": ("a", matrix(2, 2)), "d": ("b", matrix(3, 2))}
        ),
        "four-cycle": DiscreteModel(
            dict.fromkeys("abcd", 2),
            {
                ("a", "b"): potential(2, 2),
                ("b", "c"): potential(2, 2),
                ("c", "d"): potential(2, 2),
                ("d", "a"): potential(2, 2),
            },
        ),
        "two cliques of three": DiscreteModel(
            {"a": 2, "b": 2, "c": 3, "d": 2},
            {("a", "b", "c"): potential(2, 2, 3), ("b", "c", "d"): potential(2, 3, 2)},
        ),
        "disconnected": DiscreteModel(
            {"a": 2, "b": 3, "c": 2, "d": 2}, {("a", "b"): potential(2, 3), ("c", "d"): potential(2, 2)}
        ),
        "isolated variable": DiscreteModel({"a": 2, "alone": 3, "b": 2}, {("a", "b"): potential(2, 2)}),
        "singleton": DiscreteModel({"only": ("yes", "no", "maybe")}, {("only",): potential(3)}),
        "repeated and permuted cliques": DiscreteModel(
            {"a": 2, "b": 3, "c": 2},
            [
                (("a", "b"), potential(2, 3)),
                (("b", "a"), potential(3, 2)),
                (("a", "b"), potential(2, 3)),
                (("c", "b"), potential(2, 3)),
            ],
        ),
        "structural zeros": DiscreteModel(
            {"a": 2, "b": 3, "c": 2},
            {("a", "b"): zeros, ("b", "c"): potential(3, 2), ("a", "c"): potential(2, 2)},
        ),
    }
