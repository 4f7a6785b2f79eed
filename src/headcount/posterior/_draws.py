"""Whole-number tables that agree with each other, near given real ones.

Down the junction tree: the root's table is rounded to total N; every further table is rounded, for each state of its
separator, to the whole number of individuals its parent has there. Rounding is systematic and random (each entry is its floor or
ceiling, in proportion), so it is unbiased, and margins agree by construction.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from headcount.individual import Model

    Array = NDArray[np.float64]
    Scope = tuple[Hashable, ...]


def round_rows(rows: Array, totals: Array, *, rng: np.random.Generator) -> Array:
    """Round every row to whole numbers ≥ 0 with the given whole total, in proportion to its positive part."""
    positive = np.maximum(rows, 0.0)
    sums = positive.sum(axis=1)
    empty = (sums <= 0) & (totals > 0)
    positive[empty] = 1.0  # a draw with nothing positive where someone must be: spread evenly
    sums = np.where(empty, positive.shape[1], sums)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = positive * np.where(sums > 0, totals / sums, 0.0)[:, None]
    edges = np.cumsum(scaled, axis=1)
    edges[:, -1] = totals  # rounding of the sum must not lose an individual
    start = rng.random(len(rows))[:, None]
    marks = np.ceil(np.maximum(edges - start, -start))
    return np.diff(np.concatenate([np.zeros((len(rows), 1)), np.maximum(marks, 0.0)], axis=1), axis=1)


def round_consistently(
    draws: dict[Scope, Array], model: Model, population: int, *, rng: np.random.Generator
) -> dict[Scope, Array]:
    """Whole-number tables for every clique from real-valued draws ``(size, *table)``."""
    given = {frozenset(c): (c, d) for c, d in draws.items()}
    order, parent, separators = zip(*model.junction_tree.steps, strict=True)
    cliques = [tuple(model.junction_tree.cliques[c]) for c in order]
    done: list[Array] = []
    for v, clique in enumerate(cliques):
        name, draw = given[frozenset(clique)]
        draw = np.moveaxis(draw, [1 + name.index(x) for x in clique], range(1, len(clique) + 1))
        size = len(draw)
        shared = separators[v]
        axes = [1 + clique.index(x) for x in shared]
        front = np.moveaxis(draw, axes, range(1, len(axes) + 1))
        width = math.prod(front.shape[1 : len(axes) + 1])
        rows = front.reshape(size * width, -1).astype(float)
        totals = np.full(size * width, float(population))
        if parent[v] >= 0 and shared:
            above, above_scope = done[parent[v]], cliques[parent[v]]
            others = tuple(1 + k for k, x in enumerate(above_scope) if x not in shared)
            left = [x for x in above_scope if x in shared]
            margin = np.transpose(above.sum(axis=others), [0, *(1 + left.index(x) for x in shared)])
            totals = margin.reshape(-1)
        whole = round_rows(rows, totals, rng=rng).reshape(front.shape)
        done.append(np.moveaxis(whole, range(1, len(axes) + 1), axes))
    return dict(zip(cliques, done, strict=True))
