"""The paper's Gaussian law of counts, GCGM: the normal law with their exact mean and covariance, Markov on the junction tree.

The library's engines work with the same law through `headcount.structure`; this is the law itself, as the paper writes it, for
comparison and for the tests.

    GCGM(N, θ) = N(Nμ, NΣ),      Σ_{A,B} = ⟨μ_{A,B}⟩ − μ_A μ_Bᵀ

    log p(z) = −½ [ Σ_C Σ_i (z_C − Nμ_C)²/(Nμ_C) − Σ_S ν(S) Σ_i (z_S − Nμ_S)²/(Nμ_S) ] + const
    (consistent z)

Liu, Sheldon and Dietterich (2014), Definition 1 and Theorem 1, with the N² of their joint of (z_u, z_v)
read as N.

**Minimal coordinates**: a bijection between consistent tables and vectors whose covariance has full rank.

For every clique D of the triangulated graph, maximal or not, keep the configurations in which no variable
takes its dropped value:

    z̃_D = T_{D,A} z_A,    T_{D,A}(i_D, i_A) = 1[i_D and i_A agree on D],    i_D ∈ Π_{v∈D} (X_v ∖ {dropped_v})
    z_A = H_A z̃_{A⁺} + N h_A,       z̃_{A⁺} = (z̃_D : ∅ ≠ D ⊆ A)

H follows variable by variable: the indicator of x_v = i is a coordinate itself for a kept i, one minus the
kept ones for the dropped i, so [h_A, H_A] = ⊗_{v∈A} B_v with B_v the L_v × L_v matrix that says so. All its
entries are 0 or ±1 and its determinant is ±1. Liu, Sheldon and Dietterich (2014), Proposition 3; Loh and
Wainwright (2013).

**A node given another**: z_v | z_u ~ N(Pᵀ z_u, Q),      Q = Σ_i Nμ_u(i) (diag p_i − p_i p_iᵀ)
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from headcount import memory
from headcount._types import Array, Index
from headcount.checks import generator, instance, numbers, whole_number
from headcount.errors import raise_all
from headcount.individual import Model, ModelError
from headcount.individual._model import checked_model
from headcount.population import CGM, CountTables, EdgeConditional, LaplacianFactor, laplacian, star_weights
from headcount.population._cgm import descend, on_support
from headcount.population._tables import entry_name
from headcount.population.laplacian import inverse_or_zero, matrix_of
from headcount.tables import Domain, Scope, dense

Drop = Literal["most probable", "last"] | Mapping[Hashable, int]
SUPPORT_TOLERANCE = 1e-8
"""How far, relative to N, nodes' counts may contradict the model's support before a flow is refused: above the rounding of
sums over 10⁶ cells (10⁻¹⁰), and below one individual for every N up to 10⁸."""
ON_SUBSPACE = 1e-9
"""How far, relative to N, a part's counts may miss what its parent sends there before the density is zero (as `GCGM.log_density`)."""


@final
@dataclass(frozen=True, eq=False)
class RealTables:
    """Real tables z of the Gaussian law, one per clique: like `CountTables`, but any finite real entries."""

    model: Model
    tables: Mapping[Scope, Array]

    def __post_init__(self) -> None:
        given = {c: numbers(self.tables[c], f"table {c!r}") for c in self.model.junction_tree.cliques}
        raise_all(
            f"table {c!r} has shape {z.shape}; give {self.model.size(c)} finite numbers"
            for c, z in given.items()
            if z.shape != self.model.size(c) or not np.isfinite(z).all()
        )
        object.__setattr__(self, "tables", given)

    @property
    def population(self) -> float:
        """N, the sum of the first clique's table."""
        return float(self.tables[self.model.junction_tree.cliques[0]].sum())

    def table(self, scope: Sequence[Hashable]) -> Array:
        """Give z_A of any scope A inside a clique, one axis per variable in the order given."""
        wanted, tree = self.model.scope(scope), self.model.junction_tree
        clique = tree.covering(wanted)
        if clique is None:
            raise ModelError(f"no clique holds all of {wanted!r}")
        return np.asarray(tree.domains[clique].project(self.tables[tree.cliques[clique]], wanted))

    def disagreements(self, *, tolerance: float) -> list[str]:
        """Name the separators on which two cliques differ by more than the tolerance."""
        tree = self.model.junction_tree
        ends = [
            (separator, *(tree.domains[k].project(self.tables[tree.cliques[k]], separator) for k in (a, b)))
            for a, b, separator in tree.edges
        ]
        return [f"{separator!r}" for separator, one, two in ends if np.any(np.abs(one - two) > tolerance)]


