r"""The maximum of MAP's evidence of a log-linear model, with E-steps no more accurate than the climb needs.

MAP's evidence of weights w is the minimum over tilts g of the dual D(g; w) (``engines._map``), plus the log prior. Thousands of
weights take some fifty steps, and an E-step to MAP's own tolerance takes as many passes over the cliques as that again. So here

* an E-step ends where it is `E_STEP_SHARE` of the climb's distance from its maximum away from its own (both in nats: the climb's
  gradient is then off by that share);
* it begins at the tilts of the last one;
* weights of configurations are reckoned from the most frequent state of every variable (`_recoded`), because a rare one would tie
  all weights of a table together; steps are scaled by ridge + the information of the data about each weight alone;
* priors that are learned are learned on the way (`Component.shrunk`), and the memory of L-BFGS is changed with them.

What is found is only where the fit's own E-steps begin.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from headcount._types import Array, Index, Scope
from headcount.engines._map import Dual, DualObjective, dual_of
from headcount.individual.possible import PassPlan, Possible
from headcount.learn._family import Family
from headcount.learn._log_linear import (
    LEAST_KNOWN,
    LogLinearFeatures,
    Potentials,
    noise_variances,
    precision_of,
)
from headcount.observe import Problem, Site
from headcount.solve.lbfgs import Memory, Point, Search, advance
from headcount.tables import Domain

E_STEP_SHARE = 0.25
"""Of the climb's distance from the maximum. With 0.1 a climb of 445 weights took 650 passes, with 0.3 450; with 0.6 it went astray."""
STEPS_PER_ROUND = 5
"""Steps of the climb between two rounds of learning priors."""
PRIOR_SHARE = 0.05
"""Standard errors per weight (root mean square) that a round of learning priors may still move estimates by when they count as learned."""
PRIORS_SETTLE_WITHIN = 4.0
"""Standard errors from the maximum within which priors can count as learned: before, the effects themselves still change."""
MOST_STEPS = 400
"""Of a climb. Tables of three variables take 20 to 40; 250 and more where two variables have no effect (measured in 48 cases)."""
MOST_STUCK = 2
"""Times that E-steps are made more accurate because no step goes up."""
MOST_PASSES = 100
"""Of one E-step."""
FIRST_ACCURACY = 5.0
"""Of the first E-step, in standard errors: the climb begins tens of them from its maximum."""
LEAST_NEED = 1e-6
"""Standard errors from its minimum that an E-step is never asked to come nearer: rounding is then in the way."""
VALUE_SHARE = 0.1
"""Of the square of an E-step's accuracy, in nats, which its value is taken to be off; it can be off by half of it."""
LEAST_RATIO = 0.1
"""Of a count to that under independence, at the start."""
LEAST_SHARE = 1e-5
"""Of all individuals, which a state that noise says nobody is in is credited with at the start."""


@dataclass(frozen=True)
class JointOptimum:
    """Where the joint climb ended."""

    families: tuple[Family, ...]
    """With priors learned."""
    x: Array
    starts: tuple[Mapping[str, Array], ...]
    """Tilts, from which MAP's E-steps can begin."""
    strengths: dict[str, float]
    """Of the priors that were learned."""
    distance: float
    """From the maximum, in standard errors, as L-BFGS sees it."""


def climbed_together(
    families: Sequence[Family], problems: Sequence[Problem], x: Array, tolerance: float
) -> JointOptimum | None:
    """Near the maximum of MAP's evidence; None where families or problems are of another kind than this knows."""
    sides = _sides(families, problems)
    if sides is None:
        return None
    coding = None if np.any(x) else _coding(sides)
    climb = _Climb(sides, x) if coding is None else _Climb(coding.sides(sides), coding.start)
    climb.run(tolerance)
    found, learned = climb.search.point, climb.sides[0].weights.prior_numbers()
    return JointOptimum(
        tuple(f.with_priors([learned]) for f in families),
        found.x if coding is None else coding.back(found.x),
        tuple({"g": answer.g} for answer in climb.answers),
        climb.strengths,
        _distance(climb.search),
    )


