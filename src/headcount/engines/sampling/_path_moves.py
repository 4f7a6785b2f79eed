"""The moves of the path sampler on one chain, and a batch of sweeps with the sums its estimates need.

Single-site Gibbs redraws the state of one individual at one node given everything else,

    P(x_v = j | rest) ∝ P_v(i, j) · Π_children c P_c(j, x_c) · l(y | n₋ + 1) / l(y | n₋)

with i the parent's state and n₋ the counts without this individual; observed edges multiply in their own ratios.

A crossover exchanges all that two individuals do below one edge of the tree. Node counts stay as they are, so nodes that must not be
empty (y > 0) cannot block it. With states (i, j) and (i', j') on the two ends of the edge it is accepted with probability

    min(1, P(i, j') P(i', j) / (P(i, j) P(i', j')) · ratio of the edge's observation).

A whole path is proposed from a fixed Markov tree q near one individual's posterior (independence Metropolis),

    accept with min(1, w(x') / w(x)),    w(x) = Π_v P_v(x_u, x_v) / q_v(x_u, x_v) · l(y | n₋ + 1) / l(y | n₋),

which costs one alias draw per node, against O(L) for single-site Gibbs.

A worm (`_worms.py`) exchanges futures along cycles of individuals: all that they do from an exactly counted node on, whose counts stay as
they are. Between such nodes with others in between, an individual in hand draws its way from the one to the other from its exact law given
all the others, with b at the end, and then takes the place of somebody there: the same balance, with g the weight of the whole way. Where
only some cells or sums of a node are exact, the one in hand draws its way through that node, free to be in any class of cells that count
in the same exact totals, and somebody of that class is taken in hand next.

Two individuals of different members of a cloud (groups) exchange their cells at a set of nodes, each staying what it is; totals over
all members, of cells and of flows, stay as they are. All 2^V sets are weighed at once: whether cells are exchanged at a node is a variable
with two values on the tree,

    M_v(z) = Σ_z' P_v(x_u(z), x_v(z')) P_v(y_u(z), y_v(z')) Π_children c M_c(z'),    z at the root: not exchanged.

A whole path is also redrawn from one individual's exact law given all the others, by sum-product on its tree:

    beta_v(j) = r_v(j) Π_children c M_c(j),    M_v(i) = Σ_j P_v(i, j) r_uv(i, j) beta_v(j)
    p_v(j) = beta_v(j) Σ_i a_v(i) P_v(i, j) r_uv(i, j),    a_v(i) = p_u(i) / M_v(i)

with r the likelihood ratio of one more individual. Individuals are exchangeable, so E[n_C | y] = N E[p(x_C | others, y)]:
averaging these marginals estimates node and edge means, consistent with each other, ≥ 0 and summing to N.

Every loop that can be long looks at `state.stop`: another thread sets it when the user interrupts the run, whose state is then discarded.
"""

import math

import numpy as np

from headcount._compile import bare, bare_sums, kernel
from headcount.engines.sampling._primitives import (
    below,
    draw,
    move,
    move_edge,
    move_node,
    product,
    ratio,
    refresh,
    rescale,
    uniform,
)
from headcount.engines.sampling._worms import Where, undo_worm, worm

# ---- single-site Gibbs


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
    node_count, node_ratio, slot_count = state.node_count, state.node_ratio, state.slot_count
    feed, slot, noise, table, random = slots.node_first, slots.node_slot, slots.law, slots.table, state.random
    slot_ratio, stop = state.slot_ratio, state.stop
    ratios = node_ratio[first : first + size]
    for m in range(here.size):
        if m & 1023 == 0 and stop[0] != 0:
            return
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
            # Rounding may leave a remainder after the last state; the old state, which is possible, takes it.
        here[m] = new
        move_node(
            mode, first + new, 1, node_count, node_ratio, feed, slot, noise, table, slot_count, slot_ratio
        )


@bare
def _touch_edges(tree, slots, state, v, m, j, step):
    """Add `step` to the observed edge entries of individual m around node v, were it in state j there."""
    path, mode, start, sizes = state.path, slots.edge_mode, tree.edge_start, tree.sizes
    if mode[v] != 0:
        move_edge(slots, state, start[v] + path[tree.parent[v], m] * sizes[v] + j, step)
    for a in range(tree.child_start[v], tree.child_start[v + 1]):
        c = tree.children[a]
        if mode[c] != 0:
            move_edge(slots, state, start[c] + j * sizes[c] + path[c, m], step)


