r"""E-steps of many tables of which both margins are known (ecological inference; steps of a chain counted exactly), all tables at once.

A table n (R × C) has rows :math:`r_i` that choose columns with probabilities :math:`p_{ij}`, in parties of :math:`\phi_i`
(``population._dispersion``), and columns that sum to c. Tilts g on the columns, :math:`q_{ij} \propto p_{ij} e^{\phi_i g_j}`, under which
c is expected, minimise the convex

.. math:: f(g) = \sum_i (r_i/\phi_i) \log \sum_j p_{ij} e^{\phi_i g_j} - g \cdot c, \qquad
    S = \partial^2 f = \sum_i r_i \phi_i (\operatorname{diag} q_i - q_i q_i^\top),

and :math:`\log p(c \mid r) = f - \tfrac12 \sum_k \log(1 + 2\pi d_k)`, d the squared pivots of S (``engines/tilted/_evidence``). These are
`TiltedEP`'s expected counts :math:`r_i q_{ij}` and evidence; without the second term they are `MAP`'s.

Fisher's identity at the expected counts leaves out how the pivots change with p. Of one table that is one part in the number of its
parties; of hundreds of small tables it adds up to many standard errors, and a climb stalls between the zero of the gradient and the
maximum of the evidence. Here p is small enough to differentiate everything: with :math:`\partial \sum_k \log(1 + 2\pi d_k) =
\operatorname{tr} B\, \partial S`,

.. math::

    W_{ij} = -\tfrac12 r_i \phi_i (B_{jj} - 2 (B q_i)_j), \quad u_{ij} = q_{ij} (W_{ij} - q_i \cdot W_i), \quad
    h = S^+ \sum_i \phi_i u_i,

    m_{ij} = \frac{\partial \log p(c \mid r)}{\partial \log p_{ij}} + \frac{r_i}{\phi_i} p_{ij}
    = \frac{r_i}{\phi_i} q_{ij} + u_{ij} - r_i q_{ij} (h_j - q_i \cdot h) .

:math:`m` are the expected counts in units of parties, to second order: rows sum to :math:`r_i/\phi_i`, columns of :math:`\phi_i m_{ij}` to
c. In the place of the expected counts they make Fisher's gradient the derivative of the evidence.

Exact counts at all times make the steps of a longer chain independent: each is a table whose margins are known, the evidence is the sum of
theirs, and the tilts of a node are those of its table, :math:`h_t`, less what the steps after it add:
:math:`g_t = h_t - \log(\sum_j p_{ij} e^{\phi_i h_{t+1,j}})/\phi_i`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from headcount._types import Array
from headcount.engines import MAP, Engine, Status, TiltedEP
from headcount.individual import MarkovChain, Model
from headcount.learn._components import Initial, Moves
from headcount.learn._expect import AtOnce, EStep, Expected, Mapper
from headcount.learn._family import Family
from headcount.observe import Problem
from headcount.tables import Scope, dense

BIN = 2 * np.pi
"""Precision of the unit bin of a whole number: see ``engines/tilted/_evidence``."""
TOLERANCE = 1e-10
"""Σ|Σ_i r_i q_ij − c_j| / N at which the columns are met."""
MOST_STEPS = 200
"""Newton steps. 5 to 30 suffice, measured on tables of 100 to 100 000 individuals and rho up to .5."""
LONGEST_STEP = 4.0
"""Longest change of a tilt φ g, in nats: beyond it a row is nearly all in one column and the quadratic model says nothing."""
MOST_CELLS = 100
"""Cells up to which the steps of a longer chain are solved as tables: S takes their third power in time, once per step."""
HALVINGS = 40
"""Of a Newton step that does not lower f: 2⁻⁴⁰ of it is rounding."""


class Tables(NamedTuple):
    """Several tables' margins, probabilities and sizes of parties."""

    rows: Array
    """r, shape (K, R)."""
    columns: Array
    """c, shape (K, C)."""
    log_p: Array
    """Shape (K, R, C); −∞ nowhere."""
    phi: Array
    """Shape (K, R)."""


