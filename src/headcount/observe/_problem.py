"""The Problem: one individual's model, how many individuals there are, and what was seen of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from headcount.checks import LARGEST_COUNT, brief, whole_number
from headcount.errors import Faults, ModelError, ProblemError
from headcount.individual import MarkovChain, Model, Tree
from headcount.observe._base import Array, Observation
from headcount.observe._bind import bind
from headcount.observe._checks import check_noise, check_together
from headcount.observe._site import Part, Site, by_family
from headcount.population import Company, Dispersion, Flocks
from headcount.tables import Domain, Scope


@dataclass(frozen=True, eq=False, init=False)
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
    dispersion
        How individuals move together: ``Flocks(5)``, ``Company(rho=0.01)`` or ``Company(phi=3)``. None: independently.

    Raises
    ------
    ProblemError
        Labels, shapes or scopes the model does not have, counts or parameters that cannot be, counts that contradict each
        other or N. Its ``problems`` has one text per fault.
    """

    model: Model
    population: int
    observations: tuple[Observation, ...]
    sites: tuple[Site, ...] = field(repr=False)
    """One per table and observation, in the observations' order; scopes in the model's order of variables."""
    dispersion: Dispersion | None = None

    def __init__(
        self,
        model: Model,
        population: int,
        observations: Observation | Iterable[Observation] = (),
        *,
        dispersion: Dispersion | None = None,
    ) -> None:
        faults = Faults(ProblemError)
        kept = (observations,) if isinstance(observations, Observation) else _as_tuple(observations, faults)
        number = _whole(population, faults)
        _check_model(model, faults)
        _check_dispersion(model, number, dispersion, faults)
        sites = _bound(model, number, kept, faults)
        vars(self).update(
            model=model, population=number, observations=kept, sites=sites, dispersion=dispersion
        )

    @property
    def disperses(self) -> bool:
        """Whether individuals move together at all."""
        return self.dispersion is not None and not self.dispersion.is_none

    @cached_property
    def traits(self) -> Traits:
        """What an engine needs to know before it starts."""
        return traits_of(self.model, self.population, self.sites)

    @cached_property
    def noises(self) -> tuple[Part, ...]:
        """All observed entries (concatenated over sites) by their noise; see `by_family`."""
        return by_family(self.sites)

    def with_model(self, model: Model) -> Problem:
        """The same counts under another model of the same variables and states."""
        _check_model(model, Faults(ProblemError))
        if model.variables != self.model.variables or dict(model.states) != dict(self.model.states):
            return Problem(model, self.population, self.observations, dispersion=self.dispersion)
        faults = Faults(ProblemError)
        _check_scopes(model, self.sites, faults)
        if not faults:
            check_together(self.sites, model, self.population, faults)
        faults.raise_any()
        twin = self._twin(model, self.observations, self.sites)
        vars(twin)["noises"] = self.noises
        return twin

    def with_noise(self, change: Callable[[Observation], Observation]) -> Problem:
        """The same counts with other parameters of their noises; ``change`` must keep the counts and their scopes."""
        sites = tuple(replace(site, noise=change(site.noise)) for site in self.sites)
        return self._twin(self.model, tuple(map(change, self.observations)), sites)

    def with_dispersion(self, dispersion: Dispersion | None) -> Problem:
        """The same counts of individuals that move together in another way."""
        faults = Faults(ProblemError)
        _check_dispersion(self.model, self.population, dispersion, faults)
        faults.raise_any()
        twin = self._twin(self.model, self.observations, self.sites)
        vars(twin)["dispersion"] = dispersion
        return twin

    def _twin(self, model: Model, observations: tuple[Observation, ...], sites: tuple[Site, ...]) -> Problem:
        """A problem that is known to be right."""
        twin = object.__new__(Problem)
        vars(twin).update(
            model=model,
            population=self.population,
            observations=observations,
            sites=sites,
            dispersion=self.dispersion,
        )
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


def _as_tuple(given: Any, faults: Faults) -> tuple[Observation, ...]:
    wanted = "observations such as Poisson(counts)"
    # Arrays and frames can be iterated too, over a thousand things that are no observations.
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable) or hasattr(given, "shape"):
        faults.add("observations", f"must be {wanted}, got {brief(given)}")
        return ()
    kept = []
    for k, item in enumerate(given):
        if isinstance(item, Observation):
            kept.append(item)
        else:
            faults.add(
                f"observations[{k}]", f"must be an observation such as Poisson(counts), got {brief(item)}"
            )
    return tuple(kept)


def _check_model(model: object, faults: Faults) -> None:
    """Nothing else can be checked without a model."""
    if not isinstance(model, Model):
        faults.add("model", f"must be a Model such as MarkovChain(...), got {brief(model)}")
        faults.raise_any()


