"""The Problem: one individual's model, how many individuals there are, and what was seen of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from headcount._html import card, heat_map
from headcount.checks import LARGEST_COUNT, brief, is_sequence, whole_number
from headcount.errors import Faults, ModelError, ProblemError, known_keywords, shown
from headcount.individual import MarkovChain, Model, Records, Tree, join_records, record_log_prob
from headcount.observe._base import Array, Observation, is_labelled
from headcount.observe._checks import check_noise, check_together, needed_population, pinned_population
from headcount.observe._start import PastReadings, Start
from headcount.observe._tracks import Tracks
from headcount.observe.binding import Part, Site, bind, by_family
from headcount.observe.closed import ClosedProblem
from headcount.observe.cloud import (
    Candidates,
    Cloud,
    Member,
    in_larger_graph,
    lifted,
    mixture,
    on_larger,
    tagged,
)
from headcount.population import (
    Dispersion,
    Exactly,
    Group,
    Numbers,
    Overdispersion,
    PoissonSize,
    SizeLaw,
    TotalSize,
    as_dispersion,
    as_law,
    parse_dispersion,
)
from headcount.tables import Domain, Scope


@dataclass(frozen=True, eq=False, init=False, repr=False)
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
        How individuals move together: ``Flocks(5)``, ``Overdispersion(rho=0.01)`` or ``Overdispersion(phi=3)``, or a text as the command
        line takes it; ``"estimate"`` lets `infer` and `fit` find it from the data. None: independently, or as the chain's
        ``concentration`` says.

    Raises
    ------
    ProblemError
        Labels, shapes or scopes the model does not have, counts or parameters that cannot be, counts that contradict each
        other or N. Its ``problems`` has one text per fault.
    """

    model: Model
    population: Any
    """N, or the law of it."""
    observations: tuple[Observation, ...]
    sites: tuple[Site, ...] = field(repr=False)
    """One per table and observation, in the observations' order; scopes in the model's order of variables."""
    dispersion: Dispersion | None = None
    groups: Mapping[Hashable, Group] | None = None
    """The kinds of individuals, if there are several; `model` is then their mixture, with the law of every single move."""
    tracks: tuple[Tracks, ...] = ()
    """Individuals that were followed."""
    start: Start | None = None
    """What an earlier run says of the first counts (see `after`)."""

    @known_keywords()
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
        dispersion = _read_dispersion(dispersion, faults)
        if groups is not None:
            _check_groups(groups, {"model": model, "population": population}, faults)
            model, population = _joint_model(groups), total_size(groups)
        model = _check_model(model, faults)
        if model.expected_number is not None and groups is None:
            model, population = _opened(model, population, faults)
        number = _size(population, faults)
        dispersion = _dispersion(model, number, dispersion, faults)
        vars(self).update(
            model=model,
            population=number,
            observations=kept,
            sites=(),
            dispersion=dispersion,
            groups=groups,
            tracks=tracks,
            start=None,
        )
        sound = not faults
        vars(self).update(sites=_bound(model, kept, faults))
        vars(self).pop("cloud", None)
        check_noise(self.sites, self.noises, as_law(number).most if sound else LARGEST_COUNT, faults)
        faults.raise_any()  # contradictions among counts that are themselves wrong would only repeat that
        _check_sites(self, faults)
        faults.raise_any()
        if tracks:
            _check_tracks(self)

    def __repr__(self) -> str:
        seen: Counter[str] = Counter()
        for site in self.sites:
            seen[type(site.noise).__name__] += len(site)
        parts = [
            f"{self.model!r}".strip("<>"),
            f"population {self.population!r}",
            *(f"{n} counts with {noise} noise" for noise, n in seen.items()),
            *(f"{len(tracks.table)} positions of tracked individuals" for tracks in self.tracks),
            *([f"groups {shown(self.groups)}"] if self.groups is not None else []),
            *([f"moving together: {self.dispersion}"] if self.dispersion is not None else []),
        ]
        return f"<Problem: {'; '.join(parts)}>"

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
    def records(self) -> Mapping[bool, Mapping[Hashable, Records]]:
        """Tracks by whether their individuals are in the counts, and by group (None: all are of one kind)."""
        found: dict[bool, dict[Hashable, list[Records]]] = {True: {}, False: {}}
        for tracks in self.tracks:
            for name, one in tracks.by_group(None if self.groups is None else list(self.groups)).items():
                found[tracks.counted].setdefault(name, []).append(one.read(self.kinds[name][0]))
        return {
            counted: {name: join_records(parts) for name, parts in by_group.items()}
            for counted, by_group in found.items()
        }

    @cached_property
    def cloud(self) -> Cloud:
        """The population as members on one larger graph, and what is seen of it there."""
        units = self.flock_units
        weights = {name: g.weight for name, g in (self.groups or {}).items()}
        states = dict(self.model.states)
        members: list[Member] = []
        offset = 0.0
        for name, (model, law) in self.kinds.items():
            larger = in_larger_graph(model, states)
            of_units = _in_units(model, law, units)
            member = Member(name, *larger, of_units, float(weights.get(name, 1) * units), model=model)
            if self.start is not None:
                member = self.start.first(member)
            own = self.records[True].get(name)
            if own is None:
                members.append(member)
            else:
                more, log_prob = tagged(member, own)
                members += more
                offset += log_prob
            apart = self.records[False].get(name)
            if apart is not None:
                offset += float(record_log_prob(member.tree, on_larger(apart, model)).sum())
        together = None if units != 1 or self.together.estimated else self.dispersion
        # Of a discrete model the tree's order may be another one.
        states = {v: states[v] for v in members[0].tree.variables}
        return Cloud(tuple(members), states, self.sites, together, offset)

    @cached_property
    def flock_units(self) -> int:
        """Individuals that move as one for life and are counted as units; 1 where they are taken as a scatter, or alone.

        Flocks are units where everything that is known of them is a multiple of their size.
        """
        size = round(self.together.flock_size)
        if size == 1 or size != self.together.flock_size:
            return 1
        exact = [np.asarray(site.noise.counts) for site in self.sites if site.noise.exact]
        whole = all(law.most % size == 0 for _, law in self.kinds.values() if law.is_known)
        whole &= all(bool((counts % size == 0).all()) for counts in exact)
        return size if whole and self.model.larger() is not None else 1

    @property
    def _flock_words(self) -> str:
        """How flocks are taken, in words; empty where there are none."""
        if self.flock_units > 1:
            return "whole flocks are counted"
        if self.together.flock_size == 1.0:
            return ""
        size = f"{self.together.flock_size:g}"
        return f"flocks of {size} do not divide N and all exact counts: they are taken as a scatter, phi = {size}"

    @property
    def plain(self) -> bool:
        """Whether `core` has the same individuals and counts: one known number of them on the states that are seen."""
        return self.size_known and not self._needs_cloud

    @cached_property
    def core(self) -> ClosedProblem:
        """What engines solve: the same data on the larger graph of the `cloud`."""
        if not self._needs_cloud:  # of networks of unknown size, too: all states are seen
            return self.on_cells
        cloud = self.cloud
        population = self.typical_population if cloud.numbers is not None else cloud.members[0].law.most
        first = () if self.start is None else self.start.sites(cloud, self._readings)
        return ClosedProblem(cloud.model, population, (*cloud.lifted, *first), cloud.together, cloud.numbers)

    @cached_property
    def on_cells(self) -> ClosedProblem:
        """The same counts of individuals who have no more states than are seen: several groups are one of unknown group."""
        numbers = None if self.size_known else Numbers.of([self.population])
        made = ClosedProblem(self.model, self.typical_population, self.sites, self.dispersion, numbers)
        vars(made)["noises"] = self.noises
        return made

    @property
    def kinds(self) -> dict[Hashable, tuple[Model, SizeLaw]]:
        """Model and law of the number of every kind of individuals."""
        if self.groups is None:
            return {None: (self.model, as_law(self.population))}
        return {name: (group.model, group.law) for name, group in self.groups.items()}

    @cached_property
    def _readings(self) -> PastReadings:
        """What the past says of the first counts, beside the law with which they begin."""
        assert self.start is not None
        units = self.flock_units
        laws = {
            name: None if model.expected_number is not None else _in_units(model, law, units)
            for name, (model, law) in self.kinds.items()
        }
        return self.start.joined(laws, self.on_cells.root_phi if units == 1 else 1.0)

    def after(self, start: Start) -> Problem:
        """The same problem, begun with what an earlier run says of the counts at its first time (``hc.infer(problem, start=post)``).

        Raises
        ------
        ProblemError
            Where the problem cannot go on from there.
        """
        if self.model.as_chain() is None:
            raise ProblemError(
                f"start: a {type(self.model).__name__} has no last time to go on from: give chains, or infer all tables at once"
            )
        start.check(self.kinds)
        if start.unit != self.flock_units:
            raise ProblemError(
                f"start: the past counts units of {start.unit:g} individuals, the problem of {self.flock_units}: give the same dispersion"
            )
        made = self._begun(start)
        made = made._twin(start=start)
        phi = made._readings.phi
        if phi > max(1.0, self.on_cells.root_phi if self.flock_units == 1 else 1.0):
            if self.opens or not (self.together.is_none or self.together.of_steps):
                raise ProblemError(
                    f"start: the last counts of the past scatter {phi:.3g} times as much as counts that a population with "
                    f"{'arrivals' if self.opens else 'this dispersion'} can begin with: infer the whole series at once"
                )
            together: Any = self.together if self.together.of_steps else Overdispersion(phi=1.0)
            first = phi if together.rho is None else (phi - 1.0) / max(self.typical_population - 1.0, 1.0)
            made = made._twin(dispersion=replace(together, initial=first))
        return made

    def unseen(self) -> Problem:
        """The same problem before anything was counted: what the past, or the model alone, says of it."""
        return self._twin(sites=(), observations=(), tracks=())

    @cached_property
    def _by_time(self) -> dict[Hashable, list[Site]]:
        """The sites by their time; of a flow, that of arrival."""
        made: dict[Hashable, list[Site]] = {}
        for site in self.sites:
            made.setdefault(site.scope[-1], []).append(site)
        return made

    def between(self, first: int, last: int) -> Problem:
        """What was seen from time number ``first`` to number ``last``, both included; of a first time that is not the chain's, nothing.

        The counts of time number ``first`` belong to the part before, from whose last counts this part begins (see `after`).
        """
        chain = self.model.as_chain()
        if chain is None or self.tracks:
            what = "Followed individuals" if self.tracks else type(self.model).__name__
            raise ProblemError(f"{what} cannot be cut into parts by time: infer everything at once")
        kept = set(chain.times[first + (first > 0) : last + 1])
        sites = tuple(
            site
            for time in chain.times[first : last + 1]
            if time in kept
            for site in self._by_time.get(time, ())
        )
        groups = None
        if self.groups is not None:
            groups = {n: replace(g, model=g.chain.between(first, last)) for n, g in self.groups.items()}
        blank = Problem(
            None if groups else chain.between(first, last),
            None if groups or chain.expected_number is not None else self.population,
            groups=groups,
            dispersion=None if self.dispersion is None else self.dispersion.among(kept),
        )
        return blank._twin(sites=sites, observations=self.observations)

    def _begun(self, start: Start) -> Problem:
        """The same problem with chains of cells that begin with the shares of the past's means; others begin so in their cloud."""

        def begun(name: Hashable, model: MarkovChain) -> MarkovChain:
            first = start.mean[start.rows(name)]
            if model.has_hidden_states:
                return model
            return model.with_moves(np.maximum(first, 0.0) / np.maximum(first, 0.0).sum(), _steps(model))

        if self.groups is not None:
            return self.with_groups({n: replace(g, model=begun(n, g.chain)) for n, g in self.groups.items()})
        chain = self.model.as_chain()
        return self if chain is None or chain.has_hidden_states else self.with_model(begun(None, chain))

    @property
    def _needs_cloud(self) -> bool:
        """Whether the larger graph differs from the model's own, or something is known beside one number and counts."""
        more = self.groups is not None or bool(self.tracks) or not self.size_known or self.flock_units != 1
        more |= self.start is not None
        return (more or self.model.has_hidden_states) and self.model.larger() is not None

    @property
    def opens(self) -> bool:
        """Whether individuals arrive or leave."""
        return any(model.opens for model, _ in self.kinds.values())

    def of_candidates(self, candidates: Candidates) -> ClosedProblem:
        """The same data on a known number of candidates."""
        if self.start is not None:
            raise ValueError(
                "this engine counts individuals one by one, and what an earlier run says of the first counts is a Gaussian: use TiltedEP "
                "(the default) or Laplace, or infer the whole series at once"
            )
        return candidates.closed

    def of(self, name: Hashable) -> Problem:
        """The individuals of one group, or a tagged one (or the flock that it stands for), of whom nothing was seen by themselves."""
        if self.groups is not None and name in self.groups:
            group = self.groups[name]
            own: dict[str, Any] = {"model": group.model, "population": total_size({name: group})}
        else:
            by_tag = (
                {tag: member for member in self.cloud.members for tag in member.tags} if self.tracks else {}
            )
            if name not in by_tag:
                names = [*(self.groups or ()), *by_tag]
                has = f"the groups are {shown(names)}" if names else "the problem has none"
                raise ValueError(f"there is no group {name!r}: {has}")
            member = by_tag[name]
            own = {"model": member.model, "population": int(member.weight), "dispersion": None}
        return self.unseen()._twin(groups=None, start=None, **own)

    @property
    def log_offset(self) -> float:
        """What is added to the log evidence of `core`: the tracks' probability, and what densities of counted units lose."""
        if not self._needs_cloud:
            return 0.0
        past = 0.0 if self.start is None else self._readings.log_prob
        return self.cloud.log_offset + self.cloud.log_unit_loss - past

    @property
    def together(self) -> Dispersion:
        """How individuals move together: `dispersion`, or alone where none was given."""
        return as_dispersion(self.dispersion)

    @property
    def size_known(self) -> bool:
        """Whether N is known: the population is a number."""
        return as_law(self.population).is_known

    @cached_property
    def size_bounds(self) -> tuple[int, int]:
        """Bounds of N by its law and the counts, all but 1e-10 of the law; N itself where it is known."""
        law = as_law(self.population)
        if law.is_known:
            return law.least, law.most
        pinned, need = pinned_population(*self._in_larger_graph), needed_population(self.sites, self.noises)
        if pinned is not None:
            return pinned, pinned
        low, high = law.window
        return max(low, need), min(max(high, 4 * need + 100), law.most)

    @cached_property
    def typical_population(self) -> int:
        """N, or one that is large enough to plan with."""
        low, high = self.size_bounds
        if as_law(self.population).vague:
            seen = [float(np.abs(site.noise.counts).sum()) for site in self.sites]
            high = min(high, max(low, 4 * round(max(seen, default=0.0)) + 100))
        return max(high, 1)

    @cached_property
    def _in_larger_graph(self) -> tuple[Sequence[Site], Model]:
        """The sites and the model of one kind of individuals with their hidden states; as they are elsewhere."""
        if not self.model.has_hidden_states or self.groups is not None:
            return self.sites, self.model
        cloud = self.cloud
        alone = replace(cloud, members=(replace(cloud.members[-1], law=Exactly(1), weight=1.0),))
        view = alone.view()
        return [lifted(site, view.matrix(site.scope))[0] for site in self.sites], alone.model

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
        given: list[Observation | Tracks] = [*self.observations, *self.tracks]
        same = model.variables == self.model.variables and dict(model.states) == dict(self.model.states)
        if model.expected_number is not None or not same:
            population = None if model.expected_number is not None else self.population
            made = Problem(model, population, given, dispersion=self.dispersion)
            return made if self.start is None else made._twin(start=self.start)
        faults = Faults(ProblemError)
        _check_scopes(model, self.sites, faults)
        dispersion = _dispersion(model, self.population, self.dispersion, faults)
        faults.raise_any()
        return self._sound(model=model, dispersion=dispersion, noises=self.noises)

    def with_noise(self, change: Callable[[Observation], Observation]) -> Problem:
        """The same counts with other parameters of their noises; ``change`` must keep the counts and their scopes."""
        sites = tuple(replace(site, noise=change(site.noise)) for site in self.sites)
        return self._twin(observations=tuple(map(change, self.observations)), sites=sites)

    def with_observation(self, observation: Observation) -> Problem:
        """The same problem with one observation more."""
        faults = Faults(ProblemError)
        sites = _bound(self.model, (observation,), faults)
        faults.raise_any()
        return self._twin(observations=(*self.observations, observation), sites=(*self.sites, *sites))

    def with_counts(self, counts: Sequence[ArrayLike]) -> Problem:
        """The same observations with other counts, one array per site: data simulated again."""
        sites = tuple(
            replace(site, noise=site.noise.replaced({"counts": np.asarray(y, dtype=float)}))
            for site, y in zip(self.sites, counts, strict=True)
        )
        return self._sound(sites=sites)

    def with_dispersion(self, dispersion: Dispersion | str | None) -> Problem:
        """The same counts of individuals that move together in another way."""
        faults = Faults(ProblemError)
        given = _read_dispersion(dispersion, faults)
        for text in _misfits(given, self.model, self.population):
            faults.add("dispersion", text)
        faults.raise_any()
        return self._twin(dispersion=given)

    def with_population(self, population: int | SizeLaw) -> Problem:
        """The same counts of another number of individuals.

        Raises
        ------
        ProblemError
            When that many cannot have been counted so.
        """
        if self.groups is not None:
            raise ProblemError(
                "the groups say how many individuals there are: make a Problem(groups=...) with other sizes"
            )
        faults = Faults(ProblemError)
        number = _size(population, faults)
        faults.raise_any()
        made = self._sound(population=number, noises=self.noises)
        if self.tracks:
            _check_tracks(made)
        return made

    def with_groups(self, groups: Mapping[Hashable, Group]) -> Problem:
        """The same counts of other groups."""
        given: list[Observation | Tracks] = [*self.observations, *self.tracks]
        made = Problem(groups=groups, observations=given, dispersion=self.dispersion)
        return made if self.start is None else made._twin(start=self.start)

    def _twin(self, **changed: Any) -> Problem:
        """A problem that is known to be right: this one with other fields, and cached properties that are known already."""
        twin = object.__new__(Problem)
        vars(twin).update({item.name: getattr(self, item.name) for item in fields(self)} | changed)
        return twin

    def _sound(self, **changed: Any) -> Problem:
        """A twin, if its counts contradict neither each other nor its model and N."""
        made, faults = self._twin(**changed), Faults(ProblemError)
        _check_sites(made, faults)
        faults.raise_any()
        return made

    def unfolded(self, closed: ClosedProblem, model: Model | None = None) -> Problem:
        """The same data as of individuals whose cells are the states of a larger graph, under its law or another."""
        return self._twin(
            model=closed.model if model is None else model,
            population=closed.population,
            observations=(),
            sites=closed.sites,
            dispersion=closed.dispersion,
            groups=None,
            tracks=(),
            start=None,
        )

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


