r"""How tables of two margins differ from each other: rows that depend on context, a deviation that rows share, scatter by row.

Of table k (a precinct) the row sums r and the column sums c are known. The probabilities of its row i are

.. math:: p_{kij} \propto \exp(a_{ij} + b_{ij} \cdot x_k + d_{kj}), \qquad d_k \sim N(0, \sigma^2), \qquad
    \phi_{ki} = 1 + (r_{ki} - 1)\rho_i,

a the log-odds of a common matrix; x the context, such as the shares of the rows in this very table ("contextual effect", "aggregation
bias"); d a deviation of the whole table, the same for all rows; and :math:`\rho_i` the intra-class correlation of row i. All are in
coordinates in which columns are alike (they sum to zero over columns). With :math:`V_i = \operatorname{diag} p_i - p_i p_i^\top`,

.. math:: c \sim N\Bigl(\sum_i r_i p_i,\; S + \sigma^2 A^2\Bigr), \qquad S = \sum_i r_i \phi_i V_i, \quad A = \sum_i r_i V_i,

whose mean alone tells a and b: that the covariance depends on them, too, is left out of the slope, because a wrong law of the scatter
would then be read as moves (quasi-likelihood). Given the scales :math:`\psi = (\log\rho_i, \log\sigma, \log h, \log\tau)` a and b are
found by Fisher scoring under

.. math:: a_i \sim N(\bar a, \tau^2), \qquad b_{ij} \sim N(0, h^2),

and integrated over as a Gaussian (Laplace); :math:`\psi` by importance sampling from a Student t around the maximum of what is left, each
scale under a weak normal prior that reaches from nothing at all to large. So the evidence weighs all combinations of parts, and half of
the slopes, which margins cannot tell (b of row 1 on the share of row 2 against b of row 2 on that of row 1), are as uncertain as the
other half lets one expect. Of every draw the expected tables are those of `headcount.learn._margins`, at a deviation d that is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import helmert
from scipy.special import gammaln, logit, logsumexp

from headcount._types import Array
from headcount.learn._components import BetweenTables, MatrixMoves
from headcount.learn._family import Family
from headcount.learn._margins import Tables, known_margins, phi_of, solve
from headcount.learn._neutral import SEED, Integral, next_power
from headcount.observe import Problem, ProblemError
from headcount.population import DispersionEstimate

SCALES = {
    "rho": (0.02, 2.0),
    "shared deviation, sd": (0.15, 1.2),
    "context slopes, sd": (0.2, 1.2),
    "rows apart, sd": (1.0, 0.8),
}
"""Median of every scale's prior and the sd of its logarithm: 95 % of rho lie between .0004 and 1, of the shared deviation between .014
and 1.6 log-odds, of slopes between .02 and 2.1 log-odds per standard deviation of the context, of rows between .2 and 5 log-odds apart."""
ROWS_ALIKE = 0.7
"""Prior sd of log rho between rows: factors of 4 either way in 95 %."""
FLAT = 5.0
"""Prior sd of the rows' common log-odds: shares between 10⁻⁴ and 1."""
SCORING_STEPS = 40
"""Fisher scoring steps towards a and b, at most: 5 to 15 suffice, 3 to 5 from a near start."""
LONGEST_STEP = 0.7
"""Longest of them, in log-odds."""
SCORED = 1e-5
"""Change of log-odds at which they end: a hundredth of the smallest standard error met."""
SEARCH_TOLERANCE = 0.05
"""Slope by log scale at which the search for their maximum ends: a twentieth of a nat per unit."""
STEP = 0.3
"""Difference step of the curvature by log scales."""
LEAST_CURVATURE = 1.0
"""Least curvature of what scales are drawn from first, by relative changes: sd as large as the scale itself."""
LEAST_SPREAD = 1e-6
"""Least variance of what scales are drawn from, in shares of the largest."""
ROUNDS, WIDER = (2, 12), 1.3
"""Rounds of importance sampling, at least and at most, each from the moments of all before, and the factor on their covariance."""
EFFECTIVE = 64.0
"""Effective draws of the scales that end the rounds, and that moments are taken of, by powers of the weights where these are too uneven:
moments of a few draws are narrow, and the next round would stay where they are (of 40 worlds with context 6 ended with 9 to 20 effective
draws, 2 of them with scales that a long Markov chain had beyond their 5 to 95 %)."""
FREEDOM = 5.0
"""Degrees of freedom of the Student t that scales are drawn from."""
DRAWS = 192
"""Draws of all parameters: quantiles at 5 % are off by a tenth of a standard deviation."""
DEVIATION_STEPS = 3
"""Newton steps towards the deviation of a table: .05 nats of 2000 are then left, of 200 tables together."""
BATCH = 24
"""Draws whose tables are solved at once."""
TINY = 1e-300
"""A length that can be divided by."""


