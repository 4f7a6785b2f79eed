"""What a sampler learned: estimated moments with their Monte-Carlo errors, and the configurations it kept."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headcount.engines.sampling._chain_statistics import BatchMoments, effective_size, expected_l1, r_hat
from headcount.engines.sampling._raking import rake
from headcount.engines.sampling._sampling_arrays import SamplingArrays
from headcount.posterior._beliefs import Beliefs, Promises

if TYPE_CHECKING:
    from headcount.engines.sampling._path_gibbs import PathRun

Array = NDArray[np.float64]
Scope = tuple[Hashable, ...]


@dataclass(frozen=True, eq=False)
class SampleBeliefs(Beliefs):
    """Means, variances and errors of node and edge tables, from several chains.

    Attributes
    ----------
    node_mean, node_variance, node_error
        Flat over the cells of all nodes: posterior mean, posterior variance, Monte-Carlo standard error of the mean.
    edge_mean, edge_variance, edge_error
        The same over all edge tables.
    node_draws
        Node counts of the kept sweeps, (chains, draws, cells).
    snapshots
        Whole configurations: edge tables, (snapshots, entries).
    """

    arrays: SamplingArrays
    node_mean: Array
    node_variance: Array
    node_error: Array
    edge_mean: Array
    edge_variance: Array
    edge_error: Array
    node_draws: NDArray[np.int32]
    snapshots: Snapshots
    diagnostics: Mapping[str, Any]
    log_evidence: float | None = None

    def mean(self, scope: Scope) -> Array:
        """Estimated posterior mean."""
        return self.arrays.pick(scope, self.node_mean, self.edge_mean)

    def variance(self, scope: Scope) -> Array:
        """Estimated posterior variance."""
        return self.arrays.pick(scope, self.node_variance, self.edge_variance)

    def error(self, scope: Scope) -> Array:
        """Monte-Carlo standard error of the mean."""
        return self.arrays.pick(scope, self.node_error, self.edge_error)

    def covariance(self, a: Scope, b: Scope) -> Array:
        """Sample covariance: over all kept sweeps for two nodes, over the whole configurations kept when flows take part."""
        first, second = self._draws(a, b)
        return np.asarray((first - first.mean(axis=0)).T @ (second - second.mean(axis=0)) / (len(first) - 1))

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool = True) -> dict[Scope, Array]:
        """Configurations that the chains visited, picked at random; with replacement when more are asked for than were kept."""
        del integer  # counts are integers already
        kept = self._kept()
        pick = rng.choice(kept, size=size, replace=size > kept)
        nodes, edges = self._configurations([int(k) for k in pick])
        return {scope: self.arrays.pick(scope, nodes, edges) for scope in self.arrays.cliques}

    def quantile(self, scope: Scope, level: float) -> Array:
        """Sample quantile of every entry (the smallest count with at least `level` of the draws at or below it)."""
        draws = self._draws(scope, scope)[0]
        table = np.quantile(draws, level, axis=0, method="inverted_cdf")
        return np.asarray(table.reshape(self.mean(scope).shape), dtype=float)

    @property
    def promises(self) -> Promises:
        """Averages of counts: ≥ 0, consistent, summing to N."""
        consistent = self.diagnostics.get("raking_residual", 0.0) <= 1e-9
        return Promises(non_negative=True, consistent=consistent)

    def _kept(self) -> int:
        kept = len(self.snapshots)
        if kept == 0:
            raise ValueError(
                "no whole configurations were kept: run the sampler with draws ≥ 1 (they may not have fitted in memory)"
            )
        return kept

    def _draws(self, a: Scope, b: Scope) -> tuple[Array, Array]:
        """Draws of two tables from the same sweeps, flattened, (draws, size)."""
        if self.arrays.locate(a)[0] == self.arrays.locate(b)[0] == "node":
            flat = self.node_draws.reshape(-1, self.arrays.cells)
            return tuple(flat[:, self.arrays.node(self.arrays.index[s[0]])].astype(float) for s in (a, b))  # type: ignore[return-value]
        kept = self._kept()
        nodes, edges = self._configurations(list(range(kept)))
        return tuple(self.arrays.pick(s, nodes, edges).reshape(kept, -1) for s in (a, b))  # type: ignore[return-value]

    def _configurations(self, which: list[int]) -> tuple[Array, Array]:
        """Node and edge tables of some of the configurations kept, (number, cells) and (number, entries)."""
        nodes = [self.snapshots.nodes(self.arrays, k) for k in which]
        edges = [self.snapshots.edges(self.arrays, k) for k in which]
        return (
            np.array(nodes, dtype=float).reshape(len(which), self.arrays.cells),
            np.array(edges, dtype=float).reshape(len(which), self.arrays.entries),
        )


@dataclass(frozen=True, eq=False)
class Snapshots:
    """Whole configurations, as paths (V, N) or as flat edge tables, whichever the sampler holds."""

    paths: tuple[NDArray[np.int16], ...] = ()
    tables: tuple[NDArray[np.int32], ...] = ()
    first: tuple[NDArray[np.int32], ...] = ()

    def __len__(self) -> int:
        return len(self.paths) or len(self.first)

    def edges(self, arrays: SamplingArrays, k: int) -> NDArray[np.int64]:
        """All edge tables of configuration k, flat."""
        if not self.paths:
            return self.tables[k].astype(np.int64)
        from headcount.engines.sampling._sweep_paths import edge_counts

        table = np.zeros(arrays.entries, dtype=np.int64)
        edge_counts(arrays.tree, self.paths[k], table)
        return table

    def nodes(self, arrays: SamplingArrays, k: int) -> NDArray[np.int64]:
        """All node tables of configuration k, flat."""
        out = np.zeros(arrays.cells, dtype=np.int64)
        edges = self.edges(arrays, k)
        for v in range(len(arrays.variables)):
            if self.paths:
                out[arrays.node(v)] = np.bincount(self.paths[k][v], minlength=int(arrays.tree.sizes[v]))
            elif v == 0:
                out[arrays.node(0)] = self.first[k]
            else:
                out[arrays.node(v)] = edges[arrays.edge(v)].reshape(-1, int(arrays.tree.sizes[v])).sum(axis=0)
        return out


def sample_beliefs(run: PathRun) -> SampleBeliefs:
    """The path sampler's answer: blended node means, raked edge means, spreads from the counts themselves."""
    arrays, chains = run.arrays, run.chains
    nodes, edges = merged([c.nodes for c in chains]), merged([c.edges for c in chains])
    share, (cells, entries) = run.share, (arrays.cells, arrays.entries)
    node_mean = normalised(arrays, nodes.blend(share))
    edge_mean, residual = rake_tree(arrays, node_mean, edges.smooth)
    totals = np.sum([c.totals for c in chains], axis=0) / sum(c.sweeps for c in chains)
    node_square, edge_square, edge_counted = np.split(totals, [cells, cells + entries])
    node_error, edge_error = nodes.standard_error(share), edges.standard_error(1.0)
    draws = run.node_draws()
    diagnostics = {
        **mixing(draws),
        "floor": floor(node_error, node_mean, edge_error, edge_mean),
        "accepted": run.accepted,
        "whole_path_proposals": run.proposing,
        "counting_share": float(share.mean()),
        "exact_individuals": run.exact,
        "raking_residual": residual,
        "sweeps": sum(c.sweeps for c in chains),
    }
    return SampleBeliefs(
        arrays=arrays,
        node_mean=node_mean,
        node_variance=spread(nodes.raw, node_square, node_mean),
        node_error=node_error,
        edge_mean=edge_mean,
        edge_variance=spread(edge_counted, edge_square, edge_mean),
        edge_error=edge_error,
        node_draws=draws,
        snapshots=Snapshots(paths=tuple(s for c in chains for s in c.snapshots)),
        diagnostics=diagnostics,
    )


