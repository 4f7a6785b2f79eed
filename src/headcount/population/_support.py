"""The support of the exact law: every consistent integer table of positive probability, for tiny cases."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from headcount._types import Counts, Mask
from headcount.individual import Model, ModelError
from headcount.tables import Domain, Scope, dense


def compositions(total: int, parts: int) -> NDArray[np.signedinteger]:
    """Every way to write `total` as an ordered sum of `parts` integers ≥ 0, one per row, in the smallest type that holds them."""
    kind = np.result_type(np.int16, np.min_scalar_type(-total - 1))
    if parts == 0:
        return np.zeros((1 if total == 0 else 0, 0), dtype=kind)
    rows = np.zeros((1, 0), dtype=kind)
    left = np.array([total], dtype=np.int64)
    for _ in range(parts - 1):
        choices = left + 1
        parent = np.repeat(np.arange(len(left)), choices)
        value = np.arange(len(parent)) - np.repeat(np.cumsum(choices) - choices, choices)
        rows = np.concatenate([rows[parent], value[:, None].astype(kind)], axis=1)
        left = left[parent] - value
    return np.concatenate([rows, left[:, None].astype(kind)], axis=1)


def support_bound(model: Model, means: Mapping[Scope, Any], population: int) -> float:
    """Bound from above how many tables the support has, cheaply.

    Given its separator, a clique's table splits each n_S(s) into R_s possible parts: Π_s C(n_S(s) + R_s −
    1, R_s − 1) ways. That is log-concave in n_S, so with R = max R_s over k possible s it is at most C(N/k
    + R − 1, R − 1)^k.
    """
    tree = model.junction_tree
    log_bound = _log_compositions(population, int(np.count_nonzero(dense(means[tree.cliques[0]]))))
    for _, b, separator in tree.edges:
        possible = dense(means[tree.cliques[b]]) > 0
        parts = tree.domains[b].project(possible.astype(int), separator).reshape(-1)
        rows = np.count_nonzero(parts)
        log_bound += rows * _log_compositions(population / rows, int(parts.max()))
    return math.exp(log_bound) if log_bound < 700 else math.inf


def _log_compositions(total: float, parts: int) -> float:
    return float(gammaln(total + parts) - gammaln(parts) - gammaln(total + 1))


def enumerate_support(
    model: Model, means: Mapping[Scope, Any], population: int, *, limit: float
) -> Iterator[dict[Scope, Counts]]:
    """Yield the clique tables of every point of the support once.

    Raises
    ------
    ModelError
        If there may be more than `limit` of them, with both numbers.
    """
    bound = support_bound(model, means, population)
    if bound > limit:
        raise ModelError(
            f"the support may hold up to {bound:.3g} tables and the limit is {limit:.3g}; "
            f"take a smaller population or model, or raise limit"
        )
    tree = model.junction_tree
    possible = {clique: dense(means[clique]) > 0 for clique in tree.cliques}
    for table in _splits(np.array(population), possible[tree.cliques[0]], tree.domains[0], ()):
        yield from _extend(model, possible, {tree.cliques[0]: table}, 0)


def _extend(
    model: Model,
    possible: Mapping[Scope, Mask],
    tables: dict[Scope, Counts],
    depth: int,
) -> Iterator[dict[Scope, Counts]]:
    tree = model.junction_tree
    if depth == len(tree.edges):
        yield dict(tables)
        return
    a, b, separator = tree.edges[depth]
    clique = tree.cliques[b]
    above = tree.domains[a].project(tables[tree.cliques[a]], separator)
    for table in _splits(above, possible[clique], tree.domains[b], separator):
        yield from _extend(model, possible, {**tables, clique: table}, depth + 1)


def _splits(counts: Counts, possible: Mask, clique: Domain, separator: Scope) -> Iterator[Counts]:
    """Every table of a clique whose margin on the separator is `counts`."""
    front, back = clique.rows(separator)
    turned = possible.transpose(front)
    mask = turned.reshape(np.size(counts), -1)
    for rows in _each_row(np.reshape(counts, -1), mask.sum(axis=1)):
        table = np.zeros(mask.shape, dtype=np.int64)
        table[mask] = rows
        yield table.reshape(turned.shape).transpose(back)


def _each_row(counts: Counts, parts: Counts) -> Iterator[tuple[int, ...]]:
    if counts.size == 0:
        yield ()
        return
    for first in compositions(int(counts[0]), int(parts[0])).tolist():
        for others in _each_row(counts[1:], parts[1:]):
            yield (*first, *others)
