r"""The paper's expectation propagation over the edges of a tree, each edge fitted by a joint Laplace approximation.

Every edge (u, v) carries the potential :math:`\psi(z_u, z_v) = p(z_v\mid z_u)\,p(y_v\mid z_v)` and sends the Gaussian messages
:math:`q_{uv}(z_u)`, :math:`q_{uv}(z_v)`. In the context of the other edges' messages

.. math:: q_{\backslash uv}(z_u) = q_{tu}(z_u)\prod_{v'\neq v} q_{uv'}(z_u), \qquad q_{\backslash uv}(z_v) = \prod_{w} q_{vw}(z_v)

(t the parent of u, w the children of v) it is approximated by a Gaussian at the mode of
:math:`\xi = q_{\backslash uv}(z_u)\,q_{\backslash uv}(z_v)\,\psi`, projected on either variable and divided by that variable's
context; sweeps go up the tree and down again.

The root's own prior and likelihood, which the paper puts into the root's edge, are an edge of their own, from a parent without
coordinates: only then is the parent of every edge Gaussian, as its elimination in closed form requires, and only then
does a root with several children count them once. The fixed point is the same; it is :class:`Laplace`'s.

**One edge**: its joint Laplace fit in its context, and the two messages it sends. With the context (cavity)
:math:`q_{\backslash uv}(z_u) = N(m_u, V_u)`,
:math:`q_{\backslash uv}(z_v) \propto \exp(-\tfrac12 z_v^\top\Lambda z_v + h^\top z_v)` and the potential
:math:`\psi = p(z_v\mid z_u)\,p(y_v\mid z_v)`, the parent is eliminated in closed form:

.. math:: \max_{z_u}\log\xi = -\tfrac12 (z_v - m)^\top S^{-1}(z_v - m) - \tfrac12 z_v^\top\Lambda z_v + h^\top z_v + \log p(y_v\mid z_v),
          \qquad m = P^\top m_u,\; S = P^\top V_u P + Q,

and the child found by Newton. With :math:`(D, e)` the curvature and potential of :math:`\log p(y_v\mid\cdot)` at the mode,
projecting on either variable (by marginalising the other) and dividing by its cavity leaves

.. math:: q_{uv}(z_v) \propto N(z_v; m, S)\,e^{-\frac12 z_v^\top D z_v + e^\top z_v}, \qquad
          q_{uv}(z_u) \propto \exp\bigl(-\tfrac12 z_u^\top P\Lambda'P^\top z_u + (P h')^\top z_u\bigr),

:math:`\Lambda' = (I + (\Lambda+D)Q)^{-1}(\Lambda+D)`, :math:`h' = (I + (\Lambda+D)Q)^{-1}(h+e)`. The division is carried out
on paper: subtracting the cavity's precision from the projection's would cost digits, and inverting Q would rule out
deterministic steps. All z here are deviations from :math:`N\mu` in minimal coordinates: cells no one can reach are gone, and
each variable's most probable cell is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

import numpy as np
from scipy.linalg.lapack import dpotri

from headcount._linalg import (
    apply,
    cholesky,
    fortran,
    forward_solve,
    gram,
    mirror,
    product,
    threads_for,
)
from headcount.engines._cost import GaussianUse, matrices_memory, matrices_seconds, sizes
from headcount.engines._tilting import Tilts
from headcount.engines.engine import IterativeEngine, number, whole
from headcount.engines.tilted._centre import Centre, Roles
from headcount.engines.tilted._laplace import first_sites, gaussian, state_at
from headcount.posterior import Beliefs
from headcount.structure import NotPositiveDefinite, TreeStructure
from headcount.structure._gaussian_tree import eliminate
from headcount.structure.base import selection

if TYPE_CHECKING:
    from headcount._types import Array, Index
    from headcount.individual import RootedTree
    from headcount.observe import ClosedProblem, Observation


NEWTON_DECREMENT = 1e-16
"""Newton stops once its decrement (the squared step in standard deviations) is below this; the last step is still taken."""


class Message(NamedTuple):
    """exp(−½ zᵀ Λ z + hᵀ z)."""

    precision: Array
    potential: Array


def inverse_from_cholesky(factor: Array) -> Array:
    """``(L Lᵀ)⁻¹``, both triangles."""
    if factor.size == 0:
        return factor
    inverse, _ = dpotri(factor, lower=1)
    return mirror(cast("Array", inverse))


def flat(size: int) -> Message:
    """The message that says nothing."""
    return Message(np.zeros((size, size), order="F"), np.zeros(size))


def multiplied(first: Message, *others: Message) -> Message:
    """The product of messages about one variable."""
    if not others:
        return first
    precision, potential = first.precision.copy(order="F"), first.potential.copy()
    for other in others:
        precision += other.precision
        potential += other.potential
    return Message(precision, potential)


@dataclass(frozen=True)
class Coordinates:
    """Which of a variable's cells are kept; the dropped one balances them, the unreachable ones do not move."""

    kept: Index
    dropped: int
    size: int

    @classmethod
    def of(cls, expected: Array) -> Coordinates:
        """Drop the most probable cell and what no one can reach."""
        dropped = int(np.argmax(expected))
        kept = np.flatnonzero((expected > 0) & (np.arange(len(expected)) != dropped))
        return cls(kept, dropped, len(expected))

    def embed(self, z: Array) -> Array:
        """Deviations of all cells."""
        full = np.zeros(self.size)
        full[self.kept] = z
        full[self.dropped] = -z.sum()
        return full

    def pull(self, slope: Array) -> Array:
        """The adjoint of :meth:`embed`: derivatives by cell (last axis) to derivatives by coordinate."""
        return np.asarray(slope[..., self.kept] - slope[..., self.dropped, None])


