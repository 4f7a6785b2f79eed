r"""Any junction tree: the covariance of what is observed, and of every table with it.

With f the m observed counts and K their prior covariance (`_clique_passes`), everything else is algebra on m numbers: under sites, f has
the posterior of one node of a Gaussian tree with the factor :math:`K = RR^\top`, and a table A follows by regression,

.. math:: E[z_A \mid y] = C_A K^+ E[f \mid y], \qquad
          \mathrm{var}[z_A \mid y] = \mathrm{var}\,z_A - \mathrm{diag}\;C_A K^+ (K - V) K^+ C_A^\top,

with :math:`C_A = \mathrm{cov}(z_A, f)` and V the posterior covariance of f. Counts that follow from others (all cells of a variable
sum to N) are left out of :math:`K^+` by a pivoted Cholesky factor, scaled so that the count of a rare cell keeps its digits.
A table that lies in no clique is cut by the states of its first variables, each a law given that state.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from headcount import memory
from headcount._linalg import (
    add_to_diagonal,
    apply,
    cholesky,
    divide_right,
    fortran,
    product,
    row_dots,
    threads_for,
)
from headcount.checks import instance
from headcount.individual import Model
from headcount.structure._clique_passes import CHUNK, CliquePasses
from headcount.structure._gaussian_tree import Node, PlacedSites, Placement
from headcount.structure.base import Field, KnownCounts, Moments, NotPositiveDefinite, Structure, by_site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headcount._linalg import Array
    from headcount.observe import Site
    from headcount.structure._gaussian_tree import Solution
    from headcount.tables import Scope

FOLLOWS = 1e-13
"""Squared pivot of the correlation matrix below which a count follows from those before it: rounding of sums of about 100 terms."""
NO_FREEDOM = 1e-11
"""A variance below this share of the prior's is rounding of the difference of two equal terms."""


class JunctionStructure(Structure, kind="junction tree"):
    """The Gaussian law of a (tilted) discrete model's counts on its junction tree.

    Parameters
    ----------
    model
        The individual's law the Gaussian is made at, tilts already in it.
    population, sites, known
        See :class:`Structure`.
    flock
        Individuals that move as one: factor on all covariances given N.
    spread
        Variance of the number of individuals, whose mean is ``population``; 0 where it is known.
    """

    def __init__(
        self,
        model: Model,
        population: float,
        sites: Sequence[Site],
        known: KnownCounts | None = None,
        *,
        flock: float = 1.0,
        spread: float = 0.0,
    ) -> None:
        instance(model, Model, "model", expected="a Model")
        self.model, self.flock, self.spread = model, flock, spread
        super().__init__(population, sites, known)
        self.individuals = flock * self.population
        self.passes = CliquePasses(model.clique_law, model.possible, self.individuals, self.sites, spread)
        with threads_for(max(len(self.passes.mean), 1)):
            self.root, self.free = _root(self.passes.covariance())
        ends = np.cumsum([0, *(len(site) for site in self.sites)])
        places = (Placement(0, np.arange(a, b)) for a, b in pairwise(ends.tolist()))
        self.placed = PlacedSites(tuple(places), self.known)
        self.gaussian = self.placed.settle([Node(-1, self.root)], scale=self.population)

    def _solution(self, tau: Sequence[Array], nu: Sequence[Array], *, keep: bool) -> Solution:
        return self.gaussian.solve(*self.placed.by_node(self.gaussian, tau, nu), keep=keep)

    def solve(self, tau: Sequence[Array], nu: Sequence[Array]) -> Moments:
        """See :class:`Structure`."""
        if self.known.exact or self.known.readings:
            found = self._solution(tau, nu, keep=False)
            mean, variance, log_z = found.mean[0], found.variance[0], found.log_z
        else:
            mean, variance, log_z = self._diagonal(
                *(np.concatenate([np.zeros(0), *values]) for values in (tau, nu))
            )
        return Moments(by_site(mean, self.sites), by_site(variance, self.sites), log_z)

    def _diagonal(self, tau: Array, nu: Array) -> tuple[Array, Array, float]:
        """Moments where all that is known are sites: variances alone take a quarter of the products of a whole covariance."""
        with threads_for(max(len(tau), 1)):
            b = product(self.root, fortran(tau[:, None] * self.root), left=True)
            add_to_diagonal(b, 1.0)
            lower = cholesky(b)
            if lower is None:
                raise NotPositiveDefinite
            x = divide_right(self.root.copy(order="F"), lower)
            w = apply(x, nu, transpose=True)
        return apply(x, w), row_dots(x, x), 0.5 * float(w @ w) - float(np.log(np.diagonal(lower)).sum())

    def field(self, tau: Sequence[Array], nu: Sequence[Array]) -> JunctionField:
        """See :class:`Structure`."""
        return JunctionField(self, self._solution(tau, nu, keep=True))


