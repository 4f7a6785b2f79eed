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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from headcount._compile import bare, kernel
from headcount.observe import SIZES
from headcount.posterior.program import TableProgram, fewest_read, site_matrix
from headcount.tables import Domain

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray

    from headcount._types import Array, Scope
    from headcount.individual import Model
    from headcount.observe import ClosedProblem, Site
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
        if k in above:
            parent, given = above[k]
            whole = margin({tuple(tree.cliques[parent]): done[tuple(tree.cliques[parent])]}, given)
        else:
            whole, given = _sizes(beliefs, margin(drawn, clique[:1]), rng)
        for variable in clique:
            if variable not in given:
                part = margin({clique: real}, (*given, variable))
                whole = _extended(beliefs, (*given, variable), part, whole, random)
                given = (*given, variable)
        done[clique] = margin({given: whole}, clique)
    return done


def _sizes(beliefs: GaussianBeliefs, drawn: Array, rng: np.random.Generator) -> tuple[Array, Scope]:
    """How many individuals every draw has, and of what: one number, or one per group, rounded at random where it has a law."""
    problem, total = beliefs.problem, drawn.reshape(len(drawn), -1).sum(axis=1)
    if problem.numbers is None:
        return np.full(len(drawn), float(problem.population)), ()
    scope: Scope = (SIZES,) if SIZES in beliefs.model.states else ()
    real = _positive(beliefs, scope, drawn) if scope else np.maximum(total, 0.0)
    laws = problem.numbers.laws
    ends = np.array([(law.least, law.most) for law in laws], dtype=float).T
    down = np.floor(real)
    whole = np.clip(down + (rng.random(real.shape) < real - down), *(ends if scope else ends[:, 0]))
    return whole, scope


def _extended(beliefs: GaussianBeliefs, scope: Scope, real: Array, whole: Array, random: Any) -> Array:
    """The whole-number table of a scope, near the real one, given that of all its variables but the last."""
    expected = beliefs.population * beliefs.model.marginal(scope)
    rows = np.maximum(_positive(beliefs, scope, real), SUPPORT * expected)
    rows = rows.reshape(len(real), -1, real.shape[-1])
    totals = whole.reshape(len(real), -1).sum(axis=1, keepdims=True)
    columns = _columns(beliefs, scope[-1:], margin({scope: real}, scope[-1:]), totals)
    out = np.empty_like(rows)
    round_tables(rows, whole.reshape(len(real), -1), columns, random, out)
    return out.reshape(real.shape)


def _columns(beliefs: GaussianBeliefs, node: Scope, draws: Array, totals: Array) -> Array:
    """Wanted counts of one variable, scaled to N, shape (draws, 1); those known exactly as they are."""
    wanted = _positive(beliefs, node, draws)
    variance = beliefs.variance(node)
    assert variance is not None
    known = variance <= KNOWN * beliefs.population
    wanted[:, known] = np.rint(wanted[:, known])
    left = np.maximum(totals - wanted[:, known].sum(axis=1, keepdims=True), 0.0)
    least = _fewest(beliefs.problem, node)[~known]
    above = np.maximum(wanted[:, ~known] - least, 0.0)
    spare, free = left - least.sum(), above.sum(axis=1, keepdims=True)
    scaled = least + above * np.where(free > 0, spare / np.where(free > 0, free, 1.0), 0.0)
    wanted[:, ~known] = np.where(spare > 0, scaled, left * least / max(least.sum(), 1.0))
    return wanted


def _fewest(problem: ClosedProblem, node: Scope) -> Array:
    """Fewest individuals of every state of a variable that its readings allow: one where a Poisson count is positive, say."""
    fewest = np.zeros(problem.model.domain(node).size)
    for site in problem.sites:
        if site.scope == node and site.index is not None and not site.noise.exact:
            np.maximum.at(fewest, site.index, fewest_read(site))
    return fewest


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
    return np.clip(np.where(m < SKEWED * sd, skewed, plain), 0.0, beliefs.problem.most)