@dataclass(frozen=True)
class Reading:
    """One noise on some cells of a variable, or on sums of its cells."""

    noise: Observation
    expected: Array
    positions: Index
    """Of its entries among all observed entries."""
    cells: Index | None
    rows: Array | None
    """Sums as a matrix on the coordinates, ``(K, kept)``; None when cells are seen."""


@dataclass(frozen=True)
class Likelihood:
    """Everything seen of one variable: what is Gaussian or linear as one message, the rest as readings."""

    coordinates: Coordinates
    settled: Message
    readings: tuple[Reading, ...]

    def deviations(self, reading: Reading, z: Array) -> Array:
        """What a reading sees, as a deviation."""
        if reading.cells is not None:
            return self.coordinates.embed(z)[reading.cells]
        return apply(fortran(reading.rows), z)  # type: ignore[arg-type]

    def value(self, z: Array) -> float:
        """log p(y | z) of the readings; −inf outside their domain."""
        total = 0.0
        for reading in self.readings:
            n = reading.expected + self.deviations(reading, z)
            with np.errstate(divide="ignore", invalid="ignore"):
                here = reading.noise.log_prob(n)
            if not np.isfinite(here).all():
                return -np.inf
            total += float(here.sum())
        return total

    def expand(self, z: Array, *, concave: bool = False) -> tuple[Array, Array]:
        """Slope of the readings, and minus their Hessian (``concave``: without what bends upwards), at z."""
        size = len(self.coordinates.kept)
        slope_cells, bend_cells = np.zeros(self.coordinates.size), np.zeros(self.coordinates.size)
        slope, bend = np.zeros(size), np.zeros((size, size), order="F")
        for reading in self.readings:
            n = reading.expected + self.deviations(reading, z)
            tau = -reading.noise.curvature(n)
            tau = np.maximum(tau, 0.0) if concave else tau
            if reading.cells is not None:
                slope_cells[reading.cells] += reading.noise.slope(n)
                bend_cells[reading.cells] += tau
            else:
                rows = fortran(reading.rows)  # type: ignore[arg-type]
                slope += apply(rows, reading.noise.slope(n), transpose=True)
                bend += product(rows, fortran(tau[:, None] * rows), left=True)
        bend += bend_cells[self.coordinates.dropped]
        bend.ravel(order="K")[:: size + 1] += bend_cells[self.coordinates.kept]
        return slope + self.coordinates.pull(slope_cells), bend


