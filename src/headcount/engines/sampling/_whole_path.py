"""One individual's exact law given all the others: sum-product on its tree, and a fresh path drawn from it.

    beta_v(j) = r_v(j) Π_children c M_c(j),    M_v(i) = Σ_j P_v(i, j) r_uv(i, j) beta_v(j)
    p_v(j) = beta_v(j) Σ_i a_v(i) P_v(i, j) r_uv(i, j),    a_v(i) = p_u(i) / M_v(i)

with r the likelihood ratio of one more individual. Individuals are exchangeable, so E[n_C | y] = N E[p(x_C | others, y)]:
averaging these marginals estimates node and edge means, consistent with each other, ≥ 0 and summing to N.
"""

from headcount._compile import bare, bare_sums
from headcount.engines.sampling._primitives import (
    below,
    draw,
    move_edge,
    move_node,
    product,
    refresh,
    rescale,
)


@bare
def shift_individual(tree, slots, state, m, step):
    """Take individual m out of all counts (`step` = −1) or put it back (+1)."""
    path, node_mode, node_start, node_ratio = state.path, slots.node_mode, tree.node_start, state.node_ratio
    for v in range(path.shape[0]):
        j = path[v, m]
        move_node(node_mode[v], node_start[v] + j, step, state.node_count, node_ratio, slots.node_first, slots.node_slot,
                  slots.law, slots.table, state.slot_count, state.slot_ratio)  # fmt: skip
        if slots.edge_mode[v] != 0:
            move_edge(slots, state, tree.edge_start[v] + path[tree.parent[v], m] * tree.sizes[v] + j, step)
        if step < 0 and node_mode[v] == 2:
            refresh(
                node_start[v],
                node_start[v + 1],
                node_ratio,
                slots.node_first,
                slots.node_slot,
                state.slot_ratio,
            )


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
        edge, local = (
            sums.edge_smooth[tree.edge_start[v] : tree.edge_start[v + 1]],
            beta[start[v] : start[v + 1]],
        )
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
            sums.tally[1] += 1
        shift_individual(tree, slots, state, m, 1)