class ExpectedTables(NamedTuple):
    """What is expected of several tables."""

    evidence: Array
    """log p(c | r), shape (K,)."""
    counts: Array
    """r q, shape (K, R, C)."""
    units: Array
    """m, shape (K, R, C)."""
    tilts: Array
    """g, shape (K, C); −∞ at empty columns."""
    missed: Array
    """Σ|Σ_i r_i q_ij − c_j| / N, shape (K,)."""


def solve(tables: Tables, start: Array | None = None, *, volume: bool = True) -> ExpectedTables:
    """Tilts, evidence and expected counts of all tables; without ``volume`` those of the most probable counts."""
    r, c, _, phi = tables
    size = np.maximum(r.sum(axis=1), 1.0)
    g = np.zeros(c.shape)
    q, f = _tilted(tables, g)
    if start is not None:
        first = np.where(c > 0, start, 0.0)
        warm, value = _tilted(tables, first)
        better = value < f
        g, q, f = (
            np.where(better[:, None], first, g),
            np.where(better[:, None, None], warm, q),
            np.fmin(f, value),
        )
    for _ in range(MOST_STEPS):
        off = np.einsum("kr,krc->kc", r, q) - c
        spread = _spread(r * phi, q)
        missed = np.abs(off).sum(axis=1) / size
        if (missed <= TOLERANCE).all():
            break
        step = -_solved(spread, c, off)
        reach = np.abs(step).max(axis=1) * phi.max(axis=1)
        step *= np.minimum(1.0, LONGEST_STEP / np.maximum(reach, 1e-300))[:, None]
        step[missed <= TOLERANCE] = 0.0
        length, fall = np.ones(len(g)), -(off * step).sum(axis=1)
        for _ in range(HALVINGS):
            new = g + length[:, None] * step
            q, value = _tilted(tables, new)
            worse = ~(value <= f - 1e-4 * length * fall + 1e-13 * (size + np.abs(f)))
            if not worse.any():
                break
            length[worse] *= 0.5
        g, f = new, value
    counts = r[:, :, None] * q
    units = (r / phi)[:, :, None] * q
    evidence = f
    if volume:
        log_pivots, bins = _pivots(spread, c)
        evidence = f - 0.5 * log_pivots
        units = units + _second_order(r, c, phi, q, spread, bins)
    return ExpectedTables(evidence, counts, units, np.where(c > 0, g, -np.inf), missed)


def _tilted(tables: Tables, g: Array) -> tuple[Array, Array]:
    """q and f at the tilts g."""
    r, c, log_p, phi = tables
    z = np.where(c[:, None, :] > 0, log_p + phi[:, :, None] * g[:, None, :], -np.inf)
    top = z.max(axis=2, keepdims=True)
    weight = np.exp(z - top)
    total = weight.sum(axis=2, keepdims=True)
    gain = (top + np.log(total))[:, :, 0]
    return weight / total, (r / phi * gain).sum(axis=1) - (g * c).sum(axis=1)


def _spread(weight: Array, q: Array) -> Array:
    """S, shape (K, C, C), from r φ, shape (K, R)."""
    spread = -np.einsum("kr,krc,krd->kcd", weight, q, q)
    diagonal = np.arange(q.shape[2])
    spread[:, diagonal, diagonal] += np.einsum("kr,krc->kc", weight, q)
    return spread


def _solved(spread: Array, columns: Array, v: Array) -> Array:
    """S⁺ v; S is singular along the sum of all columns, and at empty ones."""
    width = columns.shape[1]
    scale = np.maximum(np.trace(spread, axis1=1, axis2=2) / width, 1e-200)
    diagonal = np.where(columns > 0, 1e-13, 1.0) * scale[:, None]
    full = spread + scale[:, None, None] / width + diagonal[:, :, None] * np.eye(width)
    return np.linalg.solve(full, v[:, :, None])[:, :, 0]


