r"""Every population as one cloud: independent individuals on a larger graph, of whom linear combinations are seen.

Three statements cover all populations, and every combination of them.

1. *Members.* The individuals of one kind are a member: the law of one of them on its own states (a rooted tree), and the law of
   their number. States are cells, or hidden: not yet there, gone, absent. A problem without groups has one member; a set of equal
   records of tagged individuals is one more, whose number is known.
2. *Numbers.* The root of the larger graph has one state per member. Sizes are independent, with cumulant generating functions
   :math:`\kappa_g`, so that with :math:`a_g` the log of :math:`E\,e^{g\cdot n}` of one individual of member g

   .. math:: \log E\,e^{g\cdot n} = \sum_g \kappa_g(a_g), \qquad E\,n_g = \kappa_g'\mu_g, \qquad
             \operatorname{cov}(n_A, n_B) = \sum_g \kappa_g'\langle\mu_{AB}\rangle_g + (\kappa_g'' - \kappa_g')\,\mu_{g,A}\mu_{g,B}^\top ,

   and on the tree the root's covariance is :math:`\operatorname{diag}\kappa_g''`, all steps are as ever. A known number has
   :math:`\kappa = Na`, :math:`\kappa'' = 0`.
3. *View.* The counts people speak of are :math:`n = V\tilde n` for counts :math:`\tilde n` on the larger graph, V linear: sums over
   members and over their states, times the number of individuals that each unit stands for. A site with features A on n has features
   AV on :math:`\tilde n`; beliefs about n are V times beliefs about :math:`\tilde n`.

Engines that add up or sample individuals take *candidates* instead: M of them for a member of unknown size, each of whom may be absent
(`Cloud.candidates`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import sparse
from scipy.sparse import csr_array, issparse
from scipy.special import gammaln, xlog1py, xlogy

from headcount._types import Array, Index, Scope
from headcount.individual import (
    GONE_STATE,
    HIDDEN_STATE,
    WAITING_STATE,
    MarkovChain,
    Model,
    Records,
    RootedTree,
    Tree,
    record_log_prob,
)
from headcount.individual._rooted_models import MOST_DENSE, cell_map
from headcount.observe._base import Observation
from headcount.observe._noises import Exact
from headcount.observe.binding import Site
from headcount.observe.closed import ClosedProblem
from headcount.population import Dispersion, Exactly, Numbers, Others, SizeLaw
from headcount.tables import dense

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

SIZES = "sizes of the groups"
"""Name of the root whose states are the members."""
Seen = Literal["cells", "arrivals", "departures", "survivors"]
"""What a view shows: cells; or who came, left or stayed in a step, by cell."""


@dataclass(frozen=True, eq=False)
class Member:
    """Units of one kind.

    Attributes
    ----------
    group
        The name of the group whose individuals these are; None where there is one kind.
    tree
        The law of one unit on its own states.
    cells
        Per node, which of the cells that are seen each state is; negative for states that are not seen (`HIDDEN_STATE`,
        `WAITING_STATE`, `GONE_STATE`).
    law
        The law of the number of units.
    weight
        How many individuals each unit stands for.
    tags
        The names of tagged individuals, who move alone; none of all others.
    model
        The model whose individuals these are.
    """

    group: Hashable
    tree: RootedTree
    cells: tuple[Index, ...]
    law: SizeLaw
    weight: float = 1.0
    tags: tuple[Hashable, ...] = ()
    model: Model | None = None
    kept: tuple[Index, ...] | None = None
    """Of tagged individuals: which states of the model's larger graph are left, per node."""

    def with_absent(self, most: int, share: float) -> Member:
        """``most`` candidates, each of whom is there with probability ``share``; the last state of every node is absence."""
        tree = self.tree
        initial = np.append(share * tree.initial, 1.0 - share)
        steps = [_block_diagonal([matrix, np.ones((1, 1))]) for matrix in tree.transitions[1:]]
        cells = tuple(np.append(seen, HIDDEN_STATE) for seen in self.cells)
        made = RootedTree(tree.variables, tree.parent, initial, (None, *steps))
        return replace(self, tree=made, cells=cells, law=Exactly(most))


