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

How much an answer leans on the prior is its contraction, :math:`1 - \operatorname{var}(a \mid y)/\operatorname{var}(a)`, a in log-odds and
the variances by quartiles, because the prior's tails are long; for tables with :math:`\operatorname{var}(a \mid h)` at strengths h drawn
from their posterior, because a strength that was learned tells no row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import gammaln, log_ndtr, logit, logsumexp

from headcount._types import Array, Index
from headcount.learn._components import Initial, Matrices, Moves, Weights
from headcount.learn._expect import Expectation
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
class Part:
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

    parts: tuple[Part, ...]

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
    if isinstance(component, Matrices):
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

    return Neutral((Part(f"weights normal, sd {WEIGHT_SD} on standardised features", density, draw),))


def _of_matrices(rows: Matrices, problems: Sequence[Problem]) -> Neutral | None:
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


def _in_strengths(rows: Matrices, problems: Sequence[Problem]) -> list[Part]:
    """Dirichlet priors of a table's rows: around equal shares, and around the columns' shares where all of these were counted."""
    width = rows.free.shape[1]
    known = filter(None, map(known_margins, problems))
    total = np.sum([np.zeros(width), *(margins.counts[1] for margins in known)], axis=0)
    parts = [_in_strength(rows, np.full(width, 1.0 / width), "flat")]
    if (total > 0).all():
        parts.append(_in_strength(rows, total / total.sum(), "the columns' shares"))
    return parts


def _shares(rows: Matrices, x: Array) -> Array:
    """log q of many parameters (D, K), shape (D, R, C); −∞ where not free."""
    odds = np.where(rows.free, 0.0, -np.inf) + np.zeros((len(x), 1, 1))
    odds[:, rows.place[0], rows.place[1]] = x
    return odds - logsumexp(odds, axis=2, keepdims=True)


def _log_odds(rows: Matrices, q: Array) -> Array:
    """x of probabilities (D, R, C)."""
    r, c = rows.place
    return np.asarray(np.log(q[:, r, c]) - np.log(q[:, r, rows.reference[r]]))


def _in_churn(rows: Matrices) -> Part:
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

    return Part(f"log churn flat from {LEAST_CHURN:g} to 1, rows alike, destinations flat", density, draw)


