r"""Tables of all cliques as the unknowns of a linear program: which populations exact data leave, and what they leave no choice.

The tables n ≥ 0 of the model's cliques are equal on separators, empty where the model has no probability, and meet the sizes of groups
and every exact count, :math:`An = y`. Three questions are put to these equations:

* the nearest whole-number tables to given ones (`TableProgram.nearest`), for draws;
* which counts contradict each other (`TableProgram.conflict`): the least :math:`\sum|s|` with :math:`An = y + s`, and as many
  individuals as every reading needs, is how far they are apart; the counts that its dual names cannot all hold (Farkas' lemma);
* which entries are the same in all populations (`TableProgram.certain`). In the cone :math:`An = \kappa y,\ \kappa \ge 1`, solutions add
  up, so one program finds one in which everything that can be positive is; an entry then is fixed where no direction of the null space
  of its equations moves it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from headcount.errors import shown
from headcount.observe import Exact, Site
from headcount.observe.cloud import SIZES
from headcount.tables import Domain, dense

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from numpy.typing import NDArray

    from headcount._types import Array, Index, Scope
    from headcount.individual import Model
    from headcount.observe import ClosedProblem, Problem

MOST_ENTRIES = 2_000
"""Entries of all cliques up to which contradictions are looked for: tens of milliseconds."""
MOST_AFTER_FAILURE = 200_000
"""The same after a run that has failed: some seconds."""
MOST_SECONDS = 1.0
"""Time of one such program, at most: whole numbers may take much longer than real ones."""
MOST_CERTAIN = 500
"""Possible entries up to which certain ones are looked for: their null space takes .1 s."""
TOLERANCE = 1e-6
"""Of linear programs, in individuals, and of null spaces."""
NO_BOUND = 1e9
"""Largest size above which a law's end is no bound: linear programs lose coefficients that are far apart, and `Unknown` ends at 2⁵³."""
IMPLIED, FORCED = -2, -3
"""`Site.source` of what follows from other observations: from readings, and from exact counts alone, given which it is certain."""


class Conflict(NamedTuple):
    """Counts that cannot all hold."""

    apart: float
    """By how many individuals at least some of them are wrong, added up."""
    which: Index
    """Their positions among the counts of all sites."""

    def in_words(self, given: Sequence[tuple[float, str]], *, exact: bool) -> str:
        """What to say of them."""
        named = shown([given[k][1] for k in self.which], MOST_NAMED)
        return (
            f"{'exact counts' if exact else 'counts'} contradict each other, by {self.apart:.6g} "
            f"individual{'' if self.apart == 1 else 's'} in all: with the moves that the model allows and the population as given, not all "
            f"of these can hold: {named}; correct one of them"
        )


