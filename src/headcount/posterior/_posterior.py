"""The result: what an engine learned, under the user's labels, with how it was got."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, replace
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount import memory
from headcount._disk import replacing, write_tree
from headcount._html import card, heat_map
from headcount.checks import generator, label, truth, two_digits, whole_number
from headcount.dates import readable
from headcount.errors import shown
from headcount.labels import meant
from headcount.posterior._answers import Answers, PopulationEstimate
from headcount.posterior._beliefs import GaussianBeliefs, Sizes, Status
from headcount.posterior._draws import drawn_entries
from headcount.posterior._last import far_from_past, last_counts
from headcount.posterior._routes import Individuals
from headcount.posterior._stored import StoredPosterior, load
from headcount.posterior.dataset import draw_groups, observation_coordinates, replicates, save_draws, tree_of
from headcount.posterior.derived import ViewBeliefs, member_sizes, one_group, total_law
from headcount.posterior.doubt import AT_ONCE, EVERYBODY, SHARE, SUMS, flow_doubt, unknown_rate
from headcount.posterior.fit_check import FitCheck, fit_check
from headcount.posterior.interval import quantiles, sd_of, tails
from headcount.posterior.program import clique_entries
from headcount.posterior.result import Result, Summary, by_group, open_frame, pictures, to_frame

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable, Sequence

    import pandas as pd
    import xarray as xr
    from numpy.typing import NDArray

    from headcount._types import Array, Scope
    from headcount.observe import ClosedProblem, Problem, Start
    from headcount.population import DispersionEstimate
    from headcount.posterior._beliefs import NamedEngine, Outcome, Promises

RELIABLE_VARIANCE = 10.0
"""Intervals of cells whose prior variance Nμ(1−μ), in individuals², is below this are marked as not reliable: the rule of thumb
under which a binomial is taken as Gaussian."""

SHOWN_COUNTS = 600
"""Most counts for which printing a posterior computes its check of fit: that takes up to about 0.2 s."""
SHOWN_CELLS = 1_000_000
"""Most entries of all nodes' tables whose means a notebook's card computes for its thumbnail: 8 MB."""


class Posterior(Answers):
    """Counts and flows given the data: labelled means, spreads, intervals and draws, with the status of the run.

    Attributes
    ----------
    problem, outcome
        What was asked, and what the run left.
    states
        Labels of every variable's states.
    settings, engine
        The engine with its settings, and its name.
    beliefs
        The unlabelled answer.
    status
        How the run ended.
    residual
        Distance from the answer at the end, in the engine's own measure.
    seconds
        Wall time of the run.
    """

    def __init__(self, problem: Problem, engine: NamedEngine, outcome: Outcome) -> None:
        self.problem, self.settings, self.outcome = problem, engine, outcome
        self.engine, self.beliefs, self.status = engine.name, outcome.beliefs, outcome.status
        self.residual, self.seconds = outcome.residual, outcome.seconds
        self.states = problem.model.states

    def __repr__(self) -> str:
        text = (
            f"<Posterior by {self.engine}: {self.status.value}, {self.outcome.iterations} iterations, "
            f"residual {self.residual:.2g}, {two_digits(self.seconds)} s"
        )
        return f"{text}. {self.fit_check.verdict}>" if self._check_is_cheap else f"{text}>"

    @property
    def _check_is_cheap(self) -> bool:
        return "fit_check" in vars(self) or sum(map(len, self.problem.sites)) <= SHOWN_COUNTS

    def _repr_html_(self) -> str:
        """How it went, whether the data fit, the last time's largest counts, all means."""
        model = self.problem.model
        facts = {
            "engine": self.engine,
            "status": f"{self.status.value}, {self.outcome.iterations} iterations, {two_digits(self.seconds)} s",
            "fit": self.fit_check.verdict if self._check_is_cheap else "ask post.fit_check",
            "log evidence": None if self.log_evidence is None else f"{self.log_evidence:.6g}",
            "ask": "post.node(t), post.edge(t, u), post.total(…), post.plot.flows(t), post.to_frame('flows')",
        }
        thumbnail, sizes = "", [len(model.states[v]) for v in model.variables]
        if len(set(sizes)) == 1 and sum(sizes) <= SHOWN_CELLS:
            means = np.stack([np.asarray(self.beliefs.mean((v,))) for v in model.variables])
            caption = f"expected counts: {len(sizes)} times or variables × {sizes[0]} cells"
            thumbnail = heat_map(means, caption)
        last = model.variables[-1]
        caption, table = f"largest at {readable(last)}", self.node(last).largest()
        return card("Posterior", facts, table=table, caption=caption, thumbnail=thumbnail)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> StoredPosterior:
        """What :meth:`save` or ``headcount infer`` wrote, to be asked for means, spreads, intervals, draws and totals."""
        return load(path)

    @cached_property
    def plot(self) -> Any:
        """Pictures: ``post.plot.counts()``, ``post.plot.flows(5)``, ``post.plot.net()``, ``post.plot.series()`` and others."""
        return pictures(Result.of(self))

    @property
    def trace(self) -> pd.DataFrame:
        """One row per iteration."""
        import pandas as pd

        return pd.DataFrame(list(self.outcome.trace) or {"iteration": []})

    @property
    def log_evidence(self) -> float | None:
        """log p(y), as the engine approximates it; None where it does not."""
        found = self.beliefs.log_evidence
        return None if found is None else float(found + self.problem.log_offset)

    @property
    def diagnostics(self) -> Mapping[str, Any]:
        """What the engine has to say about itself (R-hat, Monte-Carlo error, duality gap …)."""
        return self.beliefs.diagnostics

    @property
    def promises(self) -> Promises:
        """Which promises hold of the means."""
        return self.beliefs.promises

    @property
    def dispersion_estimate(self) -> DispersionEstimate | None:
        """How individuals move together, where that was estimated (``dispersion="estimate"``); None where it was given."""
        return self.outcome.info.get("dispersion")

    @cached_property
    def last(self) -> Start:
        """The counts at the last time, mean and covariance: where a later run goes on (``hc.infer(problem, start=post)``)."""
        return last_counts(self)

    def update(self, counts: Any, **options: Any) -> Posterior:
        """Go on with the counts of later times: see `headcount.learn.update`, which lies above this package."""
        made: Posterior = import_module("headcount.learn").update(self, counts, **options)
        return made

    def forecast(self, steps: int | None = None, **options: Any) -> Posterior:
        """Counts and flows after the last time, of which nothing was seen: see `headcount.learn.forecast`."""
        made: Posterior = import_module("headcount.learn").forecast(self, steps, **options)
        return made

    @cached_property
    def fit_check(self) -> FitCheck:
        """Whether the data agree with the model: residuals, PIT, dispersion, and a verdict in words. Computed when first asked for."""
        problem, core = self._at_found_sizes(self.problem)
        sizes = sum(not law.is_known for _, law in self.problem.kinds.values())
        found = fit_check(
            problem, core=core, learned=self.outcome.learned, estimate=self.dispersion_estimate, sizes=sizes
        )
        rate = unknown_rate(self.problem, self.population.mean)
        for doubt, advice in ((EVERYBODY if rate else "", SHARE), (far_from_past(self), AT_ONCE)):
            if doubt:
                found = replace(
                    found,
                    agrees=None if found.agrees else found.agrees,
                    verdict=f"{doubt[0].upper()}{doubt[1:]}. {advice}. {found.verdict}",
                    doubts=(doubt, *found.doubts),
                    advice=(advice, *found.advice),
                )
        if found.agrees and found.churn is not None and self._few_in_flows():
            words = f"{found.verdict} {SUMS.words[0].upper()}{SUMS.words[1:]}: {SUMS.call}."
            found = replace(found, verdict=words, advice=(*found.advice, SUMS))
        return found

    def _few_in_flows(self) -> bool:
        """Whether most flows of a chain that can be anything are too few individuals to be called reliable."""
        model = self.problem.model
        shares = np.concatenate([model.marginal(step).ravel() for step in pairwise(model.variables)])
        return bool(np.mean(self._varies(shares[(shares > 0) & (shares < 1)])) < 0.5)

    def _varies(self, mu: Array) -> NDArray[np.bool_]:
        """Whether the binomial of an entry is near a Gaussian: that of flocks."""
        units = self.population.mean / self.problem.together.flock_size
        return np.asarray(units * mu * (1 - mu) >= RELIABLE_VARIANCE)

    def _at_found_sizes(self, problem: Problem) -> tuple[Problem, ClosedProblem | None]:
        """A problem like this posterior's with the sizes that were found in place of those that are not known.

        Also the same on its larger graph; None where it has none: also of flocks, whose moments are a multiple of those of individuals.
        """
        simple = problem.groups is None and not (
            problem.tracks or problem.model.has_hidden_states or problem.start
        )
        if simple:
            known = problem.size_known
            return problem if known else problem.with_population(max(1, round(self.population.mean))), None
        core = (problem.with_dispersion(None) if problem.together.estimated else problem).core
        return problem, core if core.numbers is None else core.with_numbers(member_sizes(self.beliefs))

    @cached_property
    def population(self) -> PopulationEstimate:
        """The number of individuals: mean, sd, interval; N itself where it was given."""
        given = self.problem.population
        if isinstance(given, int):
            return PopulationEstimate.of(Sizes(np.array([float(given)]), np.ones(1)), known=True, point=False)
        sizes = self.beliefs.sizes
        if sizes is None:
            sizes = total_law(self.beliefs, self.problem.model.variables[:1], given)
        note = self.diagnostics.get("size_note", "")  # what the data leave open about it
        if unknown_rate(self.problem, sizes.mean):
            note = f"{EVERYBODY[0].upper()}{EVERYBODY[1:]}. {note}"
        return PopulationEstimate.of(sizes, known=False, point=not self.beliefs.has_spread, note=note)

    def more_draws(self, draws: int, *, client: Any = None) -> Posterior:
        """The same posterior with so many draws more behind its sds and evidence, without inferring again.

        For runs without matrices, whose sds carry Monte-Carlo error: d times the draws divide it by √d. Everything else stays.
        With ``client`` (a Dask client, or a scheduler's address) they are made on its workers, block by block; only sums
        travel back, and the answer is the same as here.

        Examples
        --------
        >>> import headcount as hc
        >>> world = hc.simulate.birds(side=4, population=480, steps=4, rng=1)
        >>> problem = hc.Problem(world.model, 480, hc.Poisson(world.observed))
        >>> post = hc.infer(problem, hc.engines.TiltedEP(structure="matrix-free", final_draws=32))
        >>> more = post.more_draws(96)
        >>> bool(more.to_frame()["mc_error"].mean() < 0.7 * post.to_frame()["mc_error"].mean())
        True
        """
        count = whole_number(draws, "draws", least=1)
        beliefs = self.beliefs
        own = beliefs.base if isinstance(beliefs, ViewBeliefs) else beliefs
        if not isinstance(own, GaussianBeliefs) or own.field.log_z is None:
            raise ValueError(
                f"the sds of this run by {self.engine} carry no error of draws: only a run without matrices "
                '(TiltedEP(structure="matrix-free")) can be given more'
            )
        more: Any = own.more_draws(count, client)
        if isinstance(beliefs, ViewBeliefs):
            more = replace(beliefs, base=more, log_evidence=more.log_evidence, diagnostics=more.diagnostics)
        return Posterior(self.problem, self.settings, replace(self.outcome, beliefs=more))

    def arrivals(self, *, level: float = 0.9) -> pd.DataFrame:
        """Individuals of an `OpenChain` that came, by the time and cell where they were first.

        Columns ``time, cell, mean, median, sd, lower, upper``.
        """
        return open_frame(self, "arrivals", level=level)

    def departures(self, *, level: float = 0.9) -> pd.DataFrame:
        """Individuals of an `OpenChain` that left, by the time and cell where they were last."""
        return open_frame(self, "departures", level=level)

    def survivors(self, *, level: float = 0.9) -> pd.DataFrame:
        """Individuals of an `OpenChain` that stayed for the next step, by the time and cell where they were."""
        return open_frame(self, "survivors", level=level)

    def group(self, name: Hashable) -> Posterior:
        """One group of a problem with several: a posterior of its own counts and flows, with everything that one can be asked.

        Of a problem with counted `Tracks`, the followed individuals are groups too, by their id.
        """
        problem, beliefs = one_group(self.problem, self.beliefs, label(name, "name"))
        return Posterior(problem, self.settings, replace(self.outcome, beliefs=beliefs))

    def _scope_of(self, *variables: Hashable) -> Scope:
        """The variables of a table, in the order given: inside one clique, or any where the beliefs reach further."""
        model = self.problem.model
        scope = model.scope([meant(v, model.variables) for v in variables])
        if model.junction_tree.covering(scope) is None and not self.beliefs.any_table:
            message = (
                f"{shown(variables)} do not lie inside one clique of the model; their joint counts are not part of the "
                "posterior. For a covariance between two parts use post.node(a).covariance(post.node(b))"
            )
            raise ValueError(message)
        return scope

    @property
    def _non_negative(self) -> bool:
        """Whether all means are promised to be ≥ 0."""
        return self.promises.non_negative

    def _sum_variance(self, parts: Sequence[tuple[Scope, Array]]) -> float:
        """Σ w cov(n_s, n_t) x over all pairs of tables."""
        return self.beliefs.sum_variance(parts)

    def sample(
        self, size: int, *, rng: np.random.Generator | int, integer: bool = False
    ) -> dict[Scope, xr.DataArray]:
        """Joint draws of all clique tables; ``integer`` gives whole numbers ≥ 0 that agree on everything they share."""
        count = self._affordable(size)
        draws = self.beliefs.sample(count, rng=generator(rng), integer=truth(integer, "integer"))
        return {c: self._labelled(c, d, "counts", draws=True) for c, d in draws.items()}

    def _affordable(self, size: int) -> int:
        """A number of joint draws, if their tables fit in memory."""
        count, model = whole_number(size, "size", least=1), self.problem.model
        remedy = "ask for fewer at once, or write them to a file with post.save_draws(path, draws)"
        memory.require(8 * count * clique_entries(model), f"{count} joint draws of all tables", remedy=remedy)
        return count

    def _individuals(self) -> Individuals:
        """An individual taken at random: what routes, scores of tracks and connectivity are made of."""
        return Individuals.of(self)

    def predictive(self, size: int, *, rng: np.random.Generator | int) -> xr.DataArray:
        """Draws of replicate data, dims ``draw, observation``: what would be counted again if this posterior is right.

        Every count has its ``name`` and, where it is one entry of one variable's table, its time and cell along ``observation``.

        Raises
        ------
        ValueError
            If the engine gives no draws.
        NotImplementedError
            If a noise has no ``sample``.
        """
        import xarray as xr

        rng, count = generator(rng), self._affordable(size)
        tables = self.beliefs.sample(count, rng=rng, integer=self._non_negative)
        again = replicates(self.problem, drawn_entries(self.problem.sites, tables), rng)
        coords = observation_coordinates(self.problem)
        return xr.DataArray(again, dims=("draw", "observation"), coords=coords, name="y")

    def _summary(self, scope: Scope, level: float) -> Summary:
        """Everything a row of a table says, without labels, each part computed once."""
        mean, variance = self.beliefs.mean(scope), self.beliefs.variance(scope)
        return self._summary_of(mean, variance, self.problem.model.marginal(scope), level, scope=scope)

    def _summary_of(
        self, mean: Array, variance: Array | None, mu: Array, level: float, *, scope: Scope | None = None
    ) -> Summary:
        """The same of any counts, given their moments and prior probabilities; ``scope`` where they are entries of a table."""
        return Summary(
            **self._spread_of(mean, variance, level, scope=scope), reliable=self._reliable_where(mu, scope)
        )

    def _spread_of(
        self, mean: Array, variance: Array | None, level: float, *, scope: Scope | None = None
    ) -> dict[str, Array]:
        """Mean, median, sd and interval of any counts, given their moments."""
        low, high = tails(level)
        lower, median, upper = self._quantiles_of(mean, variance, (low, 0.5, high), scope=scope)
        sd = sd_of(variance, mean.shape)
        return {"mean": mean, "median": median, "sd": sd, "lower": lower, "upper": upper}

    def mean_table(self, scope: Scope) -> Array:
        """Expected counts without labels."""
        return self.beliefs.mean(scope)

    def sd_table(self, scope: Scope) -> Array:
        """Standard deviations without labels; NaN from an engine that gives none."""
        return sd_of(self.beliefs.variance(scope), self.problem.model.size(scope))

    def quantile_tables(
        self, scope: Scope, probabilities: Sequence[float], *, whole: bool = True
    ) -> tuple[Array, ...]:
        """Quantiles of every entry without labels, one table per probability; NaN from an engine without spread."""
        mean, variance = self.beliefs.mean(scope), self.beliefs.variance(scope)
        return self._quantiles_of(mean, variance, probabilities, scope=scope, whole=whole)

    def _quantiles_of(
        self,
        mean: Array,
        variance: Array | None,
        probabilities: Sequence[float],
        *,
        scope: Scope | None = None,
        whole: bool = True,
    ) -> tuple[Array, ...]:
        """Quantiles of any counts, given their moments; the engine's own where it has them of the table that they are entries of."""
        if variance is None:
            return tuple(np.full(mean.shape, np.nan) for _ in probabilities)
        if scope is not None and whole:
            known = [table for q in probabilities if (table := self.beliefs.quantile(scope, q)) is not None]
            if known:
                return tuple(known)
        bound = self._largest if self._non_negative else None
        return quantiles(mean, variance, probabilities, bound=bound, whole=whole)

    def reliable_table(self, scope: Scope) -> NDArray[np.bool_]:
        """Where intervals can be trusted, without labels.

        Nowhere if a promise about the means does not hold; only where the model leaves no choice if the data disagree with it, or if
        their agreement would say nothing.
        """
        return self._reliable_where(self.problem.model.marginal(scope), scope)

    def _reliable_where(self, mu: Array, scope: Scope | None = None) -> NDArray[np.bool_]:
        """The same for any entries, given their prior probabilities; ``scope`` where they are entries of a table."""
        size = mu.shape
        sampled = self.status in {Status.SAMPLED, Status.EXACT} and self.engine != "ClosedForm"
        if not sampled and not (self.status.good and self.beliefs.has_spread and all(astuple(self.promises))):
            return np.zeros(size, bool)
        fits = self.fit_check.agrees is not False and not self.fit_check.doubts
        if len(scope or ()) > 1:
            fits = fits and not flow_doubt(self.problem, self.dispersion_estimate)
        if sampled and fits:
            return np.ones(size, bool)
        certain = (mu == 0) | (mu == 1)
        if not fits:
            return np.asarray(certain)
        return np.asarray(certain | self._varies(mu))

    def to_frame(self, what: str = "nodes", *, level: float = 0.9) -> pd.DataFrame:
        """Tidy table of ``"nodes"`` or ``"flows"`` with mean, sd, interval and reliability.

        Of a problem with groups, one row per group: the column ``group`` says which (what was seen is their sum, so there is no
        column ``observed``).
        """
        if self.problem.groups is not None:
            return by_group(
                {name: self.group(name).to_frame(what, level=level) for name in self.problem.groups}
            )
        return to_frame(self, what, level=level)

    def to_xarray(
        self, *, level: float = 0.9, draws: int | None = None, draw_flows: bool = False
    ) -> xr.DataTree:
        """Everything as one tree of labelled arrays, in ArviZ's groups.

        Parameters
        ----------
        level
            Of the intervals.
        draws
            Joint draws in ``posterior``, ``posterior_predictive`` and ``log_likelihood``; None takes 100, or as many as memory
            allows; 0 none.
        draw_flows
            Whether flows (tables on two variables) are among the draws too.
        """
        count = None if draws is None else whole_number(draws, "draws")
        made = draw_groups(self, draws=count, flows=truth(draw_flows, "draw_flows"))
        return tree_of(Result.of(self, level=level), draws=made)

    def save_draws(self, path: Any, draws: int, *, seed: int = 0, chunk: int | None = None) -> None:
        """Joint draws of all node counts as NetCDF, appended part by part: for draws that do not fit in memory.

        ``arviz.from_netcdf`` opens it: ``count`` of the group ``posterior`` has the dims ``chain, draw, time, cell``. ``chunk`` draws are
        in memory at once (None: as many as the memory limit allows); part k has the seed (seed, k). Maps without matrices draw real
        numbers, without tables of all pairs of cells; other engines whole numbers, as `sample` does.
        """
        save_draws(self, path, draws, seed=seed, chunk=chunk)

    def save(
        self, path: Any, *, level: float = 0.9, draws: int | None = None, draw_flows: bool = False
    ) -> None:
        """Write :meth:`to_xarray` as NetCDF, whole or not at all; ``arviz.from_netcdf`` opens it."""
        tree = self.to_xarray(level=level, draws=draws, draw_flows=draw_flows)
        with replacing(path) as temporary:
            write_tree(tree, temporary)
