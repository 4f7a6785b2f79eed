"""What an engine hands back, before labels: beliefs about every table, and how the run ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
from scipy.sparse import csr_array, issparse

from headcount.posterior._draws import whole_draws

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headcount._types import Array, Index, Scope
    from headcount.individual import Model
    from headcount.observe import ClosedProblem
    from headcount.posterior.doubt import Learned
    from headcount.structure import Field


class Status(Enum):
    """How a run ended. Only the first four are answers that can be used without a second look."""

    CONVERGED = "converged"
    EXACT = "exact"
    SAMPLED = "sampled"
    EDGE = "at the edge"
    """Of a fit: the maximum lies where some probabilities are zero, or on a ridge along which parameters are integrated over."""
    BUDGET = "iteration budget spent"
    STALLED = "stalled"
    NOT_FINITE = "not finite"

    @property
    def good(self) -> bool:
        """Whether the answer is what the engine promises."""
        return self in {Status.CONVERGED, Status.EXACT, Status.SAMPLED, Status.EDGE}

    @property
    def causes(self) -> str:
        """What usually lies behind it and what to try."""
        return {
            Status.BUDGET: (
                "raise max_iterations (of a sampler: sweeps or moves), or loosen the tolerance; look at the trace: a residual that "
                "still falls needs time"
            ),
            Status.STALLED: (
                "the residual no longer falls: data far from the model (check population, rates and transitions), unknown sizes of "
                "several groups of which hardly more than the sum is seen (say what is known of each: About, Between), or "
                "a noise that is not log-concave; try TiltedEP(damping=0.3), MAP or PathGibbs"
            ),
            Status.NOT_FINITE: (
                "a number left the range of float64 (check for extreme rates, probabilities or counts), or the mode lies at the edge "
                "of a likelihood's domain, where Laplace has no curvature to use: try TiltedEP or MAP"
            ),
        }.get(self, "")


@dataclass(frozen=True)
class Outcome:
    """What a run leaves: beliefs, and how they were got."""

    beliefs: Beliefs
    status: Status
    iterations: int = 0
    residual: float = 0.0
    tolerance: float = 0.0
    seconds: float = 0.0
    trace: tuple[dict[str, float], ...] = ()
    info: dict[str, Any] = field(default_factory=dict)
    learned: Learned | None = field(default=None, repr=False)
    """What is known of parameters that were learned from these data."""


class NamedEngine(Protocol):
    """The part of an engine that a result keeps: its name. Its settings are its dataclass fields."""

    @property
    def name(self) -> str: ...


class NotConvergedError(RuntimeError):
    """An engine did not reach its tolerance. The posterior as far as it got is in :attr:`posterior`."""

    def __init__(
        self,
        engine: str,
        status: Status,
        residual: float,
        tolerance: float,
        iterations: int,
        *,
        cause: str = "",
    ) -> None:
        self.status, self.residual = status, residual
        self.posterior: object = None
        super().__init__(
            f"{engine} did not converge: {status.value} after {iterations} iterations, residual {residual:.3g} "
            f"(asked: {tolerance:.3g}). {f'{cause}. ' if cause else ''}Likely causes and remedies: {status.causes}. "
            "To look at the answer all the same, call infer(..., strict=False)."
        )


ROUNDING = 1e-9
"""A mean below zero by less than this share of N is rounding. Flows agree with nodes to the same share."""


@dataclass(frozen=True)
class Promises:
    """What holds of the means: every entry ≥ 0, tables agree on what they share, tables sum to N."""

    non_negative: bool
    consistent: bool
    sums_to_population: bool = True


class Sizes(NamedTuple):
    """The posterior of N: whole numbers in ascending order, and their probabilities."""

    values: Array
    probabilities: Array

    @property
    def mean(self) -> float:
        """E N."""
        return float(self.values @ self.probabilities)

    def widened(self, extra: float) -> Sizes:
        """The same shape with a variance larger by ``extra``, on whole numbers ≥ 0."""
        mean = self.mean
        variance = float(np.square(self.values - mean) @ self.probabilities)
        if variance == 0.0 or extra <= 1e-9 * variance:
            return self
        stretched = mean + np.sqrt(1.0 + extra / variance) * (self.values - mean)
        values, which = np.unique(np.maximum(np.rint(stretched), 0.0), return_inverse=True)
        return Sizes(values, np.asarray(np.bincount(which, self.probabilities), dtype=float))

    def quantiles(self, levels: Array) -> Array:
        """Quantiles of a continuous law with this one's distribution function halfway up every step."""
        return np.asarray(
            np.interp(levels, np.cumsum(self.probabilities) - 0.5 * self.probabilities, self.values)
        )


