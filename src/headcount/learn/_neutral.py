r"""Neutral priors of moves, and integration over moves and a dispersion instead of maximisation.

Where counts leave a ridge (churn times dispersion) or an edge, the maximum lies anywhere on it. There the parameters x of the moves, and
:math:`\psi = \log\phi` where a dispersion is learned, are drawn from evidence × prior. A prior is a mixture over a grid of values h of one
number that is not known, so that the evidence weighs them,

.. math:: \log p(x) = \log \tfrac{1}{H} \sum_h p(x \mid h),

and three kinds of problems have three numbers:

* chains in time: h the log of churn, flat from 10⁻³ to 1; rows alike, :math:`\log(1 - P_{ii}) \sim N(h, 0.5^2)` below 0; destinations flat.
  (A flat Dirichlet on rows is no neutral prior: it says that most move.)
* tables of two margins: h the strength of a Dirichlet on rows, log-flat, its centre flat or the columns' shares (independence); where rows
  and columns are the same cells, the prior of chains as well, all with equal weight.
* weights: normal with sd 2.5/sd of the feature within moves from one cell.

Densities are those of the log-odds x: with :math:`q_{ref} = 1 - c` the row's density is that of log c and of the destinations
:math:`q'`, times :math:`q_{ref} \prod_j q'_j`. ψ is flat over its range.

Draws are those of a sequential Monte-Carlo sampler: from the prior, the evidence raised to powers that rise from 0 to 1 such that half of
the draws stay effective, each followed by Metropolis steps along differences of two other draws (Del Moral et al. 2006; ter Braak 2006).
It begins everywhere, so that sticky and mobile explanations of the same counts are both found.

Where all counts are exact the evidence of many draws is found at once (`ExactCounts`). Of noisy counts an engine takes milliseconds per
draw, so that the sampler first draws from a quick evidence, that of normal counts with the moments of the model at the parameters
(`NoisyCounts`), and then goes from there to the engine's: powers of the ratio of both, each followed by Metropolis steps whose proposals
are several steps under the quick evidence (Liu 2001), accepted by the ratio alone. An initial law that is learned is drawn with the moves.

How much an answer leans on the prior is its contraction, :math:`1 - \operatorname{var}(a \mid y)/\operatorname{var}(a)`, a in log-odds and
the variances by quartiles, because the prior's tails are long; for tables with :math:`\operatorname{var}(a \mid h)` at strengths h drawn
from their posterior, because a strength that was learned tells no row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, log_ndtr, logit, logsumexp

from headcount._types import Array, Index
from headcount.engines.engine import Progress
from headcount.learn._churn import LEAST_NOISE
from headcount.learn._climb import usable
from headcount.learn._components import Initial, MatrixMoves, Moves, Rows, Weights
from headcount.learn._expect import Evaluation, Expectation
from headcount.learn._family import Family
from headcount.learn._margins import TOLERANCE, Margins, Tables, known_margins, phi_of, serves, solve
from headcount.observe import Problem
from headcount.population import DispersionEstimate
from headcount.tables import dense

if TYPE_CHECKING:
    import pandas as pd

MOST_PARAMETERS = 12
"""Parameters of moves up to which they are integrated over: a cloud of some hundred draws describes no more directions well."""
MOST_WORK = 3000
"""Σ rows × columns² of all tables, at most: an integral takes some 10 000 evidences, each about 1 µs per unit of it; 30 s in all."""
WIDE = 0.5
"""Standard error of log-odds beyond which a Gaussian around the maximum is not trusted, as for churn (``posterior.doubt``)."""
LEAST_CHURN = 1e-3
"""Smallest churn of the prior: one in a thousand moves in a step."""
ROWS_ALIKE = 0.5
"""Standard deviation of log churn between rows: factors of e either way in 95 %."""
LEVELS = 48
"""Values of h: one per 0.14 of log churn and 0.11 of log strength, finer than the densities given h."""
STRENGTHS = (0.5, 10.0)
"""Smallest and largest strength of a Dirichlet, in individuals per column: Jeffreys' prior, and rows that differ by a third of a share.
Larger ones make rows equal, which two margins of one table never contradict."""
WEIGHT_SD = 2.5
"""Prior sd of a weight whose feature has sd 1 (Gelman et al. 2008): log-odds of 5 either way."""
REPLICATES = 4
"""Independent samplers, whose differences tell the Monte-Carlo error; their draws are pooled by their evidences."""
FEWEST_DRAWS, MOST_DRAWS, DRAWS_TIMES_WORK = 96, 512, 70_000
"""Draws of each: 7·10⁴ over the work of one evidence, within these."""
FIRST_TIMES = 8
"""Times as many first draws from the prior: short series leave several modes, some in a small part of the prior, and one that no first
draw comes near is lost."""
MOVES_PER_POWER = 6
"""Metropolis steps after every power."""
LAST_MOVES = 15
"""Metropolis steps under the whole evidence."""
QUICK_DRAWS, CORRECTED_DRAWS = 256, 64
"""Draws of each sampler under the quick evidence (20 to 50 µs each), and those of them that go on to the engine's: 64 of 4 samplers take
some 800 evidences of 5 to 10 ms."""
QUICK_MOVES = 12
"""Metropolis steps under the quick evidence that make one proposal under the engine's."""
CORRECTIONS = 2
"""Such proposals after every power of their ratio."""
MOST_COUNTS = 150
"""Noisy counts, at most: the covariance of all of them is factored for every draw."""
MOST_INITIAL = 8
"""Parameters of an initial law up to which it is drawn with the moves."""
EFFECTIVE_SHARE = 0.7
"""Share of the draws that must stay effective from one power to the next."""
MOST_POWERS = 60
"""Powers, at most: 8 to 20 suffice, measured on 3 sites and 6 to 31 times."""
MOST_SPREAD = 100.0
"""Variance of log evidences (nats²) beyond which nothing but the largest counts: e¹⁰⁰ is still a number."""
LEAST_RISE = 1e-6
"""Least rise of the power from one to the next."""
BEST_LENGTH, LENGTHS = 2.38, (0.3, 1.2)
"""Length of a Metropolis step along a difference of two draws, times √(2K), best for Gaussian targets (ter Braak 2006), and the factors
between which it varies, set by hand: targets here have ridges, where shorter steps are taken more often."""
LONG_MOVES = 0.1
"""Share of the Metropolis steps that take the whole difference of two draws, which may lead from one mode to another."""
JITTER = 1e-3
"""Noise of a Metropolis step, in standard deviations of the draws: without it they stay in the span of their differences."""
PARTS, FEWEST_PARTS, MOST_POSTERIORS = 48, 16, 600
"""Draws whose posteriors are made: means are off by 1/7 of what parameters add to the sd. Fewer of many problems, each of which has one
posterior per draw (10 ms)."""
PRIOR_DRAWS = 1000
"""Draws of the prior by which contraction is judged: variances are off by 4 %."""
SEED = 0
"""Of the draws: the same fit gives the same answer."""


