r"""Joint whole-number draws: tables that agree with each other and with everything known exactly, with the posterior's moments.

A draw is made in three steps.

1. *Gaussian.* Joint draws of all clique tables, which have the posterior's means and covariances and satisfy exact observations.
2. *Rounding*, from the root of the junction tree down: a clique's table is a matrix with the separator's states as rows, whose sums are
   the whole numbers that its parent has there, and is rounded at random between whole margins. Rounding a number with the fraction f
   adds f(1 − f) to its variance, :math:`\tfrac16 - \pi^{-2}\cos(2\pi m)\,e^{-2\pi^2 v}` on average over N(m, v), so the Gaussian's is
   reduced by that much before. Small counts are kept positive by a lognormal law with the same two moments.
3. *Sweeps* of Metropolis moves of single individuals, under which the posterior itself is invariant, as many as a budget of
   moves allows: they give counts of a few individuals their own law, which no rounding can.

Exact observations that rounding misses (sums of several entries, larger cliques) are restored before step 3 by the nearest table that
has them, an integer program.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.tables import Domain

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from numpy.typing import NDArray

    from headcount._types import Array, Scope
    from headcount.individual import Model
    from headcount.observe import Problem
    from headcount.posterior._beliefs import GaussianBeliefs

MOST_UNKNOWNS = 20_000
"""Most table entries of an integer program: a second or so per draw. Kept from an experiment; no derivation."""
MOVES = 2_000_000
"""Budget of single-individual moves for all draws together: about a second."""
MOST_SWEEPS = 200
"""Sweeps after which more would change nothing that can be seen: at N = 3, where rounding starts far from the law, means still moved
between 30 and 100."""
LIKELIHOOD_ENTRIES = 20_000_000
"""Most tabulated log likelihoods (observed counts times N + 1), 160 MB; above, there are no sweeps."""
SKEWED = 3.0
"""Counts whose mean is below this many sds are drawn lognormal, others Gaussian: a Gaussian is negative with probability .001 there."""
IMPOSSIBLE = 50.0
"""Nats that one individual beyond what the data allow costs during sweeps: e⁵⁰ to one against."""
KNOWN = 1e-12
"""Variance, relative to N, below which a count is known: rounding of zero."""
SUPPORT = 1e-6
"""Share of its expected value that every possible entry has at least, so that a table can be scaled to any margins."""


class DrawError(ValueError):
    """Whole-number draws that honour the exact observations were not found."""


def whole_draws(
    beliefs: GaussianBeliefs, size: int, *, rng: np.random.Generator, sweep: bool = True
) -> dict[Scope, Array]:
    """Whole-number tables of all cliques, ``(size, *table)``: they agree with each other, sum to N and honour exact observations.

    ``sweep=False`` leaves out step 3, where the beliefs are wider than the posterior under the problem's own model.
    """
    drawn = beliefs.sample(size, rng=rng, integer=False)
    tables = _rounded(beliefs, drawn, rng)
    _restore_exact(beliefs.problem, tables)
    moves_alone = not beliefs.problem.disperses  # sweeps move single individuals, which may move together
    return _swept(beliefs.problem, tables, rng) if sweep and moves_alone else tables


def _rounded(
    beliefs: GaussianBeliefs, drawn: dict[Scope, Array], rng: np.random.Generator
) -> dict[Scope, Array]:
    """Step 2: from the root of the junction tree down, variable by variable, so that every variable's own counts are rounded once."""
    tree = beliefs.problem.model.junction_tree
    random = rng.integers(1, 2**63, size=1, dtype=np.uint64)
    above: dict[int, tuple[int, Scope]] = {b: (a, tuple(s)) for a, b, s in tree.edges}
    done: dict[Scope, Array] = {}
    for k in [0, *(b for _, b, _ in tree.edges)]:
        clique = tuple(tree.cliques[k])
        real = margin(drawn, clique)
        given: Scope = ()
        whole = np.full(len(real), float(beliefs.population))
        if k in above:
            parent, given = above[k]
            whole = margin({tuple(tree.cliques[parent]): done[tuple(tree.cliques[parent])]}, given)
        for variable in clique:
            if variable not in given:
                part = margin({clique: real}, (*given, variable))
                whole = _extended(beliefs, (*given, variable), part, whole, random)
                given = (*given, variable)
        done[clique] = margin({given: whole}, clique)
    return done


