r"""Chains and trees without matrices: the prior covariance as an operator, conjugate gradients, draws.

For v on the nodes of a rooted tree, one pass up and one pass down give :math:`f_t(i) = E[\sum_s v_s(x_s) \mid x_t = i]`,

.. math:: b_t = v_t + \sum_{c\,\text{child}} P_c b_c, \qquad f_c = b_c + \bar P_c (f_u - P_c b_c), \qquad
          K v = N\mu\circ(f - \bar E), \quad \bar E = E\bigl[\textstyle\sum_s v_s(x_s)\bigr],

:math:`\bar P_c(j, i) = \mu_u(i)P_c(i, j)/\mu_c(j)` the reversed kernel: O(non-zeros) time and memory, any number of columns
at once. Of the flow from i to j the same passes give :math:`M_{ij}\,(f_u(i) - (P_c b_c)(i) + b_c(j) - \bar E)`.
With B the observed rows, :math:`S = \mathrm{diag}\sqrt\tau` and :math:`A = I + S B K B^\top S`,

.. math:: \text{mean}: \; \delta = K B^\top q, \; (I + \tau B K B^\top)\,q = \nu, \qquad
          \text{draw}: \; \delta^* = \delta_0 - K B^\top S A^{-1}(S B\delta_0 + \xi),

:math:`\delta_0` a draw of the prior, :math:`\xi` standard normal. All systems are scaled to unit diagonal, which is known exactly.
Means and covariances are exact to the tolerance of conjugate gradients. Two things carry Monte-Carlo error:

* **Variances** are mean squares of draws (:class:`Squares`). The draw of a model in which each entry has its own sites only,
  :math:`\delta_{loc} = (\delta_0 - k\sqrt\tau\xi)/(1 + \tau k)`, k the prior variance, has the known variance
  :math:`k/(1 + \tau k)` and the correlation :math:`\sqrt{V/V_{loc}}` with :math:`\delta^*`: it is the control variate, and the relative
  error of an sd is at most :math:`\sqrt{(1 - \rho^2)/2d}` after d draws, :math:`\rho = V/V_{loc}`.
* **log det A**: the right-hand side of a draw has covariance A, so the tridiagonal matrix that its conjugate gradients leave gives
  an unbiased estimate by Gauss quadrature. Two traces are known and serve as control variates.

The draws are the same ones in every sweep (common random numbers), so a fixed point is deterministic.

A site with a negative precision cannot be drawn. It counts fully in means; in variances and log det each such site is put in
alone, :math:`V/(1+\tau V)`, as if they did not influence one another. They are small and rare (EP's corrections for whole numbers).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from headcount import memory
from headcount._linalg import threads_for
from headcount.checks import instance
from headcount.individual import ModelError, RootedTree
from headcount.individual._tree_passes import node_marginals
from headcount.population._laplacian import inverse_or_zero
from headcount.structure._base import Field, Known, Moments, MovesOf, Structure, checked_arguments
from headcount.structure._gaussian_tree import NotPositiveDefinite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headcount._linalg import Array
    from headcount.structure._base import SiteLike
    from headcount.tables import Scope

SOLVED = 1e-11
"""Relative residual at which conjugate gradients for means stop: means are then right to about 1e-10 of an sd, below what engines ask."""
DRAWN = 1e-4
"""The same for draws: a hundredth of their Monte-Carlo error."""
MOST_ITERATIONS = 2000
"""Of conjugate gradients. 8 to 12 are needed on the birds, 275 at rate 100 on a slow random walk without scaling (the theory's table)."""
SAME = 1e-9
"""A draw and its control variate that agree to this share are the same numbers up to rounding: nothing was observed that matters."""
BLOCK_NUMBERS = 2**24
"""Numbers in one array of a block of draws: 128 MB, of which about eight are held at once."""
BITS = 64
"""Draws per block at most: the kernels take one bit of a word per draw."""
NARROWEST = 8
"""Draws per block at least: sparse products with fewer columns waste memory traffic."""


class Sampling(NamedTuple):
    """How many draws, and which ones."""

    sweep: int = 32
    """Draws in the sweeps of an engine."""
    final: int = 192
    """Draws at the end: relative error of an sd at most 1/√384 = 5 %."""
    seed: int = 0


def block_width(entries: int) -> int:
    """Draws per block, where all nodes together have so many entries."""
    widest = max(BLOCK_NUMBERS // max(entries, 1), 1)
    return int(min(BITS, max(NARROWEST, 2 ** (widest.bit_length() - 1))))


class Passes(NamedTuple):
    """What the two passes find for columns v; see the module's docstring."""

    up: list[Array]
    """b by node."""
    through: list[Array]
    """P b by node (from the parent's side); empty at the root."""
    total: list[Array]
    """f by node."""
    mean: Array
    """Ē by column."""


class Block(NamedTuple):
    """A block of draws: the prior's, the sites' noise, and the weights that lead from the prior to the posterior."""

    number: int
    free: Array
    """δ_0, (entries, draws)."""
    noise: Array
    """√τ ξ at the sites, (rows, draws)."""
    weights: Array
    """S A⁻¹(S B δ_0 + ξ), (rows, draws): the posterior draw is δ_0 − K Bᵀ weights."""
    logs: Array
    """(draws, 3): the estimate of log det of the scaled A, and of its two known traces."""


def refusal(
    tree: RootedTree | None, sites: Sequence[SiteLike], *, exact: bool, correlated: bool
) -> str | None:
    """Why the matrix-free structure cannot serve, in words; None where it can."""
    if tree is None:
        return "it needs a chain or a tree"
    if tree.phi is not None:
        return "it takes independent individuals, and these move together"
    if any(len(site.scope) > 1 for site in sites):
        return "it takes counts and sums of single nodes, not observed flows"
    if exact:
        return "it does not take exact counts yet"
    if correlated:
        return "it does not take readings with correlated errors yet"
    return None


class MatrixFreeStructure(Structure):
    """The Gaussian law of a rooted tree's counts, as an operator; entries of all nodes stand in one vector.

    Parameters
    ----------
    tree
        The individual's law, tilts included; transitions may be sparse.
    population
        N.
    sites
        What is observed: entries or sums of single nodes.
    known
        Must be empty: exact counts and correlated readings are refused.
    sampling
        Numbers of draws, and their seed.
    """

    monte_carlo = True

    def __init__(
        self,
        tree: RootedTree,
        population: float,
        sites: Sequence[SiteLike],
        known: Known | None = None,
        *,
        sampling: Sampling | None = None,
    ) -> None:
        instance(tree, RootedTree, "tree", expected="a RootedTree, for example model.rooted()")
        self.tree, self.sampling = tree, Sampling() if sampling is None else sampling
        self.population, self.sites, self.known = checked_arguments(population, sites, known)
        why = refusal(tree, self.sites, exact=bool(self.known.exact), correlated=bool(self.known.readings))
        if why is not None:
            raise ModelError(f"the matrix-free structure cannot serve this problem: {why}; use TreeStructure")
        self.offsets = np.concatenate([[0], np.cumsum(tree.sizes)])
        self.mu = [np.asarray(m, dtype=float) for m in node_marginals(tree)]
        self.over_mu = [inverse_or_zero(m) for m in self.mu]
        size = int(self.offsets[-1])
        self.rows = sparse.csr_array(
            sparse.vstack([sparse.csr_array((0, size)), *(self._rows(site) for site in self.sites)])
        )

    @cached_property
    def whole(self) -> bool:
        """Whether every entry is seen once, in the order of the nodes: B is the identity, and is not multiplied with."""
        count, size = self.rows.shape
        return bool(
            count == size and (self.rows.indices == np.arange(size)).all() and (self.rows.data == 1).all()
        )

    def _rows(self, site: SiteLike) -> sparse.csr_array:
        """B of one site, on the vector of all nodes' entries."""
        start, size = self.offsets[self.tree.place(site.scope).node], int(self.offsets[-1])
        if site.index is not None:
            place = (np.arange(len(site)), start + np.asarray(site.index))
            return sparse.csr_array((np.ones(len(site)), place), shape=(len(site), size))
        held = sparse.coo_array(site.weights)
        return sparse.csr_array((held.data, (held.row, start + held.col)), shape=(len(site), size))

    @cached_property
    def prior_variance(self) -> Array:
        """N μ (1 − μ) of all entries."""
        mu = np.concatenate(self.mu)
        return self.population * mu * (1.0 - mu)

    @cached_property
    def row_variance(self) -> Array:
        """The diagonal of B K Bᵀ: a row sees one node only."""
        mu = np.concatenate(self.mu)
        found = self.population * (self.rows.power(2) @ mu - (self.rows @ mu) ** 2)
        return np.where(found > 0, found, 0.0)

    def passes(self, values: Array) -> Passes:
        """One pass up and one down, for v of shape (entries, columns)."""
        tree, parents = self.tree, self.tree.parents
        up = [values[a:b].copy() for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]
        through: list[Array] = [np.empty(0)] * len(up)
        for v in range(len(up) - 1, 0, -1):
            through[v] = np.asarray(tree.transitions[v] @ up[v])
            up[parents[v]] += through[v]
        total = [up[0]]
        for v in range(1, len(up)):
            u = parents[v]
            above = total[u] - through[v]
            above *= self.mu[u][:, None]
            below = np.asarray(tree.transitions[v].T @ above)
            below *= self.over_mu[v][:, None]
            below += up[v]
            total.append(below)
        return Passes(up, through, total, self.mu[0] @ up[0])

    def covariance_times(self, values: Array) -> Array:
        """K v, for v of shape (entries, columns)."""
        return self._nodes(self.passes(values))

    def _nodes(self, found: Passes) -> Array:
        made = np.empty((int(self.offsets[-1]), len(found.mean)))
        for v, (m, f) in enumerate(zip(self.mu, found.total, strict=True)):
            part = made[self.offsets[v] : self.offsets[v + 1]]
            np.subtract(f, found.mean, out=part)
            part *= (self.population * m)[:, None]
        return made

    def seen_covariance_times(self, weights: Array) -> Array:
        """B K Bᵀ w."""
        if self.whole:
            return self.covariance_times(weights)
        return np.asarray(self.rows @ self.covariance_times(np.asarray(self.rows.T @ weights)))

    def weights(self, tau: Array, right: Array) -> Array:
        """The solution q of (I + τ B K Bᵀ) q = right, (rows, columns)."""
        if (tau < 0).any():
            return self._weights_of_any_sign(tau, right)
        d = 1.0 + tau * self.row_variance
        s = np.sqrt(tau / d)[:, None]
        solved = _conjugate(self._scaled(s, d), s * self.seen_covariance_times(right), SOLVED).x
        return right - s * solved

    def _scaled(self, s: Array, d: Array) -> Callable[[Array], Array]:
        """A scaled to unit diagonal: x/d + s B K Bᵀ s x."""
        over = 1.0 / d[:, None]

        def times(x: Array) -> Array:
            image = self.seen_covariance_times(s * x)
            image *= s
            image += over * x
            return image

        return times

    def _weights_of_any_sign(self, tau: Array, right: Array) -> Array:
        """As :meth:`weights`: conjugate gradients on (K_B⁻¹ + τ) y = right, y = K_B q, with K_B as preconditioner.

        Only K_B itself is needed, because q is carried along; what must be positive is the posterior's precision, not τ.
        """
        t = tau[:, None]
        q, residual = np.zeros_like(right), right.copy()
        z = self.seen_covariance_times(residual)
        way_q, way_y, rho = residual.copy(), z, (residual * z).sum(axis=0)
        target = SOLVED**2 * rho
        for _ in range(MOST_ITERATIONS):
            live = rho > np.maximum(target, 0.0)
            if not live.any():
                return q
            image = way_q + t * way_y
            curvature = (way_y * image).sum(axis=0)
            if (curvature[live] <= 0).any():
                raise NotPositiveDefinite
            length = np.where(live, rho / np.where(live, curvature, 1.0), 0.0)
            q += length * way_q
            residual -= length * image
            z = self.seen_covariance_times(residual)
            old, rho = rho, np.where(live, (residual * z).sum(axis=0), rho)
            turn = np.where(live, rho / np.where(live, old, 1.0), 0.0)
            way_q, way_y = residual + turn * way_q, z + turn * way_y
        raise FloatingPointError(_NOT_SOLVED)

    @property
    def block(self) -> int:
        """Draws per block."""
        return block_width(int(self.offsets[-1]))

    def prior_draws(self, number: int, size: int) -> Array:
        """Draws from the prior, N(0, K) up to second moments: block ``number``, shape (entries, size), size ≤ 64."""
        from headcount.structure._matrix_free_kernels import step_draws

        drawn: list[Array] = []
        for v, key in enumerate(self._keys(number)):
            below = np.zeros((self.tree.sizes[v], size))
            above = np.zeros((1, size)) if v == 0 else drawn[self.tree.parents[v]]
            step_draws(*self._moves(v), key, above, below)
            drawn.append(below)
        return np.concatenate(drawn)

    def _keys(self, number: int) -> np.ndarray:
        """One key of random signs per node."""
        sequence = np.random.SeedSequence([self.sampling.seed, number])
        return sequence.generate_state(len(self.mu), np.uint64)

    def _moves(self, v: int) -> tuple[np.ndarray, np.ndarray, Array, Array]:
        """Row ends, columns and chances of the moves into node v, and the expected counts they start from.

        The root is a step from one cell that holds everyone.
        """
        if v == 0:
            ends, columns = _full_index(1, len(self.mu[0]))
            return ends, columns, self.mu[0], np.array([self.population])
        matrix, expected = self.tree.transitions[v], self.population * self.mu[self.tree.parents[v]]
        if sparse.issparse(matrix):
            held: Any = matrix
            return (
                held.indptr.astype(np.int32),
                held.indices.astype(np.int32, copy=False),
                held.data,
                expected,
            )
        ends, columns = _full_index(*matrix.shape)
        return ends, columns, np.ascontiguousarray(matrix, dtype=float).reshape(-1), expected

    def blocks(self, tau: Array, draws: int) -> Iterator[Block]:
        """Posterior draws, block by block; sites with a negative precision are left out."""
        positive = np.maximum(tau, 0.0)
        root, d = np.sqrt(positive)[:, None], 1.0 + positive * self.row_variance
        s = root / np.sqrt(d)[:, None]
        for number, start in enumerate(range(0, draws, self.block)):
            size = min(self.block, draws - start)
            free = self.prior_draws(number, size)
            rng = np.random.default_rng(np.random.SeedSequence([self.sampling.seed, number, 1]))
            noise = rng.standard_normal((len(tau), size))
            right = (root * (self.rows @ free) + noise) / np.sqrt(d)[:, None]
            solved = _conjugate(self._scaled(s, d), right, DRAWN)
            logs = np.stack(
                [solved.log_forms(), (right**2).sum(axis=0), (right * solved.x).sum(axis=0)], axis=1
            )
            yield Block(number, free, root * noise, s * solved.x, logs)

    def solve(self, tau: Sequence[Array], nu: Sequence[Array]) -> Moments:
        """See :class:`Structure`; variances and log Z from the draws of a sweep."""
        precision, potential = _joined(tau), _joined(nu)
        with threads_for(max(self.tree.sizes)):
            weights = self.weights(precision, potential[:, None])
            mean = self.seen_covariance_times(weights)[:, 0]
            squares, logs = Squares(self.row_variance, np.maximum(precision, 0.0)), []
            for block in self.blocks(precision, self.sampling.sweep):
                free = np.asarray(self.rows @ block.free)
                squares.add(free, free - self.seen_covariance_times(block.weights), block.noise)
                logs.append(block.logs)
        variance, _ = squares.variances()
        log_z, _ = self.log_z(precision, potential, mean, variance, np.concatenate(logs))
        variance = _corrected(variance, precision)
        ends = np.cumsum([0, *(len(t) for t in tau)])
        pieces = [slice(a, b) for a, b in pairwise(ends)]
        return Moments(tuple(mean[p] for p in pieces), tuple(variance[p] for p in pieces), log_z)

    def log_z(self, tau: Array, nu: Array, mean: Array, variance: Array, logs: Array) -> tuple[float, float]:
        """½ ν·δ − ½ log det A, and its Monte-Carlo standard error; ``variance`` is that without negative sites."""
        if not len(tau):
            return 0.0, 0.0
        log_det, error = _regressed(logs, len(tau))
        log_det += float(np.log1p(np.maximum(tau, 0.0) * self.row_variance).sum())
        negative = tau < 0
        left = 1.0 + tau[negative] * variance[negative]
        if (left <= 0).any():
            raise NotPositiveDefinite
        return 0.5 * float(nu @ mean) - 0.5 * (log_det + float(np.log(left).sum())), 0.5 * error

    def field(self, tau: Sequence[Array], nu: Sequence[Array]) -> MatrixFreeField:
        """See :class:`Structure`; variances and log Z from the final number of draws."""
        return MatrixFreeField(self, _joined(tau), _joined(nu))


@dataclass(frozen=True)
class Survey:
    """What all final draws together say."""

    variance: Array
    """Of all entries."""
    error: Array
    """Relative Monte-Carlo error of their sds."""
    flow_variance: tuple[Array, ...]
    """By child node, of its possible moves; empty at the root."""
    flow_error: tuple[Array, ...]
    log_z: tuple[float, float]


@dataclass(frozen=True)
class MatrixFreeField(Field):
    """The posterior: means by one solve, variances of all nodes and moves in one survey of the final draws."""

    structure: MatrixFreeStructure
    tau: Array
    nu: Array

    @cached_property
    def _mean_passes(self) -> Passes:
        structure = self.structure
        with threads_for(max(structure.tree.sizes)):
            weights = structure.weights(self.tau, self.nu[:, None])
            return structure.passes(np.asarray(structure.rows.T @ weights))

    @cached_property
    def _mean(self) -> Array:
        return self.structure._nodes(self._mean_passes)[:, 0]

    @cached_property
    def survey(self) -> Survey:
        """One run over all final draws."""
        with threads_for(max(self.structure.tree.sizes)):
            return _survey(self)

    @property
    def log_z(self) -> tuple[float, float]:
        """log Z from the final draws, and its Monte-Carlo standard error."""
        return self.survey.log_z

    def mean(self, scope: Scope) -> Array:
        """See :class:`Field`."""
        place = self.structure.tree.place(scope)
        if not place.edge:
            return self._mean[self._entries(place.node)]
        return self._table(scope, self._flow_mean(place.node))

    def variance(self, scope: Scope) -> Array:
        """See :class:`Field`."""
        place = self.structure.tree.place(scope)
        if not place.edge:
            return self.survey.variance[self._entries(place.node)]
        return self._table(scope, self.survey.flow_variance[place.node])

    def mc_error(self, scope: Scope) -> Array:
        """Monte-Carlo standard error of every entry's sd."""
        place = self.structure.tree.place(scope)
        if not place.edge:
            where = self._entries(place.node)
            return np.sqrt(self.survey.variance[where]) * self.survey.error[where]
        v = place.node
        return self._table(scope, np.sqrt(self.survey.flow_variance[v]) * self.survey.flow_error[v])

    def moves(self, scope: Scope) -> MovesOf | None:
        """See :class:`Field`: for sparse transitions named (parent, child)."""
        place = self.structure.tree.place(scope)
        v = place.node
        if not place.edge or place.turned or not sparse.issparse(self.structure.tree.transitions[v]):
            return None
        variance = self.survey.flow_variance[v]
        return MovesOf(
            self._flat_index(v), self._flow_mean(v), variance, np.sqrt(variance) * self.survey.flow_error[v]
        )

    def covariance(self, a: Scope, b: Scope) -> Array:
        """See :class:`Field`; exact, one solve per entry of ``b``. Single nodes only."""
        structure = self.structure
        places = [structure.tree.place(scope) for scope in (a, b)]
        if any(place.edge for place in places):
            raise ModelError(
                "the matrix-free structure gives covariances of single nodes, and variances of flows: "
                'ask for nodes, or use TiltedEP(structure="tree")'
            )
        rows, columns = (self._entries(place.node) for place in places)
        found = np.empty((rows.stop - rows.start, columns.stop - columns.start))
        with threads_for(max(structure.tree.sizes)):
            for start in range(columns.start, columns.stop, structure.block):
                stop = min(start + structure.block, columns.stop)
                unit = np.zeros((int(structure.offsets[-1]), stop - start))
                unit[np.arange(start, stop), np.arange(stop - start)] = 1.0
                right = self.tau[:, None] * (structure.rows @ structure.covariance_times(unit))
                unit -= structure.rows.T @ structure.weights(self.tau, right)
                part = structure.covariance_times(unit)
                found[:, start - columns.start : stop - columns.start] = part[rows]
        return found

    def sample(self, size: int, *, rng: np.random.Generator) -> dict[Scope, Array]:
        """See :class:`Field`; normal draws, all tables dense."""
        structure, tree = self.structure, self.structure.tree
        if (self.tau < 0).any():
            raise ModelError(
                'sites with a negative precision cannot be drawn without matrices: use TiltedEP(structure="tree")'
            )
        entries = max(sum(tree.sizes[u] * s for u, s in zip(tree.parents, tree.sizes, strict=True)), 1)
        memory.require(3 * 8 * size * entries, f"{size} draws of all tables", remedy="ask for fewer draws")
        free, flows = self._normal_draws(size, rng)
        root, d = np.sqrt(self.tau)[:, None], 1.0 + self.tau * structure.row_variance
        s = root / np.sqrt(d)[:, None]
        right = root * (structure.rows @ free) + rng.standard_normal((len(self.tau), size))
        with threads_for(max(tree.sizes)):
            solved = _conjugate(structure._scaled(s, d), right / np.sqrt(d)[:, None], DRAWN).x
            found = structure.passes(np.asarray(structure.rows.T @ (s * solved)))
        if len(tree.sizes) == 1:
            return {tree.variables: (free - structure._nodes(found)).T + self._mean}
        drawn: dict[Scope, Array] = {}
        for v in range(1, len(tree.sizes)):
            u = tree.parents[v]
            edge = (tree.variables[u], tree.variables[v])
            pull = (found.total[u] - found.through[v] - found.mean).T[:, :, None] + found.up[v].T[:, None, :]
            drawn[edge] = flows[v] - _expected_table(structure, v) * pull + self.mean(edge)
        return drawn

    def _normal_draws(self, size: int, rng: np.random.Generator) -> tuple[Array, list[Array]]:
        """Prior draws of all entries (entries, size), and of all tables (size, L_u, L_v)."""
        tree, n = self.structure.tree, self.structure.population
        nodes: list[Array] = []
        flows: list[Array] = []
        for v, u in enumerate(tree.parents):
            chances = self.structure.mu[0][None, :] if v == 0 else _dense(tree.transitions[v])
            rows = np.array([n]) if v == 0 else n * self.structure.mu[u]
            above = np.zeros((size, 1)) if v == 0 else nodes[u]
            w = rng.standard_normal((size, *chances.shape)) * np.sqrt(rows[:, None] * chances)
            flows.append(w + chances * (above - w.sum(axis=2))[:, :, None])
            nodes.append(flows[-1].sum(axis=1))
        return np.concatenate([x.T for x in nodes]), flows

    def _entries(self, v: int) -> slice:
        return slice(int(self.structure.offsets[v]), int(self.structure.offsets[v + 1]))

    def _flow_mean(self, v: int) -> Array:
        """Mean deviation of the possible moves into v."""
        found, u = self._mean_passes, self.structure.tree.parents[v]
        ends, columns, chances, expected = self.structure._moves(v)
        at = np.repeat(np.arange(len(expected)), np.diff(ends))
        pull = (found.total[u] - found.through[v] - found.mean)[:, 0]
        return np.asarray(expected[at] * chances * (pull[at] + found.up[v][columns, 0]))

    def _flat_index(self, v: int) -> np.ndarray:
        """Positions of the possible moves into v in the flat (parent, child) table."""
        ends, columns, _, expected = self.structure._moves(v)
        at = np.repeat(np.arange(len(expected)), np.diff(ends))
        return at * self.structure.tree.sizes[v] + columns

    def _table(self, scope: Scope, values: Array) -> Array:
        """Values of the possible moves as a dense table in the scope's order."""
        place = self.structure.tree.place(scope)
        flat = np.zeros(place.shape[0] * place.shape[1])
        flat[self._flat_index(place.node)] = values
        return np.asarray(place.turn(flat.reshape(place.shape)))


def _survey(field: MatrixFreeField) -> Survey:
    """Variances of nodes and moves, and log Z, from all final draws."""
    from headcount.structure._matrix_free_kernels import flow_squares

    structure, tau = field.structure, field.tau
    tree, draws = structure.tree, structure.sampling.final
    prior, positive = structure.prior_variance, np.maximum(tau, 0.0)
    # Entries that are seen by themselves: their own sites make the local model.
    alone = sparse.diags_array(
        ((np.diff(structure.rows.indptr) == 1) & (structure.rows.sum(axis=1) == 1)).astype(float)
    )
    own = sparse.csr_array(structure.rows.T @ alone)
    squares, of_rows = Squares(prior, own @ positive), Squares(structure.row_variance, positive)
    count = [0 if v == 0 else len(structure._moves(v)[1]) for v in range(len(tree.sizes))]
    before, after = ([np.zeros(n) for n in count] for _ in range(2))
    logs = []
    for block in structure.blocks(tau, draws):
        found = structure.passes(np.asarray(structure.rows.T @ block.weights))
        moved = block.free - structure._nodes(found)
        squares.add(block.free, moved, np.asarray(own @ block.noise))
        of_rows.add(np.asarray(structure.rows @ block.free), np.asarray(structure.rows @ moved), block.noise)
        logs.append(block.logs)
        keys = structure._keys(block.number)
        for v in range(1, len(tree.sizes)):
            u = tree.parents[v]
            above = block.free[structure.offsets[u] : structure.offsets[u + 1]]
            pull = found.total[u] - found.through[v] - found.mean
            flow_squares(*structure._moves(v), keys[v], above, pull, found.up[v], before[v], after[v])
    variance, error = squares.variances()
    rows_variance, _ = of_rows.variances()
    flows = [_flow_variance(structure, v, before[v], after[v], draws) for v in range(1, len(tree.sizes))]
    seen_mean = np.asarray(structure.rows @ field._mean)
    log_z = structure.log_z(
        tau, field.nu, seen_mean, rows_variance, np.concatenate(logs) if logs else np.zeros((0, 3))
    )
    return Survey(
        _corrected(variance, own @ np.minimum(tau, 0.0)),
        error,
        (np.empty(0), *(f[0] for f in flows)),
        (np.empty(0), *(f[1] for f in flows)),
        log_z,
    )


def _flow_variance(
    structure: MatrixFreeStructure, v: int, before: Array, after: Array, draws: int
) -> tuple[Array, Array]:
    """Variance and relative error of the sds of the moves into v; the prior's draws are the control variate."""
    ends, _, chances, expected = structure._moves(v)
    table = np.repeat(expected, np.diff(ends)) * chances
    known = table * (1.0 - table / structure.population)
    variance, loose = _controlled(after / draws, before / draws, known, draws)
    return np.minimum(variance, known), np.sqrt(loose / (2.0 * draws))


class Squares:
    r"""Mean squares of draws of some counts, and what they say of the counts' posterior variances V.

    With k the prior variance of a count, τ the precision of its own sites and ξ their noise, each posterior draw δ gives two independent
    estimates, of V and of 1 − τV, by :math:`\delta^2` and by :math:`y^2, \; y = \sqrt\tau\delta + \xi`. Their ratio is the variance
    without the own sites, C = V/(1 − τV), which is at most k; and V = C/(1 + τC). Both have the local model's draws as control variates,
    :math:`\hat V = m\,(V_{loc}/m_{loc})^{\rho}`, ρ = V/V_loc the correlation of the squares: the power keeps it positive.
    """

    def __init__(self, prior: Array, tau: Array) -> None:
        self.prior, self.tau, self.draws = prior, tau, 0
        self.sums = np.zeros((4, len(prior)))

    def add(self, free: Array, moved: Array, noise: Array) -> None:
        """Prior draws, posterior draws and √τ ξ, each (counts, draws)."""
        prior, tau = self.prior[:, None], self.tau[:, None]
        self.draws += free.shape[1]
        for total, part in zip(
            self.sums, (moved, free - prior * noise, tau * moved + noise, tau * free + noise), strict=True
        ):
            total += np.einsum("ij,ij->i", part, part)

    def variances(self) -> tuple[Array, Array]:
        """V, and the relative Monte-Carlo errors of the sds."""
        prior, tau = self.prior, self.tau
        drawn, local, left, local_left = self.sums / max(self.draws, 1)
        scale = 1.0 + tau * prior
        variance, loose = _controlled(drawn, local / scale**2, prior / scale, self.draws)
        rest, also_loose = _controlled(left, local_left / scale**2, tau / scale, self.draws)
        alone = tau <= 0
        rest = np.where(alone, 1.0, rest / np.where(alone, 1.0, tau))  # 1 − τV
        live = rest > 0
        cavity = np.minimum(np.where(live, variance / np.where(live, rest, 1.0), prior), prior)
        share = 1.0 / (1.0 + tau * cavity)
        off = np.where(alone, loose, share**2 * (loose + also_loose))
        return cavity * share, np.sqrt(off / (2.0 * max(self.draws, 1)))


def _controlled(drawn: Array, control: Array, known: Array, draws: int) -> tuple[Array, Array]:
    """Mean squares corrected by those of a control variate whose expectation is known; and 1 − ρ², their remaining noise."""
    live = (known > 0) & (control > 0) & (drawn > 0)
    ratio = np.where(live, drawn / np.where(live, control, 1.0), 1.0)
    rho = np.minimum(ratio, 1.0 / ratio)
    factor = np.where(live, known / np.where(live, control, 1.0), 1.0) ** rho
    # ρ is itself estimated: 4/d is how far 1 − ρ² can be from zero when ρ comes out as 1. Exactly 1 is the control itself.
    left = np.where(np.abs(ratio - 1.0) < SAME, 0.0, np.minimum(1.0 - rho**2 + 4.0 / draws, 1.0))
    return np.where(live, drawn * factor, 0.0), left


def _corrected(variance: Array, tau: Array) -> Array:
    """Variances with the negative ones among the precisions put in, each alone."""
    left = 1.0 + np.minimum(tau, 0.0) * variance
    if (left <= 0).any():
        raise NotPositiveDefinite
    return np.asarray(variance / left)


def _regressed(logs: Array, rows: int) -> tuple[float, float]:
    """Mean of the first column, with the two others, whose expectation is the number of rows, as control variates; and its error."""
    draws = len(logs)
    controls = logs[:, 1:] - rows
    centred = controls - controls.mean(axis=0)
    slope = np.linalg.lstsq(centred, logs[:, 0] - logs[:, 0].mean(), rcond=1e-10)[0]
    left = logs[:, 0] - controls @ slope
    return float(left.mean()), float(left.std() / np.sqrt(max(draws - 3, 1)))


_NOT_SOLVED = (
    f"conjugate gradients did not converge in {MOST_ITERATIONS} iterations: the data are too sharp for the "
    'matrix-free structure; use structure="tree"'
)


class Conjugate(NamedTuple):
    """Where conjugate gradients ended, and the coefficients of every iteration (0 where a column was done)."""

    x: Array
    size: Array
    """‖right‖² by column."""
    lengths: list[Array]
    turns: list[Array]

    def log_forms(self) -> Array:
        """rᵀ A⁻¹ log(A) r by Gauss quadrature, r the right-hand side, by column."""
        found = np.zeros(len(self.size))
        if not self.lengths:
            return found
        lengths, turns = np.array(self.lengths), np.array(self.turns)
        for c in range(len(found)):
            a = lengths[lengths[:, c] > 0, c]
            b = turns[: len(a) - 1, c] if len(a) else np.empty(0)
            if not len(a):
                continue
            diagonal = 1.0 / a
            diagonal[1:] += b / a[:-1]
            off = np.sqrt(b) / a[:-1]
            values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))
            found[c] = self.size[c] * float(vectors[0] ** 2 @ (np.log(values) / values))
        return found


