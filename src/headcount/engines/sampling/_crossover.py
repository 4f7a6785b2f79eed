"""Crossover: two individuals exchange all they do below one edge of the tree.

Node counts stay as they are, so nodes that must not be empty (y > 0) cannot block it. With states (i, j) and (i', j') on
the two ends of the edge the exchange is accepted with probability

    min(1, P(i, j') P(i', j) / (P(i, j) P(i', j')) · ratio of the edge's observation)
"""

from headcount._compile import bare
from headcount.engines.sampling._random import below, uniform
from headcount.engines.sampling._slots import move, product


@bare
def _exchange(leave, leave_too, enter, enter_too, first, slot, law, table, slot_count, slot_ratio):
    """Move two individuals between entries of one edge table; returns l(y | after) / l(y | before)."""
    move(leave, -1, first, slot, law, table, slot_count, slot_ratio)
    before = product(leave, first, slot, slot_ratio)
    move(leave_too, -1, first, slot, law, table, slot_count, slot_ratio)
    before *= product(leave_too, first, slot, slot_ratio)
    after = product(enter, first, slot, slot_ratio)
    move(enter, 1, first, slot, law, table, slot_count, slot_ratio)
    after *= product(enter_too, first, slot, slot_ratio)
    move(enter_too, 1, first, slot, law, table, slot_count, slot_ratio)
    return after / before


@bare
def cross(tree, slots, state, tries):
    """Try `tries` random crossovers; returns how many changed a table."""
    path, random, law, noise, table = state.path, state.random, tree.law, slots.law, slots.table
    parent, sizes, law_start, edge_start, end = (
        tree.parent,
        tree.sizes,
        tree.law_start,
        tree.edge_start,
        tree.end,
    )
    mode, feed, slot, slot_count, slot_ratio = (
        slots.edge_mode, slots.edge_first, slots.edge_slot, state.slot_count, state.slot_ratio)  # fmt: skip
    nodes, people = path.shape
    if nodes < 2 or people < 2:
        return 0
    changed = 0
    for _ in range(tries):
        v, m, k = 1 + below(random, nodes - 1), below(random, people), below(random, people - 1)
        if k >= m:
            k += 1
        u, size = parent[v], sizes[v]
        i, j, i_other, j_other = path[u, m], path[v, m], path[u, k], path[v, k]
        if i == i_other or j == j_other:
            continue  # no table would change
        old, old_other, new, new_other = (
            i * size + j, i_other * size + j_other, i * size + j_other, i_other * size + j)  # fmt: skip
        start, at = law_start[v], edge_start[v]
        gain = law[start + new] * law[start + new_other] / (law[start + old] * law[start + old_other])
        if gain == 0.0:
            continue
        if mode[v] != 0:
            gain *= _exchange(at + old, at + old_other, at + new, at + new_other,
                              feed, slot, noise, table, slot_count, slot_ratio)  # fmt: skip
        if uniform(random) < gain:
            changed += 1
            for w in range(v, end[v]):
                path[w, m], path[w, k] = path[w, k], path[w, m]
        elif mode[v] != 0:
            _exchange(at + new, at + new_other, at + old, at + old_other,
                      feed, slot, noise, table, slot_count, slot_ratio)  # fmt: skip
    return changed
