r"""Junction trees: min-fill triangulation, maximal cliques, a maximum spanning tree, separators S with multiplicity nu(S).

And the marginals on them, once belief propagation (in `possible`) has found those of the cliques.
"""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from headcount import memory
from headcount._types import Array, Scope
from headcount.checks import brief
from headcount.errors import raise_all, shown
from headcount.tables import Domain

if TYPE_CHECKING:
    from headcount.individual.possible import Possible

NO_LAW = "the potentials are −inf for every configuration, so no law is left: check the structural zeros"
_BYTES = 8
"""Bytes of one entry, a double."""


@dataclass(frozen=True, eq=False)
class JunctionTree:
    """Cliques C, tree edges, separators S = C_a ∩ C_b with multiplicity nu(S).

    Parts of the graph that are not connected are joined by the empty separator ``()``, whose table has the
    shape ``()`` and holds the total; the factorisation p(x) = prod_C mu_C / prod_S mu_S^nu(S) and the count
    law hold with it as they stand.

    Attributes
    ----------
    sizes
        The number of states of every variable, in the model's order.
    cliques
        Maximal cliques; variables inside a clique (and a separator) keep the model's order.
    edges
        ``(a, b, separator)``: `a` and `b` index `cliques`, `a` is nearer to clique 0, and an edge comes after
        the one above it.
    """

    sizes: Mapping[Hashable, int]
    cliques: tuple[Scope, ...]
    edges: tuple[tuple[int, int, Scope], ...]

    def __post_init__(self) -> None:
        raise_all(_form_problems(self) or _law_problems(self))

    @cached_property
    def separators(self) -> dict[Scope, int]:
        """{S: nu(S)}: how often S separates two cliques of the tree."""
        count: dict[Scope, int] = {}
        for _, _, separator in self.edges:
            count[separator] = count.get(separator, 0) + 1
        return count

    @cached_property
    def table_sizes(self) -> tuple[int, ...]:
        """The number of entries of every clique's table; nothing is allocated to know it."""
        return tuple(domain.size for domain in self.domains)

    @property
    def largest_bytes(self) -> int:
        """Bytes of the largest clique table."""
        return _BYTES * max(self.table_sizes)

    @property
    def total_bytes(self) -> int:
        """Bytes of all clique tables together."""
        return _BYTES * sum(self.table_sizes)

    @cached_property
    def _cliques_of(self) -> dict[Hashable, frozenset[int]]:
        members: dict[Hashable, set[int]] = {v: set() for v in self.sizes}
        for index, clique in enumerate(self.cliques):
            for v in clique:
                members[v].add(index)
        return {v: frozenset(found) for v, found in members.items()}

    def covering(self, scope: Sequence[Hashable]) -> int | None:
        """The index of the smallest clique that contains `scope`; None when no clique does."""
        found = (
            set.intersection(*(set(self._cliques_of[v]) for v in scope))
            if scope
            else range(len(self.cliques))
        )
        return min(found, key=lambda c: (self.table_sizes[c], c), default=None)

    @cached_property
    def domains(self) -> tuple[Domain, ...]:
        """The names and sizes of every clique's table."""
        return tuple(self.domain(clique) for clique in self.cliques)

    def domain(self, scope: Sequence[Hashable]) -> Domain:
        """The names and sizes of a table over some of the variables."""
        return Domain(tuple(scope), tuple(self.sizes[v] for v in scope))

    @cached_property
    def steps(self) -> tuple[tuple[int, int, Scope], ...]:
        """The cliques from the root down: ``(clique, position of its parent in this list, separator)``.

        The root, clique 0, comes first, with the parent −1 and the separator ``()``.
        """
        position = {0: 0} | {b: k for k, (_, b, _) in enumerate(self.edges, start=1)}
        return ((0, -1, ()), *((b, position[a], separator) for a, b, separator in self.edges))

    def require_memory(self, limit: int | None = None) -> None:
        """Refuse, before anything is allocated, clique tables that take more than `limit` bytes."""
        largest = max(range(len(self.cliques)), key=self.table_sizes.__getitem__)
        memory.require(
            self.total_bytes,
            f"the clique tables (the largest, over {len(self.cliques[largest])} variables, has "
            f"{self.table_sizes[largest]:,} entries)",
            limit=limit,
            remedy="merge states, drop variables",
        )