@dataclass(frozen=True)
class ConditionalPrior:
    """A prior given h, for all h of a grid."""

    words: str
    density: Callable[[Array], Array]
    """log p(x | h) of parameters (D, K), shape (D, H)."""
    draw: Callable[[np.random.Generator, Index], Array]
    """Draws of parameters, (D, K), at values of h that are given by their places."""
    nuisance: bool = False
    """Whether h is no answer: contraction is then judged at values of h that were learned."""


@dataclass(frozen=True)
class Neutral:
    """A mixture of priors with equal weights."""

    parts: tuple[ConditionalPrior, ...]

    def log_density(self, x: Array) -> Array:
        """log p(x) of parameters (D, K), shape (D,)."""
        return np.asarray(logsumexp(self._each(x), axis=1)) - np.log(len(self.parts))

    def _each(self, x: Array) -> Array:
        """The densities of all parts, (D, parts)."""
        found = [part.density(x) for part in self.parts]
        return np.stack([logsumexp(one, axis=1) - np.log(one.shape[1]) for one in found], axis=1)

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Draws, (D, K)."""
        sizes = np.diff(np.linspace(0, count, len(self.parts) + 1).round().astype(int))
        made = [
            part.draw(rng, rng.integers(LEVELS, size=k)) for part, k in zip(self.parts, sizes, strict=True)
        ]
        return np.concatenate(made)

    def draw_beside(self, rng: np.random.Generator, x: Array) -> Array:
        """Draws as they would be without counts, each from a part, and at a strength, that draws x from the posterior let one expect."""
        share = self._shares(x)
        part = (rng.random((len(x), 1)) > np.cumsum(share, axis=1)).sum(axis=1).clip(max=len(self.parts) - 1)
        made = np.zeros(x.shape)
        for k, one in enumerate(self.parts):
            mine = np.flatnonzero(part == k)
            level = rng.integers(LEVELS, size=len(mine))
            if one.nuisance and len(mine):
                given = one.density(x[mine])
                chance = np.cumsum(np.exp(given - logsumexp(given, axis=1, keepdims=True)), axis=1)
                level = (rng.random((len(mine), 1)) > chance).sum(axis=1).clip(max=LEVELS - 1)
            made[mine] = one.draw(rng, level)
        return made

    def _shares(self, x: Array) -> Array:
        """Probabilities of the parts given parameters, (D, parts)."""
        each = self._each(x)
        return np.asarray(np.exp(each - logsumexp(each, axis=1, keepdims=True)))

    def words(self, x: Array) -> str:
        """Which priors they are, with the share of draws that each explains."""
        if len(self.parts) == 1:
            return self.parts[0].words
        share = self._shares(x).mean(axis=0)
        return "; ".join(f"{one.words} ({w:.0%})" for one, w in zip(self.parts, share, strict=True))


def neutral_prior(families: Sequence[Family], problems: Sequence[Problem]) -> Neutral | None:
    """The neutral prior of the moves; None where they have one of their own, or it is not known how to be neutral."""
    moves = families[0].find(Moves)  # type: ignore[type-abstract]
    if moves is None or not all(isinstance(c, (Moves, Initial)) for f in families for c in f.components):
        return None
    component = moves.component
    if isinstance(component, Weights):
        return _of_weights(component)
    if isinstance(component, MatrixMoves):
        return _of_matrices(component, problems)
    return None


def _of_weights(weights: Weights) -> Neutral | None:
    """Normal around zero, on the scale of the features."""
    if weights.ridge.any() or weights.groups or weights.centre.any() or weights.transitions.sparse:
        return None
    cells = weights.transitions.cell_count
    even = weights.flows([np.full((cells, cells), 1.0 / cells) for _ in pairwise(weights.times)])
    spread = np.diagonal(weights.information(np.zeros(len(weights.names)), even)) / (
        cells * (len(weights.times) - 1)
    )
    if not (spread > 0).all():
        return None
    sd = WEIGHT_SD / np.sqrt(spread)

    def density(x: Array) -> Array:
        return np.asarray((-0.5 * (x / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi))).sum(axis=1, keepdims=True))

    def draw(rng: np.random.Generator, level: Index) -> Array:
        return rng.normal(size=(len(level), len(sd))) * sd

    return Neutral(
        (ConditionalPrior(f"weights normal, sd {WEIGHT_SD} on standardised features", density, draw),)
    )


def _of_matrices(rows: MatrixMoves, problems: Sequence[Problem]) -> Neutral | None:
    """Neutral in churn for chains in time; in the strength of a Dirichlet for tables of two margins."""
    given = np.any(np.asarray(rows.pseudo)) or rows.pooling is not None or rows.going is not None
    if given or rows.fixed.any():
        return None
    same_cells = all(len({p.model.states[v] for v in p.model.variables}) == 1 for p in problems)
    stays = same_cells and rows.own is not None and bool((rows.reference == rows.own).all())
    parts = [_in_churn(rows)] if stays else []
    if len(rows.times) == 2 and rows.free.all():
        parts += _in_strengths(rows, problems)
    return Neutral(tuple(parts)) if parts else None


def _in_strengths(rows: MatrixMoves, problems: Sequence[Problem]) -> list[ConditionalPrior]:
    """Dirichlet priors of a table's rows: around equal shares, and around the columns' shares where all of these were counted."""
    width = rows.free.shape[1]
    known = filter(None, map(known_margins, problems))
    total = np.sum([np.zeros(width), *(margins.counts[1] for margins in known)], axis=0)
    parts = [_in_strength(rows, np.full(width, 1.0 / width), "flat")]
    if (total > 0).all():
        parts.append(_in_strength(rows, total / total.sum(), "the columns' shares"))
    return parts


def _shares(rows: Rows, x: Array) -> Array:
    """log q of many parameters (D, K), shape (D, R, C); −∞ where not free."""
    odds = np.where(rows.free, 0.0, -np.inf) + np.zeros((len(x), 1, 1))
    odds[:, rows.place[0], rows.place[1]] = x
    return odds - logsumexp(odds, axis=2, keepdims=True)


def _log_odds(rows: Rows, q: Array) -> Array:
    """x of probabilities (D, R, C)."""
    r, c = rows.place
    return np.asarray(np.log(q[:, r, c]) - np.log(q[:, r, rows.reference[r]]))


def _in_churn(rows: MatrixMoves) -> ConditionalPrior:
    """log churn flat, rows alike, destinations flat."""
    levels = np.linspace(np.log(LEAST_CHURN), 0.0, LEVELS)
    moving = np.flatnonzero(rows.free.sum(axis=1) > 1)
    others = rows.free[moving].copy()
    others[np.arange(len(moving)), rows.reference[moving]] = False
    ways = others.sum(axis=1)
    constant = float(gammaln(ways).sum()) - len(moving) * np.log(ROWS_ALIKE * np.sqrt(2 * np.pi))

    def density(x: Array) -> Array:
        log_q = _shares(rows, x)[:, moving]
        stay = log_q[:, np.arange(len(moving)), rows.reference[moving]]
        churn = logsumexp(np.where(others, log_q, -np.inf), axis=2)
        towards = np.where(others, log_q - churn[:, :, None], 0.0).sum(axis=(1, 2))
        alike = -0.5 * ((churn[:, :, None] - levels) / ROWS_ALIKE) ** 2 - log_ndtr(-levels / ROWS_ALIKE)
        return np.asarray(alike.sum(axis=1) + (stay.sum(axis=1) + towards + constant)[:, None])

    def draw(rng: np.random.Generator, level: Index) -> Array:
        count = len(level)
        middle = np.repeat(levels[level][:, None], len(moving), axis=1)
        churn = np.full(middle.shape, np.inf)
        while (outside := churn >= 0).any():
            churn[outside] = rng.normal(middle[outside], ROWS_ALIKE)
        q = np.zeros((count, *rows.free.shape))
        weight = np.where(others, rng.exponential(size=(count, *others.shape)), 0.0)
        q[:, moving] = np.exp(churn)[:, :, None] * weight / weight.sum(axis=2, keepdims=True)
        q[:, moving, rows.reference[moving]] = -np.expm1(churn)
        return _log_odds(rows, q)

    return ConditionalPrior(
        f"log churn flat from {LEAST_CHURN:g} to 1, rows alike, destinations flat", density, draw
    )


def _in_strength(rows: MatrixMoves, centre: Array, name: str) -> ConditionalPrior:
    """Rows of a Dirichlet distribution around a centre, its strength log-flat."""
    strengths = np.geomspace(*STRENGTHS, LEVELS) * len(centre)
    alpha = strengths[:, None] * centre
    count_rows = len(rows.free)
    constant = count_rows * (gammaln(strengths) - gammaln(alpha).sum(axis=1))

    def density(x: Array) -> Array:
        return np.asarray(_shares(rows, x).sum(axis=1) @ alpha.T + constant)

    def draw(rng: np.random.Generator, level: Index) -> Array:
        shape = alpha[level][:, None, :]
        weight = rng.gamma(np.repeat(shape, count_rows, axis=1)) + np.finfo(float).tiny
        return _log_odds(rows, weight / weight.sum(axis=2, keepdims=True))

    return ConditionalPrior(f"rows Dirichlet around {name}, strength learned", density, draw, nuisance=True)


@dataclass(frozen=True)
class Integral:
    """Draws of the parameters of moves, and of log phi where a dispersion was learned, from evidence × prior."""

    prior: str
    """Which prior it was."""
    parameters: Array = field(repr=False)
    """Working parameters of the moves, (D, K)."""
    psi: Array | None = field(repr=False)
    """log phi, (D,); None where no dispersion was learned."""
    effective_size: float
    """Of the draws: how many independent ones would leave the parameters' means as uncertain as independent samplers do."""
    accepted: float
    """Share of the last Metropolis steps that were taken."""
    failed: float
    """Share of all evidences that could not be computed: such draws are left out."""
    log_evidence: float
    """log ∫ p(y | x) p(x) dx."""
    log_evidence_error: float
    """Its Monte-Carlo standard error."""
    churn: Array = field(repr=False)
    """The share that moves in a step, (D,); empty where cells change."""
    contraction: dict[str, float] = field(default_factory=dict)
    """1 − posterior/prior variance of the log-odds of ``"churn"`` and of every move."""
    churn_error: float = float("nan")
    """Monte-Carlo standard error of the mean churn."""
    between: dict[str, Array] = field(default_factory=dict, repr=False)
    """Of many tables: draws of the scales of how they differ (`headcount.learn._between`), by name, (D,) each."""

    def scales(self, level: float = 0.9) -> pd.DataFrame:
        """How tables differ: median, lower and upper end of every scale."""
        import pandas as pd

        ends = {"median": 0.5, "lower": 0.5 - level / 2, "upper": 0.5 + level / 2}
        found = [{n: float(np.quantile(v, q)) for n, q in ends.items()} for v in self.between.values()]
        return pd.DataFrame(found, index=pd.Index(list(self.between), name="scale"), columns=list(ends))

    def churn_interval(self, level: float = 0.9) -> tuple[float, float]:
        """The share that moves in a step, between its quantiles."""
        low, high = np.quantile(self.churn, [0.5 - level / 2, 0.5 + level / 2])
        return float(low), float(high)

    @property
    def words(self) -> str:
        """One line for the result."""
        leans = ", ".join(
            f"{name} {value:.2f}" for name, value in self.contraction.items() if name == "churn"
        )
        return (
            f"integrated over under a prior ({self.prior}): {self.effective_size:.0f} effective of {len(self.parameters)} draws, "
            f"log evidence {self.log_evidence:.4g} ± {self.log_evidence_error:.1g} (Monte Carlo)"
            + (f"; contraction of {leans}" if leans else "")
        )


