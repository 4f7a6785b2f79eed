"""Tiny problems, each awkward in its own way, that every sampler is held against the enumeration on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headcount.individual import DiscreteModel, MarkovChain, Tree
from headcount.observe import (
    Binomial,
    Exact,
    Gaussian,
    LaplaceNoise,
    NegativeBinomial,
    Observation,
    Poisson,
    Problem,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Cauchy(Observation):
    """A noise of the user's own: heavy tails, not log-concave, `log_prob` only."""

    scale: float = 1.0

    def log_prob(self, n):
        return -np.log(np.pi * self.scale * (1 + ((self.counts - n) / self.scale) ** 2))


def _law(rng, *shape):
    return rng.dirichlet(np.ones(shape[-1]), size=shape[:-1] or None)


def _star(rng):
    return Tree(_law(rng, 2), {leaf: ("hub", _law(rng, 2, 2)) for leaf in ("north", "east", "south")})


def _uneven(rng):
    edges = {"b": ("a", _law(rng, 2, 3)), "c": ("a", _law(rng, 2, 2)), "d": ("b", _law(rng, 3, 2))}
    return Tree(_law(rng, 2), edges)


def cases() -> dict[str, Problem]:
    """The table; the same on every call. Structural zeros are only in those whose name says so."""
    rng = np.random.default_rng(8)
    two = MarkovChain(_law(rng, 2), [_law(rng, 2, 2) for _ in range(2)])
    three = MarkovChain(_law(rng, 3), [_law(rng, 3, 3), _law(rng, 3, 3)])
    pair = MarkovChain([0.5, 0.5], [[[0.8, 0.2], [0.3, 0.7]]])
    ring = np.array([[0.6, 0.4, 0.0], [0.0, 0.5, 0.5], [0.7, 0.0, 0.3]])
    nan = np.nan
    nodes = Poisson([[1, 2], [nan, 0], [3, 1]])
    flows = Poisson([[1, nan], [0, 2]], on=(0, 1), rate=0.8)
    region = Gaussian([2.2, 1.1], sd=0.7, on=1, sums=[[1, 1, 0], [0, 1, 1]])
    cordon = Poisson([2.0], on=(0, 1), sums=[[0, 1, 1, 0, 0, 1, 0, 0, 0]])
    return {
        "a missing count": Problem(two, 4, [nodes]),
        "rates and background": Problem(
            two, 4, [Poisson([[1, 2], [2, 0], [3, 1]], rate=0.4, background=0.5)]
        ),
        "all zeros": Problem(two, 3, [Poisson(np.zeros((3, 2)))]),
        "every cell must be full": Problem(pair, 2, [Poisson([[1, 2], [1, 1]])]),
        "three cells": Problem(three, 3, [Poisson([[0, 2, 1], [1, 1, 1], [0, 0, 4]])]),
        "nothing seen": Problem(two, 3, []),
        "one variable": Problem(MarkovChain(_law(rng, 3), []), 4, [Poisson([[2, 0, 1]])]),
        "one individual": Problem(three, 1, [Poisson([[0, 1, 0], [0, 0, 0], [1, 0, 0]])]),
        "deterministic start": Problem(
            MarkovChain([0, 1], [_law(rng, 2, 2)] * 2), 4, [Poisson([[nan, nan], [3, 0], [1, 2]])]
        ),
        "observed flows": Problem(two, 4, [flows, Poisson([1.0, 3.0], on=2)]),
        "sums of cells and of flows": Problem(three, 3, [region, cordon, Poisson([1, 0, 2], on=2)]),
        "a cell seen twice": Problem(two, 3, [nodes, Gaussian([1.5, nan], sd=1.0, on=0)]),
        "star": Problem(
            _star(rng),
            3,
            [Poisson([2, 1], on="hub"), Poisson([0, 2], on="east"), Poisson([3, 0], on="south")],
        ),
        "tree with observed flows": Problem(
            _uneven(rng),
            3,
            [Poisson([[1, 0, 1], [0, 2, 0]], on=("a", "b")), Gaussian([1, 2.5], sd=0.8, on="d")],
        ),
        "tree from potentials": Problem(
            DiscreteModel(
                {"x": 2, "y": 3, "z": 2},
                {("y", "x"): rng.normal(size=(3, 2)), ("z", "y"): rng.normal(size=(2, 3))},
            ),
            3,
            [Poisson([1, 1, 0], on="y"), Poisson([[0, 1], [0, 0], [2, 0]], on=("y", "z"))],
        ),
        "exact and noisy": Problem(two, 4, [Exact([3, 1], on=1), Poisson([2.0, 3.0], on=2)]),
        "negative binomial": Problem(two, 4, [NegativeBinomial([[1, 2], [2, 0], [3, 1]], dispersion=2.0)]),
        "binomial": Problem(two, 4, [Binomial([[1, 2], [2, 0], [nan, 1]], detection=0.6)]),
        "laplace": Problem(two, 4, [LaplaceNoise([[1.2, 2.0], [-0.5, 3.1], [nan, 1.0]], scale=0.9)]),
        "a noise of one's own": Problem(two, 4, [Cauchy([[1.0, 5.0], [0.0, 2.0], [3.0, 1.0]], scale=0.6)]),
        "structural zeros": Problem(
            MarkovChain([0.5, 0.5, 0], ring, length=3), 3, [Poisson([[1, 2, nan], [0, 1, 2], [1, 0, 1]])]
        ),
    }


def scopes(problem: Problem) -> list[tuple]:
    """Every variable and every clique."""
    cliques = [tuple(c) for c in problem.model.junction_tree.cliques]
    return list(dict.fromkeys([*((v,) for v in problem.model.variables), *cliques]))
