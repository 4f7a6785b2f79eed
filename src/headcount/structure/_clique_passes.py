r"""The prior covariance of counts on any junction tree, as the derivative of belief propagation.

For a function :math:`F(x) = \sum_A v_A(x_A)` of one individual, each A inside a clique, and N independent individuals,

.. math:: \mathrm{cov}\Bigl(n_C(c),\; \sum_A v_A\cdot n_A\Bigr)
          = E[N]\,\mu_C(c)\,(E[F \mid x_C = c] - E[F]) + \mathrm{Var}[N]\,\mu_C(c)\,E[F] .

Conditional expectations go through a clique from one separator to another,
:math:`E[F \mid x_S = s] = \sum_{s'} P(s' \mid s)\,E[F \mid x_{S'} = s']` for F on the far side of S', by the sparse matrix
:math:`P(S, S')` of the clique's margin on both: its possible pairs of states, at most as many as the clique has possible entries.
No matrix over two cliques is formed.

**Columns.** Every count that is looked at is one F, one column of :math:`E[F_j \mid x_S]`, ``(states of S, columns)``. Whatever lies
beyond a separator with fewer states than columns is seen through these states only, :math:`E[F_j \mid x_C] = \sum_s P(s \mid x_C)\,U_{sj}`:
there the columns become the indicators of the states, and U is kept as a factor to be multiplied at the end. So large cliques are
passed by few columns, however many counts are seen in small ones behind them.

One thread serves all columns: sparse products are 47 % of the time on the network ``link``, so that a second one would give 1.3 times at
the most (a profile; SciPy's products do let other threads run).

**Covariances** of two counts are read where their ways to the root meet:
:math:`\mathrm{cov}(F_i, F_j) = U_i^\top P(S_i, S_j)\,U_j - E F_i\,E F_j`.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.linalg import block_diag
from scipy.sparse import csc_array, csr_array, diags_array

from headcount import memory
from headcount.individual import ModelError
from headcount.individual.possible import summed
from headcount.population.laplacian import inverse_or_zero

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headcount._linalg import Array
    from headcount._types import Index
    from headcount.individual.junction_tree import CliqueLaw
    from headcount.individual.possible import Margin, Possible
    from headcount.observe import Site
    from headcount.tables import Scope

DENSE_SHARE = 0.1
"""Share of pairs of states that are possible, above which a product with them runs on a dense matrix: BLAS does ten times as many."""
DOWN_BYTES = 10**9
"""Of columns on the way down that are kept from one question to the next."""
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

    @property
    def bytes(self) -> int:
        """Of both matrices."""
        return sum(0 if part is None else part.nbytes for part in (self.basis, self.factor))

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
    spread
        Variance of the number of individuals; 0 where it is known.
    sparse
        Whether the counts' own columns are sparse matrices, for passes of single vectors only (`clique_values`, `counts`).
    """

    def __init__(
        self,
        law: CliqueLaw,
        possible: Possible,
        individuals: float,
        sites: Sequence[Site],
        spread: float = 0.0,
        *,
        sparse: bool = False,
    ) -> None:
        self.sparse = sparse
        self.law, self.possible, self.individuals, self.spread = law, possible, individuals, spread
        self.tree = law.tree
        self.above = {b: (a, separator) for a, b, separator in self.tree.edges}
        self.below: dict[int, list[int]] = {c: [] for c in range(len(self.tree.cliques))}
        for a, b, _ in self.tree.edges:
            self.below[a].append(b)
        self.order = [0, *(b for _, b, _ in self.tree.edges)]
        self._margins: dict[tuple[int, Scope], Array] = {}
        self._joints: dict[tuple[int, Scope, Scope], csr_array] = {}
        self._averages: dict[tuple[int, Scope], csr_array] = {}
        self._adders: dict[tuple[int, Scope], csr_array] = {}
        self.sites = tuple(sites)
        self.own: dict[int, list[Columns]] = {c: [] for c in self.order}
        self.mean = np.zeros(sum(len(site) for site in sites))
        self._kept = 0
        self._met_at: tuple[int, list[Columns]] = (-1, [])
        self._place(sites)

    def _place(self, sites: Sequence[Site]) -> None:
        """The columns of every site at its clique."""
        start = 0
        for site in sites:
            home = self.home(site.scope)
            codes = self.possible.margin(home, site.scope).codes
            where = np.arange(start, start + len(site))
            if site.index is None:
                made = csr_array(csc_array(site.weights)[:, codes].T)
            else:
                at = np.minimum(np.searchsorted(codes, site.index), len(codes) - 1)
                seen = np.flatnonzero(codes[at] == site.index)  # an impossible entry is a count of nobody
                made = csr_array((np.ones(len(seen)), (at[seen], seen)), shape=(len(codes), len(site)))
            basis: Any = made if self.sparse else made.toarray()
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
    def _places(self) -> dict[int, int]:
        found, waiting = [], [0]
        while waiting:
            found.append(waiting.pop())
            waiting.extend(self.below[found[-1]])
        return {c: k for k, c in enumerate(found)}

    def place(self, clique: int) -> int:
        """The position of a clique when every subtree is walked through before the next."""
        return self._places[clique]

    @cached_property
    def values(self) -> list[Array]:
        """mu_C at the possible entries, by clique."""
        if self.law.possible is self.possible:
            return list(self.law.cliques)
        return [self.possible.listed_values(c, self.law.table(c)) for c in range(len(self.tree.cliques))]

    def margin(self, clique: int, scope: Scope) -> Array:
        """P(x_A) at the possible states of a part A of a clique."""
        key = (clique, scope)
        if key not in self._margins:
            self._margins[key] = summed(self.values[clique], self.possible.margin(clique, scope))
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
            self._joints[key] = csr_array((summed(self.values[clique], found), at, ends), shape=shape)
        return self._joints[key]

    # Up: columns of everything in a clique's subtree, given its separator.

    @cached_property
    def up(self) -> dict[int, Columns | None]:
        """By clique below another: the columns of all counts of its subtree given its separator; None where there are none."""
        return {}

    def covariance(self) -> Array:
        """The covariance of all sites' counts. Columns are not kept: most laws are asked for nothing else."""
        found = np.zeros((len(self.mean), len(self.mean)))
        self.collect(found)
        self.up.clear()
        self._joints.clear()
        squares = np.outer(self.mean, self.mean)
        found -= squares
        found *= self.individuals
        return found + self.spread * squares if self.spread else found

    def collect(self, found: Array | None = None) -> None:
        """Find `up`; put E[F_i F_j] of all counts into ``found``."""
        for c in reversed(self.order):
            groups = self._groups(c, self._under(c), found)
            if found is not None:
                for a, b in combinations(groups, 2):
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
        if a.basis is None or (b.basis is not None and _work(joint, b, a) <= _work(joint, a, b)):
            middle = _times(joint, b, whole=False)
            middle = middle if a.basis is None else a.basis.T @ middle
        else:
            middle = (joint.T @ a.basis).T
            middle = middle if b.basis is None else middle @ b.basis
        if a.factor is not None:
            middle = a.factor.T @ middle
        return np.asarray(middle if b.factor is None else middle @ b.factor)

    def _carried(self, clique: int, groups: Sequence[Columns], onto: Scope) -> Columns | None:
        """All these columns given the states of one part of the clique."""
        if not groups:
            return None
        over = inverse_or_zero(self.margin(clique, onto))[:, None]
        if len(groups) == 1 and groups[0].scope == onto:
            return Columns(onto, groups[0].where, groups[0].basis, groups[0].factor)
        widths = [columns.width(len(self.margin(clique, columns.scope))) for columns in groups]
        indicators = sum(widths) >= len(over)
        made = self._filled(clique, groups, onto, over, whole=indicators)
        where = np.concatenate([columns.where for columns in groups])
        if indicators:
            return Columns(onto, where, None, made)
        return Columns(onto, where, made, _side_by_side(groups))

    def _filled(
        self, clique: int, groups: Sequence[Columns], onto: Scope, over: Array, *, whole: bool
    ) -> Array:
        """E[· | x_onto] of the bases of all groups side by side; of the counts themselves if ``whole``."""
        parts = []
        for columns in groups:
            part = self._through(clique, onto, columns, whole=whole)
            if columns.scope != onto:
                part *= over
            parts.append(part)
        return parts[0] if len(parts) == 1 else np.hstack(parts)

    def _through(self, clique: int, onto: Scope, columns: Columns, *, whole: bool) -> Array:
        """P(onto, scope) · basis, and · factor if ``whole``; of the same scope the columns themselves."""
        if columns.scope == onto:
            return columns.values() if whole else _or_identity(columns.basis, len(self.margin(clique, onto)))
        joint = self.joint(clique, onto, columns.scope)
        return _times(joint, columns, whole=whole)

    # Down: columns of everything else, given a clique's separator.

    @cached_property
    def _down(self) -> OrderedDict[int, Columns | None]:
        return OrderedDict()

    def down(self, clique: int) -> Columns | None:
        """The columns of all counts outside a clique's subtree, given its separator; the last ones are kept."""
        way = []
        while clique in self.above and clique not in self._down:
            way.append(clique)
            clique = self.above[clique][0]
        last = self._down.get(clique)
        if clique in self._down:
            self._down.move_to_end(clique)
        for c in reversed(way):
            parent, separator = self.above[c]
            others = [k for k in self._under(parent) if k is not self.up[c]]
            if last is not None:
                others.append(last)
            last = self._carried(parent, self._groups(parent, others), separator)
            self._keep(c, last)
        return last

    def _keep(self, clique: int, columns: Columns | None) -> None:
        """Keep columns for the next question, within `DOWN_BYTES`."""
        self._down[clique] = columns
        self._kept += 0 if columns is None else columns.bytes
        while self._kept > DOWN_BYTES and len(self._down) > 1:
            _, old = self._down.popitem(last=False)
            self._kept -= 0 if old is None else old.bytes

    def _around(self, clique: int) -> list[Columns]:
        """Columns of all counts at a clique: its own, its children's, and what comes from above."""
        above = self.down(clique) if clique in self.above else None
        return [*self._under(clique), *([] if above is None else [above])]

    def cross_rows(self, clique: int, scope: Scope, rows: slice) -> Array:
        """Covariance of some possible states of a part of a clique with all counts, (states, counts)."""
        margin = self.margin(clique, scope)[rows]
        found = np.zeros((len(margin), len(self.mean)))
        if not self.up:
            self.collect()
        if self._met_at[0] != clique:
            self._met_at = (clique, self._groups(clique, self._around(clique)))
        for columns in self._met_at[1]:
            found[:, columns.where] = _times(
                self.joint(clique, scope, columns.scope)[rows], columns, whole=True
            )
        product = margin[:, None] * self.mean
        found -= product
        found *= self.individuals
        return found + self.spread * product if self.spread else found

    def given(self, scope: Scope) -> Iterator[tuple[Index, Array, Array]]:
        """Parts of a scope's possible states: flat positions, probabilities, and E[F_j | x_A] of all counts."""
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
        return [
            values[:, None] * (self.individuals * (pull[c] - mean) + self.spread * mean)
            for c, values in enumerate(self.values)
        ]

    def _given(self, clique: int, onto: Scope, values: Array) -> Array:
        """E[values | x_S], by column."""
        key = (clique, onto)
        if key not in self._averages:
            margin, weight = self.possible.margin(clique, onto), self.values[clique]
            shares = weight * inverse_or_zero(self.margin(clique, onto))[margin.state]
            shape = len(margin.codes), len(weight)
            made = csr_array((shares, (margin.state, np.arange(len(weight)))), shape=shape)
            if not self.sparse:
                return np.asarray(made @ values)
            self._averages[key] = made
        return np.asarray(self._averages[key] @ values)

    def _summer(self, clique: int, onto: Scope) -> csr_array:
        """`table_adder` of a part of a clique; kept where single vectors pass again and again."""
        key = (clique, onto)
        if key not in self._adders:
            made = table_adder(self.possible.margin(clique, onto))
            if not self.sparse:
                return made
            self._adders[key] = made
        return self._adders[key]

    def draw(self, size: int, rng: np.random.Generator) -> list[Array]:
        """Normal draws of the prior deviations at the possible entries of every clique, (entries, size)."""
        drawn: dict[int, Array] = {}
        for c in self.order:
            weight = self.values[c]
            noise = rng.standard_normal((len(weight), size))
            noise *= np.sqrt(self.individuals * weight)[:, None]
            separator = self.above[c][1] if c in self.above else ()
            margin = self.possible.margin(c, separator)
            change = -(self._summer(c, separator) @ noise)
            if c in self.above:
                parent = self.above[c][0]
                change += self._summer(parent, separator) @ drawn[parent]
            elif self.spread:
                change += np.sqrt(self.spread) * rng.standard_normal(size)
            share = weight * inverse_or_zero(self.margin(c, separator))[margin.state]
            noise += share[:, None] * change[margin.state]
            drawn[c] = noise
        return [drawn[c] for c in range(len(self.order))]

    def table(self, scope: Scope, home: int, cliques: Sequence[Array]) -> Array:
        """The table of a part of a clique, from values at the possible entries of all cliques, (entries,) each."""
        domain = self.tree.domain(scope)
        found = np.zeros(domain.size)
        np.add.at(found, self.possible.codes(home, scope), cliques[home])
        return found.reshape(domain.shape)

    def drawn_tables(self, cliques: Sequence[Array]) -> dict[Scope, Array]:
        """All clique tables, (size, *table), from draws at their possible entries, (entries, size)."""
        found = {}
        for domain, entries, values in zip(self.tree.domains, self.possible.entries, cliques, strict=True):
            table = np.zeros((values.shape[1], domain.size))
            table[:, slice(None) if entries is None else entries] = values.T
            found[domain.scope] = table.reshape(-1, *domain.shape)
        return found

    def require_draws(self, size: int, held: int) -> None:
        """Refuse draws of all tables, ``held`` of them at once, that do not fit in memory."""
        memory.require(
            held * 8 * size * sum(self.tree.table_sizes),
            f"{size} draws of all tables",
            remedy="ask for fewer draws",
        )

    def covariance_times(self, weights: Array) -> Array:
        """K w, one column per column of weights of all counts, without K."""
        return self.counts(self.clique_values(weights))

    def variance(self) -> Array:
        """The diagonal of K."""
        squares = np.zeros(len(self.mean))
        for c, members in self.own.items():
            for columns in members:
                assert columns.basis is not None
                squares[columns.where] = (columns.basis * columns.basis).T @ self.margin(c, columns.scope)
        return self.individuals * (squares - self.mean**2) + self.spread * self.mean**2

    def counts(self, cliques: Sequence[Array]) -> Array:
        """The sites' counts in tables of all cliques, (counts, columns)."""
        found = np.zeros((len(self.mean), cliques[0].shape[1]))
        for c, members in self.own.items():
            for columns in members:
                assert columns.basis is not None
                found[columns.where] = columns.basis.T @ (self._summer(c, columns.scope) @ cliques[c])
        return found


