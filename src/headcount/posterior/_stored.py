"""A posterior read from a file: what can be asked of it without its engine: means, spreads, intervals, draws and totals."""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._html import card, heat_map
from headcount.checks import generator, label, whole_number
from headcount.dates import readable
from headcount.errors import ModelError, named, shown
from headcount.labels import meant
from headcount.posterior._answers import SHOWN_ROWS, Answers, PopulationEstimate
from headcount.posterior._beliefs import Sizes, Status
from headcount.posterior._routes import Individuals
from headcount.posterior.dataset import REMEDY, read_result, result_file
from headcount.posterior.interval import quantiles, tails
from headcount.posterior.result import Result, pictures, table_name

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable, Mapping, Sequence

    import pandas as pd
    import xarray as xr
    from numpy.typing import NDArray

    from headcount._types import Array, Scope
    from headcount.observe import Start

NOT_IN_FILES = frozenset(
    [
        "beliefs",
        "dispersion_estimate",
        "forecast",
        "load",
        "more_draws",
        "outcome",
        "predictive",
        "problem",
        "promises",
        "save",
        "settings",
        "survivors",
        "to_xarray",
        "update",
    ]
)
"""What a `Posterior` in memory can be asked, and a file cannot."""


class StoredPosterior(Answers):
    """What `Posterior.save` or ``headcount infer`` wrote, asked in the words of a `Posterior`.

    There is no model and no engine in a file: what needs them (covariances, predictions, the problem) is refused. Totals and draws come
    from the joint draws in the file, ``post.save(path, draws=1000, draw_flows=True)`` for more of them and for flows.

    Attributes
    ----------
    result
        The tables of the file.
    draws
        Its joint draws, ``(chain, draw, ...)``.
    engine, status, residual, seconds
        Of the run, as of a `Posterior`.
    """

    def __init__(self, result: Result, draws: xr.Dataset) -> None:
        known, (first, second) = result.attributes, result.nodes.columns[:2]
        self.result, self.draws = result, draws
        self.engine, self.status = str(known["engine"]), Status(known["status"])
        self.residual, self.seconds = float(known["residual"]), float(known["seconds"])
        states = {label: rows[second].tolist() for label, rows in result.nodes.groupby(first, sort=False)}
        self.states: Mapping[Hashable, Sequence[Hashable]] = states

    def __repr__(self) -> str:
        made = self.result.attributes.get("created_at", "unknown")
        count = len(self.result.times)
        return f"<StoredPosterior by {self.engine}: {self.status.value}, {count} times or variables, made at {made}>"

    def _repr_html_(self) -> str:
        """How it went, whether the data fit, the largest counts, all means."""
        nodes = self.result.nodes
        facts = {
            "engine": self.engine,
            "status": self.status.value,
            "fit": self.fit_check.get("verdict"),
            "log evidence": None if self.log_evidence is None else f"{self.log_evidence:.6g}",
            "file": self.result.path,
            "draws": self.size or "none",
        }
        columns = nodes.columns[:2]
        rows = [
            [
                *(readable(row[c]) for c in columns),
                f"{row['mean']:.1f}",
                f"{row['lower']:.0f} … {row['upper']:.0f}",
            ]
            for row in nodes.nlargest(SHOWN_ROWS, "mean").to_dict("records")
        ]
        table = [*columns, "mean", f"{self.result.level:.0%} interval"], rows
        thumbnail = ""
        if self.result.is_chain:
            means = nodes["mean"].to_numpy().reshape(len(self.result.times), -1)
            thumbnail = heat_map(means, "expected counts: times × cells")
        return card("Posterior from a file", facts, table=table, caption="largest", thumbnail=thumbnail)

    def __getattr__(self, name: str) -> Any:
        """Refuse in words what a `Posterior` has and a file has not."""
        text = f"a StoredPosterior has no {name!r}"
        if name in NOT_IN_FILES:
            text += ": it needs the model and the engine, which are not in a file; infer again to ask for it"
        raise AttributeError(text)

    @property
    def diagnostics(self) -> Mapping[str, Any]:
        """The numbers and words that the engine had to say about itself."""
        return dict(self.result.attributes.get("diagnostics", {}))

    @property
    def log_evidence(self) -> float | None:
        """log p(y), as the engine approximated it; None where it does not."""
        found = self.result.attributes.get("log_evidence")
        return None if found is None else float(found)

    @property
    def population(self) -> PopulationEstimate:
        """The number of individuals: mean, sd, interval; N itself where it was given."""
        sizes, known = self.result.sizes, self.result.attributes.get("population_estimate") is None
        if sizes is None:
            number = Sizes(np.array([float(self.result.population)]), np.ones(1))
            return PopulationEstimate.of(number, known=known, point=not known)
        law = Sizes(sizes["size"].to_numpy(), sizes["probability"].to_numpy())
        return PopulationEstimate.of(law, known=False, point=False)

    def group(self, name: Hashable) -> StoredPosterior:
        """One group of a problem with several: its own means, spreads and intervals. Joint draws are of the sum alone."""
        groups = self.result.groups
        key = name if label(name, "name") in groups else str(name)
        if key not in groups:
            has = f"the groups are {shown(groups)}" if groups else "the file has none"
            raise ValueError(f"there is no group {name!r}: {has}")
        import xarray as xr

        none = xr.Dataset(attrs={"draws": 0, "note": "draws are of the sum over groups"})
        return StoredPosterior(groups[key], none)

    @property
    def last(self) -> Start:
        """The counts at the last time, from which a later run goes on: ``hc.infer(problem, start=hc.Posterior.load(path))``."""
        if self.result.last is None:
            raise ModelError(
                "the file has no last counts to go on from: they need a chain and an engine with spread; infer again"
            )
        return self.result.last

    @property
    def fit_check(self) -> Mapping[str, Any]:
        """What the check of fit found: ``verdict`` in words, ``agrees`` and its numbers."""
        return dict(self.result.attributes.get("fit_check", {}))

    @property
    def trace(self) -> pd.DataFrame:
        """One row per iteration."""
        return self.result.trace

    @cached_property
    def plot(self) -> Any:
        """Pictures: ``plot.counts()``, ``plot.flows(time)``, ``plot.series()`` and others."""
        return pictures(self.result)

    def to_frame(self, what: str = "nodes") -> pd.DataFrame:
        """Tidy table of ``"nodes"`` or ``"flows"`` with mean, sd, interval and reliability, at the file's level."""
        return getattr(self.result, table_name(what)).copy()

    def arrivals(self) -> pd.DataFrame:
        """Individuals of an `OpenChain` that came, by the time and cell where they were first, at the file's level."""
        return self._going("arrivals")

    def departures(self) -> pd.DataFrame:
        """Individuals of an `OpenChain` that left, by the time and cell where they were last, at the file's level."""
        return self._going("departures")

    def _going(self, what: str) -> pd.DataFrame:
        found = getattr(self.result, what)
        if found is None:
            raise ModelError(f"a population without arrivals and departures has no {what}")
        return found.copy()

    def _individuals(self) -> Individuals:
        """An individual taken at random, with the means of the file."""
        return Individuals.stored(self)

    def _scope_of(self, *variables: Hashable) -> Scope:
        """One variable, or a pair that the model joins: larger tables are not in a file."""
        if len(variables) not in (1, 2):
            raise ValueError(
                f"a file has tables of one or two variables, not of {shown(variables)}: infer again"
            )
        scope = tuple(map(self._known, variables))
        self._rows(scope)
        return scope

    def _rows(self, scope: Scope) -> tuple[pd.DataFrame, list[str]]:
        """The rows of a table, and the columns that name its entries, one per axis."""
        nodes, flows, times = self.result.nodes, self.result.flows, self.result.times
        if len(scope) == 1:
            return nodes[nodes.iloc[:, 0] == scope[0]], [nodes.columns[1]]
        one, two = scope
        if self.result.is_chain:
            if times.index(two) != times.index(one) + 1:
                raise ValueError(
                    f"flows lead from one time to the next: {named(one)} is not followed by {named(two)}"
                )
            return flows[flows["time"] == one], ["origin", "dest"]
        for first, second, columns in (
            (one, two, ["state", "other_state"]),
            (two, one, ["other_state", "state"]),
        ):
            rows = flows[(flows["variable"] == first) & (flows["other"] == second)]
            if len(rows):
                return rows, columns
        raise ValueError(
            f"there is no table of {named(one)} and {named(two)} in the file: pairs that the model joins are in it"
        )

    def _table(self, scope: Scope, name: str) -> NDArray[Any]:
        """One column as a table; entries without a row are impossible: certainly zero."""
        import pandas as pd

        rows, columns = self._rows(scope)
        labels = [self.states[v] for v in scope]
        where = tuple(pd.Index(known).get_indexer(rows[c]) for known, c in zip(labels, columns, strict=True))
        sure = name == "reliable"
        table = np.full([len(known) for known in labels], sure, dtype=bool if sure else float)
        table[where] = rows[name].to_numpy()
        return table

    def mean_table(self, scope: Scope) -> Array:
        """Expected counts without labels."""
        return self._table(scope, "mean")

    def sd_table(self, scope: Scope) -> Array:
        """Standard deviations without labels; NaN from an engine that gives none."""
        return self._table(scope, "sd")

    def reliable_table(self, scope: Scope) -> NDArray[np.bool_]:
        """Where intervals can be trusted, without labels."""
        return self._table(scope, "reliable")

    def quantile_tables(
        self, scope: Scope, probabilities: Sequence[float], *, whole: bool = True
    ) -> tuple[Array, ...]:
        """Quantiles of every entry: as stored for the median and at the file's level, elsewhere from the stored mean and sd."""
        low, high = tails(self.result.level)
        stored = {low: "lower", 0.5: "median", high: "upper"} if whole else {}
        bound = self._largest if self._non_negative else None

        def made(q: float) -> Array:
            mean, sd = self.mean_table(scope), self.sd_table(scope)
            (table,) = quantiles(mean, sd**2, (q,), bound=bound, whole=whole)
            return np.where(np.isnan(sd), np.nan, table)

        return tuple(self._table(scope, stored[q]) if q in stored else made(q) for q in probabilities)

    @property
    def _non_negative(self) -> bool:
        """Whether all means were promised to be ≥ 0."""
        return bool(self.result.attributes.get("means_non_negative", True))

    def _sum_variance(self, parts: Sequence[tuple[Scope, Array]]) -> float:
        """Variance of the sum: of a single entry the stored one, else that of the file's draws."""
        if self._sum_error(parts) == 0.0:
            return sum(
                float(np.square(self.sd_table(scope).ravel()[w != 0] * w[w != 0]).sum()) for scope, w in parts
            )
        drawn = sum(self._drawn(scope).reshape(self.size, -1) @ w for scope, w in parts)
        return float(np.var(drawn, ddof=1))

    def _sum_error(self, parts: Sequence[tuple[Scope, Array]]) -> float:
        """1/√(2(draws − 1)), the relative error of an sd from draws; 0 for a single entry, whose sd is stored."""
        if sum(np.count_nonzero(w) for _, w in parts) <= 1:
            return 0.0
        self._require_draws()
        return float(1.0 / np.sqrt(2.0 * (self.size - 1)))

    @property
    def size(self) -> int:
        """How many joint draws the file holds; 0 where the engine gave none."""
        return int(self.draws.attrs.get("draws", 0))

    def sample(
        self, size: int | None = None, *, rng: np.random.Generator | int | None = None
    ) -> dict[Scope, xr.DataArray]:
        """Joint draws from the file, without replacement: of every variable and, where they were saved, of flows.

        ``size`` of them chosen with ``rng``, or all in their order.
        """
        self._require_draws()
        size = None if size is None else whole_number(size, "size")
        if size is not None and size > self.size:
            raise ValueError(
                f"the file holds {self.size} draws, {size} are asked for: save it with draws={size}"
            )
        order = np.arange(self.size)
        if size is not None and size < self.size:
            if rng is None:
                raise ValueError("a choice among the draws is random: give rng, or no size for all of them")
            order = generator(rng).choice(self.size, size, replace=False)
        return {
            scope: self._labelled(scope, self._drawn(scope)[order], "counts", draws=True)
            for scope in self._drawn_scopes()
        }

    def _drawn_scopes(self) -> list[Scope]:
        """Every variable, and the pairs whose draws were saved."""
        times = self.result.times
        if self.result.is_chain:
            return [*((v,) for v in times), *(itertools.pairwise(times) if "flow" in self.draws else ())]
        place = {str(v).replace("/", "_"): v for v in times}
        kept = (self.draws[name].dims[2:] for name in self.draws if str(name).startswith("flow_"))
        return [*((v,) for v in times), *(tuple(place[str(v)] for v in names) for names in kept)]

    def _require_draws(self) -> None:
        if self.size < 2:
            note = self.draws.attrs.get("note", "no draws were made")
            raise ValueError(
                f"there are no joint draws in the file ({note}): save it from an engine that draws"
            )

    def _drawn(self, scope: Scope) -> NDArray[Any]:
        """The draws of one table, (draw, *table)."""
        self._require_draws()
        kind = "count" if len(scope) == 1 else "flow"
        if self.result.is_chain and kind in self.draws:
            return self.draws[kind].to_numpy()[0][:, self.result.times.index(scope[0])]
        names = [str(v).replace("/", "_") for v in scope]
        for order in (names, names[::-1]):  # a pair may be asked for in either order
            name = "_".join([kind, *order])
            if name in self.draws and self.draws[name].dims[2:] == tuple(order):
                return self.draws[name].transpose("chain", "draw", *names).to_numpy()[0]
        text = f"draws of {scope!r} are not in the file: save it with draw_flows=True, post.save(path, draw_flows=True)"
        raise ValueError(text)

    def _known(self, variable: Hashable) -> Any:
        known = self.result.times
        name = meant(label(variable, "the variable"), known)
        if name not in known:
            raise ValueError(f"unknown variable {named(variable)}: the file has {shown(known)}")
        return name


def load(path: str | os.PathLike[str]) -> StoredPosterior:
    """Read a file that `Posterior.save` wrote, or the folder of a run.

    Raises
    ------
    FileNotFoundError, TableError
        No such file; one that holds something else or is damaged, or a folder that may mix two runs.
    """
    file = result_file(path)
    if not file.exists():
        raise FileNotFoundError(f"{file}: there is no such file: {REMEDY}")
    result, tree = read_result(path, "posterior")
    return StoredPosterior(result, tree["posterior"].to_dataset())
