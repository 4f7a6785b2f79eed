"""Log-linear transitions: P_t(i, j) = exp(w_t·f_t(i, j) + o_t(i, j)) / Z_t(i), with w_t the same at all steps or w_t = b(t) W.

With the gradient and Hessian that learning needs. For flows n_t(i, j), observed or expected, with row
totals n_t(i) and E_i, cov_i over P_t(i, ·):

    l(w)   = sum_tij n_t(i, j) log P_t(i, j)
    ∂l/∂w_t  = sum_ij n_t(i, j) f_t(i, j) − sum_i n_t(i) E_i[f_t]
    ∂²l/∂w_t² = − sum_i n_t(i) cov_i(f_t)              (negative semi-definite: l is concave)

and, for weights W of a basis, ∂l/∂W = sum_t b(t) ⊗ ∂l/∂w_t. Features f are kept as maps over moves and the basis as one row per kind
of step; their product, one table per step and weight, is never made. Steps of one kind share a matrix, and their flows are added up.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from typing import Any, final

import numpy as np
from scipy import sparse

from headcount._types import Array, Index, Mask
from headcount.checks import numbers
from headcount.errors import ModelError, raise_all
from headcount.individual._model import frozen
from headcount.individual._rooted_models import MarkovChain
from headcount.individual.rooted_tree import Matrix


def require_counts(n: Array) -> None:
    """Refuse flows that are not finite numbers ≥ 0."""
    bad = ~(np.isfinite(n) & (n >= 0))
    if bad.any():
        first = tuple(int(k) for k in np.argwhere(bad)[0])
        raise ModelError(
            f"{int(bad.sum())} flows are not counts, the first {n[first]} at {first}: give finite numbers ≥ 0"
        )


@final
class LogLinearTransitions:
    """Transition matrices from features and weights, P_t(i, j) ∝ exp(w_t·f_t(i, j)).

    Parameters
    ----------
    features
        f, shape ``(K, L, L)`` when every step is the same, or ``(T − 1, K, L, L)``; for sparse maps a sequence of K
        ``scipy.sparse`` matrices (every step the same).
    mask
        A fixed log offset o, shape ``(L, L)`` or ``(T − 1, L, L)``: 0 leaves a move as it is, −inf forbids
        it. Every row needs one allowed move. The features of a forbidden move are not looked at and may be
        anything, NaN included. Beside sparse features a sparse matrix, whose stored entries are the allowed moves; without one,
        what any feature stores is allowed.
    """

    def __init__(self, features: Any, mask: Any | None = None) -> None:
        self.sparse = (
            isinstance(features, (list, tuple)) and len(features) > 0 and all(map(sparse.issparse, features))
        )
        moves = _stored_moves if self.sparse else _all_moves
        self._origin, self._dest, maps, offset, self.cell_count = moves(features, mask)
        self._maps, self._offset = _checked_moves(self._origin, self._dest, self.cell_count, maps, offset)
        self.features_by_step = len(self._maps) > 1 or len(self._offset) > 1
        starts = np.searchsorted(self._origin, np.arange(self.cell_count))
        self._starts, self._lengths = starts, np.diff([*starts, len(self._origin)])
        count = self._maps.shape[1]
        kinds = max(len(self._maps), len(self._offset))
        self.kinds: Index = np.arange(kinds if self.features_by_step else 0)
        """For every step, its kind: which of `matrices` it has. Empty when every step is the same."""
        self._basis: Array = np.ones((kinds, 1))
        """One row per kind of step."""
        self._column, self._feature = np.zeros(count, np.intp), np.arange(count)

    def varying(self, basis: Any, kinds: Any, column: Any, feature: Any) -> LogLinearTransitions:
        """The same features with weights that vary: w_t[k] = sum over p with feature[p] = k of W[p] basis[kinds[t], column[p]].

        Parameters
        ----------
        basis
            b, one row per kind of step and one column per function of time.
        kinds
            The kind of every step, shape ``(T − 1,)``.
        column, feature
            Of every weight W[p], its function of time and its feature.
        """
        made = copy.copy(self)
        rows, made.kinds = np.asarray(basis, dtype=float), np.asarray(kinds, np.intp)
        if self.features_by_step:
            if len(made.kinds) != len(self.kinds):
                raise ModelError(
                    f"the features are for {len(self.kinds)} steps, the model has {len(made.kinds)}"
                )
            rows, made.kinds = rows[made.kinds], self.kinds
        made._basis = rows
        made._column, made._feature = np.asarray(column, np.intp), np.asarray(feature, np.intp)
        return made

    def like(self, other: LogLinearTransitions) -> bool:
        """Whether kinds of steps, features and weights are the same, so that flows can be added."""
        return (
            self._maps is other._maps
            and self._offset is other._offset
            and np.array_equal(self._basis, other._basis)
            and np.array_equal(self._column, other._column)
            and np.array_equal(self._feature, other._feature)
        )

    @property
    def features(self) -> Array:
        """f by step, shape ``(steps, K, L, L)``; dense features only."""
        return self._by_step(self._maps)

    @property
    def mask(self) -> Array:
        """o by step, shape ``(steps, L, L)``; dense features only."""
        return self._by_step(self._offset)

    def _by_step(self, values: Array) -> Array:
        made = np.broadcast_to(values, (max(len(self._maps), len(self._offset)), *values.shape[1:]))
        return made.reshape(*made.shape[:-1], self.cell_count, self.cell_count)

    @property
    def homogeneous(self) -> bool:
        """Whether every step is the same."""
        return len(self.kinds) == 0

    @property
    def weight_count(self) -> int:
        """The number of weights: K, one per feature, unless they vary with time."""
        return len(self._feature)

    @property
    def possible(self) -> Mask:
        """Which moves are allowed, shape ``(kinds, moves)`` or, where all kinds allow the same, ``(1, moves)``."""
        return ~np.isneginf(self._offset)

    def staying(self, share: float | None, mobile: float) -> Array:
        """Flows of one individual per cell and kind of step, of whom ``share`` stays (None: ``mobile`` times its equal share)."""
        own = self._origin == self._dest
        possible = np.broadcast_to(self.possible, (len(self._basis), self.move_count))
        count = self._spread(self._by_row(np.add, possible.astype(float)))
        stay = mobile / count if share is None else np.full_like(count, share)
        return np.where(possible, np.where(own, stay, (1 - stay) / np.maximum(count - 1, 1)), 0.0)

    @property
    def move_count(self) -> int:
        """The number of moves for which features are kept."""
        return len(self._origin)

    @property
    def steps(self) -> int | None:
        """T − 1 when something changes with time; None when every step is the same."""
        return None if self.homogeneous else len(self.kinds)

    def step_weights(self, weights: Any) -> Array:
        """w of every kind of step, shape ``(kinds, K)``."""
        table = np.zeros((self._basis.shape[1], self._maps.shape[1]))
        table[self._column, self._feature] = self._weights(weights)
        return self._basis @ table

    def log_transitions(self, weights: Any) -> Array:
        """Log P, shape ``(L, L)`` when every step is the same, ``(T − 1, L, L)`` otherwise; dense features only."""
        log_p = self._log_p(weights).reshape(-1, self.cell_count, self.cell_count)
        return log_p[0] if self.homogeneous else log_p[self.kinds]

    def transitions(self, weights: Any) -> Array:
        """P, shaped as `log_transitions`."""
        return np.exp(self.log_transitions(weights))

    def matrices(self, weights: Any) -> list[Matrix]:
        """P of every kind of step, ``scipy.sparse`` where features are."""
        shape = (self.cell_count, self.cell_count)
        p = np.exp(self._log_p(weights))
        if not self.sparse:
            return list(p.reshape(-1, *shape))
        ends = np.concatenate([self._starts, [len(self._origin)]])
        return [sparse.csr_array((row, self._dest.copy(), ends.copy()), shape=shape) for row in p]

    def chain(
        self,
        weights: Any,
        initial: Any,
        *,
        length: int | None = None,
        times: Sequence[Hashable] | None = None,
        cells: Sequence[Hashable] | None = None,
    ) -> MarkovChain:
        """The Markov chain with these weights; `length` or `times` is needed when every step is the same."""
        made = self.matrices(weights)
        matrices = made[0] if self.homogeneous else [made[k] for k in self.kinds]
        return MarkovChain(initial, matrices, length=length, times=times, cells=cells)

    def value(self, weights: Any, flows: Any) -> float:
        """l(w) = sum n log P; −inf if anyone made a forbidden move."""
        n, log_p = self.flows(flows), self._log_p(weights)
        with np.errstate(invalid="ignore"):
            return float(np.sum(np.where(n > 0, n * log_p, 0.0)))

    def gradient(self, weights: Any, flows: Any) -> Array:
        """∂l/∂w, shape ``(weights,)``."""
        n, p = self.flows(flows), np.exp(self._log_p(weights))
        surplus = n - self._spread(self._by_row(np.add, n)) * p
        return (self._basis.T @ _by_kind(self._maps, surplus))[self._column, self._feature]

    def hessian(self, weights: Any, flows: Any) -> Array:
        """∂²l/∂w², negative semi-definite."""
        p = np.exp(self._log_p(weights))
        n = self.flows(flows)
        moved = self._spread(self._by_row(np.add, n))
        total = np.zeros((self.weight_count, self.weight_count))
        for kind, (p_t, n_t, b_t) in enumerate(zip(p, moved, self._basis, strict=True)):
            used = np.flatnonzero(b_t[self._column])
            if not used.size or not n_t.any():
                continue
            f = self._maps[kind if len(self._maps) > 1 else 0]
            centred = f - self._spread(self._by_row(np.add, p_t * f))
            curvature = (centred * (n_t * p_t)) @ centred.T
            b, k = b_t[self._column[used]], self._feature[used]
            total[np.ix_(used, used)] -= np.outer(b, b) * curvature[np.ix_(k, k)]
        return total

    def uncentred(self, weights: Any, flows: Any) -> Array:
        """sum n(i) E_i[f²] b², the diagonal of −∂²l/∂w² without centring, shape ``(weights,)``."""
        p, n = np.exp(self._log_p(weights)), self.flows(flows)
        weight = self._spread(self._by_row(np.add, n)) * p
        return ((self._basis**2).T @ _by_kind(self._maps**2, weight))[self._column, self._feature]

    def ranges(self) -> Array:
        """The largest range of b·f within the moves from one cell, shape ``(weights,)``."""
        spread = self._by_row(np.maximum, self._maps) - self._by_row(np.minimum, self._maps)
        return spread.max(axis=(0, 2))[self._feature] * np.abs(self._basis).max(axis=0)[self._column]

    def flows(self, flows: Any, *, signed: bool = False) -> Array:
        """Flows by kind of step and move, shape ``(kinds, moves)``: those of equal steps added, all the likelihood sees.

        Parameters
        ----------
        flows
            One table per step, dense ``(T − 1, L, L)`` or a list of ``scipy.sparse``; one table, if every step is the same; or
            what this method returned.
        signed
            Whether single flows may be below zero, as an engine's expectation with a second-order term may: l stays concave, since its
            curvature depends on row totals alone.
        """
        if isinstance(flows, list) and flows and sparse.issparse(flows[0]):
            return self._summed(np.stack([self._stored(table) for table in flows]))
        n = numbers(flows, "flows")
        cells = (self.cell_count, self.cell_count)
        if n.shape == (len(self._basis), self.move_count) != cells:
            return n
        self._check_flows(n, cells, signed=signed)
        return self._summed(n.reshape(-1, *cells)[:, self._origin, self._dest])

    def _check_flows(self, n: Array, cells: tuple[int, int], *, signed: bool) -> None:
        """Refuse flows of another shape, and what are no counts."""
        steps = (len(self.kinds), *cells)
        if n.shape[-2:] != cells or n.ndim not in (2, 3) or not (self.homogeneous or n.shape == steps):
            wanted = cells if self.homogeneous else steps
            raise ModelError(
                f"flows have the shape {n.shape}, expected {wanted}: origin by destination, one table per "
                "step"
            )
        if not signed:
            require_counts(n)

    def _summed(self, flat: Array) -> Array:
        """Flows by step, added up by kind."""
        if self.homogeneous:
            return flat.sum(axis=0, keepdims=True)
        if len(self._basis) == len(flat):
            made = np.empty_like(flat)
            made[self.kinds] = flat
            return made
        made = np.zeros((len(self._basis), flat.shape[1]))
        np.add.at(made, self.kinds, flat)
        return made

    def _stored(self, table: Any) -> Array:
        """A sparse table's entries at the allowed moves."""
        return np.asarray(sparse.csr_array(table)[self._origin, self._dest], dtype=float).ravel()

    def _log_p(self, weights: Any) -> Array:
        w = self.step_weights(weights)
        score = w @ self._maps[0] if len(self._maps) == 1 else np.matmul(w[:, None, :], self._maps)[:, 0]
        score = score + self._offset
        score -= self._spread(self._by_row(np.maximum, score))
        return score - self._spread(np.log(self._by_row(np.add, np.exp(score))))

    def _by_row(self, operation: np.ufunc, values: Array) -> Array:
        """Entries of the same origin reduced, shape (…, L)."""
        if self.sparse:
            return operation.reduceat(values, self._starts, axis=-1)
        return operation.reduce(values.reshape(*values.shape[:-1], self.cell_count, -1), axis=-1)

    def _spread(self, rows: Array) -> Array:
        """The inverse: every row's number at all its moves."""
        return np.repeat(rows, self._lengths, axis=-1)

    def _weights(self, weights: Any) -> Array:
        values = numbers(weights, "weights")
        if values.shape != (self.weight_count,) or not np.isfinite(values).all():
            raise ModelError(
                f"weights are {weights!r}: give {self.weight_count} finite numbers, one per feature"
            )
        return values


