r"""A fit that goes on: parameters and last counts, known together up to a Gaussian, and updated by new counts alone.

After the past the parameters are :math:`x = \hat x + S u`, :math:`u \sim N(0, 1)`, and the last counts given u have the mean :math:`m + R
u` and the covariance V: R is how they would differ had the parameters been others, the cross term. New counts y have the evidence
:math:`\log p(y | u)`, with slope g from two runs per column of S, and the information
:math:`H = G^\top \Sigma^{-1} G` from the mean (slope G) and the covariance :math:`\Sigma` that y is forecast to have. So

.. math:: u | y \sim N(\hat u, A^{-1}), \quad A = 1 + H, \quad \hat u = A^{-1} g; \qquad
    x' = \hat x + S\hat u, \quad S' = S A^{-1/2}, \quad r' = r A^{-1/2},

with r the change of any table's mean per unit of u: `IntegratedBeliefs`, and the R of the next update. Without counts g = H = 0, and this
is a forecast. Every update costs 2 runs of the new steps per parameter, and two more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._types import Array, Scope
from headcount.engines import Engine, Posterior, run
from headcount.errors import shown
from headcount.learn._components import Initial, with_even_initial
from headcount.learn._dispersion import estimate_for
from headcount.learn._family import Family, Parametrisation, standard_errors
from headcount.learn._uncertainty import spread_columns
from headcount.observe import LearnedStart, Problem
from headcount.posterior import IntegratedBeliefs
from headcount.posterior._last import last_counts
from headcount.posterior.fit_check import counts_of
from headcount.tables import dense

if TYPE_CHECKING:
    import pandas as pd

    from headcount.learn._result import Fit

LEFT = 0.5
"""Share of every expected last count that is left at both ends of a column: a step of one standard deviation is shortened to it."""
MOST_COLUMNS = 60
"""Parameters up to which a fit goes on: 120 runs of the new steps."""


@dataclass(frozen=True, eq=False)
class Going:
    """Where a fit is: its parameters, the last counts, and what both have to do with each other.

    Attributes
    ----------
    past
        The parameters and the last counts, as a file holds them (`headcount.observe.LearnedStart`).
    posterior
        Of the times of the last update, the parameters' uncertainty included; of the fit itself at first.
    """

    setting: Parametrisation = field(repr=False)
    past: LearnedStart
    posterior: Posterior

    @classmethod
    def of(cls, fit: Fit, sequence: int = 0) -> Going:
        """Where a fit has ended.

        Raises
        ------
        ValueError
            For a fit without standard errors, one that was read from a file, or one with very many parameters.
        """
        if not fit.plug_ins or fit.information is None:
            raise ValueError(
                "a fit goes on from its posterior and its standard errors: fit with standard_errors=True, in this session (a file has "
                "neither)"
            )
        setting, family = fit.parametrisations[sequence], fit.families[sequence]
        initial = family.find(Initial)
        apart = () if initial is None or fit.templates[sequence].initial_known else initial.where.tolist()
        spread = spread_columns(fit.information, len(fit.working), apart)
        if spread.shape[1] > MOST_COLUMNS:
            raise ValueError(
                f"{spread.shape[1]} parameters would take twice as many runs of every update: the most is {MOST_COLUMNS}; go on with the "
                "parameters as they are, hc.infer(fit.apply(problem), start=fit.plug_in)"
            )
        here = fit.plug_ins[sequence]
        ends = [
            [
                last_counts(run(family.apply(fit.working + side * column, here.problem), fit.engine)).mean
                for side in (1.0, -1.0)
            ]
            for column in spread.T
        ]
        start = last_counts(here)
        response = np.array([0.5 * (up - down) for up, down in ends]).reshape(-1, len(start.mean)).T
        kept = np.setdiff1d(
            np.arange(len(fit.working)), apart
        )  # the first counts of the past begin nothing later
        names = tuple(np.array(family.names, dtype=object)[kept])
        return cls(setting, LearnedStart(names, fit.working[kept], spread[kept], start, response), here)

    def table(self) -> pd.DataFrame:
        """The parameters: ``parameter, estimate, standard_error``, on their natural scale."""
        import pandas as pd

        past = self.past
        natural = self.setting.bind(_known_initial(self.posterior.problem).model).natural(past.working)
        errors = standard_errors(natural, past.spread @ past.spread.T)
        return pd.DataFrame(
            {"parameter": list(natural.names), "estimate": natural.values, "standard_error": errors}
        )

    def update(
        self,
        problem: Problem,
        engine: Engine | str | None = None,
        *,
        setting: Parametrisation | None = None,
    ) -> Going:
        """Go on with a problem whose chain begins at the last time: its counts update last counts and parameters together.

        Without observations this is a forecast: its ``posterior`` has the parameters' uncertainty with its cross term. ``setting`` is the
        parametrisation of the new steps, with the same parameters, where it is not that of the past: other features.
        """
        return Going.after(self.past, self.setting if setting is None else setting, problem, engine)

    @classmethod
    def after(
        cls,
        past: LearnedStart,
        setting: Parametrisation,
        problem: Problem,
        engine: Engine | str | None = None,
    ) -> Going:
        """As `update`, from what a file holds: the parametrisation has the parameters of the past, in their order.

        Raises
        ------
        ValueError
            Where its parameters are others.
        """
        blank = _known_initial(problem)
        if blank.together.estimated:
            blank = blank.with_dispersion(estimate_for(blank.after(past.start), engine).used)
        family = _with_parameters(setting.bind(blank.model), past.names)

        def run_at(u: Array) -> Posterior:
            return run(family.apply(past.at(u), blank).after(past.started(u)), engine)

        width = past.spread.shape[1]
        steps = [_step(past, k) for k in range(width)]
        ends = [[run_at(side * h * np.eye(width)[k]) for side in (1.0, -1.0)] for k, h in enumerate(steps)]
        slope, information = _evidence(ends, steps, run_at(np.zeros(width)).problem)
        precision = np.eye(width) + information
        moved = np.asarray(np.linalg.solve(precision, slope), dtype=float)
        base = run_at(moved)
        values, vectors = np.linalg.eigh(precision)
        root = (vectors / np.sqrt(values)) @ vectors.T
        response = partial(_response, [[p.beliefs for p in pair] for pair in ends], steps, root)
        evidence = base.beliefs.log_evidence
        if evidence is not None:
            evidence += -0.5 * float(moved @ moved) - 0.5 * float(np.log(values).sum())
        beliefs = IntegratedBeliefs(base.beliefs, base.problem, response, evidence, base.diagnostics)
        info = base.outcome.info | {"parameters": "learned, their uncertainty included"}
        posterior = Posterior(base.problem, base.settings, replace(base.outcome, beliefs=beliefs, info=info))
        last = [[last_counts(p).mean for p in pair] for pair in ends]
        change = [(up - down) / (2.0 * h) for (up, down), h in zip(last, steps, strict=True)]
        onward = last_counts(base)
        rows = np.array(change).reshape(width, len(onward.mean)).T
        onward_past = LearnedStart(past.names, past.at(moved), past.spread @ root, onward, rows @ root)
        return cls(setting, onward_past, posterior)


def _with_parameters(family: Family, names: Sequence[str]) -> Family:
    """The family, where its parameters have these names."""
    if tuple(family.names) != tuple(names):
        raise ValueError(
            f"the past has the parameters {shown(list(names))}, the new steps {shown(list(family.names))}: give the same, in this order"
        )
    return family


def _known_initial(problem: Problem) -> Problem:
    """The problem with some initial distribution, so that none is learned: the past has the first counts."""
    chain = problem.model.as_chain()
    if chain is None or chain.initial_known:
        return problem
    return with_even_initial(problem)


def _step(past: LearnedStart, k: int) -> float:
    """How much of a standard deviation the ends of a column are away, so that all expected counts stay well above 0."""
    mean = past.start.mean
    share = np.abs(past.response[:, k]) / np.maximum(mean, 1e-12)
    return float(min(1.0, LEFT / max(float(share[mean > 1e-6].max(initial=0.0)), LEFT)))


def _evidence(
    ends: Sequence[Sequence[Posterior]], steps: Sequence[float], problem: Problem
) -> tuple[Array, Array]:
    """g and H; none where nothing was counted."""
    width = len(ends)
    if not problem.sites or not width:
        return np.zeros(width), np.zeros((width, width))
    slope = np.array(
        [
            (up.log_evidence - down.log_evidence) / (2.0 * h)  # type: ignore[operator]
            for (up, down), h in zip(ends, steps, strict=True)
        ]
    )
    every = list(range(len(problem.core.sites)))
    middle = counts_of(problem.core, every)
    if middle is None:
        return slope, np.zeros((width, width))
    sides = [
        [counts_of(p.problem.core, list(range(len(p.problem.core.sites)))) for p in pair] for pair in ends
    ]
    g = np.array([(a.mean - b.mean) / (2.0 * h) for (a, b), h in zip(sides, steps, strict=True)]).T  # type: ignore[union-attr]
    spread = middle.slope[:, None] * middle.cov_n * middle.slope + middle.noise
    return slope, g.T @ np.linalg.pinv(spread, hermitian=True) @ g


def _response(ends: Sequence[Sequence[Any]], steps: Sequence[float], root: Array, scope: Scope) -> Array:
    """r A^(−1/2) of one table, shape (entries, columns)."""
    halves = [
        (np.ravel(dense(up.mean(scope))) - np.ravel(dense(down.mean(scope)))) / (2.0 * h)
        for (up, down), h in zip(ends, steps, strict=True)
    ]
    return np.array(halves).T @ root