def _conjugate(times: Callable[[Array], Array], right: Array, tolerance: float) -> Conjugate:
    """A⁻¹ right by conjugate gradients, all columns at once."""
    x, residual = np.zeros_like(right), right.copy()
    way, rho = residual.copy(), (residual**2).sum(axis=0)
    size, target = rho.copy(), tolerance**2 * rho
    lengths: list[Array] = []
    turns: list[Array] = []
    for _ in range(MOST_ITERATIONS):
        live = rho > target
        if not live.any():
            return Conjugate(x, size, lengths, turns)
        image = times(way)
        curvature = np.einsum("ij,ij->j", way, image)
        length = np.where(live, rho / np.where(live, curvature, 1.0), 0.0)
        x += length * way
        image *= length
        residual -= image
        old, rho = rho, np.where(live, np.einsum("ij,ij->j", residual, residual), rho)
        turn = np.where(live, rho / np.where(live, old, 1.0), 0.0)
        way *= turn
        way += residual
        lengths.append(length)
        turns.append(turn)
    raise FloatingPointError(_NOT_SOLVED)


def _joined(values: Sequence[Array]) -> Array:
    return np.concatenate([np.zeros(0), *(np.asarray(v, dtype=float) for v in values)])


@lru_cache(maxsize=16)
def _full_index(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Row ends and columns of a dense table, as of a sparse one."""
    return (
        np.arange(0, rows * columns + 1, columns, dtype=np.int32),
        np.tile(np.arange(columns, dtype=np.int32), rows),
    )


def _dense(matrix: Any) -> Array:
    return matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix, dtype=float)


def _expected_table(structure: MatrixFreeStructure, v: int) -> Array:
    """M of the edge into v."""
    return (
        structure.population
        * structure.mu[structure.tree.parents[v]][:, None]
        * _dense(structure.tree.transitions[v])
    )