def _pivots(spread: Array, columns: Array) -> tuple[Array, Array]:
    """Σ_k log(1 + 2π d_k), and B, shape (K, C, C): the largest column, which follows from the others, is left out."""
    order = np.argsort(-columns, axis=1, kind="stable")[:, 1:]
    place = (np.arange(len(columns))[:, None, None], order[:, :, None], order[:, None, :])
    some = spread[place]
    width = some.shape[1]
    jitter = 1e-13 * np.trace(some, axis1=1, axis2=2)[:, None] + 1e-30
    empty = np.take_along_axis(columns, order, axis=1) <= 0
    root = np.linalg.cholesky(some + np.where(empty, 1.0, jitter)[:, :, None] * np.eye(width))
    pivots = np.where(empty, 0.0, np.einsum("kcc->kc", root) ** 2)
    inverse = np.linalg.inv(root)
    bins = np.zeros_like(spread)
    bins[place] = np.einsum("kca,kc,kcb->kab", inverse, BIN * pivots / (1 + BIN * pivots), inverse)
    return np.log1p(BIN * pivots).sum(axis=1), bins


def _second_order(r: Array, c: Array, phi: Array, q: Array, spread: Array, bins: Array) -> Array:
    """u − r q (h − q·h), the change of −½ Σ log(1 + 2π d) with log p, shape (K, R, C)."""
    w = (
        -0.5
        * (r * phi)[:, :, None]
        * (np.einsum("kcc->kc", bins)[:, None, :] - 2 * np.einsum("kcd,krd->krc", bins, q))
    )
    u = q * (w - (q * w).sum(axis=2, keepdims=True))
    h = _solved(spread, c, np.einsum("kr,krc->kc", phi, u))
    centred = h[:, None, :] - np.einsum("krc,kc->kr", q, h)[:, :, None]
    return u - r[:, :, None] * q * centred


def first_evidence(rows: Array, initial: Array, phi: Array, *, volume: bool) -> Array:
    """log p(r) of draws from initial distributions, (K, R), in parties of phi, (K,), by the same approximation; −∞ where impossible."""
    total = rows.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        surprise = np.where(rows > 0, rows * np.log(rows / total / initial), 0.0).sum(axis=1)
    if not volume:
        return -surprise / phi
    spread = _spread((total[:, 0] * phi)[:, None], (rows / total)[:, None, :])
    return -surprise / phi - 0.5 * _pivots(spread, rows)[0]


class Table(NamedTuple):
    """One table under a model."""

    rows: Array
    columns: Array
    log_p: Array
    """Shape (R, C)."""
    phi: Array
    """Of the rows, shape (R,)."""
    start: Array | None = None
    """Tilts of the columns to start from."""


class ExpectedTable(NamedTuple):
    """What is expected of one table."""

    evidence: float
    """log p(c | r)."""
    counts: Array
    units: Array
    tilts: Array
    """h, of the columns."""
    ahead: Array
    """What they add to the tilts of the rows, shape (R,)."""
    missed: float

    @property
    def met(self) -> bool:
        """Whether the margins are met and the evidence is a number."""
        return bool(self.missed <= TOLERANCE and np.isfinite(self.evidence))


def found_at_once(tables: Sequence[Table], *, volume: bool) -> list[ExpectedTable]:
    """All tables; those of one shape are solved together."""
    made: dict[int, ExpectedTable] = {}
    shapes: dict[tuple[int, ...], list[int]] = {}
    for k, table in enumerate(tables):
        shapes.setdefault(table.log_p.shape, []).append(k)
    for where in shapes.values():
        made |= zip(where, _found_alike([tables[k] for k in where], volume=volume), strict=True)
    return [made[k] for k in range(len(tables))]


def _found_alike(tables: Sequence[Table], *, volume: bool) -> list[ExpectedTable]:
    """Tables of one shape."""
    rows, columns, log_p, phi = (np.array(part) for part in zip(*(t[:4] for t in tables), strict=True))
    begin = [np.zeros(columns.shape[1]) if t.start is None else t.start for t in tables]
    solved = solve(Tables(rows, columns, log_p, phi), np.array(begin), volume=volume)
    z = log_p + phi[:, :, None] * solved.tilts[:, None, :]
    top = z.max(axis=2, keepdims=True)
    ahead = (np.log(np.exp(z - top).sum(axis=2)) + top[:, :, 0]) / phi
    parts = (solved.evidence, solved.counts, solved.units, solved.tilts, ahead, solved.missed)
    return [
        ExpectedTable(float(value), counts, units, tilts, after, float(missed))
        for value, counts, units, tilts, after, missed in zip(*parts, strict=True)
    ]


