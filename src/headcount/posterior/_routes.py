r"""Individuals in the posterior: their routes, how well it predicts others' tracks, and who of a region goes where.

An individual taken at random from the population follows, given the data, the chain

.. math:: π'(i) = E[n_0(i)] / N, \qquad P'_t(i, j) = E[n_{t,t+1}(i, j)] / E[n_t(i)] .

Where one unit stands for several individuals (flocks, groups with weights), :math:`π'` counts it as often, and candidates who are not
there not at all. Its first cell and each of its moves have these probabilities exactly. That successive moves depend on each other
through the present cell only is exact given the true flows (which individual takes which way through a cell is then pure chance), and
an approximation where the flows themselves are uncertain.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.sparse import csr_array, diags_array

from headcount import memory
from headcount.checks import brief, generator, is_sequence, whole_number
from headcount.errors import ModelError, named, shown
from headcount.individual import MarkovChain, Records, record_log_prob
from headcount.labels import meant, plain
from headcount.observe import Tracks
from headcount.observe.cloud import SIZES, View
from headcount.places import places_of
from headcount.posterior._beliefs import GaussianBeliefs, PointBeliefs
from headcount.posterior.derived import MixtureBeliefs, seen_beliefs
from headcount.posterior.interval import tails
from headcount.tables import dense

if TYPE_CHECKING:
    import pandas as pd

    from headcount._types import Array, Counts, Index, Scope
    from headcount.individual import Model
    from headcount.posterior._posterior import Posterior
    from headcount.posterior._stored import StoredPosterior

ROUTE_BYTES = 100
"""Bytes per individual and time of a table of routes, estimated, not measured: the drawn state, three columns and their labels."""
CONNECTIVITY_DRAWS = 400
"""Joint draws of the flows behind a connectivity table: the ends of a 90 % interval are then known to about 1 % of probability."""


def _unfolded(posterior: Posterior) -> tuple[Posterior, View | None]:
    """The posterior on the chain of (group, cell) and hidden states, and how these are seen; as it is where there are none.

    Where parameters were learned, at their estimate.
    """
    beliefs, problem = posterior.beliefs, posterior.problem
    try:
        parts = seen_beliefs(beliefs)
    except ValueError:
        return posterior, None
    own = parts[0]
    if own.view.members is not None:
        return posterior, None
    base = own.base
    if isinstance(beliefs, MixtureBeliefs):
        base = MixtureBeliefs([part.base for part in parts], beliefs.weights, None, beliefs.diagnostics)
    outcome = replace(posterior.outcome, beliefs=base)
    asked = problem.core if own.candidates is None else problem.of_candidates(own.candidates)
    return type(posterior)(problem.unfolded(asked), posterior.settings, outcome), own.view


@dataclass(frozen=True)
class Individuals:
    """An individual taken at random: its chain, the cells that the user knows, and joint draws of everybody's flows."""

    chain: MarkovChain
    """Where there are groups, of (group, cell)."""
    model: Model
    """With the times and cells that the user knows."""
    population: float
    """The expected number of individuals."""
    draw: Callable[[int, np.random.Generator], Mapping[Scope, Any]] | None
    """Joint draws of the flows, whole numbers; None where there are none."""
    view: View | None = None
    """How the states of the chain are seen, where there are groups or followed individuals."""
    grouped: bool = False

    @classmethod
    def of(cls, posterior: Posterior) -> Individuals:
        """Of a posterior."""
        grouped, model = posterior.problem.groups is not None, posterior.problem.model
        if posterior.problem.opens:
            raise ModelError(_OPEN)
        population = float(posterior.node(model.variables[0]).mean.sum())
        posterior, view = _unfolded(posterior)
        beliefs = posterior.beliefs

        def draw(size: int, rng: np.random.Generator) -> Mapping[Scope, Any]:
            return beliefs.sample(posterior._affordable(size), rng=rng, integer=True)

        drawn = draw if beliefs.has_spread and beliefs.has_draws else None
        chain = individual_chain(posterior)
        return cls(chain if view is None else _weighed(chain, view), model, population, drawn, view, grouped)

    def cells(self, time: Hashable) -> csr_array:
        """Which cell every state of the chain is, (cells, states), as ones."""
        if self.view is None:
            return sparse.eye_array(len(self.chain.states[time]), format="csr")
        return self.view.matrix((time,)).sign()

    def weights(self, time: Hashable) -> Array:
        """How many individuals one unit stands for, by state of the chain; 0 where it is not seen."""
        if self.view is None:
            return np.ones(len(self.chain.states[time]))
        return np.asarray(self.view.matrix((time,)).sum(axis=0))

    @classmethod
    def stored(cls, stored: StoredPosterior) -> Individuals:
        """Of a file: the chain of its means, and its draws of flows."""
        result = stored.result
        for wrong, why in (
            (not result.is_chain, _NO_TIMES.format("network")),
            (result.arrivals is not None, _OPEN),
            (result.groups, "the file has the sum of the groups: ask one of them, group(name)"),
            ("flows_in_all" in result.attributes, "the file has the largest flows only: infer again"),
        ):
            if wrong:
                raise ModelError(why)
        times = result.times
        means = [stored.edge(*step).mean.to_numpy() for step in pairwise(times)]
        chain = _chain_of(
            stored.node(times[0]).mean.to_numpy(),
            means,
            [np.eye(len(result.cells))] * len(means),
            times,
            result.cells,
        )

        def draw(size: int, rng: np.random.Generator) -> Mapping[Scope, Any]:
            return stored.sample(min(size, stored.size), rng=rng)

        drawn = draw if "flow" in stored.draws and stored.size > 1 else None
        return cls(chain, chain, stored.population.mean, drawn)


