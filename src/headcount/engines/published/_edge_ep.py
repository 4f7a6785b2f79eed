r"""The paper's own method: expectation propagation over the edges of a tree, each edge fitted by a joint Laplace approximation.

Every edge (u, v) carries the potential :math:`\psi(z_u, z_v) = p(z_v\mid z_u)\,p(y_v\mid z_v)` and sends the Gaussian messages
:math:`q_{uv}(z_u)`, :math:`q_{uv}(z_v)`. In the context of the other edges' messages

.. math:: q_{\backslash uv}(z_u) = q_{tu}(z_u)\prod_{v'\neq v} q_{uv'}(z_u), \qquad q_{\backslash uv}(z_v) = \prod_{w} q_{vw}(z_v)

(t the parent of u, w the children of v) it is approximated by a Gaussian at the mode of
:math:`\xi = q_{\backslash uv}(z_u)\,q_{\backslash uv}(z_v)\,\psi`, projected on either variable and divided by that variable's
context; sweeps go up the tree and down again. See ``_edge_laplace`` for one edge.

The root's own prior and likelihood, which the paper puts into the root's edge, are an edge of their own, from a parent without
coordinates: only then is the parent of every edge Gaussian, as its elimination in closed form requires, and only then
does a root with several children count them once. The fixed point is the same; it is :class:`Laplace`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np

from headcount.engines._engine import IterativeEngine
from headcount.engines._settings import number, whole
from headcount.engines._tilting import Tilts
from headcount.engines.published._edge_laplace import (
    Coordinates,
    Edge,
    Fit,
    Likelihood,
    Message,
    Reading,
    fit_edge,
    flat,
    multiplied,
)
from headcount.engines.tilted._centre import Centre, Roles
from headcount.engines.tilted._laplace import first_sites, gaussian_at
from headcount.posterior._beliefs import Beliefs
from headcount.structure import NotPositiveDefinite, TreeStructure
from headcount.structure._base import selection
from headcount.structure._linalg import fortran, threads_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from headcount.individual import RootedTree
    from headcount.observe import Problem

    Array = NDArray[np.float64]


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
    tolerance: float = 1e-9
    max_iterations: int = 200

    def init(self, problem: Problem, rng: np.random.Generator | None = None) -> EdgeState:
        """Messages downwards are the prior, messages upwards say nothing."""
        del rng
        _check(problem)
        tilts = Tilts(problem)
        centre = Centre.at(Roles.of(tilts), np.zeros(int(tilts.offsets[-1])))
        tree = cast("RootedTree", tilts.tree)
        structure = cast("TreeStructure", centre.structure)
        frames = [Coordinates.of(m) for m in structure.means]
        edges = tuple(_edge(centre, frames, v) for v in range(len(frames)))
        children: list[list[int]] = [[] for _ in frames]
        for v in range(1, len(frames)):
            children[tree.parents[v]].append(v)
        above = [len(frames[u].kept) if u >= 0 else 0 for u in tree.parents]
        return EdgeState(
            centre,
            edges,
            tuple(tuple(c) for c in children),
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
        return gaussian_at(centre, delta)


def _check(problem: Problem) -> None:
    """Refuse what the method is not made for, all at once."""
    wrong = []
    if problem.model.rooted() is None:
        wrong.append("the model is not a chain or a tree")
    if any(len(s.scope) > 1 for s in problem.sites):
        wrong.append("tables of several variables are observed")
    rough = sorted({type(s.noise).__name__ for s in problem.sites if s.noise.exact or not s.noise.smooth})
    if rough:
        wrong.append(f"{', '.join(rough)} noise is not twice differentiable")
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
    step, frame, u = structure.steps[v], frames[v], structure.tree.parents[v]
    columns = step.gain[:, frame.kept]
    gain = columns[:0] if u < 0 else columns[frames[u].kept] - columns[frames[u].dropped]
    return Edge(fortran(gain), fortran(step.noise.matrix[frame.kept]), _likelihood(centre, frame, v))


def _sites_of(centre: Centre, v: int) -> Iterator[tuple[int, slice]]:
    """Positions of the sites on node v, and of their entries."""
    tilts = centre.roles.tilts
    tree = cast("RootedTree", tilts.tree)
    for k, (start, site) in enumerate(zip(tilts.offsets[:-1], tilts.problem.sites, strict=True)):
        if tree.index[site.scope[0]] == v:
            yield k, slice(int(start), int(start) + len(site))


def _likelihood(centre: Centre, frame: Coordinates, v: int) -> Likelihood:
    """What was seen of node v: Gaussian and linear entries settled, the rest as readings."""
    structure = cast("TreeStructure", centre.structure)
    settled = flat(len(frame.kept))
    readings = []
    for k, where in _sites_of(centre, v):
        site = centre.roles.tilts.problem.sites[k]
        rows = frame.pull(selection(site, frame.size))
        precision = rows.T @ (centre.settled_tau[where, None] * rows)
        potential = rows.T @ centre.settled_nu[where]
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
