"""A posterior read from a file: what can be asked of it without its engine: means, spreads, intervals, draws and totals."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._disk import DamagedFileError, read_tree
from headcount._html import card, heat_map
from headcount.errors import ModelError, named, shown
from headcount.labels import coordinate, meant, readable
from headcount.posterior._beliefs import Sizes, Status
from headcount.posterior._dataset import result_of
from headcount.posterior._interval import quantiles, sum_quantiles, tails
from headcount.posterior._posterior import SHOWN_ROWS, PopulationEstimate, Posterior, Summary, Total, pictures
from headcount.posterior._routes import AsksIndividuals, Individuals

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable, Mapping

    import pandas as pd
    import xarray as xr
    from numpy.typing import NDArray

    from headcount._types import Scope
    from headcount.posterior._result import Result

_FILE = "posterior.nc"


@dataclass(frozen=True, eq=False)
class StoredEstimate:
    """One table of a stored posterior; its arrays have the labels of the model."""

    values: xr.Dataset = field(repr=False)
    scope: Scope
    level: float
    bound: float | None

    @property
    def mean(self) -> xr.DataArray:
        """Expected counts."""
        return self.values["mean"]

    @property
    def sd(self) -> xr.DataArray:
        """Standard deviations; NaN from an engine that gives none."""
        return self.values["sd"]

    @property
    def median(self) -> xr.DataArray:
        """The smallest whole number that the count does not exceed with probability ½ or more."""
        return self.values["median"]

    @property
    def reliable(self) -> xr.DataArray:
        """Where the interval can be trusted."""
        return self.values["reliable"].astype(bool)

    def interval(self, level: float = 0.9, *, whole: bool = True) -> xr.Dataset:
        """Central interval: as stored at the file's level, from the stored mean and standard deviation at any other."""
        low, high = tails(level)
        if whole and level == self.level:
            found = self.values[["lower", "upper"]]
        else:
            mean, sd = self.mean, self.sd
            ends = quantiles(mean.to_numpy(), sd.to_numpy() ** 2, (low, high), bound=self.bound, whole=whole)
            unknown = np.isnan(sd.to_numpy())
            made = {
                n: mean.copy(data=np.where(unknown, np.nan, e))
                for n, e in zip(("lower", "upper"), ends, strict=True)
            }
            found = self.values.assign(made)[["lower", "upper"]]
        return found.assign_attrs(level=level)


