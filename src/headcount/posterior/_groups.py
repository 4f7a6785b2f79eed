"""Beliefs about groups: their sum, as it was counted, and each of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._types import Array, Scope
from headcount.individual import ModelError, OpenChain
from headcount.labels import shown
from headcount.observe import Problem
from headcount.observe._groups import View
from headcount.observe._open import OpenView
from headcount.posterior._beliefs import Beliefs, Promises
from headcount.posterior._mixture import MixtureBeliefs
from headcount.posterior._sizes import Sizes
from headcount.tables import dense

if TYPE_CHECKING:
    import pandas as pd

    from headcount.posterior._posterior import Posterior
    from headcount.posterior._sizes import Sizes

LARGEST_COVARIANCE = 3000
"""Entries of a stacked table up to which the variance of a sum is read off its whole covariance (72 MB); above, off draws."""
CROSS_DRAWS = 400
"""Draws from which covariances between groups are found in larger tables: the sd of a sum is then known to about 3 %."""


@dataclass(frozen=True)
class GroupBeliefs(Beliefs):
    """Beliefs on a larger chain seen through a linear map: sums over groups or one of them, the cells of an open population."""

    base: Beliefs
    """Of the stacked chain; so is the evidence, to which the posterior adds `Problem.log_offset`."""
    view: View | OpenView
    log_evidence: float | None
    diagnostics: Mapping[str, Any]
    sizes: Sizes | None = None

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
        """As the base: sums of what is ≥ 0 and agrees are so too."""
        return self.base.promises

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
        return {
            scope: (self.view.matrix(scope) @ table.reshape(size, -1).T).T.reshape(
                size, *self.view.shape(scope)
            )
            for scope, table in drawn.items()
        }

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


def one_group(posterior: Posterior, name: Hashable) -> Posterior:
    """See `Posterior.group`."""
    from headcount.posterior._posterior import Posterior

    problem, beliefs = posterior.problem, posterior.beliefs
    stack = problem.stack
    names = [] if stack is None else [member.name for member in stack.members]
    if stack is None or name not in names:
        message = f"there is no group {name!r}: " + (
            f"the groups are {shown(names)}" if names else "the problem has none"
        )
        raise ValueError(message)
    k = names.index(name)
    group = problem.of_group(k)
    known = sum(m.size for j, m in enumerate(stack.members) if j != k)
    own = _narrowed(beliefs, k, None if group.size_known else known)
    return Posterior(group, posterior.settings, replace(posterior.outcome, beliefs=own))


def _narrowed(beliefs: Beliefs, member: int, others: int | None) -> Beliefs:
    """Beliefs about one group; ``others`` is the number of all other individuals, where the group's own is not known."""
    if isinstance(beliefs, MixtureBeliefs):
        parts = tuple(_narrowed(part, member, None) for part in beliefs.parts)
        sizes = beliefs.sizes
        own = None if sizes is None or others is None else Sizes(sizes.values - others, sizes.probabilities)
        return replace(beliefs, parts=parts, sizes=own, log_evidence=None)
    if not isinstance(beliefs, GroupBeliefs) or not isinstance(beliefs.view, View):
        raise ValueError(
            "this posterior has the sum of the groups only (its parameters were learned): infer again with the learned model"
        )
    return GroupBeliefs(beliefs.base, View(beliefs.view.stack, member), None, beliefs.diagnostics)


def group_frame(posterior: Posterior, what: str, *, level: float) -> pd.DataFrame:
    """The table of every group, one below the other, with a column ``group``."""
    import pandas as pd

    assert posterior.problem.groups is not None
    parts = []
    for name in posterior.problem.groups:
        part = posterior.group(name).to_frame(what, level=level)
        part.insert(1, "group", [name] * len(part))
        parts.append(part.drop(columns="observed", errors="ignore"))
    whole = pd.concat(parts, ignore_index=True)
    whole.attrs = parts[0].attrs
    return whole
