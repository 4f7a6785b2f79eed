r"""Beliefs made from other beliefs: flocks from units, groups from their stacked chain, over learned parameters, mixtures; one group alone.

With x ~ N(x̂, V) the parameters, V = S Sᵀ, and every column s of S one standard deviation of x, the law of total variance is

.. math::

    \operatorname{cov}(n | y) = \operatorname{cov}(n | y, \hat x) + \sum_s r_s r_s^\top,
    \qquad r_s = \tfrac12\left(E[n | y, \hat x + s] - E[n | y, \hat x - s]\right) .

The means are those at the estimate: they are ≥ 0, agree with each other and sum to N.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from headcount._types import Array, Scope
from headcount.errors import ModelError, shown
from headcount.individual import OpenChain
from headcount.observe._groups import SIZES, OpenView, View
from headcount.posterior._beliefs import Beliefs, NobodyBeliefs, Promises, Sizes
from headcount.posterior._draws import whole_draws
from headcount.tables import dense

if TYPE_CHECKING:
    from headcount.individual import Model
    from headcount.observe import Problem

LARGEST_COVARIANCE = 3000
"""Entries of a stacked table up to which the variance of a sum is read off its whole covariance (72 MB); above, off draws."""
Going = Literal["arrivals", "departures", "survivors"]
"""Individuals of an open population: those who come, leave, stay."""
CROSS_DRAWS = 400
"""Draws from which covariances between groups are found in larger tables: the sd of a sum is then known to about 3 %."""


class DerivedBeliefs(Beliefs):
    """Beliefs made from one other; what is not said anew is as there."""

    base: Beliefs

    @property
    def has_spread(self) -> bool:  # type: ignore[override]
        """As the base."""
        return self.base.has_spread

    @property
    def has_draws(self) -> bool:
        """As the base."""
        return self.base.has_draws

    @property
    def promises(self) -> Promises:
        """As the base: sums and multiples of means that are ≥ 0 and agree are so too."""
        return self.base.promises

    def mc_error(self, scope: Scope) -> Array | None:
        """As the base."""
        return self.base.mc_error(scope)


@dataclass(frozen=True)
class UnitBeliefs(DerivedBeliefs):
    """Beliefs about n = c m from those about m."""

    base: Beliefs
    size: float
    log_evidence: float | None
    diagnostics: Mapping[str, Any]
    sizes: Sizes | None = None

    @classmethod
    def of(cls, base: Beliefs, size: float, offset: float) -> UnitBeliefs:
        """From beliefs about units, whose evidence is that of individuals less ``offset``."""
        value = None if base.log_evidence is None else base.log_evidence + offset
        people = None if base.sizes is None else Sizes(size * base.sizes.values, base.sizes.probabilities)
        return cls(base, size, value, base.diagnostics, people)

    def mean(self, scope: Scope) -> Array:
        """The flocks' size times E m."""
        return self.size * self.base.mean(scope)

    def variance(self, scope: Scope) -> Array | None:
        """c² var m."""
        known = self.base.variance(scope)
        return None if known is None else self.size**2 * known

    def covariance(self, a: Scope, b: Scope) -> Array:
        """c² cov m."""
        return self.size**2 * np.asarray(self.base.covariance(a, b))

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool) -> dict[Scope, Array]:
        """The flocks' size times draws of units."""
        drawn = self.base.sample(size, rng=rng, integer=integer)
        return {scope: self.size * table for scope, table in drawn.items()}

    def quantile(self, scope: Scope, level: float) -> Array | None:
        """The flocks' size times that of units."""
        found = self.base.quantile(scope, level)
        return None if found is None else self.size * found

    def mc_error(self, scope: Scope) -> Array | None:
        """The flocks' size times that of units."""
        found = self.base.mc_error(scope)
        return None if found is None else self.size * found