@dataclass(frozen=True)
class Edge:
    """p(z_v | z_u) in minimal coordinates, and what was seen of v. The root hangs on a parent without coordinates."""

    gain: Array
    """P, ``(kept of u, kept of v)``."""
    factor: Array
    """R with Q = R Rᵀ."""
    likelihood: Likelihood


class Fit(NamedTuple):
    """What one visit to an edge finds: the mode of the child, and both messages."""

    mode: Array
    to_parent: Message
    to_child: Message


def fit_edge(edge: Edge, above: Message, below: Message, *, start: Array) -> Fit:
    """The joint Laplace approximation of one edge between its cavities, and the messages it sends.

    Parameters
    ----------
    edge
        The potential ψ.
    above, below
        The cavities of the parent and of the child.
    start
        A value of the child inside the likelihood's domain.
    """
    v_u, m_u = _moments(above)
    through = product(v_u, edge.gain)
    s = mirror(gram(edge.factor))
    if through.size:
        s = s + product(edge.gain, through, left=True)
    c = _factored(s)
    inner = inverse_from_cholesky(c)
    predicted = Message(inner, apply(inner, apply(edge.gain, m_u, transpose=True)))
    settled = edge.likelihood.settled
    mode = newton(edge.likelihood, multiplied(predicted, below, settled), start=start)
    slope, bend = edge.likelihood.expand(mode)
    site = multiplied(Message(bend, slope + apply(bend, mode)), settled)
    return Fit(mode, _upwards(edge, multiplied(below, site)), multiplied(predicted, site))


def _upwards(edge: Edge, known: Message) -> Message:
    """What is known of the child, as a message about its parent: P(I + ΛQ)⁻¹ΛPᵀ without inverting Q."""
    _, y, w, _ = eliminate(edge.factor, known.precision, known.potential)
    left = mirror(gram(y, scale=-1.0, onto=known.precision.copy(order="F")))
    potential = known.potential - apply(y, w)
    precision = product(product(edge.gain, left), edge.gain, right=True)
    return Message(fortran(0.5 * (precision + precision.T)), apply(edge.gain, potential))


def newton(likelihood: Likelihood, context: Message, *, start: Array, most: int = 100) -> Array:
    """The mode of ``exp(−½ zᵀΛz + hᵀz) p(y | z)`` by Newton, halving steps that leave the domain or lose ground.

    Raises
    ------
    FloatingPointError
        When no step gains anything although the slope says that one should.
    """
    z = start
    objective = _objective(likelihood, context, z)
    for _ in range(most):
        slope, bend = likelihood.expand(z)
        gradient = context.potential - apply(context.precision, z) + slope
        c = cholesky(context.precision + bend)
        if c is None:  # where the noise bends upwards, climb by what bends downwards
            c = _factored(context.precision + likelihood.expand(z, concave=True)[1])
        half = forward_solve(c, fortran(gradient[:, None]))
        step = forward_solve(c, half, transpose=True)[:, 0]
        decrement = float((half * half).sum())
        length = 1.0
        for _ in range(60):
            new = _objective(likelihood, context, z + length * step)
            if new >= objective + 1e-4 * length * decrement - 1e-12 * (1.0 + abs(objective)):
                break
            length *= 0.5
        else:
            if decrement < 1e-8:  # nothing left to gain that rounding would let us see
                return z
            raise FloatingPointError
        z, objective = z + length * step, new
        if decrement <= NEWTON_DECREMENT or not likelihood.readings:
            return z
    raise FloatingPointError


def _objective(likelihood: Likelihood, context: Message, z: Array) -> float:
    quadratic = 0.5 * float(z @ apply(context.precision, z)) - float(context.potential @ z)
    return likelihood.value(z) - quadratic


def _moments(message: Message) -> tuple[Array, Array]:
    """Covariance and mean of a message."""
    covariance = inverse_from_cholesky(_factored(message.precision))
    return covariance, apply(covariance, message.potential)


def _factored(matrix: Array) -> Array:
    c = cholesky(matrix.copy(order="F"))
    if c is None:
        raise NotPositiveDefinite
    return c


@dataclass(frozen=True)
class EdgeState:
    """All messages, and the modes they were made at."""

    centre: Centre
    edges: tuple[Edge, ...]
    children: tuple[tuple[int, ...], ...]
    to_parent: tuple[Message, ...]
    to_child: tuple[Message, ...]
    modes: tuple[Array, ...]
    residual: float = np.inf