@dataclass(frozen=True, eq=False)
class Cloud:
    """Members on one larger graph, and what is seen of them.

    Attributes
    ----------
    members
        All of them.
    states
        The cells that are seen, per variable.
    sites
        What is seen of them.
    dispersion
        How units of one member move together.
    log_offset
        Log probability of what is known beside the counts: the tags' records.
    """

    members: tuple[Member, ...]
    states: Mapping[Hashable, tuple[Hashable, ...]]
    sites: tuple[Site, ...]
    dispersion: Dispersion | None = None
    log_offset: float = 0.0

    @cached_property
    def index(self) -> dict[Hashable, int]:
        """The node of every variable in the members' trees."""
        return self.members[0].tree.index

    @cached_property
    def starts(self) -> list[Index]:
        """Per node, where the states of each member begin, and the number of all."""
        sizes = np.array([member.tree.sizes for member in self.members])
        return [np.concatenate([[0], np.cumsum(column)]) for column in sizes.T]

    @property
    def sizes_known(self) -> bool:
        """Whether the number of every member is known."""
        return all(member.law.variance == 0 for member in self.members)

    @property
    def sizes_first(self) -> bool:
        """Whether the root's states are the members: not where one number of one kind is all there is."""
        return len(self.members) > 1 or not self.sizes_known

    @cached_property
    def numbers(self) -> Numbers | None:
        """The laws of all sizes; None where one number is known."""
        if not self.sizes_first:
            return None
        return Numbers.of([m.law for m in self.members], [m.weight for m in self.members])

    @cached_property
    def model(self) -> Model:
        """The larger graph: members' states side by side, below a root whose states are the members where there are several."""
        shares = self._shares([member.law.mean for member in self.members])
        return self._joined(shares, sizes_first=self.sizes_first)

    @staticmethod
    def _shares(sizes: Sequence[float]) -> Array:
        """Members' shares of all units; only ratios of law to law depend on them, so that any positive ones will do."""
        known = np.minimum(np.asarray(sizes, dtype=float), 1e6)
        return known / known.sum() if known.sum() > 0 else np.full(len(known), 1.0 / len(known))

    def _joined(self, shares: Array, *, sizes_first: bool) -> Model:
        members = self.members
        first = members[0].tree
        names, parent, steps, labels = first.variables, first.parent, self._steps(), self._labels()
        initial = np.concatenate([s * m.tree.initial for s, m in zip(shares, members, strict=True)])
        if sizes_first:
            names, parent, initial = (SIZES, *names), np.append(-1, parent + 1), shares
            steps = [_block_diagonal([m.tree.initial[None] for m in members]), *steps]
            labels = {SIZES: tuple(range(len(members))), **labels}
        tree = RootedTree(names, parent, initial, (None, *steps))
        return (MarkovChain if tree.is_chain else Tree).from_rooted(tree, labels)

    def _steps(self) -> list[Any]:
        """Block-diagonal transitions; equal steps stay one object."""
        made: dict[tuple[int, ...], Any] = {}
        steps = []
        for node in range(1, len(self.members[0].tree.sizes)):
            blocks = [member.tree.transitions[node] for member in self.members]
            key = tuple(map(id, blocks))
            if key not in made:
                made[key] = blocks[0] if len(blocks) == 1 else _block_diagonal(blocks)
            steps.append(made[key])
        return steps

    def _labels(self) -> dict[Hashable, tuple[Hashable, ...]]:
        """(member, state of its model's larger graph) of every state, by variable."""
        return {
            v: tuple((k, int(i)) for k in range(len(self.members)) for i in self.kept_states(k, v))
            for v in self.index
        }

    def view(self, members: Sequence[int] | None = None, what: Seen = "cells") -> View:
        """What is seen of all members together, or of some of them."""
        return View(self, None if members is None else tuple(members), what)

    def kept_states(self, k: int, variable: Hashable) -> Index:
        """Which states of its model's larger graph a member has: of tagged individuals, those that they may be in."""
        member, node = self.members[k], self.index[variable]
        return np.arange(member.tree.sizes[node]) if member.kept is None else member.kept[node]

    def all_codes(self, k: int, node: int) -> Index:
        """Which cell each state of a member's model is, those included that its tags exclude."""
        member = self.members[k]
        if not member.tags or member.model is None:
            return member.cells[node]
        return in_larger_graph(member.model, self.states)[1][node]

    def of_group(self, name: Hashable) -> tuple[int, ...]:
        """The members of one group, tagged individuals included."""
        return tuple(k for k, member in enumerate(self.members) if member.group == name)

    def of_tag(self, name: Hashable) -> int | None:
        """The member that a tagged individual is of; None where there is no such tag."""
        return next((k for k, member in enumerate(self.members) if name in member.tags), None)

    @cached_property
    def _lifted(self) -> list[tuple[Site, float]]:
        return [lifted(site, self.view().matrix(site.scope)) for site in self.sites]

    @property
    def lifted(self) -> tuple[Site, ...]:
        """The sites on the larger graph."""
        return tuple(site for site, _ in self._lifted)

    @property
    def log_unit_loss(self) -> float:
        """Log of what densities of readings lose where they are taken in units of several individuals."""
        return sum(loss for _, loss in self._lifted)

    @cached_property
    def together(self) -> Dispersion | None:
        """How units move together on the larger graph."""
        return self._on_members(self.dispersion, sizes_first=self.sizes_first)

    def _on_members(self, given: Any, *, sizes_first: bool) -> Any:
        """The same dispersion on all members' states, from which tagged individuals and those in hidden states are left out."""
        if given is None or given.is_none or not given.of_steps:
            return given
        tree, alone = self.members[0].tree, given.alone
        origins, sizes = {}, {}
        for node in range(1, len(tree.parents)):
            u, v = tree.parents[node], tree.variables[node]
            origins[v] = np.concatenate(
                [np.full_like(m.cells[u], HIDDEN_STATE) if m.tags else m.cells[u] for m in self.members]
            )
            sizes[v] = len(self.states[tree.variables[u]])
        rest = given.onto(origins, sizes)
        if not sizes_first:
            return replace(rest, initial=given.initial)
        first = alone if given.initial is None else given.initial
        start = {tree.variables[0]: tuple(alone if m.tags else first for m in self.members)}
        return given.by_steps(start | rest.values)

    def candidates(self, most: Sequence[int], expected: Sequence[float]) -> Candidates:
        """The same cloud as a known number of candidates, of whom those of members of unknown size may be absent.

        Parameters
        ----------
        most
            Candidates of every member; read where its size is not known.
        expected
            How many of them are about there.
        """
        members, factors = [], []
        for k, (member, top, mean) in enumerate(zip(self.members, most, expected, strict=True)):
            if member.law.variance == 0:
                members.append(member)
                continue
            share = min(max(mean / top, SMALLEST_SHARE), 1.0 - SMALLEST_SHARE)
            members.append(member.with_absent(top, share))
            factors.append((k, partial(_log_factor, member.law, top, share)))
        return Candidates(replace(self, members=tuple(members)), tuple(factors), self)


