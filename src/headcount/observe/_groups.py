r"""Several groups as one chain: states are (group, cell), and what is seen of a cell is a sum over groups.

With sizes :math:`N_g`, :math:`N = Σ_g N_g`, the chain has the initial law :math:`(N_g/N)\,π_g(i)` and block-diagonal transitions. N
individuals of it, given that :math:`N_g` of them began in group g, are the groups: a multinomial given its sums is independent
multinomials. So every engine takes groups as exact sums at the first time, and the evidence of the groups is

.. math:: \log p(y) = \log p(y, \text{sizes}) - \log \mathrm{Multinomial}(N_1, N_2, …; N, N_g/N) .

A tracked individual that is counted with the others is a group of one, whose chain is the model given its record.

An open population, too, is solved on a larger chain: that of its cells and two hidden states, not yet there and gone.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from scipy import sparse
from scipy.sparse import csr_array
from scipy.special import gammaln, xlogy

from headcount._types import Array, Index, Scope
from headcount.checks import brief, whole_number
from headcount.errors import Faults, ModelError, ProblemError, shown
from headcount.individual import MarkovChain, Model, OpenChain, Records, RootedTree, Tree
from headcount.observe._binding import Site
from headcount.observe._noises import Exact
from headcount.population import Company, Dispersion, Flocks, Group, SizeLaw, TotalSize
from headcount.tables import dense

SIZES = "sizes of the groups"
"""Name of the node that holds the sizes where they have one."""
HIDDEN = "hidden"
"""Label of states that are in no cell."""
MOST_DENSE = 256
"""States up to which block-diagonal transitions are kept dense: the compiled passes take no sparse ones, and are faster up to here."""


@dataclass(frozen=True, eq=False)
class Member:
    """One group on the stacked chain.

    Attributes
    ----------
    name
        What the group is called.
    size
        How many individuals.
    tree
        Their chain.
    cells
        Per node of the chain, which of the cells that are seen each of its states is; −1 for states that are not seen.
    flock
        How many of them move as one: the group's weight.
    followed
        Whether it is an individual with a tag, who keeps no company (but may stand for its flock).
    """

    name: Hashable
    size: float
    tree: RootedTree
    cells: tuple[Index, ...]
    flock: float = 1.0
    followed: bool = False


@dataclass(frozen=True, eq=False)
class Stack:
    """Members as one chain.

    Attributes
    ----------
    members
        The groups.
    states
        The cells that are seen, per time.
    dispersion
        How individuals of one group move together. Groups then have a node of their own before the first time, with one state per
        group, so that every group's first counts scatter by themselves.
    """

    members: tuple[Member, ...]
    states: Mapping[Hashable, tuple[Hashable, ...]]
    dispersion: Company | Flocks | None = None

    @cached_property
    def index(self) -> dict[Hashable, int]:
        """The node of every time."""
        return {v: k for k, v in enumerate(self.states)}

    @cached_property
    def starts(self) -> list[Index]:
        """Per node, where the states of each member begin, and the number of all."""
        sizes = np.array([member.tree.sizes for member in self.members])
        return [np.concatenate([[0], np.cumsum(column)]) for column in sizes.T]

    @property
    def population(self) -> int:
        """N."""
        return round(sum(member.size for member in self.members))

    @property
    def sizes_first(self) -> bool:
        """Whether the sizes have a node of their own."""
        return self.dispersion is not None or any(member.flock != 1.0 for member in self.members)

    @cached_property
    def company(self) -> Company | None:
        """How individuals of the chain on (group, cell) move together; None where they do not."""
        if not self.sizes_first:
            return None
        if isinstance(self.dispersion, Company):
            return self._in_company(self.dispersion)
        flocks = self.dispersion
        phi = [member.flock if flocks is None else flocks.size for member in self.members]
        origins = [np.arange(len(phi) + 1), *self.starts]  # the first time's origins are the groups
        return Company(
            phi={v: tuple(np.repeat(phi, np.diff(origins[node]))) for v, node in self.index.items()}
        )

    def _in_company(self, given: Company) -> Company:
        """The same company on (group, cell), which followed individuals do not keep."""
        name, alone = ("phi", 1.0) if given.rho is None else ("rho", 0.0)
        times = list(self.states)
        origins = {
            v: np.concatenate([np.where(m.followed, -1, m.cells[node]) for m in self.members])
            for node, v in enumerate(times[1:])
        }
        rest = given.onto(origins, {v: len(self.states[u]) for u, v in pairwise(times)})
        first = alone if given.initial is None else given.initial
        start = {times[0]: tuple(alone if m.followed else first for m in self.members)}
        return Company(**{name: start | getattr(rest, name)})

    @cached_property
    def model(self) -> Any:  # a MarkovChain, or a Tree
        """The chain (or tree) on (group, cell)."""
        first = self.members[0].tree
        share = np.array([member.size / self.population for member in self.members])
        initial = np.concatenate([s * m.tree.initial for s, m in zip(share, self.members, strict=True)])
        names, parent, steps, labels = first.variables, first.parent, self._steps(), self._labels()
        if self.sizes_first:
            names, parent, initial = (SIZES, *names), np.append(-1, parent + 1), share
            steps = [self._joined([m.tree.initial[None] for m in self.members]), *steps]
            labels = {SIZES: tuple(m.name for m in self.members), **labels}
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
                made[key] = self._joined(blocks)
            steps.append(made[key])
        return steps

    def _joined(self, blocks: Sequence[Any]) -> Any:
        """One block-diagonal matrix, dense where it is small."""
        joined = csr_array(sparse.block_diag(blocks, format="csr"))
        return joined.toarray() if max(int(start[-1]) for start in self.starts) <= MOST_DENSE else joined

    def _labels(self) -> dict[Hashable, tuple[Hashable, ...]]:
        """(group, cell) of every state, by time."""
        return {
            v: tuple(
                (m.name, self.states[v][c] if c >= 0 else (HIDDEN, k))
                for m in self.members
                for k, c in enumerate(m.cells[node])
            )
            for v, node in self.index.items()
        }

    @cached_property
    def log_sizes(self) -> float:
        """log Multinomial of the sizes, in which the individuals began by chance."""
        sizes = np.array([member.size for member in self.members], dtype=float)
        n = sizes.sum()
        return float(gammaln(n + 1) - gammaln(sizes + 1).sum() + xlogy(sizes, sizes / n).sum())

    def mixture(self) -> MarkovChain:
        """The chain of cells with the law of every single move of an individual of unknown group; such an individual remembers more."""
        model, view = self.model, View(self, None)
        variables = tuple(self.states)
        nodes = [view.matrix((v,)) @ model.marginal((v,)) for v in variables]
        steps = []
        for (u, v), start in zip(pairwise(variables), nodes, strict=False):
            flow = (view.matrix((u, v)) @ dense(model.marginal((u, v))).ravel()).reshape(view.shape((u, v)))
            nobody = np.full(flow.shape, 1.0 / flow.shape[1])  # a row that is never used
            some = start[:, None] > 0
            steps.append(np.where(some, flow / np.where(some, start[:, None], 1.0), nobody))
        return MarkovChain(nodes[0] / nodes[0].sum(), steps, times=variables, cells=dict(self.states))

    def sizes_site(self, source: int) -> Site:
        """The sizes, as exact sums over the first time."""
        counts = np.array([member.size for member in self.members], dtype=float)
        names = [f"size of the group {member.name!r}" for member in self.members]
        if self.sizes_first:
            noise = Exact(counts, on=(SIZES,))
            return Site((SIZES,), len(counts), np.arange(len(counts)), None, noise, names, source)
        v = next(iter(self.states))
        starts = self.starts[0]
        rows = np.repeat(np.arange(len(self.members)), np.diff(starts))
        weights = csr_array((np.ones(starts[-1]), (rows, np.arange(starts[-1]))))
        return Site((v,), int(starts[-1]), None, weights, Exact(counts, on=(v,)), names, source)

    def own_model(self, member: int) -> MarkovChain:
        """The chain of one group, with the labels of its cells."""
        one = self.members[member]
        states = zip(self.states.items(), one.cells, strict=True)
        return MarkovChain.from_rooted(
            one.tree, {v: tuple(names[c] for c in cells) for (v, names), cells in states}
        )

    def lifted(self, site: Site, member: int | None = None) -> Site:
        """A site on cells as one on the stacked chain, sums over groups; or as one on the states of one group."""
        onto = View(self).matrix(site.scope)
        if member is not None:
            onto = csr_array(onto @ View(self, member).matrix(site.scope).T)
        return lifted(site, onto)


def lifted(site: Site, onto: csr_array) -> Site:
    """A site as one on the table whose entries `onto` maps to the site's own, 0/1, shape (entries, entries of the larger table)."""
    size = int(onto.shape[1])
    if site.index is None:
        return replace(site, size=size, weights=csr_array(site.weights @ onto))
    rows = csr_array(onto[site.index])
    if np.all(np.diff(rows.indptr) == 1):  # entries, not sums
        return replace(site, size=size, index=rows.indices.astype(np.intp))
    return replace(site, size=size, index=None, weights=rows)


