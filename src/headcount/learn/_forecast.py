"""Counts at future times: what is known of the last ones, moved on.

E n_{t+1}   = Pᵀ E n_t
cov n_{t+1} = Pᵀ cov(n_t) P + Σ_i E[φ_i n_t(i)] (diag p_i − p_i p_iᵀ)   (exact, by total variance; φ = 1 for independent individuals)
            + (∂E n_{t+1}/∂x) C (∂E n_{t+1}/∂x)ᵀ                        (parameters, to first order)

The slope ∂/∂x is that of the future's matrices, the last counts held: that other parameters would also give other last counts is left out
(it takes two E-steps per parameter; `Fit.posterior` of a chain that has the future times includes it).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._types import Array
from headcount.engines import Posterior
from headcount.individual import MarkovChain
from headcount.learn._chains import LogisticChain, TabularChain
from headcount.learn._components import Moves
from headcount.learn._family import Parametrisation, innermost
from headcount.learn._files import saved
from headcount.population import Dispersion, step_moments
from headcount.posterior._interval import count_quantile
from headcount.tables import dense

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


@saved
@dataclass(frozen=True)
class LastCounts:
    """What is known of a chain's last counts."""

    mean: Array
    covariance: Array
    population: int
    dispersion: Dispersion | None = None
    """How individuals go on moving together."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """Expected counts at future times with their spread."""

    times: tuple[Hashable, ...]
    cells: tuple[Hashable, ...]
    values: Array
    variances: Array
    population: int

    @property
    def mean(self) -> xr.DataArray:
        """Expected counts, dims (time, cell)."""
        return self._labelled(self.values, "mean")

    @property
    def sd(self) -> xr.DataArray:
        """Standard deviations."""
        return self._labelled(np.sqrt(np.maximum(self.variances, 0.0)), "sd")

    def interval(self, level: float = 0.9) -> xr.Dataset:
        """Central intervals; the level is in the attributes."""
        import xarray as xr

        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level}")
        ends = [
            count_quantile(self.values, self.variances, float(self.population), q)
            for q in ((1 - level) / 2, (1 + level) / 2)
        ]
        both = {name: self._labelled(v, name) for name, v in zip(("lower", "upper"), ends, strict=True)}
        return xr.Dataset(both, attrs={"level": level})

    def to_frame(self, *, level: float = 0.9) -> pd.DataFrame:
        """Tidy: time, cell, mean, sd, lower, upper."""
        import pandas as pd

        ends = self.interval(level)
        rows = [
            {
                "time": time,
                "cell": cell,
                "mean": self.values[t, c],
                "sd": float(np.sqrt(max(self.variances[t, c], 0.0))),
                "lower": float(ends["lower"].values[t, c]),
                "upper": float(ends["upper"].values[t, c]),
            }
            for t, time in enumerate(self.times)
            for c, cell in enumerate(self.cells)
        ]
        return pd.DataFrame(rows)

    def _labelled(self, values: Array, name: str) -> xr.DataArray:
        import xarray as xr

        axes: dict[str, Any] = {"time": axis_labels(self.times), "cell": axis_labels(self.cells)}
        return xr.DataArray(values, dims=("time", "cell"), coords=axes, name=name)


def axis_labels(labels: Sequence[Hashable]) -> Any:
    if any(isinstance(label, tuple) for label in labels):
        made = np.empty(len(labels), dtype=object)
        made[:] = list(labels)
        return made
    return list(labels)


def moved(last: LastCounts, matrices: Sequence[Array]) -> tuple[Array, Array]:
    """Means (H, L) and covariances (H, L, L) after each of H steps, the parameters taken as known."""
    mean, covariance = last.mean, last.covariance
    means, covariances = [], []
    for p in matrices:
        mean, covariance = step_moments(mean, covariance, p, last.dispersion, None)
        means.append(mean)
        covariances.append(covariance)
    return np.array(means), np.array(covariances)


def forecast(
    last: LastCounts, matrices: Callable[[Array], Sequence[Array]], x: Array, parameters: Array | None
) -> tuple[Array, Array]:
    """Means and variances, (H, L); `parameters` is the covariance of x, None to take x as known."""
    means, covariances = moved(last, matrices(x))
    variances = np.diagonal(covariances, axis1=1, axis2=2).copy()
    if parameters is not None:
        slopes = []
        scale = np.sqrt(np.where(np.isfinite(np.diagonal(parameters)), np.diagonal(parameters), 0.0))
        for k, h in enumerate(np.minimum(0.1 * scale, 0.1)):
            if h == 0:
                slopes.append(np.zeros_like(means))
                continue
            shift = np.zeros_like(x)
            shift[k] = h
            slopes.append(
                (moved(last, matrices(x + shift))[0] - moved(last, matrices(x - shift))[0]) / (2 * h)
            )
        known = np.where(np.isfinite(parameters), parameters, 0.0)
        variances += np.einsum("khl,kj,jhl->hl", np.array(slopes), known, np.array(slopes))
    return means, variances


MOST_SOLVES = 400
"""Cells up to which the covariance of the last counts is kept without matrices: a second or two of solves."""


def last_node(posterior: Posterior) -> LastCounts | None:
    """Mean and covariance of a chain's last counts; the covariance is zero from an engine that gives none.

    None on large maps without matrices, where it takes one solve per cell.
    """
    model = posterior.problem.model
    if not isinstance(model, MarkovChain):
        return None
    scope = (model.times[-1],)
    if posterior.beliefs.mc_error(scope) is not None and len(model.states[scope[0]]) > MOST_SOLVES:
        return None
    mean = np.asarray(posterior.beliefs.mean(scope), dtype=float)
    certain = posterior.beliefs.variance(scope) is None
    covariance = np.zeros((len(mean), len(mean))) if certain else posterior.beliefs.covariance(scope, scope)
    people, together = int(posterior.population.values[-1]), posterior.problem.dispersion
    return LastCounts(mean, np.asarray(covariance, dtype=float), people, together)


def _future_mask(past: Any, given: Any) -> Any:
    """The mask of future steps: as given, else the past's where that is the same at all steps."""
    if given is not None or past is None or np.ndim(past) < 3:
        return past if given is None else given
    tables = np.asarray(past, dtype=float)
    if not (tables == tables[0]).all():
        raise ValueError(
            "which moves are possible changed from step to step: give the mask of the future, mask=(L, L) or (H, L, L)"
        )
    return tables[0]


