"""The result: labelled estimates with standard errors, how they were got, and forecasts that follow from them.

A forecast moves on what is known of the last counts:

E n_{t+1}   = Pᵀ E n_t
cov n_{t+1} = Pᵀ cov(n_t) P + Σ_i E[φ_i n_t(i)] (diag p_i − p_i p_iᵀ)   (exact, by total variance; φ = 1 for independent individuals)
            + (∂E n_{t+1}/∂x) C (∂E n_{t+1}/∂x)ᵀ                        (parameters, to first order)

The slope ∂/∂x is that of the future's matrices, the last counts held: that other parameters would also give other last counts is left out
(it takes two E-steps per parameter; ``fit.going().update(problem)`` of a problem without counts includes it).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._html import card
from headcount._types import Array
from headcount.checks import two_digits
from headcount.dates import zoned_moment
from headcount.engines import Posterior, Status
from headcount.individual import MarkovChain, Model
from headcount.labels import coordinate
from headcount.learn._chains import LogisticChain, TabularChain
from headcount.learn._climb import Optimum
from headcount.learn._components import Moves, Weights
from headcount.learn._family import (
    Family,
    Natural,
    Parametrisation,
    innermost,
    interval,
    standard_errors,
    with_innermost,
)
from headcount.learn._files import Saved, read, write
from headcount.learn._going import Going
from headcount.learn._uncertainty import Direction, Information
from headcount.observe import Problem
from headcount.population import Dispersion, DispersionEstimate, as_dispersion, step_moments
from headcount.posterior import FitCheck, IntegratedBeliefs, MixtureBeliefs
from headcount.posterior.interval import count_quantile, quantiles, tails
from headcount.tables import Scope, dense

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from headcount.learn._neutral import Integral

MOST_SOLVES = 400
"""Cells up to which the covariance of the last counts is kept without matrices: a second or two of solves."""
FILE_KIND = "headcount fit"
"""What a fit's file says that it is."""
_SHOWN_ESTIMATES = 12
"""Rows of estimates that a notebook shows."""
FARTHEST = 1e3
"""Standard errors from the maximum up to which the distance is said: further off the standard error is that of next to no information."""
SLOPE_STEP = 0.1
"""Difference step of a forecast's slope, in standard errors of the parameter, and its longest on the scale of weights and log-odds: a
central difference of a logistic curve over ±h errs by a share of h²/6, here below 0.2 %."""


@dataclass(frozen=True)
class LastCounts(Saved):
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

        people = float(self.population)
        lower, upper = (count_quantile(self.values, self.variances, people, q) for q in tails(level))
        both = {"lower": self._labelled(lower, "lower"), "upper": self._labelled(upper, "upper")}
        return xr.Dataset(both, attrs={"level": level})

    def to_frame(self, *, level: float = 0.9) -> pd.DataFrame:
        """Tidy: time, cell, mean, sd, lower, upper."""
        import pandas as pd

        ends = self.interval(level)
        times = [time for time in self.times for _ in self.cells]
        rows = pd.DataFrame({"time": times, "cell": list(self.cells) * len(self.times)})
        tables = {"mean": self.mean, "sd": self.sd, "lower": ends["lower"], "upper": ends["upper"]}
        return rows.assign(**{name: table.values.ravel() for name, table in tables.items()})

    def _labelled(self, values: Array, name: str) -> xr.DataArray:
        import xarray as xr

        axes = {"time": coordinate(self.times), "cell": coordinate(self.cells)}
        return xr.DataArray(values, dims=("time", "cell"), coords=axes, name=name)


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
        scale = np.sqrt(np.where(np.isfinite(np.diagonal(parameters)), np.diagonal(parameters), 0.0))
        steps = np.minimum(SLOPE_STEP * scale, SLOPE_STEP)
        slopes = np.zeros((len(x), *means.shape))
        for k in np.flatnonzero(steps):
            shift = steps[k] * np.eye(len(x))[k]
            up, down = (moved(last, matrices(x + side))[0] for side in (shift, -shift))
            slopes[k] = (up - down) / (2 * steps[k])
        known = np.where(np.isfinite(parameters), parameters, 0.0)
        variances += np.einsum("khl,kj,jhl->hl", slopes, known, slopes)
    return means, variances


