"""A family: a parametrisation bound to one problem's model. x ↦ model, count tables ↦ what x is learned from."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import block_diag
from scipy.special import expit, logit, ndtri

from headcount._types import Index
from headcount.individual import MarkovChain, Model
from headcount.learn._components import Array, Component, Natural, Potentials, Rate, Rows, Weights
from headcount.observe import Observation, Poisson, Problem
from headcount.tables import Scope, dense

Tables = Callable[[Scope], Any]
"""Count tables, observed or expected, by scope."""


class Family(ABC):
    """Models by parameters: x ↦ p_x, one slice of x per component."""

    components: tuple[Component, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters' names."""
        return tuple(name for c in self.components for name in c.names)

    def split(self, x: Array) -> list[Array]:
        """x by component."""
        ends = np.cumsum([len(c.names) for c in self.components])
        return np.split(np.asarray(x, dtype=float), ends[:-1]) if len(ends) else []

    def start(self) -> Array:
        """The neutral start."""
        return np.concatenate([np.zeros(0), *(c.start() for c in self.components)])

    @abstractmethod
    def model(self, x: Array) -> Model:
        """p_x."""

    @abstractmethod
    def statistics(
        self, tables: Tables, problem: Problem | None, units: Tables | None = None
    ) -> tuple[Array, ...]:
        """The table that each component learns from, in their order; the problem tells what concerns the data.

        ``units`` are the tables in independent units (`headcount.population.unit_tables`), which the model is learned from where
        individuals move together.
        """

    def apply(self, x: Array, problem: Problem) -> Problem:
        """The same data under p_x."""
        return problem.with_model(self.model(x))

    def shrunk(self, x: Array, statistics: tuple[Any, ...]) -> tuple[Family, dict[str, float]] | None:
        """The same family with priors learned from the statistics, and their strengths; None where all priors are given."""
        return None

    def with_priors(self, priors: Sequence[Mapping[str, Any]]) -> Family:
        """The same family with learned priors as `Component.prior_numbers` gave them, one set per component."""
        del priors
        return self

    def alike(self, other: Family) -> bool:
        """Whether the other family's statistics can be added to this one's."""
        return len(self.components) == len(other.components) and all(
            a.alike(b) for a, b in zip(self.components, other.components, strict=True)
        )

    def natural(self, x: Array) -> Natural:
        """All components' natural parameters side by side."""
        parts = [c.natural(piece) for c, piece in zip(self.components, self.split(x), strict=True)]
        return Natural(
            tuple(n for p in parts for n in p.names),
            np.concatenate([p.values for p in parts]),
            lambda: block_diag(*(p.jacobian for p in parts)),
            tuple(k for p in parts for k in p.link),
        )

    def working(self, values: Mapping[str, Any]) -> Array:
        """The neutral start with some parameters as given, by working or natural name."""
        x = self.start()
        natural = self.natural(x).names
        unknown = [n for n in values if n not in self.names and n not in natural]
        if unknown:
            known = dict.fromkeys([*natural, *self.names])
            raise ValueError(f"start names {unknown}: the parameters are {', '.join(known)}")
        parts = self.split(x)
        made = []
        for component, part in zip(self.components, parts, strict=True):
            own = component.natural(part).names
            named = {n: float(v) for n, v in values.items() if n in own}
            piece = component.working(named, part)
            for k, name in enumerate(component.names):
                piece[k] = float(values.get(name, piece[k]))
            made.append(piece)
        return np.concatenate([np.zeros(0), *made])


