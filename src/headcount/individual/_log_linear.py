"""Log-linear transitions: P_t(i, j) = exp(w·f_t(i, j) + o_t(i, j)) / Z_t(i).

With the gradient and Hessian that learning needs. For flows n_t(i, j), observed or expected, with row
totals n_t(i) and E_i, cov_i over P_t(i, ·):

    l(w)   = sum_tij n_t(i, j) log P_t(i, j)
    ∂l/∂w  = sum_tij n_t(i, j) f_t(i, j) − sum_ti n_t(i) E_i[f_t]
    ∂²l/∂w² = − sum_ti n_t(i) cov_i(f_t)              (negative semi-definite: l is concave)
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, final

import numpy as np

from headcount._types import Array
from headcount.checks import numbers
from headcount.errors import ModelError, raise_all
from headcount.individual._chain import MarkovChain
from headcount.individual._validate import frozen


@final
class LogLinearTransitions:
    """Transition matrices from features and weights, P_t(i, j) ∝ exp(w·f_t(i, j)).

    Parameters
    ----------
    features
        f, shape ``(K, L, L)`` when every step is the same, or ``(T − 1, K, L, L)``.
    mask
        A fixed log offset o, shape ``(L, L)`` or ``(T − 1, L, L)``: 0 leaves a move as it is, −inf forbids
        it. Every row needs one allowed move. The features of a forbidden move are not looked at and may be
        anything, NaN included.
    """

    def __init__(self, features: Any, mask: Any | None = None) -> None:
        values = numbers(
            features, "features", expected="numbers of shape (K, L, L), or (T − 1, K, L, L) per step"
        )
        if values.ndim not in (3, 4) or values.shape[-1] != values.shape[-2] or 0 in values.shape:
            raise ModelError(
                f"features have the shape {values.shape}: give (K, L, L), or (T − 1, K, L, L) per step"
            )
        by_step = values if values.ndim == 4 else values[None]
        steps, count, cells, _ = by_step.shape
        offset = np.zeros((cells, cells)) if mask is None else numbers(mask, "the mask")
        offset = offset[None] if offset.ndim == 2 else offset
        raise_all(_offset_problems(offset, steps, cells, homogeneous=values.ndim == 3))
        # A mask that changes with time makes the chain change with time.
        self.homogeneous = values.ndim == 3 and len(offset) == 1
        steps = max(steps, len(offset))
        by_step = np.broadcast_to(by_step, (steps, count, cells, cells))
        offset = np.broadcast_to(offset, (steps, cells, cells))
        allowed = ~np.isneginf(offset)[:, None]
        finite = np.isfinite(by_step)
        raise_all(
            f"feature {k} from {i} to {j} at step {t} is {by_step[t, k, i, j]}: features of allowed moves are finite"
            for t, k, i, j in np.argwhere(~finite & allowed)
        )
        self.features: Array = frozen(by_step if finite.all() else np.where(allowed, by_step, 0.0))
        self.mask: Array = frozen(offset)

    @property
    def weight_count(self) -> int:
        """K, the number of features and weights."""
        return self.features.shape[1]

    @property
    def cell_count(self) -> int:
        """L, the number of cells."""
        return self.features.shape[2]

    @property
    def steps(self) -> int | None:
        """T − 1 when the features change with time; None when every step is the same."""
        return None if self.homogeneous else self.features.shape[0]

    def log_transitions(self, weights: Any) -> Array:
        """Log P, shape ``(L, L)`` when every step is the same, ``(T − 1, L, L)`` otherwise."""
        log_p = self._log_p(self._weights(weights))
        return log_p[0] if self.homogeneous else log_p

    def transitions(self, weights: Any) -> Array:
        """P, shaped as `log_transitions`."""
        return np.exp(self.log_transitions(weights))

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
        return MarkovChain(initial, self.transitions(weights), length=length, times=times, cells=cells)

    def value(self, weights: Any, flows: Any) -> float:
        """l(w) = sum n log P; −inf if anyone made a forbidden move."""
        n, log_p = self._flows(flows), self._log_p(self._weights(weights))
        with np.errstate(invalid="ignore"):
            return float(np.sum(np.where(n > 0, n * log_p, 0.0)))

    def gradient(self, weights: Any, flows: Any) -> Array:
        """∂l/∂w, shape ``(K,)``."""
        n, p = self._flows(flows), np.exp(self._log_p(self._weights(weights)))
        surplus = n - n.sum(axis=2, keepdims=True) * p
        return np.einsum("tij,tkij->k", surplus, self.features)

    def hessian(self, weights: Any, flows: Any) -> Array:
        """∂²l/∂w², shape ``(K, K)``, negative semi-definite."""
        p = np.exp(self._log_p(self._weights(weights)))
        moved = self._flows(flows).sum(axis=2)
        total = np.zeros((self.weight_count, self.weight_count))
        for f, p_t, n_t in zip(self.features, p, moved, strict=True):
            centred = f - np.einsum("ij,kij->ki", p_t, f)[:, :, None]
            flat = centred.reshape(self.weight_count, -1)
            total -= (flat * (n_t[:, None] * p_t).ravel()) @ flat.T
        return total

    def _log_p(self, weights: Array) -> Array:
        score = np.einsum("k,tkij->tij", weights, self.features) + self.mask
        score -= score.max(axis=2, keepdims=True)
        return score - np.log(np.exp(score).sum(axis=2, keepdims=True))

    def _weights(self, weights: Any) -> Array:
        values = numbers(weights, "weights")
        if values.shape != (self.weight_count,) or not np.isfinite(values).all():
            raise ModelError(
                f"weights are {weights!r}: give {self.weight_count} finite numbers, one per feature"
            )
        return values

    def _flows(self, flows: Any) -> Array:
        """Flows, one table per distinct step: those of equal steps are added, all the likelihood sees."""
        n = numbers(flows, "flows")
        cells = (self.cell_count, self.cell_count)
        if (
            n.shape[-2:] != cells
            or n.ndim not in (2, 3)
            or not (self.homogeneous or n.shape == self.mask.shape)
        ):
            wanted = cells if self.homogeneous else self.mask.shape
            raise ModelError(
                f"flows have the shape {n.shape}, expected {wanted}: origin by destination, one table per "
                "step"
            )
        bad = ~(np.isfinite(n) & (n >= 0))
        if bad.any():
            first = tuple(int(k) for k in np.argwhere(bad)[0])
            raise ModelError(
                f"{int(bad.sum())} flows are not counts, the first {n[first]} at {first}: give finite "
                "numbers ≥ 0"
            )
        return n.reshape(-1, *cells).sum(axis=0, keepdims=True) if self.homogeneous else n


def _offset_problems(offset: Array, steps: int, cells: int, *, homogeneous: bool) -> list[str]:
    """Every way in which a mask does not fit the features."""
    if (
        offset.ndim != 3
        or offset.shape[1:] != (cells, cells)
        or not (homogeneous or len(offset) in (1, steps))
    ):
        return [
            f"the mask has the shape {offset.shape}, expected {(cells, cells)} or one such table per step"
        ]
    problems = []
    if np.isnan(offset).any() or np.isposinf(offset).any():
        problems.append("the mask holds NaN or +inf: use 0 for an allowed move and −inf for a forbidden one")
    closed = np.argwhere(np.isneginf(offset).all(axis=2))
    problems += [
        f"the mask forbids every move from cell {i} at step {t}: allow one (staying put is one too)"
        for t, i in closed
    ]
    return problems
