"""What is learned of a population beside its moves: its size, who arrives, who stays, who is seen, and the moves of every group.

Given all individuals, sizes, arrivals and survivors are independent of where people move, and their log-likelihoods are those of
Poisson, negative binomial and binomial numbers with expected counts in place of counts (Fisher's identity).
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.linalg import block_diag
from scipy.sparse import coo_array
from scipy.special import expit, logit

from headcount._types import Array, Index, Scope
from headcount.checks import finite_number
from headcount.individual import (
    ArrivingChain,
    HiddenStateChain,
    HomeChain,
    MarkovChain,
    MemoryChain,
    Model,
    ModelError,
    OpenChain,
    SemiMarkovChain,
    older,
)
from headcount.learn._components import (
    LARGEST_LOG_ODDS,
    Moves,
    Rows,
    Weights,
    steps_of,
    with_transitions,
)
from headcount.learn._family import (
    Also,
    Component,
    Family,
    InGroup,
    Natural,
    Parametrisation,
    Tables,
    required,
)
from headcount.observe import Observation, Problem, Site
from headcount.observe.cloud import Seen, alone
from headcount.population import About, NegativeBinomialSize, PoissonSize, as_law
from headcount.tables import dense

LARGEST_LOG = 30.0
"""Bound of logarithms and log-odds: e^30 is beyond any count of individuals, and its inverse stands for zero."""
FIRST_STAY = 0.02
"""Distance of a first survival or detection from 0 and 1: at the ends nothing would pull it away."""
LARGEST_START = 4.0
"""Largest log-odds that a search begins with: probabilities of 2 % can still grow."""

By = Literal["cell", "step", "both"]


def _numbered(
    what: str, by: By | None, cells: tuple[Hashable, ...], times: tuple[Hashable, ...]
) -> tuple[tuple[str, ...], Index]:
    """Names of the numbers that are learned, and which of them holds for every time and cell, shape (times, cells)."""
    shape = (len(times), len(cells))
    made: dict[By | None, tuple[list[str], Index]] = {
        None: ([what], np.zeros(1, np.intp)),
        "cell": ([f"{what}[{c}]" for c in cells], np.arange(shape[1])),
        "step": ([f"{what}@{t}" for t in times], np.arange(shape[0])[:, None]),
        "both": (
            [f"{what}[{c}]@{t}" for t in times for c in cells],
            np.arange(shape[0] * shape[1]).reshape(shape),
        ),
    }
    if by not in made:
        raise ModelError(f'by is {by!r}: give None (one number), "cell", "step" or "both"')
    names, places = made[by]
    return tuple(names), np.broadcast_to(places, shape)


def _added(values: Array, classes: Index, count: int) -> Array:
    """Sums by class."""
    flat = np.asarray(values, dtype=float).ravel()
    return np.asarray(np.bincount(classes.ravel(), weights=flat, minlength=count), dtype=float)


def _means(values: Array, classes: Index, count: int) -> Array:
    """Means by class."""
    return _added(values, classes, count) / np.bincount(classes.ravel(), minlength=count)


def _check_by_cell(by: Any, what: str) -> None:
    """Refuse classes of what is the same at all times."""
    if by not in (None, "cell"):
        raise ModelError(f'by is {by!r}: give None (one {what} for all cells) or "cell"')


def _full(tables: Tables) -> Tables:
    """Tables on the larger graph that individuals follow."""
    found = getattr(tables, "full", None)
    if found is None:
        raise ModelError(
            "arrivals, survival, hazards and memory are learned from a Problem with hidden states, not from tables of counts"
        )
    return found


def _seen(chain: HiddenStateChain, full: Tables, what: Seen, scopes: Iterable[Scope]) -> Array:
    """Tables of cells, or of who came, left or stayed, by cell: one row per scope."""
    view = alone(chain).view(None, what)
    return np.array([view.matrix(scope) @ dense(full(scope)).ravel() for scope in scopes])


@dataclass(frozen=True, eq=False)
class Canonical(Component):
    """A generalised linear model with the canonical link: η = F x, l(x) = Σ Y η − B A(η), A convex."""

    names: tuple[str, ...]
    design: Array | None = field(default=None, kw_only=True)
    """F, one row per number that is counted, shape (R, K); None: every number has its own parameter."""

    @abstractmethod
    def terms(self, eta: Array, n: Array) -> tuple[Array, Array, Array, Array, Array]:
        """(Y, B, A, A', A''), shape (R,) each."""

    def predictor(self, x: Array) -> Array:
        """η."""
        return x if self.design is None else self.design @ x

    def value(self, x: Array, n: Array) -> float:
        """Σ Y η − B A."""
        y, b, a, _, _ = self.terms(self.predictor(x), n)
        return float(y @ self.predictor(x) - b @ a)

    def gradient(self, x: Array, n: Array) -> Array:
        """Fᵀ (Y − B A')."""
        y, b, _, slope, _ = self.terms(self.predictor(x), n)
        left = np.asarray(y - b * slope)
        return left if self.design is None else np.asarray(left @ self.design)

    def information(self, x: Array, n: Array) -> Array:
        """Fᵀ diag(B A'') F."""
        _, b, _, _, bend = self.terms(self.predictor(x), n)
        weight = b * bend
        return np.diag(weight) if self.design is None else (self.design.T * weight) @ self.design

    def alike(self, other: Component) -> bool:
        """The same numbers."""
        same = isinstance(other, Canonical) and type(other) is type(self) and other.names == self.names
        return same and np.array_equal(other.design, self.design)  # type: ignore[arg-type, attr-defined]


@dataclass(frozen=True, eq=False)
class LogRates(Canonical):
    """Rates λ = e^x of Poisson numbers: l(x) = Σ Y x − e^x B, Y what was counted, B what λ = 1 expects. n is (Y, B), shape (2, K)."""

    unit: Array
    """The number that λ = 1 stands for: natural values are multiples of it, shape (K,)."""

    def start(self) -> Array:
        """λ = 1: the numbers as given."""
        return np.zeros(len(self.names))

    def terms(self, eta: Array, n: Array) -> tuple[Array, Array, Array, Array, Array]:
        """A = e^η."""
        rate = np.exp(eta)
        return n[0], n[1], rate, rate, rate

    def closed_form(self, x: Array, n: Array) -> Array:
        """log(Y/B)."""
        del x
        with np.errstate(divide="ignore"):
            return np.maximum(np.log(n[0] / n[1]), -LARGEST_LOG_ODDS)

    def natural(self, x: Array) -> Natural:
        """λ times its unit."""
        rate = self.unit * np.exp(x)
        return Natural(self.names, rate, lambda: np.diag(rate), ("log",) * len(x))

    def from_natural(self, k: int, name: str, value: float) -> float:
        """log λ."""
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name} is {value!r}: give a finite number > 0")
        return float(np.log(value) - np.log(self.unit[k]))

    def alike(self, other: Component) -> bool:
        """The same rates."""
        return isinstance(other, LogRates) and super().alike(other) and np.array_equal(self.unit, other.unit)


