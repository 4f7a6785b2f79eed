"""A simulated world as the tables that a user would hold, and the truth beside them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._disk import MANIFEST, filling
from headcount.io._write import put_table

if TYPE_CHECKING:
    import os

    import pandas as pd

    from headcount.individual import MarkovChain
    from headcount.io._tables import Places
    from headcount.simulate import World


def write_world(
    world: World, folder: str | os.PathLike[str], *, places: Places | None = None, force: bool = False
) -> list[Path]:
    """Write what `read_problem` reads, and the truth; all files or none.

    ``counts.csv``, ``transitions.csv``, ``initial.csv``, where there are such ``cells.csv`` and ``features.csv.gz``, and
    ``truth_counts.csv``, ``truth_flows.csv``; ``manifest.json`` holds their checksums. Moves of probability 0, and true flows of 0,
    have no row.

    Parameters
    ----------
    places
        Where the cells are, if the world does not say.
    force
        Overwrite files that an earlier run did not write, or that were changed since; they are refused otherwise.
    """
    tables = world_tables(world, places)
    with filling(folder, force=force) as stage:
        for name, table in tables.items():
            put_table(table, stage / name)
    return [Path(folder) / name for name in (*tables, MANIFEST)]


def world_tables(world: World, places: Places | None = None) -> dict[str, pd.DataFrame]:
    """``{file name: table}`` of a world of a chain."""
    import pandas as pd

    chain: Any = world.model
    times, cells = list(chain.times), list(chain.cells)
    shape = (len(times), len(cells))
    t, c = (index.ravel() for index in np.indices(shape))
    where = _places(world, cells, places)
    labels = {"time": _take(times, t), "cell": _take(cells, c)}
    beside = {name: values[c] for name, values in where.items()}
    seen = world.observed.to_numpy().ravel()
    tables = {
        "counts.csv": pd.DataFrame(labels | beside | {"count": _whole(seen)}),
        "transitions.csv": _transitions(chain, times, cells),
        "initial.csv": pd.DataFrame({"cell": cells, "probability": chain.initial})[chain.initial > 0],
    }
    if where:
        tables["cells.csv"] = pd.DataFrame({"cell": cells} | where)
    if world.features is not None:
        tables["features.csv.gz"] = _features(world, times, cells)
    tables["truth_counts.csv"] = pd.DataFrame(labels | {"count": world.counts.ravel()})
    t, i, j = np.nonzero(world.flows)
    moved = {"time": _take(times, t), "origin": _take(cells, i), "dest": _take(cells, j)}
    tables["truth_flows.csv"] = pd.DataFrame(moved | {"count": world.flows[t, i, j]})
    return tables


def _places(world: World, cells: list[Any], places: Places | None) -> dict[str, np.ndarray]:
    if world.coordinates is not None:
        return {"x": world.coordinates[:, 0], "y": world.coordinates[:, 1]}
    if places is None or not all(str(cell) in places.of for cell in cells):
        return {}
    both = np.array([places.of[str(cell)] for cell in cells])
    return {name: both[:, k] for k, name in enumerate(places.names)}


def _transitions(chain: MarkovChain, times: list[Any], cells: list[Any]) -> pd.DataFrame:
    """Possible moves with their probabilities; without a column of times where every step is the same."""
    import pandas as pd
    from scipy import sparse

    alike = len({id(m) for m in chain.transitions}) == 1
    parts = []
    for time, matrix in zip(times[:1] if alike else times[:-1], chain.transitions, strict=False):
        table = sparse.coo_array(matrix)
        order = np.lexsort((table.coords[1], table.coords[0]))
        i, j = table.coords[0][order], table.coords[1][order]
        head = {} if alike else {"time": [time] * len(i)}
        parts.append(
            pd.DataFrame(
                head | {"from": _take(cells, i), "to": _take(cells, j), "probability": table.data[order]}
            )
        )
    return pd.concat(parts, ignore_index=True)


def _features(world: World, times: list[Any], cells: list[Any]) -> pd.DataFrame:
    import pandas as pd

    assert world.features is not None
    values = np.asarray(world.features)
    allowed = np.ones(values.shape[2:], bool) if world.mask is None else np.isfinite(world.mask)
    t, i, j = np.nonzero(np.broadcast_to(allowed, (len(values), *allowed.shape)))
    head = {"time": _take(times, t), "from": _take(cells, i), "to": _take(cells, j)}
    return pd.DataFrame(head | {name: values[t, k, i, j] for k, name in enumerate(world.features.names)})


def _take(labels: list[Any], index: np.ndarray) -> list[Any]:
    return [labels[k] for k in index.tolist()]


def _whole(values: np.ndarray) -> Any:
    """Counts as whole numbers where they all are."""
    return values.astype(np.int64) if (values == np.rint(values)).all() else values
