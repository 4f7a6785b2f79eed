r"""The possible entries of clique tables, and belief propagation over these alone.

A configuration of a clique is possible if no factor forbids it and every neighbouring clique has a possible configuration that agrees
with it: one collect and one distribute pass of truth values. Deterministic networks leave few (of 3.4 million entries of ``water``'s
cliques 28 000 are possible). The passes, exact with −inf, are loops over lists of these entries: per entry one exponential, and per
separator one look-up. For a clique K below its separator S,

    collect:     beta_C(e) = theta_C(e) + sum_{children K} m_K(s_K(e)),     m_K(s) = log sum_{e: s(e) = s} exp beta_K(e)
    partition:   A(theta) = log sum_e exp beta_root(e)
    distribute:  mu_K(e) = p(e | s(e)) mu_S(s(e)),                          p(e | s(e)) = exp(beta_K(e) − m_K(s(e))) .

Lists of all entries, where all are possible, take as long as sums over axes of tables (0.6 to 1.8 times, measured on networks of 32 to
324 000 entries).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headcount._compile import bare_sums
from headcount._types import Array, Index, Scope
from headcount.errors import ModelError
from headcount.individual.junction_tree import NO_LAW, CliqueLaw, JunctionTree

LOOSE = 4
"""Factor by which codes may outnumber the entries that have them, before they are found by sorting and not in a table of all codes."""


class Margin(NamedTuple):
    """A clique's possible entries by the states of some of its variables."""

    codes: Index
    """Flat positions of the possible states in the table of these variables, ascending."""
    state: NDArray[np.int32]
    """By possible entry of the clique: which of these states it has."""


class Pair(NamedTuple):
    """The possible pairs of states of two parts of a clique, as a sparse matrix without values."""

    ends: NDArray[np.int32]
    columns: NDArray[np.int32]
    found: Margin
    """By possible entry of the clique: which of these pairs it has."""
    shape: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Possible:
    """Which entries of the clique tables of a junction tree are possible."""

    tree: JunctionTree
    entries: tuple[Index | None, ...]
    """By clique: flat positions, ascending; None where all entries are possible."""
    costs: dict[Any, Any] = field(default_factory=dict)
    """What passes over these entries take, by what is observed: asked several times before a run."""
    _margins: dict[tuple[int, Scope], Margin] = field(default_factory=dict)
    _pairs: dict[tuple[int, Scope, Scope], Pair] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: JunctionTree, allowed: Sequence[tuple[Scope, Any]]) -> Possible:
        """Of tables of truth values over scopes that lie in cliques; one byte per entry of all cliques is held meanwhile."""
        tables = _allowed_by_clique(tree, allowed)
        if all(table.all() for table in tables):
            return cls.whole(tree)
        tables = [np.array(np.broadcast_to(t, d.shape)) for t, d in zip(tables, tree.domains, strict=True)]
        up = [(b, a, separator) for a, b, separator in reversed(tree.edges)]
        for a, b, separator in (*up, *tree.edges):
            message = tree.domains[a].project(tables[a], separator, total=np.any)
            tables[b] &= tree.domains[b].expand(message, separator)
        if not tables[0].any():
            raise ModelError(NO_LAW)
        return cls(tree, tuple(None if table.all() else np.flatnonzero(table) for table in tables))

    @classmethod
    def whole(cls, tree: JunctionTree) -> Possible:
        """All entries."""
        return cls(tree, (None,) * len(tree.cliques))

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Possible entries of every clique."""
        sizes = self.tree.table_sizes
        return tuple(n if found is None else len(found) for n, found in zip(sizes, self.entries, strict=True))

    def codes(self, clique: int, scope: Scope) -> Index:
        """By possible entry of a clique: its flat position in the table of some of its variables."""
        domain, found = self.tree.domains[clique], self.entries[clique]
        if found is None:
            return domain.positions(scope)
        part = domain.part(scope)
        code = np.zeros(len(found), dtype=np.intp)
        strides = np.cumprod([1, *domain.shape[::-1]])[-2::-1]
        for axis, size in zip(domain.axes(part.scope), part.shape, strict=True):
            code *= size
            code += found // strides[axis] % size
        return code

    def margin(self, clique: int, scope: Scope) -> Margin:
        """A clique's possible entries by the states of ``scope``; kept."""
        key = (clique, tuple(scope))
        if key not in self._margins:
            self._margins[key] = grouped(
                self.codes(clique, scope), math.prod(self.tree.sizes[v] for v in scope)
            )
        return self._margins[key]

    def pair(self, clique: int, rows: Scope, columns: Scope) -> Pair:
        """A clique's possible entries by the states of two of its parts; kept."""
        key = (clique, rows, columns)
        if key not in self._pairs:
            by_row, by_column = self.margin(clique, rows), self.margin(clique, columns)
            both = (*rows, *(v for v in columns if v not in rows))  # the rows' variables first: sorted by row
            found = grouped(self.codes(clique, both), math.prod(self.tree.sizes[v] for v in both))
            row, column = (np.empty(len(found.codes), dtype=np.int32) for _ in range(2))
            row[found.state], column[found.state] = by_row.state, by_column.state
            ends = np.zeros(len(by_row.codes) + 1, dtype=np.int32)
            np.cumsum(np.bincount(row, minlength=len(by_row.codes)), out=ends[1:])
            self._pairs[key] = Pair(ends, column, found, (len(by_row.codes), len(by_column.codes)))
        return self._pairs[key]

    def listed_values(self, clique: int, table: Array) -> Array:
        """The possible entries of a dense table of a clique."""
        found = self.entries[clique]
        return table.reshape(-1) if found is None else table.reshape(-1)[found]

    def dense(self, clique: int, values: Array) -> Array:
        """The table of a clique whose possible entries are given; the others are zero."""
        domain, found = self.tree.domains[clique], self.entries[clique]
        if found is None:
            return values.reshape(domain.shape)
        table = np.zeros(domain.size)
        table[found] = values
        return table.reshape(domain.shape)