def _root(covariance: Array) -> tuple[Array, np.ndarray]:
    """R with R Rᵀ the covariance, its rows' scale kept to rounding, and the rows that the others follow from."""
    scale = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    live = scale > 0
    over = np.where(live, 1.0 / np.where(live, scale, 1.0), 0.0)
    if not live.any():
        return np.zeros((len(scale), 0), order="F"), np.zeros(0, np.intp)
    factor, pivots, rank, _ = dpstrf(over[:, None] * covariance * over, tol=FOLLOWS, lower=1)
    order = pivots - 1
    root = np.zeros((len(scale), rank), order="F")
    root[order] = np.tril(factor)[:, :rank]
    return fortran(scale[:, None] * root), order[:rank]


@dataclass(frozen=True)
class WholeTable:
    """A table of which every entry is looked at, in the place of a site."""

    scope: Scope
    index: np.ndarray
    weights: None = None

    def __len__(self) -> int:
        return len(self.index)


class JunctionField(Field):
    """Every table by its regression on the observed counts."""

    def __init__(self, structure: JunctionStructure, solution: Solution) -> None:
        self.structure, self.solution = structure, solution
        self.f_mean = solution.mean[0]
        assert solution.covariance is not None
        self.f_covariance = solution.covariance[0]

    @cached_property
    def _lower(self) -> Array:
        """L, lower triangular: L Lᵀ is the covariance of the counts that all others follow from."""
        return self.structure.root[self.structure.free]

    def _weights(self, gap: Array) -> Array:
        """K⁺ gap, (counts, columns)."""
        free, found = self.structure.free, np.zeros_like(gap)
        half = solve_triangular(self._lower, gap[free], lower=True)
        found[free] = solve_triangular(self._lower, half, lower=True, trans="T")
        return found

    @cached_property
    def _means(self) -> list[Array]:
        """Mean deviations of the possible entries of all cliques, by one pass."""
        return [
            found[:, 0] for found in self.structure.passes.clique_values(self._weights(self.f_mean[:, None]))
        ]

    @cached_property
    def _known(self) -> Array:
        """I − L⁻¹ V L⁻ᵀ: how much of every direction the data have taken away."""
        free = self.structure.free
        half = solve_triangular(self._lower, self.f_covariance[np.ix_(free, free)], lower=True)
        return np.eye(len(free)) - solve_triangular(self._lower, half.T, lower=True)

    def _white(self, cross: Array) -> Array:
        """C K⁺ L: a covariance with all counts, (states, counts), with the directions of L in their place."""
        return np.asarray(solve_triangular(self._lower, cross[:, self.structure.free].T, lower=True).T)

    def _by_chunks(self, scope: Scope) -> Any:
        """Parts of a table's possible states: their flat positions, probabilities, and `_white` of their covariance."""
        passes, known = self.structure.passes, self._at_state
        if passes.tree.covering(scope) is None:
            yield from known(scope)
            return
        home = passes.home(scope)
        codes, mu = passes.possible.margin(home, scope).codes, passes.margin(home, scope)
        step = max(CHUNK // max(len(passes.mean), 1), 1)
        with threads_for(max(len(passes.mean), 1)):
            for start in range(0, len(codes), step):
                rows = slice(start, start + step)
                yield codes[rows], mu[rows], self._white(passes.cross_rows(home, scope, rows))

    def _at_state(self, scope: Scope) -> Any:
        """The same of a table in no clique: given a state of its first variable, the law of all others, in which its rest is asked for."""
        here = self.structure
        first, rest = scope[0], scope[1:]
        size, model = here.model.domain(rest).size, here.model
        for state, chance in enumerate(model.marginal((first,))):
            if chance == 0:
                continue
            only = np.full(len(model.states[first]), -np.inf)
            only[state] = 0.0
            given, _ = model.tilt({(first,): only})
            inside = CliquePasses(given.clique_law, model.possible, here.individuals, here.sites)
            for codes, mu, pulled in inside.given(rest):
                joint, mean = chance * mu, here.passes.mean
                cross = joint[:, None] * (here.individuals * (pulled - mean) + here.spread * mean)
                yield state * size + codes, joint, self._white(cross)

    def mean(self, scope: Scope) -> Array:
        """See :class:`Field`."""
        passes, domain = self.structure.passes, self.structure.model.domain(scope)
        home = passes.tree.covering(scope)
        if home is not None:
            return passes.table(scope, home, self._means)
        found = np.zeros(domain.size)
        pulls = solve_triangular(self._lower, self.f_mean[self.structure.free], lower=True)
        for codes, _, white in self._by_chunks(scope):
            found[codes] = white @ pulls
        return found.reshape(domain.shape)

    def variance(self, scope: Scope) -> Array:
        """See :class:`Field`."""
        return self._node_variances[scope] if len(scope) == 1 else self._variance(scope)

    @cached_property
    def _node_variances(self) -> dict[Scope, Array]:
        """Of all variables at once, clique after clique: neighbours share most of the way."""
        passes = self.structure.passes
        scopes = [(v,) for v in self.structure.model.variables]
        return {
            scope: self._variance(scope)
            for scope in sorted(scopes, key=lambda s: passes.place(passes.home(s)))
        }

    def _variance(self, scope: Scope) -> Array:
        found = np.zeros(self.structure.model.domain(scope).size)
        for codes, mu, white in self._by_chunks(scope):
            prior = self.structure.individuals * mu * (1.0 - mu) + self.structure.spread * mu**2
            left = prior - np.einsum("ij,ij->i", white @ self._known, white)
            found[codes] = np.where(left > NO_FREEDOM * prior, left, 0.0)
        return found.reshape(self.structure.model.size(scope))

    def covariance(self, a: Scope, b: Scope) -> Array:
        """See :class:`Field`."""
        here = self.structure
        rows, columns = here.model.domain(a), here.model.domain(b)
        memory.require(
            16 * rows.size * columns.size,
            f"the covariance of {a!r} and {b!r}",
            remedy="ask for smaller tables",
        )
        if None in (here.passes.tree.covering(a), here.passes.tree.covering(b)):
            joint = here.model.joint_marginal(a, b)
            alone = np.outer(joint.sum(axis=1), joint.sum(axis=0))
            prior = here.individuals * (joint - alone) + here.spread * alone
        else:
            both: Any = [WholeTable(a, np.arange(rows.size)), WholeTable(b, np.arange(columns.size))]
            between = CliquePasses(here.passes.law, here.passes.possible, here.individuals, both, here.spread)
            prior = between.covariance()[: rows.size, rows.size :]
        left, right = (self._all_white(scope, size) for scope, size in ((a, rows.size), (b, columns.size)))
        return np.asarray(prior - left @ self._known @ right.T)

    def _all_white(self, scope: Scope, size: int) -> Array:
        found = np.zeros((size, len(self.structure.free)))
        for codes, _, white in self._by_chunks(scope):
            found[codes] = white
        return found

    def site_covariance(self, rows: np.ndarray) -> Array:
        """See :class:`Field`."""
        return np.asarray(self.f_covariance[np.ix_(rows, rows)])

    def sample(self, size: int, *, rng: np.random.Generator) -> dict[Scope, Array]:
        """See :class:`Field`; a draw of the prior, moved onto a draw of the observed counts."""
        passes = self.structure.passes
        passes.require_draws(size, held=3)
        node, up = self.solution.tree.nodes[0], self.solution.upward[0]
        centre = up.x @ (up.x.T @ up.potential) + (0.0 if node.offset is None else node.offset)
        wanted = centre[:, None] + up.x @ rng.standard_normal((up.x.shape[1], size))
        drawn = passes.draw(size, rng)
        moved = passes.clique_values(self._weights(wanted - passes.counts(drawn)))
        return passes.drawn_tables([a + b for a, b in zip(drawn, moved, strict=True)])
