"""The laws of counts by brute force: every joint state, every ordered sample."""

from __future__ import annotations

import itertools

import numpy as np

from headcount.individual import Model
from headcount.numerics import log_factorial
from headcount.population import CGM, CountTables
from headcount.tables import dense


def joint(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Every joint state (J, V) as indices, and its probability (J,), from the factors themselves."""
    states = np.array(list(itertools.product(*(range(s) for s in model.size(model.variables)))), dtype=int)
    states = states.reshape(-1, len(model.variables))
    column = {v: k for k, v in enumerate(model.variables)}
    log_p = np.zeros(len(states))
    for scope, theta in model.factors:
        log_p = log_p + np.asarray(theta)[tuple(states[:, column[v]] for v in scope)]
    p = np.exp(log_p - log_p.max())
    return states, p / p.sum()


def indicators(model: Model, states: np.ndarray, scope: tuple) -> np.ndarray:
    """1[x_A = i_A], shape (J, entries of A), C order."""
    column = {v: k for k, v in enumerate(model.variables)}
    shape = model.size(scope)
    flat = np.zeros(len(states), dtype=int)
    for v, size in zip(scope, shape, strict=True):
        flat = flat * size + states[:, column[v]]
    return (flat[:, None] == np.arange(int(np.prod(shape, dtype=int)))).astype(int)


def stacked(model: Model, states: np.ndarray) -> np.ndarray:
    """The indicators of all cliques side by side."""
    return np.concatenate([indicators(model, states, c) for c in model.junction_tree.cliques], axis=1)


def ordered_samples(model: Model, size: int) -> dict[tuple[int, ...], tuple[int, float]]:
    """For every vector of clique counts: how many ordered samples have it, and their total probability."""
    states, p = joint(model)
    states, p = states[p > 0], p[p > 0]
    one = stacked(model, states)
    counts, weights = one, p
    for _ in range(size - 1):
        counts = (counts[:, None, :] + one[None]).reshape(-1, one.shape[1])
        weights = (weights[:, None] * p[None]).reshape(-1)
    keys, index, number = np.unique(counts, axis=0, return_inverse=True, return_counts=True)
    total = np.bincount(index.reshape(-1), weights)
    return {tuple(k): (int(c), float(t)) for k, c, t in zip(keys.tolist(), number, total, strict=True)}


def key(tables: CountTables) -> tuple[int, ...]:
    """All clique counts of one set of tables, as `ordered_samples` names them."""
    cliques = tables.model.junction_tree.cliques
    return tuple(np.concatenate([tables.table(c).reshape(-1) for c in cliques]).tolist())


def log_base_measure(law: CGM, tables: CountTables) -> float:
    """Log h(n), the log of the number of ordered samples with these counts; −∞ if there is none."""
    if tables.population != law.population or tables.disagreements():
        return -np.inf
    signed = [(sign, dense(tables.table(scope)).reshape(-1)) for scope, sign in law.signed_scopes]
    return float(log_factorial(law.population) - sum(sign * log_factorial(n).sum() for sign, n in signed))


def log_pmf_of_potentials(law: CGM, tables: CountTables) -> float:
    """Log p(n) = log h(n) + Σ_C θ_C·n_C − N A(θ), where 0·(−∞) = 0."""
    value = log_base_measure(law, tables) - law.population * law.model.log_partition
    for scope, theta in law.model.factors:
        counts = dense(tables.table(scope))
        held = counts > 0
        value += float((counts[held] * np.asarray(theta)[held]).sum())
    return value
