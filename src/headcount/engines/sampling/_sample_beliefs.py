"""What a sampler learned: estimated moments with their Monte-Carlo errors, and the configurations it kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.engines.sampling._statistics import effective_size, expected_l1, r_hat
from headcount.posterior import Beliefs, Promises

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headcount._types import Array, Scope
    from headcount.engines.sampling._arrays import SamplingArrays
    from headcount.engines.sampling._sampler import Run

RARE = 0.1
"""Mean counts below which the variance uses the better mean: a run may never see such an entry occupied; no derivation."""


@dataclass(frozen=True, eq=False)
class SampleBeliefs(Beliefs):
    """Means, variances and errors of node and edge tables, from several chains.

    Attributes
    ----------
    means, variances, errors
        Posterior means, posterior variances, Monte-Carlo standard errors of the means: each flat over the cells of all nodes, and flat
        over all edge tables.
    node_draws
        Node counts of the kept sweeps, (chains, draws, cells).
    snapshots
        Whole configurations as the sampler holds them; `tables` turns one into flat node and edge tables.
    """

    arrays: SamplingArrays
    means: tuple[Array, Array]
    variances: tuple[Array, Array]
    errors: tuple[Array, Array]
    node_draws: NDArray[Any]
    snapshots: tuple[Any, ...]
    tables: Callable[[Any], tuple[NDArray[Any], NDArray[Any]]]
    diagnostics: Mapping[str, Any]
    log_evidence: float | None = None

    def mean(self, scope: Scope) -> Array:
        """Estimated posterior mean."""
        return self.arrays.pick(scope, *self.means)

    def variance(self, scope: Scope) -> Array:
        """Estimated posterior variance."""
        return self.arrays.pick(scope, *self.variances)

    def error(self, scope: Scope) -> Array:
        """Monte-Carlo standard error of the mean."""
        return self.arrays.pick(scope, *self.errors)

    def covariance(self, a: Scope, b: Scope) -> Array:
        """Sample covariance: over all kept sweeps for two nodes, over the whole configurations kept when flows take part."""
        first, second = self._draws(a, b)
        return np.asarray((first - first.mean(axis=0)).T @ (second - second.mean(axis=0)) / (len(first) - 1))

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool = True) -> dict[Scope, Array]:
        """Configurations that the chains visited, picked at random; with replacement when more are asked for than were kept."""
        del integer  # counts are integers already
        kept = self._kept()
        nodes, edges = self._configurations(rng.choice(kept, size=size, replace=size > kept))
        return {scope: self.arrays.pick(scope, nodes, edges) for scope in self.arrays.cliques}

    def quantile(self, scope: Scope, level: float) -> Array | None:
        """Sample quantile of every entry (the smallest count with at least `level` of the draws at or below it).

        None for flows when no whole configurations were kept: the moments then have to do.
        """
        if len(scope) > 1 and not self.snapshots:
            return None
        draws = self._draws(scope, scope)[0]
        table = np.quantile(draws, level, axis=0, method="inverted_cdf")
        return np.asarray(table.reshape(self.mean(scope).shape), dtype=float)

    @property
    def has_draws(self) -> bool:
        """Whether whole configurations were kept."""
        return bool(self.snapshots)

    @property
    def promises(self) -> Promises:
        """Averages of counts: ≥ 0, consistent, summing to N."""
        consistent = self.diagnostics.get("raking_residual", 0.0) <= 1e-9
        return Promises(non_negative=True, consistent=consistent)

    def _draws(self, a: Scope, b: Scope) -> tuple[Array, Array]:
        """Draws of two tables from the same sweeps, flattened, (draws, size)."""
        if len(a) == len(b) == 1:
            nodes, edges = self.node_draws.reshape(-1, self.arrays.cells), np.zeros((1, 0))
        else:
            nodes, edges = self._configurations(range(self._kept()))
        first, second = (self.arrays.pick(s, nodes, edges) for s in (a, b))
        return first.reshape(len(first), -1).astype(float), second.reshape(len(second), -1).astype(float)

    def _kept(self) -> int:
        if not self.snapshots:
            raise ValueError(
                "no whole configurations were kept: run the sampler with draws ≥ 1 (they may not have fitted in memory)"
            )
        return len(self.snapshots)

    def _configurations(self, which: Iterable[int]) -> tuple[Array, Array]:
        """Node and edge tables of some of the configurations kept, (number, cells) and (number, entries)."""
        rows = list(which)
        nodes, edges = np.empty((len(rows), self.arrays.cells)), np.empty((len(rows), self.arrays.entries))
        for row, k in enumerate(rows):
            nodes[row], edges[row] = self.tables(self.snapshots[k])
        return nodes, edges


def sample_beliefs(
    run: Run,
    means: tuple[Array, Array],
    errors: tuple[Array, Array],
    tables: Callable[[Any], tuple[NDArray[Any], NDArray[Any]]],
    found: Mapping[str, Any],
) -> SampleBeliefs:
    """A sampler's answer: its means and errors of nodes and of flows; variances from the counts themselves, over all chains."""
    cells, entries = run.arrays.cells, run.arrays.entries
    totals = np.sum([c.totals for c in run.chains], axis=0) / sum(c.length for c in run.chains)
    node_square, edge_square, edge_counted = np.split(totals, [cells, cells + entries])
    node_counted = np.mean([c.nodes.raw for c in run.chains], axis=0)
    draws = run.node_draws()
    # The relative L1 distance that Monte-Carlo noise alone makes.
    node_floor, edge_floor = map(expected_l1, errors, means)
    return SampleBeliefs(
        arrays=run.arrays,
        means=means,
        variances=(spread(node_counted, node_square, means[0]), spread(edge_counted, edge_square, means[1])),
        errors=errors,
        node_draws=draws,
        snapshots=tuple(s for c in run.chains for s in c.snapshots),
        tables=tables,
        diagnostics={**mixing(draws), "floor": {"node": node_floor, "edge": edge_floor}, **found},
    )


def spread(raw: Array, square: Array, mean: Array) -> Array:
    """Posterior variance from E n² and E n as counted.

    For rare entries (mean < `RARE`), which a finite run may never see occupied, E[n(n − 1)] + m − m² with the better mean m.
    """
    pairs = np.maximum(square - raw, 0.0)
    return np.where(mean < RARE, pairs + mean - mean**2, np.maximum(square - raw**2, 0.0))


def mixing(draws: NDArray[Any]) -> dict[str, Any]:
    """R-hat (NaN below four draws per chain) and effective sample size over node counts that moved."""
    ratio, size = r_hat(draws), effective_size(draws)
    moved = np.isfinite(size)
    return {
        "r_hat": float(ratio.max()),
        "ess_min": float(size[moved].min()) if moved.any() else float("nan"),
        "ess_median": float(np.median(size[moved])) if moved.any() else float("nan"),
    }