@bare
def _weigh_edges(tree, slots, state, v, m, weights):
    """Multiply in the likelihood ratios of the observed edges around node v."""
    first, slot, slot_ratio = slots.edge_first, slots.edge_slot, state.slot_ratio
    if slots.edge_mode[v] != 0:
        row = tree.edge_start[v] + state.path[tree.parent[v], m] * weights.size
        for j in range(weights.size):
            if weights[j] > 0.0:
                weights[j] *= product(row + j, first, slot, slot_ratio)
        rescale(weights)
    for a in range(tree.child_start[v], tree.child_start[v + 1]):
        c = tree.children[a]
        if slots.edge_mode[c] != 0:
            column, step = tree.edge_start[c] + state.path[c, m], tree.sizes[c]
            for j in range(weights.size):
                if weights[j] > 0.0:
                    weights[j] *= product(column + j * step, first, slot, slot_ratio)
            rescale(weights)


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
            rescale(weights)


@bare
def _sweep_any_node(tree, slots, state, v, work):
    """Any node of any tree, with or without observed edges and sums."""
    any_edge = slots.edge_first.size > 1
    start, end, mode = tree.node_start[v], tree.node_start[v + 1], slots.node_mode[v]
    node_count, node_ratio, slot_count = state.node_count, state.node_ratio, state.slot_count
    feed, slot, noise, table = slots.node_first, slots.node_slot, slots.law, slots.table
    first, shift, slot_ratio = slots.node_shift_first, slots.node_shift, state.slot_ratio
    here, weights = state.path[v], work[: end - start]
    for m in range(here.size):
        if state.stop[0] != 0:
            return
        old = here[m]
        move_node(
            mode, start + old, -1, node_count, node_ratio, first, shift, noise, table, slot_count, slot_ratio
        )
        if mode == 2:
            refresh(start, end, node_ratio, feed, slot, slot_ratio)
        if any_edge:
            _touch_edges(tree, slots, state, v, m, old, -1)
        _weigh_any(tree, state, v, m, weights)
        if any_edge:
            _weigh_edges(tree, slots, state, v, m, weights)
        new = draw(state.random, weights, weights.size)
        if new < 0:
            new = old
        here[m] = new
        move_node(
            mode, start + new, 1, node_count, node_ratio, first, shift, noise, table, slot_count, slot_ratio
        )
        if any_edge:
            _touch_edges(tree, slots, state, v, m, new, 1)


@bare
def _sweep_single_sites(tree, slots, state, weights):
    """Redraw every individual at every node once, node by node (a node's tables then stay in the cache)."""
    any_edge = slots.edge_first.size > 1
    for v in range(tree.sizes.size):
        one_child = tree.child_start[v + 1] - tree.child_start[v] == 1
        if v > 0 and one_child and not any_edge and slots.node_mode[v] != 2:
            _sweep_inner_node(tree, slots, state, v, weights)
        else:
            _sweep_any_node(tree, slots, state, v, weights)


# ---- crossover


@bare
def _exchange(slots, state, leave, leave_too, enter, enter_too):
    """Move two individuals between entries of one edge table; returns l(y | after) / l(y | before)."""
    first, slot, slot_ratio = slots.edge_first, slots.edge_slot, state.slot_ratio
    move_edge(slots, state, leave, -1)
    before = product(leave, first, slot, slot_ratio)
    move_edge(slots, state, leave_too, -1)
    before *= product(leave_too, first, slot, slot_ratio)
    after = product(enter, first, slot, slot_ratio)
    move_edge(slots, state, enter, 1)
    after *= product(enter_too, first, slot, slot_ratio)
    move_edge(slots, state, enter_too, 1)
    return after / before


@bare
def _cross(tree, slots, state):
    """Try as many random crossovers as there are individuals.

    One function: passing the tuples on for each of them took 5 % of a sweep.
    """
    path, random, law, mode = state.path, state.random, tree.law, slots.edge_mode
    parent, sizes, law_start, edge_start = tree.parent, tree.sizes, tree.law_start, tree.edge_start
    nodes, people = path.shape
    if min(nodes, people) < 2:
        return
    for _ in range(people):
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
            gain *= _exchange(slots, state, at + old, at + old_other, at + new, at + new_other)
        if uniform(random) < gain:
            for w in range(v, tree.end[v]):
                path[w, m], path[w, k] = path[w, k], path[w, m]
        elif mode[v] != 0:
            _exchange(slots, state, at + new, at + new_other, at + old, at + old_other)


# ---- worms between exactly counted nodes


@bare
def _fill_places(here, kind, work):
    """Everybody's place at a node: places of one kind of cell lie side by side, and everybody is in their own."""
    first, owner, holder, column = work.first, work.owner, work.holder, work.column
    for j in range(kind.size + 1):
        first[j] = 0
    for m in range(here.size):
        first[kind[here[m]] + 1] += 1
    for j in range(kind.size):
        first[j + 1] += first[j]
    for m in range(here.size):
        j = kind[here[m]]
        place = first[j]
        first[j] += 1
        owner[place] = holder[place] = m
        column[place] = j
    for j in range(kind.size, 0, -1):
        first[j] = first[j - 1]
    first[0] = 0


