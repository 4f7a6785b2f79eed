r"""What an earlier run leaves to the next: the counts of its last time as a Gaussian, and how a new chain begins with it.

The past enters a new problem through the law of the counts :math:`n_0` at the time where both meet. With m and V their posterior mean and
covariance, the new chain begins with the shares of m, whose own law of the counts has the precision
:math:`C^{-1} = (\operatorname{diag}(1/m) - 11^\top/N)/\varphi`, and

.. math:: p(n_0) \propto \mathrm{Mult}(n_0; N, m/N)\, e^{-\frac12 (n_0 - m)^\top D (n_0 - m)}, \qquad D = V^{-1} - C^{-1} = R^\top R ,

so that its Gaussian has the covariance V: every row of R is one more reading :math:`R_k m` of the sum :math:`R_k n_0` with standard
deviation 1. Two runs so joined give what one run of all counts gives, up to the Gaussian: :math:`V \preceq C` around the mean of the
default engine, because its Gaussian is made there. Where the past scatters more (learned parameters, overdispersion), :math:`\varphi` is
the smallest factor with which D has no negative eigenvalue. The number of individuals: known, its total is no direction of V; not known,
the total is one more direction and the new law of N is flat; of an open population :math:`C = \operatorname{diag} m`, those who arrive
later are independent of the past. States that are known exactly are exact counts.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammaln, xlogy

from headcount._types import Array, Index
from headcount.dates import readable
from headcount.errors import ProblemError, shown
from headcount.individual import WAITING_STATE, Model
from headcount.observe._base import Observation
from headcount.observe._noises import Exact, Gaussian
from headcount.observe.binding import Site
from headcount.population import Between, Exactly, PoissonSize, SizeLaw

if TYPE_CHECKING:
    from headcount.observe.cloud import Cloud, Member

FROM_PAST = -1
"""`Site.source` of what an earlier run says: none of the problem's observations."""
NOBODY = 1e-9
"""Expected individuals below which a state is empty for certain: its count cannot be told from 0."""
KNOWN = 1e-9
"""Variance of a count, as a share of its mean, below which it is known exactly: rounding of a constrained Gaussian leaves about 1e-12."""
UNINFORMED = 1e-9
"""Eigenvalues of D, in units of the multinomial's own precision, below which a direction carries nothing."""
ROUNDING = 1e-3
"""Share by which the past may scatter more than the law that the chain begins with before that is widened: an engine's tolerance."""
NARROWEST = 0.05
"""Standard deviation, in individuals, of a combination of counts that is known although none of its counts is: a twentieth of an
individual moves nothing that is a whole number, and a smaller one makes the readings stiff."""
FLAT_REACH = 12.0
"""Standard deviations around its mean within which the new law of an unknown number is flat."""


