r"""Log-space sum–product on a junction tree, exact with −inf.

Collect:     beta_C(x_C) = theta_C(x_C) + sum_{children K} m_K(x_S),   m_K(x_S) = log sum_{x_K \ x_S} exp
beta_K(x_K) Distribute:  log mu_K(x_K) = beta_K(x_K) − m_K(x_S) + log mu_S(x_S) Partition:   A(theta) = log
sum exp beta_root
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headcount.individual._errors import ModelError
from headcount.individual._junction_tree import JunctionTree, readable_bytes

Scope = tuple[Hashable, ...]
Table = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Calibration:
    """A(theta), and the log marginal of every clique of `tree`."""

    tree: JunctionTree
    log_partition: float
    log_marginals: tuple[Table, ...]


def log_sum_exp(table: Table, axes: tuple[int, ...]) -> Table:
    """Log sum exp over `axes`; −inf where every term is −inf."""
    if not axes:
        return table
    top = np.max(table, axis=axes, keepdims=True)
    top = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(divide="ignore"):
        total = np.log(np.sum(np.exp(table - top), axis=axes, keepdims=True)) + top
    return np.squeeze(total, axis=axes)


def expand(table: Table, scope: Sequence[Hashable], onto: Sequence[Hashable]) -> Table:
    """A view of `table` with the axes of `onto`, of length 1 where `scope` lacks the variable."""
    order = [scope.index(v) for v in onto if v in scope]
    shape = [table.shape[scope.index(v)] if v in scope else 1 for v in onto]
    return table.transpose(order).reshape(shape)


def marginalise(table: Table, scope: Sequence[Hashable], onto: Sequence[Hashable]) -> Table:
    """The log table of `onto` ⊆ `scope`, its axes in the order of `onto`."""
    kept = [v for v in scope if v in onto]
    summed = log_sum_exp(table, tuple(k for k, v in enumerate(scope) if v not in onto))
    return summed.transpose([kept.index(v) for v in onto])


def minus(a: Table, b: Table) -> Table:
    """A − b in log space where b = −inf implies a = −inf (0/0 = 0)."""
    return a - np.where(np.isneginf(b), 0.0, b)


def calibrate(tree: JunctionTree, factors: Iterable[tuple[Scope, Table]]) -> Calibration:
    """A(theta) and all clique marginals, by one pass to clique 0 and one back.

    Raises
    ------
    ModelError
        If the potentials leave no configuration possible.
    """
    cliques = tree.cliques
    beta = [np.zeros([tree.sizes[v] for v in clique]) for clique in cliques]
    for scope, theta in factors:
        home = tree.covering(scope)
        if home is None:
            raise ModelError(
                f"no clique of the junction tree holds the factor over {scope!r}: build the tree with its "
                "scope"
            )
        beta[home] += expand(theta, scope, cliques[home])
    messages: dict[int, Table] = {}
    for a, b, separator in reversed(tree.edges):
        messages[b] = marginalise(beta[b], cliques[b], separator)
        beta[a] += expand(messages[b], separator, cliques[a])
    log_partition = float(log_sum_exp(beta[0], tuple(range(beta[0].ndim))))
    if log_partition == -math.inf:
        raise ModelError(
            "the potentials are −inf for every configuration, so no law is left: check the structural zeros"
        )
    beta[0] -= log_partition
    for a, b, separator in tree.edges:
        above = marginalise(beta[a], cliques[a], separator)
        beta[b] += expand(minus(above, messages[b]), separator, cliques[b])
    return Calibration(tree, log_partition, tuple(beta))


def log_marginal(calibration: Calibration, scope: Scope, *, memory_limit: int) -> Table:
    """Log mu_A for any scope A, in one clique or not.

    Out of one clique, the conditionals mu_C / mu_S are multiplied over the part of the tree that A spans, and
    every variable is summed out as soon as neither A nor the rest of the tree needs it.
    """
    tree = calibration.tree
    home = tree.covering(scope)
    if home is not None:
        return marginalise(calibration.log_marginals[home], tree.cliques[home], scope)
    require_table(math.prod(tree.sizes[v] for v in scope), memory_limit)
    wanted = set(scope)
    table: dict[int, Table] = dict(enumerate(calibration.log_marginals))
    over: dict[int, Scope] = dict(enumerate(tree.cliques))
    below = {c: wanted & set(clique) for c, clique in enumerate(tree.cliques)}
    for a, b, separator in reversed(tree.edges):
        carried = below[b] - set(separator)
        if not carried:
            continue
        below[a] |= below[b]
        parent = marginalise(calibration.log_marginals[b], tree.cliques[b], separator)
        conditional = minus(table.pop(b), expand(parent, separator, over[b]))
        keep = tuple(v for v in over[b] if v in separator or v in carried)
        table[a], over[a] = _product(
            table[a], over[a], marginalise(conditional, over[b], keep), keep, memory_limit
        )
        if wanted <= below[a]:
            return marginalise(table[a], over[a], scope)
    raise AssertionError("a scope of known variables is always reached")


def _product(a: Table, over_a: Scope, b: Table, over_b: Scope, limit: int) -> tuple[Table, Scope]:
    union = (*over_a, *(v for v in over_b if v not in over_a))
    sizes = dict(zip((*over_a, *over_b), (*a.shape, *b.shape), strict=True))
    require_table(math.prod(sizes[v] for v in union), limit)
    return expand(a, over_a, union) + expand(b, over_b, union), union


def require_table(entries: int, limit: int) -> None:
    """Refuse, before it is allocated, a table that takes more than `limit` bytes."""
    if 8 * entries > limit:
        raise ModelError(
            f"this marginal needs a table of {entries:,} entries ({readable_bytes(8 * entries)}), the limit "
            f"is {readable_bytes(limit)}: ask for fewer variables at once, or give a larger memory_limit"
        )
