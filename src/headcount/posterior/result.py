"""A finished run as tidy tables, without its engine: what CSV, NetCDF, pictures, the page and other programs are made from."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import platform
from dataclasses import dataclass, field
from importlib import import_module, metadata
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from headcount._version import __version__
from headcount.checks import brief
from headcount.dates import as_datetime, readable
from headcount.errors import ModelError
from headcount.places import COORDINATES
from headcount.posterior._beliefs import GaussianBeliefs, listed_mean, sparse_step
from headcount.posterior.derived import seen_as
from headcount.posterior.doubt import flow_doubt
from headcount.posterior.interval import checked_level
from headcount.tables import dense

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

    from headcount._types import Array, Scope
    from headcount.individual import Model
    from headcount.observe import LearnedStart, Start
    from headcount.observe.cloud import Seen
    from headcount.population import Dispersion
    from headcount.posterior._posterior import Posterior
    from headcount.posterior._sums import ChainSums


class Summary(NamedTuple):
    """The columns of a row of a table, as arrays of one table's shape."""

    mean: Array
    median: Array
    sd: Array
    lower: Array
    upper: Array
    reliable: NDArray[np.bool_]


def pictures(result: Any) -> Any:
    """Pictures of a result. They lie above this package: the module is looked up when a picture is asked for, as pandas does it."""
    return import_module("headcount.plot").Pictures(result)


