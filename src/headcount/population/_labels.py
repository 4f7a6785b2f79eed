"""Tables as labelled arrays; xarray is imported here, when asked for, and nowhere earlier."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.individual import MarkovChain, ModelError
from headcount.population._margins import Scope, dense, scopes_of

if TYPE_CHECKING:
    import xarray

    from headcount.population._tables import CountTables, RealTables


def dataset(tables: CountTables | RealTables) -> xarray.Dataset:
    """Every table with its labels; see `CountTables.to_xarray`."""
    if isinstance(tables.model, MarkovChain) and len(set(tables.model.states.values())) == 1:
        return _chain_dataset(tables, tables.model)
    return _general_dataset(tables)


def _chain_dataset(tables: CountTables | RealTables, chain: MarkovChain) -> xarray.Dataset:
    import xarray

    times = chain.times
    counts = np.stack([dense(tables.table((t,))) for t in times])
    coords: dict[str, Any] = {"time": coordinate(times), "cell": coordinate(chain.cells)}
    arrays: dict[str, Any] = {"counts": (("time", "cell"), counts)}
    if len(times) > 1:
        steps = pairwise(times)
        arrays["flows"] = (("departure", "origin", "dest"), np.stack([dense(tables.table(s)) for s in steps]))
        coords |= {"departure": coordinate(times[:-1]), "arrival": ("departure", coordinate(times[1:]))}
        coords |= {"origin": coordinate(chain.cells), "dest": coordinate(chain.cells)}
    return xarray.Dataset(arrays, coords, attrs={"population": tables.population})


def _general_dataset(tables: CountTables | RealTables) -> xarray.Dataset:
    import xarray

    model = tables.model
    name = {v: str(v) for v in model.variables}
    if len(set(name.values())) < len(name):
        raise ModelError("two variables are spelled alike, so their axes cannot be told apart; rename one")
    scopes: list[Scope] = [*scopes_of(model), *((v,) for v in model.variables)]
    # A table's name joins its variables'; a single variable's name is its axis, so its counts are called
    # counts[…].
    arrays = {
        " & ".join(name[v] for v in scope) if len(scope) > 1 else f"counts[{name[scope[0]]}]": (
            tuple(name[v] for v in scope),
            dense(tables.table(scope)),
        )
        for scope in dict.fromkeys(scopes)
        if scope
    }
    coords = {name[v]: coordinate(model.states[v]) for v in model.variables}
    return xarray.Dataset(arrays, coords, attrs={"population": tables.population})


def coordinate(labels: tuple[Any, ...]) -> Any:
    """Labels as a one-dimensional coordinate, whatever they are."""
    plain = np.asarray(labels) if not any(isinstance(label, tuple) for label in labels) else None
    if plain is not None and plain.ndim == 1 and plain.tolist() == list(labels):
        return plain
    values = np.empty(len(labels), dtype=object)
    values[:] = labels
    return values
