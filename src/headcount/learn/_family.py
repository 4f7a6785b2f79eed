"""A family: a parametrisation bound to one problem's model. From parameters to a model, from tables to statistics."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from headcount.individual import MarkovChain, Model
from headcount.learn._component import Array, Component, Rate
from headcount.learn._potentials import Potentials
from headcount.learn._rows import Rows
from headcount.learn._weights import Weights
from headcount.observe import Observation, Poisson, Problem

Scope = tuple[Hashable, ...]
Tables = Callable[[Scope], Array]
"""Count tables, observed or expected, by scope."""


class Family(ABC):
    """Models by parameters: x ↦ p_x, one slice of x a component."""

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
    def statistics(self, tables: Tables, problem: Problem | None) -> tuple[Any, ...]:
        """What every component learns from, in their order; the problem is there for what concerns the data."""

    def apply(self, x: Array, problem: Problem) -> Problem:
        """The same data under p_x."""
        return problem.with_model(self.model(x))


@dataclass(frozen=True, eq=False)
class ChainFamily(Family):
    """A Markov chain: transitions by weights or by rows, the initial law learned or as the template has it."""

    template: MarkovChain
    transitions: Weights | Rows
    homogeneous: bool
    initial: Rows | None = None

    @property
    def components(self) -> tuple[Component, ...]:  # type: ignore[override]
        """Transitions, then the initial law if it is learned."""
        return (self.transitions,) if self.initial is None else (self.transitions, self.initial)

    def matrices(self, x: Array) -> Array:
        """P, shape (L, L) when every step is the same, (T − 1, L, L) otherwise."""
        if isinstance(self.transitions, Weights):
            return self.transitions.transitions.transitions(x)
        table = self.transitions.probabilities(x)
        cells = table.shape[1]
        return table if self.homogeneous else table.reshape(-1, cells, cells)

    def model(self, x: Array) -> MarkovChain:
        """The chain."""
        first, *rest = self.split(x)
        law = self.template.initial if self.initial is None else self.initial.probabilities(rest[0])[0]
        matrices = self.matrices(first)
        if not self.homogeneous:
            matrices = list(matrices)  # type: ignore[assignment]
        return MarkovChain(law, matrices, times=self.template.times, cells=self.template.cells)

    def statistics(self, tables: Tables, problem: Problem | None) -> tuple[Any, ...]:
        """Flows (added up when every step is the same) and the first time's counts."""
        del problem
        times = self.template.times
        steps = list(itertools.pairwise(times))
        if self.homogeneous:
            cells = len(self.template.cells)
            flows = sum((_dense(tables(pair)) for pair in steps), start=np.zeros((cells, cells)))
        else:
            flows = np.stack([_dense(tables(pair)) for pair in steps])
            if isinstance(self.transitions, Rows):
                flows = flows.reshape(self.transitions.free.shape)
        return (flows,) if self.initial is None else (flows, _dense(tables((times[0],)))[None])


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

    def statistics(self, tables: Tables, problem: Problem | None) -> tuple[Any, ...]:
        """Total features and N."""
        del problem
        found = {s: _dense(tables(s)) for s in self.potentials.features}
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

    def statistics(self, tables: Tables, problem: Problem | None) -> tuple[Any, ...]:
        """The other family's, and (Y, Σ r n) over the Poisson counts."""
        if problem is None:
            raise ValueError(
                "a rate is learned from observations: complete counts alone say nothing about it"
            )
        total, exposed = 0.0, 0.0
        for site in problem.sites:
            if isinstance(site.noise, Poisson):
                total += float(site.noise.counts.sum())
                exposed += float(np.sum(site.noise.rate * site.margin(_dense(tables(site.scope)).ravel())))
        return (*self.inner.statistics(tables, problem), np.array([total, exposed]))

    def apply(self, x: Array, problem: Problem) -> Problem:
        """The same data under p_x, seen at λ times the rates given."""
        rate = float(np.exp(x[-1]))
        return self.inner.apply(x[:-1], problem).with_noise(lambda noise: _rescaled(noise, rate))


def _rescaled(noise: Observation, rate: float) -> Observation:
    """Poisson noise at `rate` times its rate; any other as it is."""
    return noise.replaced({"rate": noise.rate * rate}) if isinstance(noise, Poisson) else noise


def _dense(table: Any) -> Array:
    return table.toarray() if sparse.issparse(table) else np.asarray(table, dtype=float)
