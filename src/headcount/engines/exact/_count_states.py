"""Exact inference on chains of two or three cells: the node count vector is itself a Markov chain.

    alpha_{t+1}(b) ∝ l_{t+1}(b) Σ_a alpha_t(a) K_t(a, b),    beta_t(a) ∝ Σ_b K_t(a, b) l_{t+1}(b) beta_{t+1}(b)

K_t(a, b) = P(n_{t+1} = b | n_t = a). Flows follow by taking one (or two) individuals out: with n_ij the flow i → j,

    E[n_ij; a, b] = alpha(a) a_i P(i, j) K^{N−1}(a − e_i, b − e_j) l(b) beta(b)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from headcount.engines._engine import DirectEngine
from headcount.individual import RootedTree
from headcount.observe import ProblemError
from headcount.posterior import Beliefs, Promises
from headcount.tables import Scope, dense

if TYPE_CHECKING:
    from headcount.individual import Model
    from headcount.observe import Problem

Array = NDArray[np.float64]
LARGEST = {1: 2500, 2: 2500, 3: 64}
"""The largest population by number of cells: K_t has C(N + L − 1, L − 1)² entries, 50 MB and 37 MB at these sizes."""
CACHE_BYTES = 400_000_000
"""What kept matrices K_t may take: a few distinct steps at the largest sizes; no derivation."""
ROWS = 256
"""Rows of K_t per call of the compiled loop: at most ROWS · N²/4 products, 0.2 s at the largest N."""
LARGEST_LOG = 700.0
"""exp(±700) is about the largest and the smallest double."""
ROUNDED = 36.0
"""A share of exp(−36) = 2e-16 is rounding."""
ROUNDING = 1e-12
"""What cumulative probabilities may miss by rounding."""


@dataclass(frozen=True)
class CountStates(DirectEngine):
    """Exact posterior and evidence of a chain of at most three cells with observed nodes; any length, any noise.

    Raises
    ------
    ProblemError
        When the problem is not such a chain, is too large, or no counts agree with the data.
    """

    name: ClassVar[str] = "CountStates"

    def solve(self, problem: Problem, rng: np.random.Generator) -> CountStateBeliefs:
        """Forward and backward over count vectors."""
        del rng
        misfit = count_states_fit(problem)
        if misfit is not None:
            raise ProblemError(f"the exact count-state recursion does not fit: {misfit}")
        return count_state_beliefs(problem)


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


def count_vectors(people: int, cells: int) -> NDArray[np.int64]:
    """All count vectors of `people` over 2 or 3 cells, in the kernels' order."""
    first = np.arange(people + 1)
    if cells == 2:
        return np.stack([first, people - first], axis=1)
    a = np.repeat(first, people + 1 - first)
    b = np.concatenate([np.arange(people + 1 - k) for k in first])
    return np.stack([a, b, people - a - b], axis=1)


def index_of(vectors: NDArray[np.int64], people: int) -> NDArray[np.int64]:
    """The place of count vectors in the kernels' order."""
    a = vectors[:, 0]
    return a if vectors.shape[1] == 2 else a * (people + 1) - a * (a - 1) // 2 + vectors[:, 1]


def count_transition(law: Array, people: int) -> Array:
    """K(a, b) = P(n_v = b | n_u = a) over all count vectors of a population."""
    from headcount.engines.exact._count_transition import three_cells, two_cells

    if law.shape[0] == 3:
        return np.asarray(three_cells(np.ascontiguousarray(law), people))
    stay, arrive = (binomials(people, law[i, 0]) for i in range(2))
    out = np.zeros_like(stay)
    for first in range(0, people + 1, ROWS):
        two_cells(stay, arrive, out, first, min(first + ROWS, people + 1))
    return out


def binomials(people: int, chance: float) -> Array:
    """Bin(k; n, p) for n = 0 … N and k = 0 … n, (N + 1, N + 1)."""
    from scipy.special import gammaln, xlog1py, xlogy

    n, k = np.ogrid[: people + 1, : people + 1]
    log_factorial = gammaln(np.arange(people + 1) + 1.0)
    rest = np.maximum(n - k, 0)
    logs = (
        log_factorial[n] - log_factorial[k] - log_factorial[rest] + xlogy(k, chance) + xlog1py(rest, -chance)
    )
    return np.where(k <= n, np.exp(logs), 0.0)