@final
@dataclass(frozen=True, eq=False)
class MinimalCoordinates:
    """The coordinates z̃ of a model's tables."""

    model: Model
    dropped: Mapping[Hashable, int]
    """The state (its index) that is left out of every variable."""

    def __post_init__(self) -> None:
        checked_model(self.model)
        instance(self.dropped, Mapping, "dropped", expected="a mapping of variables to state indices")
        object.__setattr__(self, "dropped", _checked_drop(self.model, self.dropped))

    @classmethod
    def of(cls, model: Model, drop: Drop = "most probable") -> MinimalCoordinates:
        """Choose what each variable drops.

        Parameters
        ----------
        model : Model
        drop : {"most probable", "last"} or mapping
            "most probable" keeps the covariance well conditioned; "last" is the paper's choice; a mapping
            names the state index for every variable.
        """
        checked_model(model)
        if isinstance(drop, Mapping):
            return cls(model, drop)
        if isinstance(drop, str) and drop == "most probable":
            return cls(model, {v: int(np.argmax(model.marginal((v,)))) for v in model.variables})
        if isinstance(drop, str) and drop == "last":
            return cls(model, {v: model.size((v,))[0] - 1 for v in model.variables})
        raise ModelError(
            f"drop is {drop!r}; choose 'most probable', 'last', or a mapping of variables to state indices"
        )

    @cached_property
    def cliques(self) -> tuple[Scope, ...]:
        """Every clique D of the triangulated graph, small ones first; variables in the model's order."""
        found = {subset for clique in self.model.junction_tree.cliques for subset in self.inside(clique)}
        return tuple(sorted(found, key=lambda d: (len(d), [self._order[v] for v in d])))

    @cached_property
    def _order(self) -> dict[Hashable, int]:
        return {v: k for k, v in enumerate(self.model.variables)}

    def inside(self, scope: Scope) -> tuple[Scope, ...]:
        """A⁺: the non-empty D ⊆ A, small ones first, variables in the model's order."""
        members = sorted(scope, key=self._order.__getitem__)
        return tuple(d for size in range(1, len(members) + 1) for d in combinations(members, size))

    def width(self, scope: Scope) -> int:
        """The number of entries of z̃_D: Π_{v∈D} (L_v − 1)."""
        return math.prod(length - 1 for length in self.model.size(scope))

    @cached_property
    def _start(self) -> dict[Scope, int]:
        widths = [self.width(d) for d in self.cliques]
        return dict(zip(self.cliques, np.cumsum([0, *widths])[:-1].tolist(), strict=True))

    @cached_property
    def dimension(self) -> int:
        """The length of z̃."""
        return sum(self.width(d) for d in self.cliques)

    def places(self, scope: Scope) -> Index:
        """Where z̃_D stands in z̃, for one clique D of `cliques`."""
        return np.arange(self._start[scope], self._start[scope] + self.width(scope))

    def places_inside(self, scope: Scope) -> Index:
        """Where z̃_{A⁺} stands in z̃, in the order of `inside`."""
        parts = [self.places(d) for d in self.inside(scope)]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.intp)

    def selection(self, clique: Sequence[Hashable], scope: Sequence[Hashable]) -> Any:
        """T_{D,A}: the 0/1 matrix with z̃_D = T_{D,A} z_A, sparse; rows and columns in C order."""
        inner, outer = self.model.domain(clique), self.model.domain(scope)
        if not set(inner.scope) <= set(outer.scope):
            raise ModelError(
                f"{inner.scope!r} is not inside {outer.scope!r}, so its counts are no sums of that table's"
            )
        summed = (outer.positions(inner.scope), np.arange(outer.size))
        margin = sparse.csr_array((np.ones(outer.size), summed), shape=(inner.size, outer.size))
        return margin[self._kept(np.arange(inner.size).reshape(inner.shape), inner.scope)]

    def reduction(self, scope: Sequence[Hashable]) -> Any:
        """T_{A⁺,A}: all T_{D,A} with D ⊆ A, one above the other in the order of `inside`."""
        parts = [self.selection(d, scope) for d in self.inside(self.model.scope(scope))]
        return sparse.csr_array(sparse.vstack(parts))

    def recovery(self, scope: Sequence[Hashable]) -> tuple[Any, Array]:
        """Give H_A (sparse) and h_A with z_A = H_A z̃_{A⁺} + N h_A.

        The columns of ⊗_v B_v run over every choice of "left out" or a kept value per variable; grouping
        them by which variables are kept gives one block per D ⊆ A, the empty one being h.
        """
        outer = self.model.scope(scope)
        sizes = self.model.size(outer)
        blocks = [_recover_one(length, self.dropped[v]) for v, length in zip(outer, sizes, strict=True)]
        whole = sparse.csc_array(reduce(sparse.kron, blocks, sparse.csr_array(np.ones((1, 1)))))
        grid = np.arange(whole.shape[1]).reshape(sizes)
        columns = [self._columns(grid, outer, d) for d in self.inside(outer)]
        order = np.concatenate(columns) if columns else np.empty(0, dtype=np.intp)
        return sparse.csr_array(whole[:, order]), whole[:, [0]].toarray().reshape(-1)

    def _columns(self, grid: Index, outer: Scope, inner: Scope) -> Index:
        taken = grid[tuple(slice(1, None) if v in inner else 0 for v in outer)]
        return Domain(tuple(v for v in outer if v in inner), taken.shape).project(taken, inner).reshape(-1)

    def reduce(self, tables: CountTables | RealTables) -> Array:
        """Give z̃ = T z."""
        return np.concatenate([self._kept(dense(tables.table(d)).astype(float), d) for d in self.cliques])

    def recover(self, reduced: Array, population: float) -> RealTables:
        """Give every clique's table back from z̃ and N."""
        tables = {}
        for clique in self.model.junction_tree.cliques:
            matrix, offset = self.recovery(clique)
            flat = matrix @ reduced[self.places_inside(clique)] + population * offset
            tables[clique] = flat.reshape(self.model.size(clique))
        return RealTables(self.model, tables)

    def mean(self, population: float) -> Array:
        """E z̃ = N μ̃."""
        return population * np.concatenate([self._kept(self.model.marginal(d), d) for d in self.cliques])

    def _kept(self, table: NDArray[Any], scope: Scope) -> NDArray[Any]:
        """The entries of a table in which no variable takes its dropped value, in C order."""
        for axis, v in enumerate(scope):
            table = np.delete(table, self.dropped[v], axis=axis)
        return table.reshape(-1)