def serves(engine: Engine) -> bool | None:
    """Whether the engine's evidence has a volume (`TiltedEP`) or none (`MAP`); None where it is another than those here."""
    if isinstance(engine, TiltedEP) and engine.device == "cpu" and engine.structure != "matrix-free":
        return True if engine.centre == "mean" else None
    return False if isinstance(engine, MAP) and engine.device == "cpu" else None


class Margins(NamedTuple):
    """Exact counts of all cells at all times of a chain."""

    counts: tuple[Array, ...]
    """By time."""
    order: tuple[int, ...]
    """The time that each of the problem's sites shows."""

    def split(self, tilts: Array) -> list[Array]:
        """Tilts by time, from those of the problem's sites."""
        parts = np.split(tilts, np.cumsum([len(self.counts[t]) for t in self.order])[:-1])
        return [parts[self.order.index(t)] for t in range(len(self.counts))]

    def joined(self, tilts: Sequence[Array]) -> Array:
        """The other way round."""
        return np.concatenate([tilts[t] for t in self.order])


def known_margins(problem: Problem) -> Margins | None:
    """Those of a chain all of whose cells are seen exactly at all times, once, and nothing else; None of any other problem."""
    model, sites = problem.model, problem.sites
    if type(model) is not MarkovChain or not 2 <= len(model.variables) == len(sites):
        return None
    if not problem.plain:
        return None
    found = {s.scope: np.asarray(s.noise.counts, dtype=float) for s in sites if s.whole and s.noise.exact}
    scopes: list[Scope] = [(v,) for v in model.variables]
    if found.keys() != set(scopes):
        return None
    if len(scopes) > 2 and max(map(len, found.values())) > MOST_CELLS:
        return None
    return Margins(tuple(found[s] for s in scopes), tuple(scopes.index(s.scope) for s in sites))


def phi_of(problem: Problem, margins: Margins, dispersion: Any) -> tuple[Array, ...]:
    """phi of the first counts, shape (1,), and of the rows of every step."""
    if dispersion is None or dispersion.is_none:
        return (np.ones(1), *(np.ones(len(rows)) for rows in margins.counts[:-1]))
    tree = problem.model.rooted()
    assert tree is not None
    counts = dict(zip(problem.model.variables, margins.counts, strict=True))
    return tuple(dispersion.phi_of(tree, float(problem.population), counts.__getitem__))


def log_moves(model: Model, given: Any = None) -> list[Array] | None:
    """log P of every step of a chain, or of other matrices for it; None where some move is impossible, and of other models."""
    if type(model) is not MarkovChain:
        return None
    found = model.transitions if given is None else given
    steps = len(model.variables) - 1
    each = list(found) if isinstance(found, (list, tuple)) else [found] * steps
    logs: dict[int, Array] = {}
    for one in each:
        if id(one) not in logs:
            matrix = np.asarray(dense(one), dtype=float)
            if not (matrix > 0).all():
                return None
            logs[id(one)] = np.log(matrix)
    return [logs[id(one)] for one in each]