def _extended(beliefs: GaussianBeliefs, scope: Scope, real: Array, whole: Array, random: Any) -> Array:
    """The whole-number table of a scope, near the real one, given that of all its variables but the last."""
    from headcount.posterior._draw_kernels import round_tables

    expected = beliefs.population * beliefs.model.marginal(scope)
    rows = np.maximum(_positive(beliefs, scope, real), SUPPORT * expected)
    rows = rows.reshape(len(real), -1, real.shape[-1])
    columns = _columns(beliefs, scope[-1:], margin({scope: real}, scope[-1:]))
    out = np.empty_like(rows)
    round_tables(rows, whole.reshape(len(real), -1), columns, random, out)
    return out.reshape(real.shape)


def _columns(beliefs: GaussianBeliefs, node: Scope, draws: Array) -> Array:
    """Wanted counts of one variable, scaled to N; those known exactly as they are."""
    wanted = _positive(beliefs, node, draws)
    variance = beliefs.variance(node)
    assert variance is not None
    known = variance <= KNOWN * beliefs.population
    wanted[:, known] = np.rint(wanted[:, known])
    left = beliefs.population - wanted[:, known].sum(axis=1, keepdims=True)
    free = wanted[:, ~known].sum(axis=1, keepdims=True)
    wanted[:, ~known] *= np.where(free > 0, left / np.where(free > 0, free, 1.0), 0.0)
    return wanted


def _positive(beliefs: GaussianBeliefs, scope: Scope, draws: Array) -> Array:
    """Draws of one table made positive, their variance reduced by what rounding will add."""
    m, v = beliefs.mean(scope), beliefs.variance(scope)
    assert v is not None
    m, v = np.maximum(m, 0.0), np.maximum(v, 0.0)
    left = v
    for _ in range(3):  # a fixed point: rounding adds less where the reduced law is narrow
        left = np.maximum(v - (1 / 6 - np.cos(2 * np.pi * m) * np.exp(-2 * np.pi**2 * left) / np.pi**2), 0.0)
    sd = np.sqrt(left)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(v > 0, (draws - m) / np.sqrt(v), 0.0)
        sigma = np.sqrt(np.log1p(np.where(m > 0, left / m**2, 0.0)))
    plain, skewed = m + sd * z, m * np.exp(sigma * z - sigma**2 / 2)
    return np.clip(np.where(m < SKEWED * sd, skewed, plain), 0.0, beliefs.population)


def _restore_exact(problem: Problem, tables: dict[Scope, Array]) -> None:
    """Replace, in place, draws that miss an exact observation (or have an individual where none can be) by the nearest that do not."""
    wrong = _contradictory(problem, tables)
    if not wrong.any():
        return
    unknowns = sum(t[0].size for t in tables.values())
    if unknowns > MOST_UNKNOWNS:
        message = (
            f"{int(wrong.sum())} of {len(wrong)} whole-number draws miss an exact observation, and {unknowns} table entries are too "
            "many to search for ones that do not: ask for draws with integer=False, or use PathGibbs"
        )
        raise DrawError(message)
    program = _Program(problem)
    for d in np.flatnonzero(wrong):
        for clique, nearest in program.nearest({s: t[d] for s, t in tables.items()}).items():
            tables[clique][d] = nearest


def _contradictory(problem: Problem, tables: dict[Scope, Array]) -> NDArray[np.bool_]:
    """Draws that miss an exact observation, have individuals where none can be, or differ on a separator."""
    model = problem.model
    wrong = np.zeros(len(next(iter(tables.values()))), bool)
    for site in problem.sites:
        if site.noise.exact:
            found = site.margin(margin(tables, site.scope).reshape(len(wrong), -1))
            wrong |= (found != site.noise.counts).any(axis=1)
    for clique, table in tables.items():
        wrong |= (table * (model.marginal(clique) == 0)).reshape(len(wrong), -1).any(axis=1)
    for a, b, separator in model.junction_tree.edges:
        ends = [
            margin({s: tables[s]}, tuple(separator))
            for s in (tuple(model.junction_tree.cliques[k]) for k in (a, b))
        ]
        wrong |= (ends[0] != ends[1]).reshape(len(wrong), -1).any(axis=1)
    return wrong


