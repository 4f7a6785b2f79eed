"""What every move is made of: random numbers, and the likelihood ratio of one individual more.

Random numbers are xoshiro256++ on an explicit state array: reproducible, thread-safe, and separate from NumPy's global generator.
A state is four `uint64` words, filled by `numpy.random.SeedSequence`; each chain has its own.

A *slot* is one observed total. Its ratio l(y | k + 1) / l(y | k) is kept beside its count k and updated when one individual comes or goes.
Log-ratios are kept within ±`LIMIT` (`_arrays.py`). Where l(y | k) = 0 the ratio would be infinite; the finite one makes an impossible state
e^200 times less likely than its neighbour, which no double can tell from impossible, and lets a chain that starts there leave.

Helpers take plain arrays, not the named tuples: reading a tuple's field inside a loop costs a reference count each time, which made
the sweeps six times slower.
"""

import math

import numpy as np

from headcount._compile import bare, kernel
from headcount.engines.sampling._arrays import LIMIT


@bare
def _rotate(word, by):
    """Rotate a 64-bit word to the left."""
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))


@bare
def uniform(random):
    """A double in [0, 1) with 53 random bits (Blackman and Vigna 2021, xoshiro256++ 1.0)."""
    s0, s1, s2, s3 = random[0], random[1], random[2], random[3]
    word = _rotate(s0 + s3, 23) + s0
    shifted = s1 << np.uint64(17)
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    s3 = _rotate(s3, 45)
    random[0], random[1], random[2], random[3] = s0, s1, s2, s3
    return (word >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@bare
def below(random, bound):
    """An integer in {0, …, bound − 1}; the bias of the multiplication is below bound / 2^53."""
    return int(uniform(random) * bound)


@bare
def draw(random, weights, size):
    """An index with probability proportional to `weights[:size]`; −1 when they sum to zero."""
    total = 0.0
    for j in range(size):
        total += weights[j]
    if not total > 0.0:
        return -1
    left = uniform(random) * total
    last = -1
    for j in range(size):
        if weights[j] > 0.0:
            last = j
            left -= weights[j]
            if left < 0.0:
                return j
    return last  # where rounding leaves a remainder, the last possible index takes it


@bare
def rescale(weights):
    """Divide by the largest weight, so that products of many do not underflow; returns whether it is positive."""
    largest = 0.0
    for j in range(weights.size):
        largest = max(largest, weights[j])
    if not largest > 0.0:
        return False
    for j in range(weights.size):
        weights[j] /= largest
    return True


@bare
def ratio(law, table, s, k):
    """l(y | k + 1) / l(y | k) of slot s; Poisson: ((lambda (k+1) + lambda_0) / (lambda k + lambda_0))^y e^(−lambda)."""
    if law[s, 0] == 0.0:
        return table[int(law[s, 4]) + k]
    y, rate = law[s, 1], law[s, 2]
    now = rate * k + law[s, 3]
    if y == 0.0:
        log_ratio = -rate
    elif now <= 0.0:
        log_ratio = LIMIT
    else:
        log_ratio = y * math.log1p(rate / now) - rate
    return math.exp(min(max(log_ratio, -LIMIT), LIMIT))


@bare
def move(entry, step, first, slot, law, table, slot_count, slot_ratio):
    """Add `step` (±1) units to the slots that a cell or an edge's entry shifts."""
    for a in range(first[entry], first[entry + 1]):
        s = slot[a]
        slot_count[s] += step
        slot_ratio[s] = ratio(law, table, s, slot_count[s])


@bare
def product(entry, first, slot, slot_ratio):
    """The likelihood ratio of one more individual in a cell or an edge's entry."""
    value = 1.0
    for a in range(first[entry], first[entry + 1]):
        value *= slot_ratio[slot[a]]
    return value


@bare
def move_node(mode, cell, step, node_count, node_ratio, first, slot, law, table, slot_count, slot_ratio):
    """Add `step` (±1) individuals to a node's cell; its cached ratio follows when no other cell shares its slot."""
    node_count[cell] += step
    if mode != 0:
        move(cell, step, first, slot, law, table, slot_count, slot_ratio)
        if mode == 1 and first[cell + 1] > first[cell]:
            node_ratio[cell] = slot_ratio[slot[first[cell]]]


@bare
def refresh(start, stop, node_ratio, first, slot, slot_ratio):
    """Recompute the ratios of a node's cells from its slots, where slots are sums of cells."""
    for cell in range(start, stop):
        node_ratio[cell] = product(cell, first, slot, slot_ratio)


@bare
def move_edge(slots, state, entry, step):
    """Add `step` (±1) units to the slots that an edge's entry shifts."""
    first, slot, law, table = slots.edge_shift_first, slots.edge_shift, slots.law, slots.table
    move(entry, step, first, slot, law, table, state.slot_count, state.slot_ratio)


@kernel
def alias_tables(q, size, accept, alias):
    """Walker's alias tables of consecutive rows of length `size` (Vose's linear-time construction)."""
    small, large = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    for start in range(0, q.size, size):
        few = many = 0
        for j in range(size):
            accept[start + j] = q[start + j] * size
            alias[start + j] = j
            if accept[start + j] < 1.0:
                small[few] = j
                few += 1
            else:
                large[many] = j
                many += 1
        while few > 0 and many > 0:
            few -= 1
            low, high = small[few], large[many - 1]
            alias[start + low] = high
            accept[start + high] -= 1.0 - accept[start + low]
            if accept[start + high] < 1.0:
                many -= 1
                small[few] = high
                few += 1
        # What rounding left over keeps its own place.
        for a in range(few):
            accept[start + small[a]] = 1.0
        for a in range(many):
            accept[start + large[a]] = 1.0