@dataclass(frozen=True)
class _TablesAtOnce(AtOnce):
    """Runs the E-steps of tables with known margins at once."""

    tables: Mapping[int, tuple[Margins, tuple[Array, ...]]]
    """Of problems, by identity: margins, and phi (see `phi_of`)."""

    def found(self, tasks: Sequence[EStep]) -> dict[int, Expected]:
        """See `AtOnce`: E-steps with one engine; tables whose margins cannot be met are left to the other mapper."""
        volume = serves(tasks[0].engine) if tasks else None
        if volume is None:
            return {}
        laws: dict[tuple[int, int], Any] = {}
        steps = {k: found for k, task in enumerate(tasks) if (found := self._steps(task, laws)) is not None}
        solved = iter(
            found_at_once([table for tables, _ in steps.values() for table in tables], volume=volume)
        )
        made = {}
        for k, (tables, initial) in steps.items():
            own = [next(solved) for _ in tables]
            if all(one.met for one in own):
                made[k] = self._expected(tasks[k], own, initial, volume=volume)
        return made

    def _steps(self, task: EStep, laws: dict[tuple[int, int], Any]) -> tuple[list[Table], Array] | None:
        """The task's tables and initial law; None where it has none, something else is learned, or some move is impossible."""
        known = self.tables.get(id(task.problem))
        if known is None:
            return None
        family = self.first_alike(task.family)
        key = id(family), id(task.parameters)
        if key not in laws:
            laws[key] = _law(family, task.parameters)
        if laws[key] is None or len(laws[key][0]) != len(known[0].counts) - 1:
            return None
        log_p, learned = laws[key]
        margins, phi = known
        initial = task.family.template.initial if learned is None else learned  # type: ignore[attr-defined]
        starts: Sequence[Array | None] = [None] * len(log_p)
        if task.start is not None:
            own = margins.split(task.start["g"])
            ahead = task.start.get("ahead")
            if len(log_p) == 1:
                starts = own[1:]
            elif ahead is not None:
                starts = [g + a for g, a in zip(own[1:], margins.split(ahead)[1:], strict=True)]
        both = zip(margins.counts, margins.counts[1:], log_p, phi[1:], starts, strict=False)
        return [Table(*one) for one in both], initial

    def first_alike(self, family: Family) -> Family:
        """See `AtOnce`; matrices that are not learned are each family's own."""
        learns = any(isinstance(c, Moves) for c in family.components)
        return super().first_alike(family) if learns else family

    def _expected(
        self, task: EStep, found: Sequence[ExpectedTable], initial: Array, *, volume: bool
    ) -> Expected:
        margins, (first_phi, *_) = self.tables[id(task.problem)]
        variables = tuple(task.problem.model.variables)
        first, rows, pairs = variables[:1], margins.counts[0], list(pairwise(variables))
        counts: dict[Scope, Array] = {first: rows}
        units: dict[Scope, Array] = {first: rows / first_phi}
        for pair, one in zip(pairs, found, strict=True):
            counts[pair], units[pair] = one.counts, one.units
        ahead = [*(one.ahead for one in found), np.zeros(len(margins.counts[-1]))]
        with np.errstate(divide="ignore", invalid="ignore"):  # 0/0 where nobody is and nobody can be
            root = np.log(rows / rows.sum() / initial) / first_phi
            own = [
                np.where(n > 0, h - a, -np.inf)
                for n, h, a in zip(margins.counts, [root, *(one.tilts for one in found)], ahead, strict=True)
            ]
        tilts = margins.joined(own)
        start = {
            "g": tilts,
            "tau": np.zeros_like(tilts),
            "eta": tilts,
            "phi_counts": np.concatenate(margins.counts),
            "ahead": margins.joined(ahead),
        }
        beginning = float(first_evidence(rows[None], initial, first_phi, volume=volume)[0])
        return Expected(
            evidence=beginning + sum(one.evidence for one in found),
            statistics=task.family.statistics(counts.__getitem__, task.problem, units.__getitem__),
            start=start,
            status=Status.CONVERGED,
            excess=0.0,
            tables={pair: counts[pair] for pair in pairs} if task.keep_tables else {},
        )


def tables_at_once(problems: Sequence[Problem], other: Mapper) -> Mapper:
    """The mapper for these problems: the other one, where none is a chain with known margins."""
    known = ((p, margins) for p in problems if (margins := known_margins(p)) is not None)
    tables = {id(p): (margins, phi_of(p, margins, p.dispersion)) for p, margins in known}
    return _TablesAtOnce(other, tables) if tables else other


def _law(family: Family, x: Array) -> tuple[list[Array], Array | None] | None:
    """log P of a chain's steps, and the initial distribution where it is learned; None where other things are, or a P is zero."""
    if not all(isinstance(c, (Moves, Initial)) for c in family.components):
        return None
    moves, first = family.find(Moves), family.find(Initial)  # type: ignore[type-abstract]
    log_p = log_moves(family.template, None if moves is None else moves.component.matrices(x[moves.where]))
    if log_p is None:
        return None
    return log_p, None if first is None else first.component.probabilities(x[first.where])[0]