def margin(tables: dict[Scope, Array], scope: Scope) -> Array:
    """The table of a scope, ``(draws, *table)``, from the first that covers it."""
    clique = next(c for c in tables if set(scope) <= set(c))
    return np.ascontiguousarray(Domain(clique, tables[clique].shape[1:]).project(tables[clique], scope))


class _Program:
    """Tables of all cliques as the unknowns of a linear program: equal on separators, summing to N, with every exact count."""

    def __init__(self, problem: Problem) -> None:
        from scipy import sparse

        model = problem.model
        self.cliques = [tuple(c) for c in model.junction_tree.cliques]
        self.domains = [Domain(c, model.size(c)) for c in self.cliques]
        self.starts = np.cumsum([0, *(d.size for d in self.domains)])
        self.possible = np.concatenate([np.ravel(model.marginal(c) > 0) for c in self.cliques])
        self.population = problem.population
        rows, values = zip(*self._constraints(problem), strict=True)
        self.matrix, self.values = sparse.vstack(rows, format="csr"), np.concatenate(values)

    def _constraints(self, problem: Problem) -> Iterator[tuple[Any, Any]]:
        """Blocks of rows of the program, each with what it must equal: the total, equal separators, exact counts."""
        from scipy import sparse

        yield self._placed(0, np.ones((1, self.domains[0].size))), [float(problem.population)]
        for a, b, separator in problem.model.junction_tree.edges:
            one, other = (self._placed(k, _summing(self.domains[k], separator)) for k in (a, b))
            yield one - other, np.zeros(one.shape[0])
        for site in problem.sites:
            if site.noise.exact:
                k = next(k for k, c in enumerate(self.cliques) if set(site.scope) <= set(c))
                chosen = site.weights
                if chosen is None:
                    chosen = sparse.eye_array(site.size, format="csr")[site.index]
                yield self._placed(k, chosen @ _summing(self.domains[k], site.scope)), site.noise.counts

    def _placed(self, k: int, matrix: Any) -> Any:
        """Rows that concern clique k alone, over the unknowns of all cliques."""
        from scipy import sparse

        parts = [sparse.csr_array((matrix.shape[0], d.size)) for d in self.domains]
        parts[k] = sparse.csr_array(matrix)
        return sparse.hstack(parts, format="csr")

    def nearest(self, tables: dict[Scope, Array]) -> dict[Scope, Array]:
        """Whole-number tables n ≥ 0 with the least Σ|n − given|."""
        from scipy import sparse
        from scipy.optimize import Bounds, LinearConstraint, milp

        given = np.concatenate([np.ravel(tables[c]) for c in self.cliques])
        size = len(given)
        eye = sparse.eye_array(size)
        constraints = [
            LinearConstraint(
                sparse.hstack([self.matrix, sparse.csr_array((self.matrix.shape[0], 2 * size))]),
                self.values,
                self.values,
            ),
            LinearConstraint(sparse.hstack([eye, -eye, eye]), given, given),
        ]
        high = np.concatenate([np.where(self.possible, self.population, 0.0), np.full(2 * size, np.inf)])
        found = milp(
            np.concatenate([np.zeros(size), np.ones(2 * size)]),
            constraints=constraints,
            bounds=Bounds(0, high),
            integrality=np.concatenate([np.ones(size), np.zeros(2 * size)]),
        )
        if found.x is None:
            message = "no whole-number tables agree with the exact observations: check them against each other and the model's zeros"
            raise DrawError(message)
        whole = np.rint(found.x[:size])
        return {
            c: whole[s:e].reshape(d.shape)
            for c, d, s, e in zip(self.cliques, self.domains, self.starts, self.starts[1:], strict=False)
        }


def _summing(domain: Domain, scope: Sequence[Hashable]) -> Any:
    """The 0/1 matrix that sums a flat table down to ``scope``."""
    from scipy import sparse

    ones = np.ones(domain.size)
    return sparse.csr_array(
        (ones, (domain.positions(scope), np.arange(domain.size))),
        shape=(domain.part(scope).size, domain.size),
    )