@dataclass(frozen=True, eq=False)
class View:
    """A linear map from the stacked tables to those of the cells, of all groups together or of one."""

    stack: Stack
    member: int | None = None
    """Which group; None: the sum over all."""

    def shape(self, scope: Scope) -> tuple[int, ...]:
        """The shape of a table that is seen."""
        if self.member is None:
            return tuple(len(self.stack.states[v]) for v in scope)
        cells = self.stack.members[self.member].cells
        return tuple(int((cells[self.stack.index[v]] >= 0).sum()) for v in scope)

    def matrix(self, scope: Scope) -> csr_array:
        """The map of one table, 0/1, shape (entries seen, entries of the stacked table). Nobody changes the group."""
        stack, nodes, shape = self.stack, [self.stack.index[v] for v in scope], self.shape(scope)
        whole = tuple(int(stack.starts[node][-1]) for node in nodes)
        rows, columns = [], []
        for m, member in enumerate(stack.members):
            if self.member not in (None, m):
                continue
            own = [np.flatnonzero(member.cells[node] >= 0) for node in nodes]
            seen = [
                np.arange(len(k)) if self.member == m else member.cells[node][k]
                for k, node in zip(own, nodes, strict=True)
            ]
            columns.append(
                _flat([k + stack.starts[node][m] for k, node in zip(own, nodes, strict=True)], whole)
            )
            rows.append(_flat(seen, shape))
        both = np.concatenate(rows), np.concatenate(columns)
        return csr_array((np.ones(len(both[0])), both), shape=(int(np.prod(shape)), int(np.prod(whole))))


