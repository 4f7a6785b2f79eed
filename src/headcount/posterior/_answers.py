"""What can be asked of a posterior, in memory or from a file, and the labelled estimates that come back."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._html import card, heat_map
from headcount.checks import brief, instance, numbers
from headcount.dates import readable
from headcount.errors import ModelError, shown
from headcount.labels import coordinate
from headcount.posterior._beliefs import Sizes
from headcount.posterior._routes import AsksIndividuals
from headcount.posterior.interval import sum_quantiles, tails
from headcount.posterior.result import Summary
from headcount.tables import dense

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import xarray as xr
    from numpy.typing import NDArray

    from headcount._types import Array, Scope
    from headcount.posterior._beliefs import Beliefs

SHOWN_ROWS = 5
"""Rows of the largest numbers on a notebook's card."""


@dataclass(frozen=True)
class Estimate:
    """The posterior of one table: a node, an edge, a clique."""

    posterior: Answers
    scope: Scope

    @property
    def mean(self) -> xr.DataArray:
        """Expected counts."""
        return self._labelled(self.posterior.mean_table(self.scope), "mean")

    @property
    def sd(self) -> xr.DataArray:
        """Standard deviations; NaN from an engine that gives none."""
        return self._labelled(self.posterior.sd_table(self.scope), "sd")

    @property
    def median(self) -> xr.DataArray:
        """The smallest whole number that the count does not exceed with probability ½ or more; NaN from an engine without spread.

        Where counts are small it is nearer to the truth than the mean: a flow of 0.3 is most probably none.
        """
        return self._labelled(self.posterior.quantile_tables(self.scope, [0.5])[0], "median")

    def interval(self, level: float = 0.9, *, whole: bool = True) -> xr.Dataset:
        """Central interval that holds each entry with probability ``level``; the level is in its attributes.

        Its ends are whole numbers, as counts are: the smallest k with P(n ≤ k) at least (1 − level)/2 and (1 + level)/2.
        ``whole=False`` gives quantiles of a continuous law instead.
        """
        import xarray as xr

        ends = self.posterior.quantile_tables(self.scope, tails(level), whole=whole)
        names = ("lower", "upper")
        both = {name: self._labelled(end, name) for name, end in zip(names, ends, strict=True)}
        return xr.Dataset(both, attrs={"level": level})

    @property
    def reliable(self) -> xr.DataArray:
        """Where the interval can be trusted."""
        return self._labelled(self.posterior.reliable_table(self.scope), "reliable")

    def _repr_html_(self) -> str:
        """The table's largest entries with intervals, and the table itself."""
        mean = dense(self.posterior.mean_table(self.scope))
        facts = {
            "of": ", ".join(readable(v) for v in self.scope),
            "entries": " × ".join(map(str, mean.shape)),
            "total": f"{float(mean.sum()):.6g}",
            "ask": ".mean, .sd, .median, .interval(0.9), .reliable",
        }
        shown = heat_map(mean if mean.ndim == 2 else mean.reshape(mean.shape[0], -1).T, "expected counts")
        return card("Estimate", facts, table=self.largest(), caption="largest", thumbnail=shown)

    def largest(self) -> tuple[Sequence[str], list[list[str]]]:
        """Header and rows of the largest entries, with 90 % intervals."""
        summary = self.posterior._summary(self.scope, 0.9)
        mean, lower, upper = map(dense, (summary.mean, summary.lower, summary.upper))
        states = [self.posterior.states[v] for v in self.scope]
        rows = []
        for flat in np.argsort(mean, axis=None)[::-1][:SHOWN_ROWS].tolist():
            place = np.unravel_index(flat, mean.shape)
            ends = "none" if np.isnan(lower[place]) else f"{lower[place]:.0f} … {upper[place]:.0f}"
            labels = " → ".join(readable(names[k]) for names, k in zip(states, place, strict=True))
            rows.append([labels, f"{mean[place]:.1f}", ends])
        return ("", "mean", "90% interval"), rows

    def covariance(self, other: Estimate | None = None) -> Array:
        """Covariance of the flattened table with itself, or with another estimate's."""
        beside = (
            self
            if other is None
            else instance(
                other,
                Estimate,
                "other",
                expected="another estimate of this posterior, as post.node(...) is, or None",
            )
        )
        return self.posterior.beliefs.covariance(self.scope, beside.scope)

    def _labelled(self, values: NDArray[Any], name: str) -> xr.DataArray:
        return self.posterior._labelled(self.scope, values, name)