def _in_strength(rows: Matrices, centre: Array, name: str) -> Part:
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

    return Part(f"rows Dirichlet around {name}, strength learned", density, draw, nuisance=True)


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
class Target:
    """log evidence of many parameters at once, of problems whose counts are all exact."""

    families: Sequence[Family]
    problems: Sequence[Problem]
    margins: Sequence[Margins]
    estimate: DispersionEstimate | None

    @classmethod
    def of(cls, expect: Expectation, estimate: DispersionEstimate | None) -> Target | None:
        """None where other things than exact counts are seen, or there are too many of them."""
        margins = [m for p in expect.problems if (m := known_margins(p)) is not None]
        if len(margins) < len(expect.problems) or not serves(expect.engine):
            return None
        made = cls(expect.families, expect.problems, margins, estimate)
        return made if made.work <= MOST_WORK else None

    @property
    def work(self) -> int:
        """Σ rows × columns² of all tables."""
        return sum(len(a) * len(b) ** 2 for m in self.margins for a, b in pairwise(m.counts))

    @cached_property
    def _moves(self) -> list[Moves]:
        return [f.find(Moves).component for f in self.families]  # type: ignore[type-abstract, union-attr]

    @cached_property
    def _groups(self) -> list[list[_Step]]:
        """All steps of all problems, those of one shape together."""
        groups: dict[tuple[int, int], list[_Step]] = {}
        own = [0 if f.alike(self.families[0]) else k for k, f in enumerate(self.families)]
        for k, (problem, margins) in enumerate(zip(self.problems, self.margins, strict=True)):
            ends = [problem.dispersion] * 2
            if self.estimate is not None:  # phi is a + b v in the value v of phi or rho
                ends = [self.estimate.at(psi) for psi in (0.0, self.estimate.high)]
            low, high = (phi_of(problem, margins, one)[1:] for one in ends)
            for t, (rows, columns) in enumerate(pairwise(margins.counts)):
                step = _Step(own[k], t, rows, columns, low[t], high[t] - low[t])
                groups.setdefault((len(rows), len(columns)), []).append(step)
        return list(groups.values())

    def __call__(self, x: Array, psi: Array | None) -> Array:
        """Shape (D,); −∞ where it cannot be computed. The first counts, which moves say nothing about, are left out."""
        own = {step.family for group in self._groups for step in group}
        logs = [{k: _log_moves(self._moves[k].matrices(point)) for k in own} for point in x]
        share = self._of_largest(psi, len(x))
        try:
            return np.sum([self._of_group(group, logs, share) for group in self._groups], axis=0)
        except np.linalg.LinAlgError:  # one of them breaks the batch
            if len(x) == 1:
                return np.full(1, -np.inf)
            ends = np.array_split(np.arange(len(x)), 2)
            return np.concatenate([self(x[part], None if psi is None else psi[part]) for part in ends])

    def _of_largest(self, psi: Array | None, count: int) -> Array:
        """Dispersions as shares of the largest, (D,); zero without one."""
        if psi is None or self.estimate is None:
            return np.zeros(count)
        low, high = (self.estimate.value_at(v) for v in (0.0, self.estimate.high))
        return (np.array([self.estimate.value_at(float(v)) for v in psi]) - low) / (high - low)

    def _of_group(self, group: Sequence[_Step], logs: Sequence[Mapping[int, Any]], share: Array) -> Array:
        """The evidence of steps of one shape together, (D,)."""
        count = len(logs)
        log_p = np.array([[_of_step(law[s.family], s.step) for s in group] for law in logs])
        rows, columns = (
            np.tile([getattr(s, name) for s in group], (count, 1)) for name in ("rows", "columns")
        )
        low, more = (np.array([getattr(s, name) for s in group]) for name in ("phi", "more"))
        phi = (low + share[:, None, None] * more).reshape(rows.shape)
        found = solve(Tables(rows, columns, log_p.reshape(-1, *log_p.shape[2:]), phi))
        met = (found.missed <= TOLERANCE) & np.isfinite(found.evidence)
        return np.where(met, found.evidence, -np.inf).reshape(count, len(group)).sum(axis=1)

    def churn(self, x: Array) -> Array:
        """The share that moves in a step for many parameters, (D,), at the counts seen; empty where cells change."""
        if any(len({len(n) for n in m.counts}) > 1 for m in self.margins):
            return np.zeros(0)
        people = sum(float(n.sum()) for m in self.margins for n in m.counts[:-1])
        found = np.zeros(len(x))
        for d, point in enumerate(x):
            for component, margins in zip(self._moves, self.margins, strict=True):
                made = component.matrices(point)
                each = made if isinstance(made, list) else [made] * (len(margins.counts) - 1)
                leaving = zip(margins.counts, each, strict=False)
                found[d] += sum(float(n @ (1.0 - np.diagonal(np.asarray(dense(p))))) for n, p in leaving)
        return found / people


def _log_moves(matrices: Any) -> Any:
    """log P, one matrix or a list of them; the prior keeps P off zero, rounding may not."""
    if isinstance(matrices, list):
        known = {id(m): _log_moves(m) for m in matrices}
        return [known[id(m)] for m in matrices]
    return np.log(np.maximum(np.asarray(dense(matrices)), np.finfo(float).tiny))


def _of_step(law: Any, step: int) -> Array:
    """The matrix of one step."""
    return law[step] if isinstance(law, list) else law


class Cloud(NamedTuple):
    """Draws on their way."""

    x: Array
    """Parameters, and psi last where there is one, (D, K)."""
    evidence: Array
    prior: Array

    def taken(self, where: Any) -> Cloud:
        return Cloud(*(part[where] for part in self))


class Replicate(NamedTuple):
    """What one sampler drew."""

    x: Array
    """Parameters, and psi last where there is one, (D, K)."""
    log_evidence: float
    """log ∫ evidence × prior; −∞ where the last power was not reached."""
    accepted: float
    """Share of the last Metropolis steps that were taken."""