def _form_problems(tree: JunctionTree) -> list[str]:
    """What is wrong with the types: sizes by name, cliques of names, edges of two clique numbers and names."""
    sizes = isinstance(tree.sizes, Mapping) and all(map(_is_count, tree.sizes.values()))
    cliques = _all_tuples(tree.cliques) and len(tree.cliques) > 0
    edges = _all_tuples(tree.edges) and all(map(_is_edge, tree.edges))
    checks = (
        (sizes, "sizes", tree.sizes, "{variable: number of states}"),
        (cliques, "cliques", tree.cliques, "a tuple of tuples of variables, at least one"),
        (edges, "edges", tree.edges, "(clique, clique, separator) for each"),
    )
    return [
        f"{what} is {brief(value)}: give {expected}" for sound, what, value, expected in checks if not sound
    ]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_edge(edge: tuple[object, ...]) -> bool:
    return len(edge) == 3 and all(map(_is_count, edge[:2])) and isinstance(edge[2], tuple)


def _all_tuples(values: object) -> bool:
    """Whether this is a tuple of tuples of names or numbers."""
    try:
        hash(values)
    except TypeError:
        return False
    return isinstance(values, tuple) and all(isinstance(v, tuple) for v in values)


def _law_problems(tree: JunctionTree) -> list[str]:
    """What makes it no junction tree: unknown variables, no tree from clique 0 down, separators that are not what two cliques share."""
    unknown = {
        v: None
        for scope in (*tree.cliques, *(separator for _, _, separator in tree.edges))
        for v in scope
        if v not in tree.sizes
    }
    if unknown:
        return [f"cliques and separators name {shown(unknown)}, which have no size"]
    return _edge_problems(tree) or _running_intersection_problems(tree)


def _edge_problems(tree: JunctionTree) -> list[str]:
    """Edges that do not make a tree from clique 0 down, and separators that are not what their two cliques share."""
    problems = []
    reached = {0}
    for a, b, separator in tree.edges:
        if a not in reached or b in reached or b >= len(tree.cliques):
            problems.append(
                f"the edge {(a, b)!r} does not lead from a clique above to a new one: order edges from clique 0 down"
            )
        elif set(separator) != set(tree.cliques[a]) & set(tree.cliques[b]):
            problems.append(f"the separator {separator!r} of cliques {a} and {b} is not what they share")
        reached.add(b)
    if len(reached) != len(tree.cliques) and not problems:
        problems.append(
            f"{len(tree.edges)} edges do not join {len(tree.cliques)} cliques: every clique but the first needs one"
        )
    return problems


def _running_intersection_problems(tree: JunctionTree) -> list[str]:
    """The cliques that hold a variable must be joined: all but the topmost reach it through their separator."""
    tops: dict[Hashable, int] = dict.fromkeys(tree.cliques[0], 0)
    problems = [f"{v!r} is in no clique" for v in set(tree.sizes) - {v for c in tree.cliques for v in c}]
    for _, b, separator in tree.edges:
        for v in set(tree.cliques[b]) - set(separator):
            if v in tops:
                problems.append(f"cliques {tops[v]} and {b} hold {v!r}, and a clique between them does not")
            tops[v] = b
    return problems


SMALL_TABLES = 30_000
"""Table entries in all up to which the first triangulation is kept: belief propagation takes under a millisecond there."""
ENTRIES_PER_TRY = 500_000
FEWEST_TRIES, MOST_TRIES = 4, 16
"""Further triangulations with each rule: one per so many table entries of the first, within these bounds. One costs about 0.2 ms per
variable. Of the networks of the bnlearn repository they brought munin1 from 425 to 90 million entries, munin from 28 to 14, link from 38
to 25, barley from 25 to 17, insurance from 46 872 to 23 880."""
NOISE = 0.3
"""Standard deviation of the logarithm of the factor on a variable's cost in these tries: enough to break ties and near ties."""
TRY_SEED = 0