def table_adder(margin: Margin) -> csr_array:
    """The matrix that sums a clique's possible entries by state."""
    count = len(margin.state)
    return csr_array((np.ones(count), (margin.state, np.arange(count))), shape=(len(margin.codes), count))


def _or_identity(matrix: Array | None, size: int) -> Array:
    return np.eye(size) if matrix is None else matrix


def _times(joint: Any, columns: Columns, *, whole: bool) -> Array:
    """A sparse matrix times the basis, and times the factor if ``whole``."""
    basis, factor = columns.basis, columns.factor if whole else None
    if basis is not None:
        found = joint @ basis
        return np.asarray(found if factor is None else found @ factor)
    if factor is None:
        return np.asarray(joint.toarray())
    dense = joint.nnz > DENSE_SHARE * joint.shape[0] * joint.shape[1]
    return np.asarray((joint.toarray() if dense else joint) @ factor)


def _work(joint: Any, first: Columns, second: Columns) -> int:
    """Products of joint · first · second, both with a basis."""
    assert first.basis is not None
    assert second.basis is not None
    return int(first.basis.shape[1] * (joint.nnz + second.basis.size))


def _side_by_side(members: Sequence[Columns]) -> Array | None:
    """The factors of several columns as one."""
    if all(columns.factor is None and columns.basis is not None for columns in members):
        return None
    return np.asarray(block_diag(*(_or_identity(k.factor, len(k.where)) for k in members)))