def _checked_drop(model: Model, drop: Mapping[Hashable, int]) -> dict[Hashable, int]:
    """One state index per variable."""
    problems = [f"drop does not say which state of {v!r}" for v in model.variables if v not in drop]
    problems += [
        f"drop names state {drop[v]!r} of {v!r}, which has {model.size((v,))[0]}"
        for v in model.variables
        if v in drop and drop[v] not in range(model.size((v,))[0])
    ]
    raise_all(problems)
    return {v: int(drop[v]) for v in model.variables}


def _recover_one(length: int, dropped: int) -> Any:
    """B_v: (1, kept indicators) ↦ all indicators of one variable; column 0 is the constant."""
    matrix = np.zeros((length, length))
    kept = [i for i in range(length) if i != dropped]
    matrix[kept, np.arange(1, length)] = 1.0
    matrix[dropped, 0] = 1.0
    matrix[dropped, 1:] = -1.0
    return sparse.csr_array(matrix)


@final
@dataclass(frozen=True, eq=False)
class GCGM:
    """The Gaussian law of the clique and separator counts: of a `Model` and N.

    Examples
    --------
    >>> import headcount as hc
    >>> chain = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], times=(0, 1))
    >>> law = GCGM(chain, 100)
    >>> law.covariance((0,), (1,))
    array([[ 17.5, -17.5],
           [-17.5,  17.5]])
    >>> law.tree_factor(0, 1).noise
    array([[ 12.5, -12.5],
           [-12.5,  12.5]])
    """

    model: Model
    """The law of one individual."""
    population: int
    """N."""

    def __post_init__(self) -> None:
        checked_model(self.model)
        object.__setattr__(self, "population", whole_number(self.population, "population", least=1))

    @cached_property
    def _exact(self) -> CGM:
        """The exact law, which has the same moments."""
        return CGM(self.model, self.population)

    @property
    def _means(self) -> Mapping[Scope, Any]:
        return self._exact.means

    def mean(self, scope: Sequence[Hashable]) -> Array:
        """E z_A = N μ_A, one axis per variable; any scope A."""
        return self._exact.mean(scope)

    def covariance(
        self, a: Sequence[Hashable], b: Sequence[Hashable] | None = None, *, memory_limit: int | None = None
    ) -> Array:
        """cov(z_A, z_B) = N (⟨μ_{A,B}⟩ − μ_A μ_Bᵀ); entries in C order of the tables."""
        return self._exact.covariance(a, b, memory_limit=memory_limit)

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
        for scope, sign in self._exact.signed_scopes:
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
        for scope, sign in self._exact.signed_scopes:
            z, m = on_support(tables.table(scope), self._means[scope])
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