class Scored(NamedTuple):
    """a and b at some scales."""

    parameters: Array
    """(R, C − 1, 1 + F): a first, then b."""
    root: Array
    """Of their covariance."""
    evidence: float
    """log of the integral over them, with the prior of the scales."""


@dataclass(frozen=True, eq=False)
class ManyTables:
    """Tables with their contexts, and what is learned of how they differ."""

    rows: Array
    """r, (K, R)."""
    columns: Array
    """c, (K, C)."""
    context: Array
    """x, (K, F), of mean zero and mean square one; F is 0 without context."""
    correlations: Sequence[str]
    """Names of the rho that are learned: one per row, one for all, or none."""
    shared: bool
    phi: Array
    """(K, R), of the dispersion that was given, where no rho is learned."""

    @cached_property
    def basis(self) -> Array:
        """Coordinates of what sums to zero over columns, (C, C − 1), orthonormal."""
        return np.asarray(helmert(self.columns.shape[1]).T)

    @cached_property
    def design(self) -> Array:
        """(1, x), (K, 1 + F)."""
        return np.column_stack([np.ones(len(self.rows)), self.context])

    @cached_property
    def scales(self) -> tuple[str, ...]:
        """Names of the scales ψ, in their order."""
        names = [f"rho {name}".strip() for name in self.correlations]
        parts = [("shared deviation, sd", self.shared), ("context slopes, sd", bool(self.context.shape[1]))]
        return (*names, *(name for name, there in parts if there), "rows apart, sd")

    def scale(self, psi: Array, name: str) -> float:
        """One scale; 0 where it is not learned."""
        return float(np.exp(psi[self.scales.index(name)])) if name in self.scales else 0.0

    def rho(self, psi: Array) -> Array:
        """(R,)."""
        return np.broadcast_to(np.exp(psi[: len(self.correlations)]), self.rows.shape[1:])

    def parties(self, psi: Array) -> Array:
        """phi, (K, R)."""
        return 1.0 + np.maximum(self.rows - 1.0, 0.0) * self.rho(psi) if self.correlations else self.phi

    @cached_property
    def powers(self) -> Array:
        """½ for rho, 1 for the others: scales are drawn in coordinates y = e^(power ψ), which are all standard deviations.

        There one part takes over from another along an arc, which a Student t covers; in logarithms along a corner.
        """
        return np.array([0.5 if name.startswith("rho") else 1.0 for name in self.scales])

    @cached_property
    def centre(self) -> Array:
        """ψ of the priors' medians."""
        return np.log([SCALES["rho" if name.startswith("rho") else name][0] for name in self.scales])

    @cached_property
    def precision(self) -> Array:
        """Of the prior of ψ."""
        spread = [SCALES["rho" if name.startswith("rho") else name][1] ** 2 for name in self.scales]
        covariance, count = np.diag(spread), len(self.correlations)
        covariance[:count, :count] = SCALES["rho"][1] ** 2 + ROWS_ALIKE**2 * np.eye(count)
        return np.linalg.inv(covariance)

    def log_odds(self, parameters: Array) -> Array:
        """a + b·x_k, (K, R, C)."""
        return np.einsum("inf,kf,jn->kij", parameters, self.design, self.basis, optimize=True)

    def spreads(self, p: Array) -> Array:
        """V in the coordinates of columns, (K, R, C − 1, C − 1)."""
        inside = p @ self.basis
        whole = np.einsum("kij,jm,jn->kimn", p, self.basis, self.basis, optimize=True)
        return np.asarray(whole - inside[..., :, None] * inside[..., None, :])

    def prior_precision(self, psi: Array) -> Array:
        """Of a and b, (parameters, parameters)."""
        count, width = self.rows.shape[1], self.basis.shape[1]
        same = np.full((count, count), 1.0 / count)
        a = (np.eye(count) - same) / self.scale(psi, "rows apart, sd") ** 2 + same / FLAT**2
        made = np.zeros((count, width, self.design.shape[1]) * 2)
        for n in range(width):
            made[:, n, 0, :, n, 0] = a
            for f in range(1, self.design.shape[1]):
                made[:, n, f, :, n, f] = np.eye(count) / self.scale(psi, "context slopes, sd") ** 2
        size = count * width * self.design.shape[1]
        return made.reshape(size, size)

    def scored(self, psi: Array, start: Array) -> Scored:
        """a and b at their maximum given the scales, by Fisher scoring."""
        r, phi, sigma = self.rows, self.parties(psi), self.scale(psi, "shared deviation, sd")
        x, prior = start, self.prior_precision(psi)
        for _ in range(SCORING_STEPS):
            p = np.exp(_log_softmax(self.log_odds(x)))
            spreads = self.spreads(p)
            alone, covariance = (np.einsum("ki,kimn->kmn", weight, spreads) for weight in (r, r * phi))
            # The variance of rounding to whole numbers, 1/2π as in _margins, keeps columns without anyone from having none.
            covariance = covariance + np.eye(alone.shape[1]) / (2 * np.pi) + sigma**2 * alone @ alone
            weight = np.linalg.inv(covariance)
            left = (self.columns - np.einsum("ki,kij->kj", r, p)) @ self.basis
            slopes = np.einsum("ki,kimn,kf->kminf", r, spreads, self.design, optimize=True)
            slopes = slopes.reshape(*left.shape, -1)
            pulled = weight @ slopes
            information = np.einsum("kmp,kmq->pq", pulled, slopes, optimize=True) + prior
            slope = np.einsum("kmp,km->p", pulled, left) - prior @ x.ravel()
            move = np.linalg.solve(information, slope)
            reach = float(np.abs(move).max())
            if reach < SCORED:
                break
            x = x + (move * min(1.0, LONGEST_STEP / reach)).reshape(x.shape)
        value = -0.5 * float(
            np.linalg.slogdet(covariance)[1].sum() + np.einsum("km,kmn,kn->", left, weight, left)
        )
        value += 0.5 * float(np.linalg.slogdet(prior)[1] - np.linalg.slogdet(information)[1])
        value -= 0.5 * float(x.ravel() @ prior @ x.ravel())
        away = psi - self.centre
        value += 0.5 * float(np.linalg.slogdet(self.precision)[1]) - 0.5 * float(away @ self.precision @ away)
        value -= 0.5 * (left.size + len(psi)) * np.log(2 * np.pi)
        return Scored(x, np.linalg.inv(np.linalg.cholesky(information)).T, value)

    def expected(self, parameters: Array, psi: Array, rng: np.random.Generator) -> Array:
        """Expected counts of all tables for several draws, each at deviations that are drawn, (D, K, R, C)."""
        draws, (count, width) = len(psi), self.columns.shape
        r, c = np.tile(self.rows, (draws, 1)), np.tile(self.columns, (draws, 1))
        odds = np.concatenate([self.log_odds(x) for x in parameters])
        phi = np.concatenate([np.broadcast_to(self.parties(one), self.rows.shape) for one in psi])
        found = solve(Tables(r, c, _log_softmax(odds), phi))
        if self.shared:
            sigma = np.repeat([self.scale(one, "shared deviation, sd") for one in psi], count)[:, None]
            deviation = np.zeros((len(r), width - 1))
            for _ in range(DEVIATION_STEPS):
                log_p = _log_softmax(odds + (deviation @ self.basis.T)[:, None, :])
                found = solve(Tables(r, c, log_p, phi), found.tilts)
                spreads = self.spreads(found.counts / np.maximum(r, 1.0)[:, :, None])
                alone, together = (np.einsum("ki,kimn->kmn", weight, spreads) for weight in (r, r * phi))
                told = alone @ np.linalg.solve(together + np.eye(width - 1) / (2 * np.pi), alone)
                slope = (found.units - (r / phi)[:, :, None] * np.exp(log_p)).sum(axis=1) @ self.basis
                covariance = np.linalg.inv(told + np.eye(width - 1) / sigma[:, :, None] ** 2)
                move = np.einsum("kab,kb->ka", covariance, slope - deviation / sigma**2)
                reach = np.abs(move).max(axis=1, keepdims=True)
                deviation = deviation + move * np.minimum(1.0, LONGEST_STEP / np.maximum(reach, TINY))
            noise = np.einsum("kab,kb->ka", np.linalg.cholesky(covariance), rng.normal(size=deviation.shape))
            log_p = _log_softmax(odds + ((deviation + noise) @ self.basis.T)[:, None, :])
            found = solve(Tables(r, c, log_p, phi), found.tilts)
        return found.counts.reshape(draws, count, -1, width)