@dataclass(frozen=True)
class Total:
    """The posterior of a sum of entries: a region's total, a cordon."""

    mean: float
    median: float
    sd: float
    lower: float
    upper: float
    level: float
    mc_error: float = 0.0
    """Standard error of the sd, where it comes from the draws in a file: the sd before saving is within two of them in 95 % of cases."""


@dataclass(frozen=True)
class PopulationEstimate:
    """The posterior of the number of individuals.

    Attributes
    ----------
    mean
        E[N | y]; N where it is known, the most probable N from an engine that gives a point.
    sd
        Its standard deviation: 0 where N is known, NaN from an engine that gives a point.
    values, probabilities
        The law itself: whole numbers and their probabilities (every so-many-th whole number where there are very many).
    known
        Whether N was given.
    note
        What cannot be told from the data, in words; empty where there is nothing to say.
    """

    mean: float
    sd: float
    values: Array = field(repr=False)
    probabilities: Array = field(repr=False)
    known: bool
    note: str = ""

    @property
    def median(self) -> float:
        """The smallest whole number that N does not exceed with probability ½ or more."""
        return self._quantile(0.5)

    def interval(self, level: float = 0.9) -> xr.Dataset:
        """Central interval of whole numbers that holds N with probability ``level``, as ``lower`` and ``upper``."""
        import xarray as xr

        lower, upper = (self._quantile(q) for q in tails(level))
        return xr.Dataset({"lower": lower, "upper": upper}, attrs={"level": level})

    def _quantile(self, level: float) -> float:
        if np.isnan(self.sd):
            return float("nan")
        reached = np.cumsum(self.probabilities) >= level - 1e-12
        return float(self.values[int(np.argmax(reached))])

    @classmethod
    def of(cls, sizes: Sizes, *, known: bool, point: bool, note: str = "") -> PopulationEstimate:
        """From the law of N; ``point`` where it is one value without spread."""
        values, p = sizes
        mean = float(values @ p)
        spread = float(np.sqrt(np.square(values - mean) @ p))
        return cls(mean, float("nan") if point else spread, values, p, known, note)


