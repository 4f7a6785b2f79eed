"""A batch of sweeps of the path sampler on one chain, with the sums its estimates need."""

import numpy as np

from headcount._compile import bare, kernel
from headcount.engines.sampling._crossover import cross
from headcount.engines.sampling._propose_path import propose_paths
from headcount.engines.sampling._single_site import sweep_single_sites
from headcount.engines.sampling._slots import ratio
from headcount.engines.sampling._whole_path import redraw_paths


@bare
def recount(tree, slots, state):
    """Fill node counts, slot counts and ratios from the paths."""
    nodes, people = state.path.shape
    state.node_count[:] = 0
    state.slot_count[:] = 0
    state.node_ratio[:] = 1.0
    for v in range(nodes):
        for m in range(people):
            cell = tree.node_start[v] + state.path[v, m]
            state.node_count[cell] += 1
            for a in range(slots.node_first[cell], slots.node_first[cell + 1]):
                state.slot_count[slots.node_slot[a]] += 1
            if slots.edge_mode[v] != 0:
                entry = tree.edge_start[v] + state.path[tree.parent[v], m] * tree.sizes[v] + state.path[v, m]
                for a in range(slots.edge_first[entry], slots.edge_first[entry + 1]):
                    state.slot_count[slots.edge_slot[a]] += 1
    for s in range(state.slot_count.size):
        state.slot_ratio[s] = ratio(slots.law, slots.table, s, state.slot_count[s])
    for cell in range(state.node_count.size):
        for a in range(slots.node_first[cell], slots.node_first[cell + 1]):
            state.node_ratio[cell] *= state.slot_ratio[slots.node_slot[a]]


@bare
def edge_counts(tree, path, table):
    """Add the edge tables of all paths to `table`."""
    nodes, people = path.shape
    for v in range(1, nodes):
        above, here, start, size = path[tree.parent[v]], path[v], tree.edge_start[v], tree.sizes[v]
        for m in range(people):
            table[start + above[m] * size + here[m]] += 1


@bare
def _record(tree, state, sums, table):
    """Add the present tables and their squares to the sums."""
    for cell in range(state.node_count.size):
        n = state.node_count[cell]
        sums.node[cell] += n
        sums.node_square[cell] += n * n
    edge_counts(tree, state.path, table)
    for entry in range(table.size):
        n = table[entry]
        if n != 0:
            sums.edge[entry] += n
            sums.edge_square[entry] += n * n
            table[entry] = 0
    sums.tally[0] += 1


@kernel
def sweep_paths(tree, slots, state, proposal, moves, sums, draws, thin, before):
    """Run sweeps; `moves` = (sweeps, single-site every so many, proposal rounds, crossovers, exact individuals).

    `before` is the number of the chain's sweeps so far; the node counts of every `thin`-th go to the next row of `draws`.
    """
    sweeps, every, proposals, crossovers, exact = moves
    nodes, most, cells = tree.sizes.size, tree.sizes.max(), state.node_count.size
    work = (
        np.empty(cells),
        np.empty((nodes, most)),
        np.empty(cells),
        np.empty(most),
        np.empty(tree.edge_start[-1]),
    )
    fresh = np.empty(nodes, dtype=np.int64)
    table = np.zeros(tree.edge_start[-1], dtype=np.int64)
    row = 0
    for sweep in range(before, before + sweeps):
        for _ in range(proposals):
            propose_paths(tree, slots, state, proposal, fresh, sums.tally)
        if sweep % every == 0:
            sweep_single_sites(tree, slots, state, work[3])
        cross(tree, slots, state, crossovers)
        redraw_paths(tree, slots, state, exact, sums, work)
        _record(tree, state, sums, table)
        if (sweep + 1) % thin == 0:
            for cell in range(cells):
                draws[row, cell] = state.node_count[cell]
            row += 1
