"""Two exact answers that share no code with the engines: all populations one individual at a time, and two-cell chains.

`brute` adds individuals one by one to every reachable set of clique tables,

    P_{k+1}(n + 1_x) += P_k(n) p(x),

and weighs what N individuals can have made by the likelihood. `two_cells` runs forward–backward over the count of one cell,
whose law from one time to the next is Bin(a, p) + Bin(N − a, q).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.stats import binom
from tests.population.oracle import indicators, joint

from headcount.individual import Model
from headcount.observe import Problem


@dataclass(frozen=True)
class Exact:
    """Populations as clique tables side by side, their posterior probabilities, and log p(y)."""

    problem: Problem
    counts: np.ndarray
    weights: np.ndarray
    log_evidence: float

    def table(self, scope: tuple) -> np.ndarray:
        """The table of a scope inside one clique, in every population: (populations, *table)."""
        model, start = self.problem.model, 0
        for clique in model.junction_tree.cliques:
            shape = model.size(clique)
            width = int(np.prod(shape))
            if set(scope) <= set(clique):
                block = self.counts[:, start : start + width].reshape(-1, *shape)
                summed = block.sum(axis=tuple(1 + k for k, v in enumerate(clique) if v not in scope))
                left = [v for v in clique if v in scope]
                return np.transpose(summed, [0, *(1 + left.index(v) for v in scope)])
            start += width
        raise ValueError(scope)

    def mean(self, scope: tuple) -> np.ndarray:
        return np.tensordot(self.weights, self.table(scope), axes=1)

    def variance(self, scope: tuple) -> np.ndarray:
        return np.tensordot(self.weights, (self.table(scope) - self.mean(scope)) ** 2, axes=1)


def populations(model: Model, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Every set of clique tables that `size` individuals can make, and its probability."""
    states, p = joint(model)
    states, p = states[p > 0], p[p > 0]
    one = np.concatenate([indicators(model, states, c) for c in model.junction_tree.cliques], axis=1)
    counts, weights = one, p
    for _ in range(size - 1):
        counts = (counts[:, None, :] + one[None]).reshape(-1, one.shape[1])
        weights = (weights[:, None] * p).reshape(-1)
        counts, index = np.unique(counts, axis=0, return_inverse=True)
        weights = np.bincount(index.reshape(-1), weights)
    return counts, weights


def brute(problem: Problem, listed: tuple[np.ndarray, np.ndarray] | None = None) -> Exact:
    """The exact posterior of a tiny problem; `listed` are its model's populations, if they are known already."""
    counts, weights = populations(problem.model, problem.population) if listed is None else listed
    exact = Exact(problem, counts, weights, 0.0)
    log_likelihood = np.zeros(len(counts))
    for site in problem.sites:
        table = exact.table(site.scope).reshape(len(counts), -1)
        rows = table[:, site.index] if site.index is not None else table @ site.weights.toarray().T
        log_likelihood += site.noise.log_prob(rows.astype(float)).sum(axis=1)
    posterior = weights * np.exp(log_likelihood - log_likelihood.max())
    evidence = float(np.log(posterior.sum()) + log_likelihood.max())
    return Exact(problem, counts, posterior / posterior.sum(), evidence)


@dataclass(frozen=True)
class TwoCells:
    """A two-cell chain's exact posterior: the law of the first cell's count at every time, and log p(y)."""

    law: np.ndarray
    log_evidence: float

    @property
    def mean(self) -> np.ndarray:
        return self.law @ np.arange(self.law.shape[1])

    @property
    def sd(self) -> np.ndarray:
        k = np.arange(self.law.shape[1])
        return np.sqrt(self.law @ k**2 - (self.law @ k) ** 2)


@cache
def _step(stay: float, back: float, population: int) -> np.ndarray:
    """P(n' = b | n = a), (N + 1, N + 1)."""
    k = np.arange(population + 1)
    return np.array(
        [
            np.convolve(
                binom.pmf(k[: a + 1], a, stay), binom.pmf(k[: population - a + 1], population - a, back)
            )
            for a in k
        ]
    )


def two_cells(
    start: float, stay: float, back: float, population: int, log_likelihood: np.ndarray
) -> TwoCells:
    """Forward–backward over {0 … N} for π = (start, 1 − start), P = [[stay, 1 − stay], [back, 1 − back]].

    `log_likelihood` is (T, N + 1): log l of everything seen at a time, given the first cell's count.
    """
    k = np.arange(population + 1)
    step = _step(stay, back, population)
    scaled = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    evidence = float(log_likelihood.max(axis=1).sum())
    forward = [binom.pmf(k, population, start) * scaled[0]]
    for seen in scaled[1:]:
        evidence += np.log(forward[-1].sum())
        forward.append((forward[-1] / forward[-1].sum()) @ step * seen)
    evidence += np.log(forward[-1].sum())
    backward = [np.ones(population + 1)]
    for seen in scaled[:0:-1]:
        message = step @ (seen * backward[-1])
        backward.append(message / message.max())
    law = np.array(forward) * np.array(backward[::-1])
    return TwoCells(law / law.sum(axis=1, keepdims=True), evidence)