@dataclass(frozen=True, eq=False)
class CountStateBeliefs(Beliefs):
    """Forward and backward messages over count vectors: alpha_t sums to 1, and so does alpha_t beta_t."""

    model: Model
    population: int
    steps: Steps
    vectors: NDArray[np.int64]
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

    @property
    def promises(self) -> Promises:
        """Exact moments."""
        return Promises(non_negative=True, consistent=True)

    def node_law(self, t: int) -> Array:
        """P(n_t = a | y) over count vectors."""
        return self.forward[t] * self.backward[t]

    def mean(self, scope: Scope) -> Array:
        """Exact posterior mean of a node or a flow table."""
        t, edge, turned = self._locate(scope)
        if not edge:
            return np.asarray(self.node_law(t) @ self.vectors[:, : self.rooted.sizes[t]])
        table = self._flow(self.forward[t][None], t)[0]
        return table.T if turned else table

    def variance(self, scope: Scope) -> Array:
        """Exact posterior variance."""
        return np.maximum(np.diag(self.covariance(scope, scope)), 0.0).reshape(self.mean(scope).shape)

    def covariance(self, a: Scope, b: Scope) -> Array:
        """Exact posterior covariance between any two nodes or flow tables."""
        (t, edge_a, turned_a), (s, edge_b, turned_b) = self._locate(a), self._locate(b)
        same_flow = edge_a and edge_b and t == s
        if s < t + edge_a and not same_flow:
            return self.covariance(b, a).T
        first, second = (self.mean(x) for x in (a, b))
        joint = self._flow_pairs(t) if same_flow else self._products(t, edge_a, s, edge_b)
        joint = joint.reshape(*_shape(first, turned_a), *_shape(second, turned_b))
        if turned_a:
            joint = np.swapaxes(joint, 0, 1)
        if turned_b:
            joint = np.swapaxes(joint, -1, -2)
        return np.asarray(joint.reshape(first.size, second.size) - np.outer(first, second))

    def quantile(self, scope: Scope, level: float) -> Array | None:
        """Exact quantile of node counts; None for flows."""
        t, edge, _ = self._locate(scope)
        if edge:
            return None
        law, width = self.node_law(t), self.rooted.sizes[t]
        chance = np.stack(
            [np.bincount(self.vectors[:, j], law, self.population + 1) for j in range(width)], axis=1
        )
        return np.asarray(np.argmax(chance.cumsum(axis=0) >= level - ROUNDING, axis=0), dtype=float)

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool = True) -> dict[Scope, Array]:
        """Independent draws: count vectors backwards in time, then each flow table given its two margins."""
        del integer  # counts are integers already
        last = len(self.forward) - 1
        states = np.empty((size, last + 1), dtype=np.int64)
        for d in range(size):
            states[d, last] = rng.choice(len(self.vectors), p=self.forward[last] / self.forward[last].sum())
            for t in range(last - 1, -1, -1):
                weights = self.forward[t] * self.steps.matrix(t, self.population)[:, states[d, t + 1]]
                states[d, t] = rng.choice(len(self.vectors), p=weights / weights.sum())
        return {tuple(c): self._tables(tuple(c), states, rng) for c in self.model.junction_tree.cliques}

    def _tables(self, scope: Scope, states: NDArray[np.int64], rng: np.random.Generator) -> Array:
        """The tables of a clique for drawn count vectors, (draws, *table); flows are drawn given their margins."""
        t, edge, turned = self._locate(scope)
        rows = self.rooted.sizes[t]
        before = self.vectors[states[:, t]]
        if not edge:
            return before[:, :rows].astype(float)
        law, after = self.steps.law(t), self.vectors[states[:, t + 1]]
        drawn = [split_flows(law, a, b, rng=rng) for a, b in zip(before, after, strict=True)]
        tables = np.array(drawn, dtype=float).reshape(len(states), *law.shape)
        tables = tables[:, :rows, : self.rooted.sizes[t + 1]]
        return np.swapaxes(tables, 1, 2) if turned else tables

    def _locate(self, scope: Scope) -> tuple[int, bool, bool]:
        """(first time, whether it is a flow table, whether the scope names the later time first)."""
        place = self.rooted.place(scope)
        return place.node - place.edge, place.edge, place.turned

    def _pull(self, values: Array, taken: tuple[int, ...]) -> Array:
        """values(c + e_i + …) for the count vectors c of the population without the individuals taken out."""
        fewer = count_vectors(self.population - len(taken), self.vectors.shape[1])
        moved = fewer.copy()
        for i in taken:
            moved[:, i] += 1
        return np.asarray(values[..., index_of(moved, self.population)])

    def _flow(self, left: Array, t: int) -> Array:
        """Σ_{a,b} left(a) E[n_ij | a, b] K(a, b) l(b) beta(b) for every row of `left`: (rows, L_t, L_{t+1})."""
        wide, law = self.vectors.shape[1], self.steps.law(t)
        right = self.seen[t + 1] * self.backward[t + 1]
        targets = np.stack([self._pull(right, (j,)) for j in range(wide)], axis=1)
        after = self.steps.matrix(t, self.population - 1) @ targets
        out = np.stack([self._pull(left * self.vectors[:, i], (i,)) @ after for i in range(wide)], axis=1)
        return np.asarray((out * law)[:, : self.rooted.sizes[t], : self.rooted.sizes[t + 1]])

    def _flow_pairs(self, t: int) -> Array:
        """E[n_ij n_kl | y], (L_t, L_{t+1}, L_t, L_{t+1})."""
        wide, law = self.vectors.shape[1], self.steps.law(t)
        rows, columns = self.rooted.sizes[t], self.rooted.sizes[t + 1]
        out = np.zeros((wide, wide, wide, wide))
        if self.population >= 2:
            right = self.seen[t + 1] * self.backward[t + 1]
            targets = {(j, l): self._pull(right, (j, l)) for j in range(wide) for l in range(wide)}
            step = self.steps.matrix(t, self.population - 2)
            after = {key: step @ value for key, value in targets.items()}
            for i in range(wide):
                for k in range(wide):
                    pairs = self.vectors[:, i] * (self.vectors[:, k] - (i == k))
                    left = self._pull(self.forward[t] * pairs, (i, k))
                    for (j, l), value in after.items():
                        out[i, j, k, l] = law[i, j] * law[k, l] * (left @ value)
        table = self._flow(self.forward[t][None], t)[0]
        out = out[:rows, :columns, :rows, :columns]
        for i in range(rows):
            for j in range(columns):
                out[i, j, i, j] += table[i, j]
        return out

    def _products(self, t: int, edge_a: bool, s: int, edge_b: bool) -> Array:
        """E[n_A n_B | y] of an earlier scope A and a later scope B."""
        if edge_a:
            reach, left = t + 1, self._flow_ahead(t)
        else:
            reach, left = t, (self.forward[t] * self.vectors[:, : self.rooted.sizes[t]].T)
        while reach < s:
            left = self.seen[reach + 1] * (left @ self.steps.matrix(reach, self.population))
            reach += 1
        if edge_b:
            return self._flow(left, s)
        return np.asarray((left * self.backward[s]) @ self.vectors[:, : self.rooted.sizes[s]])

    def _flow_ahead(self, t: int) -> Array:
        """Σ_a alpha(a) E[n_ij | a, b] K(a, b) l(b) as a function of b: (flows, count vectors)."""
        wide, law, step = self.vectors.shape[1], self.steps.law(t), self.steps.matrix(t, self.population - 1)
        fewer = count_vectors(self.population - 1, wide)
        rows = []
        for i in range(self.rooted.sizes[t]):
            reached = self._pull(self.forward[t] * self.vectors[:, i], (i,)) @ step
            for j in range(self.rooted.sizes[t + 1]):
                moved = fewer.copy()
                moved[:, j] += 1
                row = np.zeros(len(self.vectors))
                row[index_of(moved, self.population)] = law[i, j] * reached
                rows.append(row * self.seen[t + 1])
        return np.array(rows)


