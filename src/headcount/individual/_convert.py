"""Other people's models as factors: conditional tables, networkx graphs, pgmpy models; and pairwise forests as rooted trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headcount.individual._rooted_tree import RootedTree

if TYPE_CHECKING:
    from headcount.individual._model import Model, Variable


def tree_from_pairs(model: Model) -> RootedTree:
    """A model whose cliques have one or two variables, rooted at its first variable.

    P(x_v | x_u) = mu_uv / mu_u; from a state no one is ever in, the law of x_v stands in (any law would do).
    """
    near: dict[Variable, list[Variable]] = {v: [] for v in model.variables}
    for clique in model.junction_tree.cliques:
        if len(clique) == 2:
            near[clique[0]].append(clique[1])
            near[clique[1]].append(clique[0])
    order: list[Variable] = []
    parent: list[int] = []
    linked: list[bool] = []
    seen: set[Variable] = set()
    for start in model.variables:
        if start in seen:
            continue
        queue = [(start, 0 if order else -1, False)]
        seen.add(start)
        while queue:
            v, above, joined = queue.pop(0)
            order.append(v)
            parent.append(above)
            linked.append(joined)
            here = len(order) - 1
            for w in near[v]:
                if w not in seen:
                    seen.add(w)
                    queue.append((w, here, True))
    transitions: list[np.ndarray | None] = [None]
    for v, above, joined in zip(order[1:], parent[1:], linked[1:], strict=True):
        u = order[above]
        law = model.marginal((v,))
        if not joined:
            transitions.append(np.tile(law, (model.size((u,))[0], 1)))
            continue
        pair = model.marginal((u, v))
        total = pair.sum(axis=1, keepdims=True)
        transitions.append(np.where(total > 0, pair / np.where(total > 0, total, 1.0), law))
    return RootedTree(
        tuple(order), np.array(parent, dtype=np.intp), model.marginal((order[0],)), tuple(transitions)
    )