@dataclass(frozen=True)
class EdgeEP(IterativeEngine):
    """EP–Laplace over edges (Liu, Sheldon & Dietterich 2014, Sec. 4), for chains and trees observed at their nodes.

    Any twice-differentiable noise. With Gaussian noise one sweep is the exact answer. Like :class:`Laplace`, whose answer this is,
    it is here because it is the published method: nothing keeps means ≥ 0 where y = 0, and the posterior's promises say so.

    Parameters
    ----------
    tolerance
        On the largest change of a node's expected count in one sweep, relative to N.
    """

    rules: ClassVar = {"tolerance": number(), "max_iterations": whole()}
    name: ClassVar[str] = "EdgeEP"
    use: ClassVar[GaussianUse] = GaussianUse(sweeps=20, matrices=15)
    """It makes 3 sweeps, whose searches for modes take as long as about 20 (measured: L = 16, 36, 100)."""
    tolerance: float = 1e-9
    max_iterations: int = 200

    def memory(self, problem: ClosedProblem) -> int:
        """See `Engine`."""
        return int(matrices_memory(sizes(problem), self.use))

    def seconds(self, problem: ClosedProblem, speed: float) -> float:
        """See `Engine`."""
        return matrices_seconds(sizes(problem), self.use, speed)

    def init(self, problem: ClosedProblem, rng: np.random.Generator | None = None) -> EdgeState:
        """Messages downwards are the prior, messages upwards say nothing."""
        del rng
        _check(problem)
        tilts = Tilts(problem)
        centre = Centre.at(Roles.of(tilts))
        tree = cast("RootedTree", tilts.tree)
        structure = cast("TreeStructure", centre.structure)
        frames = [Coordinates.of(m) for m in structure.means]
        edges = tuple(_edge(centre, frames, v) for v in range(len(frames)))
        above = [len(frames[u].kept) if u >= 0 else 0 for u in tree.parents]
        return EdgeState(
            centre,
            edges,
            tuple(tuple(np.flatnonzero(tree.parent == v).tolist()) for v in range(len(frames))),
            tuple(flat(size) for size in above),
            tuple(_prior(m, frame) for m, frame in zip(structure.means, frames, strict=True)),
            _first_modes(centre, frames),
        )

    def step(self, state: EdgeState) -> EdgeState:
        """One sweep: every edge from the leaves up, then every edge from the root down."""
        tree = cast("RootedTree", state.centre.roles.tilts.tree)
        to_parent, to_child, modes = list(state.to_parent), list(state.to_child), list(state.modes)
        count = len(state.edges)
        try:
            with threads_for(max(tree.sizes)):
                for v in (*range(count - 1, 0, -1), *range(count)):
                    fit = self._visit(state, tree.parents[v], v, to_parent, to_child, modes[v])
                    modes[v], to_parent[v], to_child[v] = fit
        except (NotPositiveDefinite, FloatingPointError):
            return replace(state, residual=np.nan)
        moved = max(
            float(np.abs(edge.likelihood.coordinates.embed(new - old)).max())
            for edge, new, old in zip(state.edges, modes, state.modes, strict=True)
        )
        return replace(
            state,
            to_parent=tuple(to_parent),
            to_child=tuple(to_child),
            modes=tuple(modes),
            residual=moved / state.centre.roles.tilts.problem.population,
        )

    @staticmethod
    def _visit(
        state: EdgeState, u: int, v: int, to_parent: list[Message], to_child: list[Message], start: Array
    ) -> Fit:
        """Fit one edge in the context of the others' present messages."""
        above = flat(0)
        if u >= 0:
            above = multiplied(to_child[u], *(to_parent[w] for w in state.children[u] if w != v))
        below = multiplied(flat(len(start)), *(to_parent[w] for w in state.children[v]))
        return fit_edge(state.edges[v], above, below, start=start)

    def residual(self, state: EdgeState) -> float:
        """See :attr:`tolerance`."""
        return state.residual

    def finish(self, state: EdgeState) -> Beliefs:
        """The Gaussian with the likelihood's slope and curvature at the modes, on the whole tree."""
        centre = state.centre
        delta = np.zeros_like(centre.g)
        for edge, mode in zip(state.edges, state.modes, strict=True):
            for reading in edge.likelihood.readings:
                delta[reading.positions] = edge.likelihood.deviations(reading, mode)
        return gaussian(state_at(centre, delta, np.zeros_like(delta)))