def _steps(model: MarkovChain) -> Any:
    """The transitions as a chain takes them: one matrix where all steps are alike."""
    steps = model.transitions
    return steps[0] if steps and all(step is steps[0] for step in steps) else steps


GUESSED_SIZE = 1000
"""Individuals of a group without a known size in the mixture that names the cells; its shares are used for nothing else."""


def _check_groups(groups: Any, beside: Mapping[str, Any], faults: Faults) -> None:
    """Groups that agree with each other and with what was given beside them; all faults so far are raised."""
    kinds = list(groups.values()) if isinstance(groups, Mapping) else []
    if not kinds or not all(isinstance(g, Group) for g in kinds):
        faults.add("groups", f"must be {{name: Group(model, size)}}, got {brief(groups)}")
        faults.raise_any()
    for name, other in beside.items():
        if other is not None:
            text = "cannot stand beside groups, which have their own models and sizes: leave it out"
            faults.add(name, text)
    _check_group_sizes(groups, faults)
    models = {name: group.model for name, group in groups.items()}
    _check_trees(models, faults)
    if len({model.initial_known for model in models.values()}) > 1:
        text = "some groups have an initial distribution and some have not: give it to all or to none"
        faults.add("groups", text)
    faults.raise_any()


def _check_trees(models: Mapping[Hashable, Model], faults: Faults) -> None:
    """Groups follow one tree, each by its own laws."""
    trees: dict[Hashable, Any] = {name: model.rooted() for name, model in models.items()}
    first = next(iter(trees.values()))
    for name, tree in trees.items():
        if tree.variables != first.variables:
            what = "times" if tree.is_chain and first.is_chain else "variables"
            text = (
                f"{name!r} has the {what} {shown(tree.variables)}, the first group {shown(first.variables)}"
            )
            faults.add("groups", text)
        elif tree.parents != first.parents:
            faults.add(
                "groups",
                f"{name!r} has other edges than the first group: the tree must be the same, its laws may differ",
            )


