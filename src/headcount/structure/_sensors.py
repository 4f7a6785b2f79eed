"""What the matrix-free structure sees: every site's entries or sums as rows on the vector of all nodes' entries and seen moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular

from headcount._device import host
from headcount.structure._prior_operator import PriorOperator, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headcount._linalg import Array
    from headcount.individual import RootedTree
    from headcount.structure._base import Known, SiteLike


class Sensors:
    """Where sites look, as rows on the long vector; depends on the tree's shape and on what is known, not on the tilts.

    Attributes
    ----------
    rows
        One row per entry of every site, in the sites' order.
    seen
        H: the rows of ordinary sites, then those of correlated readings (whitened), then the exact ones.
    edges
        Flat positions of the moves in the vector, by child.
    """

    def __init__(
        self, prior: PriorOperator, tree: RootedTree, sites: Sequence[SiteLike], known: Known
    ) -> None:
        self.edges = _seen_moves(prior, tree, sites)
        by_site, width = _rows_by_site(prior, tree, sites, self.edges)
        plain = [k for k in range(len(sites)) if k not in known.exact and k not in known.readings]
        self.plain, self.known = (_entries_of(sites, picked) for picked in (plain, known.exact))
        self.factors = {k: np.linalg.cholesky(known.readings[k][0]) for k in known.readings}
        rows = rows_of(by_site, width)
        seen = rows if len(plain) == len(sites) else rows_of(self._in_order(by_site, plain, known), width)
        self.exact = seen.shape[0] - len(self.known)
        self.any_fixed = len(self.known) > 0
        self.put = prior.xp.asarray
        self.fixed = self.put(np.arange(seen.shape[0]) >= self.exact)
        self.rows = _placed(rows, tree)
        self.seen = self.rows if seen is rows else _placed(seen, tree)

    def _in_order(
        self, by_site: list[sparse.csr_array], plain: list[int], known: Known
    ) -> list[sparse.csr_array]:
        """The rows of ordinary sites, whitened ones of correlated readings, exact ones."""
        white = [sparse.csr_array(c.T) @ by_site[k] for k, c in self.factors.items()]
        return [*(by_site[k] for k in plain), *white, *(by_site[k] for k in known.exact)]

    def arrange(self, tau: Array, nu: Array, known: Known) -> tuple[Array, Array, Array]:
        """Precisions and potentials of the seen rows, and the exact values (zero elsewhere), where the structure's arrays are."""
        t, n, c = (np.zeros(self.seen.shape[0]) for _ in range(3))
        at = len(self.plain)
        t[:at], n[:at] = tau[self.plain], nu[self.plain]
        for k, factor in self.factors.items():
            where = slice(at, at + len(factor))
            t[where], n[where] = 1.0, solve_triangular(factor, known.readings[k][1], lower=True)
            at = where.stop
        c[self.exact :] = np.concatenate(
            [np.zeros(0), *(np.asarray(x, dtype=float) for x in known.exact.values())]
        )
        return self.put(t), self.put(n), self.put(c)


def _placed(rows: sparse.csr_array, tree: RootedTree) -> sparse.csr_array:
    """Rows where the tree's law is."""
    return rows if tree.device is None else tree.device.put(rows)


def _entries_of(sites: Sequence[SiteLike], picked: Iterable[int]) -> np.ndarray:
    """Positions of some sites' entries among those of all sites."""
    ends = np.cumsum([0, *(len(site) for site in sites)])
    return np.concatenate([np.zeros(0, np.intp), *(np.arange(ends[k], ends[k + 1]) for k in picked)])


def _rows_by_site(
    prior: PriorOperator, tree: RootedTree, sites: Sequence[SiteLike], edges: dict[int, np.ndarray]
) -> tuple[list[sparse.csr_array], int]:
    """B of every site, and the length of the vector: all nodes' entries, then the seen moves by child."""
    ends = prior.entries + np.cumsum([0, *(len(edges[v]) for v in sorted(edges))])
    starts = dict(zip(sorted(edges), ends[:-1].tolist(), strict=True))
    width = int(ends[-1])
    return [_site_rows(prior, tree, site, edges, starts, width) for site in sites], width


def _flat_in_tree(tree: RootedTree, site: SiteLike, flat: np.ndarray) -> np.ndarray:
    """Flat positions in the site's table as positions in the tree's, which has the parent first."""
    place = tree.place(site.scope)
    if not place.turned:
        return flat
    child, parent = np.divmod(flat, place.shape[0])
    return np.asarray(parent * place.shape[1] + child)


def _seen_moves(prior: PriorOperator, tree: RootedTree, sites: Sequence[SiteLike]) -> dict[int, np.ndarray]:
    """Possible moves that some site looks at, sorted, by child."""
    looked: dict[int, list[np.ndarray]] = {}
    for site in sites:
        place = tree.place(site.scope)
        if place.edge:
            flat = np.asarray(site.index) if site.index is not None else sparse.coo_array(site.weights).col
            looked.setdefault(place.node, []).append(_flat_in_tree(tree, site, flat))
    return {
        v: np.intersect1d(np.concatenate(flat), prior.flat_index(v)[host(prior.chances(v)).reshape(-1) > 0])
        for v, flat in looked.items()
    }


def _site_rows(
    prior: PriorOperator,
    tree: RootedTree,
    site: SiteLike,
    edges: dict[int, np.ndarray],
    starts: dict[int, int],
    width: int,
) -> sparse.csr_array:
    """B of one site, on the long vector; impossible moves have no column: their count is zero."""
    place = tree.place(site.scope)
    if site.index is not None:
        row, at, weight = np.arange(len(site)), np.asarray(site.index), np.ones(len(site))
    else:
        held = sparse.coo_array(site.weights)
        row, at, weight = held.row, held.col, held.data
    if not place.edge:
        column = int(prior.node[place.node]) + at
    else:
        at, known = _flat_in_tree(tree, site, at), edges[place.node]
        column = np.minimum(np.searchsorted(known, at), max(len(known) - 1, 0))
        possible = (known[column] == at) if len(known) else np.zeros(len(at), bool)
        row, column, weight = row[possible], starts[place.node] + column[possible], weight[possible]
    return sparse.csr_array((weight, (row, column)), shape=(len(site), width))