def _sides(families: Sequence[Family], problems: Sequence[Problem]) -> list[_Side] | None:
    """Every problem with its weights; None where a family has other components, or a problem is not plain."""
    known = [f.components[0] for f in families if len(f.components) == 1]
    sides = [_Side(w, p) for w, p in zip(known, problems, strict=False) if isinstance(w, Potentials)]
    return sides if len(sides) == len(families) and all(side.plain for side in sides) else None


@dataclass(frozen=True)
class _Answer:
    """What an E-step says."""

    value: float
    """MAP's evidence."""
    g: Array
    n: Array
    """Expected counts at all observed entries."""
    counts: dict[Scope, Array]
    """Expected counts of the features' scopes."""
    change: dict[Scope, Array]
    """Their difference from those of the weights alone."""


@dataclass(frozen=True, eq=False)
class _Side:
    """One problem with the family of its weights."""

    weights: Potentials
    problem: Problem

    @property
    def plain(self) -> bool:
        """Whether there is nothing but counts of independent individuals inside the cliques, with noise that is log-concave."""
        problem, tree = self.problem, self.weights.tree
        return (
            problem.size_known
            and not (problem.tracks or problem.groups or problem.core.disperses)
            and len(problem.sites) > 0
            and all(tree.covering(s.scope) is not None for s in problem.sites)
            and not self.dual.surrogate
        )

    @cached_property
    def dual(self) -> Dual:
        return dual_of(self.problem.noises, np.ones(sum(len(s) for s in self.problem.sites)))

    @cached_property
    def possible(self) -> Possible:
        return Possible.whole(self.weights.tree)

    @cached_property
    def features(self) -> PassPlan:
        """For the tables of the features."""
        return PassPlan(self.possible, tuple(self.weights.features.rows))

    @cached_property
    def sites(self) -> PassPlan:
        """For the tables of the sites."""
        return PassPlan(self.possible, tuple(s.scope for s in self.problem.sites))

    @cached_property
    def places(self) -> list[tuple[Site, slice, tuple[int, ...], bool]]:
        """The sites: where their entries are among all observed ones, the shape of the table, and whether they are all of it in order."""
        made, start = [], 0
        for site in self.problem.sites:
            shape = self.weights.domain(site.scope).shape
            made.append((site, slice(start, start + len(site)), shape, site.whole))
            start += len(site)
        return made

    @cached_property
    def offset(self) -> list[Array]:
        tables = self.weights.offset
        return PassPlan(self.possible, tuple(tables)).spread(list(tables.values()))

    def answer(self, w: Array, before: _Answer | None, need: float) -> _Answer:
        """The E-step at weights w, from the last one's tilts, to within ``need`` of its minimum."""
        tables = self.weights.tables(w)
        g = None if before is None else before.g
        here = _Dual(self, tables)
        objective = DualObjective(here, self.dual)  # type: ignore[arg-type]
        start = np.concatenate([np.zeros(0), *(group.start(g) for group in self.dual.groups)])
        search = Search.at(objective(start))
        for _ in range(MOST_PASSES):
            if search.failed or _distance(search) <= need:
                break
            search = advance(search, objective)
        point = search.point
        g, count = objective.g(point), float(self.problem.population)
        if not np.array_equal(here.last[0], g):
            here.evaluate(g)
        high = dict(zip(tables, self.features.margins(here.last[1]), strict=True))
        low = dict(zip(tables, here.below, strict=True))
        return _Answer(
            point.value,
            g,
            objective.expected(point),
            {s: count * mu for s, mu in high.items()},
            {s: count * (mu - low[s]) for s, mu in high.items()},
        )