@dataclass
class Sampler:
    """Draws from evidence × prior, by powers of the evidence."""

    target: Callable[[Array, Array | None], Array]
    prior: Neutral
    psi_range: tuple[float, float] | None
    rng: np.random.Generator
    draws: int
    evaluated: int = 0
    failed: int = 0

    def run(self) -> Replicate:
        """Draw."""
        cloud = self._from_prior(FIRST_TIMES * self.draws)
        power, total = 0.0, 0.0
        for _ in range(MOST_POWERS):
            power, weights, rise = _next_power(cloud.evidence, power, EFFECTIVE_SHARE * self.draws)
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
        return Replicate(cloud.x, total if power == 1.0 else -np.inf, float(np.mean(accepted)))

    def _from_prior(self, count: int) -> Cloud:
        x = self.prior.draw(self.rng, count)
        if self.psi_range is not None:
            x = np.column_stack([x, self.rng.uniform(*self.psi_range, count)])
        return self._at(x)

    def _at(self, x: Array) -> Cloud:
        """Evidence and prior of some parameters; where the prior is zero no evidence is computed."""
        moves, psi = (x, None) if self.psi_range is None else (x[:, :-1], x[:, -1])
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
        return Cloud(x, evidence, prior)

    def _moved(self, cloud: Cloud, power: float) -> tuple[Cloud, float]:
        """One Metropolis step of every draw, half of them at a time, along differences of two of the other half."""
        count, width = cloud.x.shape
        halves = np.array_split(self.rng.permutation(count), 2)
        taken = 0
        for part, others in (halves, halves[::-1]):
            first, second = self.rng.integers(len(others), size=(2, len(part)))
            whole = self.rng.random(len(part)) < LONG_MOVES
            shorter = BEST_LENGTH / np.sqrt(2 * width) * self.rng.uniform(*LENGTHS, len(part))
            length = np.where(whole, 1.0, shorter)
            way = cloud.x[others[first]] - cloud.x[others[second]]
            noise = JITTER * cloud.x.std(axis=0) * self.rng.normal(size=way.shape)
            old, new = cloud.taken(part), self._at(cloud.x[part] + length[:, None] * way + noise)
            with np.errstate(invalid="ignore"):
                ratio = power * (new.evidence - old.evidence) + new.prior - old.prior
            better = np.log(self.rng.random(len(part))) < ratio
            for mine, made in zip(cloud, new, strict=True):
                mine[part[better]] = made[better]
            taken += int(better.sum())
        return cloud, taken / count


def _next_power(evidence: Array, power: float, effective: float) -> tuple[float, Array, float]:
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


def integrable(expect: Expectation, estimate: DispersionEstimate | None) -> tuple[Target, Neutral] | None:
    """What is needed to integrate over the moves of these problems; None where that is not possible, or would take long."""
    prior = neutral_prior(expect.families, expect.problems)
    moves = expect.families[0].find(Moves)  # type: ignore[type-abstract]
    if prior is None or moves is None or len(moves.component.names) > MOST_PARAMETERS:
        return None
    form = None if estimate is None or estimate.classes or estimate.form == "flocks" else estimate
    target = Target.of(expect, form)
    return None if target is None else (target, prior)


def _churn_error(target: Target, found: Sequence[Replicate], weights: Array) -> float:
    """Monte-Carlo standard error of the mean churn."""
    width = len(target._moves[0].names)
    means = np.array([target.churn(one.x[:, :width]).mean() for one in found])
    return float(np.sqrt(monte_carlo_variance(means, weights)))


def integral_of(target: Target, prior: Neutral) -> Integral:
    """Draw the parameters of the moves, and log phi where a dispersion was learned, from evidence × prior."""
    estimate = target.estimate
    ends = None if estimate is None else (max(estimate.low, 0.0), estimate.high)
    draws = int(np.clip(DRAWS_TIMES_WORK // target.work, FEWEST_DRAWS, MOST_DRAWS))
    rng = np.random.default_rng(SEED)
    samplers = [Sampler(target, prior, ends, own, draws) for own in rng.spawn(REPLICATES)]
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
    component = target.families[0].find(Moves).component  # type: ignore[type-abstract, union-attr]
    link = component.natural(after[0]).link

    def width(values: Array) -> float:
        low, high = np.quantile(values, [0.25, 0.75])
        return float(high - low)

    def answers(x: Array, moving: Array) -> dict[str, Array]:
        natural = [component.natural(point) for point in x]
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