def _flat(along: Sequence[Index], shape: tuple[int, ...]) -> Index:
    """Flat positions of the block of a table that has these entries along its axes."""
    return np.ravel_multi_index(tuple(np.broadcast_arrays(*np.ix_(*along))), shape).ravel()


GUESSED_SIZE = 1000
"""Individuals of a group without a known size in the mixture that names the cells; its shares are used for nothing else."""


def stack_of(groups: Any, dispersion: Any, beside: Mapping[str, Any], faults: Faults) -> Stack:
    """The groups of a problem as one chain; nothing else can be checked without them, so all faults so far are raised.

    `beside` is what was given beside groups, which have it themselves, by the names of the arguments.
    """
    sizes = _checked_groups(groups, dispersion, beside, faults)
    first = next(iter(groups.values())).model
    cells = {
        t: tuple(dict.fromkeys(c for group in groups.values() for c in group.model.states[t]))
        for t in first.times
    }
    members = tuple(
        Member(
            name,
            group.weight * size,
            group.model.rooted(),
            _cells_of(group.model, cells),
            float(group.weight),
        )
        for (name, group), size in zip(groups.items(), sizes, strict=True)
    )
    stack = Stack(members, cells, dispersion if isinstance(dispersion, (Company, Flocks)) else None)
    stack.model.initial_known = first.initial_known
    if stack.sizes_first and not first.initial_known:
        raise ProblemError("groups: move together and have no initial distribution: give them one")
    return stack