def _check_group_sizes(groups: Mapping[Hashable, Group], faults: Faults) -> None:
    """Sizes that are no numbers, and groups in which nobody is."""
    total: int | None = 0
    for name, group in groups.items():
        if group.model.expected_number is not None or isinstance(group.size, SizeLaw):
            total = None
            continue
        try:
            number = whole_number(group.size, f"the size of the group {name!r}")
            total = None if total is None else total + number
        except ModelError as error:
            faults.add("groups", str(error))
            total = None
    if total == 0:
        faults.add("groups", "nobody is in any of them: give one a size of 1 or more")


def _joint_model(groups: Mapping[Hashable, Group]) -> MarkovChain | Tree:
    """The chain or tree of cells with the law of every single move of an individual of unknown group."""
    first = next(iter(groups.values())).model
    cells = {
        t: tuple(dict.fromkeys(c for group in groups.values() for c in group.model.states[t]))
        for t in first.variables
    }
    members = []
    for name, group in groups.items():
        number = group.law.most if group.law.is_known else GUESSED_SIZE
        larger = in_larger_graph(group.model, cells)
        members.append(Member(name, *larger, Exactly(number), float(group.weight), model=group.model))
    made = mixture(Cloud(tuple(members), cells, ()))
    made.initial_known = first.initial_known
    return made


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
    counted = problem.records[True]
    for name, records in counted.items():
        weight = 1 if problem.groups is None else problem.groups[name].weight
        most = problem.kinds[name][1].most * weight
        if len(records) * problem.flock_units > most:
            where = "a population" if name is None else f"the group {name!r}"
            faults.add(
                "observations", f"{len(records)} tracked individuals are counted in {where} of N = {most}"
            )
    for by_group in problem.records.values():
        for name, records in by_group.items():
            model = problem.kinds[name][0]
            larger = model.larger()
            assert larger is not None
            lost = np.isneginf(record_log_prob(larger.tree, on_larger(records, model)))
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


