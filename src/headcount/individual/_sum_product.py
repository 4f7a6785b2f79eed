r"""Log-space sum–product on a junction tree, exact with −inf.

Collect:     beta_C(x_C) = theta_C(x_C) + sum_{children K} m_K(x_S)
m_K(x_S) = log sum_{x_K \ x_S} exp beta_K(x_K)
Partition:   A(theta) = log sum_{x_root} exp beta_root(x_root)
Distribute:  log mu_K(x_K) = beta_K(x_K) − m_K(x_S) + log mu_S(x_S)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from headcount import memory
from headcount._types import Array, Scope
from headcount.errors import ModelError
from headcount.individual._junction_tree import JunctionTree
from headcount.tables import Domain

NO_LAW = "the potentials are −inf for every configuration, so no law is left: check the structural zeros"


@dataclass(frozen=True, eq=False)
class Calibration:
    """A(theta), and the log marginal of every clique of `tree`."""

    tree: JunctionTree
    log_partition: float
    log_marginals: tuple[Array, ...]


def log_sum_exp(table: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    """Log sum exp over `axis` (all if None); −inf where every term is −inf."""
    top = np.max(table, axis=axis, keepdims=True)
    top = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(divide="ignore"):
        total = np.log(np.sum(np.exp(table - top), axis=axis, keepdims=True)) + top
    return np.squeeze(total, axis=axis)


def minus(a: Array, b: Array) -> Array:
    """A − b in log space where b = −inf implies a = −inf (0/0 = 0)."""
    return a - np.where(np.isneginf(b), 0.0, b)


def calibrate(tree: JunctionTree, factors: Iterable[tuple[Scope, Array]]) -> Calibration:
    """A(theta) and all clique marginals, by one pass to clique 0 and one back.

    Raises
    ------
    ModelError
        If the potentials leave no configuration possible.
    """
    domains = tree.domains
    beta = [np.zeros(domain.shape) for domain in domains]
    for scope, theta in factors:
        home = tree.covering(scope)
        if home is None:
            raise ModelError(
                f"no clique of the junction tree holds the factor over {scope!r}: build the tree with its scope"
            )
        beta[home] += domains[home].expand(theta, scope)
    messages: dict[int, Array] = {}
    for a, b, separator in reversed(tree.edges):
        messages[b] = domains[b].project(beta[b], separator, total=log_sum_exp)
        beta[a] += domains[a].expand(messages[b], separator)
    log_partition = float(log_sum_exp(beta[0]))
    if log_partition == -math.inf:
        raise ModelError(NO_LAW)
    beta[0] -= log_partition
    for a, b, separator in tree.edges:
        above = domains[a].project(beta[a], separator, total=log_sum_exp)
        beta[b] += domains[b].expand(minus(above, messages[b]), separator)
    return Calibration(tree, log_partition, tuple(beta))


def log_marginal(calibration: Calibration, scope: Scope, *, memory_limit: int | None) -> Array:
    """Log mu_A for any scope A, in one clique or not.

    Out of one clique, the conditionals mu_C / mu_S are multiplied over the part of the tree that A spans, and
    every variable is summed out as soon as neither A nor the rest of the tree needs it.
    """
    tree = calibration.tree
    home = tree.covering(scope)
    if home is not None:
        return tree.domains[home].project(calibration.log_marginals[home], scope, total=log_sum_exp)
    _require_table(tree.domain(scope), memory_limit)
    wanted = set(scope)
    table: dict[int, Array] = dict(enumerate(calibration.log_marginals))
    over: dict[int, Domain] = dict(enumerate(tree.domains))
    below = {c: wanted & set(clique) for c, clique in enumerate(tree.cliques)}
    for a, b, separator in reversed(tree.edges):
        carried = below[b] - set(separator)
        if not carried:
            continue
        below[a] |= below[b]
        parent = tree.domains[b].project(calibration.log_marginals[b], separator, total=log_sum_exp)
        conditional = minus(table.pop(b), over[b].expand(parent, separator))
        keep = tuple(v for v in over[b].scope if v in separator or v in carried)
        kept = over[b].project(conditional, keep, total=log_sum_exp)
        union = tree.domain((*over[a].scope, *(v for v in keep if v not in over[a].scope)))
        _require_table(union, memory_limit)
        table[a] = union.expand(table[a], over[a].scope) + union.expand(kept, keep)
        over[a] = union
        if wanted <= below[a]:
            return union.project(table[a], scope, total=log_sum_exp)
    raise AssertionError("a scope of known variables is always reached")


def _require_table(domain: Domain, limit: int | None) -> None:
    memory.require(
        8 * domain.size,
        f"this marginal needs a table of {domain.size:,} entries, which",
        limit=limit,
        remedy="ask for fewer variables at once",
    )