def _checked_groups(groups: Any, dispersion: Any, beside: Mapping[str, Any], faults: Faults) -> list[int]:
    """The sizes of groups that agree with each other and with what was given beside them; all faults so far are raised."""
    kinds = list(groups.values()) if isinstance(groups, Mapping) else []
    if not kinds or not all(isinstance(g, Group) for g in kinds):
        faults.add("groups", f"must be {{name: Group(model, size)}}, got {brief(groups)}")
        faults.raise_any()
    for name, other in beside.items():
        if other is not None:
            text = "cannot stand beside groups, which have their own models and sizes: leave it out"
            faults.add(name, text)
    if dispersion is not None and any(group.weight != 1 for group in kinds):
        text = "stands beside groups with a weight, which are flocks already: give one of them"
        faults.add("dispersion", text)
    sizes = _group_sizes(groups, faults)
    _require_alike({name: group.model for name, group in groups.items()}, faults)
    faults.raise_any()
    return sizes


def _require_alike(models: Mapping[Hashable, MarkovChain], faults: Faults) -> None:
    """Note groups whose times differ, and initial distributions that only some have."""
    times = next(iter(models.values())).times
    for name, model in models.items():
        if model.times != times:
            faults.add(
                "groups", f"{name!r} has the times {shown(model.times)}, the first group {shown(times)}"
            )
    if len({model.initial_known for model in models.values()}) > 1:
        text = "some groups have an initial distribution and some have not: give it to all or to none"
        faults.add("groups", text)


def _group_sizes(groups: Mapping[Hashable, Group], faults: Faults) -> list[int]:
    """The size of every group; a guess for those that have a law."""
    sizes = []
    for name, group in groups.items():
        try:
            size = GUESSED_SIZE if isinstance(group.size, SizeLaw) else group.size
            sizes.append(whole_number(size, f"the size of the group {name!r}"))
        except ModelError as error:
            faults.add("groups", str(error))
    if not faults and sum(sizes) == 0:
        faults.add("groups", "nobody is in any of them: give one a size of 1 or more")
    return sizes


def total_size(groups: Mapping[Hashable, Group]) -> int | SizeLaw:
    """How many individuals all groups have."""
    laws = tuple(group.size for group in groups.values() if isinstance(group.size, SizeLaw))
    known = sum(g.weight * int(g.size) for g in groups.values() if not isinstance(g.size, SizeLaw))
    return TotalSize(laws, known) if laws else known


def sized(groups: Mapping[Hashable, Group], total: int | SizeLaw) -> dict[Hashable, Group]:
    """The groups with the first of unknown size given so many that it has ``total`` together with the known ones."""
    free = next((name for name, group in groups.items() if isinstance(group.size, SizeLaw)), None)
    if free is None or isinstance(total, SizeLaw):
        raise ProblemError(
            "the groups say how many individuals there are: make a Problem(groups=...) with other sizes"
        )
    known = total_size({name: g for name, g in groups.items() if not isinstance(g.size, SizeLaw)})
    assert isinstance(known, int)
    if total < known:
        raise ProblemError(f"population is {total}, fewer than the known groups have")
    return {**groups, free: Group(groups[free].model, total - known)}