SMALLEST_SHARE = 1e-6
"""Probability of a candidate to be there, and to be absent, that is kept free: both must be possible."""


@dataclass(frozen=True, eq=False)
class Candidates:
    r"""A cloud of known numbers, with factors on how many of some members' candidates are there.

    N individuals of the chain on (member, state), given that :math:`N_g` of them began in member g, are the members: a multinomial given
    its sums is independent multinomials. So sizes are exact sums, and the evidence is

    .. math:: \log p(y) = \log p(y, \text{sizes}) - \log \mathrm{Multinomial}(N_1, N_2, …; N, N_g/N) .

    M candidates of whom each is there with probability q are there in :math:`\mathrm{Bin}(M, q)` numbers; with the factor
    :math:`p(n)/\mathrm{Bin}(n; M, q)` their number has any law p on 0 … M.
    """

    cloud: Cloud
    factors: tuple[tuple[int, Callable[[Array], Array]], ...]
    original: Cloud
    """Whose candidates these are."""

    @cached_property
    def population(self) -> int:
        """Candidates of all members."""
        return int(sum(member.law.most for member in self.cloud.members))

    @property
    def sizes_first(self) -> bool:
        """Whether the members are states of a root of their own.

        Where they scatter together from the first time on, and where exact totals of all of them would overlap with their sizes.
        """
        overlap = self.cloud.dispersion is not None or any(site.noise.exact for site in self.cloud.lifted)
        return overlap and len(self.cloud.members) > 1

    @cached_property
    def model(self) -> Model:
        """The graph of all candidates."""
        cloud = self.cloud
        shares = np.array([member.law.mean for member in cloud.members]) / max(self.population, 1)
        return cloud._joined(shares, sizes_first=self.sizes_first)

    @property
    def sites(self) -> tuple[Site, ...]:
        """Those of the cloud, its sizes, and the factors."""
        sizes = (self._sizes(),) if len(self.cloud.members) > 1 else ()
        return (*self.cloud.lifted, *sizes, *(self._factor(k, factor) for k, factor in self.factors))

    @property
    def together(self) -> Dispersion | None:
        """How candidates move together."""
        return self.cloud._on_members(self.cloud.dispersion, sizes_first=self.sizes_first)

    @cached_property
    def closed(self) -> ClosedProblem:
        """What engines solve."""
        return ClosedProblem(self.model, self.population, self.sites, self.together)

    @cached_property
    def log_sizes(self) -> float:
        """log Multinomial of the sizes, in which the candidates began by chance."""
        sizes = np.array([member.law.mean for member in self.cloud.members])
        n = sizes.sum()
        return float(gammaln(n + 1) - gammaln(sizes + 1).sum() + xlogy(sizes, sizes / n).sum())

    @property
    def log_prior(self) -> float:
        """Log probability of the sizes that are taken as known and were not: those that exact counts tell."""
        if self.factors:
            return 0.0
        pairs = zip(self.cloud.members, self.original.members, strict=True)
        return float(sum(given.law.log_pmf(own.law.most) for own, given in pairs if given.law.variance > 0))

    def _sizes(self) -> Site:
        """The sizes, as exact sums over the first variable."""
        members = self.cloud.members
        counts = np.array([member.law.mean for member in members])
        names = [f"size of the group {member.group!r}" for member in members]
        if self.sizes_first:
            return Site(
                (SIZES,), len(counts), np.arange(len(counts)), None, Exact(counts, on=(SIZES,)), names
            )
        v, starts = self.cloud.members[0].tree.variables[0], self.cloud.starts[0]
        rows = np.repeat(np.arange(len(members)), np.diff(starts))
        weights = csr_array((np.ones(starts[-1]), (rows, np.arange(starts[-1]))))
        return Site((v,), int(starts[-1]), None, weights, Exact(counts, on=(v,)), names)

    def there(self, k: int) -> tuple[Hashable, csr_array]:
        """The first variable, and the row that counts those of member k's candidates who are there."""
        starts = self.cloud.starts[0]
        last = int(starts[k + 1]) - any(k == other for other, _ in self.factors)
        row = np.zeros((1, starts[-1]))
        row[0, starts[k] : last] = 1.0
        return self.cloud.members[0].tree.variables[0], csr_array(row)

    def _factor(self, k: int, factor: Callable[[Array], Array]) -> Site:
        v, row = self.there(k)
        noise = SizeFactor(np.zeros(1), on=(v,), log_factor=factor)
        return Site((v,), row.shape[1], None, row, noise, ["the number of individuals"])