def _telling(problem: Problem | None, parameter: str) -> list[Site]:
    """The sites whose noises share a learned parameter of this name."""
    if problem is None:
        raise ValueError(
            f"a {parameter} is learned from observations: complete counts alone say nothing about it"
        )
    return [site for site in problem.sites if site.noise.learned == parameter]


def _with_learned(problem: Problem, parameter: str, change: Callable[[Any], Any]) -> Problem:
    """The problem whose noises have another value of the learned parameter of this name."""

    def changed(noise: Observation) -> Observation:
        own = noise.learned == parameter
        return noise.replaced({parameter: change(getattr(noise, parameter))}) if own else noise

    return problem.with_noise(changed)


@dataclass(frozen=True, eq=False)
class Rate(LogRates):
    """The observation rate: y ~ Poisson(λ r n), r the rates given with the data; Y the total of all counts, B = Σ r E[n]."""

    names: tuple[str, ...] = ("log rate",)
    unit: Array = field(default_factory=lambda: np.ones(1))

    def statistic(self, tables: Tables, units: Tables, problem: Problem | None) -> Array:
        """(Y, Σ r n) over the Poisson counts."""
        del units
        sites = _telling(problem, "rate")
        exposed = [
            np.sum(s.noise.entry_parameters()["rate"] * s.margin(dense(tables(s.scope)).ravel()))
            for s in sites
        ]
        return np.array([[sum(s.noise.counts.sum() for s in sites)], [sum(exposed)]], dtype=float)

    def in_problem(self, x: Array, problem: Problem) -> Problem:
        """Poisson counts seen at λ times the rates given."""
        rate = float(np.exp(x[0]))
        return _with_learned(problem, "rate", lambda given: given * rate)

    def natural(self, x: Array) -> Natural:
        """λ itself."""
        return replace(super().natural(x), names=("rate",))