def _together(scope: Scope, members: Sequence[Columns], states: int) -> Columns:
    """Columns of one scope side by side; indicators of its states in their place where these are fewer."""
    if len(members) == 1 and (members[0].basis is None or members[0].width(states) < states):
        return members[0]
    where = np.concatenate([columns.where for columns in members])
    if sum(columns.width(states) for columns in members) >= states:
        return Columns(scope, where, None, np.hstack([columns.values() for columns in members]))
    basis = np.hstack([columns.basis for columns in members if columns.basis is not None])
    return Columns(scope, where, basis, _side_by_side(members))


class PassesCost(NamedTuple):
    """What passes take, in units that a machine has speeds for."""

    entries: int
    """Possible entries of all cliques."""
    listed: int
    """Possible entries, once for every margin and every pair of parts of a clique that a joint margin is summed for."""
    sparse: float
    """Products of a possible pair of states with one column."""
    dense: float
    """Products of dense matrices."""
    steps: int
    """Products in all, however small."""
    numbers: float
    """Numbers held in columns."""

    def __add__(self, other: object) -> PassesCost:
        assert isinstance(other, PassesCost)
        return PassesCost(self.entries, *map(operator.add, self[1:], other[1:]))


def passes_cost(possible: Possible, sites: tuple[tuple[Scope, int], ...]) -> tuple[PassesCost, PassesCost]:
    """The cost of `CliquePasses.covariance`, and of `cross_rows` for all variables, for sites given by scope and number of counts.

    It follows the widths of the columns through the tree as the passes do; only the lists of possible entries are made.
    """
    if sites not in possible.costs:
        reckoning = _Reckoning(possible, sites)
        possible.costs[sites] = reckoning.collected(), reckoning.distributed()
    return possible.costs[sites]