class _Dual:
    """The tilts of one problem under given weights, as `engines._map.Objective` asks for them."""

    tree = grid = None

    def __init__(self, side: _Side, tables: Mapping[Scope, Array]) -> None:
        self.side, self.problem = side, side.problem.core
        more = side.features.spread(list(tables.values()))
        self._own = [a + b for a, b in zip(side.offset, more, strict=True)]
        found = side.features.beliefs(self._own)
        self._before = found.log_partition
        self.below = side.features.margins(found.cliques)
        """Margins of the features' scopes without tilts."""
        self.last: tuple[Array, Sequence[Array]] = (np.zeros(0), [])
        """The tilts last asked for, and the cliques' marginals under them."""

    def evaluate(self, g: Array) -> tuple[float, Array]:
        """See `engines._tilting.Tilts`."""
        plan, places = self.side.sites, self.side.places
        tilts = [(g[at] if whole else s.spread(g[at])).reshape(shape) for s, at, shape, whole in places]
        more = plan.spread(tilts)
        found = plan.beliefs([a + b for a, b in zip(self._own, more, strict=True)])
        self.last = (g, found.cliques)
        margins = zip(plan.margins(found.cliques), places, strict=True)
        seen = [m.ravel() if whole else s.margin(m.ravel()) for m, (s, _, _, whole) in margins]
        people = float(self.problem.population)
        return people * (found.log_partition - self._before), people * np.concatenate(seen)


def _distance(search: Search) -> float:
    """√(g·H g): from the minimum, in standard errors."""
    return math.sqrt(max(-float(search.way @ search.point.gradient), 0.0))


@dataclass
class _Climb:
    """A climb of all problems' evidence together."""

    sides: list[_Side]
    start: Array
    strengths: dict[str, float] = field(default_factory=dict)
    _need: float = FIRST_ACCURACY

    def __post_init__(self) -> None:
        self.answers: list[Any] = [None] * len(self.sides)
        self.curvature = np.ones(len(self.start))
        self.search = Search.at(self._evaluated(self.start))
        self._accepted()
        self.curvature = self._curvature()
        self.search = Search.at(replace(self.search.point, curvature=self.curvature))

    @property
    def weights(self) -> Potentials:
        """Whose prior counts."""
        return self.sides[0].weights

    def _accepted(self) -> None:
        self.answers = list(self.search.point.extra)  # type: ignore[call-overload]

    def _evaluated(self, w: Array) -> Point:
        found = [s.answer(w, a, self._need) for s, a in zip(self.sides, self.answers, strict=True)]
        value, gradient = self.weights.prior_at(w)
        value += sum(a.value for a in found)
        gradient = gradient + sum(s.weights.totals(a.change) for s, a in zip(self.sides, found, strict=True))
        # An E-step that ends this far from its minimum is half its square too high.
        return Point(w, -value, -gradient, self.curvature, found, rounding=VALUE_SHARE * self._need**2)

    def _known(self) -> Array:
        """The information of the data about each weight alone."""
        total = np.zeros(len(self.start))
        for side, answer in zip(self.sides, self.answers, strict=True):
            noises = noise_variances(side.problem, [answer.n[at] for _, at, _, _ in side.places])
            total += side.weights.seen(answer.counts, noises)
        return total

    def _curvature(self) -> Array:
        return self._known() + self.weights.prior_scale() + LEAST_KNOWN

    def run(self, tolerance: float) -> None:
        """Climb until what is left, of the climb and of its priors, is less than ``tolerance``; or as far as can be."""
        distance, share, stuck, settled = np.inf, E_STEP_SHARE, 0, False
        for step in range(1, MOST_STEPS + 1):
            old = self.search.point
            self.search = advance(self.search, self._evaluated)
            self._accepted()
            if self.search.point is old:
                # Perhaps the E-steps are not accurate enough to tell up from down.
                stuck, share = stuck + 1, 0.1 * share
                if stuck > MOST_STUCK:
                    break
                self._need = max(share * distance, LEAST_NEED)
                self.search = Search.at(self._evaluated(old.x))
                self._accepted()
                continue
            distance = _distance(self.search)
            if not settled and (step % STEPS_PER_ROUND == 0 or distance <= tolerance):
                settled = (
                    self._learn() <= PRIOR_SHARE * np.sqrt(len(self.start))
                    and distance <= PRIORS_SETTLE_WITHIN
                )
                distance = _distance(self.search)
            self._need = max(share * distance, LEAST_NEED)
            if distance <= tolerance:
                break

    def _learn(self) -> float:
        """Learn priors from the counts expected here; value, gradient and memory are changed as their change asks for.

        By how many standard errors the change moves the maximum, in all.
        """
        point, old, known = self.search.point, self.weights, self._known()
        found = old.shrunk(point.x, np.concatenate([np.zeros(len(known) + 1), known]))
        if found is None:
            self.curvature = self._curvature()
            self.search = Search(replace(point, curvature=self.curvature), self.search.memory)
            return 0.0
        new, self.strengths = found
        self.sides = [
            replace(side, weights=replace(side.weights, **new.prior_numbers())) for side in self.sides
        ]
        self.curvature = known + new.prior_scale() + LEAST_KNOWN
        before, now = old.prior_numbers(), new.prior_numbers()
        more = replace(old, **{name: now[name] - before[name] for name in now})
        pull = more.prior_gradient(point.x)
        changed = replace(
            point,
            value=point.value - new.log_prior(point.x) + old.log_prior(point.x),
            gradient=point.gradient - pull,
            curvature=self.curvature,
        )
        self.search = Search(changed, _bent(self.search.memory, lambda steps: -more.prior_gradient(steps)))
        return float(np.sqrt(np.sum(pull**2 / self.curvature)))


