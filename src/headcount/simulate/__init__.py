"""Simulated populations: the migrating birds of the paper, and any other model."""

from headcount.simulate._birds import WINDS, Features, birds
from headcount.simulate._world import Noise, World, binomial, exact, gaussian, poisson, population

__all__ = [
    "WINDS",
    "Features",
    "Noise",
    "World",
    "binomial",
    "birds",
    "exact",
    "gaussian",
    "poisson",
    "population",
]