def _restore_exact(problem: ClosedProblem, tables: dict[Scope, Array]) -> None:
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
    program = TableProgram(problem)
    for d in np.flatnonzero(wrong):
        found = program.nearest({s: t[d] for s, t in tables.items()})
        if found is None:
            message = "no whole-number tables agree with the exact observations: check them against each other and the model's zeros"
            raise DrawError(message)
        for clique, nearest in found.items():
            tables[clique][d] = nearest


def _contradictory(problem: ClosedProblem, tables: dict[Scope, Array]) -> NDArray[np.bool_]:
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


def drawn_entries(sites: Sequence[Site], tables: dict[Scope, Array]) -> Array:
    """The true numbers behind all counts in draws of all clique tables, shape (draws, counts)."""
    size = len(next(iter(tables.values())))
    parts = [site.margin(margin(tables, site.scope).reshape(size, -1)) for site in sites]
    return np.concatenate([np.zeros((size, 0)), *parts], axis=1)


def _affordable_sweeps(problem: ClosedProblem, size: int, people: int) -> int:
    """Sweeps per draw within the budget; none where likelihoods are correlated, weighted or too many to tabulate."""
    observed = sum(len(site) for site in problem.sites)
    weighted = any(s.weights is not None and not (s.weights.data == 1.0).all() for s in problem.sites)
    if (
        observed * (people + 1) > LIKELIHOOD_ENTRIES
        or weighted
        or any(s.noise.correlated for s in problem.sites)
    ):
        return 0
    return min(MOST_SWEEPS, MOVES // max(1, size * people * len(problem.model.variables)))


def _swept(
    problem: ClosedProblem, tables: dict[Scope, Array], rng: np.random.Generator
) -> dict[Scope, Array]:
    """Step 3."""
    model = problem.model
    first = next(iter(tables.values()))
    size = len(first)
    people = int(first.reshape(size, -1).sum(axis=1).max(initial=0.0))
    sweeps = _affordable_sweeps(problem, size, people)
    if sweeps == 0 or people == 0:
        return tables
    arrays = _arrays(problem, people)
    counts = np.rint(drawn_entries(problem.sites, tables)).astype(np.int64)
    random = rng.integers(1, 2**63, size=1, dtype=np.uint64)
    out = {scope: np.empty_like(table) for scope, table in tables.items()}
    for d in range(size):
        x = _individuals(model, {s: t[d] for s, t in tables.items()}, rng)
        count = counts[d]
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


def _arrays(problem: ClosedProblem, people: int) -> tuple[Any, ...]:
    """What `sweep_individuals` reads, besides the individuals and the counts."""
    model = problem.model
    number = {v: k for k, v in enumerate(model.variables)}
    cliques = [tuple(c) for c in model.junction_tree.cliques]
    between = [tuple(s) for _, _, s in model.junction_tree.edges if s]
    factors = [*cliques, *between]  # p(x) is the product over cliques, divided by that over separators
    with np.errstate(divide="ignore"):
        below = [np.where(p > 0, 1.0 / p, 0.0) for p in map(model.marginal, between)]
    sites = [site.scope for site in problem.sites]
    singles: list[set[Hashable]] = [{v} for v in model.variables]

    def moves(sets: Sequence[set[Hashable]], touched: Callable[[Scope, set[Hashable]], bool]) -> MoveSets:
        return MoveSets(
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
        Slots(*_slot_lists(problem), _likelihoods(problem, people)),
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


def _slot_lists(problem: ClosedProblem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For every entry of every site's table, laid end to end, the observed counts it is part of."""
    if not problem.sites:
        return _lists([])
    counted = sparse.block_diag(list(map(site_matrix, problem.sites)), format="csc")
    return counted.indptr.astype(np.int64), counted.indices.astype(np.int64)


def _likelihoods(problem: ClosedProblem, people: int) -> Array:
    """Log likelihood of every observed count at 0 … N, (counts, N + 1).

    Counts that the data make impossible (fewer individuals than were detected) get a steep slope instead of −∞, so that sweeps lead a
    rounded draw out of them; exact observations, which rounding has met already, keep −∞.
    """
    n = np.arange(people + 1.0)[:, None]
    tables = []
    for site in problem.sites:
        shape = len(n), len(site)
        with np.errstate(all="ignore"):
            table = np.broadcast_to(site.noise.log_prob(np.broadcast_to(n, shape)), shape).T
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


# --- compiled: rounding of a table between whole margins, and moves of individuals that leave a posterior invariant

ZERO = 1e-5
"""Fractions below this are rounding errors of the margins' fit."""
FIT_SWEEPS = 50
"""Most sweeps over columns and rows of a table's fit to its margins: a limit on the time that margins no table has would take."""
FIT_TOLERANCE = 1e-4
"""Error of a column's sum, in individuals, at which a table's fit to its margins ends."""


class Factors(NamedTuple):
    """p(x) = Π over cliques / Π over separators, as flat tables; also used for where sites sit (without values)."""

    first: Any
    """(F + 1,) where each one's variables begin in `variable` and `stride`."""
    variable: Any
    stride: Any
    offset: Any
    """(F,) where each one's table begins in `value`."""
    value: Any


class MoveSets(NamedTuple):
    """Sets of variables that change together, and the factors and sites that see a change; each a pair (first, member)."""

    members: Any
    factors: Any
    sites: Any


class Slots(NamedTuple):
    """What was observed: the slots that an entry of a site's table counts in, and every slot's log likelihood of 0 … N."""

    first: Any
    slot: Any
    log_prob: Any


@bare
def _uniform(random):
    """A number in [0, 1) by xorshift64*; `random` holds the state."""
    s = random[0]
    s ^= s >> np.uint64(12)
    s ^= s << np.uint64(25)
    s ^= s >> np.uint64(27)
    random[0] = s
    return float((s * np.uint64(2685821657736338717)) >> np.uint64(11)) / 9007199254740992.0


@kernel
def round_tables(tables, rows, columns, random, out):
    """Whole-number tables with the given whole row sums, near the given ones, unbiased where these fit the margins already.

    Every table is first scaled to its rows and columns; a column's whole sum is then the floor or the ceiling of its real one, so a
    whole one is kept. Entries are floors or ceilings: along a cycle of fractions, entries go up and down by turns until one is whole.
    """
    size, height, width = tables.shape
    part = np.empty((height + 1, width))
    for d in range(size):
        _scale(tables[d], rows[d], columns[d], part)
        for j in range(width):
            total = 0.0
            for i in range(height):
                total += part[i, j]
            # A row of slack makes every column's sum whole; one that is to be whole needs none.
            known = columns[d, j] == np.floor(columns[d, j])
            part[height, j] = 0.0 if known else max(np.ceil(total - ZERO) - total, 0.0)
        _round(part, random)
        for i in range(height):
            for j in range(width):
                out[d, i, j] = part[i, j]


@bare
def _scale(table, rows, columns, part):
    """part = table scaled to its row and column sums by turns, rows last."""
    height, width = table.shape
    for i in range(height):
        for j in range(width):
            part[i, j] = table[i, j]
    for _ in range(FIT_SWEEPS):
        worst = _scale_columns(part, columns, height)
        _scale_columns(part[:height].T, rows, width)
        if worst <= FIT_TOLERANCE:
            return


@bare
def _scale_columns(part, columns, height):
    """Scale every column to its sum, and return the largest error there was; a column of zeros stays."""
    worst = 0.0
    for j in range(part.shape[1]):
        total = 0.0
        for i in range(height):
            total += part[i, j]
        worst = max(worst, abs(total - columns[j]))
        factor = columns[j] / total if total > 0.0 else 0.0
        for i in range(height):
            part[i, j] *= factor
    return worst


@kernel
def _round(part, random):
    """Round a table with whole row and column sums in place, keeping them."""
    height, width = part.shape
    fraction = np.empty((height, width))
    for i in range(height):
        for j in range(width):
            whole = np.floor(part[i, j] + ZERO)
            fraction[i, j] = max(part[i, j] - whole, 0.0)
            if fraction[i, j] < ZERO:
                fraction[i, j] = 0.0
            part[i, j] = whole
    row_seen, column_seen = np.full(height, -1), np.full(width, -1)
    path_row, path_column = np.empty(height + width + 2, np.int64), np.empty(height + width + 2, np.int64)
    for i in range(height):
        for j in range(width):
            while fraction[i, j] > 0.0:
                _cancel(i, j, part, fraction, row_seen, column_seen, path_row, path_column, random)


@bare
def _settle(i, j, part, fraction):
    """Turn a fraction that has become 0 or 1 into a whole number."""
    if fraction[i, j] < ZERO:
        fraction[i, j] = 0.0
    elif fraction[i, j] > 1.0 - ZERO:
        fraction[i, j] = 0.0
        part[i, j] += 1.0


@bare
def _next(line, here, seen):
    """Another fraction of a row or column, one that the walk has met before if there is one; −1 if there is none."""
    found = -1
    for k in range(line.size):
        if k != here and line[k] > 0.0:
            if seen[k] >= 0:
                return k
            found = k
    return found


@bare
def _walk(i, j, fraction, row_seen, column_seen, path_row, path_column):
    """Walk over fractions, along rows and columns by turns, until a row or column comes again.

    Returns the first and the last step of the cycle so found and where the walk ended; −1 for the first where there is no cycle. Step k
    leaves row r_k at (r_k, c_k) and enters row r_{k+1} at (r_{k+1}, c_k).
    """
    row_seen[:] = -1
    column_seen[:] = -1
    length, row, column = 0, i, j
    while True:
        path_row[length], path_column[length] = row, column
        row_seen[row] = length
        if column_seen[column] >= 0:
            return column_seen[column] + 1, length, row, column
        column_seen[column] = length
        down = _next(fraction[:, column], row, row_seen)
        if down < 0:
            return -1, length, row, column
        row = down
        if row_seen[row] >= 0:
            return row_seen[row], length, row, column
        right = _next(fraction[row], column, column_seen)
        if right < 0:
            return -1, length, row, column
        column = right
        length += 1


@bare
def _cancel(i, j, part, fraction, row_seen, column_seen, path_row, path_column, random):
    """Find a cycle of fractions from (i, j) on and make at least one of them whole."""
    begin, end, row, column = _walk(i, j, fraction, row_seen, column_seen, path_row, path_column)
    if begin < 0:
        # The walk ended at the only fraction of its row or column, which is not quite whole because that one's sum is not.
        if fraction[row, column] > 0.5:
            part[row, column] += 1.0
        fraction[row, column] = 0.0
        return
    path_row[end + 1] = path_row[begin]
    up = down = 1.0  # how far (r_k, c_k) can rise while (r_{k+1}, c_k) fall, and the other way round
    for k in range(begin, end + 1):
        leaves, enters = fraction[path_row[k], path_column[k]], fraction[path_row[k + 1], path_column[k]]
        up, down = min(up, 1.0 - leaves, enters), min(down, leaves, 1.0 - enters)
    step = up if _uniform(random) * (up + down) < down else -down
    for k in range(begin, end + 1):
        fraction[path_row[k], path_column[k]] += step
        fraction[path_row[k + 1], path_column[k]] -= step
        _settle(path_row[k], path_column[k], part, fraction)
        _settle(path_row[k + 1], path_column[k], part, fraction)


@bare
def _entry(factors, f, x, a):
    """The entry of factor f's table that individual a is in."""
    entry = factors.offset[f]
    for k in range(factors.first[f], factors.first[f + 1]):
        entry += factors.stride[k] * x[a, factors.variable[k]]
    return entry


@bare
def _stride(factors, f, v):
    """By how much the entry of factor f grows with the state of variable v."""
    for k in range(factors.first[f], factors.first[f + 1]):
        if factors.variable[k] == v:
            return factors.stride[k]
    return 0


@bare
def _move_slots(slots, entry, step, count, old, touched, length):
    """Count an individual in or out of an entry; slots touched for the first time are listed with their old counts."""
    for k in range(slots.first[entry], slots.first[entry + 1]):
        s = slots.slot[k]
        if old[s] < 0:
            old[s] = count[s]
            touched[length] = s
            length += 1
        count[s] += step
    return length


@bare
def _decide(slots, count, old, touched, length, ratio, random):
    """Accept with probability min(1, ratio · ratio of likelihoods); the counts go back otherwise."""
    gain = 0.0
    for k in range(length):
        s = touched[k]
        gain += slots.log_prob[s, count[s]] - slots.log_prob[s, old[s]]
    accepted = ratio > 0.0 and _uniform(random) < ratio * np.exp(min(gain, 500.0))
    for k in range(length):
        s = touched[k]
        if not accepted:
            count[s] = old[s]
        old[s] = -1
    return accepted


@kernel
def sweep_individuals(x, sizes, factors, places, slots, single, pairs, count, sweeps, random):
    """Metropolis sweeps over individuals ``x``, (N, V): every variable of everybody, then exchanges between two individuals.

    A variable is proposed from the model given the individual's others; an exchange swaps a set of variables, which keeps the counts
    of everything inside and outside the set. Both are accepted by the ratio of likelihoods (and, for exchanges, of the model).
    """
    population, variables = x.shape
    weights = np.empty(sizes.max())
    old, touched = np.full(count.size, -1), np.empty(max(count.size, 1), np.int64)
    for _ in range(sweeps):
        for a in range(population):
            for v in range(variables):
                _redraw(x, a, v, sizes, factors, places, slots, single, count, weights, old, touched, random)
        for e in range(pairs.members[0].size - 1):
            for _ in range((population + 1) // 2):
                a = int(_uniform(random) * population)
                b = int(_uniform(random) * population)
                if a != b:
                    _exchange(x, a, b, e, factors, places, slots, pairs, count, old, touched, random)


@bare
def _proposed(x, a, v, size, factors, single, weights, random):
    """A state of variable v drawn from the model given the individual's others; its own where rounding leads to an impossible one."""
    before = x[a, v]
    first, member = single.factors
    x[a, v] = 0
    for k in range(size):
        weights[k] = 1.0
    for m in range(first[v], first[v + 1]):
        entry, stride = _entry(factors, member[m], x, a), _stride(factors, member[m], v)
        for k in range(size):
            weights[k] *= factors.value[entry + k * stride]
    total = 0.0
    for k in range(size):
        total += weights[k]
    mark, after = _uniform(random) * total, 0
    while mark >= weights[after] and after < size - 1:
        mark -= weights[after]
        after += 1
    x[a, v] = before
    return after if weights[after] > 0.0 else before


@bare
def _redraw(x, a, v, sizes, factors, places, slots, single, count, weights, old, touched, random):
    before, after = x[a, v], _proposed(x, a, v, sizes[v], factors, single, weights, random)
    if after == before:
        return
    first, member = single.sites
    length = 0
    for m in range(first[v], first[v + 1]):
        x[a, v] = before
        length = _move_slots(slots, _entry(places, member[m], x, a), -1, count, old, touched, length)
        x[a, v] = after
        length = _move_slots(slots, _entry(places, member[m], x, a), 1, count, old, touched, length)
    x[a, v] = after
    if length > 0 and not _decide(slots, count, old, touched, length, 1.0, random):
        x[a, v] = before


@bare
def _swap(x, a, b, first, member, e):
    for m in range(first[e], first[e + 1]):
        v = member[m]
        x[a, v], x[b, v] = x[b, v], x[a, v]


@bare
def _exchange(x, a, b, e, factors, places, slots, pairs, count, old, touched, random):
    first, member = pairs.factors
    sites_first, sites = pairs.sites
    before = after = 1.0
    length = 0
    for m in range(first[e], first[e + 1]):
        f = member[m]
        before *= factors.value[_entry(factors, f, x, a)] * factors.value[_entry(factors, f, x, b)]
    for m in range(sites_first[e], sites_first[e + 1]):
        for who in (a, b):
            length = _move_slots(slots, _entry(places, sites[m], x, who), -1, count, old, touched, length)
    _swap(x, a, b, pairs.members[0], pairs.members[1], e)
    for m in range(first[e], first[e + 1]):
        f = member[m]
        after *= factors.value[_entry(factors, f, x, a)] * factors.value[_entry(factors, f, x, b)]
    for m in range(sites_first[e], sites_first[e + 1]):
        for who in (a, b):
            length = _move_slots(slots, _entry(places, sites[m], x, who), 1, count, old, touched, length)
    if not _decide(slots, count, old, touched, length, after / before, random):
        _swap(x, a, b, pairs.members[0], pairs.members[1], e)