@dataclass(frozen=True)
class GroupBeliefs(DerivedBeliefs):
    """Beliefs on a larger chain seen through a linear map: sums over groups or one of them, the cells of an open population."""

    base: Beliefs
    """Of the stacked chain; so is the evidence, to which the posterior adds `Problem.log_offset`."""
    view: View | OpenView
    log_evidence: float | None
    diagnostics: Mapping[str, Any]
    sizes: Sizes | None = None
    group_sizes: Mapping[int, Sizes] = field(default_factory=dict)

    def mean(self, scope: Scope) -> Array:
        """M E[n]."""
        return self._seen(scope, dense(self.base.mean(scope)).ravel())

    def variance(self, scope: Scope) -> Array | None:
        """diag(M cov Mᵀ)."""
        alone = self.base.variance(scope)
        if alone is None:
            return None
        each = np.asarray(dense(alone), dtype=float).ravel()
        return self._seen(scope, each) + self._cross(scope, each)

    def _cross(self, scope: Scope, each: Array) -> Array | float:
        """What covariances between groups add to the variances of the sums."""
        matrix = self.view.matrix(scope)
        several = (matrix @ (each > 0)) > 1
        if not several.any():
            return 0.0
        covariance = self._small_covariance(scope) if matrix.shape[1] <= LARGEST_COVARIANCE else None
        if covariance is not None:
            extra = np.diagonal(matrix @ covariance @ matrix.T) - matrix @ each
        else:
            draws = self._draws[scope].reshape(CROSS_DRAWS, -1)
            extra = (matrix @ draws.T).var(axis=1) - matrix @ draws.var(axis=0)
        return np.where(several, extra, 0.0).reshape(self.view.shape(scope))

    def _small_covariance(self, scope: Scope) -> Array | None:
        """The base's covariance; None where its structure gives none of flows."""
        try:
            return np.asarray(self.base.covariance(scope, scope))
        except ModelError:
            return None

    @cached_property
    def _draws(self) -> Mapping[Scope, Array]:
        return self.base.sample(CROSS_DRAWS, rng=np.random.default_rng(0), integer=False)

    def covariance(self, a: Scope, b: Scope) -> Array:
        """M_a cov M_bᵀ."""
        first, second = self.view.matrix(a), self.view.matrix(b)
        return np.asarray(first @ np.asarray(self.base.covariance(a, b)) @ second.T)

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool) -> dict[Scope, Array]:
        """Sums of draws."""
        drawn = self.base.sample(size, rng=rng, integer=integer)
        made = {}
        for scope, table in drawn.items():
            if SIZES in scope:  # a node that is not seen
                if len(drawn) > 1:
                    continue
                scope, table = scope[1:], table.sum(axis=1)
            flat = (self.view.matrix(scope) @ table.reshape(size, -1).T).T
            made[scope] = flat.reshape(size, *self.view.shape(scope))
        return made

    def quantile(self, scope: Scope, level: float) -> Array | None:
        """That of the base where every number seen is one entry; None for sums."""
        matrix = self.view.matrix(scope)
        if np.diff(matrix.indptr).max(initial=0) > 1:
            return None
        found = self.base.quantile(scope, level)
        return None if found is None else self._seen(scope, np.asarray(found).ravel())

    def mc_error(self, scope: Scope) -> Array | None:
        """Monte-Carlo standard error of every sd, where they come from draws."""
        matrix = self.view.matrix(scope)
        if matrix.shape[1] <= LARGEST_COVARIANCE or np.diff(matrix.indptr).max(initial=0) <= 1:
            return None
        variance = self.variance(scope)
        return None if variance is None else np.sqrt(np.maximum(variance, 0.0) / (2.0 * CROSS_DRAWS))

    def _seen(self, scope: Scope, flat: Array) -> Array:
        return np.asarray(self.view.matrix(scope) @ flat).reshape(self.view.shape(scope))


def seen(problem: Problem, beliefs: Beliefs) -> Beliefs:
    """Beliefs about `problem` from those about its core."""
    if isinstance(problem.model, OpenChain):
        return GroupBeliefs(beliefs, OpenView(problem.model), beliefs.log_evidence, beliefs.diagnostics)
    if problem.stack is None:
        return beliefs
    return GroupBeliefs(beliefs, View(problem.stack), beliefs.log_evidence, beliefs.diagnostics)