def _bent(memory: Memory, more: Callable[[Array], Array]) -> Memory:
    """The memory with a quadratic form added to the function: ``more(steps)`` is what it adds to the changes of gradient."""
    steps, changes, _ = memory.pairs
    made = Memory.empty(memory.steps.shape[1])
    count = len(steps)
    if count == 0:
        return made
    made.steps[:count], made.changes[:count] = steps, changes + more(steps)
    made.products[:count, :count] = np.tril(made.changes[:count] @ steps.T)
    return replace(made, stop=count)


@dataclass(frozen=True, eq=False)
class _Coding:
    """Weights of configurations reckoned from the most frequent states, and back."""

    weights: Potentials
    """As the family has them, reckoned from first states."""
    inner: Potentials
    start: Array
    """Independent variables with the shares that were observed, among the inner weights."""

    def sides(self, sides: Sequence[_Side]) -> list[_Side]:
        return [replace(s, weights=self.inner) for s in sides]

    def back(self, w: Array) -> Array:
        """The family's weights of the same law."""
        first = dict.fromkeys(self.weights.states, 0)
        return _weights(self.weights, _reckoned_from(first, self.inner.tables(w)))


def _coding(sides: Sequence[_Side]) -> _Coding | None:
    """The coding from the most frequent states; None where the weights are others, or their prior is one on each of them."""
    weights = sides[0].weights
    if not _recodable(sides):
        return None
    shares = {v: _shares(sides, v) for v in weights.states}
    reference = {v: int(np.argmax(share)) for v, share in shares.items()}
    cells = {d.scope: _entries_without(d, reference) for d in weights.features.domains}
    inner = replace(weights, features=_centred(weights.features, cells, shares))
    start: dict[Scope, Array] = {(v,): np.log(share) for v, share in shares.items()}
    start |= {s: _interactions(sides, s, shares) for s in cells if len(s) > 1}
    return _Coding(weights, inner, _inner_weights(inner, _reckoned_from(reference, start)))


def _centred(
    features: LogLinearFeatures, cells: Mapping[Scope, Index], shares: Mapping[Any, Array]
) -> LogLinearFeatures:
    """Π_v (1[x_v = i_v] − share of i_v) for every configuration i of ``cells``: what it does to smaller scopes is taken off them.

    So the weight of an interaction hardly changes the counts of its variables' states; without, weights of a variable's
    states and of all of their interactions would be tied together.
    """
    parts: dict[Scope, list[tuple[Index, Index, Array]]] = {s: [] for s in features.rows}
    home = {}
    for domain in features.domains:
        k, places = features.rows[domain.scope][0], np.unravel_index(cells[domain.scope], domain.shape)
        at = dict(zip(domain.scope, places, strict=True))
        for size in range(1, len(domain.scope) + 1):
            for part in itertools.combinations(domain.scope, size):
                shape = domain.part(part).shape
                entries = np.asarray(np.ravel_multi_index([at[v] for v in part], shape), dtype=np.intp)
                away = [-shares[v][at[v]] / shares[v].sum() for v in domain.scope if v not in part]
                parts[part].append((k, entries, np.prod([np.ones(len(k)), *away], axis=0)))
        home[domain.scope] = (k, _rows(*parts[domain.scope][-1][1:], domain.size))
    rows = {}
    for domain in features.domains:
        k, entries, values = (np.concatenate(found) for found in zip(*parts[domain.scope], strict=True))
        rows[domain.scope] = (k, _rows(entries, values, domain.size))
    return LogLinearFeatures(features.domains, rows, home)