@dataclass(frozen=True, eq=False, kw_only=True)
class SizeFactor(Observation):
    """A factor on how many candidates are there, as a noise without data."""

    log_factor: Callable[[Array], Array] = field(metadata={"per": "all"})

    def log_prob(self, n: ArrayLike) -> Array:
        """log p(n) − log Bin(n; M, q)."""
        return self.log_factor(np.asarray(n, dtype=float))


def _log_factor(law: SizeLaw, most: int, share: float, n: Array) -> Array:
    """log p(n) − log Bin(n; M, q)."""
    ways = gammaln(most + 1.0) - gammaln(n + 1.0) - gammaln(np.maximum(most - n, 0.0) + 1.0)
    binomial = ways + xlogy(n, share) + xlog1py(most - n, -share)
    return np.where(n <= most, law.log_pmf(n) - binomial, -np.inf)


def _block_diagonal(blocks: Sequence[Any]) -> Any:
    """One block-diagonal matrix, dense where it is small and no block is sparse."""
    joined = csr_array(sparse.block_diag([csr_array(b) for b in blocks], format="csr"))
    small = max(joined.shape) <= MOST_DENSE and not any(map(issparse, blocks))
    return joined.toarray() if small else joined


def lifted(site: Site, onto: csr_array) -> tuple[Site, float]:
    """A site as one on the larger table whose entries `onto` maps to the site's own, and the log of what densities lose in units.

    Rows whose weights are all multiples of one whole number c are counts of units: n = c m, and the noise is taken as one on m.
    """
    size = int(onto.shape[1])
    rows = csr_array(onto[site.index]) if site.index is not None else csr_array(site.weights @ onto)
    units = _common_factors(rows)
    noise, loss = site.noise, 0.0
    if (units != 1.0).any():
        rows = csr_array(sparse.diags_array(1.0 / units) @ rows)
        noise, loss = noise.in_units(units)
    if site.index is not None and np.all(np.diff(rows.indptr) == 1) and (rows.data == 1.0).all():
        return replace(site, size=size, index=rows.indices.astype(np.intp), noise=noise), loss
    return replace(site, size=size, index=None, weights=rows, noise=noise), loss


