r"""Any junction tree with more observed counts than a matrix of them is worth: conjugate gradients, and variances from draws.

With f the observed counts, K their prior covariance is applied by one pass of conditional expectations over the possible entries of all
cliques (`CliquePasses.clique_values`), many columns at once, and never formed. A draw of the prior goes down the junction tree. Means
are exact to the tolerance of conjugate gradients, variances and log Z carry the Monte-Carlo error that the field states. Draws are
made again from their seed, block by block, when a table is asked for; only their weights on the observed counts are kept.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from headcount import memory
from headcount.checks import instance
from headcount.individual import Model, ModelError
from headcount.structure._clique_passes import CliquePasses, table_adder
from headcount.structure._conjugate_gradients import Stop, System, conjugate
from headcount.structure._junction import WholeTable
from headcount.structure._matrix_free import ByDraws
from headcount.structure._variance_draws import (
    LEAST_FINAL,
    SHARPER,
    WIDEST,
    DrawBlock,
    Squares,
    corrected,
    missing_draws,
)
from headcount.structure.base import Field, KnownCounts, Moments, Recall, Sampling, by_site

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headcount._linalg import Array
    from headcount.observe import Site
    from headcount.tables import Scope

COVARIANCES = Stop(absolute=1e-10)
"""Of covariances: as sharp as means."""


class JunctionDrawsStructure(ByDraws, kind="matrix-free junction tree"):
    """The Gaussian law of a (tilted) discrete model's counts, as an operator.

    Parameters
    ----------
    model, population, sites, known, flock, spread
        See :class:`JunctionStructure`; readings with correlated errors are not taken.
    sampling
        Numbers of draws, and their seed.
    recall
        What earlier solves of the same run left; with it, a solve starts from them and leaves log Z (NaN) to the field.
    """

    knows_variances = True

    def __init__(
        self,
        model: Model,
        population: float,
        sites: Sequence[Site],
        known: KnownCounts | None = None,
        *,
        flock: float = 1.0,
        spread: float = 0.0,
        sampling: Sampling | None = None,
        recall: Recall | None = None,
    ) -> None:
        instance(model, Model, "model", expected="a Model")
        super().__init__(population, sites, known)
        if self.known.readings:
            raise ModelError(
                "readings with correlated errors need the covariance of all observed counts on a graph that is no tree: use "
                'structure="tree", or give them as independent readings'
            )
        self.model, self.spread, self.recall = model, spread, recall
        self.sampling = Sampling() if sampling is None else sampling
        self.individuals = flock * self.population
        self.passes = self.passes_of(self.sites)
        self.fixed = np.concatenate(
            [np.zeros(0, bool), *(np.full(len(s), k in self.known.exact) for k, s in enumerate(self.sites))]
        )
        self.any_fixed, self.plain = bool(self.fixed.any()), np.arange(len(self.fixed))
        self.value = np.concatenate(
            [np.zeros(0), *(self.known.exact.get(k, np.zeros(len(s))) for k, s in enumerate(self.sites))]
        )

    @cached_property
    def seen_variance(self) -> Array:
        """See :class:`ByDraws`."""
        return self.passes.variance()

    def passes_of(self, sites: Any) -> CliquePasses:
        """Passes for counts of these sites."""
        law, possible = self.model.clique_law, self.model.possible
        return CliquePasses(law, possible, self.individuals, sites, self.spread, sparse=True)

    def system(self, tau: Array) -> System:
        """See :class:`ByDraws`; the rows are the observed counts themselves."""
        rows = sparse.csr_array(sparse.eye_array(len(tau)))
        return System(
            self.passes.covariance_times, rows, self.seen_variance, np.maximum(tau, 0.0), self.fixed
        )

    def seen_covariance_times(self, weights: Array) -> Array:
        """See :class:`ByDraws`."""
        return self.passes.covariance_times(weights)

    def prior_draws(self, number: int, size: int) -> list[Array]:
        """Draws of all cliques' possible entries, the same ones for the same number."""
        seed = np.random.SeedSequence([self.sampling.seed, number])
        return self.passes.draw(size, np.random.default_rng(seed))

    @property
    def entries(self) -> int:
        """Of all cliques."""
        return sum(self.passes.possible.counts)

    def prior_counts(self, number: int, size: int) -> Array:
        """See :class:`ByDraws`: the observed ones."""
        return self.passes.counts(self.prior_draws(number, size))

    def squares(self, tau: Array, blocks: Iterable[DrawBlock]) -> Squares:
        """Sums over draws of the observed counts."""
        found = Squares(self.seen_variance, np.where(self.fixed, 0.0, np.maximum(tau, 0.0)))
        for block in blocks:
            found.add(block.free, block.free - self.passes.covariance_times(block.weights), block.noise)
        return found

    def solve(self, tau: Sequence[Array], nu: Sequence[Array]) -> Moments:
        """See :class:`Structure`; variances (and, without a recall, log Z) from the draws of a sweep."""
        t, n = (np.concatenate([np.zeros(0), *values]) for values in (tau, nu))
        mean = self.seen_covariance_times(self.weights(t, n[:, None], self.value[:, None], self.recall))[:, 0]
        draws = self.sampling.sweep or WIDEST
        if self.recall is not None:
            self.recall.draws = draws
        blocks = list(self.blocks(t, draws, recall=self.recall))
        squares = self.squares(t, blocks)
        log_z, _ = self.log_z(t, n, mean, squares, np.concatenate([block.logs for block in blocks]))
        variance = self.settled(corrected(squares.variances()[0], t), self.seen_variance)
        variance[self.fixed] = 0.0
        return Moments(by_site(mean, self.sites), by_site(variance, self.sites), log_z)

    def field(self, tau: Sequence[Array], nu: Sequence[Array]) -> JunctionDrawsField:
        """See :class:`Structure`; variances and log Z from the final draws."""
        t, n = (np.concatenate([np.zeros(0), *values]) for values in (tau, nu))
        return JunctionDrawsField(self, t, n)