def future(
    setting: Parametrisation,
    template: MarkovChain,
    times: tuple[Hashable, ...],
    features: Any,
    mask: Any,
) -> Callable[[Array], list[Any]]:
    """The matrices of the steps between these times (the last of the past first), by parameters."""
    inner = innermost(setting)
    if features is not None or mask is not None:
        if not isinstance(inner, LogisticChain):
            raise ValueError("only a LogisticChain has features")
        features = inner.features if features is None else features
        inner = replace(inner, features=features, mask=_future_mask(inner.mask, mask))
    elif isinstance(inner, LogisticChain) and inner._linear.features_by_step:  # type: ignore[attr-defined]
        raise ValueError(
            "the transitions change with time: give the features of the future, features=(H, K, L, L)"
        )
    elif isinstance(inner, TabularChain) and not inner.homogeneous:
        raise ValueError(
            "the transitions change with time, one matrix per step: none is known for the future"
        )
    cells = len(template.cells)
    blank = MarkovChain(None, np.full((cells, cells), 1 / cells), times=times, cells=template.cells)
    moves = inner.bind(blank).find(Moves)  # type: ignore[type-abstract]
    assert moves is not None

    def matrices(x: Array) -> list[Any]:
        made = moves.component.matrices(x[moves.where])
        return [dense(m) for m in made] if isinstance(made, list) else [dense(made)] * (len(times) - 1)

    return matrices


def ahead(steps: int | None, features: Any, times: Sequence[Hashable] | None) -> int:
    """How many steps a forecast goes."""
    by_step = getattr(features, "ndim", 0) == 4 or (features is not None and np.ndim(features) == 4)
    if by_step:
        return len(features)
    if steps is None and times is not None:
        return len(times)
    if steps is None or steps < 1:
        if features is not None:
            raise ValueError("features of one step are given: say how many steps")
        raise ValueError(f"steps is {steps!r}: give a whole number ≥ 1")
    return steps


def following(known: Sequence[Hashable], steps: int) -> tuple[Hashable, ...]:
    """Names of the times after the last: counted on where they are evenly spaced numbers or dates."""
    last = known[-1]
    spaced = (int, float, np.integer, np.floating, np.datetime64, dt.date)
    if len(known) > 1 and isinstance(last, spaced) and isinstance(known[-2], spaced):
        gap = last - known[-2]  # type: ignore[operator]
        return tuple(last + (k + 1) * gap for k in range(steps))  # type: ignore[operator]
    if isinstance(last, (int, np.integer)):
        return tuple(int(last) + k + 1 for k in range(steps))
    return tuple(f"+{k + 1}" for k in range(steps))
