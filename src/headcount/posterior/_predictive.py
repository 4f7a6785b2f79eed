"""Replicate data: what would be counted again, if the posterior is right. Draws of n, then of the noise given n."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.posterior._draws import margin
from headcount.posterior._fit_check import count_labels
from headcount.posterior._frames import is_plain_chain, label_array

if TYPE_CHECKING:
    from collections.abc import Mapping

    import xarray as xr

    from headcount._types import Array, Scope
    from headcount.observe import Problem
    from headcount.posterior._posterior import Posterior


def predictive(posterior: Posterior, size: int, *, rng: np.random.Generator) -> xr.DataArray:
    """Replicates of all counts, dims ``draw, observation``."""
    whole = posterior.promises.non_negative
    tables = posterior.beliefs.sample(size, rng=rng, integer=whole)
    n = drawn_entries(posterior.problem, tables)
    import xarray as xr

    coords = observation_coordinates(posterior.problem)
    values = replicates(posterior.problem, n, rng)
    return xr.DataArray(values, dims=("draw", "observation"), coords=coords, name="y")


def observed_counts(problem: Problem) -> Array:
    """y, all sites after each other."""
    return np.concatenate([np.asarray(site.noise.counts, dtype=float) for site in problem.sites])


def drawn_entries(problem: Problem, tables: Mapping[Scope, Any]) -> Array:
    """The true numbers behind all counts in draws of all clique tables, shape (draws, counts)."""
    known = {scope: np.asarray(table, dtype=float) for scope, table in tables.items()}
    size = len(next(iter(known.values())))
    parts = [site.margin(margin(known, site.scope).reshape(size, -1)) for site in problem.sites]
    return np.concatenate(parts, axis=1)


def replicates(problem: Problem, n: Array, rng: np.random.Generator) -> Array:
    """Counts drawn given the true numbers, shape (draws, counts).

    An engine whose counts may be negative (`Laplace`, `ClosedForm`) draws real numbers; a noise that has no law there is drawn at the
    nearest whole number ≥ 0.

    Raises
    ------
    NotImplementedError
        If a noise has no `sample`.
    """
    y = np.zeros(n.shape)
    for index, law in problem.noises:
        try:
            y[:, index] = law.sample(n[:, index], rng=rng)
        except ValueError:
            y[:, index] = law.sample(np.maximum(np.rint(n[:, index]), 0.0), rng=rng)
    return y


def log_likelihoods(problem: Problem, n: Array) -> Array:
    """log l(y | n) of every count, shape (draws, counts); counts with correlated errors in whitened coordinates, whose sum is right."""
    made = np.zeros(n.shape)
    for index, law in problem.noises:
        made[:, index] = law.log_prob(n[:, index])
    return made


def observation_coordinates(problem: Problem) -> dict[str, tuple[str, Any]]:
    """Along ``observation``: the name of each count and, where it is one entry of one variable's table, which."""
    labels = count_labels(problem, np.arange(sum(map(len, problem.sites))))
    made = {"name": ("observation", np.array(labels["names"], dtype=object))}
    if None in labels["variables"] or None in labels["states"]:
        return made
    first, second = ("time", "cell") if is_plain_chain(problem.model) else ("variable", "state")
    return made | {
        first: ("observation", label_array(labels["variables"])),
        second: ("observation", label_array(labels["states"])),
    }