class TableProgram:
    """The equations of one problem."""

    def __init__(self, problem: ClosedProblem) -> None:
        model = problem.model
        self.problem = problem
        self.cliques = [tuple(c) for c in model.junction_tree.cliques]
        self.domains = [Domain(c, model.size(c)) for c in self.cliques]
        self.starts = np.cumsum([0, *(d.size for d in self.domains)])
        self.possible = np.concatenate([np.ravel(model.marginal(c) > 0) for c in self.cliques])
        rows, values = zip(*self._structural(), strict=True)
        self.structural, self.zeros = sparse.vstack(rows, format="csr"), np.concatenate(values)
        fewest = np.concatenate([np.zeros(0), *map(fewest_read, problem.sites)])
        exact = np.repeat([site.noise.exact for site in problem.sites], list(map(len, problem.sites)))
        rows = self._stacked([self.seen(site) for site in problem.sites])
        known, some = np.flatnonzero(exact), np.flatnonzero(~exact.astype(bool) & (fewest > 0))
        self.exact, self.counts = rows[known], fewest[known]
        self.read, self.fewest = rows[some], fewest[some]
        self.which = np.append(known, some)
        """Positions, among the counts of all sites, of the exact ones and of the readings that need somebody."""
        self.sizes, self.least, self.most = self._sizes()
        self.equal = sparse.vstack([self.structural, self.exact], format="csr")
        self.right = np.append(self.zeros, self.counts)

    def _structural(self) -> Iterator[tuple[Any, Any]]:
        """Blocks of rows, each with what it must equal: equal separators, and the total where it is known."""
        problem = self.problem
        yield self._placed(0, np.zeros((0, self.domains[0].size))), np.zeros(0)
        if problem.numbers is None:
            yield self._placed(0, np.ones((1, self.domains[0].size))), [float(problem.population)]
        for a, b, separator in problem.model.junction_tree.edges:
            one, other = (self._placed(k, summing(self.domains[k], separator)) for k in (a, b))
            yield one - other, np.zeros(one.shape[0])

    def seen(self, site: Site) -> Any:
        """Rows of the counts of one site."""
        k = next(k for k, c in enumerate(self.cliques) if set(site.scope) <= set(c))
        return self._placed(k, site_matrix(site) @ summing(self.domains[k], site.scope))

    def _stacked(self, rows: Sequence[Any]) -> Any:
        """Rows below each other, of which there may be none."""
        return sparse.vstack([sparse.csr_array((0, int(self.starts[-1]))), *rows], format="csr")

    def _placed(self, k: int, matrix: Any) -> Any:
        """Rows that concern clique k alone, over the unknowns of all cliques."""
        part = sparse.csr_array(matrix)
        shape = (part.shape[0], int(self.starts[-1]))
        return sparse.csr_array((part.data, part.indices + self.starts[k], part.indptr), shape=shape)

    def _sizes(self) -> tuple[Any, Array, Array]:
        """Rows of the sizes of groups with a law, the fewest and the most that they allow."""
        numbers = self.problem.numbers
        if numbers is None:
            return self._placed(0, np.zeros((0, self.domains[0].size))), np.zeros(0), np.zeros(0)
        if SIZES in self.problem.model.states:
            k = next(k for k, c in enumerate(self.cliques) if SIZES in c)
            rows = self._placed(k, summing(self.domains[k], (SIZES,)))
        else:
            rows = self._placed(0, np.ones((1, self.domains[0].size)))
        most = np.array([float(law.most) for law in numbers.laws])
        least = np.array([float(law.least) for law in numbers.laws])
        return rows, least, np.where(most > NO_BOUND, np.inf, most)

    def nearest(self, tables: dict[Scope, Array]) -> dict[Scope, Array] | None:
        """Whole-number tables n ≥ 0 with the least Σ|n − given|; None where there are none."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        given = np.concatenate([np.ravel(tables[c]) for c in self.cliques])
        size = len(given)
        eye = sparse.eye_array(size)
        rows = sparse.block_array([[self.equal, None, None], [eye, -eye, eye]])
        values = np.append(self.right, given)
        high = np.concatenate([np.where(self.possible, self.problem.most, 0.0), np.full(2 * size, np.inf)])
        found = milp(
            np.concatenate([np.zeros(size), np.ones(2 * size)]),
            constraints=LinearConstraint(rows, values, values),
            bounds=Bounds(0, high),
            integrality=np.concatenate([np.ones(size), np.zeros(2 * size)]),
        )
        if found.x is None:
            return None
        whole = np.rint(found.x[:size])
        return {
            c: whole[s:e].reshape(d.shape)
            for c, d, s, e in zip(self.cliques, self.domains, self.starts, self.starts[1:], strict=False)
        }

    @property
    def has_units(self) -> bool:
        """Whether exact counts are of units, or of some: an odd one may then be impossible."""
        return bool((self.exact.data != 1.0).any() or (self.counts % 1.0 > 0).any())

    def units(self, fewest: Sequence[float]) -> Array:
        """How many individuals one of every count is, from the fewest individuals as they were given."""
        own = np.append(self.counts, self.fewest)
        return np.where(own > 0, np.asarray(fewest) / np.where(own > 0, own, 1.0), 1.0)

    def conflict(self, units: Array, *, whole: bool = False) -> Conflict | None:
        """The counts that contradict each other, given the model and the sizes; None where some population has them all.

        ``units`` says how many individuals one of every count is. ``whole``: of whole units, which programs of real numbers leave out;
        None also where that takes too long.
        """
        apart = self._apart(units, whole=whole) if len(units) else None
        if apart is None or apart[0] <= TOLERANCE * max([1.0, *self.counts, *self.fewest]):
            return None
        named = np.abs(apart[1]) > TOLERANCE
        if whole:  # no dual: those of which it is enough to correct one, or else all
            alone = [self._apart(units * (1.0 - row), whole=True) for row in np.eye(len(units))]
            named = np.array([found is not None and found[0] < apart[0] - TOLERANCE for found in alone])
            named |= ~named.any()
        return Conflict(apart[0], self.which[named])

    def _apart(self, costs: Array, *, whole: bool) -> tuple[float, Array] | None:
        """The least sum of errors of all counts, weighted by costs, and the dual of each; None where there is no such table."""
        from scipy.optimize import linprog

        some, bounded = np.flatnonzero(self.possible), np.isfinite(self.most)
        exact, read, eye = len(self.counts), len(self.fewest), sparse.eye_array
        # Columns: tables, errors of exact counts up and down, errors of readings.
        blocks = [
            [self.structural[:, some], None, None, None],
            [self.exact[:, some], eye(exact), -eye(exact), None],
            [-self.read[:, some], None, None, -eye(read)],
            [-self.sizes[:, some], None, None, None],
            [self.sizes[bounded][:, some], None, None, None],
        ]
        rows = sparse.block_array(blocks, format="csr")
        errors = np.concatenate([costs[:exact], costs])
        found = linprog(
            np.append(np.zeros(len(some)), errors),
            A_ub=rows[len(self.right) :],
            b_ub=np.concatenate([-self.fewest, -self.least, self.most[bounded]]),
            A_eq=rows[: len(self.right)],
            b_eq=self.right,
            integrality=np.repeat([int(whole), 0], [len(some), len(errors)]),
            method="highs",
            options={"time_limit": MOST_SECONDS},
        )
        if found.status != 0:  # none, or it took too long
            return None
        dual = np.zeros(len(costs))
        if not whole:
            dual = np.append(found.eqlin.marginals[len(self.zeros) :], found.ineqlin.marginals[:read])
        return float(found.fun), dual

    def size_range(self, group: int) -> tuple[float, float]:
        """The fewest and the most individuals that exact counts leave a group of unknown size."""
        from scipy.optimize import linprog

        assert self.problem.numbers is not None
        law = self.problem.numbers.laws[group]
        others = np.arange(len(self.least)) != group
        bounded = np.isfinite(self.most) & others
        ends = []
        for sign, end in ((1.0, law.least), (-1.0, law.most)):
            found = linprog(
                sign * self.sizes[[group]].toarray()[0],
                A_ub=sparse.vstack([-self.sizes[others], self.sizes[bounded]]),
                b_ub=np.append(-self.least[others], self.most[bounded]),
                A_eq=self.equal,
                b_eq=self.right,
                bounds=[(0, None if possible else 0) for possible in self.possible],
                method="highs",
            )
            ends.append(float(end) if found.x is None else sign * found.fun)
        return max(float(law.least), float(np.rint(ends[0]))), min(float(law.most), ends[1])

    def certain(self) -> list[Site] | None:
        """Exact sites of all entries of cells and pairs that are the same number in all populations and not seen exactly.

        None where there is no population. Impossible entries of a clique are known to the model, and not among them.
        """
        found = self._freedom()
        return None if found is None else list(self._fixed(*found))

    def told_by_sizes(self) -> tuple[Array, Array]:
        """Of every observed count, how much one individual more of every unknown size adds to it, and its number without any.

        (counts, sizes) and (counts,); NaN for counts that are not a function of the sizes, given the exact ones.
        """
        numbers = self.problem.numbers
        assert numbers is not None
        seen = self._stacked([self.seen(site) for site in self.problem.sites])
        slopes, without = (
            np.full((seen.shape[0], len(numbers.unknown)), np.nan),
            np.full(seen.shape[0], np.nan),
        )
        found = self._freedom()
        if found is not None:
            value, moves = found
            sizes = self.sizes[numbers.unknown]
            of_sizes, of_counts = sizes @ moves, seen @ moves
            of_sizes[np.abs(of_sizes) < TOLERANCE] = 0.0  # rounding of sizes that exact counts tell
            slope = of_counts @ np.linalg.pinv(of_sizes, rcond=TOLERANCE)
            told = np.abs(of_counts - slope @ of_sizes).max(axis=1, initial=0.0) < TOLERANCE
            slopes[told] = _rounded(slope[told])
            without[told] = _rounded(seen @ value - slopes @ (sizes @ value))[told]
        return slopes, without

    def _freedom(self) -> tuple[Array, Array] | None:
        """One population, in which everything is positive that can be, and all directions that lead to others; None without any."""
        from scipy.linalg import svd
        from scipy.optimize import linprog

        some, bounded = np.flatnonzero(self.possible), np.isfinite(self.most)
        size, equal, sizes = len(some), self.equal[:, some], self.sizes[:, some]
        right, least, most = (sparse.csr_array(v[:, None]) for v in (self.right, self.least, self.most))
        # Columns: tables, which entries are positive, the scale.
        blocks = [
            [equal, None, -right],
            [-sparse.eye_array(size), sparse.eye_array(size), None],
            [-sizes, None, least],
            [sizes[bounded], None, -most[bounded]],
        ]
        rows = sparse.block_array(blocks, format="csr")
        found = linprog(
            np.concatenate([np.zeros(size), -np.ones(size), [0.0]]),
            A_ub=rows[len(self.right) :],
            b_ub=np.zeros(rows.shape[0] - len(self.right)),
            A_eq=rows[: len(self.right)],
            b_eq=np.zeros(len(self.right)),
            bounds=[(0, None)] * size + [(0, 1)] * size + [(1, None)],
            method="highs",
        )
        if found.x is None:
            return None
        table, scale = found.x[:size], found.x[-1]
        positive = found.x[size:-1] > 0.5
        fixed = np.flatnonzero(self.least == self.most)
        equations = sparse.vstack([equal, sizes[fixed]])[:, np.flatnonzero(positive)].toarray()
        _, pivots, directions = svd(equations)
        rank = int((pivots > TOLERANCE).sum())
        moves = np.zeros((len(self.possible), equations.shape[1] - rank))
        moves[some[positive]] = directions[rank:].T
        value = np.zeros(len(self.possible))
        value[some] = np.where(positive, table / scale, 0.0)
        return value, moves

    def _fixed(self, value: Array, moves: Array) -> Iterator[Site]:
        """Exact sites of the entries that no direction moves, of the cliques and of single variables."""
        problem = self.problem
        seen = {
            (tuple(site.scope), int(k))
            for site in problem.sites
            if site.noise.exact and site.index is not None
            for k in site.index
        }
        scopes: dict[tuple[Hashable, ...], int] = {}
        for k, clique in enumerate(self.cliques):
            for scope in (*((v,) for v in clique), clique):
                scopes.setdefault(tuple(v for v in problem.model.variables if v in scope), k)
        for scope, k in scopes.items():
            part, added_up = slice(self.starts[k], self.starts[k + 1]), summing(self.domains[k], scope)
            added, allowed = (added_up @ x[part] for x in (value, self.possible.astype(float)))
            still = np.abs(added_up @ moves[part]).max(axis=1, initial=0.0) < TOLERANCE
            near = np.abs(added - np.rint(added)) < TOLERANCE * max(1.0, float(problem.most))
            index = np.array(
                [e for e in np.flatnonzero(still & near & (allowed > 0)) if (scope, int(e)) not in seen],
                dtype=np.intp,
            )
            if len(index):
                size, counts = problem.model.domain(scope).size, np.rint(added[index])
                yield implied(scope, size, index, counts, source=FORCED)


def _rounded(values: Array) -> Array:
    """Whole numbers where values are near them: of counts of whole individuals, the rest is rounding."""
    near = np.rint(values)
    return np.where(np.abs(values - near) < TOLERANCE * np.maximum(1.0, np.abs(near)), near, values)


def implied(
    scope: Scope, size: int, index: NDArray[np.intp], counts: Array, *, source: int = IMPLIED
) -> Site:
    """An exact site of what follows from other observations."""
    names = [f"entry {k} of {scope}" for k in index]
    return Site(tuple(scope), size, index, None, Exact(counts, on=tuple(scope)), names, source)


def size_range(problem: ClosedProblem, group: int) -> tuple[float, float]:
    """The fewest and the most individuals that a group of unknown size may have beside exact counts."""
    assert problem.numbers is not None
    law = problem.numbers.laws[group]
    if not any(site.noise.exact for site in problem.sites) or clique_entries(problem.model) > MOST_ENTRIES:
        return float(law.least), float(law.most)
    return TableProgram(problem).size_range(group)


def contradiction(problem: Problem, *, failed: bool = False) -> str | None:
    """What to say of counts that no population meets; None where one does, or where there are too many entries to look.

    Where nothing is exact and every move possible, only of readings that need more individuals than there may be. Where a run has
    ``failed``, many entries are looked at, and whole individuals; elsewhere these only where some count for more than one.
    """
    core = problem.core
    exact = any(site.noise.exact for site in core.sites)
    most = MOST_AFTER_FAILURE if failed else MOST_ENTRIES
    if clique_entries(core.model) > most or not (
        exact or failed or _forbids_moves(core) or _most_needed(core) > core.most
    ):
        return None
    program, given = TableProgram(core), _as_given(problem.sites)
    given += _as_given(core.sites)[len(given) :]  # of the past, which the problem has in no site
    units = program.units([given[k][0] for k in program.which])
    found = program.conflict(units)
    if found is None and (failed or program.has_units):
        found = program.conflict(units, whole=True)
    return None if found is None else found.in_words(given, exact=exact)


def _forbids_moves(problem: ClosedProblem) -> bool:
    """Whether some configuration of a clique is impossible; of chains and trees whether some state or move is."""
    model, tree = problem.model, problem.model.rooted()
    if tree is not None:
        return any(
            np.count_nonzero(dense(law)) < np.prod(law.shape) for law in (tree.initial, *tree.transitions[1:])
        )
    return any(not (np.asarray(model.marginal(tuple(c))) > 0).all() for c in model.junction_tree.cliques)


def _most_needed(problem: ClosedProblem) -> float:
    """Individuals that are enough for all readings where every move is possible: some for each table of moves, some for the cells."""
    moves = 0.0
    cells: dict[Scope, float] = {}
    for site in problem.sites:
        fewest = float(fewest_read(site).sum())
        if len(site.scope) > 1:
            moves += fewest
        else:
            cells[site.scope] = cells.get(site.scope, 0.0) + fewest
    return moves + max(cells.values(), default=0.0)


def _as_given(sites: Sequence[Site]) -> list[tuple[float, str]]:
    """Of every count: the fewest individuals it allows, and what was given, in words."""
    return [
        (low, f"{name} = {y:g}" + ("" if site.noise.exact else f" (a reading of {low:g} or more)"))
        for site in sites
        for name, y, low in zip(site.names, site.noise.counts, fewest_read(site), strict=True)
    ]


MOST_NAMED = 12
"""Counts that a report of a contradiction names."""


def fewest_read(site: Site) -> Array:
    """Fewest individuals of every count that its readings allow: one where a Poisson count is positive, say; all where it is exact."""
    if site.noise.exact:
        return np.asarray(site.noise.counts, dtype=float)
    low = np.maximum(np.ceil(site.noise.domain_low), 0.0) * np.ones(len(site))
    with np.errstate(all="ignore"):
        return np.asarray(low + np.isneginf(site.noise.log_prob(low)))


def clique_entries(model: Model) -> int:
    """Entries of the tables of all cliques."""
    return sum(int(np.prod(model.size(tuple(c)), dtype=np.int64)) for c in model.junction_tree.cliques)


def certain_sites(problem: ClosedProblem) -> list[Site] | None:
    """What exact counts make certain, as exact sites; None where no population has them. Nothing where there are too many entries."""
    if not any(site.noise.exact for site in problem.sites) or clique_entries(problem.model) > MOST_CERTAIN:
        return []
    return TableProgram(problem).certain()


def told_by_sizes(problem: ClosedProblem) -> tuple[Array, Array] | None:
    """See `TableProgram.told_by_sizes`; None where there are too many entries to look. Where nothing is exact, totals are told."""
    if not any(site.noise.exact for site in problem.sites):
        # Two sizes are summed over in blocks, which a reading of their sum alone is too narrow for: it has a site of its own.
        one = problem.numbers is not None and len(problem.numbers.unknown) == 1
        return _totals(problem) if one else None
    return TableProgram(problem).told_by_sizes() if clique_entries(problem.model) <= MOST_CERTAIN else None


def _totals(problem: ClosedProblem) -> tuple[Array, Array]:
    """The same where nothing is exact: a sum over a variable's states that has one weight per group is a function of the sizes."""
    numbers, model = problem.numbers, problem.model
    assert numbers is not None
    known = np.setdiff1d(np.arange(len(numbers.laws)), numbers.unknown)
    slopes, without = [], []
    for site in problem.sites:
        own = np.full((len(site), len(numbers.unknown)), np.nan), np.full(len(site), np.nan)
        sums = site.weights is not None or site.size == 1
        if sums and len(site.scope) == 1 and site.scope != (SIZES,) and len(site) * site.size <= MOST_CERTAIN:
            of_group = np.ones((1, site.size), dtype=bool)
            if SIZES in model.states:
                of_group = dense(model.marginal((SIZES, *site.scope))) > 0
            weights = dense(site_matrix(site))
            each = weights @ of_group.T / np.maximum(of_group.sum(axis=1), 1)
            told = (np.abs(weights[:, None] - each[:, :, None]) * of_group).max(axis=(1, 2)) == 0.0
            own[0][told], own[1][told] = (
                each[told][:, numbers.unknown],
                each[told][:, known] @ numbers.mean[known],
            )
        slopes.append(own[0])
        without.append(own[1])
    return np.concatenate(slopes), np.concatenate(without)


def summing(domain: Domain, scope: Sequence[Hashable]) -> Any:
    """The 0/1 matrix that sums a flat table down to ``scope``."""
    ones = np.ones(domain.size)
    return sparse.csr_array(
        (ones, (domain.positions(scope), np.arange(domain.size))),
        shape=(domain.part(scope).size, domain.size),
    )


def site_matrix(site: Site) -> Any:
    """The 0/1 matrix of the entries that every count of a site is the sum of, (counts, entries)."""
    every = sparse.eye_array(site.size, format="csr")
    return every[site.index] if site.weights is None else site.weights
