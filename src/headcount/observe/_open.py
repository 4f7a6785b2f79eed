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
from headcount.population import Company, Dispersion


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
            along = np.ix_(*(np.arange(size) for size in seen))
            columns = np.ravel_multi_index(tuple(np.broadcast_arrays(*along)), full).ravel()
            rows = np.arange(len(columns))
        elif self.what == "arrivals":
            columns, rows = cells * wide + own, own
        elif self.what == "departures":
            columns, rows = own * wide + cells + 1, own
        else:
            columns, rows = (own[:, None] * wide + own).ravel(), np.repeat(own, cells)
        shape = (int(np.prod(self.shape(scope))), int(np.prod(full)))
        return csr_array((np.ones(len(columns)), (rows, columns)), shape=shape)


def lifted(view: OpenView, site: Site) -> Site:
    """A site on cells as one on tables with hidden states."""
    onto = view.matrix(site.scope)
    if site.index is None:
        return replace(site, size=onto.shape[1], weights=csr_array(site.weights @ onto))
    index: Index = onto.indices[onto.indptr[site.index]].astype(np.intp)
    return replace(site, size=onto.shape[1], index=index)


def full_dispersion(chain: OpenChain, dispersion: Dispersion | None) -> Dispersion | None:
    """How individuals move together on the full chain: those who are not there yet, or gone, keep no company."""
    if not isinstance(dispersion, Company):
        return dispersion
    cells, into = len(chain.cells), chain.times[1:]
    rows = np.append(np.arange(cells), [-1, -1])
    return dispersion.onto(dict.fromkeys(into, rows), dict.fromkeys(into, cells))


def on_full(model: Model, sites: Sequence[Site]) -> tuple[Model, tuple[Site, ...]]:
    """The model and the sites as engines see them: on the full chain of an open population, as they are elsewhere."""
    if not isinstance(model, OpenChain):
        return model, tuple(sites)
    view = OpenView(model)
    return model.full, tuple(lifted(view, site) for site in sites)