def normalised(arrays: SamplingArrays, nodes: Array) -> Array:
    """Node tables scaled to N: counting and smoothing sum to N each, their blend with a share for every entry only nearly."""
    starts = arrays.tree.node_start
    return np.asarray(
        nodes * np.repeat(arrays.population / np.add.reduceat(nodes, starts[:-1]), np.diff(starts))
    )


def floor(node_error: Array, node_mean: Array, edge_error: Array, edge_mean: Array) -> dict[str, float]:
    """The relative L1 distance that Monte-Carlo noise alone makes, for nodes and for flows."""
    edge = expected_l1(edge_error, edge_mean) if edge_mean.size else 0.0
    return {"node": expected_l1(node_error, node_mean), "edge": edge}


def spread(raw: Array, square: Array, mean: Array) -> Array:
    """Posterior variance from E n² and E n as counted.

    For rare entries (mean < 0.1), which a finite run may never see occupied, E[n(n − 1)] + m − m² with the better mean m.
    """
    pairs = np.maximum(square - raw, 0.0)
    return np.where(mean < 0.1, pairs + mean - mean**2, np.maximum(square - raw**2, 0.0))


def mixing(draws: NDArray[np.int32]) -> dict[str, Any]:
    """R-hat and effective sample size over node counts that moved."""
    ratio, size = r_hat(draws), effective_size(draws)
    moved = np.isfinite(size)
    return {
        "r_hat": float(ratio.max()),
        "ess_min": float(size[moved].min()) if moved.any() else float("nan"),
        "ess_median": float(np.median(size[moved])) if moved.any() else float("nan"),
    }


def rake_tree(
    arrays: SamplingArrays, nodes: Array, edges: Array, *, tolerance: float = 1e-13
) -> tuple[Array, float]:
    """Every edge table raked to the node means at its two ends; also the largest margin error left, relative to N."""
    out, worst = np.empty_like(edges), 0.0
    for v in range(1, len(arrays.variables)):
        rows, columns = nodes[arrays.node(int(arrays.tree.parent[v]))], nodes[arrays.node(v)]
        table = rake(
            edges[arrays.edge(v)].reshape(rows.size, columns.size), rows, columns, tolerance=tolerance
        )
        worst = max(
            worst,
            float(np.abs(table.sum(axis=1) - rows).max()),
            float(np.abs(table.sum(axis=0) - columns).max()),
        )
        out[arrays.edge(v)] = table.ravel()
    return out, worst / arrays.population


def merged(parts: list[BatchMoments]) -> BatchMoments:
    total = parts[0]
    for part in parts[1:]:
        total = total.merge(part)
    return total