def _common_factors(rows: csr_array) -> Array:
    """The greatest common divisor of every row's weights; 1 where they are no whole numbers."""
    if not len(rows.data) or (rows.data == 1.0).all() or not (rows.data == np.rint(rows.data)).all():
        return np.ones(rows.shape[0])
    whole = np.rint(rows.data).astype(np.int64)
    found = [np.gcd.reduce(whole[a:b], initial=0) for a, b in pairwise(rows.indptr)]
    return np.maximum(np.array(found, dtype=float), 1.0)


@dataclass(frozen=True, eq=False)
class View:
    """A linear map from tables of the larger graph to those that people speak of, of all members together or of some."""

    cloud: Cloud
    members: tuple[int, ...] | None = None
    """Which members, whose own cells are then shown; None: the sum over all, on all cells."""
    what: Seen = "cells"

    def shape(self, scope: Scope) -> tuple[int, ...]:
        """The shape of a table that is seen."""
        names = scope if self.what == "cells" else scope[:1]
        return tuple(len(self._cells(self.cloud.index[v])) for v in names)

    def _cells(self, node: int) -> Index:
        """The cells that are shown, in their order."""
        if self.members is None:
            return np.arange(len(self.cloud.states[self.cloud.members[0].tree.variables[node]]))
        codes = np.concatenate([self.cloud.all_codes(k, node) for k in self.members])
        return np.unique(codes[codes >= 0])

    def matrix(self, scope: Scope) -> csr_array:
        """The map of one table, shape (entries seen, entries of the larger table). Nobody changes the member."""
        cloud, shape = self.cloud, self.shape(scope)
        nodes = [cloud.index[v] for v in scope]
        whole = tuple(int(cloud.starts[node][-1]) for node in nodes)
        shown = range(len(cloud.members)) if self.members is None else self.members
        parts = [self._of_member(m, nodes, shape, whole) for m in shown]
        rows, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        size = (math.prod(shape), math.prod(whole))
        return csr_array((values, (rows, columns)), shape=size)

    def _of_member(
        self, m: int, nodes: list[int], shape: tuple[int, ...], whole: tuple[int, ...]
    ) -> tuple[Index, Index, Array]:
        """Rows, columns and weights of one member's states."""
        member = self.cloud.members[m]
        codes = [member.cells[node] for node in nodes]
        if self.members is not None:
            codes = [
                np.where(c >= 0, np.searchsorted(self._cells(node), c), c)
                for c, node in zip(codes, nodes, strict=True)
            ]
        picked, seen = self._picked(codes)
        offsets = [self.cloud.starts[node][m] for node in nodes]
        columns = _flat([k + offset for k, offset in zip(picked, offsets, strict=True)], whole)
        rows = _flat(seen, shape) if self.what == "cells" else _repeated(seen, [len(k) for k in picked])
        return rows, columns, np.full(len(columns), member.weight)

    def _picked(self, codes: list[Index]) -> tuple[list[Index], list[Index]]:
        """Per axis, a member's states that are shown, and the cells that they are."""
        if self.what == "cells":
            picked = [np.flatnonzero(code >= 0) for code in codes]
            return picked, [code[k] for code, k in zip(codes, picked, strict=True)]
        before, after = codes
        wanted = {
            "arrivals": (before == WAITING_STATE, after >= 0),
            "departures": (before >= 0, after == GONE_STATE),
            "survivors": (before >= 0, after >= 0),
        }[self.what]
        picked = [np.flatnonzero(mask) for mask in wanted]
        axis = 1 if self.what == "arrivals" else 0
        return picked, [codes[axis][picked[axis]] if k == axis else np.zeros(0, np.intp) for k in range(2)]