def _shape(table: Array, turned: bool) -> tuple[int, ...]:
    return table.shape[::-1] if turned else table.shape


def count_state_beliefs(problem: Problem) -> CountStateBeliefs:
    """Run the recursion in both directions."""
    rooted, people = problem.model.rooted(), problem.population
    assert rooted is not None
    steps, vectors = Steps(rooted), count_vectors(people, max(2, *rooted.sizes))
    logs = [np.zeros(len(vectors)) for _ in rooted.variables]
    for site in problem.sites:
        t = rooted.index[site.scope[0]]
        with np.errstate(divide="ignore"):
            seen = site.noise.log_prob(site.margin(vectors[:, : rooted.sizes[t]]).astype(float))
        logs[t] = logs[t] + seen.sum(axis=-1)
    forward: list[Array] = []
    scaled: list[Array] = []
    log_evidence = 0.0
    for t, seen in enumerate(logs):
        with np.errstate(divide="ignore"):
            before = (
                np.log(forward[-1] @ steps.matrix(t - 1, people))
                if t
                else log_multinomial(vectors, rooted.initial)
            )
        law, ratio, more = _update(before, seen, rooted, t)
        forward.append(law)
        scaled.append(ratio)
        log_evidence += more
    backward = [np.ones(len(vectors))]
    for t in range(len(logs) - 2, -1, -1):
        backward.insert(0, steps.matrix(t, people) @ (scaled[t + 1] * backward[0]))
    return CountStateBeliefs(
        problem.model,
        people,
        steps,
        vectors,
        tuple(forward),
        tuple(backward),
        tuple(scaled),
        float(log_evidence),
        {"count_vectors": len(vectors)},
    )