@dataclass(frozen=True, eq=False)
class Result:
    """Summaries of a posterior as tables; read-only, light, the same from memory and from a file.

    Attributes
    ----------
    nodes
        ``time, cell, observed, mean, median, sd, lower, upper, reliable``, one row per time and cell (``observed`` NaN where nobody
        looked; ``median``, ``sd`` and ends NaN from an engine that gives none). Models other than chains have ``variable, state`` for
        ``time, cell``.
    flows
        ``time, origin, dest, mean, median, sd, lower, upper, reliable``; ``time`` is that of departure, and only moves that the model
        allows have a row. Other models: ``variable, state, other, other_state``.
    trace
        ``iteration, residual, seconds`` and what else the engine reports, one row per iteration; may be empty.
    attributes
        How it was got: ``status, good, engine, settings, iterations, residual, tolerance, seconds, seed, population,
        log_evidence, interval_level, observations, versions, created_at`` and, from the command line, ``command``.
    coordinates
        ``cell, x, y`` where the cells have places (lon and lat are x and y too: see `geographic`); None otherwise.
    weights
        ``feature, weight[, standard_error]`` where the model was fitted; None otherwise.
    ascent
        One row per iteration of learning; None where nothing was learned.
    check
        ``name, time, cell, observed, expected, sd, residual, pit``, one row per count: the check of fit; None where there was none.
    arrivals, departures
        ``time, cell, mean, median, sd, lower, upper`` of an open population; None of a closed one.
    sizes
        ``size, probability``: the posterior of the number of individuals where that was not known; None otherwise.
    groups
        One result per group by its name, of a problem with groups; `nodes` and `flows` are then their sum.
    path
        The file it was read from.
    shapes
        Areas of the cells where they are known: rings of points, shape (K, 2), in the units of the coordinates; None otherwise.
    last
        The counts at a chain's last time, mean and covariance, from which a later run goes on; None where there are none.
    sums
        Spread of sums of a chain's flows, from the joint draws of a file; None where there are none.
    learned
        The same given the parameters that a fit learned, and these parameters, to be updated together by later counts; None otherwise.
    """

    nodes: pd.DataFrame
    flows: pd.DataFrame
    trace: pd.DataFrame
    attributes: Mapping[str, Any]
    coordinates: pd.DataFrame | None = None
    weights: pd.DataFrame | None = None
    ascent: pd.DataFrame | None = None
    arrivals: pd.DataFrame | None = None
    departures: pd.DataFrame | None = None
    path: Path | None = field(default=None, repr=False)
    shapes: Mapping[Hashable, Sequence[NDArray[np.float64]]] | None = field(default=None, repr=False)
    check: pd.DataFrame | None = None
    sizes: pd.DataFrame | None = None
    groups: Mapping[Hashable, Result] = field(default_factory=dict)
    last: Start | None = field(default=None, repr=False)
    sums: ChainSums | None = field(default=None, repr=False)
    learned: LearnedStart | None = field(default=None, repr=False)

    @property
    def plot(self) -> Any:
        """Pictures: ``result.plot.counts()``, ``result.plot.flows(time)`` and others."""
        return pictures(self)

    @property
    def level(self) -> float:
        """The probability that an interval holds its count: 0.9 for the ends at 5 % and 95 %."""
        return float(self.attributes["interval_level"])

    @property
    def good(self) -> bool:
        """Whether the engine reached what it promises."""
        return bool(self.attributes["good"])

    @property
    def population(self) -> int:
        """N; the nearest whole number to its mean where it was not known."""
        return int(self.attributes["population"])

    @property
    def population_text(self) -> str:
        """N, or its estimate with the interval, in words."""
        found = self.attributes.get("population_estimate")
        if found is None:
            return f"{self.population:,}"
        if not isinstance(found["sd"], float):
            return f"{found['mean']:,.0f}, the most probable number ({found['law']} was given)"
        ends = f"{self.level:.0%} interval {found['lower']:,.0f} to {found['upper']:,.0f}"
        return f"{found['mean']:,.0f} ± {found['sd']:,.2g} ({ends}; {found['law']} was given)"

    @property
    def is_chain(self) -> bool:
        """Whether there are times and cells, rather than variables and states."""
        return "time" in self.nodes.columns

    @property
    def geographic(self) -> bool:
        """Whether the coordinates are degrees of longitude and latitude."""
        return bool(self.attributes.get("geographic", False))

    def name_of(self, cell: Hashable) -> str:
        """What people call a cell: its name where a table gave one (``attributes["names"]``), else its label as text."""
        text = readable(cell)
        return str((self.attributes.get("names") or {}).get(text, text))

    @property
    def times(self) -> list[Hashable]:
        """The times of a chain (the variables of another model), in order."""
        return self.nodes[self.nodes.columns[0]].unique().tolist()

    @property
    def cells(self) -> list[Hashable]:
        """The cells of a chain (all states of another model), in order."""
        return self.nodes[self.nodes.columns[1]].unique().tolist()

    @classmethod
    def of(cls, posterior: Posterior, *, level: float = 0.9, most_flows: int | None = None) -> Result:
        """The result of a posterior in memory, as ``load_result`` would read it back; with ``most_flows``, of the largest flows only."""
        import pandas as pd

        level = checked_level(level)
        if most_flows is None:
            flows = to_frame(posterior, "flows", level=level, stored=True)
            cut: dict[str, Any] = {"told_by_data": told_by_data(posterior, flows)}
        else:
            flows = largest_flows(posterior, most_flows, level=level)
            cut = {"flows_in_all": possible_flows(posterior.problem.model)}
        places = place_frame(posterior)
        degrees = places is not None and places.attrs["names"] == ("lon", "lat")
        found = posterior.population
        going: tuple[Seen, ...] = ("arrivals", "departures") if posterior.problem.opens else ()
        opened = {what: open_frame(posterior, what, level=level, stored=True) for what in going}
        names = list(posterior.problem.groups or ())
        groups = zip(label_array(names).tolist(), names, strict=True)
        return cls(
            to_frame(posterior, "nodes", level=level, stored=True),
            flows,
            posterior.trace if posterior.outcome.trace else pd.DataFrame(columns=["iteration"]),
            provenance(posterior, level=level) | {"geographic": degrees} | cut,
            places,
            check=checked_counts(posterior),
            **opened,
            sizes=None
            if found.known or not posterior.beliefs.has_spread
            else pd.DataFrame({"size": found.values, "probability": found.probabilities}),
            groups={stored: cls.of(posterior.group(name), level=level) for stored, name in groups},
            last=_last(posterior),
        )


def _last(posterior: Posterior) -> Start | None:
    """The last counts; None where a later run cannot go on from them."""
    try:
        return posterior.last
    except ModelError:
        return None


def checked_counts(posterior: Posterior) -> pd.DataFrame | None:
    """The check of fit, one row per count, with labels as files hold them; None where nothing was checked."""
    check = posterior.fit_check
    if not len(check.residual):
        return None
    frame = check.to_frame()
    for column in check.axes:
        some = frame[column].notna().to_numpy()
        labels = frame[column].to_numpy(dtype=object, copy=True)  # pandas may lend it read-only
        labels[~some] = ""
        frame[column] = label_array(labels.tolist())
    return frame