@bare
def _turn_flows(slots, state, start, stop, old, new):
    """Take what an edge's entries feed from one table to another; returns log l(y | new) − log l(y | old)."""
    gain = 0.0
    for entry in range(start, stop):
        for _ in range(old[entry] - new[entry]):
            move_edge(slots, state, entry, -1)
            gain -= np.log(product(entry, slots.edge_first, slots.edge_slot, state.slot_ratio))
    for entry in range(start, stop):
        for _ in range(new[entry] - old[entry]):
            gain += np.log(product(entry, slots.edge_first, slots.edge_slot, state.slot_ratio))
            move_edge(slots, state, entry, 1)
    return gain


@bare
def exchange_futures(tree, slots, state, worms, work):
    """Worms at every exactly counted node below another one.

    ``carry[d, m]`` is whose path individual m has from the node at depth d on: paths are put in order once, from the root down.
    """
    path, random, step, carry = state.path, state.random, worms.step, work.carry
    nodes, people = path.shape
    owner, holder, column, first, table, fresh = (
        work.owner, work.holder, work.column, work.first, work.table, work.fresh)  # fmt: skip
    for m in range(people):
        carry[0, m] = m
    for v in range(1, nodes):
        if state.stop[0] != 0:
            return
        u, size, depth = tree.parent[v], tree.sizes[v], worms.depth[v]
        for m in range(people):
            fresh[m] = path[v, carry[depth - 1, m]]
        if worms.worms[v] == 0:
            for m in range(people):
                path[v, m], carry[depth, m] = fresh[m], carry[depth - 1, m]
            continue
        _fill_places(fresh, worms.kind[tree.node_start[v] : tree.node_start[v + 1]], work)
        where = Where(tree.edge_start[v], worms.row_start[v], tree.node_start[v], size)
        above = path[u]
        for k in range(tree.edge_start[v], tree.edge_start[v + 1]):
            table[k] = 0
        for m in range(people):
            table[tree.edge_start[v] + above[m] * size + fresh[m]] += 1
        touched = work.touched[: worms.longest * size]
        start, stop, kept = tree.edge_start[v], tree.edge_start[v + 1], work.kept
        for k in range(start, stop):
            kept[k] = table[k]
        for _ in range(worms.worms[v]):
            length = worm(random, step, where, above, column, owner, first, table, touched)
            if slots.edge_mode[v] == 0 or length <= 0:
                continue
            if np.log(uniform(random)) < _turn_flows(slots, state, start, stop, kept, table):
                for k in range(start, stop):
                    kept[k] = table[k]
            else:
                _turn_flows(slots, state, start, stop, table, kept)
                undo_worm(where, above, column, owner, table, touched, length)
        for place in range(people):
            path[v, owner[place]], carry[depth, owner[place]] = column[place], carry[depth - 1, holder[place]]


@bare
def _shift_inside(tree, slots, state, inside, m, step):
    """Take individual m out of the counts of the nodes ``inside`` (`step` = −1) or put it back (+1)."""
    feed, slot, noise, table = slots.node_first, slots.node_slot, slots.law, slots.table
    first, shift = slots.node_shift_first, slots.node_shift
    for w in inside:
        cell, mode = tree.node_start[w] + state.path[w, m], slots.node_mode[w]
        move_node(mode, cell, step, state.node_count, state.node_ratio, first, shift, noise, table,
                  state.slot_count, state.slot_ratio)  # fmt: skip
        if mode == 2:
            refresh(
                tree.node_start[w], tree.node_start[w + 1], state.node_ratio, feed, slot, state.slot_ratio
            )


@bare
def _fill_local(tree, slots, state, worms, v, w, here):
    """The likelihood ratio of one individual more in each state of node w, where exact totals at node v are open."""
    start = tree.node_start
    for x in range(here.size):
        here[x] = state.node_ratio[start[w] + x]
        if w == v and not worms.exact[v]:
            here[x] = worms.step.tilt[start[v] + x]
            for a in range(slots.node_first[start[v] + x], slots.node_first[start[v] + x + 1]):
                if not worms.exact_slot[slots.node_slot[a]]:
                    here[x] *= state.slot_ratio[slots.node_slot[a]]