def _check_sites(problem: Problem, faults: Faults) -> None:
    """Note counts that contradict the model, each other or N; where N has a law, every N that it and exact tables allow."""
    population = problem.population
    sites, model = problem._in_larger_graph
    noises = problem.noises if sites is problem.sites else by_family(sites)
    if problem.size_known:
        check_together(sites, noises, model, population, faults)
        return
    pinned = pinned_population(sites, model)
    most = population.most if pinned is None else pinned
    check_together(sites, noises, model, most, faults, known=pinned is not None)
    if pinned is not None and not faults and not population.least <= pinned <= population.most:
        faults.add(
            "population",
            f"{population!r} excludes N = {pinned}, the total of counts seen exactly: widen it or correct the counts",
        )


def _opened(model: Model, population: Any, faults: Faults) -> tuple[Model, SizeLaw]:
    """A model that says how many individuals are expected, and the law of all that are ever there."""
    if isinstance(population, SizeLaw):
        faults.add(
            "population",
            f"is {brief(population)}: numbers of an OpenChain are Poisson around what it expects; give the expected number, or "
            "leave the population out where the chain's initial holds numbers",
        )
    elif population is not None:
        number = _whole(population, faults)
        if abs(float(model.first.sum()) - 1.0) > PROBABILITIES:  # type: ignore[attr-defined]
            faults.add(
                "population",
                "an OpenChain says itself how many individuals are expected: leave the population out, or give an initial that sums to 1",
            )
        model = model.scaled(number)  # type: ignore[attr-defined]
    assert model.expected_number is not None
    return model, PoissonSize(model.expected_number)


