"""Where observed sites live among the features of a Gaussian tree, and what is settled about them beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headcount.structure._exact import Constraint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headcount.structure._base import Known
    from headcount.structure._gaussian_tree import Node
    from headcount.structure._linalg import Array


@dataclass(frozen=True)
class Placement:
    """Where a site's entries live: features of a node, or entries of the table between a node and its parent."""

    node: int
    features: np.ndarray
    on_table: bool = False


def add_readings(nodes: Sequence[Node], placements: Sequence[Placement], known: Known) -> list[Node]:
    """Nodes with the correlated Gaussian readings as fixed potentials."""
    out = list(nodes)
    for k, (precision, potential) in known.readings.items():
        place = placements[k]
        out[place.node] = out[place.node].with_potential(place.features, precision, potential)
    return out


def exact_constraints(
    nodes: Sequence[Node], placements: Sequence[Placement], known: Known
) -> dict[int, Constraint]:
    """The exact sites of every node as one set of linear constraints."""
    rows: dict[int, list[Array]] = {}
    values: dict[int, list[Array]] = {}
    for k, value in known.exact.items():
        place = placements[k]
        pick = np.zeros((len(value), nodes[place.node].size))
        pick[np.arange(len(value)), place.features] = 1.0
        rows.setdefault(place.node, []).append(pick)
        values.setdefault(place.node, []).append(np.asarray(value, dtype=float))
    return {v: Constraint(np.vstack(rows[v]), np.concatenate(values[v])) for v in rows}