def _check_dispersion(model: Model, population: int, dispersion: Any, faults: Faults) -> None:
    if dispersion is None:
        return
    if not isinstance(dispersion, (Flocks, Company)):
        faults.add(
            "dispersion",
            f"must be None, Flocks(5), Company(rho=0.01) or Company(phi=3), got {brief(dispersion)}",
        )
    elif isinstance(dispersion, Flocks):
        if dispersion.size > population:
            faults.add(
                "dispersion", f"a flock of {dispersion.size:g} is larger than the population, {population}"
            )
    elif not isinstance(model, (MarkovChain, Tree)):
        faults.add(
            "dispersion",
            f"Company is a property of steps, which a {type(model).__name__} has in no particular direction: give a "
            "MarkovChain or a Tree, or Flocks(c)",
        )
    else:
        for text in dispersion.faults(model.rooted()):
            faults.add("dispersion", text)


def _whole(population: Any, faults: Faults) -> int:
    """N as an int; a float that is a whole number will do."""
    single = isinstance(population, (np.generic, np.ndarray)) and population.size == 1
    try:
        return whole_number(population.item() if single else population, "population", least=1)
    except ModelError as error:
        faults.add("population", str(error).removeprefix("population "))
        return 1


def _bound(
    model: Model, population: int, observations: tuple[Observation, ...], faults: Faults
) -> tuple[Site, ...]:
    """Bind every observation, then check all there is to check; raise if anything was wrong."""
    sound = not faults
    sites: list[Site] = []
    for k, observation in enumerate(observations):
        sites += bind(observation, model, source=k, chain=isinstance(model, MarkovChain), faults=faults)
    check_noise(sites, population if sound else LARGEST_COUNT, faults)
    if not faults:  # contradictions among counts that are themselves wrong would only repeat that
        check_together(sites, model, population, faults)
    faults.raise_any()
    return tuple(sites)


def _check_scopes(model: Model, sites: tuple[Site, ...], faults: Faults) -> None:
    for scope in dict.fromkeys(site.scope for site in sites):
        if len(scope) > 1 and model.junction_tree.covering(scope) is None:
            faults.add("model", f"the observed variables {scope!r} are not together in one of its cliques")


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
            return np.asarray(Domain(names, array.shape).project(array, scope))
    raise ProblemError(f"no table covers the observed {scope!r}: give one of it or of a larger scope")


@dataclass(frozen=True)
class Traits:
    """The facts by which an engine is chosen.

    Attributes
    ----------
    shape
        ``"chain"``, ``"tree"`` or ``"junction"``.
    sparse
        Whether any transition matrix is sparse.
    population
        N.
    variables, entries
        How many variables, and how many counts are observed.
    largest_table
        Entries of the largest clique table.
    all_gaussian
        Every site conditions in closed form (Gaussian or exact; true of no site at all).
    any_exact
        Some site is exact.
    count_noise
        Some site is neither Gaussian nor exact.
    log_concave
        Every site is log-concave in n.
    poisson_shaped
        Every site that is not exact has a `concave_part`.
    correlated
        Some site's errors depend on each other.
    nodes, edges, cliques, sums
        What is observed: single variables, pairs, larger tables; sums of entries of any of them.
    """

    shape: Literal["chain", "tree", "junction"]
    sparse: bool
    population: int
    variables: int
    entries: int
    largest_table: int
    all_gaussian: bool
    any_exact: bool
    count_noise: bool
    log_concave: bool
    poisson_shaped: bool
    correlated: bool
    nodes: bool
    edges: bool
    cliques: bool
    sums: bool


def traits_of(model: Model, population: int, sites: Sequence[Site]) -> Traits:
    """The traits of a bound problem."""
    shape, sparse, largest = _shape(model)
    noises = [site.noise for site in sites]
    widths = {len(site.scope) for site in sites}
    all_gaussian = all(noise.gaussian for noise in noises)
    return Traits(
        shape=shape,
        sparse=sparse,
        population=population,
        variables=len(model.variables),
        entries=sum(map(len, sites)),
        largest_table=largest,
        all_gaussian=all_gaussian,
        any_exact=any(noise.exact for noise in noises),
        count_noise=not all_gaussian,
        log_concave=all(noise.log_concave for noise in noises),
        poisson_shaped=all(noise.poisson_shaped or noise.exact for noise in noises),
        correlated=any(noise.correlated for noise in noises),
        nodes=1 in widths,
        edges=2 in widths,
        cliques=max(widths, default=0) > 2,
        sums=any(site.weights is not None for site in sites),
    )


def _shape(model: Model) -> tuple[Literal["chain", "tree", "junction"], bool, int]:
    tree = model.rooted()
    if tree is None:
        return "junction", False, max(model.junction_tree.table_sizes)
    sizes, parents = tree.sizes, tree.parents
    largest = max(sizes[k] * (sizes[p] if p >= 0 else 1) for k, p in enumerate(parents))
    return ("chain" if tree.is_chain else "tree"), any(map(issparse, tree.transitions)), largest