def _log_softmax(odds: Array) -> Array:
    return np.asarray(odds - logsumexp(odds, axis=-1, keepdims=True))


@dataclass(frozen=True)
class Student:
    """A multivariate Student t of coordinates y of the scales, from which they are drawn."""

    centre: Array
    covariance: Array

    @cached_property
    def root(self) -> Array:
        """Of the covariance; directions of next to no spread have a little."""
        values, vectors = np.linalg.eigh(self.covariance)
        return np.asarray(vectors * np.sqrt(np.maximum(values, LEAST_SPREAD * values.max())))

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Draws (D, S)."""
        normal = rng.normal(size=(count, len(self.centre)))
        stretch = FREEDOM / rng.chisquare(FREEDOM, size=count)
        return np.asarray(self.centre + np.sqrt(stretch)[:, None] * (normal @ self.root.T))

    def log_density(self, y: Array) -> Array:
        """Log density of draws (D,)."""
        width = len(self.centre)
        normal = np.linalg.solve(self.root, (y - self.centre).T)
        constant = gammaln((FREEDOM + width) / 2) - gammaln(FREEDOM / 2) - np.linalg.slogdet(self.root)[1]
        tail = np.log1p((normal**2).sum(axis=0) / FREEDOM)
        return np.asarray(constant - 0.5 * width * np.log(FREEDOM * np.pi) - 0.5 * (FREEDOM + width) * tail)


@dataclass(frozen=True)
class Weighed:
    """Draws of the scales from one or more laws, `DRAWS` from each, with their weights.

    All of them are weighed by the mixture of these laws, so that a law which missed a part of the posterior gives its draws no large
    weights where another one was right (adaptive multiple importance sampling; Cornuet et al. 2012).
    """

    laws: tuple[Student, ...]
    y: Array
    found: list[Scored | None]
    log_target: Array
    """Log of evidence × prior."""

    @cached_property
    def log_weight(self) -> Array:
        """Log of the target over the mixture's density."""
        each = np.array([law.log_density(self.y) for law in self.laws])
        return np.asarray(self.log_target - logsumexp(each, axis=0) + np.log(len(self.laws)))

    @cached_property
    def weight(self) -> Array:
        """Weights that sum to one."""
        return np.asarray(np.exp(self.log_weight - logsumexp(self.log_weight)))

    @property
    def effective(self) -> float:
        """The number of draws of equal weight that tell as much."""
        return float(1.0 / np.sum(self.weight**2))

    @property
    def moments(self) -> Student:
        """A Student t with their mean and a covariance that is a little wider."""
        _, weight, _ = next_power(self.log_weight, 0.0, EFFECTIVE)
        mean = weight @ self.y
        away = self.y - mean
        return Student(mean, WIDER * (away * weight[:, None]).T @ away)

    def with_draws(self, tables: ManyTables, law: Student, near: Array, rng: np.random.Generator) -> Weighed:
        """These and `DRAWS` from one law more; weight zero where a coordinate is not positive."""
        y = law.draw(rng, DRAWS)
        found: list[Scored | None] = [None] * DRAWS
        log_target = np.full(DRAWS, -np.inf)
        for d in np.flatnonzero((y > 0).all(axis=1)):
            one = found[d] = tables.scored(np.log(y[d]) / tables.powers, near)
            log_target[d] = one.evidence - np.log(tables.powers * y[d]).sum()
        return Weighed(
            (*self.laws, law),
            np.concatenate([self.y, y]),
            [*self.found, *found],
            np.concatenate([self.log_target, log_target]),
        )


