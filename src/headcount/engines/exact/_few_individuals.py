"""Exact inference for a handful of individuals on a chain or tree: belief propagation over their joint states.

With N individuals x = (x_1, …, x_N) a node has L^N joint states, and steps are independent:

    M_v(x_u) = Σ_{x_v} Π_m P_v(x_u,m, x_v,m) beta_v(x_v),    beta_v(x_v) = l_v(n(x_v)) Π_children c M_c(x_v),

a product along one axis after the other, N L^(N+1) operations per edge. Individuals are exchangeable, so with F_r the probability that
r given individuals all have one state (or make one step) the law of a count is

    E[n (n − 1) … (n − r + 1)] = N (N − 1) … (N − r + 1) F_r,    P(n = k) = Σ_{r ≥ k} (−1)^(r − k) C(N, r) C(r, k) F_r.

An edge (u, v) whose flows are observed becomes a node between the two, with states (x_u, x_v): its counts are the flows.

Everything is kept as logarithms: data may lie as far from the model as they like.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from math import comb, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.engines.exact._enumerate import (
    ExactBeliefs,
    fitting_tree,
    log_likelihood,
    log_sum,
    to_scopes,
)
from headcount.errors import NoPopulationError
from headcount.individual import Place, RootedTree
from headcount.tables import dense

if TYPE_CHECKING:
    from headcount._types import Array, Index, Scope
    from headcount.individual import Model
    from headcount.observe import ClosedProblem

LARGEST_POPULATION = 6
"""Above it P(n = k), an alternating sum, would lose more than 1e-12 to rounding."""
LARGEST = 10_000_000
"""Joint states of all nodes: three tables each, 240 MB, and about ten seconds (measured: 1 µs per joint state at L = 16, N = 5)."""
QUICK = 3_000_000
"""Joint states that take about three seconds: what an automatic choice should stay below."""
COUNTS_PER_STATE = 10
"""Counts whose likelihood is evaluated in the time of one joint state (measured: about 0.1 µs against 1 µs)."""
BLOCK = 2_000_000
"""Counts whose likelihood is evaluated at once, 16 MB per temporary array."""
SMALL = 1e-290
"""Sums below this share of their largest possible term are made again from logarithms: doubles end at 1e-308."""


def few_individuals_fit(problem: ClosedProblem, *, most: int = LARGEST) -> str | None:
    """Why the recursion cannot run on a problem within `most` joint states (and counts to evaluate); None when it can."""
    rooted, people = problem.model.rooted(), int(problem.population)
    if rooted is None:
        return "the model is not a chain or tree"
    if problem.disperses:
        return "individuals move together"
    if problem.numbers is not None:
        return "individuals are of several kinds, or of unknown number"
    if people > LARGEST_POPULATION:
        return f"N = {people}, at most N = {LARGEST_POPULATION} is possible"
    if any(len(site.scope) > 2 for site in problem.sites):
        return "tables of three variables are observed, only nodes and flows can be"
    flows = [rooted.sizes[rooted.parents[v]] * rooted.sizes[v] for v in observed_edges(problem, rooted)]
    sizes = [*rooted.sizes, *flows]
    joint = sum(size**people for size in sizes)
    counts = sum(comb(size + people - 1, people) * size for size in sizes)
    if max(joint, counts // COUNTS_PER_STATE) > most:
        return (
            f"{people} individuals have {joint} joint states, and {counts} counts would be weighed; at most {most} and"
            f" {COUNTS_PER_STATE * most} are possible"
        )
    return None


def observed_edges(problem: ClosedProblem, tree: RootedTree) -> set[int]:
    """The children at the ends of the edges whose flows are observed."""
    return {tree.place(site.scope).node for site in problem.sites if len(site.scope) == 2}


def edges_as_nodes(tree: RootedTree, children: set[int]) -> tuple[RootedTree, dict[int, int], dict[int, int]]:
    """The tree with a node (x_u, x_v) on the edges above some children; where each node has gone, and each edge's new node."""
    names: list[Hashable] = []
    parents: list[int] = []
    laws: list[Any] = []
    moved: dict[int, int] = {}
    between: dict[int, int] = {}
    for v, u in enumerate(tree.parents):
        above = moved[u] if u >= 0 else -1
        law = tree.transitions[v]
        if v in children:
            rows, columns = tree.place((tree.variables[u], tree.variables[v])).shape
            pairs = np.arange(rows * columns)
            into = np.zeros((rows, rows * columns))
            into[pairs // columns, pairs] = np.asarray(dense(law)).ravel()
            between[v] = len(names)
            names.append((tree.variables[u], tree.variables[v]))
            parents.append(above)
            laws.append(into)
            above = between[v]
            law = np.eye(columns)[pairs % columns]
        moved[v] = len(names)
        names.append(tree.variables[v])
        parents.append(above)
        laws.append(law)
    return RootedTree(tuple(names), np.array(parents), tree.initial, tuple(laws)), moved, between


def few_individuals_beliefs(problem: ClosedProblem) -> FewIndividualsBeliefs:
    """Exact posterior and evidence of at most six individuals on a chain or tree with observed nodes and flows; any noise.

    Raises
    ------
    ProblemError
        When the problem is not of that kind, is too large, or no configuration agrees with the data.
    """
    tree = fitting_tree(problem, "recursion over individuals", few_individuals_fit(problem))
    rooted, moved, between = edges_as_nodes(tree, observed_edges(problem, tree))
    states = JointStates(tree, rooted, moved, between, problem.population, {}, {})
    states.local.update(_local(problem, states))
    down = [(u, v) for v, u in enumerate(rooted.parents) if v > 0]
    for s, t in [(v, u) for u, v in reversed(down)] + down:
        states.messages[s, t] = states.message(s, t)
    log_evidence = log_sum(states.collected(0))
    if log_evidence == -np.inf:
        raise NoPopulationError(
            "no states of the individuals agree with the data: check the exact counts and the model's zeros"
        )
    found = {"joint_states": sum(size**problem.population for size in rooted.sizes)}
    return FewIndividualsBeliefs(problem.model, states, log_evidence, found)


def _local(problem: ClosedProblem, of: JointStates) -> dict[int, Array]:
    """log l_v(n(x)) of every node, plus the law of the individuals at the root; one axis per individual."""
    people, rooted = problem.population, of.rooted
    with np.errstate(divide="ignore"):
        start = np.log(np.asarray(rooted.initial, dtype=float))
    out = {v: np.zeros((size,) * people) for v, size in enumerate(rooted.sizes)}
    for m in range(people):
        out[0] = out[0] + along(start, m, people)
    for site in problem.sites:
        place = of.tree.place(site.scope)
        v = of.seat(place).node
        shape = out[v].shape
        states = np.sort(np.indices(shape).reshape(people, -1), axis=0)
        # Only counts matter: evaluate each set of states once, in its sorted order.
        sets, which = np.unique(np.ravel_multi_index(tuple(states), shape), return_inverse=True)
        members = np.stack(np.unravel_index(sets, shape), axis=1)
        rows = max(1, BLOCK // shape[0])
        seen = []
        for some in (members[k : k + rows] for k in range(0, len(sets), rows)):
            counts = np.zeros((len(some), prod(place.shape)))
            np.add.at(counts, (np.arange(len(some))[:, None], some), 1.0)
            seen.append(log_likelihood(site, place.to_scope(counts)))
        out[v] = out[v] + np.concatenate(seen)[which].reshape(shape)
    return out


def along(values: Array, axis: int, axes: int) -> Array:
    """A vector laid along one of several axes."""
    return values.reshape([-1 if k == axis else 1 for k in range(axes)])


def push(table: Array, law: Array, axes: Iterable[int]) -> Array:
    """log Σ_i exp(table(…, i, …)) law(i, j), along one axis after the other."""
    for m in axes:
        moved = np.moveaxis(table, m, -1)
        rows = moved.reshape(-1, law.shape[0])
        top = rows.max(axis=1, keepdims=True)
        top = np.where(top > -np.inf, top, 0.0)
        total = np.exp(rows - top) @ law
        with np.errstate(divide="ignore"):
            out = np.log(total) + top
        if total.min() < SMALL:
            _mend(out, total, rows, law)
        table = np.moveaxis(out.reshape(*moved.shape[:-1], law.shape[1]), -1, m)
    return table


def _mend(out: Array, total: Array, rows: Array, law: Array) -> None:
    """Make sums that underflowed again, from logarithms; not those that are zero because the model has zeros."""
    reached = (rows > -np.inf).astype(float) @ (law > 0).astype(float) > 0
    with np.errstate(divide="ignore"):
        log_law = np.log(law)
    for k in np.flatnonzero(((total < SMALL) & reached).any(axis=1)):
        terms = rows[k][:, None] + log_law
        top = np.where(reached[k], terms.max(axis=0), 0.0)
        with np.errstate(divide="ignore"):
            out[k] = np.log(np.exp(terms - top).sum(axis=0)) + top


@dataclass(frozen=True, eq=False)
class JointStates:
    """Log-tables over the joint states of the individuals: one axis per individual.

    Attributes
    ----------
    tree, rooted
        The model's tree, and the same with a node on every edge whose flows are observed.
    moved, between
        Where each of the tree's nodes is in `rooted`, and, by child, the node that stands for the edge above it.
    local
        By node: log-likelihood, and at the root the prior.
    messages
        By pair of neighbours (s, t): what s and everything behind it says about t.
    """

    tree: RootedTree
    rooted: RootedTree
    moved: dict[int, int]
    between: dict[int, int]
    people: int
    local: dict[int, Array]
    messages: dict[tuple[int, int], Array]

    def seat(self, place: Place) -> Place:
        """A place of the model's tree in `rooted`: an edge whose flows are observed is a node there."""
        if place.edge and place.node in self.between:
            return Place(self.between[place.node], edge=False, turned=False, shape=(prod(place.shape),))
        return replace(place, node=self.moved[place.node])

    @cached_property
    def neighbours(self) -> list[list[int]]:
        """Of every node."""
        out: list[list[int]] = [[] for _ in self.rooted.variables]
        for v, u in enumerate(self.rooted.parents):
            if u >= 0:
                out[u].append(v)
                out[v].append(u)
        return out

    def law(self, s: int, t: int) -> Array:
        """P of the step between neighbours, (L_s, L_t)."""
        up = self.rooted.parents[s] == t
        matrix = np.asarray(dense(self.rooted.transitions[s if up else t]), dtype=float)
        return matrix.T if up else matrix

    def collected(self, s: int, *, without: int = -1) -> Array:
        """Log of the product of node s's own table and all incoming messages, or all but one."""
        out = self.local[s]
        for k in self.neighbours[s]:
            if k != without:
                out = out + self.messages[k, s]
        return out

    def message(self, s: int, t: int) -> Array:
        """From s to its neighbour t."""
        return push(self.collected(s, without=t), self.law(s, t), range(self.people))

    def together(self, place: Place, who: Sequence[int], log_evidence: float) -> Array:
        """P(the given individuals all have one state, or all make one step | y), for every state or step."""
        rest = [m for m in range(self.people) if m not in who]
        seat = self.seat(place)
        order, times, v = [*who, *rest], len(who), seat.node
        if not seat.edge:
            law = np.exp(self.collected(v) - log_evidence).transpose(order)
            return _diagonal(law, times).sum(axis=1).reshape(place.shape)
        u = self.rooted.parents[v]
        law = self.law(u, v)
        above = _diagonal(self.collected(u, without=v).transpose(order), times)
        below = _diagonal(push(self.collected(v, without=u), law.T, rest).transpose(order), times)
        with np.errstate(divide="ignore"):
            steps = times * np.log(law) - log_evidence
        rows = [np.exp(above[i] + below + steps[i][:, None]).sum(axis=1) for i in range(len(above))]
        return np.array(rows)

    def nodes_of(self, place: Place) -> tuple[int, ...]:
        """The nodes of `rooted` that a place of the model's tree reads."""
        seat = self.seat(place)
        return (self.rooted.parents[seat.node], seat.node) if seat.edge else (seat.node,)

    def clamped(self, place: Place, entry: tuple[int, ...], targets: Sequence[int]) -> JointStates:
        """The same with the first individual in one state (or making one step), with the messages that the targets need."""
        nodes = self.nodes_of(place)
        if len(nodes) < len(entry):
            entry = (int(np.ravel_multi_index(entry, place.shape)),)
        local = dict(self.local)
        for v, state in zip(nodes, entry, strict=True):
            only = np.where(np.arange(self.rooted.sizes[v]) == state, 0.0, -np.inf)
            local[v] = local[v] + along(only, 0, self.people)
        made = replace(self, local=local, messages=dict(self.messages))
        for target in targets:
            path = max((self._path(v, target) for v in nodes), key=len)
            for s, t in pairwise(path):
                made.messages[s, t] = made.message(s, t)
        return made

    def _path(self, s: int, t: int) -> list[int]:
        """The nodes from s to t, both included."""
        up, down = self.rooted.path_to_root(s), self.rooted.path_to_root(t)
        while len(up) > 1 and len(down) > 1 and up[-2] == down[-2]:
            up.pop()
            down.pop()
        return up[:-1] + down[::-1]


def _diagonal(table: Array, times: int) -> Array:
    """Entries whose first `times` indices are equal, (L, everything else)."""
    index = np.arange(table.shape[0])
    return table[(index,) * times].reshape(len(index), -1)


@dataclass(frozen=True, eq=False)
class FewIndividualsBeliefs(ExactBeliefs):
    """Exact laws of counts, from the laws of one, two, … individuals."""

    model: Model
    states: JointStates
    log_evidence: float
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    _moments: dict[Place, Array] = field(default_factory=dict)

    def _together(self, place: Place) -> Array:
        """F_0, …, F_N of every entry, (N + 1, *table)."""
        if place not in self._moments:
            people = self.states.people
            parts = [self.states.together(place, range(r), self.log_evidence) for r in range(1, people + 1)]
            self._moments[place] = np.stack([np.ones_like(parts[0]), *parts])
        return self._moments[place]

    def mean(self, scope: Scope) -> Array:
        """Exact posterior mean."""
        place = self.states.tree.place(scope)
        return np.asarray(place.turn(self.states.people * self._together(place)[1]))

    def variance(self, scope: Scope) -> Array:
        """Exact posterior variance."""
        place, people, mean = self.states.tree.place(scope), self.states.people, self.mean(scope)
        pairs = people * (people - 1) * self._together(place)[2] if people > 1 else np.zeros(place.shape)
        return np.maximum(place.turn(pairs) + mean - mean**2, 0.0)

    def covariance(self, a: Scope, b: Scope) -> Array:
        """E[n_A(i) n_B(j)] = N (P(x_1A = i, x_1B = j) + (N − 1) P(x_1A = i, x_2B = j)), less the product of the means."""
        first, second = (self.states.tree.place(scope) for scope in (a, b))
        people, targets = self.states.people, self.states.nodes_of(second)
        rows = np.empty((*first.shape, *second.shape))
        for entry in np.ndindex(*first.shape):
            states = self.states.clamped(first, entry, targets)
            rows[entry] = states.together(second, [0], self.log_evidence)
            if people > 1:
                rows[entry] += (people - 1) * states.together(second, [1], self.log_evidence)
        return people * to_scopes(rows, first, second) - np.outer(self.mean(a), self.mean(b))

    def count_law(self, scope: Scope) -> tuple[Index, Array]:
        """From F_0, …, F_N."""
        place, people = self.states.tree.place(scope), self.states.people
        signs = [
            [(-1) ** (r - k) * comb(people, r) * comb(r, k) for r in range(people + 1)]
            for k in range(people + 1)
        ]
        law = place.turn(np.tensordot(np.array(signs, dtype=float), self._together(place), axes=1))
        return np.indices(law.shape)[0], law

    def draw_states(self, size: int, rng: np.random.Generator) -> Index:
        """Everybody's states at every node, (draws, nodes, N): at the root, then down the tree."""
        states, rooted, people = self.states, self.states.rooted, self.states.people
        drawn = np.empty((size, len(rooted.variables), people), dtype=np.intp)
        for v, u in enumerate(rooted.parents):
            table = states.collected(v, without=u)
            with np.errstate(divide="ignore"):
                law = np.log(states.law(u, v)) if u >= 0 else np.zeros((1, rooted.sizes[v]))
            above = drawn[:, u] if u >= 0 else np.zeros((size, people), dtype=np.intp)
            for key in {tuple(int(i) for i in row) for row in above}:
                weights = table
                for m, i in enumerate(key):
                    weights = weights + along(law[i], m, people)
                chance = np.exp(weights - log_sum(weights)).ravel()
                where = np.flatnonzero((above == key).all(axis=1))
                picked = rng.choice(chance.size, size=len(where), p=chance / chance.sum())
                drawn[where, v] = np.stack(np.unravel_index(picked, table.shape), axis=1)
        return drawn

    def drawn_table(self, scope: Scope, states: Index, rng: np.random.Generator) -> Array:
        """Count tables of a clique from everybody's states, (draws, *table)."""
        del rng
        nodes = [self.states.moved[self.states.tree.index[v]] for v in scope]
        out = np.zeros((len(states), *(self.states.rooted.sizes[v] for v in nodes)))
        np.add.at(out, (np.arange(len(states))[:, None], *(states[:, v] for v in nodes)), 1.0)
        return out