# --- how it was got: engine, settings, status, versions, as plain values that any file can hold

_LIBRARIES = ("numpy", "scipy", "numba", "xarray", "pandas", "h5netcdf")


def provenance(posterior: Posterior, *, level: float) -> dict[str, Any]:
    """What was asked, how it went and what made it; JSON can hold every value."""
    outcome, promises = posterior.outcome, posterior.promises
    seed = outcome.info.get("seed")
    dispersion, estimate = posterior.problem.dispersion, posterior.dispersion_estimate
    return {
        "status": posterior.status.value,
        "good": posterior.status.good,
        "engine": posterior.engine,
        "settings": plain(_fields(posterior.settings)),
        "iterations": outcome.iterations,
        "residual": plain(outcome.residual),
        "tolerance": plain(outcome.tolerance),
        "seconds": plain(outcome.seconds),
        "seed": seed if seed is None or seed < 2**63 else str(seed),  # of more than 64 bits as text
        "initial_law": outcome.info.get("initial", "given with the model"),
        "parameters": outcome.info.get("parameters", "given with the model"),
        "population": round(posterior.population.mean),
        "population_estimate": _estimate(posterior, level),
        "dispersion": None if dispersion is None else dispersion.text,
        "dispersion_estimate": None if estimate is None else plain(estimate.facts),
        "log_evidence": plain(posterior.log_evidence),
        "interval_level": level,
        "means_non_negative": promises.non_negative,
        "means_consistent": promises.consistent,
        "fit_check": _check(posterior),
        "diagnostics": {
            k: plain(v)
            for k, v in posterior.diagnostics.items()
            if isinstance(v, (bool, int, float, str, np.generic))
        },
        "counts_per_individual": counts_per_individual(posterior),
        "observations": [seen.name for seen in posterior.problem.observations]
        + [records.name for records in posterior.problem.tracks],
        "created_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "inference_library": "headcount",
        "inference_library_version": __version__,
        "versions": {"python": platform.python_version(), **{n: _version(n) for n in _LIBRARIES}},
    }


def _fields(engine: Any) -> dict[str, Any]:
    """The settings of an engine."""
    fields = dataclasses.fields(engine) if dataclasses.is_dataclass(engine) else ()
    return {f.name: getattr(engine, f.name) for f in fields}


def _estimate(posterior: Posterior, level: float) -> dict[str, Any] | None:
    """What was said and what was found of the number of individuals; None where it was given."""
    given, found = posterior.problem.population, posterior.population
    if isinstance(given, int):
        return None
    ends = found.interval(level)
    numbers = {"mean": found.mean, "sd": found.sd, "lower": float(ends.lower), "upper": float(ends.upper)}
    return {"law": given.text, **plain(numbers), "note": found.note}


def _check(posterior: Posterior) -> dict[str, Any]:
    """The check of fit in numbers and words."""
    check = posterior.fit_check
    names = ("agrees", "verdict", "dispersion", "dispersion_p", "residual_dispersion", "residual_p")
    made = {name: getattr(check, name) for name in (*names, "implied_population", "population_sd")}
    made["doubts"] = list(check.doubts)
    made["flow_doubt"] = flow_doubt(posterior.problem, posterior.dispersion_estimate)
    made["advice"] = [dataclasses.asdict(one) for one in check.advice]
    if check.churn is not None:
        low, high = check.churn.interval()
        made["churn"] = {"share": check.churn.share, "lower": low, "upper": high}
    for axis in check.axes if len(check.residual) else ():
        table = check.dispersion_by(axis)
        made[f"dispersion_by_{axis}"] = dict(zip(map(str, table[axis]), table["dispersion"], strict=True))
    return plain(made)


TOLD_ENTRIES = 4_000_000
"""Possible moves up to which `told_by_data` is computed: the model's tables take 32 MB then."""


