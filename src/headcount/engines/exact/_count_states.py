"""Exact inference on chains of two or three cells: the node count vector is itself a Markov chain.

    alpha_{t+1}(b) ∝ l_{t+1}(b) Σ_a alpha_t(a) K_t(a, b),    beta_t(a) ∝ Σ_b K_t(a, b) l_{t+1}(b) beta_{t+1}(b)

K_t(a, b) = P(n_{t+1} = b | n_t = a). Two cells: n_v(0) = Bin(a, p) + Bin(N − a, q), a convolution for every a. Three cells: add one
individual after the other,

    K_n(a → b) = Σ_j P(i, j) K_{n−1}(a − e_i → b − e_j)       for any i with a(i) > 0.

All terms are positive, so nothing cancels. Flows follow by taking one (or two) individuals out: with n_ij the flow i → j,

    E[n_ij; a, b] = alpha(a) a_i P(i, j) K^{N−1}(a − e_i, b − e_j) l(b) beta(b)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammaln, xlog1py, xlogy

from headcount._compile import kernel
from headcount.engines.exact._enumerate import (
    ExactBeliefs,
    fitting_tree,
    law_of_counts,
    log_likelihood,
    log_row,
    log_sum,
    to_scopes,
)
from headcount.errors import NoPopulationError, ProblemError
from headcount.tables import dense

if TYPE_CHECKING:
    from headcount._types import Array, Counts, Scope
    from headcount.individual import Model, Place, RootedTree
    from headcount.observe import Problem

LARGEST = {1: 2500, 2: 2500, 3: 64}
"""The largest population by number of cells: K_t has C(N + L − 1, L − 1)² entries, 50 MB and 37 MB at these sizes."""
CACHE_BYTES = 400_000_000
"""What kept matrices K_t may take: eight of the largest size, the three (N, N − 1 and N − 2 individuals) of two distinct steps and more."""
LARGEST_LOG = 700.0
"""exp(±700) is about the largest and the smallest double."""
ROUNDED = 36.0
"""A share of exp(−36) = 2e-16 is rounding."""


def count_states_fit(problem: Problem) -> str | None:
    """Why the recursion cannot run on a problem; None when it can."""
    rooted = problem.model.rooted()
    if rooted is None or not rooted.is_chain:
        return "the model is not a chain"
    cells = max(rooted.sizes)
    if cells > 3:
        return f"{cells} cells, at most 3 are possible"
    if problem.population > LARGEST[cells]:
        return f"N = {problem.population} with {cells} cells, at most N = {LARGEST[cells]} is possible"
    if any(len(site.scope) > 1 for site in problem.sites):
        return "flows are observed, only nodes can be"
    return None


class Steps:
    """The matrices K_t of a chain for N, N − 1 and N − 2 individuals, made when asked for and kept while they fit."""

    def __init__(self, rooted: RootedTree) -> None:
        self.rooted = rooted
        self._kept: dict[tuple[int, int], Array] = {}

    def law(self, t: int) -> Array:
        """P_t, padded with impossible cells to the width of the chain (the smallest count is then always zero)."""
        matrix = self.rooted.transitions[t + 1]
        wide = max(2, *self.rooted.sizes)
        out = np.zeros((wide, wide))
        out[: matrix.shape[0], : matrix.shape[1]] = dense(matrix)
        out[matrix.shape[0] :, 0] = 1.0  # nobody is ever there; any law will do
        return out

    def matrix(self, t: int, people: int) -> Array:
        """K_t for a population of `people`."""
        key = (id(self.rooted.transitions[t + 1]), people)
        if key not in self._kept:
            made = count_transition(self.law(t), people)
            while self._kept and sum(k.nbytes for k in self._kept.values()) + made.nbytes > CACHE_BYTES:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = made
        return self._kept[key]


def count_vectors(people: int, cells: int) -> Counts:
    """All count vectors of `people` over 2 or 3 cells, in the kernels' order."""
    first = np.arange(people + 1)
    if cells == 2:
        return np.stack([first, people - first], axis=1)
    a = np.repeat(first, people + 1 - first)
    b = np.concatenate([np.arange(people + 1 - k) for k in first])
    return np.stack([a, b, people - a - b], axis=1)


def index_of(vectors: Counts, people: int) -> Counts:
    """The place of count vectors in the kernels' order."""
    a = vectors[:, 0]
    return a if vectors.shape[1] == 2 else a * (people + 1) - a * (a - 1) // 2 + vectors[:, 1]