def _in_units(model: Model, law: SizeLaw, units: int) -> SizeLaw:
    """The law of the number of units of one kind; units arrive one by one."""
    if units == 1:
        return law
    return law.in_units(units) if model.expected_number is None else PoissonSize(law.mean / units)


def total_size(groups: Mapping[Hashable, Group]) -> int | SizeLaw:
    """How many individuals all groups have."""
    vary = [group for group in groups.values() if not group.law.is_known]
    known = sum(int(g.weight) * g.law.most for g in groups.values() if g.law.is_known)
    if len(vary) == 1 and vary[0].weight == 1 and known == 0:
        return vary[0].law
    return TotalSize(tuple(g.law for g in vary), known, tuple(int(g.weight) for g in vary)) if vary else known


PROBABILITIES = 1e-6
"""Distance of a sum from 1 at which numbers are taken as probabilities."""


def _dispersion(model: Model, population: int | SizeLaw, given: Any, faults: Faults) -> Any:
    """How individuals move together: as given, or as the chain's concentration says."""
    kappa = model.concentration
    if kappa is not None:
        implied = Overdispersion(rho=1.0 / (1.0 + np.asarray(kappa)))
        if given is not None and given != implied:
            faults.add(
                "dispersion",
                f"is {brief(given)}, and the chain's concentration {brief(kappa)} says how moves scatter, too: give one of them",
            )
        return implied
    for text in _misfits(given, model, population):
        faults.add("dispersion", text)
    return given