def _allowed_by_clique(tree: JunctionTree, allowed: Sequence[tuple[Scope, Any]]) -> list[NDArray[np.bool_]]:
    """All tables of truth values in the cliques that hold them; axes that none depends on have length one."""
    tables = [np.ones((1,) * len(d.scope), dtype=bool) for d in tree.domains]
    for scope, table in allowed:
        home = tree.covering(scope)
        if home is None:
            raise ModelError(f"no clique of the junction tree holds the factor over {scope!r}")
        if not table.all():
            tables[home] = tables[home] & tree.domains[home].expand(table, scope)
    return tables


def grouped(codes: Index, most: int) -> Margin:
    """The distinct ones among codes below ``most``, ascending, and which of them each is."""
    if most > LOOSE * len(codes):
        distinct, state = np.unique(codes, return_inverse=True)
        return Margin(distinct, state.astype(np.int32))
    there = np.zeros(most, dtype=bool)
    there[codes] = True
    number = np.cumsum(there, dtype=np.int32)
    number -= 1
    return Margin(np.flatnonzero(there), number[codes])


@dataclass(frozen=True, eq=False)
class PassPlan:
    """Where tables over these scopes, each inside a clique, enter the junction tree and leave it.

    ``beliefs`` and ``margins`` take and give one flat array of possible entries per clique.
    """

    possible: Possible
    scopes: tuple[Scope, ...]

    @cached_property
    def _homes(self) -> tuple[int, ...]:
        found = []
        for scope in self.scopes:
            home = self.possible.tree.covering(scope)
            if home is None:
                raise ModelError(
                    f"no clique of the junction tree holds the factor over {scope!r}: build the tree with its scope"
                )
            found.append(home)
        return tuple(found)

    def spread(self, tables: Sequence[Array | None], *, keep: bool = True) -> list[Array]:
        """The tables added up, clique by clique; ``keep`` the look-ups for the next time."""
        made = [np.zeros(n) for n in self.possible.counts]
        for home, scope, table in zip(self._homes, self.scopes, tables, strict=True):
            if table is None:
                continue
            flat = np.ascontiguousarray(table, dtype=float).reshape(-1)
            if keep:
                codes, state = self.possible.margin(home, scope)
                add_at(made[home], state, flat[codes])
            else:
                made[home] += flat[self.possible.codes(home, scope)]
        return made

    def margins(self, cliques: Sequence[Array]) -> list[Array]:
        """The margin of every scope."""
        tree, found = self.possible.tree, []
        for home, scope in zip(self._homes, self.scopes, strict=True):
            table = np.zeros(tree.domain(scope).size)
            margin = self.possible.margin(home, scope)
            table[margin.codes] = summed(cliques[home], margin)
            found.append(table.reshape(tree.domain(scope).shape))
        return found

    def beliefs(self, beta: Sequence[Array]) -> CliqueLaw:
        """A and mu for potentials that are added up already.

        Raises
        ------
        ModelError
            If the potentials leave no configuration possible.
        """
        possible, tree = self.possible, self.possible.tree
        law = [np.array(values, dtype=float) for values in beta]
        for a, b, separator in reversed(tree.edges):
            here, above = possible.margin(b, separator), possible.margin(a, separator)
            message, top = np.zeros(len(here.codes)), np.full(len(here.codes), -math.inf)
            normalise(law[b], here.state, top, message)
            add_at(law[a], above.state, message)
        total, top = np.zeros(1), np.full(1, -math.inf)
        normalise(law[0], np.zeros(len(law[0]), np.int32), top, total)
        if total[0] == -math.inf:
            raise ModelError(NO_LAW)
        for a, b, separator in tree.edges:
            multiply_at(
                law[b], possible.margin(b, separator).state, summed(law[a], possible.margin(a, separator))
            )
        return CliqueLaw(possible, float(total[0]), tuple(law))


def summed(values: Array, margin: Margin) -> Array:
    """Values of a clique's possible entries, summed by state."""
    made = np.zeros(len(margin.codes))
    sum_by(values, margin.state, made)
    return made


@bare_sums
def add_at(out, state, values):  # type: ignore[no-untyped-def]
    """out_e += values[state_e]."""
    for e in range(len(out)):
        out[e] += values[state[e]]


@bare_sums
def multiply_at(out, state, values):  # type: ignore[no-untyped-def]
    """out_e *= values[state_e]."""
    for e in range(len(out)):
        out[e] *= values[state[e]]


@bare_sums
def sum_by(values, state, out):  # type: ignore[no-untyped-def]
    """out[s] += Σ values_e over the entries e with the state s."""
    for e in range(len(values)):
        out[state[e]] += values[e]


@bare_sums
def normalise(beta, state, top, message):  # type: ignore[no-untyped-def]
    """beta becomes exp(beta − log Σ exp beta) over the entries of each state, message that logarithm; ``top`` starts at −∞."""
    for e in range(len(beta)):
        if beta[e] > top[state[e]]:
            top[state[e]] = beta[e]
    for s in range(len(top)):
        if top[s] == -np.inf:
            top[s] = 0.0
    for e in range(len(beta)):
        beta[e] = np.exp(beta[e] - top[state[e]])
        message[state[e]] += beta[e]
    for s in range(len(top)):
        total = message[s]
        message[s] = np.log(total) + top[s]
        top[s] = 1.0 / total if total > 0 else 0.0
    for e in range(len(beta)):
        beta[e] *= top[state[e]]
