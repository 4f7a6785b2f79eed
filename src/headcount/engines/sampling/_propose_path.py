"""Independence Metropolis for whole paths: propose from a fixed Markov tree q near one individual's posterior.

    accept with min(1, w(x') / w(x)),    w(x) = Π_v P_v(x_u, x_v) / q_v(x_u, x_v) · l(y | n₋ + 1) / l(y | n₋)

Proposals cost one alias draw a node, against O(L) for single-site Gibbs, and move a whole path at once.
"""

import math

import numpy as np

from headcount._compile import bare, kernel
from headcount.engines.sampling._random import uniform
from headcount.engines.sampling._slots import move, product, ratio
from headcount.engines.sampling._whole_path import shift_individual


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
        # What rounding left over stands for itself.
        for a in range(few):
            accept[start + small[a]] = 1.0
        for a in range(many):
            accept[start + large[a]] = 1.0


@bare
def _propose(nodes, parent, sizes, start, accept, alias, random, fresh):
    """A path drawn from q."""
    for v in range(nodes):
        row = start[v]
        if v > 0:
            row += fresh[parent[v]] * sizes[v]
        where = uniform(random) * sizes[v]
        j = int(where)
        if where - j >= accept[row + j]:
            j = alias[row + j]
        fresh[v] = j


@kernel
def draw_paths(tree, state, proposal):
    """Give every individual a path drawn from q."""
    nodes, people = state.path.shape
    fresh = np.empty(nodes, dtype=np.int64)
    for m in range(people):
        _propose(
            nodes,
            tree.parent,
            tree.sizes,
            proposal.start,
            proposal.accept,
            proposal.alias,
            state.random,
            fresh,
        )
        for v in range(nodes):
            state.path[v, m] = fresh[v]


@bare
def _gain_of_sums(tree, slots, state, v, old, new):
    """Likelihood ratio of one individual moving from `old` to `new` at a node whose sums are observed."""
    start, feed, slot, slot_ratio = tree.node_start[v], slots.node_first, slots.node_slot, state.slot_ratio
    move(start + old, -1, feed, slot, slots.law, slots.table, state.slot_count, slot_ratio)
    gain = product(start + new, feed, slot, slot_ratio) / product(start + old, feed, slot, slot_ratio)
    move(start + old, 1, feed, slot, slots.law, slots.table, state.slot_count, slot_ratio)
    return gain


@bare
def _gain_of_edge(tree, slots, state, v, m, fresh):
    """Likelihood ratio of individual m taking the fresh path, at the observed edge above v."""
    u, size, start = tree.parent[v], tree.sizes[v], tree.edge_start[v]
    old = start + state.path[u, m] * size + state.path[v, m]
    new = start + fresh[u] * size + fresh[v]
    feed, slot, slot_ratio = slots.edge_first, slots.edge_slot, state.slot_ratio
    move(old, -1, feed, slot, slots.law, slots.table, state.slot_count, slot_ratio)
    gain = product(new, feed, slot, slot_ratio) / product(old, feed, slot, slot_ratio)
    move(old, 1, feed, slot, slots.law, slots.table, state.slot_count, slot_ratio)
    return gain


@bare
def _log_gain(tree, slots, state, proposal, m, fresh):
    """log w(x') − log w(x) of individual m, who is still counted where it is."""
    path, parent, sizes, node_start = state.path, tree.parent, tree.sizes, tree.node_start
    node_mode, edge_mode, feed, slot = slots.node_mode, slots.edge_mode, slots.node_first, slots.node_slot
    law, table, node_ratio, node_count = slots.law, slots.table, state.node_ratio, state.node_count
    start, weight = proposal.start, proposal.weight
    gain, log_gain = 1.0, 0.0
    for v in range(path.shape[0]):
        old, new = path[v, m], fresh[v]
        row_old = row_new = start[v]
        if v > 0:
            row_old += path[parent[v], m] * sizes[v]
            row_new += fresh[parent[v]] * sizes[v]
        gain *= weight[row_new + new] / weight[row_old + old]
        if old != new and node_mode[v] == 1:
            cell = node_start[v] + old
            gain *= node_ratio[node_start[v] + new]
            if feed[cell + 1] > feed[cell]:
                gain /= ratio(law, table, slot[feed[cell]], node_count[cell] - 1)
        elif old != new and node_mode[v] == 2:
            gain *= _gain_of_sums(tree, slots, state, v, old, new)
        if edge_mode[v] != 0:
            gain *= _gain_of_edge(tree, slots, state, v, m, fresh)
        if gain < 1e-60 or gain > 1e60:
            log_gain += math.log(gain)
            gain = 1.0
    return log_gain + math.log(gain)


@bare
def propose_paths(tree, slots, state, proposal, fresh, tally):
    """One whole-path proposal for every individual."""
    nodes, people = state.path.shape
    path, random, parent, sizes = state.path, state.random, tree.parent, tree.sizes
    start, accept, alias = proposal.start, proposal.accept, proposal.alias
    for m in range(people):
        _propose(nodes, parent, sizes, start, accept, alias, random, fresh)
        tally[2] += 1
        if math.log(1.0 - uniform(random)) < _log_gain(tree, slots, state, proposal, m, fresh):
            shift_individual(tree, slots, state, m, -1)
            for v in range(nodes):
                path[v, m] = fresh[v]
            shift_individual(tree, slots, state, m, 1)
            tally[3] += 1