class StoredPosterior(AsksIndividuals):
    """What `Posterior.save` or ``headcount infer`` wrote, asked in the words of a `Posterior`.

    There is no model and no engine in a file: what needs them (covariances, predictions, the problem) is refused. Totals and draws come
    from the joint draws in the file, ``post.save(path, draws=1000, draw_flows=True)`` for more of them and for flows.

    Attributes
    ----------
    result
        The tables of the file.
    draws
        Its joint draws, ``(chain, draw, ...)``.
    """

    def __init__(self, result: Result, draws: xr.Dataset) -> None:
        self.result, self.draws = result, draws

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
        if hasattr(Posterior, name) or name in {"problem", "outcome"}:
            text += ": it needs the model and the engine, which are not in a file; infer again to ask for it"
        raise AttributeError(text)

    @property
    def engine(self) -> str:
        """Name of the engine that made it."""
        return str(self.result.attributes["engine"])

    @property
    def status(self) -> Status:
        """How the run ended."""
        return Status(self.result.attributes["status"])

    @property
    def seconds(self) -> float:
        """Wall time of the run."""
        return float(self.result.attributes["seconds"])

    @property
    def residual(self) -> float:
        """Distance from the answer at the end, in the engine's own measure."""
        return float(self.result.attributes["residual"])

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
        key = name if name in groups else str(name)
        if key not in groups:
            has = f"the groups are {shown(groups)}" if groups else "the file has none"
            raise ValueError(f"there is no group {name!r}: {has}")
        import xarray as xr

        none = xr.Dataset(attrs={"draws": 0, "note": "draws are of the sum over groups"})
        return StoredPosterior(groups[key], none)

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
        if what not in {"nodes", "flows"}:
            raise ValueError(f"what is {what!r}: give 'nodes' or 'flows'")
        return getattr(self.result, what).copy()

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

    def summary(self, scope: Scope, level: float) -> Summary:
        """Everything a row of a table says, without labels; intervals as :meth:`StoredEstimate.interval` makes them."""
        found = self.clique(*scope)
        ends = found.interval(level)
        tables = (found.mean, found.median, found.sd, ends["lower"], ends["upper"], found.reliable)
        return Summary(*(table.to_numpy() for table in tables))

    def clique(self, *variables: Hashable) -> StoredEstimate:
        """Counts of one variable, or of a pair: larger tables are not in a file."""
        if len(variables) not in (1, 2):
            raise ValueError(
                f"a file has tables of one or two variables, not of {shown(variables)}: infer again"
            )
        return self.node(*variables) if len(variables) == 1 else self.edge(*variables)

    def individuals(self) -> Individuals:
        """An individual taken at random, with the means of the file."""
        return Individuals.stored(self)

    def node(self, variable: Hashable) -> StoredEstimate:
        """Counts of one variable (for a chain: at one time)."""
        name = self._known(variable)
        first, second = self.result.nodes.columns[:2]
        rows = self.result.nodes[self.result.nodes[first] == name]
        return self._estimate((name,), rows, [second], [rows[second].tolist()])

    def edge(self, u: Hashable, v: Hashable) -> StoredEstimate:
        """Counts of a pair (for a chain: flows between two successive times)."""
        one, two = self._known(u), self._known(v)
        flows, times = self.result.flows, self.result.times
        if self.result.is_chain:
            if times.index(two) != times.index(one) + 1:
                raise ValueError(
                    f"flows lead from one time to the next: {named(one)} is not followed by {named(two)}"
                )
            rows = flows[flows["time"] == one]
            return self._estimate((one, two), rows, ["origin", "dest"], [self.result.cells] * 2)
        for (a, b), turned in (((one, two), False), ((two, one), True)):
            rows = flows[(flows["variable"] == a) & (flows["other"] == b)]
            if len(rows):
                columns = ["other_state", "state"] if turned else ["state", "other_state"]
                return self._estimate((one, two), rows, columns, [rows[c].unique().tolist() for c in columns])
        raise ValueError(
            f"there is no table of {named(one)} and {named(two)} in the file: pairs that the model joins are in it"
        )

    def _estimate(
        self, scope: Scope, rows: pd.DataFrame, columns: list[str], labels: list[list[Any]]
    ) -> StoredEstimate:
        """The rows of a table as arrays; entries without a row are impossible: certainly zero."""
        import pandas as pd
        import xarray as xr

        shape = tuple(len(names) for names in labels)
        where = tuple(pd.Index(names).get_indexer(rows[c]) for names, c in zip(labels, columns, strict=True))
        dims = [str(v) for v in scope]
        coords = {dim: coordinate(names) for dim, names in zip(dims, labels, strict=True)}
        arrays = {}
        for name in ("mean", "median", "sd", "lower", "upper", "reliable"):
            table = np.full(shape, float(name == "reliable"))
            table[where] = rows[name].to_numpy(dtype=float)
            arrays[name] = (dims, table)
        bound = float(self.result.population) if (rows["mean"] >= 0).all() else None
        return StoredEstimate(xr.Dataset(arrays, coords=coords), scope, self.result.level, bound)

    def total(self, weights: Mapping[Any, Any], *, level: float = 0.9) -> Total:
        """A weighted sum of entries, over one or several tables: ``{variable or (u, v): array of weights}``.

        The mean is that of the file; the spread is that of the joint draws in it, so it has a Monte-Carlo error of about
        1/√(2·draws) of itself (7 % of 100 draws).
        """
        low, high = tails(level)
        mean, drawn, ends = 0.0, np.zeros(1), np.zeros(2)
        for key, value in weights.items():
            pair = isinstance(key, tuple) and key not in self.result.times
            found = self.edge(*key) if pair else self.node(key)
            table = np.broadcast_to(np.asarray(value, dtype=float), found.mean.shape)
            mean += float((table * found.mean.to_numpy()).sum())
            drawn = drawn + (self._drawn(found.scope) * table).reshape(self.size, -1).sum(axis=1)
            ends += self.result.population * np.array([table.min(), table.max()])
        variance = float(np.var(drawn, ddof=1))
        whole = all(np.array_equal(np.rint(w), w) for w in weights.values())
        between = float(ends[0]), float(ends[1])
        lower, median, upper = sum_quantiles(
            mean, variance, between, (low, 0.5, high), bounded=True, whole=whole
        )
        return Total(mean, median, float(np.sqrt(variance)), lower, upper, level)

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
        if size is not None and size > self.size:
            raise ValueError(
                f"the file holds {self.size} draws, {size} are asked for: save it with draws={size}"
            )
        order = np.arange(self.size)
        if size is not None and size < self.size:
            if rng is None:
                raise ValueError("a choice among the draws is random: give rng, or no size for all of them")
            order = np.random.default_rng(rng).choice(self.size, size, replace=False)
        times = self.result.times
        scopes: list[Scope] = [(v,) for v in times]
        if "flow" in self.draws:
            scopes += itertools.pairwise(times)
        made = {}
        for scope in scopes:
            estimate = self.node(*scope) if len(scope) == 1 else self.edge(*scope)
            template = estimate.mean.expand_dims(draw=len(order))
            made[scope] = template.copy(data=self._drawn(scope)[order]).rename("counts")
        return made

    def _require_draws(self) -> None:
        if self.size < 2:
            note = self.draws.attrs.get("note", "no draws were made")
            raise ValueError(
                f"there are no joint draws in the file ({note}): save it from an engine that draws"
            )

    def _drawn(self, scope: Scope) -> NDArray[Any]:
        """The draws of one table, (draw, *table)."""
        self._require_draws()
        kind, row = ("count" if len(scope) == 1 else "flow"), None
        if self.result.is_chain:
            name, row = kind, self.result.times.index(scope[0])
        else:
            name = "_".join([kind, *(str(v).replace("/", "_") for v in scope)])
        if name not in self.draws:
            text = f"draws of {scope!r} are not in the file: save it with draw_flows=True, post.save(path, draw_flows=True)"
            raise ValueError(text)
        table = self.draws[name].to_numpy()[0]
        return table if row is None else table[:, row]

    def _known(self, variable: Hashable) -> Any:
        known = self.result.times
        name = meant(variable, known)
        if name not in known:
            raise ValueError(f"unknown variable {named(variable)}: the file has {shown(known)}")
        return name


def load(path: str | os.PathLike[str]) -> StoredPosterior:
    """Read a file that `Posterior.save` wrote, or the folder of a run.

    Raises
    ------
    FileNotFoundError, ValueError
        No such file, or one that holds something else or is damaged.
    """
    place = Path(path)
    file = place / _FILE if place.is_dir() else place
    remedy = "write one with Posterior.save or headcount infer"
    if not file.exists():
        raise FileNotFoundError(f"{file}: there is no such file: {remedy}")
    try:
        tree = read_tree(file)
        return StoredPosterior(result_of(tree, path=file), tree["posterior"].to_dataset())
    except (DamagedFileError, OSError, KeyError) as error:
        raise ValueError(f"{file}: this is not a posterior of headcount ({error}): {remedy}") from error