class JunctionDrawsField(Field):
    """The posterior: means by one solve, variances of tables from the final draws."""

    def __init__(
        self,
        structure: JunctionDrawsStructure,
        tau: Array,
        nu: Array,
        blocks: Sequence[DrawBlock] | None = None,
    ) -> None:
        self.structure, self.tau, self.nu, self._given = structure, tau, nu, blocks
        self._found: dict[Scope, tuple[Array, Array]] = {}

    @cached_property
    def _means(self) -> list[Array]:
        """Mean deviations of the possible entries of all cliques."""
        here = self.structure
        weights = here.weights(self.tau, self.nu[:, None], here.value[:, None])
        return [found[:, 0] for found in here.passes.clique_values(weights)]

    @cached_property
    def blocks(self) -> list[DrawBlock]:
        """The final draws: as many as were asked for, or as the error asks for."""
        here, recall = self.structure, self.structure.recall
        if self._given is not None:
            return list(self._given)
        asked = here.sampling.final or (None if recall is None else recall.final)
        found = list(here.blocks(self.tau, asked or LEAST_FINAL))
        while asked is None and (more := self._missing(found)):
            found += here.blocks(self.tau, more, first=len(found))
        if recall is not None:
            recall.final = sum(len(block.logs) for block in found)
        return found

    def _missing(self, blocks: Sequence[DrawBlock]) -> int:
        """Draws that are missing, from the errors of all counts and variables; what these draws say of the variables is kept."""
        self._found = self._summed(self._variables, blocks)
        of_nodes = [
            np.ravel(off) / np.sqrt(np.where(v > 0, v, 1.0)).ravel() for v, off in self._found.values()
        ]
        errors = self.structure.squares(self.tau, blocks).variances()[1], np.concatenate(of_nodes)
        return missing_draws(sum(len(b.logs) for b in blocks), errors, self.structure.sampling.error)

    def more_draws(self, draws: int, client: Any = None) -> JunctionDrawsField:
        """See :class:`Field`; on this machine, whatever the client."""
        more = self.structure.blocks(self.tau, draws, first=len(self.blocks))
        return JunctionDrawsField(self.structure, self.tau, self.nu, [*self.blocks, *more])

    @cached_property
    def log_z(self) -> tuple[float, float]:
        """log Z from the final draws, and its Monte-Carlo standard error."""
        here = self.structure
        logs = np.concatenate([block.logs for block in self.blocks])
        mean = here.passes.counts([found[:, None] for found in self._means])[:, 0]
        return here.log_z(self.tau, self.nu, mean, here.squares(self.tau, self.blocks), logs)

    def _home(self, scope: Scope) -> int:
        home = self.structure.passes.tree.covering(scope)
        if home is None:
            raise ModelError(
                f"{scope} lies in no clique of the model, and without matrices only tables inside cliques have moments: ask for smaller "
                'tables, or infer with structure="tree"'
            )
        return home

    def mean(self, scope: Scope) -> Array:
        """See :class:`Field`."""
        return self.structure.passes.table(scope, self._home(scope), self._means)

    def variance(self, scope: Scope) -> Array:
        """See :class:`Field`."""
        return self._moments(scope)[0]

    def mc_error(self, scope: Scope) -> Array:
        """See :class:`Field`."""
        return self._moments(scope)[1]

    def _moments(self, scope: Scope) -> tuple[Array, Array]:
        """Variances and the Monte-Carlo errors of the sds; of all variables at once."""
        blocks = self.blocks
        if scope not in self._found:
            self._found.update(self._summed(self._variables if len(scope) == 1 else [scope], blocks))
        return self._found[scope]

    @property
    def _variables(self) -> list[Scope]:
        return [(v,) for v in self.structure.model.variables]

    def _own(self, scope: Scope, values: Array) -> Array:
        """Values of the counts of single entries of this very scope, added by entry, (entries, columns)."""
        here = self.structure
        found = np.zeros((here.model.domain(scope).size, values.shape[1]))
        start = 0
        for site in here.sites:
            if site.scope == scope and site.index is not None:
                np.add.at(found, np.asarray(site.index), values[start : start + len(site)])
            start += len(site)
        return found

    def _summed(
        self, scopes: Sequence[Scope], blocks: Sequence[DrawBlock]
    ) -> dict[Scope, tuple[Array, Array]]:
        """`_moments` of several tables, from one run through these draws."""
        here, passes = self.structure, self.structure.passes
        tau = np.where(here.fixed, 0.0, self.tau)[:, None]
        places, sums = {}, {}
        for scope in scopes:
            home = self._home(scope)
            margin = passes.possible.margin(home, scope)
            mu = passes.margin(home, scope)
            prior = here.individuals * mu * (1.0 - mu) + here.spread * mu**2
            places[scope] = home, margin.codes, table_adder(margin)
            sums[scope] = Squares(prior, self._own(scope, np.maximum(tau, 0.0))[margin.codes, 0])
        for block in blocks:
            free = here.prior_draws(block.number, len(block.logs))
            moved = passes.clique_values(block.weights)
            for scope, (home, codes, add) in places.items():
                before = add @ free[home]
                after = before - add @ moved[home]
                sums[scope].add(before, after, self._own(scope, block.noise)[codes])
        found = {}
        for scope, (_, codes, _) in places.items():
            variance, off = sums[scope].variances()
            variance = here.settled(
                corrected(variance, self._own(scope, np.minimum(tau, 0.0))[codes, 0]), sums[scope].prior
            )
            tables = np.zeros((2, here.model.domain(scope).size))
            tables[:, codes] = variance, np.sqrt(variance) * off
            shape = here.model.domain(scope).shape
            found[scope] = tables[0].reshape(shape), tables[1].reshape(shape)
        return found

    def covariance(self, a: Scope, b: Scope) -> Array:
        """See :class:`Field`; one system per entry of ``b``."""
        here = self.structure
        sizes = [here.model.domain(scope).size for scope in (a, b)]
        seen = len(self.tau)
        memory.require(
            24 * seen * sum(sizes), f"the covariance of {a!r} and {b!r}", remedy="ask for smaller tables"
        )
        tables = [WholeTable(scope, np.arange(size)) for scope, size in zip((a, b), sizes, strict=True)]
        passes = here.passes_of((*here.sites, *tables))
        columns = np.eye(seen + sum(sizes))[:, seen:]
        image = passes.covariance_times(columns)  # of everything with the entries of both tables
        left, right = image[:, : sizes[0]], image[:, sizes[0] :]
        return np.asarray(right[seen : seen + sizes[0]] - self._explained(left[:seen], right[:seen]))

    def _explained(self, left: Array, right: Array) -> Array:
        """Cᵀ D A⁻¹ D C' for covariances C, C' with the observed counts: what the data take away."""
        system = self.structure.system(self.tau)
        scale = system.scale[:, None]
        return np.asarray((scale * left).T @ conjugate(system, scale * right, COVARIANCES).x)

    def site_covariance(self, rows: np.ndarray) -> Array:
        """See :class:`Field`."""
        columns = np.zeros((len(self.tau), len(rows)))
        columns[rows, np.arange(len(rows))] = 1.0
        image = self.structure.seen_covariance_times(columns)
        return np.asarray(image[rows] - self._explained(image, image))

    def sample(self, size: int, *, rng: np.random.Generator) -> dict[Scope, Array]:
        """See :class:`Field`; negative precisions as in variances: they are left out."""
        passes, system = self.structure.passes, self.structure.system(self.tau)
        passes.require_draws(size, held=5)
        free = passes.draw(size, rng)
        right = system.of_draws(passes.counts(free), rng.standard_normal((len(self.tau), size)))
        moved = passes.clique_values(system.scale[:, None] * conjugate(system, right, SHARPER).x)
        parts = zip(free, moved, self._means, strict=True)
        return passes.drawn_tables([a - b + mean[:, None] for a, b, mean in parts])
