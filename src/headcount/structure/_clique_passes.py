r"""The prior covariance of counts on any junction tree, as the derivative of belief propagation.

For a function :math:`F(x) = \sum_A v_A(x_A)` of one individual, each A inside a clique, and N independent individuals,

.. math:: \mathrm{cov}\Bigl(n_C(c),\; \sum_A v_A\cdot n_A\Bigr) = N\,\mu_C(c)\,(E[F \mid x_C = c] - E[F]) .

Conditional expectations go through a clique from one separator to another,
:math:`E[F \mid x_S = s] = \sum_{s'} P(s' \mid s)\,E[F \mid x_{S'} = s']` for F on the far side of S', by the sparse matrix
:math:`P(S, S')` of the clique's margin on both: its possible pairs of states, at most as many as the clique has possible entries.
No matrix over two cliques is formed.

**Columns.** Every count that is looked at is one F, one column of :math:`E[F_j \mid x_S]`, ``(states of S, columns)``. Whatever lies
beyond a separator with fewer states than columns is seen through these states only, :math:`E[F_j \mid x_C] = \sum_s P(s \mid x_C)\,U_{sj}`:
there the columns become the indicators of the states, and U is kept as a factor to be multiplied at the end. So large cliques are
passed by few columns, however many counts are seen in small ones behind them.

**Covariances** of two counts are read where their ways to the root meet:
:math:`\mathrm{cov}(F_i, F_j) = U_i^\top P(S_i, S_j)\,U_j - E F_i\,E F_j`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import block_diag
from scipy.sparse import csr_array, diags_array

from headcount.individual import ModelError
from headcount.individual._possible import summed
from headcount.population._laplacian import inverse_or_zero

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headcount._linalg import Array
    from headcount._types import Index
    from headcount.individual._junction_tree import CliqueLaw
    from headcount.individual._possible import Possible
    from headcount.observe import Site
    from headcount.tables import Scope

CHUNK = 8_000_000
"""Numbers of a covariance between a table and all counts that are held at once: 64 MB."""


@dataclass(frozen=True)
class Columns:
    """Conditional expectations of some counts given the states of one scope: basis · factor."""

    scope: Scope
    where: Index
    """Which counts."""
    basis: Array | None
    """(states, width); None is the identity."""
    factor: Array | None
    """(width, counts); None is the identity."""
    own: bool = False
    """Whether the counts are of this very scope."""

    def width(self, states: int) -> int:
        """Columns of the basis."""
        return states if self.basis is None else self.basis.shape[1]

    def values(self) -> Array:
        """basis · factor."""
        if self.basis is None:
            return np.eye(len(self.where)) if self.factor is None else self.factor
        return self.basis if self.factor is None else self.basis @ self.factor


class CliquePasses:
    """Covariances of the counts of sites, and of all tables with them, for one law on a junction tree.

    Parameters
    ----------
    law
        The clique marginals of one individual.
    possible
        The possible entries of the cliques (some may have become impossible in this law).
    individuals
        N, times the factor on all covariances of individuals that move together.
    sites
        What is observed.
    """

    def __init__(self, law: CliqueLaw, possible: Possible, individuals: float, sites: Sequence[Site]) -> None:
        self.law, self.possible, self.individuals = law, possible, individuals
        self.tree = law.tree
        self.above = {b: (a, separator) for a, b, separator in self.tree.edges}
        self.below: dict[int, list[int]] = {c: [] for c in range(len(self.tree.cliques))}
        for a, b, _ in self.tree.edges:
            self.below[a].append(b)
        self.order = [0, *(b for _, b, _ in self.tree.edges)]
        self._margins: dict[tuple[int, Scope], Array] = {}
        self._joints: dict[tuple[int, Scope, Scope], csr_array] = {}
        self.sites = tuple(sites)
        self.own: dict[int, list[Columns]] = {c: [] for c in self.order}
        self.mean = np.zeros(sum(len(site) for site in sites))
        self._place(sites)

    def _place(self, sites: Sequence[Site]) -> None:
        """The columns of every site at its clique."""
        start = 0
        for site in sites:
            home = self.home(site.scope)
            codes = self.possible.margin(home, site.scope).codes
            where = np.arange(start, start + len(site))
            basis = np.zeros((len(codes), len(site)))
            if site.index is None:
                basis[:] = site.weights.toarray()[:, codes].T  # type: ignore[union-attr]
            else:
                at = np.minimum(np.searchsorted(codes, site.index), len(codes) - 1)
                seen = codes[at] == site.index  # an impossible entry is a count of nobody
                basis[at[seen], np.flatnonzero(seen)] = 1.0
            self.own[home].append(Columns(site.scope, where, basis, None, own=True))
            self.mean[where] = basis.T @ self.margin(home, site.scope)
            start += len(site)

    def home(self, scope: Scope) -> int:
        """The smallest clique that contains a scope."""
        found = self.tree.covering(scope)
        if found is None:
            raise ModelError(f"{scope} does not lie inside one clique of the model; observe smaller margins")
        return found

    @cached_property
    def values(self) -> list[Array]:
        """mu_C at the possible entries, by clique."""
        if self.law.listed is not None:
            return list(self.law.cliques)
        return [self.possible.listed_values(c, table) for c, table in enumerate(self.law.cliques)]

    def margin(self, clique: int, scope: Scope) -> Array:
        """P(x_A) at the possible states of a part A of a clique."""
        key = (clique, scope)
        if key not in self._margins:
            self._margins[key] = _summed(self.values[clique], self.possible.margin(clique, scope))
        return self._margins[key]

    def joint(self, clique: int, rows: Scope, columns: Scope) -> csr_array:
        """P(x_A, x_B) at the possible states of two parts of a clique."""
        if rows == columns:
            return csr_array(diags_array(self.margin(clique, rows)))
        key = (clique, rows, columns)
        if key not in self._joints:
            if (clique, columns, rows) in self._joints:
                return self._joints[clique, columns, rows].T
            ends, at, found, shape = self.possible.pair(*key)
            self._joints[key] = csr_array((_summed(self.values[clique], found), at, ends), shape=shape)
        return self._joints[key]

    # Up: columns of everything in a clique's subtree, given its separator.

    @cached_property
    def up(self) -> dict[int, Columns | None]:
        """By clique below another: the columns of all counts of its subtree given its separator; None where there are none."""
        return {}

    def covariance(self) -> Array:
        """The covariance of all sites' counts."""
        found = np.zeros((len(self.mean), len(self.mean)))
        self.collect(found)
        found -= np.outer(self.mean, self.mean)
        found *= self.individuals
        return found

    def collect(self, found: Array | None = None) -> None:
        """Find `up`; put E[F_i F_j] of all counts into ``found``."""
        for c in reversed(self.order):
            groups = self._groups(c, self._under(c), found)
            for i, a in enumerate(groups):
                for b in () if found is None else groups[i + 1 :]:
                    block = self._met(c, a, b)
                    found[np.ix_(a.where, b.where)] = block
                    found[np.ix_(b.where, a.where)] = block.T
            if c in self.above:
                self.up[c] = self._carried(c, groups, self.above[c][1])

    def _under(self, clique: int) -> list[Columns]:
        """Columns of a clique's own sites and of its children."""
        below = (self.up[k] for k in self.below[clique])
        return [*self.own[clique], *(columns for columns in below if columns is not None)]

    def _groups(self, clique: int, members: Iterable[Columns], found: Array | None = None) -> list[Columns]:
        """Columns of the same scope put together; second moments among these go into ``found``."""
        by_scope: dict[Scope, list[Columns]] = {}
        for columns in members:
            by_scope.setdefault(columns.scope, []).append(columns)
        made = []
        for scope, same in by_scope.items():
            if found is not None and (len(same) > 1 or same[0].own):
                self._among(clique, same, found)
            made.append(_together(scope, same, len(self.margin(clique, scope))))
        return made

    def _among(self, clique: int, members: Sequence[Columns], found: Array) -> None:
        """Put E[F_i F_j] of columns of one scope into ``found``: of two members, and of a member whose counts are of this very scope."""
        margin = self.margin(clique, members[0].scope)
        few = sum(columns.width(len(margin)) for columns in members) >= len(margin)
        values = [columns.values() for columns in members] if few else []
        for i, a in enumerate(members):
            for j, b in enumerate(members[: i + 1]):
                if i == j and not a.own:
                    continue  # met below
                block = (margin[:, None] * values[i]).T @ values[j] if few else self._met(clique, a, b)
                found[np.ix_(a.where, b.where)] = block
                found[np.ix_(b.where, a.where)] = block.T

    def _met(self, clique: int, a: Columns, b: Columns) -> Array:
        """E[F_i F_j] of counts that come to a clique from two sides: aᵀ P(A, B) b."""
        joint = self.joint(clique, a.scope, b.scope)
        if a.basis is None or b.basis is None:
            middle = joint.toarray() if a.basis is None and b.basis is None else None
            if middle is None and a.basis is None:
                middle = joint @ b.basis
            elif middle is None:
                middle = (joint.T @ a.basis).T
        elif b.basis.shape[1] * (joint.nnz + a.basis.size) <= a.basis.shape[1] * (joint.nnz + b.basis.size):
            middle = a.basis.T @ (joint @ b.basis)
        else:
            middle = (joint.T @ a.basis).T @ b.basis
        if a.factor is not None:
            middle = a.factor.T @ middle
        return np.asarray(middle if b.factor is None else middle @ b.factor)

    def _carried(self, clique: int, groups: Sequence[Columns], onto: Scope) -> Columns | None:
        """All these columns given the states of one part of the clique."""
        if not groups:
            return None
        over = inverse_or_zero(self.margin(clique, onto))
        parts = []
        for columns in groups:
            if columns.scope == onto:
                basis = columns.basis
            else:
                joint = self.joint(clique, onto, columns.scope)
                basis = joint.toarray() if columns.basis is None else joint @ columns.basis
                basis *= over[:, None]
            parts.append(Columns(onto, columns.where, basis, columns.factor))
        return _together(onto, parts, len(over))

    # Down: columns of everything else, given a clique's separator.

    @cached_property
    def _down(self) -> dict[int, Columns | None]:
        return {}

    def down(self, clique: int) -> Columns | None:
        """The columns of all counts outside a clique's subtree, given its separator."""
        way = []
        while clique in self.above and clique not in self._down:
            way.append(clique)
            clique = self.above[clique][0]
        for c in reversed(way):
            parent, separator = self.above[c]
            others = [k for k in self._around(parent) if k is not self.up[c]]
            self._down[c] = self._carried(parent, self._groups(parent, others), separator)
        return self._down.get(way[0] if way else clique)

    def _around(self, clique: int) -> list[Columns]:
        """Columns of all counts at a clique: its own, its children's, and what comes from above."""
        above = self.down(clique) if clique in self.above else None
        return [*self._under(clique), *([] if above is None else [above])]

    def cross_rows(self, clique: int, scope: Scope, rows: slice) -> Array:
        """Covariance of some possible states of a part of a clique with all counts, (states, counts); after `collect`."""
        margin = self.margin(clique, scope)[rows]
        found = np.zeros((len(margin), len(self.mean)))
        for columns in self._groups(clique, self._around(clique)):
            joint = self.joint(clique, scope, columns.scope)[rows]
            values = joint.toarray() if columns.basis is None else joint @ columns.basis
            found[:, columns.where] = values if columns.factor is None else values @ columns.factor
        found -= margin[:, None] * self.mean
        found *= self.individuals
        return found

    def given(self, scope: Scope) -> Iterator[tuple[Index, Array, Array]]:
        """Parts of a scope's possible states: flat positions, probabilities, and E[F_j | x_A] of all counts; after `collect`."""
        home = self.home(scope)
        codes, mu = self.possible.margin(home, scope).codes, self.margin(home, scope)
        step = max(CHUNK // max(len(self.mean), 1), 1)
        for start in range(0, len(codes), step):
            rows = slice(start, start + step)
            found = self.cross_rows(home, scope, rows)
            found *= inverse_or_zero(self.individuals * mu[rows])[:, None]
            yield codes[rows], mu[rows], found + self.mean

    # Passes of single vectors, over the entries of all cliques.

    def clique_values(self, weights: Array) -> list[Array]:
        """K Hᵀ q at the possible entries of every clique, (entries, columns), for weights q of all counts, (counts, columns)."""
        pull: dict[int, Array] = {}
        message: dict[int, Array] = {}
        for c in reversed(self.order):
            total = np.zeros((len(self.values[c]), weights.shape[1]))
            for columns in self.own[c]:
                assert columns.basis is not None
                total += (columns.basis @ weights[columns.where])[
                    self.possible.margin(c, columns.scope).state
                ]
            for k in self.below[c]:
                total += message[k][self.possible.margin(c, self.above[k][1]).state]
            if c in self.above:
                message[c] = self._given(c, self.above[c][1], total)
            pull[c] = total
        mean = self.mean @ weights
        for c in self.order[1:]:
            parent, separator = self.above[c]
            rest = self._given(parent, separator, pull[parent]) - message[c]
            pull[c] += rest[self.possible.margin(c, separator).state]
        scale = [self.individuals * values[:, None] for values in self.values]
        return [scale[c] * (pull[c] - mean) for c in range(len(self.order))]

    def _given(self, clique: int, onto: Scope, values: Array) -> Array:
        """E[values | x_S], by column."""
        margin, weight = self.possible.margin(clique, onto), self.values[clique]
        count = len(margin.codes)
        total = csr_array((weight, (margin.state, np.arange(len(weight)))), shape=(count, len(weight)))
        return np.asarray((total @ values) * inverse_or_zero(self.margin(clique, onto))[:, None])

    def draw(self, size: int, rng: np.random.Generator) -> list[Array]:
        """Normal draws of the prior deviations at the possible entries of every clique, (entries, size)."""
        drawn: dict[int, Array] = {}
        for c in self.order:
            weight = self.values[c]
            noise = rng.standard_normal((len(weight), size))
            noise *= np.sqrt(self.individuals * weight)[:, None]
            separator = self.above[c][1] if c in self.above else ()
            margin = self.possible.margin(c, separator)
            add = _adder(margin)
            change = -(add @ noise)
            if c in self.above:
                parent = self.above[c][0]
                change += _adder(self.possible.margin(parent, separator)) @ drawn[parent]
            share = weight * inverse_or_zero(self.margin(c, separator))[margin.state]
            noise += share[:, None] * change[margin.state]
            drawn[c] = noise
        return [drawn[c] for c in range(len(self.order))]

    def counts(self, cliques: Sequence[Array]) -> Array:
        """The sites' counts in tables of all cliques, (counts, columns)."""
        found = np.zeros((len(self.mean), cliques[0].shape[1]))
        for c, members in self.own.items():
            for columns in members:
                assert columns.basis is not None
                margin = self.possible.margin(c, columns.scope)
                found[columns.where] = columns.basis.T @ (_adder(margin) @ cliques[c])
        return found


def _summed(values: Array, margin: object) -> Array:
    """Values of a clique's possible entries summed by state: compiled where there are many."""
    if len(values) > COMPILED_FROM:
        return summed(values, margin)  # type: ignore[arg-type]
    return np.bincount(margin.state, values, minlength=len(margin.codes))  # type: ignore[attr-defined]


COMPILED_FROM = 20_000
"""Entries from which sums run compiled; below, NumPy takes under 0.1 ms."""


def _adder(margin: object) -> csr_array:
    """The matrix that sums a clique's possible entries by state."""
    count = len(margin.state)  # type: ignore[attr-defined]
    return csr_array(
        (np.ones(count), (margin.state, np.arange(count))),  # type: ignore[attr-defined]
        shape=(len(margin.codes), count),  # type: ignore[attr-defined]
    )


def _together(scope: Scope, members: Sequence[Columns], states: int) -> Columns:
    """Columns of one scope side by side; indicators of its states in their place where these are fewer."""
    where = np.concatenate([columns.where for columns in members])
    if sum(columns.width(states) for columns in members) >= states:
        if len(members) == 1 and members[0].basis is None:
            return members[0]
        return Columns(scope, where, None, np.hstack([columns.values() for columns in members]))
    if len(members) == 1:
        return members[0]
    basis = np.hstack([columns.basis for columns in members])
    if all(columns.factor is None for columns in members):
        return Columns(scope, where, basis, None)
    parts = [np.eye(len(k.where)) if k.factor is None else k.factor for k in members]
    return Columns(scope, where, basis, block_diag(*parts))
