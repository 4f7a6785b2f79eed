"""Moments of counts, the same for the exact and the Gaussian law and exact for every N:

    E n_A = N μ_A,        cov(n_A, n_B) = N (⟨μ_{A,B}⟩ − μ_A μ_Bᵀ)

⟨μ_{A,B}⟩ has entries P(x_A = i_A, x_B = i_B); A and B may be the same, overlap, or lie far apart.
"""  # noqa: D400

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from headcount import memory
from headcount._types import Array
from headcount.checks import whole_number
from headcount.individual import Model

Table = Any


def checked_population(population: Any) -> int:
    """N as an integer from 1 to 2⁵³, up to which floating point counts one by one."""
    return whole_number(population, "population", least=1)


def mean(model: Model, population: float, scope: Sequence[Hashable]) -> Array:
    """N μ_A, one axis per variable."""
    return population * model.marginal(scope)


def covariance(
    model: Model,
    population: float,
    a: Sequence[Hashable],
    b: Sequence[Hashable] | None = None,
    *,
    memory_limit: int | None = None,
) -> Array:
    """N (⟨μ_{A,B}⟩ − μ_A μ_Bᵀ), rows and columns in C order of the tables; b = a if left out.

    Raises
    ------
    ModelError
        If the matrix would take more than `memory_limit` bytes, with both numbers.
    """
    b = a if b is None else b
    rows, columns = model.domain(a).size, model.domain(b).size
    memory.require(
        8 * rows * columns,
        f"the covariance of {tuple(a)!r} and {tuple(b)!r}",
        limit=memory_limit,
        remedy="ask for smaller margins",
    )
    mu_a, mu_b = model.marginal(a).reshape(-1), model.marginal(b).reshape(-1)
    return population * (model.joint_marginal(a, b) - np.outer(mu_a, mu_b))


def table_means(model: Model, population: float) -> dict[tuple[Hashable, ...], Table]:
    """N μ_A of every clique and separator.

    An edge of a rooted tree is diag(N μ_u) P, read off its transition matrix: a sparse one stays sparse,
    and a long chain costs no more per step than a short one.
    """
    tree = model.junction_tree
    rooted = model.rooted()
    if rooted is None or not any(rooted.is_sparse):
        memory.require(
            8 * sum(tree.table_sizes),
            "the expected tables of all cliques",
            remedy="give sparse transitions or merge states",
        )
    means: dict[tuple[Hashable, ...], Table] = {}
    for scope in dict.fromkeys([*tree.cliques, *tree.separators]):
        place = rooted.find(scope) if rooted is not None else None
        if rooted is None or place is None or not place.edge:
            means[scope] = population * model.marginal(scope)
            continue
        above = population * model.marginal(scope[1:] if place.turned else scope[:1])
        table = place.turn(_edge_mean(above, rooted.transitions[place.node]))
        means[scope] = sparse.csr_array(table) if sparse.issparse(table) else np.ascontiguousarray(table)
    return means


def _edge_mean(above: Array, transition: Any) -> Table:
    """diag(N μ_u) P."""
    if sparse.issparse(transition):
        return sparse.csr_array(sparse.diags_array(above) @ transition)
    return above[:, None] * transition
