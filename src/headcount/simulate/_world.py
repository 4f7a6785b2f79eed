"""A simulated population: the truth, and what was seen of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from headcount import memory
from headcount._types import Array, Counts
from headcount.checks import LARGEST_COUNT, brief, finite_number, generator, instance, whole_number
from headcount.errors import ModelError, raise_all
from headcount.individual import MarkovChain, Model
from headcount.individual._model import checked_model
from headcount.labels import coordinate
from headcount.observe import Problem
from headcount.observe.binding import positions
from headcount.observe.cloud import alone
from headcount.population import (
    CGM,
    CountTables,
    Dispersion,
    Flocks,
    Group,
    Overdispersion,
    SizeLaw,
    as_dispersion,
)
from headcount.population._cgm import sample_together
from headcount.tables import dense

if TYPE_CHECKING:
    import xarray

    from headcount.simulate._birds import Features

Noise = Callable[[Counts, np.random.Generator], NDArray[Any]]
"""How counts are seen: (true counts, generator) ↦ observed counts of the same shape."""


@final
@dataclass(frozen=True, eq=False)
class World:
    """What was simulated.

    Attributes
    ----------
    model : Model
        The law every individual followed.
    tables : CountTables
        The true counts of every clique and separator; ``tables.table(scope)`` for any scope inside a clique. Of an open population,
        with its hidden states; ``world.table(scope)`` leaves them out.
    observations : mapping of scope to array
        What was seen, scope by scope.
    features : Features or None
        What the transitions were made of, for worlds of `birds`.
    mask : array, shape (L, L), or None
        0 where a flight is allowed and −∞ where it is not, as log-linear transitions take it. None if all are
        allowed, and for sparse worlds, whose transitions say it by their pattern.
    winds : array, shape (T − 1, 2), or None
    coordinates : array, shape (L, 2), or None
        (column, row) of every cell.
    groups : mapping of name to World
        Every group's own truth, where there are several; ``tables`` is then their sum.
    """

    model: Model
    tables: CountTables
    observations: Mapping[tuple[Hashable, ...], NDArray[Any]]
    features: Features | None = None
    mask: Array | None = None
    winds: Array | None = None
    coordinates: NDArray[np.int64] | None = None
    groups: Mapping[Hashable, World] = field(default_factory=dict)

    @property
    def population(self) -> int:
        """N; of an open population, of all that were ever there."""
        return self.tables.population

    def table(self, scope: Sequence[Hashable]) -> Counts:
        """The true counts of one table of cells."""
        whole, scope = dense(self.tables.table(scope)), tuple(scope)
        if self.tables.model is self.model:
            return np.asarray(whole)
        view = alone(self.model).view()
        return np.asarray(view.matrix(scope) @ whole.ravel()).reshape(view.shape(scope)).astype(whole.dtype)

    @property
    def counts(self) -> Counts:
        """A chain's true counts, shape (T, L)."""
        chain = self._chain("counts")
        return np.stack([self.table((t,)) for t in chain.times])

    @property
    def flows(self) -> Counts:
        """A chain's true flows, shape (T − 1, L, L): entry (t, i, j) left cell i at time t for cell j."""
        chain = self._chain("flows")
        size = len(chain.cells)
        memory.require(
            8 * size**2 * (len(chain.times) - 1),
            "world.flows as one array",
            remedy="take the steps one by one with world.tables.table(scope)",
        )
        flows = np.zeros((len(chain.times) - 1, size, size), dtype=np.int64)
        for step, pair in enumerate(zip(chain.times, chain.times[1:], strict=False)):
            flows[step] = self.table(pair)
        return flows

    @property
    def arrivals(self) -> Counts:
        """Who arrived in every step of an open population, shape (T − 1, L), by the cell of arrival."""
        return self._going("arrivals")

    @property
    def departures(self) -> Counts:
        """Who left in every step of an open population, shape (T − 1, L), by the last cell."""
        return self._going("departures")

    def _going(self, what: Literal["arrivals", "departures"]) -> Counts:
        chain: Any = self.model
        if not chain.opens:
            raise ModelError(
                f"a population without arrivals and departures has no {what}: simulate an OpenChain"
            )
        view = alone(chain).view(None, what)
        steps = pairwise(chain.times)
        return np.stack([view.matrix(s) @ dense(self.tables.table(s)).ravel() for s in steps]).astype(
            np.int64
        )

    @property
    def observed(self) -> xarray.DataArray:
        """A chain's observed counts, dims (time, cell), as `Poisson` takes them; NaN where nobody looked."""
        import xarray

        chain = self._chain("observed")
        values = np.full((len(chain.times), len(chain.cells)), np.nan)
        for row, time in enumerate(chain.times):
            if (time,) in self.observations:
                values[row] = self.observations[(time,)]
        coords: dict[str, Any] = {"time": coordinate(chain.times), "cell": coordinate(chain.cells)}
        if self.coordinates is not None:
            coords |= {"column": ("cell", self.coordinates[:, 0]), "row": ("cell", self.coordinates[:, 1])}
        return xarray.DataArray(values, dims=("time", "cell"), coords=coords, name="observed")

    def _chain(self, what: str) -> MarkovChain:
        chain = self.model.as_chain()
        if chain is not None and len(set(chain.states.values())) == 1:
            return chain
        raise ModelError(
            f"world.{what} is one array only for a chain whose cells do not change; "
            f"use world.tables.table(scope) for the truth and world.observations[scope] for what was seen"
        )


