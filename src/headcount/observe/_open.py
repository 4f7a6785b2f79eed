"""An open population on the chain that has the two hidden states: sites lifted onto it, its tables seen as cells or as arrivals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.sparse import csr_array

from headcount._types import Index, Scope
from headcount.individual import Model, OpenChain
from headcount.observe._site import Site


@dataclass(frozen=True, eq=False)
class OpenView:
    """A linear map from tables of the full chain to those of its cells, or from its steps to arrivals, departures or survivors by cell."""

    chain: OpenChain
    what: Literal["cells", "arrivals", "departures", "survivors"] = "cells"

    def shape(self, scope: Scope) -> tuple[int, ...]:
        """The shape of a table that is seen."""
        cells = len(self.chain.cells)
        return (cells,) * len(scope) if self.what == "cells" else (cells,)

    def matrix(self, scope: Scope) -> csr_array:
        """The map of one table, 0/1, shape (entries seen, entries of the full table)."""
        cells = len(self.chain.cells)
        wide = cells + 2
        own = np.arange(cells)
        if self.what == "cells":
            along = np.ix_(*[own] * len(scope))
            columns = np.ravel_multi_index(tuple(np.broadcast_arrays(*along)), (wide,) * len(scope)).ravel()
            rows = np.arange(len(columns))
        elif self.what == "arrivals":
            columns, rows = cells * wide + own, own
        elif self.what == "departures":
            columns, rows = own * wide + cells + 1, own
        else:
            columns, rows = (own[:, None] * wide + own).ravel(), np.repeat(own, cells)
        size = int(np.prod(self.shape(scope)))
        return csr_array((np.ones(len(columns)), (rows, columns)), shape=(size, wide ** len(scope)))


def lifted(chain: OpenChain, site: Site) -> Site:
    """A site on cells as one on the full chain."""
    onto = OpenView(chain).matrix(site.scope)
    if site.index is None:
        return replace(site, size=onto.shape[1], weights=csr_array(site.weights @ onto))
    index: Index = onto.indices[onto.indptr[site.index]].astype(np.intp)
    return replace(site, size=onto.shape[1], index=index)


def on_full(model: Model, sites: Sequence[Site]) -> tuple[Model, tuple[Site, ...]]:
    """The model and the sites as engines see them: on the full chain of an open population, as they are elsewhere."""
    if not isinstance(model, OpenChain):
        return model, tuple(sites)
    return model.full, tuple(lifted(model, site) for site in sites)
