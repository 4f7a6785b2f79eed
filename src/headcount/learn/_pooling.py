r"""Partial pooling of transition matrices: a prior for the matrix of every class of steps, its strengths learned from the flows.

Flows :math:`n_c(i, j)` of class c (hour of the day, say). Every row first decides whether anyone leaves, then where to:

.. math::

    P_c(i, i) \sim \mathrm{Beta}(k_l (1 − e_{ci}), k_l e_{ci}),   \qquad
    P_c(i, ·)/(1 − P_c(i, i)) \sim \mathrm{Dirichlet}(k_q b_{ci})

with centres that add up effects on the log scale: the odds of leaving are those of the class times those of the cell,
:math:`\mathrm{odds}(e_{ci}) = o_c o_i / o`, and destinations are those of the cell times the popularity of the class,
:math:`b_{ci}(j) ∝ Q(i, j) u_c(j)/u(j)`. :math:`Q(i, ·)` is itself drawn towards the popularity :math:`u`, and so is :math:`u_c`.
Each strength k maximises the probability of the flows with the matrices integrated out (Dirichlet–multinomial),

.. math:: \sum \log Γ(k) − \log Γ(n + k) + \sum_j \log Γ(n_j + k b_j) − \log Γ(k b_j) .

With flows that are themselves inferred this takes their expectation for known, which errs on the side of more pooling.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from headcount._types import Array, Mask

WEAKEST = 0.1
"""Smallest strength, in individuals: less than one is no prior at all."""
STRONGEST = 100.0
"""Largest strength, in times of the largest total of a row: there classes differ by less than a tenth of a standard error."""
UNSEEN = 0.5
"""Moves added to every cell's total where a share is estimated from few (Jeffreys)."""
SEARCH_TOLERANCE = 1e-3
"""On the logarithm of a strength."""


@dataclass(frozen=True, eq=False)
class Pooling:
    """How the prior of C stacked matrices is learned: around one matrix that was given, or around what they have in common."""

    classes: int
    centre: Array | None = None
    """A given matrix, (L, L), that every class is drawn towards."""

    def learned(self, n: Array, free: Mask) -> tuple[Array, Array | None, dict[str, float]]:
        """The prior's counts (R, C), those of leaving (R,) or None, and the strengths, from flows ``n`` (R, C)."""
        if self.centre is not None:
            base = np.where(free, np.tile(self.centre, (self.classes, 1)), 0.0)
            base = _rows(base)
            strength = _strength(n, base)
            return strength * base, None, {"prior": strength}
        cells = n.shape[1]
        shape = (self.classes, cells, cells)
        pseudo, going, found = _pooled(n.reshape(shape), free.reshape(shape)[0])
        return pseudo.reshape(n.shape), going.reshape(-1), found


def _rows(weights: Array) -> Array:
    """Rows that sum to one; a row of zeros stays."""
    total = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(total > 0, total, 1.0)


def _pooled(n: Array, free: Mask) -> tuple[Array, Array, dict[str, float]]:
    """The prior's counts (C, L, L), those of leaving (C, L), and the strengths."""
    cells = n.shape[1]
    own = np.arange(cells)
    staying = n[:, own, own]
    away = n.copy()
    away[:, own, own] = 0.0
    others = free.copy()
    others[own, own] = False
    leaving = away.sum(axis=2)

    popular = _rows(away.sum(axis=(0, 1)) + UNSEEN)
    rows = _rows(np.where(others, popular, 0.0))
    total = away.sum(axis=0)
    common = _strength(total, rows)
    shared = _rows(total + common * rows)  # Q

    arrived = away.sum(axis=1)
    even = np.broadcast_to(popular, arrived.shape)
    popularity = _strength(arrived, even)
    seasonal = _rows(arrived + popularity * even)  # u_c

    base = _rows(shared * (seasonal / popular)[:, None, :])
    destinations = _strength(away, base)

    def odds(axis: int | None) -> Array:
        return np.asarray((leaving.sum(axis=axis) + UNSEEN) / (staying.sum(axis=axis) + UNSEEN))

    expected = odds(1)[:, None] * odds(0)[None, :] / odds(None)
    leave = expected / (1 + expected)
    stays = free[own, own]
    both = np.stack([staying, leaving], axis=2)[:, stays]
    centre = np.stack([1 - leave, leave], axis=2)[:, stays]
    movement = _strength(both, centre)

    pseudo = destinations * base
    going = np.where(stays & others.any(axis=1), movement * leave, pseudo.sum(axis=2))
    pseudo[:, own, own] = np.where(stays, movement * (1 - leave), 0.0)
    if (
        not stays.all()
    ):  # without staying, log-odds are taken against another destination, and nothing is asked first
        first = others.argmax(axis=1)
        going = np.where(stays, going, pseudo.sum(axis=2) - pseudo[:, own, first])
    found = {
        "movement": movement,
        "destinations": destinations,
        "popularity": popularity,
        "common matrix": common,
    }
    return pseudo, going, found


def dirichlet_multinomial(k: float, totals: Array, counts: Array, centre: Array) -> float:
    """log probability of rows with these totals around a centre of strength k, up to a constant, from their entries above zero."""
    rows = len(totals) * gammaln(k) - gammaln(totals + k).sum()
    return float(rows + (gammaln(counts + k * centre) - gammaln(k * centre)).sum())


def _strength(n: Array, base: Array) -> float:
    """The k that maximises the Dirichlet–multinomial probability of ``n`` around ``base``."""
    from scipy.optimize import minimize_scalar

    totals = n.sum(axis=-1)
    asked = (totals > 0) & ((base > 0).sum(axis=-1) > 1)  # rows of which anyone had a choice
    if not asked.any():
        return 1.0
    n, base, totals = n[asked], base[asked], totals[asked]
    seen = (n > 0) & (base > 0)
    at, count = base[seen], n[seen]

    def loss(log_k: float) -> float:
        return -dirichlet_multinomial(float(np.exp(log_k)), totals, count, at)

    ends = (np.log(WEAKEST), np.log(STRONGEST * float(totals.max()) + 1.0))
    found = minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": SEARCH_TOLERANCE})
    return float(np.exp(found.x))