class AsksIndividuals(ABC):
    """Questions about individuals, to a posterior in memory or from a file."""

    @abstractmethod
    def _individuals(self) -> Individuals:
        """An individual taken at random."""

    def routes(
        self,
        size: int,
        *,
        rng: np.random.Generator | int,
        from_: Any = None,
        to: Any = None,
        **ends: Any,
    ) -> pd.DataFrame:
        """Paths of individuals drawn from the posterior, as a table ``id, time, cell``.

        An individual taken at random has the posterior's probabilities of its first cell and of every move, exactly; that its moves
        depend on each other through the present cell alone is an approximation where the flows are uncertain (`individual_chain`).
        `headcount.io.route_lines` makes GeoJSON lines of the table.

        Parameters
        ----------
        size
            How many.
        rng
            Seed or generator.
        from_, to
            Where routes begin and end: a cell at the first or last time, or ``{time: cell}``, in which case they cover only the times
            between. None: anywhere. ``from`` is a word of Python: write ``from_=...`` or ``**{"from": ...}``.
        """
        unknown = [name for name in ends if name != "from"]
        if unknown or (ends and from_ is not None):
            message = f"routes takes size, rng, from_ (or from) and to, got {', '.join(unknown) or 'from_ and from'}"
            raise TypeError(message)
        count = whole_number(size, "size", least=1)
        people = self._individuals()
        steps = len(people.chain.variables)
        memory.require(ROUTE_BYTES * count * steps, f"{count} routes", remedy="ask for fewer at once")
        chain, view = people.chain, people.view
        first, from_cells = _end(chain, view, ends.get("from", from_), "from", 0)
        last, to_cells = _end(chain, view, to, "to", len(chain.variables) - 1)
        if first > last:
            raise ModelError(
                f"from is at time {named(chain.variables[first])}, which is after to, at {named(chain.variables[last])}: turn them round"
            )
        chain = _through(chain, ((first, from_cells), (last, to_cells)))
        drawn = chain.sample(count, rng=generator(rng))[:, first : last + 1]
        return _route_table(people, chain.variables[first : last + 1], drawn)

    def log_prob(self, tracks: Any, *, null: bool | str = False) -> pd.Series:
        """How well the posterior predicts tracks that it has not seen: log p(later positions | first position), per individual.

        Parameters
        ----------
        tracks
            `Tracks`, or a table ``id, time, cell``; band recoveries also as ``from_time, from_cell, to_time, to_cell``.
        null
            The score of the same positions under the posterior's counts alone, as if every position were another individual's. What the
            score is above it is what the flows know about movement. ``"stay"``: the score of a harder rival that knows nothing of the
            ways between: at every next position the individual is where it was last, with probability q, and else anywhere, as the
            counts have it; q is the best for these very tracks (``attrs["q"]``).

        Returns
        -------
        pandas.Series
            One number per individual, in nats, by ``id``; −inf for a track that the model does not allow, 0 for a single position.
        """
        import pandas as pd

        people = self._individuals()
        chain = people.chain
        records = (tracks if isinstance(tracks, Tracks) else Tracks(tracks)).read(people.model)
        cells, first = records, records.first_only()
        if people.view is not None:  # of which group the individual is, nobody knows
            records, first = (
                one.through(list(map(people.cells, chain.variables))) for one in (records, first)
            )
        said = {}
        if isinstance(null, str):
            if null != "stay":
                raise ModelError(f'null is {null!r}: give True, False or "stay"')
            said["q"], found = _staying(people, cells)
            found = found - _memoryless(chain, first)
        else:
            tree = chain.rooted()
            found = _memoryless(chain, records) if null else record_log_prob(tree, records)
            found = found - (_memoryless(chain, first) if null else record_log_prob(tree, first))
        made = pd.Series(
            found, index=pd.Index(list(records.ids), name="id", tupleize_cols=False), name="log_prob"
        )
        made.attrs |= said
        return made

    def connectivity(
        self,
        regions_a: Mapping[Hashable, Sequence[Hashable]] | None,
        regions_b: Mapping[Hashable, Sequence[Hashable]] | None,
        t0: Hashable,
        t1: Hashable,
        *,
        level: float = 0.9,
        draws: int = CONNECTIVITY_DRAWS,
        rng: np.random.Generator | int = 0,
    ) -> pd.DataFrame:
        """Migratory connectivity: of the individuals in each region at ``t0``, which share is in each region at ``t1``.

        Parameters
        ----------
        regions_a, regions_b
            ``{region: [cells]}`` at the first and the last time; None takes every cell as a region.
        t0, t1
            Two times.
        level, draws, rng
            Of the intervals, which come from joint draws of all flows between: given the flows, who of those in a cell takes which way
            out of it is pure chance and is drawn too.

        Returns
        -------
        pandas.DataFrame
            ``from, to, share, mean, sd, lower, upper``: share of the region's individuals and expected number; sd and interval are the
            share's (NaN from an engine without spread, and from a file without draws of flows). Shares sum to one where the regions
            of ``t1`` hold every cell.
        """
        import pandas as pd

        ends, count = tails(level), whole_number(draws, "draws", least=1)
        people = self._individuals()
        chain, times = people.chain, people.model.variables
        first, last = _index(times, t0, "t0"), _index(times, t1, "t1")
        if first >= last:
            raise ModelError(f"t1 is {named(t1)}, which is not after t0, {named(t0)}")
        (names_a, member_a), (names_b, member_b) = (
            _regions(regions, people.model.states[times[node]], what)
            for regions, node, what in ((regions_a, first, "regions_a"), (regions_b, last, "regions_b"))
        )
        member_a, member_b = member_a @ people.cells(times[first]), member_b @ people.cells(times[last])
        carried = member_a * chain.marginal((times[first],))  # (A, L)
        started = carried.sum(axis=1)
        for step in chain.rooted().transitions[first + 1 : last + 1]:
            carried = np.asarray(carried @ step)
        arrived = carried @ member_b.T
        empty = [name for name, there in zip(names_a, started, strict=True) if there == 0]
        if empty:
            raise ModelError(f"nobody is in the regions {shown(empty)} at time {named(t0)}")
        frame = pd.DataFrame(
            {
                "from": pd.Index([a for a in names_a for _ in names_b], tupleize_cols=False),
                "to": pd.Index([b for _ in names_a for b in names_b], tupleize_cols=False),
                "share": (arrived / started[:, None]).ravel(),
                "mean": (people.population * arrived).ravel(),
            }
        )
        if people.draw is None:
            return frame.assign(sd=np.nan, lower=np.nan, upper=np.nan)
        rng = generator(rng)
        worth = people.weights(times[first]), people.weights(times[last])
        shares = _drawn_shares(
            people.draw(count, rng), times[first : last + 1], member_a, member_b, worth, rng
        )
        low, high = np.nanquantile(shares, ends, axis=0)
        frame = frame.assign(sd=np.nanstd(shares, axis=0).ravel(), lower=low.ravel(), upper=high.ravel())
        frame.attrs["level"] = float(level)
        return frame