@bare
def _collect_way(tree, slots, state, worms, v, inside, m, work):
    """Fill ``work.beta`` at the nodes ``inside`` from below, for `_draw_way`; False where no way is possible."""
    path, law, start, tilt = state.path, tree.law, tree.node_start, worms.step.tilt
    beta, message = work.beta, work.message
    for back in range(inside.size - 1, -1, -1):
        w = inside[back]
        here = beta[start[w] : start[w + 1]]
        _fill_local(tree, slots, state, worms, v, w, here)
        for a in range(tree.child_start[w], tree.child_start[w + 1]):
            c = tree.children[a]
            if worms.exact[c] and c != v:
                column = tree.law_start[c] + path[c, m] * here.size
                for x in range(here.size):
                    here[x] *= tree.law_turned[column + x]
            else:
                up = message[0, : here.size]
                given = tilt[start[c] : start[c + 1]] if worms.exact[c] else beta[start[c] : start[c + 1]]
                _pass_up(law[tree.law_start[c] :], given, up)
                for x in range(here.size):
                    here[x] *= up[x]
            if not rescale(here):
                return False
        if not rescale(here):
            return False
    return True


@bare
def _draw_way(tree, slots, state, worms, v, inside, m, work):
    """A new way of individual m through the nodes ``inside`` to node v, or through it where it is one of them.

    Returns the kind of its cell there, −1 where no way is possible. Exactly counted nodes below these, other than v, stay where they are
    for this individual.
    """
    path, law, start, tilt = state.path, tree.law, tree.node_start, worms.step.tilt
    beta, weights = work.beta, work.weights
    if not _collect_way(tree, slots, state, worms, v, inside, m, work):
        return -1
    for w in inside:
        size, row, rows = tree.sizes[w], 0, tree.initial
        if w > 0:
            rows, row = law, tree.law_start[w] + path[tree.parent[w], m] * size
        for x in range(size):
            weights[x] = rows[row + x] * beta[start[w] + x]
        x = draw(state.random, weights, size)
        if x < 0:
            return -1
        path[w, m] = x
    if not worms.exact[v]:
        return worms.kind[start[v] + path[v, m]]
    row = tree.law_start[v] + path[tree.parent[v], m] * tree.sizes[v]
    for j in range(tree.sizes[v]):
        weights[j] = law[row + j] * tilt[start[v] + j]
    return draw(state.random, weights, tree.sizes[v])


@bare
def _restore(tree, slots, state, inside, m, before):
    """Put individual m, who is out of the counts, back on the way it had."""
    for k in range(inside.size):
        state.path[inside[k], m] = before[k]
    _shift_inside(tree, slots, state, inside, m, 1)


@bare
def _is_beside(tree, slots, inside, c):
    """Whether flows of the step to node c are observed, and a way through the nodes ``inside`` changes them."""
    found = False
    for w in inside:
        found |= w == c or w == tree.parent[c]
    return found and slots.edge_mode[c] != 0


@bare
def _fill_flows(tree, slots, state, worms, v, inside, work, table):
    """The observed tables beside the nodes ``inside``; whoever has a place at the exactly counted node v is there."""
    path, owner, column = state.path, work.owner, work.column
    for c in range(1, path.shape[0]):
        if not _is_beside(tree, slots, inside, c):
            continue
        above, start, size = path[tree.parent[c]], tree.edge_start[c], tree.sizes[c]
        for k in range(start, tree.edge_start[c + 1]):
            table[k] = 0
        for k in range(owner.size):
            m = owner[k]
            j = column[k] if c == v and worms.exact[v] else path[c, m]
            table[start + above[m] * size + j] += 1


@bare
def _turn_all_flows(tree, slots, state, inside, old, new):
    """`_turn_flows` of all observed tables beside the nodes ``inside``."""
    gain = 0.0
    for c in range(1, state.path.shape[0]):
        if _is_beside(tree, slots, inside, c):
            gain += _turn_flows(slots, state, tree.edge_start[c], tree.edge_start[c + 1], old, new)
    return gain


@bare
def _undo_far_worm(tree, slots, state, inside, opened, hand, length, work):
    """Give everybody whose way a worm has changed, ``hand`` last, their places and ways back."""
    owner, touched, before = work.owner, work.touched, work.before
    _restore(tree, slots, state, inside, hand, before[length])
    for back in range(length - 1, -1, -1):
        other = owner[touched[back]]
        owner[touched[back]] = hand
        hand = other
        _shift_inside(tree, slots, state, inside, hand, -1)
        _restore(tree, slots, state, inside, hand, before[back])
    owner[opened] = hand


