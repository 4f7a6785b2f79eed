"""The Problem: one individual's model, how many individuals there are, and what was seen of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from headcount._html import card, heat_map
from headcount.checks import LARGEST_COUNT, brief, whole_number
from headcount.errors import Faults, ModelError, ProblemError
from headcount.individual import MarkovChain, Model, OpenChain, Records, Tree, join_records, record_log_prob
from headcount.observe._base import Array, Observation
from headcount.observe._binding import Part, Site, bind, by_family
from headcount.observe._checks import check_noise, check_together, needed_population, pinned_population
from headcount.observe._groups import (
    OpenView,
    Stack,
    full_dispersion,
    lifted,
    sized,
    stack_of,
    total_size,
    tracked,
)
from headcount.observe._tracks import Tracks
from headcount.population import (
    Company,
    Dispersion,
    Flocks,
    Group,
    NegativeBinomialSize,
    PoissonSize,
    SizeLaw,
    ToEstimate,
    TotalSize,
    parse_dispersion,
)
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
        N ≥ 1, or what is known of it: ``About(10_000, sd=1_500)``, ``Between(8_000, 12_000)`` or ``Unknown()``. Left out with an
        `OpenChain`, which says it itself.
    observations
        What was seen: an observation or a sequence of them, possibly empty. The same entry may be seen more
        than once: the readings are independent. `Tracks` of followed individuals may be among them.
    groups
        ``{name: Group(model, size)}`` instead of a model and a population: individuals of several kinds, of which only the sum is
        counted. ``post.group(name)`` tells them apart.
    dispersion
        How individuals move together: ``Flocks(5)``, ``Company(rho=0.01)`` or ``Company(phi=3)``, or a text as the command line
        takes it; ``"estimate"`` lets `infer` and `fit` find it from the data. None: independently, or as the chain's
        ``concentration`` says.

    Raises
    ------
    ProblemError
        Labels, shapes or scopes the model does not have, counts or parameters that cannot be, counts that contradict each
        other or N. Its ``problems`` has one text per fault.
    """

    model: Model
    population: Any
    """N, or the law of it; engines are given problems in which it is a number (see `with_population`)."""
    observations: tuple[Observation, ...]
    sites: tuple[Site, ...] = field(repr=False)
    """One per table and observation, in the observations' order; scopes in the model's order of variables."""
    dispersion: Dispersion | None = None
    groups: Mapping[Hashable, Group] | None = None
    """The kinds of individuals, if there are several; `model` is then their mixture, with the law of every single move."""
    tracks: tuple[Tracks, ...] = ()
    """Individuals that were followed."""

    def __init__(
        self,
        model: Model | None = None,
        population: int | SizeLaw | None = None,
        observations: Observation | Tracks | Iterable[Observation | Tracks] = (),
        *,
        groups: Mapping[Any, Group] | None = None,
        dispersion: Dispersion | str | None = None,
    ) -> None:
        faults = Faults(ProblemError)
        alone = isinstance(observations, (Observation, Tracks))
        kept, tracks = _as_tuples([observations] if alone else observations, faults)
        if groups is not None:
            dispersion = _checked_dispersion(None, LARGEST_COUNT, dispersion, faults)
            beside = {
                "model": model,
                "population": population,
                "tracks among the observations": tracks or None,
            }
            stack = stack_of(groups, dispersion, beside, faults)
            vars(self)["stack"] = stack
            model, population = stack.mixture(), total_size(groups)
        if isinstance(model, OpenChain):
            dispersion = _checked_dispersion(model, LARGEST_COUNT, dispersion, faults)
            model, population = _opened(model, population, dispersion, tracks, faults)
        number = population if isinstance(population, SizeLaw) else _whole(population, faults)
        model = _check_model(model, faults)
        dispersion = _dispersion(model, number, dispersion, faults)
        sites = _bound(model, number, kept, faults)
        vars(self).update(
            model=model,
            population=number,
            observations=kept,
            sites=sites,
            dispersion=dispersion,
            groups=groups,
            tracks=tracks,
        )
        if tracks:
            _check_tracks(self)

    def _repr_html_(self) -> str:
        """What a notebook shows: the model, the population, what was observed of what, and the counts as a thumbnail."""
        model = self.model
        sizes = {len(states) for states in model.states.values()}
        seen: Counter[str] = Counter()
        for site in self.sites:
            seen[type(site.noise).__name__] += len(site)
        counts = self._seen_nodes(max(sizes))
        facts = {
            "model": f"{type(model).__name__}: {len(model.variables)} times or variables, {max(sizes)} cells or states",
            "population": f"{self.population:,}" if isinstance(self.population, int) else self.population,
            "observed": ", ".join(f"{n:,} counts with {noise} noise" for noise, n in seen.items())
            or "nothing",
            "nodes observed": f"{np.isfinite(counts).sum():,} of {sum(len(s) for s in model.states.values()):,}",
            "moves together": self.dispersion,
            "next": "hc.infer(problem), hc.engines.select(problem)",
        }
        return card("Problem", facts, thumbnail=heat_map(counts, "observed counts (grey: nobody looked)"))

    def _seen_nodes(self, widest: int) -> Array:
        """The observed counts of single cells, one row per variable; NaN where nobody looked."""
        counts = np.full((len(self.model.variables), widest), np.nan)
        rows = {(v,): k for k, v in enumerate(self.model.variables)}
        for site in self.sites:
            if site.scope in rows and site.weights is None:
                counts[rows[site.scope], site.index] = site.noise.counts
        return counts

    @cached_property
    def records(self) -> tuple[Records | None, Records | None]:
        """The tracks of individuals that are in the counts, and of those that are not; None where there are none."""
        read = {
            counted: [t.read(self.model) for t in self.tracks if t.counted is counted]
            for counted in (True, False)
        }
        counted, apart = (join_records(read[k]) if read[k] else None for k in (True, False))
        return counted, apart

    @cached_property
    def stack(self) -> Stack | None:
        """Groups, and tracked individuals that are in the counts, as one chain; None where there are neither."""
        counted = self.records[0]
        if counted is None:
            return None
        assert isinstance(self.model, MarkovChain)
        return tracked(self.model, self.typical_population, counted, self.dispersion)

    @cached_property
    def core(self) -> Problem:
        """What engines solve: this problem, or, with groups or tracks, the same data on the chain of (group, cell)."""
        if not self.size_known:
            return self  # engines see it at one size at a time
        if isinstance(self.model, OpenChain):
            model, sites = self.full
            return self._twin(
                model=model, sites=sites, dispersion=full_dispersion(self.model, self.dispersion)
            )
        stack = self.stack
        if stack is None:
            return self._twin(tracks=()) if self.tracks else self
        sites = (*map(stack.lifted, self.sites), stack.sizes_site(len(self.observations)))
        return self._twin(model=stack.model, sites=sites, groups=None, tracks=(), dispersion=stack.company)

    @cached_property
    def full(self) -> tuple[Model, tuple[Site, ...]]:
        """Model and sites with the hidden states of an open population."""
        return on_full(self.model, self.sites)

    def of_group(self, member: int) -> Problem:
        """The individuals of one group, of which nothing was seen by itself."""
        assert self.stack is not None
        law = None if self.groups is None else self.groups[self.stack.members[member].name].size
        size = law if isinstance(law, SizeLaw) else round(self.stack.members[member].size)
        return self._of_member(member, population=size, observations=(), sites=())

    @cached_property
    def parts(self) -> tuple[Problem, ...]:
        """One problem per group, with all sites on its own states; what is counted is the sum over them. This one where there is one."""
        stack = self.stack
        if stack is None:
            return (self,)
        return tuple(
            self._of_member(
                k,
                population=round(member.size),
                sites=tuple(stack.lifted(site, k) for site in self.sites),
            )
            for k, member in enumerate(stack.members)
        )

    def _of_member(self, member: int, **changed: Any) -> Problem:
        """The same for the individuals of one group."""
        assert self.stack is not None
        one, together = self.stack.members[member], self.dispersion
        if one.flock != 1.0:
            together = Flocks(one.flock)
        elif one.followed and isinstance(together, Company):
            together = None
        model = self.stack.own_model(member)
        return self._twin(model=model, groups=None, tracks=(), dispersion=together, **changed)

    @cached_property
    def log_offset(self) -> float:
        """What is added to the log evidence of `core`: the tracks' probability, less that of the groups' sizes."""
        if not self.size_known:
            return 0.0  # sizes are weighed with their own
        offset = 0.0 if self.stack is None else -self.stack.log_sizes
        if self.tracks:
            tree = self.model.rooted()
            assert tree is not None
            offset += sum(float(record_log_prob(tree, r).sum()) for r in self.records if r is not None)
        return offset

    @property
    def disperses(self) -> bool:
        """Whether individuals move together at all."""
        return self.dispersion is not None and not self.dispersion.is_none

    @property
    def root_phi(self) -> float:
        """Factor on the covariance of the first counts: 1 for independent individuals."""
        known = isinstance(self.dispersion, (Flocks, Company))
        return self.dispersion.root_phi(self.typical_population) if known else 1.0  # type: ignore[union-attr]

    @property
    def size_known(self) -> bool:
        """Whether N is known: the population is a number."""
        return not isinstance(self.population, SizeLaw)

    @property
    def next_size(self) -> SizeLaw:
        """The law of what `with_population` sets: N, or with several groups of unknown size the first of them and the known ones."""
        law = self.population
        assert isinstance(law, SizeLaw)
        if isinstance(law, TotalSize) and len(law.laws) > 1:
            return TotalSize(law.laws[:1], law.others)
        return law

    @property
    def free_member(self) -> int:
        """Which member of `stack` has the size that `with_population` sets; of followed individuals, all others are the last."""
        sizes = [0] if self.groups is None else [group.size for group in self.groups.values()]
        return next((k for k, size in enumerate(sizes) if isinstance(size, SizeLaw)), -1)

    @cached_property
    def size_bounds(self) -> tuple[int, int]:
        """Bounds of `next_size` by its law and the counts, all but 1e-10 of the law; N itself where it is known."""
        if not isinstance(self.population, SizeLaw):
            return self.population, self.population
        law, (model, sites) = self.next_size, self.full
        others = self.population.most - law.most  # how many the groups after the first may have
        pinned, need = pinned_population(sites, model), needed_population(self.sites)
        if pinned is not None:
            return (max(law.least, pinned - others), min(law.most, pinned)) if others else (pinned, pinned)
        low, high = law.window
        return max(low, need - others), min(max(high, 4 * need + 100), law.most)

    @cached_property
    def typical_population(self) -> int:
        """N, or one that is large enough to plan with."""
        low, high = self.size_bounds
        law = self.population
        if isinstance(law, SizeLaw) and law.mean > 1e6 * (low - law.others + 1):
            seen = [float(np.abs(site.noise.counts).sum()) for site in self.sites]
            high = min(high, max(low, 4 * round(max(seen, default=0.0)) + 100))
        elif isinstance(law, TotalSize):
            high += sum(part.window[1] for part in law.laws[1:])
        return max(high, 1)

    @cached_property
    def traits(self) -> Traits:
        """What an engine needs to know before it starts."""
        shape, sparse, largest = _shape(self.model)
        noises = [site.noise for site in self.sites]
        widths = {len(site.scope) for site in self.sites}
        all_gaussian = all(noise.gaussian for noise in noises)
        return Traits(
            shape=shape,
            sparse=sparse,
            population=self.typical_population,
            variables=len(self.model.variables),
            entries=sum(map(len, self.sites)),
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
            sums=any(site.weights is not None for site in self.sites),
        )

    @cached_property
    def noises(self) -> tuple[Part, ...]:
        """All observed entries (concatenated over sites) by their noise; see `by_family`."""
        return by_family(self.sites)

    def with_model(self, model: Model) -> Problem:
        """The same counts under another model of the same variables and states."""
        _check_model(model, Faults(ProblemError))
        if self.groups is not None and model is self.model:
            return self
        if self.groups is not None:
            raise ProblemError(
                "a problem of several groups has a model per group: make a Problem(groups=...) anew"
            )
        if isinstance(model, OpenChain):
            return Problem(model, None, self.observations, dispersion=self.dispersion)
        if model.variables != self.model.variables or dict(model.states) != dict(self.model.states):
            seen: list[Observation | Tracks] = [*self.observations, *self.tracks]
            return Problem(model, self.population, seen, dispersion=self.dispersion)
        faults = Faults(ProblemError)
        _check_scopes(model, self.sites, faults)
        if not faults:
            _check_sites(*on_full(model, self.sites), self.population, faults)
        dispersion = _dispersion(model, self.population, self.dispersion, faults)
        faults.raise_any()
        return self._twin(model=model, dispersion=dispersion, noises=self.noises, records=self.records)

    def with_noise(self, change: Callable[[Observation], Observation]) -> Problem:
        """The same counts with other parameters of their noises; ``change`` must keep the counts and their scopes."""
        sites = tuple(replace(site, noise=change(site.noise)) for site in self.sites)
        return self._twin(observations=tuple(map(change, self.observations)), sites=sites)

    def with_counts(self, counts: Sequence[ArrayLike]) -> Problem:
        """The same observations with other counts, one array per site: data simulated again."""
        sites = tuple(
            replace(site, noise=site.noise.replaced({"counts": np.asarray(y, dtype=float)}))
            for site, y in zip(self.sites, counts, strict=True)
        )
        faults = Faults(ProblemError)
        check_together(sites, self.model, self.population, faults)
        faults.raise_any()
        return self._twin(sites=sites)

    def with_dispersion(self, dispersion: Dispersion | str | None) -> Problem:
        """The same counts of individuals that move together in another way."""
        if self.groups is not None:
            return Problem(groups=self.groups, observations=self.observations, dispersion=dispersion)
        if isinstance(self.model, OpenChain) and not self.size_known:
            return Problem(self.model, None, self.observations, dispersion=dispersion)
        faults = Faults(ProblemError)
        dispersion = _checked_dispersion(self.model, self.population, dispersion, faults)
        faults.raise_any()
        return self._twin(dispersion=dispersion)

    def with_population(self, population: int | SizeLaw) -> Problem:
        """The same counts of another number of individuals; of several groups of unknown size, see `next_size`.

        Raises
        ------
        ProblemError
            When that many cannot have been counted so.
        """
        if self.groups is not None:
            return self.with_groups(sized(self.groups, population))
        faults = Faults(ProblemError)
        number = population if isinstance(population, SizeLaw) else _whole(population, faults)
        faults.raise_any()
        counted = self.records[0] if self.tracks else None
        if counted is not None and not isinstance(number, SizeLaw) and len(counted) > number:
            raise ProblemError(
                f"population is {number}, with {len(counted)} tracked individuals among them: give more"
            )
        _check_sites(*self.full, number, faults)
        faults.raise_any()
        return self._twin(population=number, noises=self.noises, full=self.full, records=self.records)

    def with_groups(self, groups: Mapping[Hashable, Group]) -> Problem:
        """The same counts of other groups."""
        return Problem(groups=groups, observations=self.observations, dispersion=self.dispersion)

    def of_units(self, size: int, change: Callable[[Observation], Observation]) -> Problem:
        """The problem of N/size independent units; ``change`` says what a noise of n is as one of n/size."""
        sites = tuple(replace(site, noise=change(site.noise)) for site in self.sites)
        if self.groups is not None:
            units = {n: Group(group.model, group.size // size) for n, group in self.groups.items()}
            return Problem(groups=units)._twin(model=self.model, observations=self.observations, sites=sites)
        if isinstance(self.model, OpenChain) and not self.size_known:
            model = self.model.scaled(self.model.first.sum() / size, arrivals=1.0 / size)
            law = PoissonSize(model.expected_number)
            return self._twin(model=model, sites=sites, population=law, dispersion=None)
        assert isinstance(self.population, int)
        return self._twin(sites=sites, population=self.population // size, dispersion=None)

    def recast(self, model: Model, sites: tuple[Site, ...], population: int) -> Problem:
        """The same observations as sites of another model that is known to fit them: for an engine's own use."""
        return self._twin(model=model, sites=sites, population=population, groups=None, tracks=())

    def _twin(self, **changed: Any) -> Problem:
        """A problem that is known to be right: this one with other fields, and cached properties that are known already."""
        twin = object.__new__(Problem)
        vars(twin).update({item.name: getattr(self, item.name) for item in fields(self)} | changed)
        if twin.groups is not None:
            vars(twin)["stack"] = self.stack
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


def _as_tuples(given: Any, faults: Faults) -> tuple[tuple[Observation, ...], tuple[Tracks, ...]]:
    """Observations of counts, and tracks."""
    wanted = "observations such as Poisson(counts)"
    # Arrays and frames can be iterated too, over a thousand things that are no observations.
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable) or hasattr(given, "shape"):
        faults.add("observations", f"must be {wanted}, got {brief(given)}")
        return (), ()
    kept, tracks = [], []
    for k, item in enumerate(given):
        if isinstance(item, Observation):
            kept.append(item)
        elif isinstance(item, Tracks):
            tracks.append(item)
        else:
            faults.add(
                f"observations[{k}]", f"must be an observation such as Poisson(counts), got {brief(item)}"
            )
    return tuple(kept), tuple(tracks)


def _check_tracks(problem: Problem) -> None:
    """Tracks that cannot be: unknown labels, more tags than individuals, positions that the model forbids."""
    faults = Faults(ProblemError)
    counted = problem.records[0]
    if counted is not None and len(counted) > problem.size_bounds[1]:
        text = f"{len(counted)} tracked individuals are counted in a population of N = {problem.population}"
        faults.add("observations", text)
    tree = problem.model.rooted()
    assert tree is not None
    for records in problem.records:
        if records is not None:
            lost = np.isneginf(record_log_prob(tree, records))
            for k in np.flatnonzero(lost):
                text = "the model does not allow these positions: correct them, or the moves that it forbids"
                faults.add("Tracks", text, f"id {records.ids[k]!r}")
    faults.raise_any()


def _check_model(model: object, faults: Faults) -> Model:
    """Nothing else can be checked without a model."""
    if not isinstance(model, Model):
        faults.add("model", f"must be a Model such as MarkovChain(...), got {brief(model)}")
        faults.raise_any()
        raise AssertionError
    return model


def _check_sites(model: Model, sites: Sequence[Site], population: int | SizeLaw, faults: Faults) -> None:
    """Note counts that contradict the model, each other or N; where N has a law, every N that it and exact tables allow."""
    if not isinstance(population, SizeLaw):
        check_together(sites, model, population, faults)
        return
    pinned = pinned_population(sites, model)
    check_together(sites, model, population.most if pinned is None else pinned, faults)
    if pinned is not None and not faults and not population.least <= pinned <= population.most:
        faults.add(
            "population",
            f"{population!r} excludes N = {pinned}, the total of counts seen exactly: widen it or correct the counts",
        )


def _opened(
    model: OpenChain, population: Any, dispersion: Any, tracks: tuple[Tracks, ...], faults: Faults
) -> tuple[OpenChain, SizeLaw]:
    """An open chain with the law of all individuals that are ever there."""
    if tracks:
        faults.add("model", "an OpenChain takes no tracks: leave them out")
    if isinstance(dispersion, Company) and dispersion.initial is not None:
        faults.add(
            "dispersion", "initial stands beside an OpenChain, whose first numbers are Poisson: leave it out"
        )
    if isinstance(population, SizeLaw):
        faults.add(
            "population",
            f"is {brief(population)}: numbers of an OpenChain are Poisson around what it expects; give the expected number, or "
            "leave the population out where the chain's initial holds numbers",
        )
    elif population is not None:
        number = _whole(population, faults)
        if abs(float(model.first.sum()) - 1.0) > PROBABILITIES:
            faults.add(
                "population",
                "an OpenChain says itself how many individuals are expected: leave the population out, or give an initial that sums to 1",
            )
        model = model.scaled(number)
    expected = model.expected_number
    if isinstance(dispersion, Flocks) and dispersion.size > 1.0:  # c Poisson(Λ/c) has mean Λ and variance c Λ
        return model, NegativeBinomialSize(expected, expected / (dispersion.size - 1.0))
    return model, PoissonSize(expected)


PROBABILITIES = 1e-6
"""Distance of a sum from 1 at which numbers are taken as probabilities."""


def _dispersion(model: Model, population: int | SizeLaw, given: Any, faults: Faults) -> Any:
    """How individuals move together: as given, or as the chain's concentration says."""
    kappa = model.concentration if isinstance(model, MarkovChain) else None
    if kappa is None:
        return _checked_dispersion(model, population, given, faults)
    implied = Company(rho=1.0 / (1.0 + np.asarray(kappa)))
    if given is not None and given != implied:
        faults.add(
            "dispersion",
            f"is {brief(given)}, and the chain's concentration {brief(kappa)} says how moves scatter, too: give one of them",
        )
    return implied


def _checked_dispersion(model: Model | None, population: int | SizeLaw, given: Any, faults: Faults) -> Any:
    """The dispersion, read if it is a text; what does not fit is noted."""
    try:
        dispersion = parse_dispersion(given) if isinstance(given, str) else given
    except ModelError as error:
        faults.add("dispersion", str(error))
        return None
    for text in () if dispersion is None else _misfits(dispersion, model, population):
        faults.add("dispersion", text)
    return dispersion


def _misfits(dispersion: Any, model: Model | None, population: int | SizeLaw) -> Iterable[str]:
    """What does not fit of a dispersion; without a model, of groups, which are chains."""
    if not isinstance(dispersion, (Flocks, Company, ToEstimate)):
        return [
            f'must be None, Flocks(5), Company(rho=0.01), Company(phi=3) or "estimate", got {brief(dispersion)}'
        ]
    if isinstance(dispersion, Flocks):
        largest = population.most if isinstance(population, SizeLaw) else population
        too_large = dispersion.size > largest
        return [f"a flock of {dispersion.size:g} is larger than the population, {largest}"] * too_large
    if model is None:
        return []
    if isinstance(model, (MarkovChain, Tree)):
        return dispersion.faults(model.rooted()) if isinstance(dispersion, Company) else []
    if isinstance(dispersion, Company) or dispersion.form in {"company", "rho"}:
        return [
            f"Company is a property of steps, which a {type(model).__name__} has in no particular direction: give a "
            "MarkovChain or a Tree, or Flocks(c)"
        ]
    return []


def _whole(population: Any, faults: Faults) -> int:
    """N as an int; a float that is a whole number will do."""
    single = isinstance(population, (np.generic, np.ndarray)) and population.size == 1
    expected = "a whole number from 1 to 2**53, or About(mean, sd=...), Between(low, high) or Unknown()"
    try:
        return whole_number(
            population.item() if single else population, "population", least=1, expected=expected
        )
    except ModelError as error:
        faults.add("population", str(error).removeprefix("population "))
        return 1


def _bound(
    model: Model, population: int | SizeLaw, observations: tuple[Observation, ...], faults: Faults
) -> tuple[Site, ...]:
    """Bind every observation, then check all there is to check; raise if anything was wrong."""
    sound = not faults
    sites: list[Site] = []
    for k, observation in enumerate(observations):
        sites += bind(observation, model, source=k, chain=isinstance(model, MarkovChain), faults=faults)
    most = population.most if isinstance(population, SizeLaw) else population
    check_noise(sites, most if sound else LARGEST_COUNT, faults)
    if not faults:  # contradictions among counts that are themselves wrong would only repeat that
        _check_sites(*on_full(model, sites), population, faults)
    faults.raise_any()
    return tuple(sites)


def on_full(model: Model, sites: Sequence[Site]) -> tuple[Model, tuple[Site, ...]]:
    """The model and the sites as engines see them: on the full chain of an open population, as they are elsewhere."""
    if not isinstance(model, OpenChain):
        return model, tuple(sites)
    return model.full, tuple(lifted(site, OpenView(model).matrix(site.scope)) for site in sites)


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


def _shape(model: Model) -> tuple[Literal["chain", "tree", "junction"], bool, int]:
    tree = model.rooted()
    if tree is None:
        return "junction", False, max(model.junction_tree.table_sizes)
    sizes, parents = tree.sizes, tree.parents
    largest = max(sizes[k] * (sizes[p] if p >= 0 else 1) for k, p in enumerate(parents))
    return ("chain" if tree.is_chain else "tree"), any(map(issparse, tree.transitions)), largest