def last_node(posterior: Posterior) -> LastCounts | None:
    """Mean and covariance of a chain's last counts; the covariance is zero from an engine that gives none.

    None on large maps without matrices, where it takes one solve per cell.
    """
    model = posterior.problem.model.as_chain()
    if model is None:
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
    if features is not None and np.ndim(features) == 4:
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
    before, moment = (zoned_moment(t) if isinstance(t, str) else None for t in (known[0], *known)[-2:])
    if before is not None and moment is not None:  # times with a zone, as files have them
        return tuple((moment + (k + 1) * (moment - before)).isoformat() for k in range(steps))
    if isinstance(last, (int, np.integer)):
        return tuple(int(last) + k + 1 for k in range(steps))
    return tuple(f"+{k + 1}" for k in range(steps))


def distance(residual: float) -> str:
    """How far from the maximum a search ended, in words: a number only where a standard error is one."""
    if residual <= FARTHEST:
        return f"{residual:.2g} standard errors from the maximum, about {0.5 * residual**2:.2g} nats below it"
    return "where the evidence still rises along a direction that complete counts would hardly tell: a parameter is running off"


class FitNotConvergedError(RuntimeError):
    """A fit did not reach its maximum. What was reached is in :attr:`fit`."""

    def __init__(self, made: Fit, tolerance: float) -> None:
        self.fit, self.status = made, made.status
        last = made.rows[-1]
        super().__init__(
            f"fit by {made.method} with {made.engine} did not converge: {made.status.value} after {last['iteration']} "
            f"iterations ({made.e_steps} E-steps), {distance(last['residual'])} (asked: {tolerance:.3g} standard errors). "
            f"Raise max_iterations, or look at .fit.trace and .fit.notes: {'; '.join(made.notes) or 'none'}. "
            "To take the estimate all the same, call fit(..., strict=False)."
        )