_OPEN = "routes, tracks and connectivity are of individuals that are there all the time, which those of an OpenChain are not"
_NO_TIMES = "routes, tracks and connectivity need times, which a {} has not: give a MarkovChain"


def individual_chain(posterior: Posterior) -> MarkovChain:
    """The chain of the module, with the times and cells of the problem's model."""
    model, beliefs = posterior.problem.model.as_chain(), posterior.beliefs
    if model is None:
        raise ModelError(_NO_TIMES.format(type(posterior.problem.model).__name__))
    if isinstance(beliefs, (PointBeliefs, GaussianBeliefs)):
        settled = isinstance(beliefs, PointBeliefs) or beliefs.settled
        own = beliefs.model.as_chain() if settled else None
        if own is not None:  # moves as sparse as the problem's
            return _without_sizes(own)
    means = [dense(beliefs.mean(edge)) for edge in pairwise(model.variables)]
    priors = list(map(dense, model.transitions))
    return _without_sizes(
        _chain_of(beliefs.mean(model.variables[:1]), means, priors, model.times, model.states)
    )


def _weighed(chain: MarkovChain, view: View) -> MarkovChain:
    """The chain of an individual, from that of a unit: each counts as often as it stands for individuals, which no move changes."""
    first = chain.marginal(chain.variables[:1]) * view.matrix(chain.variables[:1]).sum(axis=0)
    return MarkovChain(first / first.sum(), list(chain.transitions), times=chain.times, cells=chain.states)