@dataclass(frozen=True, eq=False)
class Start:
    """The law of the counts at one time, as a mean and a covariance.

    Attributes
    ----------
    time
        Which time, as text.
    groups, states
        Of every count: the group (empty where there is one kind of individuals) and the state on the graph that its individuals follow, as
        texts. Only states that are cells: who is gone or not yet there is not part of it.
    mean, covariance
        In units (flocks, where these are counted as units), shapes (K,) and (K, K).
    sizes
        The number of units per group; None where it is not known, NaN where individuals come and go.
    unit
        Individuals per unit.
    """

    time: str
    groups: tuple[str, ...]
    states: tuple[str, ...]
    mean: Array
    covariance: Array
    sizes: Mapping[str, float | None]
    unit: float = 1.0

    @classmethod
    def of_counts(
        cls,
        time: Hashable,
        parts: Sequence[tuple[Hashable, Model, float | None]],
        mean: Array,
        covariance: Array,
        unit: float,
    ) -> Start:
        """From moments on the states of all groups, one after the other; ``parts`` are their names, models and sizes."""
        groups, states = [], []
        for name, model, _ in parts:
            own = visible(model, time)
            groups += [group_text(name)] * len(own)
            states += own
        sizes = {group_text(name): size for name, _, size in parts}
        return cls(readable(time), tuple(groups), tuple(states), mean, covariance, sizes, unit)

    def rows(self, group: Hashable) -> Index:
        """The counts of one group."""
        return np.flatnonzero(np.array(self.groups) == group_text(group))

    def check(self, kinds: Mapping[Hashable, tuple[Model, SizeLaw]]) -> None:
        """Refuse a problem that this cannot be the beginning of.

        Raises
        ------
        ProblemError
            Other groups, states, times or known numbers than those of the past.
        """
        names = [group_text(name) for name in kinds]
        if sorted(names) != sorted(self.sizes):
            raise ProblemError(
                f"start: the past has the groups {shown(list(self.sizes))}, the problem {shown(names)}"
            )
        for name, (model, law) in kinds.items():
            self._check_kind(group_text(name), model, law)

    def _check_kind(self, name: str, model: Model, law: SizeLaw) -> None:
        first = model.variables[0]
        if readable(first) != self.time:
            raise ProblemError(
                f"start: the past ends at {self.time} and the chain begins at {readable(first)}: let it begin at {self.time}, with no "
                "counts there but new ones"
            )
        own, past = visible(model, first), [self.states[k] for k in self.rows(name)]
        if own != past:
            raise ProblemError(
                f"start: the last counts of the past are of {shown(past, 5)}, the first of the chain of {shown(own, 5)}: a chain can go on "
                "where its individuals have the same states at both (a MemoryChain with past.problem.model.continued(times), which begins "
                "with pairs of cells)"
            )
        known = self.sizes[name]
        number = known is not None and not math.isnan(known)
        if known is not None and number and law.is_known and law.most != round(known * self.unit):
            raise ProblemError(
                f"start: the past has N = {known * self.unit:g}, the problem {law.text}: give the same"
            )
        if (known is None) == law.is_known and model.expected_number is None:
            told = "is not known" if known is None else f"is {known * self.unit:g}"
            raise ProblemError(
                f"start: N {told} in the past, and the problem has {law.text}: give what the past had"
            )

    def first(self, member: Member) -> Member:
        """The individuals of one kind, begun with the shares of the mean."""
        rows = self.rows(member.group)
        codes, mean = member.cells[0], np.where(self.mean[rows] > NOBODY, self.mean[rows], 0.0)
        here, size = np.zeros(len(codes)), self._told(member.group)
        here[codes >= 0] = mean
        if member.model is not None and member.model.expected_number is not None:
            waiting = codes == WAITING_STATE
            here[waiting] = member.tree.initial[waiting] * member.law.mean
            law: Any = PoissonSize(float(here.sum()))
        elif size is not None and not math.isnan(size):
            law = Exactly(round(size))
        else:
            law = Between(*self._window(member.group, member.law))
        return replace(member, tree=replace(member.tree, initial=here / here.sum()), law=law)

    def _told(self, group: Hashable) -> float | None:
        """The number of a group, known or told by the past's counts to less than rounding; None where it is open."""
        size, rows = self.sizes[group_text(group)], self.rows(group)
        total, variance = float(self.mean[rows].sum()), float(self.covariance[np.ix_(rows, rows)].sum())
        told = size is None and variance <= KNOWN * max(total, 1.0) and total >= 0.5
        return float(round(total)) if told else size

    def _window(self, group: Hashable, given: SizeLaw) -> tuple[int, int]:
        """Numbers between which the law of a group's size is flat: all that are not out of the question, of those that were given."""
        rows = self.rows(group)
        mean, sd = self.mean[rows].sum(), math.sqrt(max(self.covariance[np.ix_(rows, rows)].sum(), 1.0))
        low, high = math.floor(mean - FLAT_REACH * sd), math.ceil(mean + FLAT_REACH * sd)
        return max(low, given.least), max(1, min(high, given.most))

    def joined(self, laws: Mapping[Hashable, SizeLaw | None], phi: float) -> PastReadings:
        """D as readings, for a chain whose first counts scatter by the factor phi; a larger phi where that is too little.

        Parameters
        ----------
        laws
            By group, the law of its number of units in the new problem; None where they come and go.
        """
        mean, covariance = self.mean, 0.5 * (self.covariance + self.covariance.T)
        there = mean > NOBODY
        exact = there & (np.diagonal(covariance) <= KNOWN * np.maximum(mean, 1.0))
        if exact[there].all():  # then empty states are known too, and the first table is counted completely
            exact[:] = True
        free = np.flatnonzero(there & ~exact)
        scale = np.sqrt(mean[free])
        scatter = covariance[np.ix_(free, free)] / np.outer(scale, scale)
        closed, flat = self._totals(laws, free, scale)
        fixed = closed[flat == 0.0]
        scatter = scatter + fixed.T @ fixed  # a direction without variance, in which both precisions are 1
        values, vectors = np.linalg.eigh(scatter)
        least = NARROWEST**2 / max(float(mean[free].max(initial=1.0)), 1.0)
        values = np.maximum(values, least)
        precision = (vectors / values) @ vectors.T
        own = np.eye(len(free)) - closed.T @ closed
        root = vectors * np.sqrt(values)
        needed = float(np.linalg.eigvalsh(root.T @ own @ root).max(initial=0.0))
        phi = needed if needed > phi * (1.0 + ROUNDING) else phi
        gained, directions = np.linalg.eigh(precision - own / phi - fixed.T @ fixed)
        kept = gained > UNINFORMED
        rows = np.zeros((int(kept.sum()), len(mean)))
        rows[:, free] = (directions[:, kept] * np.sqrt(gained[kept])).T / scale
        prior = phi * own + (closed.T * flat) @ closed
        informed = (directions[:, kept] * gained[kept]) @ directions[:, kept].T
        log_z = -0.5 * kept.sum() * math.log(2.0 * math.pi)
        log_z -= 0.5 * float(np.linalg.slogdet(np.eye(len(free)) + prior @ informed)[1])
        return PastReadings(rows, np.flatnonzero(exact), phi, float(log_z) + self._log_exact(exact, laws))

    def _totals(
        self, laws: Mapping[Hashable, SizeLaw | None], free: Index, scale: Array
    ) -> tuple[Array, Array]:
        """Per closed group, the direction of its total in scaled counts, (G, K); and the prior's variance along it, 0 where N is known.

        A law that is flat over w numbers has the density 1/w, that of a Gaussian with the variance w²/2π at its middle.
        """
        directions, widths = np.zeros((0, len(free))), []
        for name, law in laws.items():
            own = np.isin(free, self.rows(name))
            if law is None or not own.any():
                continue
            along = np.where(own, scale, 0.0)
            directions = np.vstack([directions, along / np.linalg.norm(along)])
            size = self._told(name)
            low, high = self._window(name, law)
            flat = (high - low + 1.0) ** 2 / (2.0 * math.pi * self.mean[self.rows(name)].sum())
            widths.append(flat if size is None or math.isnan(size) else 0.0)
        return directions, np.array(widths)

    def _log_exact(self, exact: Any, laws: Mapping[Hashable, SizeLaw | None]) -> float:
        """Log probability of the counts that are known exactly, under the law that the chain begins with."""
        total = 0.0
        for name, law in laws.items():
            own = self.rows(name)
            seen, mean = self.mean[own][exact[own]].round(), self.mean[own].sum()
            rest = max(mean - seen.sum(), 0.0)
            total += float((xlogy(seen, seen) - gammaln(seen + 1.0)).sum())
            if law is None:
                total -= float(seen.sum())
            elif len(seen):
                total += float(
                    gammaln(mean + 1.0) - gammaln(rest + 1.0) + xlogy(rest, rest) - xlogy(mean, mean)
                )
        return total

    def sites(self, cloud: Cloud, readings: PastReadings) -> tuple[Site, ...]:
        """The readings as sites on the first table of the larger graph."""
        first = cloud.members[0].tree.variables[0]
        onto = self._onto(cloud, first)
        made, size = [], int(onto.shape[1])
        rows, exact = readings.rows, readings.exact
        if len(rows):
            noise: Observation = Gaussian(rows @ self.mean, sd=np.ones(len(rows)), on=(first,))
            weights = csr_array(rows @ onto)
            made.append(
                Site((first,), size, None, weights, noise, ["what the past says"] * len(rows), FROM_PAST)
            )
        if len(exact):
            noise = Exact(self.mean[exact].round(), on=(first,))
            names = [f"time {self.time}, {self.states[k]} (from the past)" for k in exact]
            weights = csr_array(onto[exact])
            single = bool(
                (np.diff(weights.indptr) == 1).all()
            )  # every count is one entry: engines must see that
            index, sums = (weights.indices, None) if single else (None, weights)
            made.append(Site((first,), size, index, sums, noise, names, FROM_PAST))
        return tuple(made)

    def _onto(self, cloud: Cloud, first: Hashable) -> csr_array:
        """Which counts of the first table of the larger graph each count is the sum of, shape (K, states)."""
        node, rows, columns = cloud.index[first], [], []
        for k, member in enumerate(cloud.members):
            codes = cloud.all_codes(k, node)
            place = np.cumsum(codes >= 0) - 1
            kept = cloud.kept_states(k, first)
            seen = codes[kept] >= 0
            rows.append(self.rows(member.group)[place[kept[seen]]])
            columns.append(cloud.starts[node][k] + np.flatnonzero(seen))
        at = np.concatenate(rows), np.concatenate(columns)
        return csr_array((np.ones(len(at[0])), at), shape=(len(self.mean), int(cloud.starts[node][-1])))

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Everything but the arrays, as JSON takes it."""
        sizes = {
            name: None if size is None or math.isnan(size) else size for name, size in self.sizes.items()
        }
        open_groups = [name for name, size in self.sizes.items() if size is not None and math.isnan(size)]
        return {
            "time": self.time,
            "groups": list(self.groups),
            "states": list(self.states),
            "sizes": sizes,
            "open": open_groups,
            "unit": self.unit,
        }

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any], mean: Array, covariance: Array) -> Start:
        """The inverse of `facts`."""
        sizes = dict(facts["sizes"]) | dict.fromkeys(facts["open"], math.nan)
        groups, states = tuple(facts["groups"]), tuple(facts["states"])
        return cls(facts["time"], groups, states, mean, covariance, sizes, float(facts["unit"]))


@dataclass(frozen=True, eq=False)
class LearnedStart:
    """Learned parameters and last counts, known together up to a Gaussian: x + S u, and mean + R u given u ~ N(0, 1).

    Attributes
    ----------
    names, working
        The parameters and their estimate x on the scale of the search.
    spread
        S: the columns are standard deviations of the estimate, shape (parameters, Q).
    start
        The last counts given the estimate.
    response
        R: their change per column of S, shape (K, Q).
    """

    names: tuple[str, ...]
    working: Array
    spread: Array
    start: Start
    response: Array

    def at(self, u: Array) -> Array:
        """The parameters at u."""
        return np.asarray(self.working + self.spread @ u)

    def started(self, u: Array) -> Start:
        """The last counts given the parameters at u."""
        return replace(self.start, mean=self.start.mean + self.response @ u)


@dataclass(frozen=True, eq=False)
class PastReadings:
    """D = RᵀR as readings of sums with standard deviation 1, and counts that are known."""

    rows: Array
    """R, shape (readings, K)."""
    exact: Index
    """Counts that are known exactly."""
    phi: float
    """Factor on the scatter of the first counts."""
    log_prob: float
    """Log of the readings' probability under the law that the chain begins with; the evidence of the new counts is without it."""


def group_text(name: Hashable) -> str:
    """A group's name as text; empty where there is one kind."""
    return "" if name is None else readable(name)


def visible(model: Model, time: Hashable) -> list[str]:
    """Names of the states at one time that are cells, on the graph that a model's individuals follow."""
    if not model.has_hidden_states:
        return [readable(state) for state in model.states[time]]
    chain: Any = model
    codes, labels = chain.codes[chain.full.rooted().index[time]], chain.full.states[time]
    return [_state_text(labels[k]) for k in np.flatnonzero(codes >= 0)]


def _state_text(label: Hashable) -> str:
    return " / ".join(map(readable, label)) if isinstance(label, tuple) else readable(label)