@bare
def _pass_on(path, first, end, work):
    """Give the cells of those who held a place at node ``first``, from there on, to those who have it now."""
    owner, holder, fresh = work.owner, work.holder, work.fresh
    for w in range(first, end):
        for k in range(owner.size):
            if owner[k] != holder[k]:
                fresh[k] = path[w, holder[k]]
        for k in range(owner.size):
            if owner[k] != holder[k]:
                path[w, owner[k]] = fresh[k]


@bare
def far_worm(tree, slots, state, worms, far, work):
    """One worm at an exactly counted node with other nodes between it and the next one above, or at a node with some exact totals."""
    path, random, v = state.path, state.random, worms.far[far]
    inside = worms.inside[worms.inside_start[far] : worms.inside_start[far + 1]]
    _fill_places(path[v], worms.kind[tree.node_start[v] : tree.node_start[v + 1]], work)
    owner, column, first, touched, before = work.owner, work.column, work.first, work.touched, work.before
    opened = below(random, owner.size)
    hole, hand, length = column[opened], owner[opened], 0
    longest = min(worms.longest * tree.sizes[v], touched.size)
    observed = False
    for c in range(1, path.shape[0]):
        observed |= _is_beside(tree, slots, inside, c)
    if observed:
        _fill_flows(tree, slots, state, worms, v, inside, work, work.kept)
    while True:
        for k in range(inside.size):
            before[length, k] = path[inside[k], hand]
        _shift_inside(tree, slots, state, inside, hand, -1)
        j = _draw_way(tree, slots, state, worms, v, inside, hand, work)
        rejected = False
        if observed and j == hole:
            owner[opened] = hand
            _fill_flows(tree, slots, state, worms, v, inside, work, work.table)
            gain = _turn_all_flows(tree, slots, state, inside, work.kept, work.table)
            rejected = np.log(uniform(random)) >= gain
            if rejected:
                _turn_all_flows(tree, slots, state, inside, work.table, work.kept)
        if j < 0 or rejected or (j != hole and (length == longest or first[j + 1] == first[j])):
            _undo_far_worm(tree, slots, state, inside, opened, hand, length, work)
            return
        _shift_inside(tree, slots, state, inside, hand, 1)
        if j == hole:
            owner[opened] = hand
            break
        k = first[j] + below(random, first[j + 1] - first[j])
        other = owner[k]
        owner[k] = hand
        touched[length] = k
        length += 1
        hand = other
    if worms.exact[v]:
        _pass_on(path, v, tree.end[v], work)


# ---- individuals of different members


@bare
def _pair_weight(tree, worms, option, v, above, here):
    """P_v of both individuals, given whether cells are exchanged at the parent and at node v; 0 where observed flows would change."""
    u, size, start = tree.parent[v], tree.sizes[v], tree.law_start[v]
    one = option[u, above, 0] * size + option[v, here, 0]
    two = option[u, above, 1] * size + option[v, here, 1]
    if worms.edge_mark.size > 0:
        at, mark = tree.edge_start[v], worms.edge_mark
        now = (
            mark[at + option[u, 0, 0] * size + option[v, 0, 0]]
            + mark[at + option[u, 0, 1] * size + option[v, 0, 1]]
        )
        if mark[at + one] + mark[at + two] != now:
            return 0.0
    return tree.law[start + one] * tree.law[start + two]


@bare
def _fill_options(tree, path, worms, m, k, option, beta):
    """The states of two individuals at every node, as they are and with their cells exchanged; ``beta`` is 0 where they cannot be."""
    g, h, mark, twins = path[0, m], path[0, k], worms.mark, worms.twins
    for v in range(path.shape[0]):
        x, y, at = path[v, m], path[v, k], tree.node_start[v]
        x_new, y_new = twins[at + y, g], twins[at + x, h]
        may = v > 0 and x_new >= 0 and y_new >= 0
        # Data must not tell the two members' cells apart.
        may = may and mark[at + x_new] + mark[at + y_new] == mark[at + x] + mark[at + y]
        option[v, 0, 0], option[v, 0, 1] = x, y
        option[v, 1, 0], option[v, 1, 1] = (x_new, y_new) if may else (x, y)
        beta[v, 0], beta[v, 1] = 1.0, 1.0 if may else 0.0