def build_junction_tree(sizes: Mapping[Hashable, int], scopes: Iterable[Sequence[Hashable]]) -> JunctionTree:
    """Triangulate the graph in which every scope is a clique, and join its maximal cliques into a tree.

    Scopes may repeat, be permuted, nest or leave variables out (a variable in no scope is a clique of its
    own). Where tables are large, several orders of elimination are tried, and the one with the smallest tables in all is taken;
    the tries are seeded, so that the same graph has the same tree.
    """
    position = {v: k for k, v in enumerate(sizes)}
    weight = [math.log(max(size, 1)) for size in sizes.values()]
    graph: list[set[int]] = [set() for _ in position]
    for scope in scopes:
        members = {position[v] for v in scope}
        for k in members:
            graph[k] |= members - {k}
    cliques = _best_cliques(graph, weight)
    names = list(sizes)
    edges = _maximum_spanning_tree(cliques, weight)

    def named(members: Iterable[int]) -> Scope:
        return tuple(names[k] for k in sorted(members))

    return JunctionTree(
        sizes=dict(sizes),
        cliques=tuple(named(clique) for clique in cliques),
        edges=tuple((a, b, named(set(cliques[a]) & set(cliques[b]))) for a, b in edges),
    )


def _best_cliques(graph: list[set[int]], weight: list[float]) -> list[tuple[int, ...]]:
    """Maximal cliques of the triangulation with the smallest tables in all, of min-fill's and some with other costs and broken ties."""

    def entries(cliques: Iterable[Iterable[int]]) -> float:
        return sum(math.exp(min(sum(weight[k] for k in clique), 700.0)) for clique in cliques)

    best = _maximal(_eliminated(graph, weight) or [])
    least = entries(best)
    if least <= SMALL_TABLES:
        return best
    rng = random.Random(TRY_SEED)
    tries = min(max(math.ceil(least / ENTRIES_PER_TRY), FEWEST_TRIES), MOST_TRIES)
    for weighted in (False, True):
        for noise in (0.0, *[NOISE] * tries):
            found = _eliminated(graph, weight, weighted=weighted, noise=noise, rng=rng, most=least)
            if found is not None and (total := entries(made := _maximal(found))) < least:
                best, least = made, total
    return best


def _eliminated(
    graph: list[set[int]],
    weight: list[float],
    *,
    weighted: bool = False,
    noise: float = 0.0,
    rng: random.Random | None = None,
    most: float = math.inf,
) -> list[frozenset[int]] | None:
    """The cliques met when variables are eliminated, fewest new edges first (ties: smallest table, first).

    ``weighted`` counts a new edge as the product of the logarithms of its ends' sizes; ``noise`` multiplies costs by a lognormal factor.
    None as soon as one table has more than ``most`` entries.
    """
    neighbours = [set(n) for n in graph]

    def cost(k: int) -> tuple[float, float, int]:
        near = neighbours[k]
        if weighted:
            fill = sum(weight[j] * sum(weight[i] for i in near - neighbours[j] if i != j) for j in near) / 2
        else:
            linked = sum(len(near & neighbours[j]) for j in near)
            fill = (len(near) * (len(near) - 1) - linked) // 2
        if noise and rng is not None and fill:
            fill *= math.exp(noise * rng.gauss(0.0, 1.0))
        return fill, weight[k] + sum(weight[j] for j in near), k

    costs = {k: cost(k) for k in range(len(neighbours))}
    cliques = []
    while costs:
        k = min(costs, key=costs.__getitem__)
        if costs[k][1] > math.log(most):
            return None
        near = neighbours[k]
        cliques.append(frozenset(near | {k}))
        filled = costs.pop(k)[0] > 0
        for j in near:
            neighbours[j] |= near
            neighbours[j] -= {j, k}
        # A cost sees edges between neighbours, so new edges also change the costs one step further out.
        changed = set(near).union(*(neighbours[j] for j in near)) if filled else near
        for j in changed:
            costs[j] = cost(j)
    return cliques


def _maximal(cliques: list[frozenset[int]]) -> list[tuple[int, ...]]:
    """Cliques contained in no other, sorted."""
    kept: list[frozenset[int]] = []
    holding: dict[int, list[frozenset[int]]] = {}
    for clique in sorted(cliques, key=len, reverse=True):
        if not any(clique <= other for other in holding.get(next(iter(clique)), ())):
            kept.append(clique)
            for k in clique:
                holding.setdefault(k, []).append(clique)
    return sorted(tuple(sorted(clique)) for clique in kept)


