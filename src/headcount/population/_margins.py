"""Margins of tables, dense or sparse: n_S(i_S) = Σ_{i_{C∖S}} n_C(i_S, i_{C∖S})."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from headcount.individual import Model, ModelError

Scope = tuple[Hashable, ...]
Table = Any
"""A dense array with one axis per variable or, for an edge, a ``scipy.sparse`` matrix."""


def margin(table: Table, scope: Sequence[Hashable], onto: Sequence[Hashable]) -> Table:
    """Sum a table over `scope` down to `onto` ⊆ `scope`, axes in the order of `onto`."""
    kept = [v for v in scope if v in onto]
    if tuple(onto) == tuple(scope):
        return table
    if sparse.issparse(table):
        if len(kept) == 2:
            return sparse.csr_array(table.T)
        axis = tuple(k for k, v in enumerate(scope) if v not in onto)
        return np.asarray(table.sum(axis=axis[0])).reshape(-1) if len(axis) == 1 else np.asarray(table.sum())
    summed = np.asarray(table.sum(axis=tuple(k for k, v in enumerate(scope) if v not in onto)))
    return summed.transpose([kept.index(v) for v in onto])


def dense(table: Table) -> Any:
    """The table as an array."""
    return table.toarray() if sparse.issparse(table) else np.asarray(table)


def find(tables: Mapping[Scope, Table], scope: Scope) -> Table | None:
    """The table over exactly these variables, in whatever order it is kept, turned to the order asked for."""
    if scope in tables:
        return tables[scope]
    for key, table in tables.items():
        if len(key) == len(scope) and set(key) == set(scope):
            return margin(table, key, scope)
    return None


def covering_clique(model: Model, scope: Scope) -> Scope:
    """The smallest clique that contains `scope`; `ModelError` if none does."""
    index = model.junction_tree.covering(scope)
    if index is None:
        raise ModelError(
            f"no clique holds all of {scope!r}, so the clique tables do not determine its counts; "
            f"ask for a scope inside one of model.junction_tree.cliques, or count the samples themselves"
        )
    return model.junction_tree.cliques[index]


def scopes_of(model: Model) -> tuple[Scope, ...]:
    """Every clique and every separator once."""
    return tuple(dict.fromkeys([*model.junction_tree.cliques, *model.junction_tree.separators]))


def entry_name(model: Model, scope: Scope, index: Iterable[int]) -> str:
    """One entry of a table for people: 'n(rain=yes, sky=grey)'."""
    named = (f"{v}={model.states[v][int(i)]}" for v, i in zip(scope, index, strict=True))
    return f"n({', '.join(named)})"
