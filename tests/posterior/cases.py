"""Posteriors whose labels and shapes are awkward to store."""

from __future__ import annotations

import numpy as np
import pandas as pd

import headcount as hc
from headcount.engines import MAP, Posterior


def birds() -> Posterior:
    """A chain on a grid with places."""
    world = hc.simulate.birds(side=3, population=200, steps=4, rng=1)
    return hc.infer(hc.Problem(world.model, 200, [hc.Poisson(world.observed)]))


def dated() -> Posterior:
    """A chain with dates, names, a missing count and an engine without spread."""
    chain = hc.MarkovChain(
        [1, 0], [[0.9, 0.1], [0.5, 0.5]], times=pd.date_range("2020-01-01", periods=3), cells=["pond", "hill"]
    )
    return hc.infer(hc.Problem(chain, 100, [hc.Poisson([[np.nan, np.nan], [80, 10], [np.nan, 14]])]), MAP())


def pets() -> Posterior:
    """A network that is no chain, with a table on two variables."""
    tree = hc.Tree(
        [0.5, 0.5],
        {"b": ("a", [[0.9, 0.1], [0.2, 0.8]]), "c": ("a", [[0.5, 0.5], [1.0, 0.0]])},
        root="a",
        states={"a": ["x", "y"], "b": ["u", "v"], "c": ["k", "l"]},
    )
    return hc.infer(hc.Problem(tree, 100, [hc.Poisson([30, 60], on="b")]))