def told_by_data(posterior: Posterior, flows: pd.DataFrame) -> float | None:
    r"""The share of the variance of moves that the data took away, against the model alone; the rest is the model's word.

    .. math:: 1 - \sum \operatorname{var}(n \mid y) \big/ \sum \operatorname{var}(n)

    over all moves of a chain between different cells (``flows`` is their table). The model alone is that of as many individuals as were
    found, moving together as was found. Below zero where what was learned beside the counts (an initial distribution, the number of
    individuals) is less certain than the model takes it to be. None for open and several populations, and where there is no spread.
    """
    problem = posterior.problem
    model, found = problem.model, posterior.dispersion_estimate
    if not is_plain_chain(model) or problem.opens or problem.start is not None or problem.groups is not None:
        return None
    if flows["sd"].isna().all() or possible_flows(model) > TOLD_ENTRIES:
        return None
    together = problem.together if found is None else found.used
    before = _variance_of_moves(model, posterior.population.mean, together)
    moves = flows[flows["origin"] != flows["dest"]]
    return float(1 - (moves["sd"] ** 2).sum() / before) if before > 0 else None


def _variance_of_moves(model: Model, people: float, together: Dispersion) -> float:
    r"""The sum of the variances of the moves of a chain between different cells before anything is counted.

    Of individuals that move alone, or in flocks of c, a move has the variance :math:`c N \mu (1 - \mu)`. With parties of
    :math:`\phi_i` in every step, :math:`\phi_i E[n_i]\,p_{ij}(1 - p_{ij}) + p_{ij}^2 \operatorname{var} n_i`.
    """
    total, spread = 0.0, np.zeros(0)
    for u, v in pairwise(model.variables):
        mu = dense(model.marginal((u, v)))
        here = mu.sum(axis=1)
        variance = together.flock_size * people * mu * (1 - mu)
        if together.of_steps:
            p = np.divide(mu, here[:, None], out=np.zeros_like(mu), where=here[:, None] > 0)
            if not len(spread):
                spread = together.root_phi(people) * people * (np.diag(here) - np.outer(here, here))
            within = people * here * together.party(v, people * here)
            variance = within[:, None] * p * (1 - p) + np.diag(spread)[:, None] * p**2
            spread = p.T @ spread @ p + np.diag(within @ p) - p.T @ (within[:, None] * p)
        total += float(variance[~np.eye(len(mu), dtype=bool)].sum())
    return total


def counts_per_individual(posterior: Posterior) -> float | list[float | None] | None:
    """Counts that one individual is expected to give: a noise's rate, a probability of detection.

    It puts counts and individuals on one scale. One number, one per row of the table of nodes where it varies, or None where nothing
    was counted entry by entry.
    """
    model = posterior.problem.model
    starts = np.cumsum([0, *(model.size((v,))[0] for v in model.variables)])
    place = {(v,): start for v, start in zip(model.variables, starts.tolist(), strict=False)}
    rates = np.full(starts[-1], np.nan)
    for site in posterior.problem.sites:
        if site.scope in place and site.index is not None:
            noise, zero = site.noise, np.zeros(len(site.index))
            rates[place[site.scope] + site.index] = noise.moments(zero + 1.0)[0] - noise.moments(zero)[0]
    rates = np.where(rates > 0, rates, np.nan)
    known = rates[np.isfinite(rates)]
    if not len(known):
        return None
    if np.allclose(known, known[0]):
        return float(known[0])
    return [None if r != r else round(r, 6) for r in rates.tolist()]