class Beliefs(ABC):
    """A posterior over count tables, by scope (a tuple of variables inside one clique)."""

    log_evidence: float | None
    diagnostics: Mapping[str, Any]
    has_spread: ClassVar[bool] = True
    """Whether there are variances, covariances and (unless `has_draws` says no) draws."""

    @property
    def any_table(self) -> bool:
        """Whether tables of variables that lie in no common clique can be asked for too."""
        return False

    sizes: Sizes | None = None
    """The posterior of the number of individuals, where that was not known."""

    @property
    def has_draws(self) -> bool:
        """Whether `sample` can answer: a sampler that kept no configurations has a spread but no draws."""
        return self.has_spread

    @abstractmethod
    def mean(self, scope: Scope) -> Array:
        """Posterior mean of a table."""

    @abstractmethod
    def variance(self, scope: Scope) -> Array | None:
        """Posterior variance of every entry; None from an engine that gives none."""

    @abstractmethod
    def covariance(self, a: Scope, b: Scope) -> Array:
        """Posterior covariance between two tables, flattened."""

    def pair_covariance(self, scope: Scope, first: Index, second: Index) -> Array:
        """Posterior covariances of pairs of entries of one table, by their flat positions."""
        return np.asarray(self.covariance(scope, scope)[first, second])

    def sum_variance(self, parts: Sequence[tuple[Scope, Array]]) -> float:
        """Variance of Σ w·n over several tables, each with its flat weights; beliefs that know which tables are independent skip those."""
        return sum(float(w @ self.covariance(a, b) @ x) for a, w in parts for b, x in parts)

    @abstractmethod
    def sample(self, size: int, *, rng: np.random.Generator, integer: bool) -> dict[Scope, Array]:
        """Joint draws of all clique tables, ``(size, *table)``."""

    @property
    @abstractmethod
    def promises(self) -> Promises:
        """What holds of the means."""

    def mc_error(self, scope: Scope) -> Array | None:
        """Monte-Carlo standard error of every entry's sd; None where sds carry none, or none is known."""
        del scope
        return None

    def quantile(self, scope: Scope, level: float) -> Array | None:
        """A quantile of every entry where the engine knows better than its moments; None otherwise."""
        del scope, level
        return None

    def law_of_sum(self, scope: Scope, weights: Array) -> Sizes | None:
        """The law of a weighted sum of a table's entries, where the engine knows more than its moments; None otherwise."""
        del scope, weights
        return None


@dataclass(frozen=True)
class PointBeliefs(Beliefs):
    """The counts expected under one (tilted) law: a point, without uncertainty."""

    model: Model
    population: float
    log_evidence: float | None = None
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    has_spread: ClassVar[bool] = False

    @property
    def any_table(self) -> bool:
        """All: a law has every marginal."""
        return True

    def mean(self, scope: Scope) -> Array:
        """N μ."""
        return self.population * self.model.marginal(scope)

    def variance(self, scope: Scope) -> Array | None:
        """None: a point has no spread."""
        del scope
        return None

    def covariance(self, a: Scope, b: Scope) -> Array:
        """Refused: a point has none."""
        del a, b
        raise ValueError(_NO_SPREAD)

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool) -> dict[Scope, Array]:
        """Refused: a point has no draws."""
        del size, rng, integer
        raise ValueError(_NO_SPREAD)

    @property
    def promises(self) -> Promises:
        """Marginals of one law: always ≥ 0 and consistent."""
        return Promises(non_negative=True, consistent=True)


def sparse_step(model: Model, scope: Scope) -> csr_array | None:
    """The transitions of an edge, in the order of its two variables, where they are sparse; None elsewhere."""
    tree = model.rooted()
    place = None if tree is None or len(scope) != 2 else tree.place(scope)
    if tree is None or place is None or place.turned or not issparse(tree.transitions[place.node]):
        return None
    step = csr_array(tree.transitions[place.node], copy=True)
    step.sort_indices()
    return step


