"""The Gaussian CGM: the normal law with the counts' exact mean and covariance, Markov on the junction tree.

    GCGM(N, θ) = N(Nμ, NΣ),      Σ_{A,B} = ⟨μ_{A,B}⟩ − μ_A μ_Bᵀ

    log p(z) = −½ [ Σ_C Σ_i (z_C − Nμ_C)²/(Nμ_C) − Σ_S ν(S) Σ_i (z_S − Nμ_S)²/(Nμ_S) ] + const
    (consistent z)

Liu, Sheldon and Dietterich (2014), Definition 1 and Theorem 1, with the N² of their joint of (z_u, z_v)
read as N.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from scipy import linalg, sparse

from headcount import memory
from headcount._types import Array
from headcount.checks import generator, instance, numbers
from headcount.errors import raise_all
from headcount.individual import ModelError
from headcount.population._conditionals import EdgeConditional, NodeConditional, node_conditional
from headcount.population._law import PopulationLaw, Table, sample_gaussian
from headcount.population._minimal import Drop, MinimalCoordinates
from headcount.population._tables import CountTables, RealTables, entry_name
from headcount.tables import dense


@final
@dataclass(frozen=True, eq=False)
class GCGM(PopulationLaw):
    """The Gaussian law of a population's clique and separator counts.

    Parameters
    ----------
    model : Model
        The law of one individual.
    population : int
        N.

    Examples
    --------
    >>> from headcount.individual import MarkovChain
    >>> from headcount.population import GCGM
    >>> law = GCGM(MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], times=(0, 1)), 100)
    >>> law.covariance((0,), (1,))
    array([[ 17.5, -17.5],
           [-17.5,  17.5]])
    >>> law.tree_factor(0, 1).noise
    array([[ 12.5, -12.5],
           [-12.5,  12.5]])
    """

    def coordinates(self, drop: Drop = "most probable") -> MinimalCoordinates:
        """Give the coordinates z̃ in which the covariance has full rank (where every μ > 0)."""
        return MinimalCoordinates.of(self.model, drop)

    def reduced_mean(self, drop: Drop = "most probable") -> Array:
        """E z̃, in the order of `coordinates(drop).cliques`."""
        return self.coordinates(drop).mean(self.population)

    def reduced_covariance(self, drop: Drop = "most probable", *, memory_limit: int | None = None) -> Array:
        """N Σ̃ = N T Σ Tᵀ, dense: block (D, E) is T_{D,A} cov(z_A, z_B) T_{E,B}ᵀ for A ⊇ D, B ⊇ E."""
        coordinates = self.coordinates(drop)
        size = coordinates.dimension
        memory.require(8 * size**2, "the reduced covariance", limit=memory_limit)
        cliques = self.model.junction_tree.cliques
        places = [coordinates.places_inside(c) for c in cliques]
        reductions = [coordinates.reduction(c) for c in cliques]
        matrix = np.empty((size, size))
        for i, a in enumerate(cliques):
            for j, b in enumerate(cliques[: i + 1]):
                block = reductions[i] @ self.covariance(a, b, memory_limit=memory_limit) @ reductions[j].T
                matrix[np.ix_(places[i], places[j])] = block
                matrix[np.ix_(places[j], places[i])] = block.T
        return matrix

    def reduced_precision(self, drop: Drop = "most probable") -> Any:
        """(N Σ̃)⁻¹ as a sparse matrix, assembled over the junction tree without inverting anything.

            Γ = Σ_C pad(Γ_C) − Σ_S ν(S) pad(Γ_S),       Γ_A = H_Aᵀ diag(1/(N μ_A)) H_A

        Γ_A is the Pearson form of one table in its minimal coordinates. Entries between coordinates that no
        clique holds together are structurally zero.

        Raises
        ------
        ModelError
            If some μ_C(i) = 0: the covariance is singular there and has no inverse. `log_density`,
            `sample`, `tree_factor` and the conditionals need none.
        """
        coordinates = self.coordinates(drop)
        self._require_positive()
        size = coordinates.dimension
        total = sparse.csr_array((size, size))
        for scope, sign in self._signed_scopes:
            if not scope:
                continue
            recovery, _ = coordinates.recovery(scope)
            pearson = recovery.T @ sparse.diags_array(1.0 / dense(self._means[scope]).reshape(-1)) @ recovery
            block = sparse.coo_array(pearson)
            places = coordinates.places_inside(scope)
            total = total + sign * sparse.csr_array(
                (block.data, (places[block.row], places[block.col])), shape=(size, size)
            )
        return sparse.csr_array(total)

    def _require_positive(self) -> None:
        raise_all(
            f"{entry_name(self.model, clique, i)} has probability 0, so the reduced covariance is singular; "
            f"use a model without structural zeros, or log_density and tree_factor, which need no inverse"
            for clique in self.model.junction_tree.cliques
            for i in np.argwhere(dense(self._means[clique]) <= 0)
        )

    def tree_factor(self, u: Hashable, v: Hashable) -> NodeConditional:
        """Give p(z_v | z_u) of an edge of a tree: gain P and noise Q, z_v | z_u ~ N(Pᵀ z_u, Q).

        With the root's N(Nμ_r, N(diag μ_r − μ_r μ_rᵀ)) and one factor per edge pointing away from the root
        (any root), the product is the joint law of the node counts. Parts of a model that are not connected
        are joined by edges whose rows of P are all equal.
        """
        u, v = self.model.scope((u, v))
        rooted = self.model.rooted()
        if rooted is None:
            raise ModelError(
                f"the model is no tree, so p(z_{v} | z_{u}) is no factor of it; use conditional_node"
            )
        if (u, v) not in rooted.edge_of and (v, u) not in rooted.edge_of:
            raise ModelError(
                f"{u!r} and {v!r} are not joined by an edge; conditional_node takes any two variables"
            )
        return self.conditional_node(v, given=u)

    def conditional_node(self, variable: Hashable, *, given: Hashable) -> NodeConditional:
        """Give p(z_v | z_u) for any two variables of any model."""
        rooted = self.model.rooted()
        pair = self.model.scope((given, variable))
        gain = None
        if rooted is not None and pair in rooted.edge_of:
            gain = rooted.transitions[rooted.edge_of[pair]]
        table = self._means.get(pair)
        return node_conditional(self.mean(pair) if table is None else table, gain)

    def conditional_edge(self, u: Hashable, v: Hashable) -> EdgeConditional:
        """Give p(z_uv | z_u, z_v), the table of two variables given both their counts."""
        return EdgeConditional(self.mean((u, v)))

    def node_log_density(self, nodes: Mapping[Hashable, Array]) -> float:
        """Log-density of a tree's node counts, edges summed out: log p(z_r) + Σ log p(z_v | z_u).

        In the units of the integer lattice, as `log_density`; −∞ where the model cannot go.
        """
        rooted = self.model.rooted()
        if rooted is None:
            raise ModelError("node_log_density needs a tree; log_density takes the tables of any model")
        instance(nodes, Mapping, "nodes", expected="a mapping from variables to their counts")
        raise_all(f"no counts for the node {v!r}" for v in rooted.variables if v not in nodes)
        z = {v: numbers(nodes[v], f"the counts of {v!r}") for v in rooted.variables}
        raise_all(
            f"the counts of {v!r} have shape {z[v].shape}; give {size} numbers"
            for v, size in zip(rooted.variables, rooted.sizes, strict=True)
            if z[v].shape != (size,)
        )
        root = rooted.variables[0]
        value = node_conditional(self.mean((root,))[None, :]).log_density(
            z[root], np.array([float(self.population)])
        )
        for u, v in rooted.edge_of:
            value += self.tree_factor(u, v).log_density(z[v], z[u])
        return value

    def log_density(
        self,
        tables: CountTables | RealTables,
        *,
        form: Literal["pearson", "reduced"] = "pearson",
        drop: Drop = "most probable",
        tolerance: float = 1e-9,
    ) -> float:
        """Log-density of all clique tables, with respect to Lebesgue measure in minimal coordinates.

        The change from one choice of dropped values to another has determinant ±1, so all choices give the
        same number; it is the measure in which the lattice of consistent integer tables has one point per
        unit of volume. So the density at an integer table approximates its probability, `CGM.log_pmf`.

        Parameters
        ----------
        tables : CountTables or RealTables
        form : {"pearson", "reduced"}
            "pearson" sums squares table by table, with const = −½ [r log 2π + Σ_C Σ_i log Nμ_C − Σ_S ν(S)
            Σ_i log Nμ_S − log N] and r the rank; structural zeros are left out of the sums. "reduced"
            evaluates N(z̃; Nμ̃, NΣ̃) with a dense Cholesky factor; it needs every μ > 0.
        drop
            Which values the reduced form drops.
        tolerance : float
            Relative to N: tables that disagree or use impossible entries by more have density zero.
        """
        if form not in ("pearson", "reduced"):
            raise ModelError(f"form is {form!r}; choose 'pearson' or 'reduced'")
        instance(tables, (CountTables, RealTables), "tables", expected="CountTables or RealTables")
        slack = tolerance * self.population
        if abs(tables.population - self.population) > slack or tables.disagreements(tolerance=slack):
            return -np.inf
        if form == "reduced":
            return self._log_density_reduced(tables, drop)
        value = np.log(self.population)
        for scope, sign in self._signed_scopes:
            z, m = _on_support(tables.table(scope), self._means[scope])
            if abs(tables.table(scope)).sum() - np.abs(z).sum() > slack:
                return -np.inf
            pearson = ((z - m) ** 2 / m).sum() + np.log(m).sum() + (m.size - 1) * np.log(2 * np.pi)
            value -= sign * pearson
        return float(0.5 * value)

    def _log_density_reduced(self, tables: CountTables | RealTables, drop: Drop) -> float:
        self._require_positive()
        coordinates = self.coordinates(drop)
        residual = coordinates.reduce(tables) - coordinates.mean(self.population)
        factor = linalg.cholesky(self.reduced_covariance(drop), lower=True)
        white = linalg.solve_triangular(factor, residual, lower=True)
        log_scale = np.log(np.diagonal(factor)).sum()
        return float(-0.5 * (white @ white) - log_scale - 0.5 * len(residual) * np.log(2 * np.pi))

    def sample(self, *, rng: np.random.Generator | int) -> RealTables:
        """Draw one set of real tables down the junction tree; no matrix is factored."""
        return RealTables(self.model, sample_gaussian(self.model, self._means, rng=generator(rng)))


def _on_support(table: Table, means: Table) -> tuple[Array, Array]:
    """The entries of z and Nμ where μ > 0."""
    if sparse.issparse(means):
        rows = np.repeat(np.arange(means.shape[0]), np.diff(means.indptr))
        held = means.data > 0
        values = np.asarray(sparse.csr_array(table)[rows[held], means.indices[held]], dtype=float)
        return values, means.data[held]
    held = means > 0
    return np.asarray(dense(table), dtype=float)[held], means[held]