def _without_sizes(chain: MarkovChain) -> MarkovChain:
    """The chain from the first time on, where it begins with the groups that individuals are of."""
    if chain.variables[0] != SIZES:
        return chain
    states = {t: chain.states[t] for t in chain.times[1:]}
    first = chain.marginal(chain.variables[1:2])
    return MarkovChain(first, list(chain.transitions[1:]), times=chain.times[1:], cells=states)


def _chain_of(
    first: Array, means: Sequence[Array], priors: Sequence[Array], times: Any, cells: Any
) -> MarkovChain:
    """The chain of the module from expected counts and flows; cells that nobody leaves have the prior's moves."""
    # Means of the Gaussian engines may be below zero by a little; no one is drawn there.
    first = np.maximum(first, 0.0)
    steps = []
    for flows, prior in zip(means, priors, strict=True):
        flows = np.maximum(flows, 0.0)
        out = flows.sum(axis=1, keepdims=True)
        steps.append(np.where(out > 0, flows / np.where(out > 0, out, 1.0), prior))
    return MarkovChain(first / first.sum(), steps, times=times, cells=cells)


def _visible(people: Individuals, time: Hashable) -> Sequence[Any]:
    """What every state of the chain is called: its cell, or (group, cell) where the chain is that of a cloud."""
    states, view = people.chain.states[time], people.view
    if view is None:
        return states
    members, node = view.cloud.members, view.cloud.index[time]
    cells = view.cloud.states[time]
    return [(member.group, cells[code]) for member in members for code in member.cells[node]]


def _route_table(people: Individuals, times: Sequence[Hashable], drawn: Index) -> pd.DataFrame:
    """States of the chain at some times, (individuals, times), as a table ``id, time[, group], cell``."""
    import pandas as pd

    labels = [_visible(people, t) for t in times]
    visited = [labels[k][j] for row in drawn.tolist() for k, j in enumerate(row)]
    columns: dict[str, Any] = {
        "id": np.repeat(np.arange(len(drawn)), len(times)),
        "time": pd.Index(list(times) * len(drawn), tupleize_cols=False),
    }
    if people.grouped:
        columns["group"] = pd.Index([label[0] for label in visited], tupleize_cols=False)
    cells = visited if people.view is None else [label[1] for label in visited]
    return pd.DataFrame(columns | {"cell": pd.Index(cells, tupleize_cols=False)})


