r"""One edge of the paper's EP: the joint Laplace fit of an edge in its context, and the two messages it sends.

With the context (cavity) :math:`q_{\backslash uv}(z_u) = N(m_u, V_u)`,
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

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headcount.structure import NotPositiveDefinite
from headcount.structure._gaussian_tree import eliminate
from headcount.structure._linalg import (
    apply,
    cholesky,
    fortran,
    forward_solve,
    gram,
    inverse_from_cholesky,
    mirror,
    product,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headcount.observe import Observation

    Array = NDArray[np.float64]
    Index = NDArray[np.intp]

SHARP = 1e-16
"""Newton stops once its decrement (the squared step in standard deviations) is below this; the last step is still taken."""


class Message(NamedTuple):
    """exp(−½ zᵀ Λ z + hᵀ z)."""

    precision: Array
    potential: Array


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
        if decrement <= SHARP or not likelihood.readings:
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