def count_transition(law: Array, people: int) -> Array:
    """K(a, b) = P(n_v = b | n_u = a) over all count vectors of a population."""
    if law.shape[0] == 3:
        return np.asarray(three_cells(np.ascontiguousarray(law), people))
    stay, arrive = (binomials(people, law[i, 0]) for i in range(2))
    rows = [np.convolve(stay[a, : a + 1], arrive[people - a, : people - a + 1]) for a in range(people + 1)]
    return np.stack(rows)


@kernel
def place(total, first, second):
    """The index of the count vector (first, second, total − first − second) among those of its total."""
    return first * (total + 1) - first * (first - 1) // 2 + second


@kernel
def three_cells(law, people):
    """K(a, b) for three cells; vectors ordered as by `place`."""
    now = np.ones((1, 1))
    for total in range(1, people + 1):
        size = (total + 1) * (total + 2) // 2
        then = np.zeros((size, size))
        for a0 in range(total + 1):
            for a1 in range(total + 1 - a0):
                i = 0 if a0 > 0 else (1 if a1 > 0 else 2)
                before = now[place(total - 1, a0 - (i == 0), a1 - (i == 1))]
                row = then[place(total, a0, a1)]
                for b0 in range(total):
                    for b1 in range(total - b0):
                        weight = before[place(total - 1, b0, b1)]
                        row[place(total, b0 + 1, b1)] += law[i, 0] * weight
                        row[place(total, b0, b1 + 1)] += law[i, 1] * weight
                        row[place(total, b0, b1)] += law[i, 2] * weight
        now = then
    return now


def binomials(people: int, chance: float) -> Array:
    """Bin(k; n, p) for n = 0 … N and k = 0 … n, (N + 1, N + 1)."""
    n, k = np.ogrid[: people + 1, : people + 1]
    log_factorial = gammaln(np.arange(people + 1) + 1.0)
    rest = np.maximum(n - k, 0)
    logs = (
        log_factorial[n] - log_factorial[k] - log_factorial[rest] + xlogy(k, chance) + xlog1py(rest, -chance)
    )
    return np.where(k <= n, np.exp(logs), 0.0)


