"""The support of the exact law: every consistent integer table of positive probability, for tiny cases."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from headcount.individual import Model, ModelError
from headcount.population._margins import Scope, Table, dense, margin


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to write `total` as an ordered sum of `parts` integers ≥ 0."""
    if parts == 0:
        if total == 0:
            yield ()
        return
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for others in compositions(total - first, parts - 1):
            yield (first, *others)


def support_bound(model: Model, means: Mapping[Scope, Table], population: int) -> float:
    """Bound from above how many tables the support has, cheaply.

    Given its separator, a clique's table splits each n_S(s) into R_s possible parts: Π_s C(n_S(s) + R_s −
    1, R_s − 1) ways. That is log-concave in n_S, so with R = max R_s over k possible s it is at most C(N/k
    + R − 1, R − 1)^k.
    """
    tree = model.junction_tree
    log_bound = _log_compositions(population, int(np.count_nonzero(dense(means[tree.cliques[0]]))))
    for _, b, separator in tree.edges:
        possible = dense(means[tree.cliques[b]]) > 0
        parts = margin(possible.astype(int), tree.cliques[b], separator).reshape(-1)
        rows = np.count_nonzero(parts)
        log_bound += rows * _log_compositions(population / rows, int(parts.max()))
    return math.exp(log_bound) if log_bound < 700 else math.inf


def _log_compositions(total: float, parts: int) -> float:
    return float(gammaln(total + parts) - gammaln(parts) - gammaln(total + 1))


def enumerate_support(
    model: Model, means: Mapping[Scope, Table], population: int, *, limit: float
) -> Iterator[dict[Scope, NDArray[np.int64]]]:
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
    root = model.junction_tree.cliques[0]
    possible = {clique: dense(means[clique]) > 0 for clique in model.junction_tree.cliques}
    for table in _splits(np.array(population), possible[root], root, ()):
        yield from _extend(model, possible, {root: table}, 0)


def _extend(
    model: Model,
    possible: Mapping[Scope, NDArray[np.bool_]],
    tables: dict[Scope, NDArray[np.int64]],
    depth: int,
) -> Iterator[dict[Scope, NDArray[np.int64]]]:
    tree = model.junction_tree
    if depth == len(tree.edges):
        yield dict(tables)
        return
    a, b, separator = tree.edges[depth]
    clique = tree.cliques[b]
    above = margin(tables[tree.cliques[a]], tree.cliques[a], separator)
    for table in _splits(above, possible[clique], clique, separator):
        yield from _extend(model, possible, {**tables, clique: table}, depth + 1)


def _splits(
    counts: NDArray[np.int64], possible: NDArray[np.bool_], clique: Scope, separator: Scope
) -> Iterator[NDArray[np.int64]]:
    """Every table of a clique whose margin on the separator is `counts`."""
    order = [clique.index(v) for v in (*separator, *(v for v in clique if v not in separator))]
    turned = possible.transpose(order)
    flat = np.reshape(counts, -1)
    mask = turned.reshape(flat.size, -1)
    for rows in _each_row(flat, mask.sum(axis=1)):
        table = np.zeros(mask.shape, dtype=np.int64)
        table[mask] = rows
        yield table.reshape(turned.shape).transpose(np.argsort(order))


def _each_row(counts: NDArray[np.int64], parts: NDArray[np.int64]) -> Iterator[tuple[int, ...]]:
    if counts.size == 0:
        yield ()
        return
    for first in compositions(int(counts[0]), int(parts[0])):
        for others in _each_row(counts[1:], parts[1:]):
            yield (*first, *others)