def rough_noises(problem: ClosedProblem) -> str:
    """The kinds of noise that have no slope or curvature everywhere."""
    return ", ".join(
        sorted({type(s.noise).__name__ for s in problem.sites if s.noise.exact or not s.noise.smooth})
    )


def _check(problem: ClosedProblem) -> None:
    """Refuse what EdgeEP is not made for, all at once."""
    wrong = []
    if problem.model.rooted() is None:
        wrong.append("the model is not a chain or a tree")
    if any(len(s.scope) > 1 for s in problem.sites):
        wrong.append("tables of several variables are observed")
    if rough := rough_noises(problem):
        wrong.append(f"{rough} noise is not twice differentiable")
    if wrong:
        message = f"EdgeEP takes chains and trees observed at their nodes with smooth noise, but {'; '.join(wrong)}: use TiltedEP"
        raise ValueError(message)


def _prior(expected: Array, frame: Coordinates) -> Message:
    """The prior of one variable, N(0, N(diag μ − μμᵀ)), whose inverse is diag(1/Nμ) + 1/(Nμ of the dropped cell)."""
    precision = np.full((len(frame.kept), len(frame.kept)), 1.0 / expected[frame.dropped], order="F")
    precision.ravel(order="K")[:: len(frame.kept) + 1] += 1.0 / expected[frame.kept]
    return Message(precision, np.zeros(len(frame.kept)))


def _first_modes(centre: Centre, frames: list[Coordinates]) -> tuple[Array, ...]:
    """Deviations inside every likelihood's domain: zero, where that will do."""
    tau, nu = first_sites(centre)
    if not tau.any():
        return tuple(np.zeros(len(frame.kept)) for frame in frames)
    tilts = centre.roles.tilts
    means = centre.structure.field(tilts.split(tau), tilts.split(nu)).mean
    variables = cast("RootedTree", tilts.tree).variables
    return tuple(means((v,))[frame.kept] for v, frame in zip(variables, frames, strict=True))


def _edge(centre: Centre, frames: list[Coordinates], v: int) -> Edge:
    """The edge into v, in minimal coordinates."""
    structure = cast("TreeStructure", centre.structure)
    edge, frame, u = structure.steps[v].edge, frames[v], structure.tree.parents[v]
    columns = edge.gain[:, frame.kept]
    gain = columns[:0] if u < 0 else columns[frames[u].kept] - columns[frames[u].dropped]
    return Edge(fortran(gain), fortran(edge.noise.root[frame.kept]), _likelihood(centre, frame, v))


def _likelihood(centre: Centre, frame: Coordinates, v: int) -> Likelihood:
    """What was seen of node v: Gaussian and linear entries settled, the rest as readings."""
    structure, tilts = cast("TreeStructure", centre.structure), centre.roles.tilts
    settled = flat(len(frame.kept))
    readings = []
    for k, site in enumerate(tilts.problem.sites):
        if structure.tree.index[site.scope[0]] != v:
            continue
        where = slice(int(tilts.offsets[k]), int(tilts.offsets[k + 1]))
        rows = frame.pull(selection(site, frame.size))
        precision = rows.T @ (centre.fixed_tau[where, None] * rows)
        potential = rows.T @ centre.fixed_nu[where]
        if k in structure.known.readings:
            full, slope = structure.known.readings[k]
            precision, potential = precision + rows.T @ full @ rows, potential + rows.T @ slope
        settled = multiplied(settled, Message(fortran(precision), potential))
        active = np.flatnonzero(centre.roles.active[where])
        if len(active):
            readings.append(
                Reading(
                    site.noise.take(active),
                    centre.expected[where][active],
                    where.start + active,
                    None if site.index is None else site.index[active],
                    rows[active] if site.index is None else None,
                )
            )
    return Likelihood(frame, settled, tuple(readings))
