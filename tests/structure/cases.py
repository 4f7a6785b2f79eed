"""Sites on the awkward graphs, and the structures that answer for each graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from tests.graphs import awkward_models

from headcount.structure import JunctionStructure, TreeStructure

N = 50.0


@dataclass(frozen=True)
class Where:
    """A site without noise: only its place."""

    scope: tuple
    index: np.ndarray | None = None
    weights: csr_array | None = None

    def __len__(self) -> int:
        return len(self.index) if self.index is not None else self.weights.shape[0]


def layout(model, rng):
    """Sites on some entries of every clique, on a node, and on a sum."""
    sites = []
    for clique in model.junction_tree.cliques:
        size = int(np.prod(model.size(clique)))
        sites.append(Where(tuple(clique), np.sort(rng.choice(size, max(1, size // 2), replace=False))))
    node = (model.variables[0],)
    sites.append(Where(node, np.arange(model.size(node)[0])))
    last = (model.variables[-1],)
    sites.append(Where(last, weights=csr_array(np.eye(1, model.size(last)[0]))))
    return sites


def sites_and_values(model, seed, rows=layout):
    """Sites, precisions and potentials."""
    rng = np.random.default_rng(seed)
    sites = rows(model, rng)
    return sites, [rng.gamma(1.0, 0.3, len(s)) for s in sites], [rng.normal(size=len(s)) for s in sites]


def structures(model):
    """Structures for this graph by name; each is called as DenseStructure is."""
    found = {"junction": JunctionStructure}
    if model.rooted() is not None:
        found["tree"] = lambda m, *rest: TreeStructure(m.rooted(), *rest)
    return found


CASES = [(name, shape) for name, model in awkward_models().items() for shape in structures(model)]