def _by_kind(maps: Array, flows: Array) -> Array:
    """Sums of maps (kinds or 1, K, moves) weighted with flows (kinds, moves), shape (kinds, K)."""
    return flows @ maps[0].T if len(maps) == 1 else np.matmul(maps, flows[:, :, None])[:, :, 0]


def _all_moves(features: Any, mask: Any) -> tuple[Index, Index, Array, Array, int]:
    """Origins and destinations of all moves, features (steps or 1, K, moves) and offsets (steps or 1, moves), and the number of cells."""
    expected = "(K, L, L), or (T − 1, K, L, L) per step"
    values = numbers(features, "features", expected=f"numbers of shape {expected}")
    if values.ndim not in (3, 4) or values.shape[-1] != values.shape[-2] or 0 in values.shape:
        raise ModelError(f"features have the shape {values.shape}: give {expected}")
    cells = values.shape[-1]
    offset = _offset(mask, cells, values.shape[:-3])
    origin, dest = (a.ravel() for a in np.indices((cells, cells)))
    maps = values.reshape(-1, values.shape[-3], cells * cells)
    return origin, dest, maps, offset.reshape(-1, cells * cells), cells


def _offset(mask: Any, cells: int, steps: tuple[int, ...]) -> Array:
    """The mask of dense features that are for these steps (empty: every step the same)."""
    offset = np.zeros((cells, cells)) if mask is None else numbers(mask, "the mask")
    fits = offset.ndim == 2 or (offset.ndim == 3 and (not steps or len(offset) in (1, *steps)))
    if not fits or offset.shape[-2:] != (cells, cells):
        raise ModelError(
            f"the mask has the shape {offset.shape}, expected {(cells, cells)} or one such table per step"
        )
    return offset