def _begin(tables: ManyTables) -> tuple[Student, Array]:
    """The scales with the most evidence, with the curvature there; and a and b there."""
    from scipy.optimize import minimize  # slow to import

    near = [np.zeros((tables.rows.shape[1], tables.basis.shape[1], tables.design.shape[1]))]

    def loss(psi: Array) -> float:
        found = tables.scored(psi, near[0])
        near[0] = found.parameters
        return -found.evidence

    def in_y(y: Array) -> float:
        return loss(np.log(y) / tables.powers) + float(np.log(y).sum())

    top = minimize(loss, tables.centre, method="BFGS", options={"gtol": SEARCH_TOLERANCE, "eps": 1e-3}).x
    y = np.exp(top * tables.powers)
    one, here = np.diag(STEP * y), in_y(y)
    up = [in_y(y + s) for s in one]
    curvature = np.zeros((len(y), len(y)))
    for s in range(len(y)):
        curvature[s, s] = up[s] - 2 * here + in_y(y - one[s])
        for t in range(s):
            curvature[s, t] = curvature[t, s] = in_y(y + one[s] + one[t]) - up[s] - up[t] + here
    values, vectors = np.linalg.eigh(curvature / STEP**2)
    scaled = (vectors / np.maximum(values, LEAST_CURVATURE)) @ vectors.T
    return Student(y, scaled * np.outer(y, y)), near[0]