def _repeated(seen: list[Index], sizes: list[int]) -> Index:
    """The cell of every entry of a block, by its origin or by its destination."""
    if len(seen[0]):
        return np.repeat(seen[0], sizes[1])
    return np.tile(seen[1], sizes[0])


def _flat(along: Sequence[Index], shape: tuple[int, ...]) -> Index:
    """Flat positions of the block of a table that has these entries along its axes."""
    return np.ravel_multi_index(tuple(np.broadcast_arrays(*np.ix_(*along))), shape).ravel()


def alone(model: Model) -> Cloud:
    """One individual of one kind on the larger graph that it follows, of which nothing is seen."""
    member = Member(None, *in_larger_graph(model, model.states), Exactly(1), model=model)
    return Cloud((member,), dict(model.states), ())


def in_larger_graph(
    model: Model, states: Mapping[Hashable, tuple[Hashable, ...]]
) -> tuple[RootedTree, tuple[Index, ...]]:
    """The tree that individuals of a model follow, and per node which of the cells of all groups each of its states is."""
    larger = model.larger()
    assert larger is not None
    cells = []
    for v, codes in zip(larger.tree.variables, larger.cells, strict=True):
        place = {c: k for k, c in enumerate(states[v])}
        own = np.array([place[c] for c in model.states[v]], dtype=np.intp)
        cells.append(np.where(codes >= 0, own[np.maximum(codes, 0)], codes))
    return larger.tree, tuple(cells)


def on_larger(records: Records, model: Model) -> Records:
    """Records of a model's cells as ones on the states of its larger graph."""
    larger = model.larger()
    assert larger is not None
    names = larger.tree.variables
    return records.through(
        [cell_map(c, len(model.states[v])) for v, c in zip(names, larger.cells, strict=True)]
    )