def _maximum_spanning_tree(cliques: list[tuple[int, ...]], weight: list[float]) -> list[tuple[int, int]]:
    """Edges of the tree of largest |S| (ties: the separator with the smaller table), from clique 0 down, each after the one above it."""
    from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

    if len(cliques) == 1:
        return []
    shared = _shared_variables(cliques)
    ranked = sorted(shared, key=lambda pair: (-len(shared[pair]), sum(weight[k] for k in shared[pair]), pair))
    separate = [(0, b) for b in range(1, len(cliques))]  # the empty separator joins what nothing else does
    # SciPy before 1.16 takes only 32-bit positions here.
    pairs = np.array(list(dict.fromkeys([*ranked, *separate])), dtype=np.int32)
    shape = (len(cliques), len(cliques))
    tree = minimum_spanning_tree(csr_array((np.arange(1.0, len(pairs) + 1), tuple(pairs.T)), shape=shape))
    order, above = breadth_first_order(csr_array(tree + tree.T), 0)
    return [(int(above[b]), int(b)) for b in order[1:]]


def _shared_variables(cliques: list[tuple[int, ...]]) -> dict[tuple[int, int], list[int]]:
    """The variables two cliques share, for every pair that shares some."""
    holding: dict[int, list[int]] = {}
    for index, clique in enumerate(cliques):
        for k in clique:
            holding.setdefault(k, []).append(index)
    shared: dict[tuple[int, int], list[int]] = {}
    for k, found in holding.items():
        for i, a in enumerate(found):
            for b in found[i + 1 :]:
                shared.setdefault((a, b), []).append(k)
    return shared


@dataclass(frozen=True, eq=False)
class CliqueLaw:
    """A(theta), and the marginal of every clique at its possible entries."""

    possible: Possible
    log_partition: float
    cliques: tuple[Array, ...]
    """mu_C, flat, by possible entry."""

    @property
    def tree(self) -> JunctionTree:
        """The cliques' tree."""
        return self.possible.tree

    def table(self, clique: int) -> Array:
        """The table of one clique."""
        return self.possible.dense(clique, self.cliques[clique])

    def project(self, clique: int, scope: Scope) -> Array:
        """The margin of one clique."""
        domain = self.tree.domains[clique]
        if self.possible.entries[clique] is None:
            return np.asarray(domain.project(self.table(clique), scope))
        part, codes = domain.part(scope), self.possible.codes(clique, scope)
        summed = np.bincount(codes, self.cliques[clique], minlength=part.size)
        return np.asarray(summed, dtype=float).reshape(part.shape)

    def marginal(self, scope: Scope, *, memory_limit: int | None) -> Array:
        """mu_A for any scope A, in one clique or not.

        Out of one clique, the conditionals mu_C / mu_S are multiplied over the part of the tree that A spans, and
        every variable is summed out as soon as neither A nor the rest of the tree needs it.
        """
        tree = self.tree
        home = tree.covering(scope)
        if home is not None:  # a copy: many marginals of one clique are asked for in turn
            return np.array(self.project(home, scope))
        _require_table(tree.domain(scope), memory_limit)
        return self._spanning(scope, memory_limit)

    def _found(self, tables: dict[int, Array], clique: int) -> Array:
        """A clique's table as far as it was multiplied out already; its marginal otherwise."""
        return tables.pop(clique) if clique in tables else self.table(clique)

    def _spanning(self, scope: Scope, memory_limit: int | None) -> Array:
        """mu_A of a scope that no clique holds, from the leaves up until one table has all of it."""
        tree, wanted = self.tree, set(scope)
        table: dict[int, Array] = {}
        over: dict[int, Domain] = dict(enumerate(tree.domains))
        below = {c: wanted & set(clique) for c, clique in enumerate(tree.cliques)}
        for a, b, separator in reversed(tree.edges):
            carried = below[b] - set(separator)
            if not carried:
                continue
            below[a] |= below[b]
            parent = over[b].expand(self.project(b, separator), separator)
            conditional = self._found(table, b) / np.where(parent > 0, parent, 1.0)
            keep = tuple(v for v in over[b].scope if v in separator or v in carried)
            kept = over[b].project(conditional, keep)
            union = tree.domain((*over[a].scope, *(v for v in keep if v not in over[a].scope)))
            _require_table(union, memory_limit)
            table[a] = union.expand(self._found(table, a), over[a].scope) * union.expand(kept, keep)
            over[a] = union
            if wanted <= below[a]:
                return np.ascontiguousarray(union.project(table[a], scope))
        raise AssertionError("a scope of known variables is always reached")


def _require_table(domain: Domain, limit: int | None) -> None:
    memory.require(
        8 * domain.size,
        f"this marginal needs a table of {domain.size:,} entries, which",
        limit=limit,
        remedy="ask for fewer variables at once",
    )