@dataclass(frozen=True, eq=False)
class CountStateBeliefs(ExactBeliefs):
    """Forward and backward messages over count vectors: alpha_t sums to 1, and so does alpha_t beta_t."""

    model: Model
    population: int
    steps: Steps
    vectors: Counts
    forward: tuple[Array, ...]
    backward: tuple[Array, ...]
    seen: tuple[Array, ...]
    """l_t / its scale: alpha_{t+1} = seen_{t+1} (alpha_t K_t)."""
    log_evidence: float | None = None
    diagnostics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rooted(self) -> RootedTree:
        """The chain."""
        return self.steps.rooted

    def counts(self, t: int) -> Counts:
        """The count vectors of time t, (vectors, L_t)."""
        return self.vectors[:, : self.rooted.sizes[t]]

    def node_law(self, t: int) -> Array:
        """P(n_t = a | y) over count vectors."""
        return self.forward[t] * self.backward[t]

    def mean(self, scope: Scope) -> Array:
        """Exact posterior mean of a node or a flow table."""
        place = self.rooted.place(scope)
        if not place.edge:
            return np.asarray(self.node_law(place.node) @ self.counts(place.node))
        t = place.node - 1
        return np.asarray(place.turn(self._flow(self.forward[t][None], t)[0]))

    def variance(self, scope: Scope) -> Array:
        """Exact posterior variance."""
        return np.maximum(np.diag(self.covariance(scope, scope)), 0.0).reshape(self.mean(scope).shape)

    def covariance(self, a: Scope, b: Scope) -> Array:
        """Exact posterior covariance between any two nodes or flow tables."""
        first, second = (self.rooted.place(scope) for scope in (a, b))
        same_flow = first.edge and second.edge and first.node == second.node
        if second.node - second.edge < first.node and not same_flow:
            return self.covariance(b, a).T
        joint = self._flow_pairs(first.node - 1) if same_flow else self._products(first, second)
        return to_scopes(joint, first, second) - np.outer(self.mean(a), self.mean(b))

    def count_law(self, scope: Scope) -> tuple[Counts, Array] | None:
        """Of node counts; None for flows."""
        place = self.rooted.place(scope)
        if place.edge:
            return None
        return law_of_counts(self.counts(place.node), self.node_law(place.node))

    def draw_states(self, size: int, rng: np.random.Generator) -> Counts:
        """Indices of count vectors, (draws, times), drawn backwards in time."""
        last = len(self.forward) - 1
        states = np.empty((size, last + 1), dtype=np.int64)
        for d in range(size):
            states[d, last] = rng.choice(len(self.vectors), p=self.forward[last] / self.forward[last].sum())
            for t in range(last - 1, -1, -1):
                weights = self.forward[t] * self.steps.matrix(t, self.population)[:, states[d, t + 1]]
                states[d, t] = rng.choice(len(self.vectors), p=weights / weights.sum())
        return states

    def drawn_table(self, scope: Scope, states: Counts, rng: np.random.Generator) -> Array:
        """Node counts as drawn; flows are drawn given their two margins."""
        place = self.rooted.place(scope)
        after = states[:, place.node]
        if not place.edge:
            return self.counts(place.node)[after].astype(float)
        law, before = self.steps.law(place.node - 1), states[:, place.node - 1]
        pairs = zip(self.vectors[before], self.vectors[after], strict=True)
        drawn = np.array([split_flows(law, a, b, rng=rng) for a, b in pairs], dtype=float)
        rows, columns = place.shape
        return np.asarray(place.turn(drawn.reshape(len(states), *law.shape)[:, :rows, :columns]))

    def _above(self, taken: tuple[int, ...]) -> Counts:
        """The places of c + e_i + … for the count vectors c of the population without the individuals taken out."""
        moved = count_vectors(self.population - len(taken), self.vectors.shape[1])
        for i in taken:
            moved[:, i] += 1
        return index_of(moved, self.population)

    def _flow(self, left: Array, t: int) -> Array:
        """Σ_{a,b} left(a) E[n_ij | a, b] K(a, b) l(b) beta(b) for every row of `left`: (rows, L_t, L_{t+1})."""
        wide = range(self.vectors.shape[1])
        right = self.seen[t + 1] * self.backward[t + 1]
        targets = np.stack([right[self._above((j,))] for j in wide], axis=1)
        after = self.steps.matrix(t, self.population - 1) @ targets
        sources = [(left * self.vectors[:, i])[:, self._above((i,))] for i in wide]
        out = np.stack([source @ after for source in sources], axis=1) * self.steps.law(t)
        return np.asarray(out[:, : self.rooted.sizes[t], : self.rooted.sizes[t + 1]])

    def _flow_pairs(self, t: int) -> Array:
        """E[n_ij n_kl | y], (L_t, L_{t+1}, L_t, L_{t+1}): pairs of two individuals, plus each with itself."""
        law, sizes = self.steps.law(t), self.rooted.sizes[t : t + 2]
        table = self._flow(self.forward[t][None], t)[0]
        out = np.diag(table.ravel()).reshape(*sizes, *sizes)
        if self.population < 2:
            return out
        right = self.seen[t + 1] * self.backward[t + 1]
        step = self.steps.matrix(t, self.population - 2)
        after = {to: step @ right[self._above(to)] for to in np.ndindex(sizes[1], sizes[1])}
        for i, k in np.ndindex(sizes[0], sizes[0]):
            pairs = self.vectors[:, i] * (self.vectors[:, k] - (i == k))
            left = (self.forward[t] * pairs)[self._above((i, k))]
            for (j, l), value in after.items():
                out[i, j, k, l] += law[i, j] * law[k, l] * (left @ value)
        return out

    def _products(self, first: Place, second: Place) -> Array:
        """E[n_A n_B | y] of an earlier scope A and a later scope B."""
        t, s = first.node, second.node - second.edge
        left = self._flow_ahead(t - 1) if first.edge else self.forward[t] * self.counts(t).T
        for reach in range(t, s):
            left = self.seen[reach + 1] * (left @ self.steps.matrix(reach, self.population))
        return self._flow(left, s) if second.edge else np.asarray((left * self.backward[s]) @ self.counts(s))

    def _flow_ahead(self, t: int) -> Array:
        """Σ_a alpha(a) E[n_ij | a, b] K(a, b) l(b) as a function of b: (flows, count vectors)."""
        law, step = self.steps.law(t), self.steps.matrix(t, self.population - 1)
        rows, columns = self.rooted.sizes[t : t + 2]
        out = np.zeros((rows, columns, len(self.vectors)))
        for i in range(rows):
            reached = (self.forward[t] * self.vectors[:, i])[self._above((i,))] @ step
            for j in range(columns):
                out[i, j, self._above((j,))] = law[i, j] * reached
        return out.reshape(-1, len(self.vectors)) * self.seen[t + 1]


