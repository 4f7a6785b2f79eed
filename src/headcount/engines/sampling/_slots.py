"""The likelihood ratio of a slot, l(y | k + 1) / l(y | k), and its upkeep when one individual comes or goes.

Log-ratios are kept within ±200. Where l(y | k) = 0 the ratio would be infinite; the finite one makes an impossible state
e^200 times less likely than its neighbour, which no double can tell from impossible, and lets a chain that starts there leave.

Helpers take plain arrays, not the named tuples: reading a tuple's field inside a loop costs a reference count each time,
which made the sweeps six times slower.
"""

import math

from headcount._compile import bare

LIMIT = 200.0


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
    """Add `step` (±1) individuals to the slots that a cell or an edge's entry feeds."""
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