@bare
def exchange_cells(tree, state, worms, option, beta):
    """As many random pairs as there are individuals; of different members, they exchange cells at a set of nodes drawn from its law.

    ``option[v, z]``, the two states at node v, and ``beta[v, z]`` are working arrays.
    """
    path, random, count = state.path, state.random, state.node_count
    nodes, people = path.shape
    for _ in range(people if worms.twins.size > 0 else 0):
        m, k = below(random, people), below(random, people)
        if path[0, m] == path[0, k]:
            continue
        _fill_options(tree, path, worms, m, k, option, beta)
        for v in range(nodes - 1, 0, -1):
            u = tree.parent[v]
            for z in range(2):
                stay, turn = (
                    _pair_weight(tree, worms, option, v, z, 0),
                    _pair_weight(tree, worms, option, v, z, 1),
                )
                beta[u, z] *= stay * beta[v, 0] + turn * beta[v, 1]
            rescale(beta[u])
        beta[0, 0], beta[0, 1] = 0.0, 0.0  # from here on, beta[v, 0] is whether cells are exchanged at node v
        for v in range(1, nodes):
            above = int(beta[tree.parent[v], 0])
            stay = beta[v, 0] * _pair_weight(tree, worms, option, v, above, 0)
            turn = beta[v, 1] * _pair_weight(tree, worms, option, v, above, 1)
            here = 1 if uniform(random) * (stay + turn) < turn else 0
            beta[v, 0] = here
            at = tree.node_start[v]
            for one in range(2):
                count[at + option[v, 0, one]] -= 1
                count[at + option[v, here, one]] += 1
            path[v, m], path[v, k] = option[v, here, 0], option[v, here, 1]


# ---- whole paths


@bare
def shift_individual(tree, slots, state, m, step):
    """Take individual m out of all counts (`step` = −1) or put it back (+1)."""
    path, node_mode, node_start, node_ratio = state.path, slots.node_mode, tree.node_start, state.node_ratio
    feed, slot, noise, table = slots.node_first, slots.node_slot, slots.law, slots.table
    node_count, slot_count, slot_ratio = state.node_count, state.slot_count, state.slot_ratio
    first, shift = slots.node_shift_first, slots.node_shift
    for v in range(path.shape[0]):
        j, mode = path[v, m], node_mode[v]
        cell = node_start[v] + j
        move_node(
            mode, cell, step, node_count, node_ratio, first, shift, noise, table, slot_count, slot_ratio
        )
        if slots.edge_mode[v] != 0:
            move_edge(slots, state, tree.edge_start[v] + path[tree.parent[v], m] * tree.sizes[v] + j, step)
        if step < 0 and mode == 2:
            refresh(node_start[v], node_start[v + 1], node_ratio, feed, slot, slot_ratio)


@bare
def _step_law(tree, slots, state, v, factor):
    """P_v(i, j) r_uv(i, j) into `factor`, where the edge is observed."""
    law, entry, start = tree.law, tree.edge_start[v], tree.law_start[v]
    for k in range(tree.edge_start[v + 1] - entry):
        value = law[start + k]
        if value > 0.0:
            value *= product(entry + k, slots.edge_first, slots.edge_slot, state.slot_ratio)
        factor[entry + k] = value


@bare_sums
def _dot(a, b):
    """Σ a b. Slices, not offsets: indices that cannot be negative are what lets the loop use the vector unit."""
    total = 0.0
    for j in range(b.size):
        total += a[j] * b[j]
    return total


@bare
def _pass_up(law, beta, message):
    """M(i) = Σ_j P(i, j) beta(j)."""
    size = beta.size
    for i in range(message.size):
        message[i] = _dot(law[i * size : (i + 1) * size], beta)


@bare
def _share(weight, law, beta, here, edge):
    """Add weight · P(i, ·) beta(·) to the node's and the edge's row."""
    for j in range(beta.size):
        share = weight * law[j] * beta[j]
        here[j] += share
        edge[j] += share


@bare
def _pass_down(law, above, message, beta, here, edge):
    """Add p(i, j) = p(i) P(i, j) beta(j) / M(i) to `edge` and put its column sums in `here`."""
    size = beta.size
    for j in range(size):
        here[j] = 0.0
    for i in range(above.size):
        if above[i] > 0.0:
            row = slice(i * size, (i + 1) * size)
            _share(above[i] / message[i], law[row], beta, here, edge[row])


@bare
def _upward(tree, slots, state, beta, message, factor):
    """beta and M of every node, leaves first; returns whether some path is possible."""
    law, start = tree.law, tree.node_start
    for cell in range(beta.size):
        beta[cell] = state.node_ratio[cell]
    for v in range(tree.sizes.size - 1, -1, -1):
        here = beta[start[v] : start[v + 1]]
        if not rescale(here):
            return False
        if v > 0:
            u = tree.parent[v]
            up, above = message[v, : tree.sizes[u]], beta[start[u] : start[u + 1]]
            if slots.edge_mode[v] == 0:
                _pass_up(law[tree.law_start[v] :], here, up)
            else:
                _step_law(tree, slots, state, v, factor)
                _pass_up(factor[tree.edge_start[v] :], here, up)
            for i in range(above.size):
                above[i] *= up[i]
            if tree.child_start[u + 1] - tree.child_start[u] > 1 and not rescale(above):
                return False
    return True