def poisson(rate: float = 1.0, *, background: float = 0.0) -> Noise:
    """Y ~ Poisson(rate·n + background), entry by entry."""
    rate = finite_number(rate, "rate", least=0.0, expected="a finite number, 0 or more")
    background = finite_number(background, "background", least=0.0, expected="a finite number, 0 or more")

    def draw(counts: Counts, rng: np.random.Generator) -> NDArray[Any]:
        mean = rate * counts + background
        if mean.max(initial=0.0) > LARGEST_COUNT:
            raise ModelError(
                f"the expected observations go up to {mean.max():.3g}, and counts to 2**53: take a smaller rate"
            )
        return rng.poisson(mean)

    return draw


def binomial(probability: float) -> Noise:
    """Y ~ Binomial(n, probability): each individual is seen or not."""
    chance = finite_number(probability, "probability", least=0.0, most=1.0, expected="a probability, 0 to 1")
    return lambda counts, rng: rng.binomial(counts, chance)


def gaussian(sd: float) -> Noise:
    """Y ~ Normal(n, sd²)."""
    sd = finite_number(sd, "sd", least=0.0, expected="a standard deviation, finite and 0 or more")
    return lambda counts, rng: rng.normal(counts, sd)


def exact() -> Noise:
    """Y = n."""
    return lambda counts, rng: counts.copy()


def population(
    model: Model | None = None,
    size: int | SizeLaw | None = None,
    *,
    groups: Mapping[Hashable, Group] | None = None,
    observe: Noise | Mapping[tuple[Hashable, ...], Noise] | None = None,
    dispersion: Dispersion | None = None,
    rng: np.random.Generator | int,
) -> World:
    """Simulate N individuals of any model, and what is seen of them.

    Parameters
    ----------
    model : Model
        The law of one individual. Individuals of an `OpenChain` come and go; how many is up to it.
    size : int or SizeLaw
        N, or its law (``hc.About(1000, sd=100)``), from which it is drawn, at least 1; the cost does not depend on it. Of an
        `OpenChain`, the number expected at the first time, where its initial is given as probabilities.
    groups : mapping of name to Group
        Several kinds of individuals instead of one model and size; what is seen is their sum, and ``world.groups`` has each.
    observe : callable, or mapping of scope to callable, optional
        How counts are seen: a callable takes (true counts, generator) and returns counts of the same shape,
        as `poisson`, `binomial`, `gaussian` and `exact` of this package make them. One callable sees every
        variable; a mapping sees the tables it names. ``poisson()`` if left out.
    dispersion : Flocks or Overdispersion, optional
        How individuals move together: ``hc.Flocks(5)``, ``hc.Overdispersion(rho=0.01)`` (probabilities of moves that vary from step to
        step) or ``hc.Overdispersion(phi=3)`` (parties of three, mixed anew at every step). If left out independently, or as the
        chain's ``concentration`` says.
    rng : numpy.random.Generator or int

    Examples
    --------
    >>> import headcount as hc
    >>> from headcount import simulate
    >>> tree = hc.Tree([0.5, 0.5], {"b": ("a", [[0.9, 0.1], [0.2, 0.8]])}, root="a")
    >>> world = simulate.population(tree, 1000, observe={("b",): simulate.exact()}, rng=1)
    >>> int(world.observations[("b",)].sum())
    1000
    >>> chain = hc.OpenChain([30, 10], [[0.9, 0.1], [0.2, 0.8]], arrivals=5, survival=0.8, length=3)
    >>> simulate.population(chain, rng=1).counts.shape
    (3, 2)
    """
    source = generator(rng)
    if groups is not None:
        if model is not None or size is not None:
            raise ModelError("model and size stand beside groups, which have their own: leave them out")
        return _observed(_together(groups, dispersion, source), observe, source)
    law = checked_model(model)
    if law.expected_number is not None and size is not None:
        law, size = law.scaled(whole_number(size, "size", least=1)), None  # type: ignore[attr-defined]
    return _observed(World(law, _followed(law, size, dispersion, source), {}), observe, source)