def _cells_of(model: MarkovChain, states: Mapping[Hashable, tuple[Hashable, ...]]) -> tuple[Index, ...]:
    """Per time, which of the cells of all groups each state of one group's chain is."""
    place = {t: {c: k for k, c in enumerate(cells)} for t, cells in states.items()}
    return tuple(np.array([place[t][c] for c in model.states[t]], dtype=np.intp) for t in states)


def tracked(model: MarkovChain, population: int, records: Records, dispersion: Any = None) -> Stack:
    """The population with followed individuals as groups of one, or of one flock; the others are the last group."""
    together = dispersion if isinstance(dispersion, (Company, Flocks)) and not dispersion.is_none else None
    own = together.size if isinstance(together, Flocks) else 1
    tree = model.rooted()
    everywhere = tuple(np.arange(size) for size in tree.sizes)
    members = []
    for r, name in enumerate(records.ids):
        known: dict[Scope, Array] = {}
        for node, (rows, likelihood) in records.seen.items():
            if r in rows:
                seen = likelihood[[int(np.flatnonzero(rows == r)[0])]].toarray()[0]
                with np.errstate(divide="ignore"):
                    known[(tree.variables[node],)] = np.log(seen)
        members.append(Member(name, own, *_narrowed(model.tilt(known)[0].rooted()), followed=True))
    members.append(Member(None, max(population - own * len(records), 0), tree, everywhere))
    return Stack(tuple(members), dict(model.states), together)


def _narrowed(tree: RootedTree | None) -> tuple[RootedTree, tuple[Index, ...]]:
    """A chain without the states that it never visits, and which states are left."""
    assert tree is not None
    law, kept, steps = tree.initial, [np.flatnonzero(tree.initial)], []
    for step in tree.transitions[1:]:
        law = np.asarray(law @ step)
        kept.append(np.flatnonzero(law))
        steps.append(step[kept[-2]][:, kept[-1]])
    made = RootedTree(tree.variables, tree.parent, tree.initial[kept[0]], (None, *steps))
    return made, tuple(kept)


@dataclass(frozen=True, eq=False)
class OpenView:
    """A linear map from tables with hidden states, the last ones, to those of the cells; or from steps to arrivals, departures, survivors.

    Attributes
    ----------
    model
        Whose cells are seen.
    what
        Of an open population: its cells, or who came, left or stayed in a step, by cell.
    hidden
        Hidden states per variable: not yet there and gone (and, where individuals are candidates, absent).
    """

    model: Model
    what: Literal["cells", "arrivals", "departures", "survivors"] = "cells"
    hidden: int = 2

    def shape(self, scope: Scope) -> tuple[int, ...]:
        """The shape of a table that is seen."""
        seen = self.model.size(scope)
        return seen if self.what == "cells" else seen[:1]

    def matrix(self, scope: Scope) -> csr_array:
        """The map of one table, 0/1, shape (entries seen, entries of the full table)."""
        seen = self.model.size(scope)
        full = tuple(size + self.hidden for size in seen)
        cells, wide = seen[0], full[-1]
        own = np.arange(cells)
        if self.what == "cells":
            columns = _flat([np.arange(size) for size in seen], full)
            rows = np.arange(len(columns))
        elif self.what == "arrivals":
            columns, rows = cells * wide + own, own
        elif self.what == "departures":
            columns, rows = own * wide + cells + 1, own
        else:
            columns, rows = (own[:, None] * wide + own).ravel(), np.repeat(own, cells)
        shape = (int(np.prod(self.shape(scope))), int(np.prod(full)))
        return csr_array((np.ones(len(columns)), (rows, columns)), shape=shape)


def full_dispersion(chain: OpenChain, dispersion: Dispersion | None) -> Dispersion | None:
    """How individuals move together on the full chain: those who are not there yet, or gone, keep no company."""
    if not isinstance(dispersion, Company):
        return dispersion
    cells, into = len(chain.cells), chain.times[1:]
    rows = np.append(np.arange(cells), [-1, -1])
    return dispersion.onto(dict.fromkeys(into, rows), dict.fromkeys(into, cells))