class Answers(AsksIndividuals):
    """What any posterior can be asked, in memory or from a file: tables by their variables, and sums of their entries."""

    beliefs: Beliefs
    states: Mapping[Hashable, Sequence[Hashable]]
    """Labels of every variable's states; the variables of a chain are its times."""

    @property
    @abstractmethod
    def population(self) -> PopulationEstimate:
        """The number of individuals: mean, sd, interval; N itself where it was given."""

    @abstractmethod
    def _scope_of(self, *variables: Hashable) -> Scope:
        """The variables of a table, by their own labels; refused where there is no such table."""

    @abstractmethod
    def mean_table(self, scope: Scope) -> Array:
        """Expected counts without labels."""

    @abstractmethod
    def sd_table(self, scope: Scope) -> Array:
        """Standard deviations without labels; NaN from an engine that gives none."""

    @abstractmethod
    def quantile_tables(
        self, scope: Scope, probabilities: Sequence[float], *, whole: bool = True
    ) -> tuple[Array, ...]:
        """Quantiles of every entry without labels, one table per probability; NaN from an engine without spread."""

    @abstractmethod
    def reliable_table(self, scope: Scope) -> NDArray[np.bool_]:
        """Where intervals can be trusted, without labels."""

    @property
    @abstractmethod
    def _non_negative(self) -> bool:
        """Whether all means are promised to be ≥ 0."""

    @abstractmethod
    def _sum_variance(self, parts: Sequence[tuple[Scope, Array]]) -> float:
        """Variance of a weighted sum of entries, given tables and flat weights."""

    @property
    def _largest(self) -> float:
        """The largest number of individuals that is not out of the question."""
        return float(self.population.values[-1])

    def interval_tables(self, scope: Scope, level: float) -> tuple[Array, ...]:
        """Lower and upper ends without labels."""
        return self.quantile_tables(scope, tails(level))

    def _summary(self, scope: Scope, level: float) -> Summary:
        """Everything a row of a table says, without labels."""
        low, high = tails(level)
        lower, median, upper = self.quantile_tables(scope, (low, 0.5, high))
        mean, sd = self.mean_table(scope), self.sd_table(scope)
        return Summary(mean, median, sd, lower, upper, self.reliable_table(scope))

    def _labelled(
        self, scope: Scope, values: NDArray[Any], name: str, *, draws: bool = False
    ) -> xr.DataArray:
        """A table with the names of variables and states on its axes."""
        import xarray as xr

        coords = {str(v): coordinate(self.states[v]) for v in scope}
        dims = ["draw", *coords] if draws else list(coords)
        return xr.DataArray(values, dims=dims, coords=coords, name=name)

    def node(self, variable: Hashable) -> Estimate:
        """Counts of one variable (for a chain: at one time)."""
        return self.clique(variable)

    def edge(self, u: Hashable, v: Hashable) -> Estimate:
        """Counts of a pair (for a chain: flows between two successive times)."""
        return self.clique(u, v)

    def clique(self, *variables: Hashable) -> Estimate:
        """Counts of any table inside one clique; dates may be named by texts ("2023-03-05", "March 2023")."""
        return Estimate(self, self._scope_of(*variables))

    def total(self, weights: Mapping[Any, Any], *, level: float = 0.9) -> Total:
        """A weighted sum of entries, over one or several tables: ``{variable or scope: array of weights}``.

        Whole weights give a whole median and interval. The interval stays within what the weights allow, so that a sum of counts is
        never negative; that of a single entry is the entry's own.

        Of a posterior from a file, the spread of a single entry is the stored one; that of a sum is the spread of the joint draws in the
        file, whose Monte-Carlo error of about 1/√(2·draws) of itself (7 % of 100 draws) is ``mc_error``.
        """
        low, high = tails(level)
        mean, parts = self._weighed(weights)
        probabilities, variance = (low, 0.5, high), self._sum_variance(parts)
        entries = [(scope, k, float(w[k])) for scope, w in parts for k in np.flatnonzero(w).tolist()]
        if len(entries) == 1:  # its own sd, so that a file answers to the last digit as the posterior does
            ((scope, k, weight),) = entries
            sd = abs(weight) * float(dense(self.sd_table(scope)).ravel()[k])
        else:
            sd = float(np.sqrt(max(variance, 0.0)))
        if [weight for *_, weight in entries] == [1.0]:
            ends = [float(table.ravel()[k]) for table in self.quantile_tables(scope, probabilities)]
        else:
            ends = self._sum_quantiles([w for _, w in parts], mean, variance, probabilities)
        lower, median, upper = ends
        return Total(mean, median, sd, lower, upper, float(level), sd * self._sum_error(parts))

    def _weighed(self, weights: Mapping[Any, Any]) -> tuple[float, list[tuple[Scope, Array]]]:
        """The mean of a weighted sum, and its tables with their flat weights."""
        given = instance(weights, Mapping, "weights", expected="{variable or scope: array of weights}")
        if not given:
            raise ModelError("weights is empty: give {variable or scope: array of weights}")
        mean, parts = 0.0, []
        for key, value in given.items():
            several = isinstance(key, tuple) and key not in self.states
            scope = self._scope_of(*(key if several else (key,)))
            expected = self.mean_table(scope)
            flat = _weights(value, key, expected.shape)
            mean += float(flat @ expected.ravel())
            parts.append((scope, flat))
        return mean, parts

    def _sum_error(self, parts: Sequence[tuple[Scope, Array]]) -> float:
        """Relative standard error of a sum's sd that comes from draws; 0 where it does not."""
        return 0.0

    def _sum_quantiles(
        self, parts: list[Array], mean: float, variance: float, probabilities: Sequence[float]
    ) -> list[float]:
        """Quantiles of Σ w n, of a law on the values that the weights allow."""
        low, high = (self._largest * sum(float(f(w)) for w in parts) for f in (np.min, np.max))
        if not self.population.known:
            low, high = min(low, 0.0), max(high, 0.0)
        whole = all((w == np.rint(w)).all() for w in parts)
        return sum_quantiles(
            mean, variance, (low, high), probabilities, bounded=self._non_negative, whole=whole
        )


def _weights(value: Any, key: Any, shape: tuple[int, ...]) -> Array:
    """Weights of all entries of a table, flat; one number stands for all."""
    what, size = f"weights[{shown((key,))}]", " × ".join(map(str, shape))
    found = numbers(value, what, expected=f"one finite number, or a table of {size}")
    if found.shape not in {(), shape} or not np.isfinite(found).all():
        raise ModelError(f"{what} is {brief(value)}: give one finite number, or a table of {size}")
    return np.broadcast_to(found, shape).ravel()