@dataclass(frozen=True)
class IntegratedBeliefs(DerivedBeliefs):
    """Beliefs at estimated parameters, with the uncertainty of the estimate."""

    base: Beliefs
    """At the estimate."""
    problem: Problem
    """With the model at the estimate."""
    response: Callable[[Scope], Array]
    """r: change of a table's mean per standard deviation of the estimate, shape (entries, columns of S)."""
    log_evidence: float | None
    diagnostics: Mapping[str, Any]

    @property
    def model(self) -> Model:
        """The model at the estimate."""
        return self.problem.model

    def mean(self, scope: Scope) -> Array:
        """As at the estimate: exact to first order."""
        return self.base.mean(scope)

    def variance(self, scope: Scope) -> Array | None:
        """That at the estimate, and that of the estimate."""
        known = self.base.variance(scope)
        if known is None:
            return None
        extra = np.einsum("ak,ak->a", *[self.response(scope)] * 2)
        return np.asarray(dense(known), dtype=float) + extra.reshape(np.shape(known))

    def covariance(self, a: Scope, b: Scope) -> Array:
        """That at the estimate, and that of the estimate."""
        return np.asarray(self.base.covariance(a, b)) + self.response(a) @ self.response(b).T

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool) -> dict[Scope, Array]:
        """Draws at the estimate, moved by draws of the estimate; as integers, rounded so that tables still agree."""
        if integer and isinstance(self.base, MixtureBeliefs):  # rounding keeps one total: that of a part
            parts = [self._part(part) for part in self.base.parts]
            return replace(self.base, parts=parts).sample(size, rng=rng, integer=True)
        if integer:
            like_gaussian: Any = self  # it has all that rounding asks of Gaussian beliefs
            return whole_draws(like_gaussian, size, rng=rng, sweep=False)
        draws = self.base.sample(size, rng=rng, integer=False)
        first = next(iter(draws))
        moves = rng.normal(size=(size, self.response(first).shape[1]))
        return {s: t + (moves @ self.response(s).T).reshape(t.shape) for s, t in draws.items()}

    def _part(self, part: Beliefs) -> IntegratedBeliefs:
        """One part of a mixture with the same uncertainty of the estimate."""
        total = round(float(np.sum(part.mean(self.model.variables[:1]))))
        return replace(self, base=part, problem=self.problem.with_population(total))

    @property
    def sizes(self) -> Sizes | None:  # type: ignore[override]
        """As at the estimate, widened by what the estimate adds to the spread of the total."""
        found = self.base.sizes
        if found is None:
            return None
        first = self.model.variables[:1]
        return found.widened(float(np.square(self.response(first).sum(axis=0)).sum()))

    @property
    def group_sizes(self) -> Mapping[int, Sizes]:  # type: ignore[override]
        """As at the estimate."""
        return self.base.group_sizes


@dataclass(frozen=True)
class MixtureBeliefs(Beliefs):
    """Several answers, each right with some probability: one per maximum of the evidence, or per size of the population."""

    parts: Sequence[Beliefs]
    weights: Array
    """Probabilities of the parts; they sum to 1."""
    log_evidence: float | None
    diagnostics: Mapping[str, Any]
    sizes: Sizes | None = None
    group_sizes: Mapping[int, Sizes] = field(default_factory=dict)

    @property
    def has_draws(self) -> bool:
        """Whether all parts can be drawn from."""
        return all(part.has_draws for part in self.parts)

    def mean(self, scope: Scope) -> Array:
        """Weighted mean."""
        return np.asarray(
            sum(w * np.asarray(dense(p.mean(scope))) for w, p in zip(self.weights, self.parts, strict=True))
        )

    def variance(self, scope: Scope) -> Array | None:
        """Weighted mean of the variances, and the variance of the means."""
        middle, total = self.mean(scope), np.zeros(1)
        for weight, part in zip(self.weights, self.parts, strict=True):
            known = part.variance(scope)
            if known is None:
                return None
            total = total + weight * (np.asarray(dense(known)) + (dense(part.mean(scope)) - middle) ** 2)
        return np.asarray(total)

    def covariance(self, a: Scope, b: Scope) -> Array:
        """Weighted mean of the covariances, and the covariance of the means."""
        ends = [[np.ravel(dense(p.mean(s))) for p in self.parts] for s in (a, b)]
        middle = [np.ravel(self.mean(s)) for s in (a, b)]
        return np.asarray(
            sum(
                w * (np.asarray(part.covariance(a, b)) + np.outer(one - middle[0], other - middle[1]))
                for w, part, one, other in zip(self.weights, self.parts, *ends, strict=True)
            )
        )

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool) -> dict[Scope, Array]:
        """Draws of the parts, as many of each as their weights say, in random order."""
        sizes = rng.multinomial(size, self.weights)
        drawn = [
            part.sample(int(k), rng=rng, integer=integer)
            for part, k in zip(self.parts, sizes, strict=True)
            if k
        ]
        order = rng.permutation(size)
        return {s: np.concatenate([np.asarray(one[s]) for one in drawn])[order] for s in drawn[0]}

    @cached_property
    def promises(self) -> Promises:
        """What holds of all parts: averages keep it."""
        every = [part.promises for part in self.parts]
        return Promises(
            all(p.non_negative for p in every),
            all(p.consistent for p in every),
            all(p.sums_to_population for p in every),
        )

    def mc_error(self, scope: Scope) -> Array | None:
        """That of the most probable part."""
        return self.parts[int(np.argmax(self.weights))].mc_error(scope)