@dataclass(frozen=True, eq=False)
class Comers(LogRates):
    """Expected numbers of those who come, e^x times those given: at the first time, or arriving later, by class of step and cell."""

    chain: ArrivingChain = field(kw_only=True)
    part: Literal["initial", "arrivals"] = field(kw_only=True)
    classes: Index = field(kw_only=True)
    """The place in x of every number: shape (L,) of the first, (T − 1, L) of arrivals."""

    @property
    def given(self) -> Array:
        """Expected numbers as the chain was given them."""
        return self.chain.first if self.part == "initial" else self.chain.arrivals

    def statistic(self, tables: Tables, units: Tables, problem: Problem | None) -> Array:
        """Who came, and who was expected to, in units that come together."""
        del tables
        times = self.chain.times
        if self.part == "initial":
            come, expected = _seen(self.chain, _full(units), "cells", [times[:1]])[0], _by_cell(self.given)
        else:
            come, expected = (
                _seen(self.chain, _full(units), "arrivals", itertools.pairwise(times)),
                self.given,
            )
        # A Poisson number of flocks of c has the mean a/c.
        expected = expected / (1.0 if problem is None else problem.together.flock_size)
        return np.stack([_added(v, self.classes, len(self.names)) for v in (come, expected)])

    def in_model(self, x: Array, model: Model) -> ArrivingChain:
        """The chain with these numbers."""
        factors = np.exp(x)[self.classes]
        if self.given.ndim > factors.ndim:  # first numbers by cell and age
            factors = factors[:, None]
        return _arriving(model).changed(**{self.part: self.given * factors})


def _by_cell(first: Array) -> Array:
    """First numbers by cell, those of all ages added up."""
    return first if first.ndim == 1 else first.sum(axis=1)


def _arriving(model: Model) -> ArrivingChain:
    """The chain, if its individuals arrive."""
    if not isinstance(model, ArrivingChain) or model.expected_number is None:
        raise ModelError(
            "the number of arrivals is learned of an OpenChain, or of a SemiMarkovChain with arrivals: give it a first guess, arrivals=1 "
            f"say; the problem's model is a {type(model).__name__}"
        )
    return model


