"""Minimal coordinates: a bijection between consistent tables and vectors whose covariance has full rank.

For every clique D of the triangulated graph, maximal or not, keep the configurations in which no variable
takes its dropped value:

    z̃_D = T_{D,A} z_A,    T_{D,A}(i_D, i_A) = 1[i_D and i_A agree on D],    i_D ∈ Π_{v∈D} (X_v ∖ {dropped_v})
    z_A = H_A z̃_{A⁺} + N h_A,       z̃_{A⁺} = (z̃_D : ∅ ≠ D ⊆ A)

H follows variable by variable: the indicator of x_v = i is a coordinate itself for a kept i, one minus the
kept ones for the dropped i, so [h_A, H_A] = ⊗_{v∈A} B_v with B_v the L_v × L_v matrix that says so. All its
entries are 0 or ±1 and its determinant is ±1. Liu, Sheldon and Dietterich (2014), Proposition 3; Loh and
Wainwright (2013).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations
from typing import Any, Literal, final

import numpy as np
from scipy import sparse

from headcount._types import Array, Index
from headcount.checks import instance
from headcount.errors import raise_all
from headcount.individual import Model, ModelError
from headcount.individual._model import checked_model
from headcount.population._tables import CountTables, RealTables
from headcount.tables import Domain, Scope, dense

Drop = Literal["most probable", "last"] | Mapping[Hashable, int]


@final
@dataclass(frozen=True, eq=False)
class MinimalCoordinates:
    """The coordinates z̃ of a model's tables.

    Attributes
    ----------
    model : Model
    dropped : mapping of variable to state index
        The value left out of every variable.
    """

    model: Model
    dropped: Mapping[Hashable, int]

    def __post_init__(self) -> None:
        checked_model(self.model)
        instance(self.dropped, Mapping, "dropped", expected="a mapping of variables to state indices")
        object.__setattr__(self, "dropped", _checked_drop(self.model, self.dropped))

    @classmethod
    def of(cls, model: Model, drop: Drop = "most probable") -> MinimalCoordinates:
        """Choose what each variable drops.

        Parameters
        ----------
        model : Model
        drop : {"most probable", "last"} or mapping
            "most probable" keeps the covariance well conditioned; "last" is the paper's choice; a mapping
            names the state index for every variable.
        """
        checked_model(model)
        if isinstance(drop, Mapping):
            return cls(model, drop)
        if isinstance(drop, str) and drop == "most probable":
            return cls(model, {v: int(np.argmax(model.marginal((v,)))) for v in model.variables})
        if isinstance(drop, str) and drop == "last":
            return cls(model, {v: model.size((v,))[0] - 1 for v in model.variables})
        raise ModelError(
            f"drop is {drop!r}; choose 'most probable', 'last', or a mapping of variables to state indices"
        )

    @cached_property
    def cliques(self) -> tuple[Scope, ...]:
        """Every clique D of the triangulated graph, small ones first; variables in the model's order."""
        found = {subset for clique in self.model.junction_tree.cliques for subset in self.inside(clique)}
        return tuple(sorted(found, key=lambda d: (len(d), [self._order[v] for v in d])))

    @cached_property
    def _order(self) -> dict[Hashable, int]:
        return {v: k for k, v in enumerate(self.model.variables)}

    def inside(self, scope: Scope) -> tuple[Scope, ...]:
        """A⁺: the non-empty D ⊆ A, small ones first, variables in the model's order."""
        members = sorted(scope, key=self._order.__getitem__)
        return tuple(d for size in range(1, len(members) + 1) for d in combinations(members, size))

    def width(self, scope: Scope) -> int:
        """The number of entries of z̃_D: Π_{v∈D} (L_v − 1)."""
        return math.prod(length - 1 for length in self.model.size(scope))

    @cached_property
    def _start(self) -> dict[Scope, int]:
        widths = [self.width(d) for d in self.cliques]
        return dict(zip(self.cliques, np.cumsum([0, *widths])[:-1].tolist(), strict=True))

    @cached_property
    def dimension(self) -> int:
        """The length of z̃."""
        return sum(self.width(d) for d in self.cliques)

    def places(self, scope: Scope) -> Index:
        """Where z̃_D stands in z̃, for one clique D of `cliques`."""
        return np.arange(self._start[scope], self._start[scope] + self.width(scope))

    def places_inside(self, scope: Scope) -> Index:
        """Where z̃_{A⁺} stands in z̃, in the order of `inside`."""
        parts = [self.places(d) for d in self.inside(scope)]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.intp)

    def selection(self, clique: Sequence[Hashable], scope: Sequence[Hashable]) -> Any:
        """T_{D,A}: the 0/1 matrix with z̃_D = T_{D,A} z_A, sparse; rows and columns in C order."""
        inner, outer = self.model.scope(clique), self.model.scope(scope)
        if not set(inner) <= set(outer):
            raise ModelError(f"{inner!r} is not inside {outer!r}, so its counts are no sums of that table's")
        blocks = [
            sparse.csr_array(np.delete(np.eye(length), self.dropped[v], axis=0))
            if v in inner
            else sparse.csr_array(np.ones((1, length)))
            for v, length in zip(outer, self.model.size(outer), strict=True)
        ]
        matrix = reduce(sparse.kron, blocks, sparse.csr_array(np.ones((1, 1))))
        kept = tuple(v for v in outer if v in inner)
        made = Domain(kept, tuple(self.model.size((v,))[0] - 1 for v in kept))
        return sparse.csr_array(matrix)[made.part(inner).positions(kept)]

    def reduction(self, scope: Sequence[Hashable]) -> Any:
        """T_{A⁺,A}: all T_{D,A} with D ⊆ A, one above the other in the order of `inside`."""
        parts = [self.selection(d, scope) for d in self.inside(self.model.scope(scope))]
        return sparse.csr_array(sparse.vstack(parts))

    def recovery(self, scope: Sequence[Hashable]) -> tuple[Any, Array]:
        """Give H_A (sparse) and h_A with z_A = H_A z̃_{A⁺} + N h_A.

        The columns of ⊗_v B_v run over every choice of "left out" or a kept value per variable; grouping
        them by which variables are kept gives one block per D ⊆ A, the empty one being h.
        """
        outer = self.model.scope(scope)
        sizes = self.model.size(outer)
        blocks = [_recover_one(length, self.dropped[v]) for v, length in zip(outer, sizes, strict=True)]
        whole = sparse.csc_array(reduce(sparse.kron, blocks, sparse.csr_array(np.ones((1, 1)))))
        grid = np.arange(whole.shape[1]).reshape(sizes)
        columns = [self._columns(grid, outer, d) for d in self.inside(outer)]
        order = np.concatenate(columns) if columns else np.empty(0, dtype=np.intp)
        return sparse.csr_array(whole[:, order]), whole[:, [0]].toarray().reshape(-1)

    def _columns(self, grid: Index, outer: Scope, inner: Scope) -> Index:
        taken = grid[tuple(slice(1, None) if v in inner else 0 for v in outer)]
        return Domain(tuple(v for v in outer if v in inner), taken.shape).project(taken, inner).reshape(-1)

    def reduce(self, tables: CountTables | RealTables) -> Array:
        """Give z̃ = T z."""
        return np.concatenate([self._kept(dense(tables.table(d)).astype(float), d) for d in self.cliques])

    def recover(self, reduced: Array, population: float) -> RealTables:
        """Give every clique's table back from z̃ and N."""
        tables = {}
        for clique in self.model.junction_tree.cliques:
            matrix, offset = self.recovery(clique)
            flat = matrix @ reduced[self.places_inside(clique)] + population * offset
            tables[clique] = flat.reshape(self.model.size(clique))
        return RealTables(self.model, tables)

    def mean(self, population: float) -> Array:
        """E z̃ = N μ̃."""
        return population * np.concatenate([self._kept(self.model.marginal(d), d) for d in self.cliques])

    def _kept(self, table: Array, scope: Scope) -> Array:
        """The entries of a table in which no variable takes its dropped value, in C order."""
        for axis, v in enumerate(scope):
            table = np.delete(table, self.dropped[v], axis=axis)
        return table.reshape(-1)


def _checked_drop(model: Model, drop: Mapping[Hashable, int]) -> dict[Hashable, int]:
    """One state index per variable."""
    problems = [f"drop does not say which state of {v!r}" for v in model.variables if v not in drop]
    problems += [
        f"drop names state {drop[v]!r} of {v!r}, which has {model.size((v,))[0]}"
        for v in model.variables
        if v in drop and drop[v] not in range(model.size((v,))[0])
    ]
    raise_all(problems)
    return {v: int(drop[v]) for v in model.variables}


def _recover_one(length: int, dropped: int) -> Any:
    """B_v: (1, kept indicators) ↦ all indicators of one variable; column 0 is the constant."""
    matrix = np.zeros((length, length))
    kept = [i for i in range(length) if i != dropped]
    matrix[kept, np.arange(1, length)] = 1.0
    matrix[dropped, 0] = 1.0
    matrix[dropped, 1:] = -1.0
    return sparse.csr_array(matrix)