@dataclass(frozen=True, eq=False)
class ChainFamily(Family):
    """A Markov chain: transitions by weights or by rows, the initial distribution learned or the template's."""

    template: MarkovChain
    transitions: Weights | Rows
    kinds: Index
    """For every step, which of the transition matrices it has, shape (T − 1,); empty where all have the one."""
    initial: Rows | None = None

    @property
    def components(self) -> tuple[Component, ...]:  # type: ignore[override]
        """Transitions, then the initial distribution if it is learned."""
        return (self.transitions,) if self.initial is None else (self.transitions, self.initial)

    @property
    def homogeneous(self) -> bool:
        """Whether one matrix serves all steps."""
        return len(self.kinds) == 0

    def matrices(self, x: Array) -> Any:
        """P, one matrix when every step is the same, one per step otherwise; steps of one kind share theirs."""
        made: Sequence[Any]
        if isinstance(self.transitions, Weights):
            made = self.transitions.transitions.matrices(x)
        else:
            made = self._by_kind(self.transitions.probabilities(x))
        return made[0] if self.homogeneous else [made[k] for k in self.kinds]

    def _by_kind(self, table: Array) -> list[Array]:
        """Stacked rows, cut into one matrix per kind of step."""
        sizes = [len(s) for s in self.template.states.values()]
        if len(set(sizes)) == 1:
            return list(table.reshape(-1, sizes[0], table.shape[1]))
        rows = np.split(table, np.cumsum(sizes[:-1])[:-1])
        return [matrix[:, :width] for matrix, width in zip(rows, sizes[1:], strict=True)]

    def model(self, x: Array) -> MarkovChain:
        """The chain."""
        first, *rest = self.split(x)
        law = self.template.initial if self.initial is None else self.initial.probabilities(rest[0])[0]
        return with_transitions(self.template, law, self.matrices(first))

    def statistics(
        self, tables: Tables, problem: Problem | None, units: Tables | None = None
    ) -> tuple[Array, ...]:
        """Flows, those of steps of one kind added up, and the first time's counts."""
        del problem
        tables = units or tables
        times = self.template.times
        flows = self._flows([tables(pair) for pair in itertools.pairwise(times)])
        if self.initial is None:
            return (flows,)
        return flows, np.asarray(dense(tables((times[0],))), dtype=float)[None]

    def shrunk(self, x: Array, statistics: tuple[Any, ...]) -> tuple[Family, dict[str, float]] | None:
        """See `Family`."""
        found = self.transitions.shrunk(self.split(x)[0], statistics[0])
        return None if found is None else (replace(self, transitions=found[0]), found[1])

    def with_priors(self, priors: Sequence[Mapping[str, Any]]) -> Family:
        """See `Family`."""
        return replace(self, transitions=replace(self.transitions, **priors[0]))

    def _flows(self, steps: list[Any]) -> Array:
        if isinstance(self.transitions, Weights):
            linear = self.transitions.transitions
            if not steps:
                return np.zeros((1, linear.move_count))
            return linear.flows(steps if linear.sparse else np.stack([np.asarray(dense(s)) for s in steps]))
        free = self.transitions.free
        if not steps:
            return np.zeros(free.shape)
        made = [np.asarray(dense(s), dtype=float) for s in steps]
        if len({table.shape for table in made}) > 1:  # cells that change with time: a matrix per step
            return np.concatenate([np.pad(s, ((0, 0), (0, free.shape[1] - s.shape[1]))) for s in made])
        total = np.zeros((len(free) // len(made[0]), *made[0].shape))
        np.add.at(total, self.kinds if len(self.kinds) else np.zeros(len(made), np.intp), np.stack(made))
        return total.reshape(free.shape)


def with_transitions(template: MarkovChain, initial: Any, matrices: Any) -> MarkovChain:
    """A chain with the template's times and cells."""
    return MarkovChain(initial, matrices, times=template.times, cells=template.states)


@dataclass(frozen=True, eq=False)
class PotentialFamily(Family):
    """A log-linear model on any junction tree."""

    potentials: Potentials

    @property
    def components(self) -> tuple[Component, ...]:  # type: ignore[override]
        """The one component."""
        return (self.potentials,)

    def model(self, x: Array) -> Model:
        """The model."""
        return self.potentials.model(x)

    def shrunk(self, x: Array, statistics: tuple[Any, ...]) -> tuple[Family, dict[str, float]] | None:
        """See `Family`."""
        found = self.potentials.shrunk(x, statistics[0])
        return None if found is None else (replace(self, potentials=found[0]), found[1])

    def statistics(
        self, tables: Tables, problem: Problem | None, units: Tables | None = None
    ) -> tuple[Array, ...]:
        """Total features and N."""
        del problem
        tables = units or tables
        found = {s: np.asarray(dense(tables(s)), dtype=float) for s in self.potentials.features}
        population = float(next(iter(found.values())).sum())
        return (np.append(self.potentials.totals(found), population),)


@dataclass(frozen=True, eq=False)
class RateFamily(Family):
    """Another family, and the rate of its Poisson observations."""

    inner: Family

    @property
    def components(self) -> tuple[Component, ...]:  # type: ignore[override]
        """The other family's, then the rate."""
        return (*self.inner.components, Rate())

    def model(self, x: Array) -> Model:
        """The other family's."""
        return self.inner.model(x[:-1])

    def statistics(
        self, tables: Tables, problem: Problem | None, units: Tables | None = None
    ) -> tuple[Array, ...]:
        """The other family's, and (Y, Σ r n) over the Poisson counts."""
        if problem is None:
            raise ValueError(
                "a rate is learned from observations: complete counts alone say nothing about it"
            )
        total, exposed = 0.0, 0.0
        for site in problem.sites:
            if isinstance(site.noise, Poisson):
                total += float(site.noise.counts.sum())
                exposed += float(np.sum(site.noise.rate * site.margin(dense(tables(site.scope)).ravel())))
        return (*self.inner.statistics(tables, problem, units), np.array([total, exposed]))

    def shrunk(self, x: Array, statistics: tuple[Any, ...]) -> tuple[Family, dict[str, float]] | None:
        """See `Family`."""
        found = self.inner.shrunk(x[:-1], statistics[:-1])
        return None if found is None else (replace(self, inner=found[0]), found[1])

    def with_priors(self, priors: Sequence[Mapping[str, Any]]) -> Family:
        """See `Family`."""
        return replace(self, inner=self.inner.with_priors(priors))

    def apply(self, x: Array, problem: Problem) -> Problem:
        """The same data under p_x, seen at λ times the rates given."""
        rate = float(np.exp(x[-1]))
        return self.inner.apply(x[:-1], problem).with_noise(lambda noise: _rescaled(noise, rate))


def _rescaled(noise: Observation, rate: float) -> Observation:
    """Poisson noise at `rate` times its rate; any other as it is."""
    return noise.replaced({"rate": noise.rate * rate}) if isinstance(noise, Poisson) else noise


def chain_family(family: Family) -> ChainFamily | None:
    """The chain within a family, if it is one."""
    inner = family.inner if isinstance(family, RateFamily) else family
    return inner if isinstance(inner, ChainFamily) else None


def standard_errors(natural: Natural, covariance: Array) -> Array:
    """√diag(J C Jᵀ); infinite where a parameter is not identified."""
    variance = np.diagonal(covariance)
    lost = ~np.isfinite(variance)
    known = np.where(lost[:, None] | lost[None, :], 0.0, covariance)
    found = np.sqrt(np.maximum(np.einsum("mk,kl,ml->m", natural.jacobian, known, natural.jacobian), 0.0))
    moved = (np.abs(natural.jacobian[:, lost]) > 1e-12).any(axis=1)
    return np.where(moved, np.inf, found)


def interval(natural: Natural, errors: Array, level: float) -> tuple[Array, Array]:
    """Symmetric on the link's scale, so that probabilities stay within (0, 1) and rates above 0."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    z = float(ndtri(0.5 + level / 2))
    v = natural.values
    lower, upper = np.empty_like(v), np.empty_like(v)
    for k, link in enumerate(natural.link):
        with np.errstate(divide="ignore", invalid="ignore"):
            if link == "identity":
                lower[k], upper[k] = v[k] - z * errors[k], v[k] + z * errors[k]
            elif link == "log":
                wide = z * errors[k] / v[k]
                lower[k], upper[k] = v[k] * np.exp(-wide), v[k] * np.exp(wide)
            else:
                slope = v[k] * (1 - v[k])
                wide = z * errors[k] / slope if slope > 0 else np.inf
                lower[k], upper[k] = expit(logit(v[k]) - wide), expit(logit(v[k]) + wide)
    return lower, upper


def true_values(family: Family, given: Any) -> Array:
    """True natural parameters, NaN where not given: by name, as a vector, or as a chain's transition table."""
    natural = family.natural(family.start())
    if isinstance(given, Mapping):
        unknown = [n for n in given if n not in natural.names]
        if unknown:
            raise ValueError(f"truth names {unknown}: the parameters are {', '.join(natural.names)}")
        return np.array([float(given.get(n, np.nan)) for n in natural.names])
    values = np.asarray(given, dtype=float)
    if values.size == len(natural.names):
        return values.ravel()
    chain = chain_family(family)
    if (
        chain is not None
        and isinstance(chain.transitions, Rows)
        and values.size == chain.transitions.free.size
    ):
        first = values.reshape(chain.transitions.free.shape)[chain.transitions.moving]
        return np.concatenate([first, np.full(len(natural.names) - len(first), np.nan)])
    raise ValueError(
        f"truth has {values.size} values for {len(natural.names)} parameters: give one each, or a mapping by name"
    )


def relative_error(family: Family, x: Array, truth: Array) -> float:
    """|estimate − truth|₁/|truth|₁ over the natural parameters whose truth is given."""
    known = np.isfinite(truth)
    return float(np.abs(family.natural(x).values - truth)[known].sum() / np.abs(truth[known]).sum())