def count_state_beliefs(problem: Problem) -> CountStateBeliefs:
    """Exact posterior and evidence of a chain of at most three cells with observed nodes; any length, any noise.

    Raises
    ------
    ProblemError
        When the problem is not such a chain, is too large, or no counts agree with the data.
    """
    rooted, people = (
        fitting_tree(problem, "count-state recursion", count_states_fit(problem)),
        problem.population,
    )
    steps, vectors = Steps(rooted), count_vectors(people, max(2, *rooted.sizes))
    logs = [np.zeros(len(vectors)) for _ in rooted.variables]
    for site in problem.sites:
        t = rooted.index[site.scope[0]]
        logs[t] = logs[t] + log_likelihood(site, vectors[:, : rooted.sizes[t]])
    updates: list[tuple[Array, Array, float]] = []
    law = np.zeros(vectors.shape[1])
    law[: len(rooted.initial)] = rooted.initial  # cells beyond are impossible
    before = gammaln(people + 1.0) + log_row(vectors, law)
    for t, seen in enumerate(logs):
        if t > 0:
            with np.errstate(divide="ignore"):
                before = np.log(updates[-1][0] @ steps.matrix(t - 1, people))
        updates.append(_update(before, seen, rooted, t))
    forward, scaled, scales = zip(*updates, strict=True)
    backward = [np.ones(len(vectors))]
    for t in range(len(logs) - 2, -1, -1):
        backward.insert(0, steps.matrix(t, people) @ (scaled[t + 1] * backward[0]))
    found = {"count_vectors": len(vectors)}
    return CountStateBeliefs(
        problem.model, people, steps, vectors, forward, tuple(backward), scaled, float(sum(scales)), found
    )


def _update(before: Array, seen: Array, rooted: RootedTree, t: int) -> tuple[Array, Array, float]:
    """Bayes' rule at time t, from logarithms: alpha_t, l_t / its scale, and the log of the scale."""
    joint = np.where(before > -np.inf, before + seen, -np.inf)
    top = joint.max()
    if top == -np.inf:
        raise NoPopulationError(
            f"no counts of a probability above 1e-300 agree with the data up to {rooted.variables[t]!r}: check the exact counts and "
            "the model's zeros"
        )
    weights = np.exp(joint - top)
    scale = top + np.log(weights.sum())
    lost = seen[before < -LARGEST_LOG] > scale + LARGEST_LOG - ROUNDED
    # Where the model has zeros, it may be the model that forbids these counts.
    if t > 0 and lost.any() and (dense(rooted.transitions[t]) > 0).all():
        raise ProblemError(
            f"the data at {rooted.variables[t]!r} are so improbable under the model and the data before them (below 1e-300) that "
            "double precision cannot follow: check both, or use PathGibbs"
        )
    ratio = np.exp(np.minimum(np.where(joint > -np.inf, seen, -np.inf) - scale, LARGEST_LOG))
    return weights / weights.sum(), ratio, float(scale)


def split_flows(law: Array, rows: Counts, columns: Counts, *, rng: np.random.Generator) -> Counts:
    """An exact draw of one flow table given its margins, P(n_ij | n_u, n_v) ∝ Π P(i, j)^n_ij / n_ij!, row by row."""
    out = np.zeros(law.shape, dtype=np.int64)
    left = columns.copy()
    for i in range(len(rows) - 1):
        options = _rows(int(rows[i]), left)
        log_weight = log_row(options, law[i]) + _log_rest(law[i + 1 :], rows[i + 1 :], left - options)
        weight = np.exp(log_weight - log_weight.max())
        out[i] = options[rng.choice(len(options), p=weight / weight.sum())]
        left = left - out[i]
    out[-1] = left
    return out


def _rows(total: int, most: Counts) -> Counts:
    """All rows of counts with the given total, no entry above `most`."""
    grids = np.meshgrid(*(np.arange(m + 1) for m in most[:-1]), indexing="ij")
    head = np.stack([g.ravel() for g in grids], axis=1)
    tail = total - head.sum(axis=1)
    kept = (tail >= 0) & (tail <= most[-1])
    return np.concatenate([head[kept], tail[kept, None]], axis=1)


def _log_rest(law: Array, rows: Counts, left: Counts) -> Array:
    """log of the total weight of the remaining rows, for every possible remainder of the columns."""
    if len(rows) == 1:
        return log_row(left, law[0])
    out = np.empty(len(left))
    for k, columns in enumerate(left):
        options = _rows(int(rows[0]), columns)
        out[k] = log_sum(log_row(options, law[0]) + _log_rest(law[1:], rows[1:], columns - options))
    return out