class _Step(NamedTuple):
    """One step between exact counts."""

    family: int
    """Whose matrices it has."""
    step: int
    rows: Array
    columns: Array
    phi: Array
    """Of the rows, without dispersion."""
    more: Array
    """What the largest dispersion adds."""


@dataclass(frozen=True)
class Target(ABC):
    """log evidence of many parameters at once."""

    expect: Expectation
    estimate: DispersionEstimate | None
    margins: Sequence[Margins]
    """Counts by time, seen or expected."""
    where: Index
    """The parameters that are drawn."""
    draws: int
    """Draws of each sampler."""

    @abstractmethod
    def __call__(self, x: Array, psi: Array | None) -> Array:
        """Shape (D,); −∞ where it cannot be computed."""

    @abstractmethod
    def by_engine(self, x: Array, psi: Array | None) -> Array | None:
        """The same by the engine; None where `__call__` gives no less."""

    @cached_property
    def moves(self) -> list[Moves]:
        """The component of the moves, by problem."""
        return [f.find(Moves).component for f in self.expect.families]  # type: ignore[type-abstract, union-attr]

    @cached_property
    def phi(self) -> list[list[tuple[Array, Array]]]:
        """By problem and step phi of the rows without dispersion, and what the largest adds; phi is linear in the value of phi or rho."""
        found = []
        for problem, margins in zip(self.expect.problems, self.margins, strict=True):
            ends = [problem.dispersion] * 2
            if self.estimate is not None:
                ends = [self.estimate.at(psi) for psi in (0.0, self.estimate.high)]
            low, high = (phi_of(problem, margins, one)[1:] for one in ends)
            found.append([(one, other - one) for one, other in zip(low, high, strict=True)])
        return found

    def matrices(self, problem: int, x: Array) -> list[Array]:
        """Of every step of a problem, (D, L, L) each."""
        component, steps = self.moves[problem], len(self.margins[problem].counts) - 1
        made = [component.matrices(point[: len(component.names)]) for point in x]
        each = [one if isinstance(one, list) else [one] * steps for one in made]
        return [np.array([np.asarray(dense(one[t])) for one in each]) for t in range(steps)]

    def of_largest(self, psi: Array | None, count: int) -> Array:
        """Dispersions as shares of the largest, (D,); zero without one."""
        if psi is None or self.estimate is None:
            return np.zeros(count)
        low, high = (self.estimate.value_at(v) for v in (0.0, self.estimate.high))
        return (np.array([self.estimate.value_at(float(v)) for v in psi]) - low) / (high - low)

    def churn(self, x: Array) -> Array:
        """The share that moves in a step for many parameters, (D,), at these counts; empty where cells change."""
        if any(len({len(n) for n in m.counts}) > 1 for m in self.margins):
            return np.zeros(0)
        people = sum(float(n.sum()) for m in self.margins for n in m.counts[:-1])
        moving = np.zeros(len(x))
        for k, margins in enumerate(self.margins):
            for n, p in zip(margins.counts, self.matrices(k, x), strict=False):
                moving += (1.0 - np.diagonal(p, axis1=1, axis2=2)) @ n
        return moving / people


