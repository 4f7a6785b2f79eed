"""The Problem: one individual's model, how many individuals there are, and what was seen of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from headcount.individual import MarkovChain, Model
from headcount.observe._base import Array, Observation, Scope
from headcount.observe._bind import bind
from headcount.observe._check import check_noise, check_reach
from headcount.observe._complaints import Complaints
from headcount.observe._contradictions import check_exact
from headcount.observe._errors import ProblemError
from headcount.observe._family import Part, by_family
from headcount.observe._site import Site
from headcount.observe._traits import Traits, traits_of

_LARGEST = 2**53
"""Above it a float no longer counts individuals one by one."""


@dataclass(frozen=True, eq=False)
class Problem:
    """N individuals, each x ~ p independently; of their count tables n, noisy counts y ~ l(· | n) are seen.

    Everything is checked here, and everything wrong is reported at once.

    Parameters
    ----------
    model
        The law of one individual.
    population
        N ≥ 1.
    observations
        What was seen: an observation or a sequence of them, possibly empty. The same entry may be seen more
        than once: the readings are independent.

    Raises
    ------
    ProblemError
        Labels, shapes or scopes the model does not have, counts or parameters that cannot be, exact margins
        that contradict each other or N. Its ``problems`` has one text a fault.
    """

    model: Model
    population: int
    observations: tuple[Observation, ...] = ()
    sites: tuple[Site, ...] = field(init=False, repr=False)
    """One a table and observation, in the observations' order; scopes in the model's order of variables."""

    def __post_init__(self) -> None:
        complaints = Complaints()
        given: Any = self.observations
        observations = (given,) if isinstance(given, Observation) else _as_tuple(given, complaints)
        population = _whole(self.population, complaints)
        model: object = self.model
        if not isinstance(model, Model):
            complaints.add("model", f"must be a Model, got {type(model).__name__}")
            complaints.raise_any()
        object.__setattr__(self, "observations", observations)
        object.__setattr__(self, "population", population)
        object.__setattr__(self, "sites", _bound(self.model, population, observations, complaints))

    @cached_property
    def traits(self) -> Traits:
        """What an engine needs to know before it starts."""
        return traits_of(self.model, self.population, self.sites)

    @cached_property
    def noises(self) -> tuple[Part, ...]:
        """All observed entries (flat, site after site) by their noise; sites of one family are one."""
        return by_family(self.sites)

    def with_model(self, model: Model) -> Problem:
        """The same counts under another model of the same variables and states."""
        if model.variables != self.model.variables or dict(model.states) != dict(self.model.states):
            return Problem(model, self.population, self.observations)
        complaints = Complaints()
        _check_scopes(model, self.sites, complaints)
        if not complaints:
            check_reach(self.sites, model, self.population, complaints)
            check_exact(self.sites, model, self.population, complaints)
        complaints.raise_any()
        twin = self._twin(model, self.observations, self.sites)
        vars(twin)["noises"] = self.noises
        return twin

    def with_noise(self, change: Callable[[Observation], Observation]) -> Problem:
        """The same counts under other parameters of their noises: ``change`` keeps what was counted, and where."""
        sites = tuple(replace(site, noise=change(site.noise)) for site in self.sites)
        return self._twin(self.model, tuple(map(change, self.observations)), sites)

    def _twin(self, model: Model, observations: tuple[Observation, ...], sites: tuple[Site, ...]) -> Problem:
        """A problem that is known to be right."""
        twin = object.__new__(Problem)
        vars(twin).update(model=model, population=self.population, observations=observations, sites=sites)
        return twin

    def log_likelihood(self, tables: Mapping[Any, ArrayLike] | Callable[[Scope], ArrayLike]) -> float:
        """The sum over sites and counts of log l(y | n), for count tables n.

        Parameters
        ----------
        tables
            A function from a scope to its table, or a mapping from scopes (or variables) to tables; a site
            whose scope is not a key is read off a larger table.
        """
        total = 0.0
        for site in self.sites:
            table = tables(site.scope) if callable(tables) else _looked_up(tables, site.scope)
            flat = np.asarray(table, dtype=float).reshape(-1)
            if flat.size != site.size:
                raise ValueError(
                    f"the table of {site.scope!r} must have {site.size} entries, got {flat.size}"
                )
            total += float(np.sum(site.noise.log_prob(site.margin(flat))))
        return total


def _as_tuple(given: Any, complaints: Complaints) -> tuple[Observation, ...]:
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        complaints.add(
            "observations", f"must be observations such as Poisson(counts), got {type(given).__name__}"
        )
        return ()
    kept = []
    for k, item in enumerate(given):
        if isinstance(item, Observation):
            kept.append(item)
        else:
            text = f"must be an observation such as Poisson(counts), got {type(item).__name__}"
            complaints.add(f"observations[{k}]", text)
    return tuple(kept)


def _whole(population: Any, complaints: Complaints) -> int:
    """N as an int; a float that is a whole number will do."""
    number = (
        population.item()
        if isinstance(population, (np.generic, np.ndarray)) and population.size == 1
        else population
    )
    countable = isinstance(number, (int, float)) and not isinstance(number, bool) and math.isfinite(number)
    if countable and number == int(number) and 1 <= number <= _LARGEST:
        return int(number)
    complaints.add("population", f"must be a whole number from 1 to 2**53, got {population!r}")
    return 1


def _bound(
    model: Model, population: int, observations: tuple[Observation, ...], complaints: Complaints
) -> tuple[Site, ...]:
    """Bind every observation, then check all there is to check; raise if anything was wrong."""
    right_population = not complaints
    sites: list[Site] = []
    for k, observation in enumerate(observations):
        sites += bind(
            observation, model, source=k, chain=isinstance(model, MarkovChain), complaints=complaints
        )
    check_noise(sites, population if right_population else _LARGEST, complaints)
    sound = not complaints
    if sound:  # contradictions among counts that are themselves wrong would only repeat it
        check_reach(sites, model, population, complaints)
        check_exact(sites, model, population, complaints)
    complaints.raise_any()
    return tuple(sites)


def _check_scopes(model: Model, sites: tuple[Site, ...], complaints: Complaints) -> None:
    for scope in dict.fromkeys(site.scope for site in sites):
        if len(scope) > 1 and model.junction_tree.covering(scope) is None:
            complaints.add(
                "model", f"the observed variables {scope!r} are not together in one of its cliques"
            )


def _looked_up(tables: Mapping[Any, ArrayLike], scope: Scope) -> Array:
    """The table of `scope`: its own entry, or summed out of a larger one."""
    if scope in tables:
        return np.asarray(tables[scope])
    if len(scope) == 1 and scope[0] in tables:
        return np.asarray(tables[scope[0]])
    for key, table in tables.items():
        names: tuple[Hashable, ...] = key if isinstance(key, tuple) else (key,)
        if set(scope) <= set(names):
            array = np.asarray(table)
            summed = array.sum(axis=tuple(k for k, v in enumerate(names) if v not in scope))
            left = [v for v in names if v in scope]
            return np.transpose(summed, [left.index(v) for v in scope])
    raise ProblemError(f"no table covers the observed {scope!r}: give one of it or of a larger scope")