@dataclass(frozen=True, eq=False)
class Fit(Saved):
    """Parameters learned from counts.

    Attributes
    ----------
    working
        The estimate on the scale of the search (weights; log-odds; log rates), in the order of `names`.
    evidence, log_prior
        log p(y) at the estimate, as the engine approximates it (NaN where it gives none), and the prior's part. It is what the search
        maximises. ``fit.posterior.log_evidence`` is another number where the posterior is integrated over an unknown initial distribution.
    status, notes
        How the search ended, and what a reader should know: falls of the evidence, directions that are not
        identified, counts below zero.
    information
        Observed information, covariance and unidentified directions; None when not asked for.
    plug_ins
        The posteriors at the estimate, as if it were the truth, one per problem; empty for a fit that was read from a file.
    """

    parametrisations: tuple[Parametrisation, ...]
    templates: tuple[Model, ...]
    working: Array
    evidence: float
    log_prior: float
    status: Status
    notes: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    information: Information | None
    method: str
    engine: str
    start: str
    e_steps: int
    seconds: float
    data: str
    """Fingerprint of the data, so that only fits of the same data are compared."""
    last: tuple[LastCounts | None, ...] = ()
    optima: tuple[Optimum, ...] = ()
    """Distinct maxima that the search for a start found, the best first; empty where a start was given."""
    searched: int = 0
    """MAP E-steps that the search spent on other starts; they are not among ``e_steps``."""
    dispersion: DispersionEstimate | None = None
    """How individuals move together, where that was learned, too."""
    plug_ins: tuple[Posterior, ...] = field(default=(), repr=False, metadata={"saved": False})
    integrate: Callable[[], tuple[Posterior, ...]] | None = field(
        default=None, repr=False, metadata={"saved": False}
    )
    """Makes `posteriors`; None where they are the plug-ins."""
    shrinkage: Mapping[str, float] = field(default_factory=dict)
    """Strengths of the priors that were learned: individuals per row for matrices, standard deviations for weights."""

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{n}={v:.4g}" for n, v in list(zip(self.natural.names, self.natural.values, strict=True))[:6]
        )
        more = ", …" if len(self.natural.names) > 6 else ""
        return f"<Fit by {self.method} with {self.engine}: {self.status.value}, evidence {self.evidence:.6g}, {shown}{more}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: how the search went, what a reader should know, and the first estimates."""
        table = self.table().head(_SHOWN_ESTIMATES)
        numbers = [c for c in table.columns if c != "parameter"]
        rows = [
            [str(row["parameter"]), *(f"{row[c]:.4g}" for c in numbers)] for row in table.to_dict("records")
        ]
        facts = {
            "status": f"{self.status.value}: {self.method} with {self.engine}, {self.e_steps} E-steps, {two_digits(self.seconds)} s",
            "log evidence": f"{self.evidence:.6g}",
            "parameters": len(self.natural.names),
            "note": "; ".join(self.notes),
            "ask": "fit.table(), fit.weights, fit.posterior, fit.forecast(…), fit.trace",
        }
        return card("Fit", facts, table=(["parameter", *numbers], rows), caption="estimates")

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """The families of models, one per problem."""
        return tuple(p.bind(t) for p, t in zip(self.parametrisations, self.templates, strict=True))

    @cached_property
    def natural(self) -> Natural:
        """Estimates on the scales people use, with their Jacobian."""
        return self.families[0].natural(self.working)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the working parameters."""
        return self.families[0].names

    @property
    def parameters(self) -> xr.DataArray:
        """The estimates by name: weights, probabilities, rates."""
        return self._labelled(self.natural.values, "estimate")

    @property
    def weights(self) -> xr.DataArray:
        """A logistic chain's weights, fixed ones included; by class of steps or by step where they vary."""
        import xarray as xr

        inner = innermost(self.parametrisations[0])
        if not isinstance(inner, LogisticChain):
            raise ValueError(f"a {type(inner).__name__} has no weights of features: see .parameters")
        names: Any = inner.names
        part = self.families[0].find(Weights)
        assert part is not None
        linear = part.component.transitions
        free = linear.step_weights(self.working[part.where])
        whole = np.tile([inner.fixed.get(n, np.nan) for n in names], (len(free), 1))
        whole[:, [n not in inner.fixed for n in names]] = free
        if inner.by is None and inner.basis is None:
            return xr.DataArray(whole[0], dims="feature", coords={"feature": list(names)}, name="weights")
        if inner.by is not None and not linear.features_by_step:
            dim, labels = "class", coordinate(inner.classes or ())
        else:
            dim, labels, whole = "step", coordinate(part.component.times[:-1]), whole[linear.kinds]
        coords = {"feature": list(names), dim: labels}
        return xr.DataArray(whole, dims=(dim, "feature"), coords=coords, name="weights")

    @property
    def covariance(self) -> Array:
        """Covariance of the working parameters."""
        return self._known().covariance

    @property
    def standard_errors(self) -> xr.DataArray:
        """Of `parameters`; infinite where the data do not determine them."""
        return self._labelled(standard_errors(self.natural, self._known().covariance), "standard_error")

    def interval(self, level: float = 0.9) -> xr.Dataset:
        """Intervals of `parameters`, symmetric on the scale of weights, log-odds and log rates."""
        import xarray as xr

        errors = standard_errors(self.natural, self._known().covariance)
        lower, upper = interval(self.natural, errors, level)
        both = {"lower": self._labelled(lower, "lower"), "upper": self._labelled(upper, "upper")}
        return xr.Dataset(both, attrs={"level": level})

    @property
    def unidentified(self) -> tuple[Direction, ...]:
        """Directions the data do not determine."""
        return self._known().unidentified

    def _known(self) -> Information:
        if self.information is None:
            raise ValueError("no standard errors were asked for: call fit(..., standard_errors=True)")
        return self.information

    @property
    def trace(self) -> pd.DataFrame:
        """One row per iteration, the start first: evidence, objective, step, residual, decrease, error if truth was given."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    @property
    def models(self) -> tuple[Model, ...]:
        """The fitted models, one per problem."""
        return tuple(f.model(self.working) for f in self.families)

    @property
    def model(self) -> Model:
        """The fitted model of a single problem."""
        return _single(self.models, "models")

    @cached_property
    def posteriors(self) -> tuple[Posterior, ...]:
        """One per problem, the parameters' uncertainty included; inferred when first asked for (two E-steps per parameter)."""
        made = self.plug_ins if self.integrate is None else self.integrate()
        if self.dispersion is not None:
            for posterior in made:
                posterior.outcome.info["dispersion"] = self.dispersion
        return made

    @property
    def posterior(self) -> Posterior:
        """The posterior of a single problem, the parameters' uncertainty included: see `posteriors`."""
        return _single(self.posteriors, "posteriors")

    @property
    def integral(self) -> Integral | None:
        """Draws of the parameters of moves from evidence × a neutral prior (see `fit`); None where a Gaussian describes them.

        It has the prior's words, the effective size, the share that moves in a step, and the ``contraction`` of every answer: near 1 the
        counts tell it, near 0 the prior.
        """
        learned = self.posteriors[0].outcome.learned if self.posteriors else None
        return None if learned is None else learned.integral

    def check_tables(self, on: Mapping[str, Any] | None = None) -> FitCheck:
        """The check of many tables of two margins together, with residuals held against covariates of the tables, too.

        Parameters
        ----------
        on
            ``{name: one number per problem}``. Composition, size and order of the tables are always looked at.
        """
        first = self.posteriors[0]
        learned = first.outcome.learned
        if learned is None or learned.pooled is None:
            raise ValueError("these are not many tables of two exact margins: see .posterior.fit_check")
        for name, values in (on or {}).items():
            if len(values) != len(self.posteriors):
                raise ValueError(
                    f"on[{name!r}] has {len(values)} numbers for {len(self.posteriors)} problems: give one per problem"
                )
        found: FitCheck = learned.pooled(first.problem, learned, self.dispersion, on)
        return found

    @property
    def plug_in(self) -> Posterior:
        """The posterior of a single problem at the estimate, as if that were the truth: its intervals are too narrow."""
        return _single(self.plug_ins, "plug_ins")

    def total(self, *variables: Hashable, level: float = 0.9) -> xr.Dataset:
        r"""One table summed over all problems: mean, sd and interval; for many small tables with known margins, the whole district's.

        The problems' counts are independent given the parameters, which they share, so that with r the responses of `posteriors`

        .. math:: \operatorname{var} \sum_k n_k = \sum_k \operatorname{var}(n_k \mid \hat x) + \sum_s \Bigl(\sum_k r_{ks}\Bigr)^2 .
        """
        import xarray as xr

        first = self.posteriors[0]
        scope, model = first.clique(*variables).scope, first.problem.model
        shape = model.size(scope)
        sizes = {p.problem.model.size(scope) for p in self.posteriors}
        if sizes != {shape}:
            raise ValueError("problems with other cells have no total: see .posteriors")
        mean, own, shared = (
            sum(part) for part in zip(*(_summand(p, scope) for p in self.posteriors), strict=True)
        )
        spread = own + (shared**2).sum(axis=-1).reshape(shape)
        people = float(sum(p.problem.typical_population for p in self.posteriors))
        lower, upper = quantiles(mean, spread, tails(level), bound=people, whole=False)
        coords = {str(v): coordinate(model.states[v]) for v in scope}
        tables = {"mean": mean, "sd": np.sqrt(spread), "lower": lower, "upper": upper}
        return xr.Dataset({n: (tuple(coords), t) for n, t in tables.items()}, coords, {"level": level})

    def apply(self, problem: Problem, *, by: Any = None) -> Problem:
        """Another problem (or the same) under the fitted parameters, as `infer` takes it.

        Parameters
        ----------
        problem
            Other times, counts or population; what is not learned is taken from its model.
        by
            The classes of its steps, where these were given as one label per step.
        """
        setting = self.parametrisations[0]
        inner = innermost(setting)
        if by is not None:
            if not isinstance(inner, (LogisticChain, TabularChain)) or inner.by is None:
                raise ValueError("by is given, but the fit has no classes of steps")
            setting = with_innermost(setting, replace(inner, by=by))
        return setting.bind(problem.model).apply(self.working, problem)

    def going(self, sequence: int = 0) -> Going:
        """Where the fit has ended, to go on from with new counts: ``fit.going().update(problem)`` (see `Going`).

        Last counts and parameters are updated together by the new counts alone; of a problem without counts it is a forecast that includes
        the parameters' uncertainty and what it has to do with the last counts (two runs of the past per parameter, once).
        """
        return Going.of(self, sequence)

    def forecast(
        self,
        steps: int | None = None,
        *,
        features: Any = None,
        mask: Any = None,
        times: Sequence[Hashable] | None = None,
        sequence: int = 0,
        parameters: bool = True,
    ) -> Forecast:
        """Counts at the times after the last: the posterior of the last counts, moved on by the fitted model.

        Parameters
        ----------
        steps
            How many, for a homogeneous chain.
        features
            Future features ``(H, K, L, L)`` of a logistic chain whose features change with time.
        mask
            Log offset of future moves, ``(L, L)`` or one per step; needed where that of the past changes with time.
        times
            Names of the future times; counted on from the last when that is a number.
        sequence
            Of which problem.
        parameters
            Whether the spread includes that of the parameters (when standard errors are known).
        """
        template = self.templates[sequence].as_chain()
        last = self.last[sequence] if self.last else None
        moves = self.families[sequence].find(Moves)  # type: ignore[type-abstract]
        if template is None or moves is None or last is None:
            raise ValueError(
                "only a Markov chain whose last counts were inferred can be forecast; on a large map solved without matrices their "
                "covariance is not kept: infer with the future times in the chain and NaN for their counts"
            )
        if as_dispersion(last.dispersion).by_step:
            raise ValueError(
                "the dispersion is given for past times, and future ones have none: fit with one for all times"
            )
        count = ahead(steps, features, times)
        known = template.times
        later = tuple(times) if times is not None else following(known, count)
        make = future(self.parametrisations[sequence], template, (known[-1], *later), features, mask)
        spread = self.information.covariance if parameters and self.information is not None else None
        values, variances = forecast(last, make, self.working, spread)
        return Forecast(later, tuple(template.cells), values, variances, last.population)

    def table(self, *, level: float = 0.9) -> pd.DataFrame:
        """Estimates, standard errors and intervals, one row per parameter; the dispersion last, if it was learned."""
        import pandas as pd

        made = {"parameter": list(self.natural.names), "estimate": self.natural.values}
        if self.information is not None:
            ends = self.interval(level)
            made |= {
                "standard_error": self.standard_errors.values,
                "lower": ends["lower"].values,
                "upper": ends["upper"].values,
            }
        table = pd.DataFrame(made)
        if self.dispersion is None:
            return table
        found = self.dispersion.at_level(level)
        rows = [
            (one.name, one.value, one.standard_error, one.lower, one.upper) for one in (found, *found.classes)
        ]
        also = pd.DataFrame(rows, columns=["parameter", "estimate", "standard_error", "lower", "upper"])
        return pd.concat([table, also[table.columns]], ignore_index=True)

    def save(self, path: str | Path) -> None:
        """Write everything but the posteriors (save those by themselves), atomically and without pickle."""
        write(path, FILE_KIND, self)

    @classmethod
    def load(cls, path: str | Path) -> Fit:
        """Read what `save` wrote."""
        remedy = "fit again and save, or load it with the headcount that wrote it"
        found: Fit = read(path, FILE_KIND, remedy=remedy)
        return found

    def _labelled(self, values: Array, name: str) -> xr.DataArray:
        import xarray as xr

        return xr.DataArray(
            values, dims="parameter", coords={"parameter": list(self.natural.names)}, name=name
        )