@bare
def _downward(tree, slots, beta, message, factor, marginal, sums):
    """Add the marginals of nodes and edges to the sums; returns whether there are any."""
    law, start, first = tree.law, tree.node_start, tree.sizes[0]
    total = 0.0
    for j in range(first):
        marginal[j] = tree.initial[j] * beta[j]
        total += marginal[j]
    if not total > 0.0:
        return False
    for j in range(first):
        marginal[j] /= total
    for v in range(1, tree.sizes.size):
        u = tree.parent[v]
        above, here, up = marginal[start[u] : start[u + 1]], marginal[start[v] : start[v + 1]], message[v]
        edge = sums.edge_smooth[tree.edge_start[v] : tree.edge_start[v + 1]]
        local = beta[start[v] : start[v + 1]]
        if slots.edge_mode[v] == 0:
            _pass_down(law[tree.law_start[v] :], above, up, local, here, edge)
        else:
            _pass_down(factor[tree.edge_start[v] :], above, up, local, here, edge)
    for cell in range(marginal.size):
        sums.node_smooth[cell] += marginal[cell]
    return True


@bare
def _redraw(tree, slots, state, m, beta, factor, weights):
    """Draw a path for individual m from its exact conditional law."""
    path = state.path
    for v in range(path.shape[0]):
        size, start, row, law = tree.sizes[v], tree.node_start[v], 0, tree.initial
        if v > 0:
            i = path[tree.parent[v], m]
            if slots.edge_mode[v] == 0:
                law, row = tree.law, tree.law_start[v] + i * size
            else:
                law, row = factor, tree.edge_start[v] + i * size
        for j in range(size):
            weights[j] = law[row + j] * beta[start + j]
        path[v, m] = draw(state.random, weights, size)


@bare
def redraw_paths(tree, slots, state, times, sums, work):
    """Redraw the whole path of `times` random individuals, and add their exact marginals to the sums.

    Should no path have a weight above the smallest double (only while a chain is still infeasible), the path stays.
    """
    beta, message, marginal, weights, factor = work
    for _ in range(times):
        if state.stop[0] != 0:
            return
        m = below(state.random, state.path.shape[1])
        shift_individual(tree, slots, state, m, -1)
        possible = _upward(tree, slots, state, beta, message, factor)
        if possible and _downward(tree, slots, beta, message, factor, marginal, sums):
            _redraw(tree, slots, state, m, beta, factor, weights)
            sums.tally[0] += 1
        shift_individual(tree, slots, state, m, 1)


# ---- whole-path proposals


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


@bare
def _gain(slots, state, old, new, first, slot, shift_first, shift):
    """Likelihood ratio of one individual moving from one cell or entry to another."""
    law, table, slot_count, slot_ratio = slots.law, slots.table, state.slot_count, state.slot_ratio
    move(old, -1, shift_first, shift, law, table, slot_count, slot_ratio)
    gain = product(new, first, slot, slot_ratio) / product(old, first, slot, slot_ratio)
    move(old, 1, shift_first, shift, law, table, slot_count, slot_ratio)
    return gain


@bare
def _node_gain(slots, state, mode, old, new):
    """Likelihood ratio of one individual moving from cell `old` to cell `new` of a node."""
    law, table, first, slot = slots.law, slots.table, slots.node_first, slots.node_slot
    if mode == 2:
        return _gain(slots, state, old, new, first, slot, slots.node_shift_first, slots.node_shift)
    gain = state.node_ratio[new]
    if first[old + 1] > first[old]:
        gain /= ratio(law, table, slot[first[old]], state.node_count[old] - 1)
    return gain


@bare
def _log_gain(tree, slots, state, proposal, m, fresh):
    """log w(x') − log w(x) of individual m, who is still counted where it is."""
    path, parent, sizes = state.path, tree.parent, tree.sizes
    node_start, edge_start = tree.node_start, tree.edge_start
    node_mode, edge_mode, start, weight = slots.node_mode, slots.edge_mode, proposal.start, proposal.weight
    gain, log_gain = 1.0, 0.0
    for v in range(path.shape[0]):
        old, new = path[v, m], fresh[v]
        row_old = row_new = 0
        if v > 0:
            row_old, row_new = path[parent[v], m] * sizes[v], fresh[parent[v]] * sizes[v]
        gain *= weight[start[v] + row_new + new] / weight[start[v] + row_old + old]
        if old != new and node_mode[v] != 0:
            gain *= _node_gain(slots, state, node_mode[v], node_start[v] + old, node_start[v] + new)
        if edge_mode[v] != 0:
            gain *= _gain(slots, state, edge_start[v] + row_old + old, edge_start[v] + row_new + new,
                          slots.edge_first, slots.edge_slot, slots.edge_shift_first, slots.edge_shift)  # fmt: skip
        if gain < 1e-60 or gain > 1e60:
            log_gain += math.log(gain)
            gain = 1.0
    return log_gain + math.log(gain)