def _read_dispersion(given: Any, faults: Faults) -> Any:
    """The dispersion, read if it is a text."""
    try:
        return parse_dispersion(given) if isinstance(given, str) else given
    except ModelError as error:
        faults.add("dispersion", str(error))
        return None


def _misfits(given: Any, model: Model, population: int | SizeLaw) -> list[str]:
    """What does not fit of a dispersion."""
    if given is None or isinstance(given, Dispersion):
        return as_dispersion(given).misfits(model, as_law(population).most)
    return [
        f'must be None, Flocks(5), Overdispersion(rho=0.01), Overdispersion(phi=3) or "estimate", got {brief(given)}'
    ]


def _size(population: Any, faults: Faults) -> int | SizeLaw:
    """N, or its law where that leaves several numbers."""
    if isinstance(population, SizeLaw):
        law = as_law(population)
        return law.most if law.is_known else population
    return _whole(population, faults)


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


def _bound(model: Model, observations: tuple[Observation, ...], faults: Faults) -> tuple[Site, ...]:
    """The sites of all observations; what does not fit the model is among the faults."""
    sites: list[Site] = []
    for k, observation in enumerate(observations):
        sites += bind(observation, model, source=k, chain=model.as_chain() is not None, faults=faults)
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


def as_problem(given: Any, what: str = "problem") -> Problem:
    """The problem that was given; for what people give instead, the error says how a problem is made of it."""
    if isinstance(given, Problem):
        return given
    made = "hc.Problem(model, population, hc.Poisson(counts))"
    hint = f"make one, {made}"
    if isinstance(given, Model):
        hint = f"a model has no counts: {made}"
    elif isinstance(given, (str, os.PathLike)):
        hint = f"read it first: hc.io.read_problem({str(given)!r}, population=…, transitions=…).problem"
    elif isinstance(getattr(given, "problem", None), Problem):
        hint = f"give its problem: {type(given).__name__.lower()}.problem"
    elif isinstance(given, Observation) or is_labelled(given) or is_sequence(given):
        hint = f"counts need a model and a population: {made}"
    raise ProblemError(f"{what} is a {type(given).__name__}, not a Problem: {hint}")