def log_multinomial(vectors: NDArray[np.int64], chances: Array) -> Array:
    """log N! Π p_j^n_j / n_j! of count vectors; cells beyond `chances` are impossible."""
    from scipy.special import gammaln, xlogy

    law = np.zeros(vectors.shape[1])
    law[: len(chances)] = chances
    return np.asarray(
        gammaln(vectors[0].sum() + 1.0) + (xlogy(vectors, law) - gammaln(vectors + 1.0)).sum(axis=1)
    )


def _update(before: Array, seen: Array, rooted: RootedTree, t: int) -> tuple[Array, Array, float]:
    """Bayes' rule at time t, from logarithms: alpha_t, l_t / its scale, and the log of the scale."""
    joint = np.where(before > -np.inf, before + seen, -np.inf)
    top = joint.max()
    if top == -np.inf:
        raise ProblemError(
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


def split_flows(
    law: Array, rows: NDArray[np.int64], columns: NDArray[np.int64], *, rng: np.random.Generator
) -> NDArray[np.int64]:
    """An exact draw of one flow table given its margins, P(n_ij | n_u, n_v) ∝ Π P(i, j)^n_ij / n_ij!, row by row."""
    out = np.zeros(law.shape, dtype=np.int64)
    left = columns.copy()
    for i in range(len(rows) - 1):
        options = _rows(int(rows[i]), left)
        log_weight = _log_row(options, law[i]) + _log_rest(law[i + 1 :], rows[i + 1 :], left - options)
        weight = np.exp(log_weight - log_weight.max())
        out[i] = options[rng.choice(len(options), p=weight / weight.sum())]
        left = left - out[i]
    out[-1] = left
    return out


def _rows(total: int, most: NDArray[np.int64]) -> NDArray[np.int64]:
    """All rows of counts with the given total, no entry above `most`."""
    grids = np.meshgrid(*(np.arange(m + 1) for m in most[:-1]), indexing="ij")
    head = np.stack([g.ravel() for g in grids], axis=1)
    tail = total - head.sum(axis=1)
    kept = (tail >= 0) & (tail <= most[-1])
    return np.concatenate([head[kept], tail[kept, None]], axis=1)


def _log_row(counts: NDArray[np.int64], law: Array) -> Array:
    """Σ_j n_j log P_j − log n_j!."""
    from scipy.special import gammaln, xlogy

    return np.asarray((xlogy(counts, law) - gammaln(counts + 1.0)).sum(axis=-1))


def _log_rest(law: Array, rows: NDArray[np.int64], left: NDArray[np.int64]) -> Array:
    """log of the total weight of the remaining rows, for every possible remainder of the columns."""
    if len(rows) == 1:
        return _log_row(left, law[0])
    out = np.full(len(left), -np.inf)
    for k, columns in enumerate(left):
        options = _rows(int(rows[0]), columns)
        logs = _log_row(options, law[0]) + _log_rest(law[1:], rows[1:], columns - options)
        top = logs.max(initial=-np.inf)
        if top > -np.inf:
            out[k] = top + np.log(np.exp(logs - top).sum())
    return out