def _through(chain: MarkovChain, ends: Sequence[tuple[int, Index | None]]) -> MarkovChain:
    """The chain of those who are, at every given node, in one of the given states (None: in any)."""
    fixed: dict[tuple[Hashable, ...], Array] = {}
    for node, states in ends:
        if states is not None:
            name = chain.variables[node]
            here = np.full(len(chain.states[name]), -np.inf)
            here[states] = 0.0
            fixed[(name,)] = fixed.get((name,), 0.0) + here
    if not fixed:
        return chain
    try:
        tilted, _ = chain.tilt(fixed)
    except ModelError:
        raise ModelError(
            "the posterior has no route between these two cells: nobody can go from one to the other in that time"
        ) from None
    found = tilted.as_chain()
    assert found is not None
    return found


def _end(chain: MarkovChain, view: View | None, given: Any, what: str, node: int) -> tuple[int, Index | None]:
    """The node and the states of one end of a route; the states are None where they are free."""
    if given is None:
        return node, None
    if isinstance(given, Mapping):
        if len(given) != 1:
            raise ModelError(f"{what} is {given!r}: give a cell, or {{time: cell}}")
        ((time, given),) = given.items()
        node = _index(chain.variables, time, f"the time of {what}")
    name = chain.variables[node]
    if view is None:
        return node, np.array([_index(chain.states[name], given, what)])
    cell = _index(view.cloud.states[name], given, what)
    return node, view.matrix((name,))[[cell]].indices


def _index(known: Sequence[Hashable], label: Any, what: str) -> int:
    place = {plain(name): k for k, name in enumerate(known)}
    try:
        return place[plain(meant(label, known))]
    except (KeyError, TypeError):
        raise ModelError(f"{what} is {named(label)}: give one of {shown(known)}") from None


def _memoryless(chain: MarkovChain, records: Records) -> Array:
    """log Π_t Σ_j P(x_t = j) l_t(j): positions as if they were of different individuals."""
    found = np.zeros(len(records))
    with np.errstate(divide="ignore"):
        for node, (rows, likelihood) in records.seen.items():
            found[rows] += np.log(likelihood @ chain.marginal((chain.variables[node],)))
    return found