def _affordable_sweeps(problem: Problem, size: int) -> int:
    """Sweeps per draw within the budget; none where likelihoods are correlated or too many to tabulate."""
    observed = sum(len(site) for site in problem.sites)
    if observed * (problem.population + 1) > LIKELIHOOD_ENTRIES or any(
        s.noise.correlated for s in problem.sites
    ):
        return 0
    return min(MOST_SWEEPS, MOVES // max(1, size * problem.population * len(problem.model.variables)))


def _swept(problem: Problem, tables: dict[Scope, Array], rng: np.random.Generator) -> dict[Scope, Array]:
    """Step 3."""
    from headcount.posterior._draw_kernels import sweep_individuals

    model = problem.model
    size = len(next(iter(tables.values())))
    sweeps = _affordable_sweeps(problem, size)
    if sweeps == 0:
        return tables
    arrays = _arrays(problem)
    random = rng.integers(1, 2**63, size=1, dtype=np.uint64)
    out = {scope: np.empty_like(table) for scope, table in tables.items()}
    for d in range(size):
        x = _individuals(model, {s: t[d] for s, t in tables.items()}, rng)
        count = _slot_counts(problem, {s: t[d : d + 1] for s, t in tables.items()})
        sweep_individuals(x, *arrays, count, sweeps, random)
        for scope, table in out.items():
            places = [model.variables.index(v) for v in scope]
            flat = np.ravel_multi_index(tuple(x[:, v] for v in places), table.shape[1:])
            table[d] = np.bincount(flat, minlength=table[d].size).reshape(table.shape[1:])
    return out


def _individuals(model: Model, tables: dict[Scope, Array], rng: np.random.Generator) -> NDArray[np.int64]:
    """N individuals, (N, V), whose clique tables are the given ones; who is who is random."""
    tree = model.junction_tree
    number = {v: k for k, v in enumerate(model.variables)}
    population = int(next(iter(tables.values())).sum())
    x = np.zeros((population, len(model.variables)), dtype=np.int64)
    above = {b: tuple(s) for _, b, s in tree.edges}
    for k in [0, *(b for _, b, _ in tree.edges)]:
        clique = tuple(tree.cliques[k])
        domain = Domain(clique, model.size(clique))
        separator = above.get(k, ())
        entries = np.repeat(np.arange(domain.size), tables[clique].ravel().astype(int))
        entries = entries[rng.permutation(population)]
        group = domain.positions(separator)[entries]
        entries = entries[np.argsort(group, kind="stable")]
        here = np.zeros(population, dtype=np.int64)
        if separator:
            sizes = [len(model.states[v]) for v in separator]
            here = np.ravel_multi_index(tuple(x[:, number[v]] for v in separator), sizes)
        order = np.argsort(here, kind="stable")
        for v, states in zip(clique, np.unravel_index(entries, domain.shape), strict=True):
            x[order, number[v]] = states
    return x


def _slot_counts(problem: Problem, tables: dict[Scope, Array]) -> NDArray[np.int64]:
    parts = [site.margin(margin(tables, site.scope).reshape(1, -1))[0] for site in problem.sites]
    return np.rint(np.concatenate(parts)).astype(np.int64) if parts else np.zeros(0, np.int64)


def _arrays(problem: Problem) -> tuple[Any, ...]:
    """What `sweep_individuals` reads, besides the individuals and the counts."""
    from headcount.posterior._draw_kernels import Moves, Slots

    model = problem.model
    number = {v: k for k, v in enumerate(model.variables)}
    cliques = [tuple(c) for c in model.junction_tree.cliques]
    between = [tuple(s) for _, _, s in model.junction_tree.edges if s]
    factors = [*cliques, *between]  # p(x) is the product over cliques, divided by that over separators
    with np.errstate(divide="ignore"):
        below = [np.where(p > 0, 1.0 / p, 0.0) for p in map(model.marginal, between)]
    sites = [site.scope for site in problem.sites]
    singles: list[set[Hashable]] = [{v} for v in model.variables]

    def moves(sets: Sequence[set[Hashable]], touched: Callable[[Scope, set[Hashable]], bool]) -> Moves:
        return Moves(
            _lists([[number[v] for v in part] for part in sets]),
            *(
                _lists([[k for k, s in enumerate(of) if touched(s, part)] for part in sets])
                for of in (factors, sites)
            ),
        )

    return (
        np.array(list(map(len, map(model.states.__getitem__, model.variables)))),
        _factors(model, factors, number, [*map(model.marginal, cliques), *below]),
        _factors(model, sites, number, []),
        Slots(*_slot_lists(problem), _likelihoods(problem)),
        moves(singles, _meets),
        moves([*singles, *_sides(model)], _crosses),
    )


def _meets(scope: Scope, part: set[Hashable]) -> bool:
    """Whether a change of some variables changes the entry of a table."""
    return not part.isdisjoint(scope)


def _crosses(scope: Scope, part: set[Hashable]) -> bool:
    """Whether an exchange of some variables between two individuals changes the counts of a table: not where it holds all or none."""
    return not part.isdisjoint(scope) and not part.issuperset(scope)


def _factors(model: Model, scopes: Sequence[Scope], number: dict[Hashable, int], values: list[Array]) -> Any:
    from headcount.posterior._draw_kernels import Factors

    strides = [np.cumprod([1, *model.size(s)[:0:-1]])[::-1] for s in scopes]
    first, variable = _lists([[number[v] for v in s] for s in scopes])
    offset = np.cumsum([0, *(math.prod(model.size(s)) for s in scopes)])
    stride = np.concatenate(strides).astype(np.int64) if strides else np.zeros(0, np.int64)
    value = np.concatenate([v.ravel() for v in values]) if values else np.zeros(0)
    return Factors(first, variable, stride, offset, value)


def _lists(parts: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lists of numbers laid end to end, and where each begins."""
    first = np.cumsum([0, *(len(p) for p in parts)]).astype(np.int64)
    return first, np.array([k for p in parts for k in p], dtype=np.int64)


def _sides(model: Model) -> list[set[Hashable]]:
    """Per edge of the junction tree, the variables beyond its separator."""
    tree = model.junction_tree
    found = []
    for _, top, separator in tree.edges:
        inside = {top}
        for a, b, _ in tree.edges:
            if a in inside:
                inside.add(b)
        found.append({v for k in inside for v in tree.cliques[k]} - set(separator))
    return found


def _slot_lists(problem: Problem) -> tuple[Any, Any]:
    """For every entry of every site's table, laid end to end, the observed counts it is part of."""
    lists: list[list[int]] = []
    start = 0
    for site in problem.sites:
        members: list[list[int]] = [[] for _ in range(site.size)]
        if site.index is not None:
            pairs = zip(range(len(site)), site.index.tolist(), strict=True)
        else:
            weights = site.weights.tocoo()  # type: ignore[union-attr]
            pairs = zip(weights.row.tolist(), weights.col.tolist(), strict=True)
        for slot, entry in pairs:
            members[entry].append(start + slot)
        lists += members
        start += len(site)
    return _lists(lists)


def _likelihoods(problem: Problem) -> Array:
    """Log likelihood of every observed count at 0 … N, (counts, N + 1).

    Counts that the data make impossible (fewer individuals than were detected) get a steep slope instead of −∞, so that sweeps lead a
    rounded draw out of them; exact observations, which rounding has met already, keep −∞.
    """
    n = np.arange(problem.population + 1.0)[:, None]
    tables = []
    for site in problem.sites:
        with np.errstate(all="ignore"):
            table = np.broadcast_to(
                site.noise.log_prob(np.broadcast_to(n, (len(n), len(site)))), (len(n), len(site))
            ).T
        table = np.where(np.isnan(table), -np.inf, table)
        tables.append(table if site.noise.exact else np.array([_sloped(row) for row in table]))
    return np.ascontiguousarray(np.concatenate(tables)) if tables else np.zeros((0, len(n)))


def _sloped(row: Array) -> Array:
    """−∞ replaced by `IMPOSSIBLE` per individual from the nearest possible count."""
    possible = np.flatnonzero(np.isfinite(row))
    if len(possible) in (0, len(row)):
        return row
    n = np.arange(len(row))
    nearest = possible[np.clip(np.searchsorted(possible, n), 0, len(possible) - 1)]
    nearest = np.where(n > possible[-1], possible[-1], nearest)
    return np.where(np.isfinite(row), row, row[nearest] - IMPOSSIBLE * np.abs(n - nearest))