def _stored_moves(features: Sequence[Any], mask: Any) -> tuple[Index, Index, Array, Array, int]:
    """As `_all_moves`, of the moves that sparse maps store."""
    shape = features[0].shape
    raise_all(_sparse_problems(features, mask, shape))
    pattern = _stored_in_any(features if mask is None else [mask])
    origin = np.repeat(np.arange(shape[0]), np.diff(pattern.indptr))
    dest = pattern.indices.astype(np.intp)
    maps = np.array([sparse.csr_array(f)[origin, dest].reshape(-1) for f in features], dtype=float)
    offset = np.zeros(len(origin)) if mask is None else sparse.csr_array(mask)[origin, dest].reshape(-1)
    return origin, dest, maps[None], np.asarray(offset, dtype=float)[None], shape[0]


def _checked_moves(origin: Index, dest: Index, cells: int, maps: Array, offset: Array) -> tuple[Array, Array]:
    """Features and offsets of moves, read-only; those of allowed moves are finite, and every cell has an allowed move."""
    if np.isnan(offset).any() or np.isposinf(offset).any():
        raise ModelError("the mask holds NaN or +inf: use 0 for an allowed move and −inf for a forbidden one")
    allowed = ~np.isneginf(offset)
    left = np.array([np.bincount(origin[row], minlength=cells) for row in allowed])
    problems = [
        f"the mask (or what sparse features store) forbids every move from cell {i} at step {t}: allow one (staying put is one too)"
        for t, i in np.argwhere(left == 0)
    ]
    finite = np.isfinite(maps)
    if not finite.all():
        values = np.broadcast_to(maps, (max(len(maps), len(offset)), *maps.shape[1:]))
        problems += [
            f"feature {k} from {origin[m]} to {dest[m]} at step {t} is {values[t, k, m]}: features of allowed moves are finite"
            for t, k, m in np.argwhere(~finite & allowed[:, None])
        ]
        maps = np.where(finite, maps, 0.0)
    raise_all(problems)
    return frozen(maps), frozen(offset)


def _sparse_problems(features: Sequence[Any], mask: Any, shape: tuple[int, ...]) -> list[str]:
    """Every way in which sparse features and their mask do not fit together."""
    problems = [
        f"feature {k} has the shape {f.shape}, expected {shape}: square, all alike"
        for k, f in enumerate(features)
        if f.shape != shape or shape[0] != shape[1]
    ]
    if mask is not None and not (sparse.issparse(mask) and mask.shape == shape):
        problems.append(f"beside sparse features the mask is a sparse matrix of the shape {shape}")
    return problems


def _stored_in_any(tables: Sequence[Any]) -> Any:
    """A sparse matrix that stores what any of these does."""
    pattern = sparse.csr_array(tables[0].shape)
    for table in tables:
        stored = sparse.csr_array(table, copy=True)
        stored.data = np.ones_like(stored.data, dtype=float)
        pattern = pattern + stored
    pattern.sort_indices()
    return pattern
