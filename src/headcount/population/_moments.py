"""Moments of counts, the same for the exact and the Gaussian law and exact for every N:

    E n_A = N μ_A,        cov(n_A, n_B) = N (⟨μ_{A,B}⟩ − μ_A μ_Bᵀ)

⟨μ_{A,B}⟩ has entries P(x_A = i_A, x_B = i_B); A and B may be the same, overlap, or lie far apart.
"""  # noqa: D400

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from headcount.individual import Model, ModelError
from headcount.population._margins import Table

MEMORY_LIMIT = 2**31
"""Bytes one covariance matrix may take unless the caller says otherwise: 2 GiB."""


def checked_population(population: Any) -> int:
    """N as an integer ≥ 1 below 2⁵³, where floating point still counts one by one."""
    try:
        count = operator.index(population)
    except TypeError:
        count = int(population) if isinstance(population, float) and population.is_integer() else -1
    if not 1 <= count < 2**53:
        raise ModelError(f"population is {population!r}; give a whole number from 1 to 2**53")
    return count


def mean(model: Model, population: float, scope: Sequence[Hashable]) -> NDArray[np.float64]:
    """N μ_A, one axis per variable."""
    return population * model.marginal(scope)


def covariance(
    model: Model,
    population: float,
    a: Sequence[Hashable],
    b: Sequence[Hashable] | None = None,
    *,
    memory_limit: int = MEMORY_LIMIT,
) -> NDArray[np.float64]:
    """N (⟨μ_{A,B}⟩ − μ_A μ_Bᵀ), rows and columns in C order of the tables; b = a if left out.

    Raises
    ------
    ModelError
        If the matrix would take more than `memory_limit` bytes, with both numbers.
    """
    b = a if b is None else b
    rows, columns = math.prod(model.size(a)), math.prod(model.size(b))
    require_memory(8 * rows * columns, f"the covariance of {tuple(a)!r} and {tuple(b)!r}", limit=memory_limit)
    mu_a, mu_b = model.marginal(a).reshape(-1), model.marginal(b).reshape(-1)
    return population * (model.joint_marginal(a, b) - np.outer(mu_a, mu_b))


def require_memory(needed: int, what: str, *, limit: int) -> None:
    """Refuse, before anything is allocated, what takes more than `limit` bytes."""
    if needed > limit:
        raise ModelError(
            f"{what} takes {needed / 2**20:,.0f} MiB and the limit is {limit / 2**20:,.0f} MiB; "
            f"ask for smaller margins, or raise memory_limit"
        )


def table_means(model: Model, population: float) -> dict[tuple[Hashable, ...], Table]:
    """N μ_A of every clique and separator.

    An edge of a rooted tree is diag(N μ_u) P, read off its transition matrix: a sparse one stays sparse,
    and a long chain costs no more per step than a short one.
    """
    tree = model.junction_tree
    rooted = model.rooted()
    edges: dict[tuple[Hashable, ...], int] = dict(rooted.edge_of.items()) if rooted is not None else {}
    means: dict[tuple[Hashable, ...], Table] = {}
    for scope in dict.fromkeys([*tree.cliques, *tree.separators]):
        edge = edges.get(scope, edges.get(scope[::-1]))
        if rooted is None or edge is None:
            means[scope] = population * model.marginal(scope)
        elif scope in edges:
            means[scope] = _edge_mean(population * model.marginal(scope[:1]), rooted.transitions[edge])
        else:
            means[scope] = _turned(
                _edge_mean(population * model.marginal(scope[1:]), rooted.transitions[edge])
            )
    return means


def _edge_mean(above: NDArray[np.float64], transition: Any) -> Table:
    """diag(N μ_u) P."""
    if sparse.issparse(transition):
        return sparse.csr_array(sparse.diags_array(above) @ transition)
    return above[:, None] * transition


def _turned(table: Table) -> Table:
    return sparse.csr_array(table.T) if sparse.issparse(table) else np.ascontiguousarray(table.T)