def tagged(member: Member, records: Records) -> tuple[list[Member], float]:
    """A member without the tagged individuals among it, one more member per distinct record, and the records' log probability."""
    assert member.model is not None
    own = on_larger(records, member.model)
    log_prob = float(record_log_prob(member.tree, own).sum())
    members = []
    for rows in equal_records(own):
        tags = tuple(records.ids[r] for r in rows)
        tree, kept = _narrowed(_given(member.tree, own, rows[0]))
        cells = tuple(code[k] for code, k in zip(member.cells, kept, strict=True))
        alone = replace(member, tree=tree, cells=cells, law=Exactly(len(rows)), tags=tags, kept=kept)
        members.append(alone)
    left = member.law
    rest: SizeLaw = (
        Exactly(int(left.mean) - len(records)) if left.variance == 0 else Others(left, len(records))
    )
    return [*members, replace(member, law=rest)], log_prob


def equal_records(records: Records) -> list[list[int]]:
    """Records by what they say: one list of positions per distinct record."""
    said: list[list[tuple[int, bytes]]] = [[] for _ in range(len(records))]
    for node, (rows, likelihood) in sorted(records.seen.items()):
        table = csr_array(likelihood)
        table.sort_indices()
        for k, r in enumerate(rows):
            span = slice(table.indptr[k], table.indptr[k + 1])
            said[r].append((node, table.indices[span].tobytes() + table.data[span].tobytes()))
    found: dict[tuple[tuple[int, bytes], ...], list[int]] = {}
    for r, one in enumerate(said):
        found.setdefault(tuple(one), []).append(r)
    return list(found.values())


def _given(tree: RootedTree, records: Records, r: int) -> RootedTree:
    """The law of one individual given its record."""
    from headcount.individual.rooted_tree import tilted

    potentials: list[Array | None] = [None] * len(tree.variables)
    for node, (rows, likelihood) in records.seen.items():
        if r in rows:
            seen = likelihood[[int(np.flatnonzero(rows == r)[0])]].toarray()[0]
            with np.errstate(divide="ignore"):
                potentials[node] = np.log(seen)
    return tilted(tree, potentials)[1]


def _narrowed(tree: RootedTree) -> tuple[RootedTree, tuple[Index, ...]]:
    """A tree without the states that are never visited, and which states are left."""
    laws = [np.asarray(tree.initial)]
    kept = [np.flatnonzero(tree.initial)]
    steps: list[Any] = []
    for v in range(1, len(tree.parents)):
        u, step = tree.parents[v], tree.transitions[v]
        laws.append(np.asarray(laws[u] @ step))
        kept.append(np.flatnonzero(laws[v]))
        steps.append(step[kept[u]][:, kept[v]])
    made = RootedTree(tree.variables, tree.parent, tree.initial[kept[0]], (None, *steps))
    return made, tuple(kept)


def law_of_moves(expected: Array, *, nobody: Any) -> Array:
    """Expected counts by destination (last axis) as probabilities; those of ``nobody`` where none are expected."""
    total = expected.sum(axis=-1, keepdims=True)
    return np.where(total > 0, expected / np.where(total > 0, total, 1.0), dense(nobody))


def mixture(cloud: Cloud) -> MarkovChain | Tree:
    """The chain or tree of cells with the law of every single move of an individual of unknown group; such an individual remembers more."""
    view, model, tree = cloud.view(), cloud.model, cloud.members[0].tree
    variables = tree.variables
    root = view.matrix(variables[:1]) @ dense(model.marginal(variables[:1])).ravel()
    steps = []
    for v, parent in zip(variables[1:], tree.parents[1:], strict=True):
        u = variables[parent]
        flow = (view.matrix((u, v)) @ dense(model.marginal((u, v))).ravel()).reshape(view.shape((u, v)))
        steps.append(law_of_moves(flow, nobody=np.full(flow.shape, 1.0 / flow.shape[1])))
    total = root.sum()
    first = root / total if total > 0 else np.full(len(root), 1.0 / len(root))
    if tree.is_chain:
        return MarkovChain(first, steps, times=variables, cells=dict(cloud.states))
    return Tree.from_rooted(RootedTree(variables, tree.parent, first, (None, *steps)), cloud.states)