@bare
def _propose_paths(tree, slots, state, proposal, fresh, tally):
    """One whole-path proposal for every individual."""
    nodes, people = state.path.shape
    path, random, parent, sizes = state.path, state.random, tree.parent, tree.sizes
    start, accept, alias = proposal.start, proposal.accept, proposal.alias
    for m in range(people):
        if state.stop[0] != 0:
            return
        _propose(nodes, parent, sizes, start, accept, alias, random, fresh)
        tally[1] += 1
        if math.log(1.0 - uniform(random)) < _log_gain(tree, slots, state, proposal, m, fresh):
            shift_individual(tree, slots, state, m, -1)
            for v in range(nodes):
                path[v, m] = fresh[v]
            shift_individual(tree, slots, state, m, 1)
            tally[2] += 1


# ---- the start, and a batch of sweeps


@kernel
def draw_paths(tree, slots, state, proposal):
    """Give every individual a path drawn from q, and fill node counts, slot counts and ratios."""
    nodes, people = state.path.shape
    start, accept, alias = proposal.start, proposal.accept, proposal.alias
    fresh = np.empty(nodes, dtype=np.int64)
    for m in range(people):
        if state.stop[0] != 0:
            return
        _propose(nodes, tree.parent, tree.sizes, start, accept, alias, state.random, fresh)
        for v in range(nodes):
            state.path[v, m] = fresh[v]
            state.node_count[tree.node_start[v] + fresh[v]] += 1
            if slots.edge_mode[v] != 0:
                entry = tree.edge_start[v] + fresh[tree.parent[v]] * tree.sizes[v] + fresh[v]
                for a in range(slots.edge_shift_first[entry], slots.edge_shift_first[entry + 1]):
                    state.slot_count[slots.edge_shift[a]] += 1
    for cell in range(state.node_count.size):
        for a in range(slots.node_shift_first[cell], slots.node_shift_first[cell + 1]):
            state.slot_count[slots.node_shift[a]] += state.node_count[cell]
    for s in range(state.slot_count.size):
        state.slot_ratio[s] = ratio(slots.law, slots.table, s, state.slot_count[s])
    refresh(0, state.node_count.size, state.node_ratio, slots.node_first, slots.node_slot, state.slot_ratio)


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
        n = float(state.node_count[cell])  # n² of 3·10⁹ individuals is no int64
        sums.node[cell] += n
        sums.node_square[cell] += n * n
    edge_counts(tree, state.path, table)
    for entry in range(table.size):
        if table[entry] != 0:
            n = float(table[entry])
            sums.edge[entry] += n
            sums.edge_square[entry] += n * n
            table[entry] = 0


@kernel
def sweep_paths(tree, slots, state, proposal, moves, sums, draws, thin, before, worms, space):
    """Run sweeps; `moves` = (sweeps, single-site every so many, whether to propose paths, whole paths redrawn exactly).

    `before` is the number of the chain's sweeps so far; the node counts of every `thin`-th go to the next row of `draws`.
    """
    sweeps, every, proposing, exact = moves
    nodes, most, cells = tree.sizes.size, tree.sizes.max(), state.node_count.size
    work = (
        np.empty(cells),
        np.empty((nodes, most)),
        np.empty(cells),
        np.empty(most),
        np.empty(tree.edge_start[-1]),
    )
    fresh, option = np.empty(nodes, dtype=np.int64), np.empty((nodes, 2, 2), dtype=np.int64)
    table = np.zeros(tree.edge_start[-1], dtype=np.int64)
    row = 0
    for sweep in range(before, before + sweeps):
        if proposing:
            _propose_paths(tree, slots, state, proposal, fresh, sums.tally)
        if sweep % every == 0:
            _sweep_single_sites(tree, slots, state, work[3])
        _cross(tree, slots, state)
        redraw_paths(tree, slots, state, exact, sums, work)
        if worms.near:
            exchange_futures(tree, slots, state, worms, space)
        for far in range(worms.far.size):
            if sweep % worms.every[far] == 0:
                far_worm(tree, slots, state, worms, far, space)
        exchange_cells(tree, state, worms, option, work[1][:, :2])
        if state.stop[0] != 0:
            return
        _record(tree, state, sums, table)
        if (sweep + 1) % thin == 0:
            for cell in range(cells):
                draws[row, cell] = state.node_count[cell]
            row += 1