def _summand(posterior: Posterior, scope: Scope) -> tuple[Array, Array, Array]:
    """A table's mean, its variance given the parameters (NaN without one), and its responses to them, shape (entries, columns)."""
    beliefs = posterior.beliefs
    mean = np.asarray(dense(beliefs.mean(scope)))
    response = np.zeros((mean.size, 1))
    if isinstance(beliefs, IntegratedBeliefs):
        response, beliefs = beliefs.response(scope), beliefs.base
    variance = beliefs.variance(scope)
    own = np.full(mean.shape, np.nan) if variance is None else np.asarray(dense(variance))
    if isinstance(
        beliefs, MixtureBeliefs
    ):  # problems share the draws of the parameters, or the maxima: deviations of parts add up
        apart = np.array([np.ravel(dense(part.mean(scope))) for part in beliefs.parts]) - mean.ravel()
        response = (np.sqrt(beliefs.weights)[:, None] * apart).T
        own = own - (response**2).sum(axis=1).reshape(mean.shape)
    return mean, own, response


def _single(found: Sequence[Any], what: str) -> Any:
    if len(found) != 1:
        raise ValueError(f"there are {len(found)} {what}: use .{what}")
    return found[0]


def compare(fits: Mapping[str, Fit] | Sequence[Fit]) -> pd.DataFrame:
    """Fits of the same data side by side, most evidence first.

    ``difference`` is the evidence less the best one's; ``akaike`` is the evidence less the number of parameters.
    In both, larger is better.

    Raises
    ------
    ValueError
        If the fits are not of the same data, or not by the same engine: their evidences mean different things.
    """
    import pandas as pd

    named = dict(fits) if isinstance(fits, Mapping) else {str(k): f for k, f in enumerate(fits)}
    if len({f.data for f in named.values()}) > 1:
        raise ValueError("the fits are of different data: only evidences of the same counts can be compared")
    if len({f.engine for f in named.values()}) > 1:
        engines = sorted({f.engine for f in named.values()})
        raise ValueError(
            f"the fits are by {' and '.join(engines)}: fit all with the same engine to compare evidences"
        )
    rows = [
        {
            "fit": name,
            "evidence": f.evidence,
            "parameters": len(f.working),
            "akaike": f.evidence - len(f.working),
            "status": f.status.value,
        }
        for name, f in named.items()
    ]
    table = pd.DataFrame(rows).sort_values("evidence", ascending=False, ignore_index=True)
    table.insert(2, "difference", table["evidence"] - table["evidence"].max())
    return table
