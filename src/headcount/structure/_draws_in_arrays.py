r"""Draws of moves by functions of whole arrays, for devices: the numbers of the compiled loops (``_matrix_free_kernels``), which see.

Noise is made for some origins at a time, (draws, origins, L_v) of a dense step and (draws, moves) of a sparse one, and summed by row and
by column; products with transitions are the matrix products of the device.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._device import issparse, namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headcount._types import Array
    from headcount.structure._prior_operator import PriorOperator

NOISE_AT_ONCE = 2**27
"""Numbers of noise made at once: 1 GB. A device's kernels run at full speed from about a hundredth of that."""


def _words(key: np.uint64, place: Any) -> Any:
    """64 pseudo-random bits of a key and of every place (the finaliser of splitmix64)."""
    z = key + (place + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def noise(key: np.uint64, moves: Any, size: Array, draws: int) -> Array:
    """Z times ``size`` for every draw and every position among a step's moves, (draws, *moves); all draws of a block."""
    from headcount.structure._matrix_free_kernels import DRAWS_PER_WORD, NORMAL

    xp = namespace(moves)
    if xp.__name__ == "cupy":
        places = moves[None] if moves.ndim else moves
        return _noise_kernel()(
            key, places, size[None], xp.arange(draws).reshape(-1, *[1] * moves.ndim), xp.asarray(NORMAL)
        )
    table, made = xp.asarray(NORMAL), []
    for first in range(0, draws, DRAWS_PER_WORD):
        words = _words(key, np.uint64(4) * moves + np.uint64(first // DRAWS_PER_WORD))
        for c in range(min(DRAWS_PER_WORD, draws - first)):
            made.append(size * table[((words >> np.uint64(4 * c)) & np.uint64(15)).astype(np.int64)])
    return np.stack(made)


@cache
def _noise_kernel() -> Any:
    """The same in one pass over memory, compiled by CuPy: in single operations it takes about twenty."""
    import cupy

    return cupy.ElementwiseKernel(
        "uint64 key, uint64 move, float64 size, int64 draw, raw float64 normal",
        "float64 made",
        """
        unsigned long long z = key + (4ULL * move + draw / 16 + 1ULL) * 0x9E3779B97F4A7C15ULL;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
        z ^= z >> 31;
        made = size * normal[(z >> (4 * (draw % 16))) & 15ULL];
        """,
        "headcount_noise",
    )


def _chances(prior: PriorOperator, v: int) -> Array:
    """P of the step into v; the root is a step from one cell that holds everyone."""
    return prior.mu[prior.slice(0)][None, :] if v == 0 else prior.chances(v)


def _expected(prior: PriorOperator, v: int) -> Array:
    """Expected counts that the step into v starts from."""
    if v == 0:
        return prior.xp.full(1, float(prior.population))
    return prior.population * prior.mu[prior.slice(int(prior.parents[v]))]


def noisy_moves(
    prior: PriorOperator, v: int, key: np.uint64, draws: int
) -> Iterator[tuple[slice, Array, Array]]:
    """Parts of the step into v: origins (of a sparse step all moves), their chances, and the noise w of their moves."""
    chances, expected, xp = _chances(prior, v), _expected(prior, v), prior.xp
    if chances.ndim == 1:
        size = np.sqrt(expected[prior.origins(v)] * chances)
        yield slice(None), chances, noise(key, xp.arange(len(chances), dtype=np.uint64), size, draws)
        return
    rows, width = chances.shape
    step = max(NOISE_AT_ONCE // (width * draws), 1)
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        p = chances[part]
        place = xp.arange(part.start * width, part.stop * width, dtype=np.uint64).reshape(p.shape)
        yield part, p, noise(key, place, np.sqrt(expected[part, None] * p), draws)


def totals(prior: PriorOperator, v: int, key: np.uint64, above: Array, below: Array | None = None) -> Array:
    """above_i − Σ_j w_ij for every origin and draw; Σ_i w_ij is added to ``below``, if given."""
    total = above.copy()
    for part, p, w in noisy_moves(prior, v, key, above.shape[1]):
        if p.ndim == 2:
            total[part] -= w.sum(axis=2).T
            arrived = w.sum(axis=1).T
        else:
            by_row, by_column = _sums(prior, v)
            total -= by_row @ w.T
            arrived = by_column @ w.T
        if below is not None:
            below += arrived
    return total


def _sums(prior: PriorOperator, v: int) -> tuple[Any, Any]:
    """Sparse matrices that sum moves by origin and by destination."""
    matrix, xp = prior.law.kernels[v], prior.xp
    ones, count = xp.ones(len(matrix.data)), xp.arange(len(matrix.data) + 1, dtype=np.int32)
    by_row = type(matrix)((ones, count[:-1], matrix.indptr), shape=(matrix.shape[0], len(ones)))
    by_column = type(matrix)((ones, matrix.indices, count), shape=(len(ones), matrix.shape[1]))
    return by_row, by_column.T


def step_draws(prior: PriorOperator, v: int, key: np.uint64, above: Array, below: Array) -> None:
    """One step of prior draws, added to ``below`` (L_v, draws): Pᵀ δ_u + Σ_i ε_i."""
    total = totals(prior, v, key, above, below)
    if v == 0:
        below += prior.mu[prior.slice(0)][:, None] * total
        return
    matrix = prior.law.kernels[v]
    below += prior.law.columns[v][:, None] * (matrix.T @ (prior.law.rows[v][:, None] * total))


def move_draws(prior: PriorOperator, v: int, key: np.uint64, above: Array, picked: Array, out: Array) -> None:
    """δ_ij of the prior draws at some moves, (picked, draws)."""
    total, draws = totals(prior, v, key, above), above.shape[1]
    matrix = prior.law.kernels[v]
    origin = prior.origins(v)[picked] if issparse(matrix) else picked // matrix.shape[1]
    p = prior.chances(v).reshape(-1)[picked]
    w = noise(key, picked.astype(np.uint64), np.sqrt(_expected(prior, v)[origin] * p), draws)
    out[:] = p[:, None] * total[origin] + w.T


def flow_squares(
    prior: PriorOperator,
    v: int,
    key: np.uint64,
    above: Array,
    pull_u: Array,
    pull_v: Array,
    before: Array,
    after: Array,
) -> None:
    """Add Σ_draws δ_ij² of every move: of the prior draws, and of these less M_ij (pull_u(i) + pull_v(j))."""
    total, table = totals(prior, v, key, above), prior.table(v)
    for part, p, w in noisy_moves(prior, v, key, above.shape[1]):
        if p.ndim == 2:
            free = p * total[part].T[:, :, None] + w
            pull = pull_u[part].T[:, :, None] + pull_v.T[:, None, :]
        else:
            origin, dest = prior.origins(v), prior.law.kernels[v].indices
            free = p * total[origin].T + w
            pull = pull_u[origin].T + pull_v[dest].T
        moved = free - table[part] * pull
        before.reshape(table.shape)[part] += (free * free).sum(axis=0)
        after.reshape(table.shape)[part] += (moved * moved).sum(axis=0)