def _asked(families: Sequence[Family]) -> list[BetweenTables]:
    """What parametrisations ask for."""
    parts = [part.component.between for f in families if (part := f.find(MatrixMoves)) is not None]
    return [one for one in parts if one is not None]


def tables_differ(families: Sequence[Family]) -> bool:
    """Whether a parametrisation asks for tables that differ."""
    return bool(_asked(families))


def tables_of(
    families: Sequence[Family], problems: Sequence[Problem], estimate: DispersionEstimate | None
) -> ManyTables | None:
    """The tables of some problems, and what is to be learned of how they differ; None where that was not asked for."""
    asked = _asked(families)
    if not asked:
        return None
    margins = [m for p in problems if (m := known_margins(p)) is not None]
    if not len(asked) == len(margins) == len(problems):
        raise ProblemError(
            "context and shared are learned from tables of which both margins are known exactly"
        )
    rows, columns = (np.array([m.counts[at] for m in margins]) for at in (0, 1))
    names: list[str] = []
    if estimate is not None:
        own = estimate.classes if not estimate.steps else ()
        names = [f"[{one.label}]" for one in own] or [""]
    phi = np.array([phi_of(p, m, p.dispersion)[1] for p, m in zip(problems, margins, strict=True)])
    return ManyTables(rows, columns, _contexts(asked, rows), names, asked[0].shared, phi)