@dataclass(frozen=True, eq=False)
class LogOdds(Canonical):
    """Probabilities p = 1/(1 + e^−η) of one of two outcomes: l(x) = Σ S log p + D log(1 − p). n is (S, D), shape (2, R)."""

    first: Array
    """Probabilities to begin with, shape (R,)."""

    def start(self) -> Array:
        """As given, off the ends; with features, the weights nearest to that."""
        odds = np.asarray(logit(np.clip(self.first, FIRST_STAY, 1.0 - FIRST_STAY)))
        return odds if self.design is None else np.asarray(np.linalg.lstsq(self.design, odds, rcond=None)[0])

    def probability(self, x: Array) -> Array:
        """p, shape (R,)."""
        return np.asarray(expit(self.predictor(x)))

    def terms(self, eta: Array, n: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Y = S, B = S + D, A = −log(1 − p)."""
        p = np.asarray(expit(eta))
        return n[0], n[0] + n[1], np.logaddexp(0.0, eta), p, p * (1.0 - p)

    def closed_form(self, x: Array, n: Array) -> Array | None:
        """log S/D; as it is where nobody was at risk; None with features."""
        if self.design is not None:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.clip(np.log(n[0]) - np.log(n[1]), -LARGEST_LOG, LARGEST_LOG)
        return np.where(n.sum(axis=0) > 0, found, x)

    def natural(self, x: Array) -> Natural:
        """The probabilities, or the weights where they are features'."""
        if self.design is not None:
            return Natural(self.names, x, lambda: np.eye(len(x)), ("identity",) * len(x))
        p = np.asarray(expit(x))
        return Natural(self.names, p, lambda: np.diag(p * (1.0 - p)), ("logit",) * len(x))

    def from_natural(self, k: int, name: str, value: float) -> float:
        """Its log-odds."""
        del k
        if self.design is not None:
            return value
        if not 0 < value < 1:
            raise ValueError(f"{name} is {value!r}: give a probability between 0 and 1")
        return float(logit(value))


@dataclass(frozen=True, eq=False)
class Survival(LogOdds):
    """The probability to stay for a step, by class of step and cell."""

    chain: OpenChain = field(kw_only=True)
    classes: Index = field(kw_only=True)

    def statistic(self, tables: Tables, units: Tables, problem: Problem | None) -> Array:
        """Who stayed, and who left."""
        del tables, problem
        going: tuple[Seen, ...] = ("survivors", "departures")
        steps = list(itertools.pairwise(self.chain.times))
        both = [_seen(self.chain, _full(units), what, steps) for what in going]
        return np.stack([_added(v, self.classes, len(self.names)) for v in both])

    def in_model(self, x: Array, model: Model) -> OpenChain:
        """The chain with this survival."""
        return required(OpenChain, model, "survival").changed(survival=self.probability(x)[self.classes])


@dataclass(frozen=True, eq=False)
class Fidelities(LogOdds):
    """The probability to be back at home a step later, by class of homes."""

    classes: Index = field(kw_only=True)

    def statistic(self, tables: Tables, units: Tables, problem: Problem | None) -> Array:
        """Who went back, and who did not."""
        del tables, problem
        full = _full(units)
        chain = required(HomeChain, units.model, "a fidelity")  # type: ignore[attr-defined]
        both = np.sum(
            [chain.gone_back(dense(full(step))) for step in itertools.pairwise(chain.times)], axis=0
        )
        return np.stack([_added(v, self.classes, len(self.names)) for v in both])

    def in_model(self, x: Array, model: Model) -> HomeChain:
        """The chain with this fidelity."""
        chain = required(HomeChain, model, "a fidelity")
        return chain.changed(fidelity=self.probability(x)[self.classes])


@dataclass(frozen=True, eq=False)
class Hazards(LogOdds):
    """The probability to leave by (cell and) age, or the weights of features of age in its log-odds. n is (who left, who stayed)."""

    chain: SemiMarkovChain = field(kw_only=True)
    by_cell: bool = field(kw_only=True)
    pseudo: float = field(default=0.0, kw_only=True)
    """Individuals of every row that the prior adds to those who left, and to those who stayed."""

    def statistic(self, tables: Tables, units: Tables, problem: Problem | None) -> Array:
        """Who left, and who stayed, by (cell and) age."""
        del tables, problem
        shape, full = self.chain.hazard.shape, _full(units)
        states, both = np.arange(self.chain.hazard.size), np.zeros((2, self.chain.hazard.size))
        for step in itertools.pairwise(self.chain.times):
            table = dense(full(step))[: len(states)]
            stayed = table[states, older(*shape)]
            both += table.sum(axis=1) - stayed, stayed
        return both if self.by_cell else both.reshape(2, *shape).sum(axis=1)

    def in_model(self, x: Array, model: Model) -> SemiMarkovChain:
        """The chain with these hazards."""
        chain = required(SemiMarkovChain, model, "a hazard")
        shape = chain.hazard.shape
        return chain.changed(hazard=self.probability(x).reshape(shape if self.by_cell else shape[1:]))

    @property
    def _prior(self) -> Array:
        return np.full((2, len(self.first)), self.pseudo)

    def log_prior(self, x: Array) -> float:
        """Σ pseudo (log h + log(1 − h))."""
        return self.value(x, self._prior)

    def prior_gradient(self, x: Array) -> Array:
        """That of the prior's individuals."""
        return self.gradient(x, self._prior)

    def prior_information(self, x: Array) -> Array:
        """That of the prior's individuals."""
        return self.information(x, self._prior)

    def closed_form(self, x: Array, n: Array) -> Array | None:
        """See `LogOdds`; the prior's individuals are added."""
        return super().closed_form(x, n + self._prior)

    def reach(self, x: Array) -> Array:
        """|w| times the largest feature."""
        return np.abs(x) * (1.0 if self.design is None else np.abs(self.design).max(axis=0))

    def alike(self, other: Component) -> bool:
        """The same features and prior."""
        return isinstance(other, Hazards) and super().alike(other) and other.pseudo == self.pseudo


@dataclass(frozen=True, eq=False)
class Memories(Rows):
    """The law of the next cell by pair (previous, current) of a `MemoryChain`."""

    chain: MemoryChain = field(kw_only=True)

    def statistic(self, tables: Tables, units: Tables, problem: Problem | None) -> Array:
        """Who went where, by pair."""
        del tables, problem
        full, pairs = _full(units), self.chain.pairs
        found = np.zeros(self.free.shape)
        for step in itertools.pairwise(self.chain.times[1:]):
            moves = coo_array(full(step))
            np.add.at(found, (moves.row, pairs[moves.col, 1]), moves.data)
        return found

    def in_model(self, x: Array, model: Model) -> MemoryChain:
        """The chain with this memory."""
        chain = required(MemoryChain, model, "a memory")
        return chain.changed(memory=chain.by_pair(self.probabilities(x)))

    def start(self) -> Array:
        """The probabilities given, off the ends."""
        return np.clip(self.log_odds(dense(self.chain.memory)), -LARGEST_START, LARGEST_START)


@dataclass(frozen=True, eq=False)
class Detection(LogOdds):
    """The probability that an individual is counted, of all binomial counts."""

    def statistic(self, tables: Tables, units: Tables, problem: Problem | None) -> Array:
        """Who was counted, and who was not."""
        del units
        sites = _telling(problem, "detection")
        seen = float(sum(s.noise.counts.sum() for s in sites))
        there = float(sum(s.margin(dense(tables(s.scope)).ravel()).sum() for s in sites))
        return np.array([[seen], [max(there - seen, 0.0)]])

    def in_problem(self, x: Array, problem: Problem) -> Problem:
        """Binomial counts with this probability."""
        p = float(self.probability(x)[0])
        return _with_learned(problem, "detection", lambda given: np.full(np.shape(given), p))


@dataclass(frozen=True, eq=False)
class SizeMeans(LogRates):
    r"""Means m = m₀ e^x of the laws of sizes: of N, or of groups whose size is not known; ``unit`` is m₀.

    Poisson: l(x) = N x − m, as of any rate.  Negative binomial of size r: l(x) = N x − (N + r) log(m + r).
    n is (Σ N, m₀ times the number of problems), shape (2, K).
    """

    size: Array
    """r; infinite where the law is Poisson, shape (K,)."""
    groups: tuple[Hashable, ...]
    """Whose sizes; empty: the whole population's."""

    def statistic(self, tables: Tables, units: Tables, problem: Problem | None) -> Array:
        """How many there are, and how many are expected at x = 0."""
        del units
        if problem is None:
            raise ValueError("the law of a size is learned from a Problem, not from tables of counts")
        first = problem.model.variables[:1]
        parts = [tables.group(name) for name in self.groups] or [tables]  # type: ignore[attr-defined]
        return np.array([[float(dense(part(first)).sum()) for part in parts], self.unit])

    def in_problem(self, x: Array, problem: Problem) -> Problem:
        """The problem with these means."""
        laws = [
            PoissonSize(m) if np.isinf(r) else NegativeBinomialSize(m, r)
            for m, r in zip((self.unit * np.exp(x)).tolist(), self.size.tolist(), strict=True)
        ]
        if not self.groups:
            return problem.with_population(laws[0])
        made = dict(problem.groups or {})
        made |= {name: replace(made[name], size=law) for name, law in zip(self.groups, laws, strict=True)}
        return problem.with_groups(made)

    def terms(self, eta: Array, n: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Poisson: see `LogRates`. Negative binomial: B = Σ (N + r) over problems, A = log(m + r)."""
        m, r, poisson = self.unit * np.exp(eta), self.size, np.isinf(self.size)
        r = np.where(poisson, 1.0, r)
        own = n[0], n[0] + r * n[1] / self.unit, np.log(m + r), m / (m + r), m * r / (m + r) ** 2
        y, b, a, slope, bend = (
            np.where(poisson, *pair) for pair in zip(super().terms(eta, n), own, strict=True)
        )
        return y, b, a, slope, bend

    def closed_form(self, x: Array, n: Array) -> Array:
        """log(N/m₀), bounded below: a law needs a mean above zero."""
        return np.maximum(super().closed_form(x, n), -LARGEST_LOG)

    def alike(self, other: Component) -> bool:
        """The same laws."""
        return isinstance(other, SizeMeans) and super().alike(other) and np.array_equal(self.size, other.size)


@dataclass(frozen=True, eq=False)
class Known(Parametrisation):
    """Nothing of the model's own is learned: it is as the problem gives it."""

    transitions: Any = field(default=None, repr=False)
    """Of the problem, which a fit puts here for its file."""

    takes_groups: ClassVar[bool] = True

    def bind(self, model: Model) -> Family:
        """See `Parametrisation`."""
        chain = model.as_chain()
        if self.transitions is not None and chain is not None:
            model = with_transitions(chain, chain.initial if chain.initial_known else None, self.transitions)
        return Family(model, ())

    def for_problem(self, problem: Problem) -> Parametrisation:
        """See `Parametrisation`."""
        chain = problem.model.as_chain()
        if problem.groups is not None or problem.model.has_hidden_states or chain is None:
            return self  # models with hidden states are written whole
        return replace(self, transitions=steps_of(chain))


@dataclass(frozen=True, eq=False)
class AlsoOrAlone(Also):
    """What is learned beside another parametrisation, or, where that is left out, alone."""

    parametrisation: Parametrisation = field(default_factory=Known)


@dataclass(frozen=True, eq=False)
class LearnArrivals(AlsoOrAlone):
    """Another parametrisation, and the arrivals of an `OpenChain` or a `SemiMarkovChain`.

    Parameters
    ----------
    parametrisation
        What else is learned: how those who stay move. Left out: nothing.
    by
        One number per ``"cell"``, per ``"step"`` or per both; None: one. Each multiplies the arrivals that the chain was given, so that
        it learns their number and keeps their pattern; where none were given none are learned.
    """

    by: By | None = None

    def component(self, model: Model) -> Comers:
        """See `Also`."""
        chain = _arriving(model)
        names, classes = _numbered("arrivals", self.by, chain.cells, chain.times[1:])
        each = _means(chain.arrivals, classes, len(names))
        if not (each > 0).all():
            raise ModelError(
                "arrivals are learned as a multiple of those given, and some are 0: give the chain a first guess, arrivals=1 say"
            )
        return Comers(names, each, chain=chain, part="arrivals", classes=classes)


@dataclass(frozen=True, eq=False)
class LearnSurvival(AlsoOrAlone):
    """Another parametrisation, and the survival of an `OpenChain`: one probability, or one per ``"cell"``, ``"step"`` or both."""

    by: By | None = None

    def component(self, model: Model) -> Survival:
        """See `Also`."""
        chain = required(OpenChain, model, "survival")
        names, classes = _numbered("survival", self.by, chain.cells, chain.times[:-1])
        first = _means(chain.survival, classes, len(names))
        return Survival(names, first, chain=chain, classes=classes)


@dataclass(frozen=True, eq=False)
class LearnFidelity(AlsoOrAlone):
    """Another parametrisation, and the fidelity of a `HomeChain`: one probability, or one per home, ``by="cell"``."""

    by: Literal["cell"] | None = None

    def component(self, model: Model) -> Fidelities:
        """See `Also`."""
        chain = required(HomeChain, model, "a fidelity")
        _check_by_cell(self.by, "fidelity")
        names, (classes,) = _numbered("fidelity", self.by, chain.cells, chain.times[:1])
        return Fidelities(names, _means(chain.fidelity, classes, len(names)), classes=classes)


@dataclass(frozen=True, eq=False)
class LearnHazard(AlsoOrAlone):
    """Another parametrisation, and the hazard of a `SemiMarkovChain`: the probability to leave by the time since arrival.

    Parameters
    ----------
    parametrisation
        What else is learned: `LearnArrivals()`, say. Left out: nothing.
    by
        ``"cell"``: hazards of every cell by itself. None: one for all.
    ages
        Features of age, ``{name: one number per age class}`` or a matrix of shape (ages, K): the log-odds to leave are their weighted sum,
        weights are learned. None: one hazard per age class.
    prior
        Individuals that are added, at every age, to those who left and to those who stayed. None: 1/2 (Jeffreys) where every age has its
        own hazard, of which counts often say little, and 0 with features.
    """

    by: Literal["cell"] | None = None
    ages: Any = None
    prior: float | None = None

    def component(self, model: Model) -> Hazards:
        """See `Also`."""
        chain = required(SemiMarkovChain, model, "a hazard")
        _check_by_cell(self.by, "hazard")
        by_cell = self.by == "cell"
        names, design = self._features(chain.hazard.shape[1])
        first = chain.hazard if by_cell else chain.hazard.mean(axis=0)
        if by_cell:
            design = None if design is None else block_diag(*[design] * len(chain.cells))
            names = tuple(n.replace("hazard", f"hazard[{cell}]", 1) for cell in chain.cells for n in names)
        pseudo = 0.5 if self.ages is None else 0.0
        if self.prior is not None:
            pseudo = finite_number(self.prior, "prior", least=0.0)
        return Hazards(names, first.ravel(), design=design, chain=chain, by_cell=by_cell, pseudo=pseudo)

    def _features(self, ages: int) -> tuple[tuple[str, ...], Array | None]:
        """Names of the parameters of one cell, and the features of age whose weights they are; None: every age has its own."""
        if self.ages is None:
            return tuple(f"hazard@{age}" for age in range(ages)), None
        given = self.ages if isinstance(self.ages, Mapping) else dict(enumerate(np.atleast_2d(self.ages).T))
        wrong = [str(name) for name, values in given.items() if np.shape(values) != (ages,)]
        if wrong:
            raise ModelError(f"ages: {', '.join(wrong)} must have one number per age class, {ages} of them")
        design = np.stack([np.asarray(values, dtype=float) for values in given.values()], axis=1)
        return tuple(f"hazard {name}" for name in given), design


@dataclass(frozen=True, eq=False)
class LearnMemory(AlsoOrAlone):
    """Another parametrisation, and the memory of a `MemoryChain`: the law of the next cell by (previous, current).

    Parameters
    ----------
    parametrisation
        What else is learned. Left out: nothing.
    dirichlet
        Prior of every row, Π p^(α−1); 1: none. Entries that are zero in the chain given stay so.
    """

    dirichlet: float = 1.0

    def component(self, model: Model) -> Memories:
        """See `Also`."""
        chain = required(MemoryChain, model, "a memory")
        if chain.first_pairs is not None:
            raise ModelError(
                "a memory cannot be learned from a chain that begins with pairs of cells, as later runs do: learn it from all times"
            )
        cells, free = chain.cells, dense(chain.memory) > 0
        names = [[f"P[{cells[i]}→{cells[j]}→{k}]" for k in cells] for i, j in chain.pairs]
        return Memories(
            np.array(names, dtype=object), free, np.zeros(free.shape), self.dirichlet - 1, chain=chain
        )


@dataclass(frozen=True, eq=False)
class LearnRate(Also):
    """Another parametrisation, and the rate λ of its Poisson observations: y ~ Poisson(λ r n).

    One λ multiplies all rates r that the observations were given.
    """

    def component(self, model: Model) -> Rate:
        """See `Also`."""
        del model
        return Rate()

    def check(self, problem: Problem) -> list[str]:
        """A rate needs Poisson counts without background."""
        found = _telling(problem, "rate")
        problems = super().check(problem)
        if not found:
            problems.append("there is no Poisson observation to learn a rate from")
        if any(np.any(np.asarray(s.noise.background) > 0) for s in found):  # type: ignore[attr-defined]
            problems.append("a rate is learned only where background = 0; give the rate, or leave it out")
        problems += _beside_bounds(problem, "a rate")
        if not problem.size_known and not isinstance(problem.population, About):
            problems.append(
                "Poisson counts tell only the product of the rate and the number of individuals, and neither is known: give one of them, "
                "or population=About(mean, sd=...)"
            )
        return problems


@dataclass(frozen=True, eq=False)
class LearnDetection(AlsoOrAlone):
    """Another parametrisation, and the probability with which individuals are counted, one for all `Binomial` observations."""

    first: float = 0.5
    """Where the search begins; a fit puts here what the observations were given."""

    def component(self, model: Model) -> Detection:
        """See `Also`."""
        del model
        return Detection(("detection",), np.array([self.first]))

    def for_problem(self, problem: Problem) -> Parametrisation:
        """See `Parametrisation`."""
        given = [np.asarray(s.noise.detection) for s in _telling(problem, "detection")]  # type: ignore[attr-defined]
        first = float(np.mean(np.concatenate(given))) if given else self.first
        return replace(self, parametrisation=self.parametrisation.for_problem(problem), first=first)

    def check(self, problem: Problem) -> list[str]:
        """A detection needs binomial counts."""
        found = super().check(problem)
        if not _telling(problem, "detection"):
            found.append("there is no Binomial observation to learn a detection from")
        return found + _beside_bounds(problem, "a detection")


def _beside_bounds(problem: Problem, what: str) -> list[str]:
    """Why what noises share is not learned where some counts are bounds: their expected readings would be needed."""
    if not any(s.noise.bound for s in problem.sites):
        return []
    return [
        f"{what} is learned from counts, not from bounds (>60): give it, or leave the bounds out (--bounds missing)"
    ]


@dataclass(frozen=True, eq=False)
class LearnSizes(AlsoOrAlone):
    """Another parametrisation, and the means of the laws of sizes.

    Of a population `About` some number: the mean of that law, a Poisson's or a negative binomial's, whose relative scatter is kept. Of
    groups: the mean of each group whose size has such a law (their shares are the means over their sum). Of an `OpenChain`: the expected
    number at the first time, one factor or one per ``"cell"``.
    """

    by: By | None = None
    laws: Mapping[Hashable, tuple[float, float]] = field(default_factory=dict, repr=False)
    """Mean and size r of every law, which a fit puts here; by group, None for the whole population."""

    def component(self, model: Model) -> Component:
        """See `Also`."""
        if model.expected_number is not None:
            chain = _arriving(model)
            _check_by_cell(self.by, "first number")
            names, (classes,) = _numbered("first", self.by, chain.cells, chain.times[:1])
            expected = _added(_by_cell(chain.first), classes, len(names))
            if not (expected > 0).all():
                raise ModelError("first numbers are learned as a multiple of those given: give a guess > 0")
            return Comers(names, expected, chain=chain, part="initial", classes=classes)
        if not self.laws:
            raise ModelError(
                "no size has a law whose mean could be learned: give population=About(mean, sd=...)"
            )
        groups = tuple(name for name in self.laws if name is not None)
        mean, size = np.array(list(self.laws.values())).T
        names = tuple(f"size[{name}]" for name in groups) or ("size",)
        return SizeMeans(names, mean, size, groups)

    def for_problem(self, problem: Problem) -> Parametrisation:
        """See `Parametrisation`."""
        sizes: Mapping[Any, Any] = (
            {None: problem.population}
            if problem.groups is None
            else {name: group.size for name, group in problem.groups.items()}
        )
        found = {name: as_law(size).mean_and_size for name, size in sizes.items() if size is not None}
        laws = {name: pair for name, pair in found.items() if pair is not None}
        return replace(self, parametrisation=self.parametrisation.for_problem(problem), laws=laws)


@dataclass(frozen=True, eq=False)
class ByGroup(Parametrisation):
    """The moves of several groups of which only the sum is counted, each learned by a parametrisation of its own.

    Parameters
    ----------
    parametrisations
        ``{name of the group: parametrisation}``; groups that are not named keep the model that they were given. Parameters are named
        ``"migrants: stay"``. The search begins at the models given: groups that begin alike stay alike.
    """

    parametrisations: Mapping[Hashable, Parametrisation]
    models: Mapping[Hashable, Any] = field(default_factory=dict, repr=False)
    """The groups' models, which a fit puts here."""

    takes_groups: ClassVar[bool] = True

    def bind(self, model: Model) -> Family:
        """See `Parametrisation`."""
        unknown = [name for name in self.parametrisations if name not in self.models]
        if unknown:
            raise ModelError(f"ByGroup names {unknown}: the problem's groups are {list(self.models)}")
        made = [
            (component, InGroup(name, partial(_nearest, component, self.models[name])))
            for name, one in self.parametrisations.items()
            for component in one.bind(self.models[name]).components
        ]
        return Family(
            model, tuple(component for component, _ in made), {k: owner for k, (_, owner) in enumerate(made)}
        )

    def for_problem(self, problem: Problem) -> Parametrisation:
        """See `Parametrisation`."""
        return replace(self, models={name: group.model for name, group in (problem.groups or {}).items()})


def _nearest(component: Component, model: MarkovChain) -> Array:
    """The parameters of a group's moves that come nearest to its model as it was given."""
    if not isinstance(component, Moves) or len(component.times) < 2:
        return component.start()
    found = component.nearest(component.flows(list(model.transitions)))
    return found if isinstance(component, Weights) else np.clip(found, -LARGEST_START, LARGEST_START)