# --- parts of a population: one of several groups; those who arrive, leave and stay


def _rebuilt(beliefs: Beliefs, leaf: Callable[[Beliefs], Beliefs]) -> Beliefs:
    """The same mixtures and multiples of other beliefs."""
    if isinstance(beliefs, MixtureBeliefs):
        return replace(beliefs, parts=[_rebuilt(part, leaf) for part in beliefs.parts])
    if isinstance(beliefs, UnitBeliefs):
        return replace(beliefs, base=_rebuilt(beliefs.base, leaf))
    return leaf(beliefs)


def one_group(problem: Problem, beliefs: Beliefs, name: Hashable) -> tuple[Problem, Beliefs]:
    """The problem of one group, and beliefs about it."""
    stack = problem.stack
    names = [] if stack is None else [member.name for member in stack.members]
    if name not in names:
        has = f"the groups are {shown(names)}" if names else "the problem has none"
        raise ValueError(f"there is no group {name!r}: {has}")
    k = names.index(name)
    group = problem.of_group(k)

    def narrowed(part: Beliefs) -> Beliefs:
        if isinstance(part, NobodyBeliefs):
            return replace(part, model=group.model)
        if not isinstance(part, GroupBeliefs) or not isinstance(part.view, View):
            raise ValueError(
                "this posterior has the sum of the groups only (its parameters were learned): infer again with the learned model"
            )
        return replace(part, view=View(part.view.stack, k))

    made = _rebuilt(beliefs, narrowed)
    if isinstance(made, (MixtureBeliefs, GroupBeliefs)):
        made = replace(made, sizes=beliefs.group_sizes.get(k), group_sizes={})
    return group, replace(made, log_evidence=None)  # type: ignore[type-var]


def seen_as(beliefs: Beliefs, chain: OpenChain, what: Going) -> Beliefs:
    """The same beliefs about the full chain, seen otherwise."""

    def seen(part: Beliefs) -> Beliefs:
        if isinstance(part, IntegratedBeliefs):  # at the estimate
            return seen_as(part.base, chain, what)
        if isinstance(part, NobodyBeliefs):
            return GroupBeliefs(replace(part, model=chain.full), OpenView(chain, what), None, {})
        assert isinstance(part, GroupBeliefs)
        assert isinstance(part.view, OpenView)
        return replace(part, view=replace(part.view, what=what))

    return _rebuilt(beliefs, seen)


def full_mean(beliefs: Beliefs, scope: Scope) -> Array:
    """Expected counts of an open population's table with its hidden states; a zero that fits any table of nobody."""
    if isinstance(beliefs, MixtureBeliefs):
        parts = zip(beliefs.weights, beliefs.parts, strict=True)
        return np.asarray(sum(weight * full_mean(part, scope) for weight, part in parts))
    if isinstance(beliefs, UnitBeliefs):
        return np.asarray(beliefs.size * full_mean(beliefs.base, scope))
    if isinstance(beliefs, NobodyBeliefs):
        return np.zeros((1,) * len(scope))
    assert isinstance(beliefs, GroupBeliefs)
    table = np.asarray(dense(beliefs.base.mean(scope)))
    assert isinstance(beliefs.view, OpenView)
    return table[
        tuple(slice(n + 2) for n in beliefs.view.model.size(scope))
    ]  # without candidates that are absent