@final
class ExactCounts(Target):
    """Of problems whose counts are all exact. The first counts, which moves say nothing about, are left out."""

    @classmethod
    def of(cls, expect: Expectation, estimate: DispersionEstimate | None, where: Index) -> ExactCounts | None:
        """None where other things than exact counts are seen, or there are too many of them."""
        margins = [m for p in expect.problems if (m := known_margins(p)) is not None]
        work = sum(len(a) * len(b) ** 2 for m in margins for a, b in pairwise(m.counts))
        if len(margins) < len(expect.problems) or not serves(expect.engine) or work > MOST_WORK:
            return None
        draws = int(np.clip(DRAWS_TIMES_WORK // work, FEWEST_DRAWS, MOST_DRAWS))
        return cls(expect, estimate, margins, where, draws)

    @cached_property
    def _groups(self) -> list[list[_Step]]:
        """All steps of all problems, those of one shape together."""
        groups: dict[tuple[int, int], list[_Step]] = {}
        families = self.expect.families
        own = [0 if f.alike(families[0]) else k for k, f in enumerate(families)]
        for k, (margins, phi) in enumerate(zip(self.margins, self.phi, strict=True)):
            for t, (rows, columns) in enumerate(pairwise(margins.counts)):
                step = _Step(own[k], t, rows, columns, *phi[t])
                groups.setdefault((len(rows), len(columns)), []).append(step)
        return list(groups.values())

    def __call__(self, x: Array, psi: Array | None) -> Array:
        """Batches are halved where one of their draws breaks them."""
        own = {step.family for group in self._groups for step in group}
        # The prior keeps P off zero, rounding may not.
        logs = {k: [np.log(np.maximum(p, np.finfo(float).tiny)) for p in self.matrices(k, x)] for k in own}
        share = self.of_largest(psi, len(x))
        try:
            return np.sum([self._of_group(group, logs, share) for group in self._groups], axis=0)
        except np.linalg.LinAlgError:  # one of them breaks the batch
            if len(x) == 1:
                return np.full(1, -np.inf)
            ends = np.array_split(np.arange(len(x)), 2)
            return np.concatenate([self(x[part], None if psi is None else psi[part]) for part in ends])

    def by_engine(self, x: Array, psi: Array | None) -> None:
        """It is the engine's."""

    def _of_group(self, group: Sequence[_Step], logs: Mapping[int, list[Array]], share: Array) -> Array:
        """The evidence of steps of one shape together, (D,)."""
        count = len(share)
        log_p = np.stack([logs[s.family][s.step] for s in group], axis=1)
        rows, columns = (
            np.tile([getattr(s, name) for s in group], (count, 1)) for name in ("rows", "columns")
        )
        low, more = (np.array([getattr(s, name) for s in group]) for name in ("phi", "more"))
        phi = (low + share[:, None, None] * more).reshape(rows.shape)
        found = solve(Tables(rows, columns, log_p.reshape(-1, *log_p.shape[2:]), phi))
        met = (found.missed <= TOLERANCE) & np.isfinite(found.evidence)
        return np.where(met, found.evidence, -np.inf).reshape(count, len(group)).sum(axis=1)


@final
@dataclass(frozen=True)
class NoisyCounts(Target):
    r"""Of chains of a known number of individuals of which some counts were seen, with noise or without.

    The quick evidence is that of normal counts with the moments at the parameters,

    .. math::

        E n_{t+1} = E n_t P, \quad \operatorname{cov}(n_s, n_{t+1}) = \operatorname{cov}(n_s, n_t) P, \quad
        \operatorname{cov} n_{t+1} = P^\top \operatorname{cov}(n_t) P + \sum_i E n_i \phi_i (\operatorname{diag} p_i - p_i p_i^\top),

    and those of the noise at :math:`E n`.
    """

    point: Evaluation
    """The maximum: where E-steps start, and where what is not drawn stays."""

    @classmethod
    def of(
        cls, expect: Expectation, estimate: DispersionEstimate | None, where: Index, point: Evaluation
    ) -> NoisyCounts | None:
        """None where other things than counts of a chain's single times are seen, or there are too many of them."""
        first = expect.families[0].find(Initial)
        initial = np.zeros(0, np.intp) if first is None else first.where
        counts = sum(len(site) for p in expect.problems for site in p.sites)
        closed = all(_is_closed_chain(p) for p in expect.problems)
        judged = not expect.engine.random and serves(expect.engine) is not False and np.isfinite(point.value)
        if not (closed and judged) or counts > MOST_COUNTS or len(initial) > MOST_INITIAL:
            return None
        expected = [
            [p.beliefs.mean((v,)) for v in p.problem.model.variables] for p in expect.posteriors(point)
        ]
        margins = [Margins(tuple(map(np.asarray, each)), ()) for each in expected]
        return cls(expect, estimate, margins, np.concatenate([where, initial]), QUICK_DRAWS, point)

    @cached_property
    def _seen(self) -> list[Array]:
        """Which entries of the counts at all times every observation adds up, by problem, (counts, entries)."""
        found = []
        for problem in self.expect.problems:
            sizes = [problem.model.size((v,))[0] for v in problem.model.variables]
            every, ends = np.eye(sum(sizes)), np.cumsum(sizes)[:-1]
            own = dict(zip(problem.model.variables, np.split(every, ends, axis=1), strict=True))
            found.append(np.hstack([site.margin(own[site.scope[0]]) for site in problem.sites]).T)
        return found

    def __call__(self, x: Array, psi: Array | None) -> Array:
        """Of normal counts."""
        share = self.of_largest(psi, len(x))
        return np.sum([self._quick(k, x, share) for k in range(len(self.margins))], axis=0)

    def _quick(self, k: int, x: Array, share: Array) -> Array:
        """Of one problem."""
        problem, seen = self.expect.problems[k], self._seen[k]
        initial, size = self._initial(k, x), float(problem.typical_population)
        means, n = [size * initial], size * initial
        covariance = np.zeros((len(x), seen.shape[1], seen.shape[1]))
        now = slice(0, n.shape[1])
        covariance[:, now, now] = n[:, :, None] * (np.eye(now.stop) - initial[:, None, :])
        for p, (low, more) in zip(self.matrices(k, x), self.phi[k], strict=True):
            scatter, back = n * (low + share[:, None] * more), p.swapaxes(1, 2)
            n = (n[:, None] @ p)[:, 0]
            means.append(n)
            past, after = slice(0, now.stop), slice(now.stop, now.stop + n.shape[1])
            across = covariance[:, past, now] @ p
            covariance[:, past, after], covariance[:, after, past] = across, across.swapaxes(1, 2)
            single = (scatter[:, None] @ p) * np.eye(n.shape[1]) - back @ (scatter[:, :, None] * p)
            covariance[:, after, after] = back @ covariance[:, now, now] @ p + single
            now = after
        return _log_normal(problem.noises, np.hstack(means) @ seen.T, seen @ covariance @ seen.T)

    def _initial(self, k: int, x: Array) -> Array:
        """Initial laws, (D, L)."""
        first, chain = self.expect.families[k].find(Initial), self.expect.problems[k].model.as_chain()
        if first is None:
            assert chain is not None
            return np.tile(np.asarray(chain.initial), (len(x), 1))
        return np.asarray(np.exp(_shares(first.component, x[:, len(self.moves[k].names) :])[:, 0]))

    def by_engine(self, x: Array, psi: Array | None) -> Array:
        """One E-step per draw and problem."""
        found = np.full(len(x), -np.inf)
        for d, point in enumerate(x):
            whole, own = self.point.x.copy(), self.expect
            whole[self.where] = point
            if psi is not None and self.estimate is not None:
                together = self.estimate.at(float(psi[d]))
                own = replace(own, problems=[p.with_dispersion(together) for p in own.problems])
            (at,) = own.several([whole], self.point.starts)
            if usable(at, self.point) and np.isfinite(at.evidence):
                found[d] = at.evidence
        return found


def _log_normal(noises: Any, n: Array, covariance: Array) -> Array:
    """log density of counts with the moments of the noise at n (D, M), and the covariance of n (D, M, M); −∞ where there is none."""
    slope, gap, variance = (np.zeros(n.shape) for _ in range(3))
    for index, law in noises:
        (low, scatter), (high, _) = law.moments(n[:, index]), law.moments(n[:, index] + 1.0)
        told = np.isfinite(low) & np.isfinite(scatter)  # bounds have no moments
        slope[:, index], gap[:, index] = np.where(told, [high - low, law.counts - low], 0.0)
        variance[:, index] = np.where(told, scatter + LEAST_NOISE, 1.0)
    whole = slope[:, :, None] * covariance * slope[:, None, :] + variance[:, :, None] * np.eye(n.shape[1])
    sign, log_det = np.linalg.slogdet(whole)
    square = (gap * np.linalg.solve(whole, gap[:, :, None])[:, :, 0]).sum(axis=1)
    value = -0.5 * (square + log_det + n.shape[1] * np.log(2 * np.pi))
    return np.where((sign > 0) & np.isfinite(value), value, -np.inf)


def _is_closed_chain(problem: Problem) -> bool:
    """Whether counts of a chain's single times are all that is seen of a known number of individuals."""
    known = problem.size_known and not problem.opens and not problem.model.has_hidden_states
    alone = known and problem.groups is None and not problem.tracks and problem.model.as_chain() is not None
    return alone and all(len(site.scope) == 1 for site in problem.sites)


class Particles(NamedTuple):
    """Draws on their way."""

    x: Array
    """Parameters, and psi last where there is one, (D, K)."""
    evidence: Array
    prior: Array

    def taken(self, where: Any) -> Particles:
        return Particles(*(part[where] for part in self))

    def where(self, better: NDArray[np.bool_], new: Particles) -> Particles:
        """These draws, and others where those are better."""
        return Particles(
            np.where(better[:, None], new.x, self.x),
            *(np.where(better, b, a) for a, b in zip(self[1:], new[1:], strict=True)),
        )


class Replicate(NamedTuple):
    """What one sampler drew."""

    x: Array
    """Parameters, and psi last where there is one, (D, K)."""
    log_evidence: float
    """log ∫ evidence × prior; −∞ where the last power was not reached."""
    accepted: float
    """Share of the last Metropolis steps that were taken."""


@dataclass
class TemperedSampler:
    """Draws from evidence × prior, by powers of the evidence."""

    target: Target
    prior: Neutral
    psi_range: tuple[float, float] | None
    rng: np.random.Generator
    draws: int
    advance: Callable[[], None]
    """Shows progress."""
    evaluated: int = 0
    failed: int = 0

    def run(self) -> Replicate:
        """Draw."""
        cloud = self._from_prior(FIRST_TIMES * self.draws)
        power, total = 0.0, 0.0
        for _ in range(MOST_POWERS):
            power, weights, rise = next_power(cloud.evidence, power, EFFECTIVE_SHARE * self.draws)
            total += rise
            cloud = cloud.taken(_systematic(weights, self.rng, self.draws))
            if power == 1.0:
                break
            for _ in range(MOVES_PER_POWER):
                cloud, _ = self._moved(cloud, power)
        accepted = []
        for _ in range(LAST_MOVES):
            cloud, share = self._moved(cloud, power)
            accepted.append(share)
        few = cloud.taken(slice(None, None, -(-self.draws // CORRECTED_DRAWS)))
        if power == 1.0 and (right := self._by_engine(few.x)) is not None:
            cloud, power, rise, accepted = self._corrected(few, right, cloud.x)
            total += rise
        return Replicate(cloud.x, total if power == 1.0 else -np.inf, float(np.mean(accepted)))

    def _corrected(
        self, cloud: Particles, right: Array, among: Array
    ) -> tuple[Particles, float, float, list[float]]:
        """From draws under the quick evidence to draws under the engine's: also the power reached, the log of the ratio, shares accepted.

        Differences of proposals are ``among`` draws that stay the same, so that steps under the quick evidence are reversible.
        """
        power, total, accepted, count = 0.0, 0.0, list[float](), len(cloud.x)
        ratio = right - cloud.evidence
        if not np.isfinite(ratio).any():
            return cloud, 0.0, 0.0, [0.0]
        for _ in range(MOST_POWERS):
            power, weights, rise = next_power(ratio, power, EFFECTIVE_SHARE * count)
            total += rise
            kept = _systematic(weights, self.rng, count)
            cloud, ratio = cloud.taken(kept), ratio[kept]
            for _ in range(CORRECTIONS):
                new = cloud
                for _ in range(QUICK_MOVES):
                    new, _ = self._stepped(new, among, 1.0)
                moved = self._by_engine(new.x)
                assert moved is not None
                other = moved - new.evidence
                with np.errstate(invalid="ignore"):
                    better = np.log(self.rng.random(count)) < power * (other - ratio)
                cloud, ratio = cloud.where(better, new), np.where(better, other, ratio)
                accepted.append(float(better.mean()))
            if power == 1.0:
                break
        return cloud, power, total, accepted

    def _by_engine(self, x: Array) -> Array | None:
        """The engine's evidence, where it is another than the quick one."""
        found = self.target.by_engine(*self._parts(x))
        if found is not None:
            self.evaluated += len(x)
            self.failed += int((~np.isfinite(found)).sum())
            self.advance()
        return found

    def _parts(self, x: Array) -> tuple[Array, Array | None]:
        """Parameters, and psi where there is one."""
        return (x, None) if self.psi_range is None else (x[:, :-1], x[:, -1])

    def _from_prior(self, count: int) -> Particles:
        x = self.prior.draw(self.rng, count)
        if self.psi_range is not None:
            x = np.column_stack([x, self.rng.uniform(*self.psi_range, count)])
        return self._at(x)

    def _at(self, x: Array) -> Particles:
        """Evidence and prior of some parameters; where the prior is zero no evidence is computed."""
        moves, psi = self._parts(x)
        prior = self.prior.log_density(moves)
        if self.psi_range is not None and psi is not None:
            low, high = self.psi_range
            prior = np.where((psi >= low) & (psi <= high), prior - np.log(high - low), -np.inf)
        possible = np.isfinite(prior)
        evidence = np.full(len(x), -np.inf)
        if possible.any():
            evidence[possible] = self.target(moves[possible], None if psi is None else psi[possible])
        self.evaluated += int(possible.sum())
        self.failed += int((~np.isfinite(evidence[possible])).sum())
        return Particles(x, evidence, prior)

    def _moved(self, cloud: Particles, power: float) -> tuple[Particles, float]:
        """One Metropolis step of every draw, half of them at a time, along differences of two of the other half."""
        halves = np.array_split(self.rng.permutation(len(cloud.x)), 2)
        taken = 0
        for part, others in (halves, halves[::-1]):
            new, better = self._stepped(cloud.taken(part), cloud.x[others], power)
            for mine, made in zip(cloud, new, strict=True):
                mine[part] = made
            taken += int(better.sum())
        return cloud, taken / len(cloud.x)

    def _stepped(self, old: Particles, among: Array, power: float) -> tuple[Particles, NDArray[np.bool_]]:
        """One Metropolis step of every draw along differences of two of some others, and which were taken."""
        count, width = old.x.shape
        first, second = self.rng.integers(len(among), size=(2, count))
        whole = self.rng.random(count) < LONG_MOVES
        shorter = BEST_LENGTH / np.sqrt(2 * width) * self.rng.uniform(*LENGTHS, count)
        length = np.where(whole, 1.0, shorter)
        way = among[first] - among[second]
        noise = JITTER * among.std(axis=0) * self.rng.normal(size=way.shape)
        new = self._at(old.x + length[:, None] * way + noise)
        with np.errstate(invalid="ignore"):
            ratio = power * (new.evidence - old.evidence) + new.prior - old.prior
        better = np.log(self.rng.random(count)) < ratio
        return old.where(better, new), better


def next_power(evidence: Array, power: float, effective: float) -> tuple[float, Array, float]:
    """The largest power at which so many draws stay effective, their weights, and the log of the mean weight."""
    from scipy.optimize import brentq  # slow to import

    def weighed(new: float) -> tuple[Array, float]:
        with np.errstate(invalid="ignore"):
            log_w = np.where(np.isfinite(evidence), (new - power) * evidence, -np.inf)
        total = float(logsumexp(log_w))
        return np.exp(log_w - total), total - float(np.log(len(evidence)))

    alive = int(np.isfinite(evidence).sum())
    least = min(effective, EFFECTIVE_SHARE * alive)

    def spare(new: float) -> float:
        return float(1.0 / np.sum(weighed(new)[0] ** 2)) - least

    new = 1.0 if spare(1.0) >= 0 else float(brentq(spare, power, 1.0, xtol=1e-3 * LEAST_RISE, rtol=1e-3))
    return max(new, power + LEAST_RISE), *weighed(max(new, power + LEAST_RISE))


def _systematic(weights: Array, rng: np.random.Generator, count: int) -> Index:
    """So many draws, evenly, as often as weights say."""
    return np.searchsorted(np.cumsum(weights), (rng.random() + np.arange(count)) / count).clip(
        max=len(weights) - 1
    )


class Pooled(NamedTuple):
    """Several independent samplers' draws together, with what their differences tell of the Monte-Carlo error."""

    x: Array
    log_evidence: float
    log_evidence_error: float
    effective_size: float
    weights: Array
    """Of the samplers, shape (R,)."""

    @classmethod
    def of(cls, found: Sequence[Replicate], rng: np.random.Generator) -> Pooled:
        r"""Draws of all samplers, each as often as its share of the evidence says: every one's is an unbiased estimate of the integral.

        A mean is :math:`\bar a = \sum_r w_r a_r`, with the Monte-Carlo variance
        :math:`\tfrac{R}{R-1} \sum_r w_r^2 (a_r - \bar a)^2`, and the effective size is that of independent draws with the
        same ratio of this variance to that of the draws, on average over parameters.
        Of the evidences Z, which are about log-normal with the variance s² of their logarithms, the mean has the variance
        :math:`\log(1 + (e^{s^2} - 1)/R)` in logarithms.
        """
        log_z = np.array([one.log_evidence for one in found])
        total = float(logsumexp(log_z))
        every = np.concatenate([one.x for one in found])
        if not np.isfinite(total):
            return cls(every, np.nan, np.nan, 0.0, np.full(len(found), np.nan))
        weights = np.exp(log_z - total)
        each = np.concatenate(
            [np.full(len(one.x), w / len(one.x)) for one, w in zip(found, weights, strict=True)]
        )
        x = every[_systematic(each, rng, len(every))]
        means = np.array([one.x.mean(axis=0) for one in found])
        share = monte_carlo_variance(means, weights) / np.maximum(x.var(axis=0), 1e-300)
        count = len(found)
        spread = float(np.var(log_z, ddof=1)) if np.isfinite(log_z).all() else np.inf
        error = float(np.sqrt(np.log1p(np.expm1(min(spread, MOST_SPREAD)) / count)))
        return cls(
            x,
            total - float(np.log(count)),
            error,
            min(1.0 / max(float(share.mean()), 1e-300), len(every)),
            weights,
        )


def monte_carlo_variance(each: Array, weights: Array) -> Array:
    """Of the mean Σ w_r a_r over samplers; ``each`` has one row per sampler."""
    count = len(weights)
    return np.asarray(count / (count - 1) * weights**2 @ (each - weights @ each) ** 2)


def integrable(
    expect: Expectation, estimate: DispersionEstimate | None, point: Evaluation
) -> tuple[Target, Neutral] | None:
    """What is needed to integrate over the moves of these problems; None where that is not possible, or would take long."""
    prior = neutral_prior(expect.families, expect.problems)
    moves = expect.families[0].find(Moves)  # type: ignore[type-abstract]
    if prior is None or moves is None or len(moves.component.names) > MOST_PARAMETERS:
        return None
    form = None if estimate is None or estimate.classes or estimate.form == "flocks" else estimate
    exact = ExactCounts.of(expect, form, moves.where)
    if exact is not None:
        return exact, prior
    noisy, first = NoisyCounts.of(expect, form, moves.where, point), expect.families[0].find(Initial)
    if noisy is None or (
        first is not None and not np.all(first.component.pseudo)
    ):  # a flat prior of log-odds has no integral
        return None
    return noisy, _beside_initial(prior, expect.families[0])


def _beside_initial(prior: Neutral, family: Family) -> Neutral:
    """The prior of moves, and of an initial law where that is learned."""
    first = family.find(Initial)
    return (
        prior
        if first is None
        else Neutral(tuple(_with_initial(part, first.component) for part in prior.parts))
    )


def _with_initial(part: ConditionalPrior, first: Initial) -> ConditionalPrior:
    """The prior of moves, and beside it the Dirichlet distribution of an initial law."""
    count = len(first.names)
    alpha = np.broadcast_to(first.pseudo, first.free.shape)[first.free]
    constant = float(gammaln(alpha.sum()) - gammaln(alpha).sum())

    def density(x: Array) -> Array:
        own = np.array([first.log_prior(point) for point in x[:, -count:]])
        return part.density(x[:, :-count]) + (own + constant)[:, None]

    def draw(rng: np.random.Generator, level: Index) -> Array:
        q = np.zeros((len(level), *first.free.shape))
        q[:, first.free] = rng.dirichlet(alpha, len(level))
        return np.hstack([part.draw(rng, level), _log_odds(first, q)])

    return replace(part, density=density, draw=draw)


def _churn_error(target: Target, found: Sequence[Replicate], weights: Array) -> float:
    """Monte-Carlo standard error of the mean churn."""
    width = len(target.where)
    means = np.array([target.churn(one.x[:, :width]).mean() for one in found])
    return float(np.sqrt(monte_carlo_variance(means, weights)))


def integral_of(target: Target, prior: Neutral, *, progress: bool | None = False) -> Integral:
    """Draw the parameters of the moves, and log phi where a dispersion was learned, from evidence × prior."""
    estimate = target.estimate
    ends = None if estimate is None else (max(estimate.low, 0.0), estimate.high)
    rng = np.random.default_rng(SEED)
    with Progress("integrating over parameters", REPLICATES * MOST_POWERS, show=progress) as bar:
        samplers = [
            TemperedSampler(target, prior, ends, own, target.draws, bar.advance)
            for own in rng.spawn(REPLICATES)
        ]
        found = [sampler.run() for sampler in samplers]
    pooled = Pooled.of(found, rng)
    x, psi = (pooled.x, None) if ends is None else (pooled.x[:, :-1], pooled.x[:, -1])
    before = prior.draw_beside(rng, x[rng.integers(len(x), size=PRIOR_DRAWS)])
    churn = target.churn(x)
    return Integral(
        prior=prior.words(x),
        parameters=x,
        psi=psi,
        effective_size=pooled.effective_size,
        accepted=float(np.mean([one.accepted for one in found])),
        failed=float(np.sum([one.failed for one in samplers]) / np.sum([one.evaluated for one in samplers])),
        log_evidence=pooled.log_evidence,
        log_evidence_error=pooled.log_evidence_error,
        churn=churn,
        churn_error=_churn_error(target, found, pooled.weights) if len(churn) else np.nan,
        contraction=_contraction(target, before, x, churn),
    )


def _contraction(target: Target, before: Array, after: Array, churn: Array) -> dict[str, float]:
    """1 − posterior/prior variance, by quartiles, of churn and of every parameter on its natural scale (probabilities in log-odds)."""
    component = target.moves[0]
    link = component.natural(after[0, : len(component.names)]).link

    def width(values: Array) -> float:
        low, high = np.quantile(values, [0.25, 0.75])
        return float(high - low)

    def answers(x: Array, moving: Array) -> dict[str, Array]:
        natural = [component.natural(point[: len(component.names)]) for point in x]
        values = np.array([one.values for one in natural])
        found = {"churn": logit(moving)} if len(moving) else {}
        for k, name in enumerate(natural[0].names):
            found[name] = logit(values[:, k]) if link[k] == "logit" else values[:, k]
        return found

    prior, posterior = answers(before, target.churn(before)), answers(after, churn)
    return {name: 1.0 - (width(posterior[name]) / width(prior[name])) ** 2 for name in prior}


def taken(integral: Integral, problems: int) -> Index:
    """Which draws have their posteriors made: evenly many of all, by churn where there is one."""
    count = int(np.clip(MOST_POSTERIORS // problems, FEWEST_PARTS, PARTS))
    order = np.argsort(integral.churn if len(integral.churn) else integral.parameters[:, 0])
    return order[((np.arange(count) + 0.5) * len(order) / count).astype(int)]