def _contexts(asked: Sequence[BetweenTables], rows: Array) -> Array:
    """x of all tables, of mean zero and mean square one, (K, F)."""
    if asked[0].context is None:
        return np.zeros((len(rows), 0))
    if isinstance(asked[0].context, str):
        shares = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1.0)
        x = (shares - shares.mean(axis=0)) @ helmert(rows.shape[1]).T
        return np.asarray(x / max(float(np.sqrt((x**2).mean())), TINY))
    given = [np.asarray(one.context, dtype=float) for one in asked]
    if len({len(one) for one in given}) > 1:
        raise ProblemError(
            "context has different lengths for different problems: give the same numbers for all"
        )
    x = np.array(given) - np.mean(given, axis=0)
    varies = (x**2).mean(axis=0) > 0
    return np.asarray(x[:, varies] / np.sqrt((x[:, varies] ** 2).mean(axis=0)))


def integral_of_tables(tables: ManyTables, labels: Any) -> tuple[Integral, Array]:
    """Draw all parameters from evidence × prior; the integral, and expected counts of every draw and table, (D, K, R, C).

    ``labels`` are the names of a table's entries, (R, C).
    """
    rng = np.random.default_rng(SEED)
    begin, near = _begin(tables)
    nothing = Weighed((), np.zeros((0, len(begin.centre))), [], np.zeros(0))
    scales = nothing.with_draws(tables, begin, near, rng)
    for k in range(1, ROUNDS[1]):
        if k >= ROUNDS[0] and scales.effective >= EFFECTIVE:
            break
        scales = scales.with_draws(tables, scales.moments, near, rng)
    taken = np.searchsorted(np.cumsum(scales.weight), (rng.random() + np.arange(DRAWS)) / DRAWS)
    taken = taken.clip(max=int(np.flatnonzero(scales.weight).max()))
    psi, drawn = np.log(scales.y[taken]) / tables.powers, np.zeros((DRAWS, *near.shape))
    for d, which in enumerate(taken):
        one = scales.found[which]
        assert one is not None
        drawn[d] = one.parameters + (one.root @ rng.normal(size=near.size)).reshape(near.shape)
    parts = [slice(begin, begin + BATCH) for begin in range(0, DRAWS, BATCH)]
    counts = np.concatenate([tables.expected(drawn[part], psi[part], rng) for part in parts])
    effective = scales.effective
    integral = Integral(
        prior="how tables differ: " + ", ".join(tables.scales) + ", each on a weak prior of its logarithm",
        parameters=drawn.reshape(DRAWS, -1),
        psi=None,
        effective_size=effective,
        accepted=1.0,
        failed=float(np.mean([one is None for one in scales.found])),
        log_evidence=float(logsumexp(scales.log_weight) - np.log(len(scales.y))),
        log_evidence_error=float(np.sqrt(1.0 / effective - 1.0 / len(scales.y))),
        churn=np.zeros(0),
        contraction=_contraction(tables, psi, counts, labels, rng),
        between={name: np.exp(psi[:, s]) for s, name in enumerate(tables.scales)},
    )
    return integral, counts


def _contraction(
    tables: ManyTables, psi: Array, counts: Array, labels: Any, rng: np.random.Generator
) -> dict[str, float]:
    """1 − posterior/prior variance of the log-odds of every row's shares over all tables, by quartiles; the scales as they were learned."""
    apart = np.exp(psi[:, -1])[:, None, None]
    common = np.log(
        tables.columns.sum(axis=0) + 1.0
    )  # what all rows have in common, as far as the columns tell it
    a = apart * rng.normal(size=(len(psi), tables.rows.shape[1], tables.basis.shape[1]))
    prior = logit(np.exp(_log_softmax(common + a @ tables.basis.T)))
    total = counts.sum(axis=1)
    posterior = logit(np.clip(total / np.maximum(total.sum(axis=2, keepdims=True), TINY), 1e-12, 1 - 1e-12))
    widths = [np.diff(np.quantile(z, [0.25, 0.75], axis=0), axis=0)[0] for z in (posterior, prior)]
    return {
        str(label): float(1 - value**2)
        for label, value in zip(np.ravel(labels), (widths[0] / widths[1]).ravel(), strict=True)
    }
