"""Single-site Gibbs: redraw the state of one individual at one node given everything else.

    P(x_v = j | rest) ∝ P_v(i, j) · Π_children c P_c(j, x_c) · l(y | n₋ + 1) / l(y | n₋)

with i the parent's state and n₋ the counts without this individual; observed edges multiply in their own ratios.
"""

from headcount._compile import bare, bare_sums
from headcount.engines.sampling._random import draw, uniform
from headcount.engines.sampling._slots import move, move_node, product, refresh


@bare
def _rescale(weights, size):
    """Divide by the largest weight: a product over many children must not underflow."""
    largest = 0.0
    for j in range(size):
        largest = max(largest, weights[j])
    if largest > 0.0:
        for j in range(size):
            weights[j] /= largest


@bare_sums
def _weigh(forth, back, ratios, weights):
    """weights[j] = P(i, j) P(j, k) r(j); returns their sum."""
    total = 0.0
    for j in range(ratios.size):
        weight = forth[j] * back[j] * ratios[j]
        weights[j] = weight
        total += weight
    return total


@bare
def _sweep_inner_node(tree, slots, state, v, weights):
    """The case that costs the time: a node of a chain, with one parent, one child, no observed edges and no sums."""
    size, first, mode = tree.sizes[v], tree.node_start[v], slots.node_mode[v]
    child = tree.children[tree.child_start[v]]
    above, here, below = state.path[tree.parent[v]], state.path[v], state.path[child]
    law, turned, law_start, turned_start = tree.law, tree.law_turned, tree.law_start[v], tree.law_start[child]
    node_count, node_ratio, slot_count, slot_ratio = (
        state.node_count,
        state.node_ratio,
        state.slot_count,
        state.slot_ratio,
    )
    feed, slot, noise, table, random = slots.node_first, slots.node_slot, slots.law, slots.table, state.random
    ratios = node_ratio[first : first + size]
    for m in range(here.size):
        old = here[m]
        move_node(
            mode, first + old, -1, node_count, node_ratio, feed, slot, noise, table, slot_count, slot_ratio
        )
        row, column = law_start + above[m] * size, turned_start + below[m] * size
        total = _weigh(law[row : row + size], turned[column : column + size], ratios, weights)
        new = old
        if total > 0.0:
            left = uniform(random) * total
            for j in range(size):
                left -= weights[j]
                if left < 0.0:
                    new = j
                    break
            # Rounding may leave a crumb after the last state; the old state, which is possible, takes it.
        here[m] = new
        move_node(
            mode, first + new, 1, node_count, node_ratio, feed, slot, noise, table, slot_count, slot_ratio
        )


@bare
def _touch_edges(tree, slots, state, v, m, j, step):
    """Add `step` to the observed edge entries of individual m around node v, were it in state j there."""
    if slots.edge_mode[v] != 0:
        entry = tree.edge_start[v] + state.path[tree.parent[v], m] * tree.sizes[v] + j
        move(
            entry,
            step,
            slots.edge_first,
            slots.edge_slot,
            slots.law,
            slots.table,
            state.slot_count,
            state.slot_ratio,
        )
    for a in range(tree.child_start[v], tree.child_start[v + 1]):
        c = tree.children[a]
        if slots.edge_mode[c] != 0:
            entry = tree.edge_start[c] + j * tree.sizes[c] + state.path[c, m]
            move(
                entry,
                step,
                slots.edge_first,
                slots.edge_slot,
                slots.law,
                slots.table,
                state.slot_count,
                state.slot_ratio,
            )


@bare
def _weigh_edges(tree, slots, state, v, m, weights):
    """Multiply in the likelihood ratios of the observed edges around node v."""
    size = tree.sizes[v]
    first, slot, slot_ratio = slots.edge_first, slots.edge_slot, state.slot_ratio
    if slots.edge_mode[v] != 0:
        row = tree.edge_start[v] + state.path[tree.parent[v], m] * size
        for j in range(size):
            if weights[j] > 0.0:
                weights[j] *= product(row + j, first, slot, slot_ratio)
        _rescale(weights, size)
    for a in range(tree.child_start[v], tree.child_start[v + 1]):
        c = tree.children[a]
        if slots.edge_mode[c] != 0:
            column, step = tree.edge_start[c] + state.path[c, m], tree.sizes[c]
            for j in range(size):
                if weights[j] > 0.0:
                    weights[j] *= product(column + j * step, first, slot, slot_ratio)
            _rescale(weights, size)


@bare
def _weigh_any(tree, state, v, m, weights):
    """The conditional weights of x_v for individual m, who is out of the counts at v; any number of children."""
    size, first, law, ratios = tree.sizes[v], tree.node_start[v], tree.initial, state.node_ratio
    row = 0
    if v > 0:
        law, row = tree.law, tree.law_start[v] + state.path[tree.parent[v], m] * size
    for j in range(size):
        weights[j] = law[row + j] * ratios[first + j]
    turned = tree.law_turned
    child_first, child_last = tree.child_start[v], tree.child_start[v + 1]
    for a in range(child_first, child_last):
        c = tree.children[a]
        column = tree.law_start[c] + state.path[c, m] * size
        for j in range(size):
            weights[j] *= turned[column + j]
        if child_last - child_first > 1:
            _rescale(weights, size)


@bare
def _sweep_any_node(tree, slots, state, v, weights):
    """Any node of any tree, with or without observed edges and sums."""
    any_edge = slots.edge_first.size > 1
    start, stop, mode = tree.node_start[v], tree.node_start[v + 1], slots.node_mode[v]
    node_count, node_ratio, slot_count, slot_ratio = (
        state.node_count,
        state.node_ratio,
        state.slot_count,
        state.slot_ratio,
    )
    feed, slot, noise, table = slots.node_first, slots.node_slot, slots.law, slots.table
    here = state.path[v]
    for m in range(here.size):
        old = here[m]
        move_node(
            mode, start + old, -1, node_count, node_ratio, feed, slot, noise, table, slot_count, slot_ratio
        )
        if mode == 2:
            refresh(start, stop, node_ratio, feed, slot, slot_ratio)
        if any_edge:
            _touch_edges(tree, slots, state, v, m, old, -1)
        _weigh_any(tree, state, v, m, weights)
        if any_edge:
            _weigh_edges(tree, slots, state, v, m, weights)
        new = draw(state.random, weights, stop - start)
        if new < 0:
            new = old
        here[m] = new
        move_node(
            mode, start + new, 1, node_count, node_ratio, feed, slot, noise, table, slot_count, slot_ratio
        )
        if any_edge:
            _touch_edges(tree, slots, state, v, m, new, 1)


@bare
def sweep_single_sites(tree, slots, state, weights):
    """Redraw every individual at every node once, node by node (a node's tables then stay in the cache)."""
    any_edge = slots.edge_first.size > 1
    for v in range(tree.sizes.size):
        one_child = tree.child_start[v + 1] - tree.child_start[v] == 1
        if v > 0 and one_child and not any_edge and slots.node_mode[v] != 2:
            _sweep_inner_node(tree, slots, state, v, weights)
        else:
            _sweep_any_node(tree, slots, state, v, weights)