class _Width(NamedTuple):
    """Of columns: their scope, width, counts, and whether they are indicators of states."""

    scope: Scope
    width: int
    counts: int
    indicators: bool


class _Reckoning:
    """The widths of all columns, as `CliquePasses` makes them."""

    def __init__(self, possible: Possible, sites: Sequence[tuple[Scope, int]]) -> None:
        self.possible, self.tree = possible, possible.tree
        self.up: dict[int, _Width | None] = {}
        self.below: dict[int, list[int]] = {}
        for parent, child, _ in self.tree.edges:
            self.below.setdefault(parent, []).append(child)
        self.separators = {b: (a, s) for a, b, s in self.tree.edges}
        self.own: dict[int, list[_Width]] = {}
        for scope, counts in sites:
            home = self.tree.covering(scope)
            assert home is not None
            width = min(counts, self._states(home, scope))
            self.own.setdefault(home, []).append(_Width(scope, width, counts, width < counts))

    def _states(self, clique: int, scope: Scope) -> int:
        return len(self.possible.margin(clique, scope).codes)

    def _pairs(self, clique: int, a: Scope, b: Scope) -> int:
        """Possible pairs of states of two parts, at most."""
        if a == b:
            return self._states(clique, a)
        union = prod(self.tree.sizes[v] for v in {*a, *b})
        return min(self.possible.counts[clique], union, self._states(clique, a) * self._states(clique, b))

    def _grouped(self, clique: int, members: Iterable[_Width]) -> list[_Width]:
        found: dict[Scope, list[_Width]] = {}
        for one in members:
            found.setdefault(one.scope, []).append(one)
        made = []
        for scope, same in found.items():
            width, states = sum(one.width for one in same), self._states(clique, scope)
            few = width >= states or all(one.indicators for one in same)
            made.append(_Width(scope, min(width, states), sum(one.counts for one in same), few))
        return made

    def _carried(self, clique: int, groups: list[_Width], onto: Scope) -> tuple[_Width | None, PassesCost]:
        """The width of columns carried to a part of a clique, and what that costs."""
        entries, steps = self.possible.counts[clique], len(groups)
        if not groups:
            return None, PassesCost(0, 0, 0.0, 0.0, 0, 0.0)
        states, width = self._states(clique, onto), sum(one.width for one in groups)
        counts = sum(one.counts for one in groups)
        few = width >= states
        sparse = sum(self._pairs(clique, onto, one.scope) * one.width for one in groups)
        dense = sum(states * one.width * one.counts for one in groups) if few else 0
        made = _Width(onto, min(width, states), counts, few)
        held = states * (counts if few else width) + (0 if few else width * counts)
        return made, PassesCost(0, entries * steps, float(sparse), float(dense), steps, float(held))

    def _at(self, clique: int, without: int = -1) -> list[_Width]:
        """Columns of a clique's own sites and of its children but one."""
        found = (self.up[k] for k in self.below.get(clique, ()) if k != without)
        return [*self.own.get(clique, ()), *(one for one in found if one is not None)]

    def _met(self, clique: int, a: _Width, b: _Width) -> PassesCost:
        """Of second moments of two groups of columns."""
        states = min(self._states(clique, a.scope), self._states(clique, b.scope))
        dense = a.width * b.width * (states + a.counts) + a.counts * b.width * b.counts
        sparse = self._pairs(clique, a.scope, b.scope) * min(a.width, b.width)
        return PassesCost(0, self.possible.counts[clique], float(sparse), float(dense), 1, 0.0)

    def collected(self) -> PassesCost:
        """Of the way up, with all meetings."""
        total = PassesCost(sum(self.possible.counts), 0, 0.0, 0.0, 0, 0.0)
        for c in (*reversed(self.separators), 0):
            groups = self._grouped(c, self._at(c))
            for a, b in combinations(groups, 2):
                total += self._met(c, a, b)
            if c in self.separators:
                self.up[c], more = self._carried(c, groups, self.separators[c][1])
                total += more
        return total

    def distributed(self) -> PassesCost:
        """Of the way down, after the way up, with the tables of single variables."""
        total = PassesCost(sum(self.possible.counts), 0, 0.0, 0.0, 0, 0.0)
        counts = sum(one.counts for members in self.own.values() for one in members)
        down: dict[int, list[_Width]] = {0: []}
        for c, (parent, separator) in self.separators.items():
            groups = self._grouped(parent, [*self._at(parent, c), *down[parent]])
            found, more = self._carried(parent, groups, separator)
            down[c] = [] if found is None else [found]
            total += more
        for v in self.tree.sizes:
            home = self.tree.covering((v,))
            assert home is not None
            _, more = self._carried(home, self._grouped(home, [*self._at(home), *down[home]]), (v,))
            total += more._replace(numbers=0.0)
            total += PassesCost(0, 0, 0.0, 2.0 * self._states(home, (v,)) * counts**2, 1, 0.0)
        return total
