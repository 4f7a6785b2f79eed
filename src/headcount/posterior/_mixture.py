r"""Beliefs under parameters that were learned: an integral over their uncertainty, and a mixture of several maxima.

With x ~ N(x̂, V) the parameters, V = S Sᵀ, and every column s of S one standard deviation of x, the law of total variance is

.. math::

    \operatorname{cov}(n | y) = \operatorname{cov}(n | y, \hat x) + \sum_s r_s r_s^\top,
    \qquad r_s = \tfrac12\left(E[n | y, \hat x + s] - E[n | y, \hat x - s]\right) .

The means are those at the estimate: they are ≥ 0, agree with each other and sum to N.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.posterior._beliefs import Beliefs, Promises
from headcount.tables import dense

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from headcount.individual import Model
    from headcount.observe import Problem
    from headcount.posterior._sizes import Sizes

    Array = NDArray[np.float64]
    Scope = tuple[Hashable, ...]


@dataclass(frozen=True)
class IntegratedBeliefs(Beliefs):
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
    def has_draws(self) -> bool:
        """As at the estimate."""
        return self.base.has_draws

    @property
    def model(self) -> Model:
        """The model at the estimate."""
        return self.problem.model

    @property
    def population(self) -> int:
        """N."""
        return self.problem.population

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
            from headcount.posterior._draws import whole_draws

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
    def promises(self) -> Promises:
        """As at the estimate."""
        return self.base.promises

    def mc_error(self, scope: Scope) -> Array | None:
        """As at the estimate."""
        return self.base.mc_error(scope)


@dataclass(frozen=True)
class MixtureBeliefs(Beliefs):
    """Several answers, each right with some probability: one per maximum of the evidence, or per size of the population."""

    parts: Sequence[Beliefs]
    weights: Array
    """Probabilities of the parts; they sum to 1."""
    log_evidence: float | None
    diagnostics: Mapping[str, Any]
    sizes: Sizes | None = None

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
