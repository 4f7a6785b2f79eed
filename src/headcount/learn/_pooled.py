r"""A check of fit for many tables of two margins together, each of which alone says next to nothing about the model.

Given its rows r, a table's columns have mean :math:`\sum_i r_i p_i` and covariance :math:`S = \sum_i r_i \phi_i V_i` (with a deviation that
rows share, :math:`S + \sigma^2 A^2`: ``_between``). Residuals whitened by S of all K tables, less what the P learned parameters can
explain (G, their slopes), have :math:`n = K(C - 1) - \operatorname{rank} G` degrees of freedom and the mean square :math:`\hat c`, 1 where
the model is right. Whether they depend on x, a number of each table (its composition, its size, its place in the order, a covariate), is a
score test for row probabilities whose log-odds change with x: with Q the part of the slopes :math:`r_i V_i x` outside G, of rank q,

.. math:: F = \frac{|Q^\top e|^2 / q}{(|e|^2 - |Q^\top e|^2)/(n - q)} \sim F_{q,\, n - q} ,

which needs no scale of the scatter, so that it holds beside a dispersion learned from the same residuals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import helmert
from scipy.special import fdtrc, gammaincc

from headcount._types import Array
from headcount.learn._between import ManyTables
from headcount.learn._components import Moves
from headcount.learn._family import Family
from headcount.learn._margins import Margins, known_margins, phi_of
from headcount.observe import Problem
from headcount.population import DispersionEstimate
from headcount.posterior.doubt import (
    SCATTER_GAIN,
    Advice,
    Learned,
    doubts_of,
    flows_seen,
    more_information,
)
from headcount.posterior.fit_check import FEWEST_FREE, FitCheck
from headcount.tables import dense

FEWEST_TABLES = 10
"""Tables from which they are checked together."""
LEVEL = 0.01
"""Share of true models that are called into question, by all tests together (each at its part of it)."""
STEP = 1e-4
"""Difference step of the slopes by parameters, in log-odds or weights."""
LEAST_SHARE = 1e-3
"""Share of the largest slope below which a direction is told by the parameters already."""

LET_TABLES_DIFFER = Advice(
    "tables",
    'hc.fit(hc.TabularChain(context="composition", shared=True), problems, dispersion="estimate:rho:row")',
    "rows that depend on a table's composition, a deviation that rows share and scatter by row, each learned and weighed by the evidence",
)


class Whitened(NamedTuple):
    """Residuals of all tables, whitened and without what the parameters explain."""

    residual: Array
    """(K (C − 1),)."""
    explained: Array
    """Orthonormal basis of what the parameters explain, (K (C − 1), rank)."""
    directions: Array
    """r_i V_i, whitened: change of the columns with the log-odds of row i, (K, C − 1, R (C − 1))."""

    @property
    def free(self) -> int:
        return len(self.residual) - self.explained.shape[1]

    def on(self, x: Array) -> tuple[float, int, float]:
        """F, q and the probability of a larger F of a dependence on x, (K, F); q is 0 where the parameters tell it already."""
        slopes = np.einsum("kmd,kf->kmdf", self.directions, x).reshape(len(self.residual), -1)
        outside = slopes - self.explained @ (self.explained.T @ slopes)
        u, values, _ = np.linalg.svd(outside, full_matrices=False)
        largest = np.linalg.norm(slopes, 2)
        u = u[:, values > LEAST_SHARE * max(float(largest), 1e-300)]
        rank = u.shape[1]
        if not 0 < rank < self.free - FEWEST_FREE:
            return np.nan, 0, np.nan
        hit = float(((u.T @ self.residual) ** 2).sum())
        left = float(self.residual @ self.residual) - hit
        ratio = (hit / rank) / max(left / (self.free - rank), 1e-300)
        return ratio, rank, float(fdtrc(rank, self.free - rank, ratio))


@dataclass(frozen=True)
class Pool:
    """Tables of one shape under a model, with the slopes of their expected columns by the learned parameters."""

    rows: Array
    """(K, R)."""
    columns: Array
    """(K, C)."""
    p: Array
    """(K, R, C)."""
    phi: Array
    """(K, R)."""
    slopes: Array
    """∂E[c]/∂parameters, (K, C, P)."""
    shared: float = 0.0
    """σ of a deviation that rows share."""

    def whitened(self) -> Whitened:
        """See the module."""
        basis = np.asarray(helmert(self.columns.shape[1]).T)
        inside = self.p @ basis
        spreads = np.einsum("kij,jm,jn->kimn", self.p, basis, basis, optimize=True)
        spreads = spreads - inside[..., :, None] * inside[..., None, :]
        alone, covariance = (
            np.einsum("ki,kimn->kmn", weight, spreads) for weight in (self.rows, self.rows * self.phi)
        )
        covariance = covariance + np.eye(basis.shape[1]) / (2 * np.pi) + self.shared**2 * alone @ alone
        whiten = np.linalg.inv(np.linalg.cholesky(covariance))
        left = (self.columns - np.einsum("ki,kij->kj", self.rows, self.p)) @ basis
        residual = np.einsum("kmn,kn->km", whiten, left).ravel()
        slopes = (whiten @ np.einsum("kjp,jm->kmp", self.slopes, basis)).reshape(len(residual), -1)
        u, values, _ = np.linalg.svd(slopes, full_matrices=False)
        u = u[:, values > 1e-8 * values.max(initial=1e-300)]
        residual = residual - u @ (u.T @ residual)
        directions = np.einsum("kmn,ki,kino->kmio", whiten, self.rows, spreads, optimize=True)
        return Whitened(residual, u, directions.reshape(*left.shape, -1))

    def features(self) -> dict[str, Array]:
        """What residuals are held against: composition, size and order of the tables, (K, F) each, of mean zero."""
        size = self.rows.sum(axis=1, keepdims=True)
        shares = self.rows / np.maximum(size, 1.0)
        found = {
            "composition": shares @ helmert(self.rows.shape[1]).T,
            "size": np.log(size + 1.0),
            "order": np.arange(len(size), dtype=float)[:, None],
        }
        return {name: _centred(x) for name, x in found.items()}


def _centred(x: Array) -> Array:
    away = np.asarray(x, dtype=float) - np.mean(x, axis=0)
    return np.asarray(away / max(float(np.sqrt((away**2).mean())), 1e-300))


def pool_of(families: Sequence[Family], problems: Sequence[Problem], x: Array) -> Pool | None:
    """Many tables at some parameters; None where they are few, or of different shapes, or something else is seen."""
    margins = _alike(problems)
    parts = [part for f in families if (part := f.find(Moves)) is not None]  # type: ignore[type-abstract]
    if not margins or len(parts) < len(problems):
        return None
    rows, columns = (np.array([m.counts[at] for m in margins]) for at in (0, 1))
    known: dict[int, tuple[Array, Array]] = {}
    laws = []
    for k, (family, part) in enumerate(zip(families, parts, strict=True)):
        own = next((j for j in known if family.alike(families[j])), k)
        if own not in known:
            known[own] = _law(part.component, x[part.where])
        laws.append(known[own])
    slopes = np.array([np.einsum("i,pij->jp", r, slope) for r, (_, slope) in zip(rows, laws, strict=True)])
    phi = np.array([phi_of(p, m, p.dispersion)[1] for p, m in zip(problems, margins, strict=True)])
    return Pool(rows, columns, np.array([law for law, _ in laws]), phi, slopes)


def _alike(problems: Sequence[Problem]) -> list[Margins]:
    """The margins of all problems; none where these are not many tables of one shape."""
    margins = [m for p in problems if (m := known_margins(p)) is not None]
    shapes = {tuple(map(len, m.counts)) for m in margins}
    many = len(margins) == len(problems) >= FEWEST_TABLES
    return margins if many and len(shapes) == 1 and len(shapes.pop()) == 2 else []


def _law(component: Moves, x: Array) -> tuple[Array, Array]:
    """P, (R, C), and its slopes by the parameters, (P, R, C)."""
    one = STEP * np.eye(len(x))
    slopes = [(_matrix(component, x + s) - _matrix(component, x - s)) / (2 * STEP) for s in one]
    return _matrix(component, x), np.array(slopes)


def _matrix(component: Moves, x: Array) -> Array:
    """P of a table."""
    made = component.matrices(x)
    return np.asarray(dense(made[0] if isinstance(made, list) else made), dtype=float)


def pool_of_tables(tables: ManyTables, parameters: Array, psi: Array) -> Pool:
    """Tables that differ, at the mean of what was drawn: a and b, (R, C − 1, 1 + F), and the logarithms of the scales."""
    odds = tables.log_odds(parameters)
    p = np.exp(odds - np.logaddexp.reduce(odds, axis=2, keepdims=True))
    away = (
        tables.basis - (p @ tables.basis)[:, :, None, :]
    )  # (K, R, C, C − 1): ∂ log p_j/∂ coordinate n of row i, at [k, i, j, n]
    slopes = np.einsum("ki,kij,kijn,kf->kjinf", tables.rows, p, away, tables.design, optimize=True)
    phi = np.broadcast_to(tables.parties(psi), tables.rows.shape)
    shared = tables.scale(psi, "shared deviation, sd")
    return Pool(tables.rows, tables.columns, p, phi, slopes.reshape(*tables.columns.shape, -1), shared)


@dataclass(frozen=True)
class PooledCheck:
    """Makes the check of many tables, once for all of them."""

    pool: Pool
    made: dict[Any, FitCheck] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, families: Sequence[Family], problems: Sequence[Problem], x: Array) -> PooledCheck | None:
        """Of problems at some parameters; None where these are not many tables."""
        pool = pool_of(families, problems, x)
        return None if pool is None else cls(pool)

    def __call__(
        self,
        problem: Problem,
        learned: Learned,
        estimate: DispersionEstimate | None,
        on: Mapping[str, Any] | None = None,
    ) -> FitCheck:
        """The check, with residuals held against some covariates of the tables, too."""
        key = tuple(on or ())
        if key not in self.made or on:
            self.made[key] = self._checked(problem, learned, estimate, on or {})
        return self.made[key]

    def _tests(self, white: Whitened, on: Mapping[str, Any]) -> list[tuple[str, float, int, float]]:
        """What residuals are held against, F, its degrees of freedom and p; without what the parameters tell already."""
        count = len(self.pool.rows)
        features = self.pool.features() | {n: _centred(np.reshape(v, (count, -1))) for n, v in on.items()}
        found = [(name, *white.on(x)) for name, x in features.items()]
        return [test for test in found if test[2]]

    def _checked(
        self, problem: Problem, learned: Learned, estimate: DispersionEstimate | None, on: Mapping[str, Any]
    ) -> FitCheck:
        white, count = self.pool.whitened(), len(self.pool.rows)
        free = white.free
        if free < FEWEST_FREE:
            return FitCheck(None, "Not checked: the learned parameters leave no count of the tables free.")
        squares = float(white.residual @ white.residual)
        excess = squares / free
        scatter_p = float(gammaincc(free / 2, squares / 2))
        tests = self._tests(white, on)
        level = LEVEL / (len(tests) + 1)
        faults = [_depends(*test) for test in tests if test[-1] < level]
        if estimate is None and scatter_p < level:  # a scatter that was learned cannot contradict itself
            faults.append(
                f"the columns of {count} tables scatter {excess:.2g} times more than the model allows; intervals are too narrow by about "
                f"a factor of {np.sqrt(excess):.2g}"
            )
        asked = learned if learned.churn() is not None else replace(learned, moves=False)
        doubts, advice = doubts_of(
            problem,
            asked,
            estimate,
            free=free,
            taken=white.explained.shape[1] + learned.initial,
            too_few="",
            dispersion=excess,
            closer_than_chance=False,
        )
        if doubts and learned.moves and not learned.plug_in:
            advice = list(more_information(problem))
        agrees: bool | None = True
        words = f"{count} tables agree with the model, checked together"
        if faults:
            agrees, words = False, f"The data disagree with the model: {'; '.join(faults)}"
            if learned.integral is None or not learned.integral.between:
                advice = [LET_TABLES_DIFFER, *advice]
        elif doubts:
            agrees, words = None, f"Agreement says nothing here: {'; '.join(doubts)}"
        elif estimate is not None and estimate.gain >= SCATTER_GAIN:
            words += f", once a scatter of {estimate.name} {estimate.value:.3g} is allowed; a missing cause looks the same"
            advice = [] if flows_seen(problem) else list(more_information(problem)[:2])
        more = f" What would help: {advice[0]}." if advice else ""
        return FitCheck(
            agrees,
            f"{words}.{more}",
            dispersion=excess,
            dispersion_p=scatter_p,
            doubts=tuple(doubts),
            advice=tuple(advice),
            pooled=tuple(tests),
        )


def _depends(name: str, ratio: float, rank: int, p: float) -> str:
    """That residuals depend on something, in words."""
    return (
        f"residuals depend on the {name} of the tables (F = {ratio:.2g} with {rank} degrees of freedom, p = {p:.1g}): their rows differ in "
        "a way that the model leaves out"
    )