def log_determinant(factor: LaplacianFactor) -> float:
    """Log-determinant of S without one row and column of every part (whichever: all give the same)."""
    return 2.0 * float(np.log(factor.root[factor.order[: factor.rank], np.arange(factor.rank)]).sum())


@final
@dataclass(frozen=True, eq=False)
class NodeConditional:
    """z_v | z_u ~ N(Pᵀ z_u, Q).

    Attributes
    ----------
    gain : array or csr_array, shape (L_u, L_v)
        P, P[i, j] = P(x_v = j | x_u = i). A row that cannot occur is what the model says of it, or zero if
        it says nothing.
    noise : array or csr_array, shape (L_v, L_v)
        Q; its rows sum to zero.
    """

    gain: Any
    noise: Any

    def mean(self, given: Array) -> Array:
        """Pᵀ z_u, shape (L_v,)."""
        return np.asarray(self.gain.T @ np.asarray(given, dtype=float))

    def log_density(self, value: Array, given: Array) -> float:
        """Log N(z_v; Pᵀ z_u, Q) on the subspace Q spans, in lattice units (see `GCGM.log_density`)."""
        weights = -dense(self.noise)
        np.fill_diagonal(weights, 0.0)
        factor = LaplacianFactor(weights)
        residual = np.asarray(value, dtype=float) - self.mean(given)
        scale = max(float(np.abs(given).sum()), 1.0)
        if any(abs(residual[part].sum()) > ON_SUBSPACE * scale for part in factor.parts):
            return -np.inf
        quadratic = float(residual @ factor.solve(residual))
        return -0.5 * (factor.rank * np.log(2 * np.pi) + log_determinant(factor) + quadratic)