def _rows(entries: Index, values: Array, size: int) -> sparse.csr_array:
    """One row per entry, with that entry alone."""
    return sparse.csr_array((values, entries, np.arange(len(entries) + 1)), shape=(len(entries), size))


def _inner_weights(inner: Potentials, tables: Mapping[Scope, Array]) -> Array:
    """The weights whose tables are these up to a constant, largest scopes first."""
    made = np.zeros(len(inner.names))
    for scope in sorted(tables, key=len, reverse=True):
        k, f = inner.features.own[scope]
        made[k] = (tables[scope] - inner.tables(made)[scope]).ravel()[f.indices]
    return made


def _recodable(sides: Sequence[_Side]) -> bool:
    """Whether all sides have the same weights without a prior on each, one per configuration without first states."""
    weights = sides[0].weights
    whole = all(
        len(k) == np.prod([n - 1 for n in weights.domain(s).shape])
        for s, (k, _) in weights.features.rows.items()
    )
    alike = all(side.weights.alike(weights) for side in sides)
    return weights.corners and whole and alike and not np.any(weights.ridge)


def _entries_without(domain: Domain, reference: Mapping[Any, int]) -> Index:
    """The entries of a table in which no variable is in its reference state."""
    kept = np.ix_(*(np.arange(n) != reference[v] for v, n in zip(domain.scope, domain.shape, strict=True)))
    return domain.table(np.arange(domain.size))[kept].ravel()


def _shares(sides: Sequence[_Side], variable: Any) -> Array:
    """How frequent a variable's states are in the tables observed as a whole; equally, where there is none."""
    total = np.zeros(len(sides[0].weights.states[variable]))
    for side in sides:
        for site in side.problem.sites:
            if variable in site.scope and site.whole:
                domain = side.weights.domain(site.scope)
                total += domain.project(domain.table(np.asarray(site.noise.counts, dtype=float)), (variable,))
    return np.maximum(total, max(LEAST_SHARE * float(total.sum()), 1e-300))


def _interactions(sides: Sequence[_Side], scope: Scope, shares: Mapping[Any, Array]) -> Array:
    """log n/m of a table observed as a whole, zero of others: m under independence, n = m + (y − m) m/(m + V), V the noise's variance."""
    for side in sides:
        for site in side.problem.sites:
            if site.scope == scope and site.whole:
                domain = side.weights.domain(scope)
                m = np.full(domain.shape, float(side.problem.population))
                for v in scope:
                    m = m * domain.expand(shares[v] / shares[v].sum(), (v,))
                h = np.minimum(precision_of(site.noise, m.ravel()), 1e100).reshape(m.shape)
                y = domain.table(np.asarray(site.noise.counts, dtype=float))
                found = 1 + (y - m) * h / (1 + m * h)
                return np.log(np.maximum(found, LEAST_RATIO))
    return np.zeros(sides[0].weights.domain(scope).shape)


def _weights(weights: Potentials, tables: Mapping[Scope, Array]) -> Array:
    """The weights of which these are the tables: each is one entry."""
    made = np.zeros(len(weights.names))
    for scope, (k, f) in weights.features.rows.items():
        made[k] = tables[scope].ravel()[f.indices]
    return made


def _reckoned_from(reference: Mapping[Any, int], tables: Mapping[Scope, Array]) -> dict[Scope, Array]:
    """Tables of the same law up to a constant that are zero wherever a variable is in its reference state."""
    made = {scope: np.zeros_like(table) for scope, table in tables.items()}
    for scope, table in tables.items():
        for size in range(1, len(scope) + 1):
            for part in itertools.combinations(scope, size):
                at = tuple(slice(None) if v in part else reference[v] for v in scope)
                effect = table[at]
                for axis, v in enumerate(part):
                    effect = effect - np.take(effect, [reference[v]], axis=axis)
                made[part] += effect
    return made