def listed_mean(beliefs: Beliefs, scope: Scope) -> csr_array | None:
    """Posterior mean of an edge's possible moves, where transitions are sparse and beliefs are those of one (tilted) law; None elsewhere.

    A table of 10⁴ × 10⁴ cells would take 800 MB; its moves between neighbours take one.
    """
    if not isinstance(beliefs, (PointBeliefs, GaussianBeliefs)):
        return None
    table = sparse_step(beliefs.model, scope)
    if table is None:
        return None
    table.data *= beliefs.population * np.repeat(beliefs.model.marginal(scope[:1]), np.diff(table.indptr))
    if isinstance(beliefs, GaussianBeliefs) and not beliefs.settled:
        moves = beliefs.field.moves(scope)
        if moves is None:
            return None
        table.data += moves.mean
    return table


_NO_SPREAD = (
    "this engine gives a point estimate without uncertainty; use TiltedEP (or PathGibbs) for spread and draws"
)


@dataclass(frozen=True)
class GaussianBeliefs(Beliefs):
    """A Gaussian around the counts expected under one (tilted) law.

    ``settled`` says that the Gaussian's mean *is* its centre (to the engine's tolerance), so that means are marginals of a law: ≥ 0,
    consistent, summing to N.
    """

    model: Model
    """The tilted law whose expected counts are the centre."""
    problem: ClosedProblem
    population: float
    """N, or how many individuals are expected."""
    make_field: Callable[[], Field]
    """Builds the Gaussian posterior; called once, when something besides the settled means is asked for."""
    settled: bool
    log_evidence: float | None = None
    diagnostics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def any_table(self) -> bool:
        """On graphs that are no tree, whose passes give conditional expectations given any variables."""
        return self.model.rooted() is None

    @cached_property
    def field(self) -> Field:
        """The Gaussian posterior of deviations from the centre."""
        return self.make_field()

    def mean(self, scope: Scope) -> Array:
        """N μ, plus the deviation where the centre is not the mean."""
        centre = self.population * self.model.marginal(scope)
        return centre if self.settled else centre + self.field.mean(scope)

    def variance(self, scope: Scope) -> Array | None:
        """Of the Gaussian."""
        return self.field.variance(scope)

    def mc_error(self, scope: Scope) -> Array | None:
        """Of a structure that draws; None of the others."""
        return self.field.mc_error(scope)

    def more_draws(self, draws: int, client: Any = None) -> GaussianBeliefs:
        """The same beliefs after so many final draws more; those there are stay."""
        before, found = self.field.log_z, self.field.more_draws(draws, client)
        after = found.log_z
        evidence, diagnostics = self.log_evidence, dict(self.diagnostics)
        if evidence is not None and before is not None and after is not None and not np.isnan(after[0]):
            evidence += after[0] - before[0]
            diagnostics["log_evidence_mc_error"] = after[1]
        made = replace(self, make_field=lambda: found, log_evidence=evidence, diagnostics=diagnostics)
        return made

    def covariance(self, a: Scope, b: Scope) -> Array:
        """Of the Gaussian."""
        return self.field.covariance(a, b)

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool) -> dict[Scope, Array]:
        """Draws of the Gaussian; as whole numbers, by :func:`headcount.posterior._draws.whole_draws`."""
        if integer:
            return whole_draws(self, size, rng=rng)
        draws = self.field.sample(size, rng=rng)
        return {c: d + self.population * self.model.marginal(c) for c, d in draws.items()}

    @property
    def draws_nodes(self) -> bool:
        """Whether `sample_nodes` answers: where tables of all pairs may not fit in memory."""
        return self.field.log_z is not None

    def sample_nodes(self, size: int, *, rng: np.random.Generator) -> dict[Scope, Array]:
        """Joint draws of all nodes' counts, real numbers, without tables of pairs."""
        drawn = self.field.sample_nodes(size, rng=rng)
        tree = self.model.rooted()
        assert drawn is not None
        assert tree is not None
        parts = np.split(drawn, np.cumsum(tree.sizes)[:-1], axis=1)
        return {
            (v,): d + self.population * self.model.marginal((v,))
            for v, d in zip(tree.variables, parts, strict=True)
        }

    @cached_property
    def promises(self) -> Promises:
        """Checked on every clique, once, where the centre is not the mean."""
        if self.settled:
            return Promises(non_negative=True, consistent=True)
        cliques = [tuple(c) for c in self.model.junction_tree.cliques]
        listed = ((c, listed_mean(self, c)) for c in cliques)
        low = min(float((self.mean(c) if made is None else made.data).min()) for c, made in listed)
        return Promises(non_negative=low >= -ROUNDING * self.population, consistent=True)