def _followed(
    model: Model, size: int | SizeLaw | None, dispersion: Dispersion | None, rng: np.random.Generator
) -> CountTables:
    """The tables of one kind of individuals on the larger graph that they follow; a Poisson number where the model expects one."""
    if type(model).larger is Model.larger:
        return _drawn(model, size, dispersion, rng)
    cloud = alone(model)
    flock = as_dispersion(dispersion).flock_size
    expected = model.expected_number
    number = _number(size, rng) if expected is None else round(flock * rng.poisson(expected / flock))
    if number == 0:
        return _nobody(cloud.model)
    return _drawn(cloud.model, number, replace(cloud, dispersion=dispersion).together, rng)


def _drawn(
    model: Model, size: int | SizeLaw | None, dispersion: Dispersion | None, rng: np.random.Generator
) -> CountTables:
    """The tables of one group; of nobody, zeros."""
    number = _number(size, rng)
    while number < 1:  # tables have at least one individual
        number = _number(size, rng)
    if dispersion is None and model.concentration is not None:
        dispersion = Overdispersion(rho=1.0 / (1.0 + np.asarray(model.concentration)))
    if dispersion is None:
        return CGM(model, number).sample(rng=rng)
    known = instance(
        dispersion, (Flocks, Overdispersion), "dispersion", expected="Flocks(5) or Overdispersion(rho=0.01)"
    )
    return CountTables(model, sample_together(model, known, number, rng=rng))


def _nobody(model: Model) -> CountTables:
    return CountTables(
        model, {tuple(c): np.zeros(model.size(tuple(c)), dtype=np.int64) for c in model.junction_tree.cliques}
    )


def _together(
    groups: Mapping[Hashable, Group], dispersion: Dispersion | None, rng: np.random.Generator
) -> World:
    """A world of several groups: each by itself, and their sum."""
    problem = Problem(groups=groups)  # which checks that they fit together
    parts, sized = {}, {}
    for name, group in groups.items():
        known = group.model.expected_number is not None
        sized[name] = group if known else replace(group, size=_number(group.size, rng, least=0))
        parts[name] = World(group.model, _weighted(sized[name], dispersion, rng), {})
    if any(part.population for part in parts.values()):
        problem = Problem(groups=sized)
    model = problem.model
    total = {
        scope: np.zeros(model.size(scope), np.int64) for scope in map(tuple, model.junction_tree.cliques)
    }
    for scope, table in total.items():
        for part in parts.values():
            own = [positions(part.model.states[v], model.states[v], "cell") for v in scope]
            table[np.ix_(*own)] += part.table(scope)
    return World(model, CountTables(model, total), {}, groups=parts)


def _number(size: int | SizeLaw | None, rng: np.random.Generator, *, least: int = 1) -> int:
    """A number of individuals: drawn where it has a law, else checked."""
    if isinstance(size, SizeLaw):
        return int(size.sample(1, rng=rng)[0])
    return whole_number(size, "size", least=least)


def _weighted(group: Group, dispersion: Dispersion | None, rng: np.random.Generator) -> CountTables:
    """The tables of one group of known size, times its weight; of nobody, zeros."""
    nobody = group.model.expected_number is None and not group.size
    tables = _nobody(group.model) if nobody else _followed(group.model, group.size, dispersion, rng)
    return CountTables(tables.model, {s: group.weight * n for s, n in tables.tables.items()})


def _observed(
    world: World, observe: Noise | Mapping[tuple[Hashable, ...], Noise] | None, rng: np.random.Generator
) -> World:
    """The world with what is seen of it."""
    noise = poisson() if observe is None else observe
    seen = noise if isinstance(noise, Mapping) else {(v,): noise for v in world.model.variables}
    raise_all(
        f"observe is {brief(look)} for {scope!r}: give a function of (counts, generator), such as simulate.poisson()"
        for scope, look in seen.items()
        if not callable(look) or isinstance(look, type)
    )
    observations = {}
    for scope, look in seen.items():
        counts = world.table(scope)
        values = np.asarray(look(counts, rng))
        if values.shape != counts.shape:
            raise ModelError(
                f"the observations of {scope!r} have shape {values.shape}, its counts {counts.shape}; "
                f"observe must return one number per entry"
            )
        observations[world.model.scope(scope)] = values
    return replace(world, observations=observations)