def written(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same as attributes of a NetCDF file, one each for people, and all as JSON in ``provenance`` for programs."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, bool):
            flat[name] = int(value)
        elif isinstance(value, (dict, list)):
            flat[name] = json.dumps(value)
        elif value is not None:
            flat[name] = value
    return flat | {"provenance": json.dumps(dict(values))}


def plain(value: Any) -> Any:
    """A value that JSON can hold: numbers that are not finite, and whatever is no number, as text; mappings and lists part by part."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (bool, int, float, str)) or value is None else repr(value)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"


# --- the tidy tables

SUMMARY = Summary._fields
"""Columns that say what is known of a count, after the columns that say which count it is."""
MC_ERROR = "mc_error"
"""The column after ``sd`` with its Monte-Carlo standard error, where sds come from draws."""


def table_name(what: Any) -> str:
    """``what``, if it names a table."""
    if not isinstance(what, str) or what not in {"nodes", "flows"}:
        raise ModelError(f"what is {brief(what)}: give 'nodes' or 'flows'")
    return what


def to_frame(
    posterior: Posterior, what: str = "nodes", *, level: float = 0.9, stored: bool = False
) -> pd.DataFrame:
    """Tidy table: one row per cell and time (``"nodes"``), or per origin, destination and time of departure (``"flows"``).

    A chain's columns are ``time, cell, observed`` or ``time, origin, dest``, then ``mean, median, sd, lower, upper, reliable``;
    any other model has ``variable, state`` and ``variable, state, other, other_state`` (every pair inside a clique).
    ``observed`` is the mean of the readings where an entry was read more than once. Flows that the model forbids have no row.
    Where sds carry Monte-Carlo error (an engine without matrices), ``mc_error`` after ``sd`` is its standard error.
    The level of the interval is in the frame's ``attrs``; so is ``listed``: whether the flows come from a sparse matrix.

    ``stored`` gives labels as a file can hold them (see :func:`label_array`).
    """
    scopes = list(table_scopes(posterior.problem.model, table_name(what)))
    return _frame(posterior, what, scopes, level, _names(posterior.problem.model, stored=stored))


def _frame(
    posterior: Posterior, what: str, scopes: list[Scope], level: float, names: tuple[pd.Index, pd.Index]
) -> pd.DataFrame:
    """`to_frame` of some of the tables; ``names`` are those of `_names`."""
    import pandas as pd

    model = posterior.problem.model
    blocks = [_block(posterior, scope, level) for scope in scopes]
    indices = [block.index for block in blocks]
    columns = _labels(model, what, list(zip(scopes, indices, strict=True)), names)
    if what == "nodes":
        columns["observed"] = np.concatenate([_observed(posterior, scope) for scope in scopes])
    frame = pd.DataFrame(columns | _summary_columns(blocks))
    frame.attrs = {"level": level, "listed": any(block.listed for block in blocks)}
    return frame


def _summary_columns(blocks: Sequence[TableRows]) -> dict[str, NDArray[Any]]:
    """What is known of the counts of all tables, one below the other; ``mc_error`` only where there is one."""
    columns = {}
    for name in (*SUMMARY[:3], MC_ERROR, *SUMMARY[3:]):
        parts = [block.values[name] for block in blocks if name in block.values]
        if parts or name != MC_ERROR:
            columns[name] = _joined(parts, bool if name == "reliable" else float)
    return columns


def flow_frames(posterior: Posterior, *, level: float = 0.9) -> Iterator[pd.DataFrame]:
    """The table of flows as files hold it, step by step: the whole may not fit in memory."""
    names = _names(posterior.problem.model, stored=True)
    for scope in table_scopes(posterior.problem.model, "flows"):
        yield _frame(posterior, "flows", [scope], level, names)


def largest_flows(posterior: Posterior, most: int, *, level: float = 0.9) -> pd.DataFrame:
    """The rows of the table of flows with the largest means, in its order."""
    import pandas as pd

    kept: list[pd.DataFrame] = []
    rows = 0
    for frame in flow_frames(posterior, level=level):
        attrs = frame.attrs
        frame.index += rows
        rows += len(frame)
        kept = [pd.concat([*kept, frame]).nlargest(most, "mean")]
    made = kept[0].sort_index().reset_index(drop=True)
    made.attrs = attrs
    return made


def possible_flows(model: Model) -> int:
    """Rows that the table of flows has at most."""
    tree = model.rooted()
    steps = [] if tree is None or model.as_chain() is None else tree.transitions[1:]
    if any(issparse(step) for step in steps):
        return sum(int(step.nnz if issparse(step) else step.size) for step in steps)
    return sum(model.domain(scope).size for scope in table_scopes(model, "flows"))


@dataclass(frozen=True)
class TableRows:
    """The rows of one table: flat entries, and their summary."""

    index: NDArray[np.intp]
    values: dict[str, NDArray[Any]]
    listed: bool = False


def _block(posterior: Posterior, scope: Scope, level: float) -> TableRows:
    """All entries of a node's table, the possible ones of a pair's."""
    listed = _sparse_flows(posterior, scope, level)
    if listed is not None:
        return listed
    summary = posterior._summary(scope, level)
    flat = {name: table.ravel() for name, table in summary._asdict().items()}
    error = posterior.beliefs.mc_error(scope)
    if error is not None:
        flat[MC_ERROR] = error.ravel()
    if len(scope) == 1:
        return TableRows(np.arange(flat["mean"].size), flat)
    index = np.flatnonzero(posterior.problem.model.marginal(scope))
    return TableRows(index, {name: values[index] for name, values in flat.items()})


def _sparse_flows(posterior: Posterior, scope: Scope, level: float) -> TableRows | None:
    """The moves that exist, where transitions are sparse and the engine has no spread or lists it by moves; None elsewhere."""
    beliefs = posterior.beliefs
    table = listed_mean(beliefs, scope)
    if table is None:
        return None
    origin = np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))
    index, mean = origin * table.shape[1] + table.indices, table.data
    values: dict[str, NDArray[Any]]
    if isinstance(beliefs, GaussianBeliefs):
        moves, prior = beliefs.field.moves(scope), posterior.problem.model
        chances = sparse_step(prior, scope)
        if moves is None or chances is None:
            return None
        mu = np.repeat(prior.marginal(scope[:1]), np.diff(chances.indptr)) * chances.data
        summary = posterior._summary_of(mean, moves.variance, mu, level, scope=scope)
        kept, values = mu > 0, {**summary._asdict(), MC_ERROR: moves.mc_error}
    else:
        kept = mean > 0
        nothing = np.full(len(mean), np.nan)
        values = dict.fromkeys(SUMMARY, nothing) | {"mean": mean, "reliable": np.zeros(len(mean), bool)}
    return TableRows(index[kept], {name: value[kept] for name, value in values.items()}, listed=True)


def _observed(posterior: Posterior, scope: Scope) -> Array:
    """The counts seen of one table's entries: NaN where nobody looked or only a bound is known, the mean where there are several."""
    total = np.zeros(posterior.problem.model.domain(scope).size)
    readings = np.zeros(total.shape)
    for site in posterior.problem.sites:
        if site.scope == scope and site.index is not None and not site.noise.bound:
            total[site.index] += site.noise.counts
            readings[site.index] += 1
    with np.errstate(invalid="ignore"):
        return np.where(readings > 0, total / readings, np.nan)


def place_frame(posterior: Posterior) -> pd.DataFrame | None:
    """``cell, x, y`` of a chain's cells where labelled counts carry them; None otherwise."""
    model = posterior.problem.model
    if not is_plain_chain(model):
        return None
    cells = model.states[model.variables[0]]
    for observation in posterior.problem.observations:
        found = getattr(observation.counts, "coords", {})
        names = next((pair for pair in COORDINATES if _along_cells(found, pair)), None)
        if names is None:
            continue
        place = {label: k for k, label in enumerate(found["cell"].to_numpy().tolist())}
        if set(cells) <= set(place):
            order = [place[cell] for cell in cells]
            x, y = (found[name].to_numpy()[order].astype(float) for name in names)
            return places_under(names, {"cell": label_array(cells), "x": x, "y": y})
    return None


def places_under(names: tuple[str, str], columns: dict[str, Any]) -> pd.DataFrame:
    """A table of places; ``attrs["names"]`` says what x and y were called."""
    import pandas as pd

    frame = pd.DataFrame(columns)
    frame.attrs["names"] = names
    return frame


def _along_cells(coords: Any, names: tuple[str, str]) -> bool:
    return "cell" in coords and all(name in coords and coords[name].dims == ("cell",) for name in names)


def is_plain_chain(model: Model) -> bool:
    """Whether the model is a chain whose cells are the same at all times."""
    return model.as_chain() is not None and len(set(model.states.values())) == 1


def table_scopes(model: Model, what: str) -> Iterator[Scope]:
    """Every variable, or every pair inside a clique, in the model's order."""
    if what == "nodes":
        yield from ((v,) for v in model.variables)
        return
    if model.as_chain() is not None:
        yield from zip(model.variables, model.variables[1:], strict=False)
        return
    place = {v: k for k, v in enumerate(model.variables)}
    cliques = [sorted(clique, key=place.__getitem__) for clique in model.junction_tree.cliques]
    pairs = {pair for clique in cliques for pair in combinations(clique, 2)}
    yield from sorted(pairs, key=lambda pair: (place[pair[0]], place[pair[1]]))


def _labels(
    model: Model,
    what: str,
    tables: Sequence[tuple[Scope, NDArray[np.intp]]],
    names: tuple[pd.Index, pd.Index],
) -> dict[str, Any]:
    """The columns that name entries of some tables, given by their flat indices; ``names`` are those of `_names`."""
    number = {v: k for k, v in enumerate(model.variables)}
    first = np.cumsum([0, *(len(model.states[v]) for v in model.variables)])
    columns: list[Any] = []
    for axis in range(2 if what == "flows" else 1):
        variables = [np.full(len(index), number[scope[axis]]) for scope, index in tables]
        states = [
            first[number[scope[axis]]] + np.unravel_index(index, model.size(scope))[axis]
            for scope, index in tables
        ]
        columns += [n.take(_joined(of, np.intp)) for n, of in zip(names, (variables, states), strict=True)]
    if not is_plain_chain(model):
        return dict(zip(("variable", "state", "other", "other_state"), columns, strict=False))
    if what == "nodes":
        return dict(zip(("time", "cell"), columns, strict=True))
    return {"time": columns[0], "origin": columns[1], "dest": columns[3]}


def _names(model: Model, *, stored: bool) -> tuple[pd.Index, pd.Index]:
    """Labels of all variables, and of the states of all, laid end to end; pandas infers the type, and tuples stay whole."""
    import pandas as pd

    states = [state for v in model.variables for state in model.states[v]]
    one, other = (
        pd.Index(label_array(labels) if stored else list(labels), tupleize_cols=False)
        for labels in (model.variables, states)
    )
    return one, other


def _joined(parts: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype)


_NANOSECOND_YEARS = range(1678, 2262)
"""Years of which 64 bits of nanoseconds, in which files hold dates, have every day; NumPy wraps others round in silence."""


def label_array(labels: Sequence[Hashable]) -> NDArray[Any]:
    """Labels as a file can hold them: dates (of the years 1678 to 2261), numbers and texts as they are, anything else as its text."""
    kinds = {_kind(label) for label in labels}
    if kinds == {"date"}:
        return np.array(list(labels), dtype="datetime64[ns]")
    if kinds <= {"int", "float"}:
        return np.array(labels)
    texts = [readable(label) for label in labels]
    if len(set(texts)) < len(set(labels)):  # 1 and "1" are two labels
        texts = [repr(label) for label in labels]
    return np.array(texts, dtype=object)


def _kind(label: Hashable) -> str:
    if isinstance(label, (dt.date, np.datetime64)):
        moment = as_datetime(label)
        return "date" if moment.tzinfo is None and moment.year in _NANOSECOND_YEARS else "text"
    if isinstance(label, (bool, np.bool_)):
        return "text"
    if isinstance(label, (int, np.integer)):
        return "int"
    return "float" if isinstance(label, (float, np.floating)) else "text"


def by_group(frames: Mapping[Hashable, pd.DataFrame]) -> pd.DataFrame:
    """A table of every group, one below the other, with a column ``group``; what was seen is their sum, and in none of them."""
    import pandas as pd

    parts = [frame.drop(columns="observed", errors="ignore") for frame in frames.values()]
    for name, part in zip(frames, parts, strict=True):
        part.insert(1, "group", [name] * len(part))
    whole = pd.concat(parts, ignore_index=True)
    whole.attrs = parts[0].attrs
    return whole


def open_frame(posterior: Posterior, what: Seen, *, level: float, stored: bool = False) -> pd.DataFrame:
    """One row per step and cell; arrivals are named by the time they are first there, the others by that of their last.

    ``stored`` gives labels as a file can hold them (see :func:`label_array`).
    """
    import pandas as pd

    chain: Any = posterior.problem.model
    if not posterior.problem.opens:
        raise ModelError(f"a population without arrivals and departures has no {what}: give an OpenChain")
    beliefs = seen_as(posterior.beliefs, what)
    parts = []
    for before, after in zip(chain.times[:-1], chain.times[1:], strict=True):
        moments = beliefs.mean((before, after)), beliefs.variance((before, after))
        columns = posterior._spread_of(*moments, level)
        time = after if what == "arrivals" else before
        named = {"time": [time] * len(chain.cells), "cell": list(chain.cells)}
        parts.append(pd.DataFrame({**named, **columns}))
    frame = pd.concat(parts, ignore_index=True)
    if stored:
        frame = frame.assign(**{name: label_array(frame[name].tolist()) for name in ("time", "cell")})
    frame.attrs["level"] = level
    return frame