def _staying(people: Individuals, records: Records) -> tuple[float, Array]:
    r"""The q with which individuals best stay where they were last seen, else are anywhere; and the log probability of every record.

    With b the law of the last position given what was seen of it, and m the counts' shares at the next one,
    :math:`p(\text{seen}) = \sum_j l_j (q b_j + (1 - q) m_j)`; b then is :math:`l_j (q b_j + (1 - q) m_j)/p`.
    """
    from scipy.optimize import minimize_scalar  # slow to import

    chain, model = people.chain, people.model
    if len({model.states[v] for v in model.variables}) > 1:
        raise ModelError('null is "stay", and cells change with time: nobody can be where it was')
    shares = [people.cells(v) @ chain.marginal((v,)) for v in chain.variables]

    def scored(q: float) -> Array:
        found, seen_before = np.zeros(len(records)), np.zeros(len(records), bool)
        belief = csr_array((len(records), len(shares[0])))
        for node in sorted(records.seen):
            rows, likelihood = records.seen[node]
            stays = np.where(seen_before[rows], q, 0.0)
            joint = diags_array(stays) @ likelihood.multiply(belief[rows])
            joint = csr_array(
                joint + diags_array(1.0 - stays) @ (likelihood @ diags_array(np.asarray(shares[node])))
            )
            p = np.asarray(joint.sum(axis=1)).ravel()
            with np.errstate(divide="ignore"):
                found[rows] += np.log(p)
            keep = np.ones(len(records))
            keep[rows] = 0.0
            place = csr_array(
                (1.0 / np.maximum(p, np.finfo(float).tiny), (rows, np.arange(len(rows)))),
                (len(records), len(rows)),
            )
            belief = csr_array(diags_array(keep) @ belief + place @ joint)
            seen_before[rows] = True
        return found

    def loss(q: float) -> float:
        value = scored(q)
        return -float(value[np.isfinite(value)].sum())

    inside = float(minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded").x)
    best = min(0.0, inside, key=loss)  # the search never reaches the end of its range
    return best, scored(best)


def _regions(given: Any, cells: Sequence[Hashable], what: str) -> tuple[list[Hashable], Array]:
    """Names of regions and their cells as a 0/1 matrix, (regions, L); None: every cell is a region."""
    if given is None:
        return list(cells), np.eye(len(cells))
    lists = isinstance(given, Mapping) and given and all(map(is_sequence, given.values()))
    if not lists:
        raise ModelError(
            f"{what} is {brief(given)}: give {{region: [cells]}}, or None for every cell by itself"
        )
    member = np.zeros((len(given), len(cells)))
    for k, (name, inside) in enumerate(given.items()):
        member[k, [_index(cells, cell, f"{what}[{name!r}]") for cell in inside]] = 1.0
    if (member.sum(axis=0) > 1).any():
        twice = [cell for cell, times in zip(cells, member.sum(axis=0), strict=True) if times > 1]
        raise ModelError(f"{what} has {shown(twice)} in two regions: give every cell to one")
    return list(given), member


def _drawn_shares(
    tables: Mapping[Scope, Any],
    times: Sequence[Hashable],
    member_a: Array,
    member_b: Array,
    worth: tuple[Array, Array],
    rng: np.random.Generator,
) -> Array:
    """Shares of A's individuals that end in B, one table per joint draw of the flows, shape (draws, A, B).

    Given the flows, those who leave a cell are a random choice of those who came to it, whatever their region: how many of each
    region take each way is drawn from the multivariate hypergeometric law, which is exact. ``worth``: individuals per unit of every state
    at both ends.
    """
    flows = [np.rint(np.asarray(tables[step])).astype(np.int64) for step in pairwise(times)]
    start = flows[0].sum(axis=2)
    memory.require(
        16 * start.size * len(member_a), "connectivity's draws", remedy="take fewer draws or regions"
    )
    held = np.rint(member_a[None] * start[:, None]).astype(np.int64)  # (draws, A, L)
    total = held @ worth[0]
    for step in flows:
        held = _spread(held, step, rng)
    ended = np.einsum("dal,bl->dab", held * worth[1], member_b)
    with np.errstate(invalid="ignore"):
        return ended / total[..., None]


def _spread(held: Counts, flows: Counts, rng: np.random.Generator) -> Counts:
    """Those held in every cell by region (draws, A, L) after one step with given flows (draws, L, M): (draws, A, M)."""
    moved = np.zeros((*held.shape[:2], flows.shape[2]), dtype=np.int64)
    left = held.copy()
    others = flows.sum(axis=2) - held.sum(axis=1)  # in the cell, of no region of A
    for j in range(flows.shape[2]):
        need = flows[:, :, j].copy()
        rest = left.sum(axis=1) + others
        for a in range(held.shape[1]):
            active: tuple[Index, ...] = np.nonzero((need > 0) & (left[:, a] > 0))
            rest = rest - left[:, a]
            if active[0].size:
                mine = left[:, a][active]
                taken = rng.hypergeometric(mine, rest[active], need[active])
                left[active[0], a, active[1]] -= taken
                need[active] -= taken
                np.add.at(moved[:, a, j], active[0], taken)
        others = others - need
    return moved


def route_lines(table: pd.DataFrame, places: Any) -> dict[str, Any]:
    """Routes as a GeoJSON FeatureCollection: one line per individual through the places of its cells.

    Parameters
    ----------
    table
        What `Posterior.routes` returns, or any table ``id, time, cell``.
    places
        Where the cells lie: a table ``cell, x, y`` or ``cell, lon, lat``, or ``{cell: (x, y)}``.
    """
    cells = list(dict.fromkeys(table["cell"].tolist()))
    points = places_of(places, cells)
    where = dict(zip(cells, points.points.tolist(), strict=True))
    features = []
    for name, rows in table.groupby("id", sort=False):
        line = [where[cell] for cell in rows["cell"].tolist()]
        features.append(
            {
                "type": "Feature",
                # GeoJSON wants two points or more: an individual seen once stays where it is.
                "geometry": {"type": "LineString", "coordinates": line if len(line) > 1 else line * 2},
                "properties": {"id": _json(name), "times": [_json(t) for t in rows["time"].tolist()]},
            }
        )
    axes = "lon, lat" if points.geographic else "x, y"
    return {"type": "FeatureCollection", "name": "routes", "axes": axes, "features": features}


def _json(label: Any) -> Any:
    return label if isinstance(label, (int, float, str)) else str(label)
