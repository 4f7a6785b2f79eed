r"""Belief propagation for many potentials on the same scopes of one junction tree.

`Plan` finds once where every table enters its clique and how its margin is summed; `Plan.beliefs` then costs one exponential per entry
of a clique. Collecting, for a clique K below its separator S, keeps the conditional law, so that nothing is exponentiated twice:

    e_K = exp(beta_K − max beta_K),   p(x_K | x_S) = e_K / sum e_K,   m_K(x_S) = log sum e_K + max beta_K
    mu_K = p(x_K | x_S) mu_S
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from headcount._types import Array, Scope
from headcount.errors import ModelError
from headcount.individual._junction_tree import NO_LAW, JunctionTree
from headcount.tables import Domain


@dataclass(frozen=True, eq=False)
class Beliefs:
    """A(theta), and what the passes found clique by clique."""

    log_partition: float
    cliques: tuple[Array, ...]
    """mu_C."""


@dataclass(frozen=True, eq=False)
class _Sums:
    """A table and the smaller ones that are summed from it: margins go down this tree, potentials up.

    Two-way margins of a four-way table by way of three-way ones take three passes over it, not six.
    """

    domain: Domain
    wanted: tuple[tuple[int, tuple[int, ...] | None], ...]
    """Which scopes are this table itself, and how its axes are turned for them (None: not at all)."""
    parts: tuple[tuple[int, _Sums], ...]
    """(axis summed out, the table that is left)."""

    @classmethod
    def plan(cls, domain: Domain, scopes: Sequence[tuple[int, Scope]]) -> _Sums:
        """Sum out, each time, the variable that the most of the scopes do without."""
        own, left = _parted(scopes, lambda s: len(s) == len(domain.scope))
        wanted = tuple((k, None if s == domain.scope else domain.axes(s)) for k, s in own)
        parts = []
        while left:
            lacking = [sum(v not in s for _, s in left) for v in domain.scope]
            axis = max(range(len(lacking)), key=lambda k: (lacking[k], domain.shape[k]))
            out = domain.scope[axis]
            left, below = _parted(left, partial(_contains, out))
            part = domain.part([v for v in domain.scope if v != out])
            parts.append((axis, cls.plan(part, below)))
        return cls(domain, wanted, tuple(parts))

    def margins(self, table: Array, found: list[Array]) -> None:
        """Put the margin of every scope into its place of ``found``."""
        for k, turn in self.wanted:
            found[k] = table if turn is None else table.transpose(turn)
        for axis, part in self.parts:
            part.margins(np.add.reduce(table, axis=axis), found)

    def total(self, tables: Sequence[Array | None]) -> Array | None:
        """All tables added up; axes on which nothing depends have length one. None where there is no table."""
        found = []
        for k, turn in self.wanted:
            table = tables[k]
            if table is not None:
                found.append(table if turn is None else table.transpose(np.argsort(turn)))
        for axis, part in self.parts:
            below = part.total(tables)
            if below is not None:
                found.append(below[(slice(None),) * axis + (None,)])
        return _added(found)


def _contains(variable: Hashable, scope: Scope) -> bool:
    return variable in scope


def _parted(
    scopes: Sequence[tuple[int, Scope]], kept: Callable[[Scope], bool]
) -> tuple[list[tuple[int, Scope]], list[tuple[int, Scope]]]:
    """Scopes of which something holds, and the others."""
    return [one for one in scopes if kept(one[1])], [one for one in scopes if not kept(one[1])]


def _added(tables: Sequence[Array]) -> Array | None:
    """The sum of tables that may have axes of length one; None of none."""
    if len(tables) < 2:
        return tables[0] if tables else None
    made = np.add(tables[0], tables[1], order="C")
    for table in tables[2:]:
        # In place where that is possible: to allocate large arrays takes longer than to add them.
        fits = all(n >= m for n, m in zip(made.shape, table.shape, strict=True))
        made = np.add(made, table, out=made if fits else None, order="C")
    return made


@dataclass(frozen=True, eq=False)
class Plan:
    """Where tables over these scopes, each inside a clique, enter the junction tree and leave it."""

    tree: JunctionTree
    scopes: tuple[Scope, ...]

    @classmethod
    def of(cls, tree: JunctionTree, scopes: tuple[Scope, ...]) -> Plan:
        """The tree's plan for these scopes, made once."""
        if scopes not in tree.plans:
            tree.plans[scopes] = cls(tree, scopes)
        return tree.plans[scopes]

    @cached_property
    def _sums(self) -> tuple[_Sums, ...]:
        homes: list[list[tuple[int, Scope]]] = [[] for _ in self.tree.cliques]
        for k, scope in enumerate(self.scopes):
            home = self.tree.covering(scope)
            if home is None:
                raise ModelError(
                    f"no clique of the junction tree holds the factor over {scope!r}: build the tree with its scope"
                )
            homes[home].append((k, scope))
        return tuple(_Sums.plan(d, h) for d, h in zip(self.tree.domains, homes, strict=True))

    @cached_property
    def _edges(
        self,
    ) -> tuple[tuple[int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...]:
        """Per edge: parent, child, the axes summed out of each, and the shapes in which a separator's table broadcasts to each."""
        made = []
        for a, b, separator in self.tree.edges:
            ends = []
            for domain in (self.tree.domains[a], self.tree.domains[b]):
                away = tuple(k for k, v in enumerate(domain.scope) if v not in separator)
                shape = tuple(
                    n if v in separator else 1 for v, n in zip(domain.scope, domain.shape, strict=True)
                )
                ends.append((away, shape))
            made.append((a, b, ends[0][0], ends[1][0], ends[0][1], ends[1][1]))
        return tuple(made)

    def spread(self, tables: Sequence[Array | None]) -> list[Array]:
        """The tables added up, clique by clique."""
        made = []
        for sums, domain in zip(self._sums, self.tree.domains, strict=True):
            total = sums.total(tables)
            made.append(np.zeros(domain.shape) if total is None else np.broadcast_to(total, domain.shape))
        return made

    def margins(self, cliques: Sequence[Array]) -> list[Array]:
        """The margin of every scope."""
        found: list[Array] = [np.zeros(0)] * len(self.scopes)
        for sums, table in zip(self._sums, cliques, strict=True):
            sums.margins(table, found)
        return found

    def beliefs(self, beta: Sequence[Array]) -> Beliefs:
        """A and mu for potentials that are added up already, one table per clique.

        Raises
        ------
        ModelError
            If the potentials leave no configuration possible.
        """
        beta = list(beta)
        law: list[Array] = [np.zeros(0)] * len(beta)
        for a, b, _, away, above, below in reversed(self._edges):
            law[b], message = _normalised(beta[b], away, below)
            beta[a] = beta[a] + message.reshape(above)
        law[0], total = _normalised(beta[0], tuple(range(beta[0].ndim)), (1,) * beta[0].ndim)
        log_partition = float(total.reshape(()))
        if log_partition == -math.inf:
            raise ModelError(NO_LAW)
        for a, b, away, _, _, below in self._edges:
            law[b] *= law[a].sum(axis=away).reshape(below)
        return Beliefs(log_partition, tuple(law))


def _normalised(beta: Array, away: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Array, Array]:
    """exp beta divided by its sum over ``away`` (rows that are all −inf become zeros), and the logarithm of that sum."""
    top = beta.max(axis=away, keepdims=True) if away else beta
    top = np.where(np.isneginf(top), 0.0, top)
    law = np.subtract(beta, top, order="C")
    np.exp(law, out=law)
    total = law.sum(axis=away, keepdims=True)
    with np.errstate(divide="ignore"):
        message = np.log(total) + top
    law /= np.where(total > 0, total, 1.0)
    return law, message.reshape(shape)
