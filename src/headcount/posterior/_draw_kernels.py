"""Compiled parts of ``_draws``: rounding of a table between whole margins, and moves of individuals that leave a posterior invariant."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headcount._compile import bare, kernel

ZERO = 1e-5
"""Fractions below this are rounding errors of the margins' fit."""
FIT_SWEEPS = 50
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


class Moves(NamedTuple):
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
        _scale_rows(part, rows, height)
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


@bare
def _scale_rows(part, rows, height):
    """Scale every row to its sum; a row of zeros stays."""
    for i in range(height):
        total = 0.0
        for j in range(part.shape[1]):
            total += part[i, j]
        factor = rows[i] / total if total > 0.0 else 0.0
        for j in range(part.shape[1]):
            part[i, j] *= factor


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