def node_conditional(table: Any, gain: Any = None) -> NodeConditional:
    """The law of z_v given z_u from M = Nμ_uv, dense or sparse; pass the `gain` if the model knows it."""
    table = table if sparse.issparse(table) else matrix_of(table, "table")
    inverse = inverse_or_zero(np.asarray(table.sum(axis=1)).reshape(-1))
    if not sparse.issparse(table):
        return NodeConditional(
            table * inverse[:, None] if gain is None else gain, laplacian(star_weights(table))
        )
    transition = sparse.csr_array(sparse.diags_array(inverse) @ table) if gain is None else gain
    root = sparse.diags_array(np.sqrt(inverse)) @ table
    weights = sparse.csr_array(root.T @ root)
    weights.setdiag(0.0)
    weights.eliminate_zeros()
    noise = sparse.csr_array(sparse.diags_array(np.asarray(weights.sum(axis=1)).reshape(-1)) - weights)
    return NodeConditional(transition, noise)


def edge_mean(edge: EdgeConditional, first: Array, second: Array) -> Array:
    """E[z_uv | z_u, z_v], shape (L_u, L_v); its margins are z_u and z_v.

    Raises
    ------
    ModelError
        If no table on the model's support has these margins.
    """
    z_u, z_v = numbers(first, "first"), numbers(second, "second")
    if z_u.shape != edge.table.shape[:1] or z_v.shape != edge.table.shape[1:]:
        raise ModelError(
            f"first has shape {z_u.shape} and second {z_v.shape}; give the counts of {edge.table.shape} states"
        )
    a, b = z_u - edge.table.sum(axis=1), z_v - edge.table.sum(axis=0)
    tolerance = SUPPORT_TOLERANCE * max(float(edge.table.sum()), 1.0)
    problems = [
        f"state {i} of the first node holds {a[i]:.6g}, but the model never puts anyone there"
        for i in np.flatnonzero((edge.over_rows <= 0) & (np.abs(a) > tolerance))
    ]
    gaps = b - edge.gain.T @ a
    problems += [
        f"states {part.tolist()} of the second node hold {gaps[part].sum():.6g} more than can come from the first node"
        for part in edge.noise.parts
        if abs(gaps[part].sum()) > tolerance
    ]
    raise_all(problems)
    return edge.table + edge.flow(a, b)


def edge_covariance(edge: EdgeConditional) -> Array:
    """The whole covariance of z_uv given z_u and z_v, shape (L_u L_v, L_u L_v), C order."""
    rows, columns = edge.table.shape
    memory.require(8 * (rows * columns) ** 2, "the covariance of an edge's table")
    incidence = np.concatenate(
        [np.kron(np.eye(rows), np.ones(columns)), np.kron(np.ones(rows), np.eye(columns))]
    )
    driven = incidence * edge.table.reshape(-1)
    through = driven.T @ np.concatenate(edge.potentials(driven[:rows], driven[rows:]))
    return np.diag(edge.table.reshape(-1)) - 0.5 * (through + through.T)


def sample_gaussian(
    model: Model, means: Mapping[Scope, Any], *, rng: np.random.Generator
) -> dict[Scope, Array]:
    """One draw of every clique's table from the Gaussian law, root first.

        z_C(s, ·) = p(· | s) z_S(s) + w − p(· | s) Σ w
        w(i) ~ N(0, Nμ_C(s, i)) independent,    p(· | s) = μ_C(s, ·)/μ_S(s)

    w − p Σw has covariance Nμ_S(s) (diag p − p pᵀ), the conditional covariance, so nothing needs to be
    factored.
    """
    total = np.array(means[model.junction_tree.cliques[0]].sum())
    return descend(model, total, lambda above, c, s: _spread(above, dense(means[c.scope]), c, s, rng))


def _spread(
    above: Array,
    means: Array,
    clique: Domain,
    separator: Scope,
    rng: np.random.Generator,
) -> Array:
    flat, back = clique.by_rows(means, separator)
    total = flat.sum(axis=1, keepdims=True)
    shares = np.where(total > 0, flat / np.where(total > 0, total, 1.0), 0.0)
    noise = rng.standard_normal(flat.shape) * np.sqrt(flat)
    drawn = shares * (np.reshape(above, (-1, 1)) - noise.sum(axis=1, keepdims=True)) + noise
    return back(drawn)
