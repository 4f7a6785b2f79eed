r"""E-steps of many tables of which both margins are known (ecological inference), all tables at once.

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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from headcount._types import Array
from headcount.engines import MAP, Engine, Status, TiltedEP
from headcount.individual import MarkovChain, Model
from headcount.learn._components import Initial, Moves
from headcount.learn._expect import EStep, Expected, Mapper
from headcount.learn._family import Family
from headcount.observe import Problem
from headcount.tables import dense

BIN = 2 * np.pi
"""Precision of the unit bin of a whole number: see ``engines/tilted/_evidence``."""
TOLERANCE = 1e-10
"""Σ|Σ_i r_i q_ij − c_j| / N at which the columns are met."""
MOST_STEPS = 200
"""Newton steps. 5 to 30 suffice, measured on tables of 100 to 100 000 individuals and rho up to .5."""
LONGEST_STEP = 4.0
"""Longest change of a tilt φ g, in nats: beyond it a row is nearly all in one column and the quadratic model says nothing."""
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


class Solved(NamedTuple):
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


def solve(tables: Tables, start: Array | None = None, *, volume: bool = True) -> Solved:
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
    return Solved(evidence, counts, units, np.where(c > 0, g, -np.inf), missed)


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
    initial: Array
    """The initial distribution, shape (R,)."""
    log_p: Array
    """Shape (R, C)."""
    phi: Array
    """Of the rows, shape (R,)."""
    first_phi: float
    """Of the first counts."""
    start: Array | None = None
    """Tilts of the columns to start from."""


class Found(NamedTuple):
    """What is expected of one table."""

    evidence: float
    """log p(r, c)."""
    counts: Array
    units: Array
    tilts: tuple[Array, Array]
    """Of rows and of columns."""
    missed: float

    @property
    def met(self) -> bool:
        """Whether the margins are met and the evidence is a number."""
        return bool(self.missed <= TOLERANCE and np.isfinite(self.evidence))


def found_at_once(tables: Sequence[Table], *, volume: bool) -> list[Found]:
    """All tables; those of one shape are solved together."""
    made: dict[int, Found] = {}
    shapes: dict[tuple[int, ...], list[int]] = {}
    for k, table in enumerate(tables):
        shapes.setdefault(table.log_p.shape, []).append(k)
    for where in shapes.values():
        made |= zip(where, _found_alike([tables[k] for k in where], volume=volume), strict=True)
    return [made[k] for k in range(len(tables))]


def _found_alike(tables: Sequence[Table], *, volume: bool) -> list[Found]:
    """Tables of one shape."""
    rows, columns, initial, log_p, phi, first_phi = (
        np.array(part) for part in zip(*(t[:6] for t in tables), strict=True)
    )
    begin = [np.zeros(columns.shape[1]) if t.start is None else t.start for t in tables]
    solved = solve(Tables(rows, columns, log_p, phi), np.array(begin), volume=volume)
    evidence = solved.evidence + first_evidence(rows, initial, first_phi, volume=volume)
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.log(rows / rows.sum(axis=1, keepdims=True) / initial) / first_phi[:, None]
        z = log_p + phi[:, :, None] * solved.tilts[:, None, :]
        ahead = np.log(np.exp(z - z.max(axis=2, keepdims=True)).sum(axis=2)) + z.max(axis=2)
        tilts = np.where(rows > 0, own - ahead / phi, -np.inf)
    return [
        Found(float(value), counts, units, both, float(missed))
        for value, counts, units, both, missed in zip(
            evidence,
            solved.counts,
            solved.units,
            zip(tilts, solved.tilts, strict=True),
            solved.missed,
            strict=True,
        )
    ]


def serves(engine: Engine) -> bool | None:
    """Whether the engine's evidence has a volume (`TiltedEP`) or none (`MAP`); None where it is another than those here."""
    if isinstance(engine, TiltedEP) and engine.device == "cpu" and engine.structure != "matrix-free":
        return True if engine.centre == "mean" else None
    return False if isinstance(engine, MAP) and engine.device == "cpu" else None


class Margins(NamedTuple):
    """Both margins of one table."""

    rows: Array
    columns: Array
    columns_first: bool
    """Whether the problem's sites are the columns, then the rows."""

    def split(self, tilts: Array) -> tuple[Array, Array]:
        """Tilts of rows and of columns, from those of the problem's sites."""
        ends = (self.columns, self.rows) if self.columns_first else (self.rows, self.columns)
        first, second = np.split(tilts, [len(ends[0])])
        return (second, first) if self.columns_first else (first, second)

    @property
    def counts(self) -> Array:
        """Rows, then columns."""
        return np.concatenate([self.rows, self.columns])

    def joined(self, rows: Array, columns: Array) -> Array:
        """The other way round."""
        return np.concatenate([columns, rows] if self.columns_first else [rows, columns])


def known_margins(problem: Problem) -> Margins | None:
    """Those of a chain of two times all of whose cells are seen exactly, and nothing else; None of any other problem."""
    model, sites = problem.model, problem.sites
    if type(model) is not MarkovChain or (len(model.variables), len(sites)) != (2, 2):
        return None
    if not problem.plain or problem.numbers is not None:
        return None
    found = {s.scope: np.asarray(s.noise.counts, dtype=float) for s in sites if s.whole and s.noise.exact}
    first, second = ((v,) for v in model.variables)
    if found.keys() != {first, second}:
        return None
    return Margins(found[first], found[second], sites[0].scope == second)


def phi_of(problem: Problem, rows: Array, dispersion: Any) -> tuple[Array, float]:
    """phi of the rows, and of the first counts."""
    if dispersion is None or dispersion.is_none:
        return np.ones(len(rows)), 1.0
    tree = problem.model.rooted()
    assert tree is not None
    first, second = dispersion.phi_of(tree, float(problem.population), lambda _: rows)
    return second, float(first[0])


def log_moves(model: Model, given: Any = None) -> Array | None:
    """log P of a chain of two times, or of another matrix for it; None where some move is impossible, and of other models."""
    if type(model) is not MarkovChain or len(model.variables) != 2:
        return None
    found = model.transitions if given is None else given
    matrix = np.asarray(dense(found[0] if isinstance(found, list) else found), dtype=float)
    return np.log(matrix) if (matrix > 0).all() else None


@dataclass(frozen=True)
class _TablesAtOnce:
    """Runs the E-steps of tables with known margins at once, and all others by another mapper."""

    other: Mapper
    tables: Mapping[int, tuple[Margins, Array, float]]
    """Of problems, by identity: margins, phi of the rows, phi of the first counts."""
    alike: dict[int, tuple[Family, Family]] = field(default_factory=dict)
    """By identity: a family, and the first with the same function of the parameters."""

    def __call__(self, tasks: Sequence[EStep]) -> list[Expected]:
        made = self._at_once(tasks)
        rest = [k for k in range(len(tasks)) if k not in made]
        made |= zip(rest, self.other([tasks[k] for k in rest]) if rest else (), strict=True)
        return [made[k] for k in range(len(tasks))]

    def _at_once(self, tasks: Sequence[EStep]) -> dict[int, Expected]:
        """E-steps with one engine, by position; tables whose margins cannot be met are left to the other mapper."""
        volume = serves(tasks[0].engine) if tasks else None
        if volume is None:
            return {}
        laws: dict[tuple[int, int], Any] = {}
        tables = {k: table for k, task in enumerate(tasks) if (table := self._table(task, laws)) is not None}
        found = found_at_once(list(tables.values()), volume=volume)
        return {k: self._expected(tasks[k], one) for k, one in zip(tables, found, strict=True) if one.met}

    def _table(self, task: EStep, laws: dict[tuple[int, int], Any]) -> Table | None:
        """The task's table; None where it is none, something else is learned, or some move is impossible."""
        known = self.tables.get(id(task.problem))
        if known is None:
            return None
        family = self._first_alike(task.family)
        key = id(family), id(task.parameters)
        if key not in laws:
            laws[key] = _law(family, task.parameters)
        if laws[key] is None:
            return None
        log_p, initial = laws[key]
        margins, phi, first = known
        start = None if task.start is None else margins.split(task.start["g"])[1]
        given = task.family.template.initial if initial is None else initial  # type: ignore[attr-defined]
        return Table(margins.rows, margins.columns, given, log_p, phi, first, start)

    def _first_alike(self, family: Family) -> Family:
        """The first family with the same function of the parameters as this one: the matrices of one serve for all.

        Matrices that are not learned are each family's own.
        """
        if not any(isinstance(c, Moves) for c in family.components):
            return family
        if id(family) not in self.alike:
            same = {id(one): one for _, one in self.alike.values()}.values()
            self.alike[id(family)] = family, next((one for one in same if family.alike(one)), family)
        return self.alike[id(family)][1]

    def _expected(self, task: EStep, found: Found) -> Expected:
        margins, _, first_phi = self.tables[id(task.problem)]
        first, both = tuple(task.problem.model.variables[:1]), tuple(task.problem.model.variables)
        counts = {first: margins.rows, both: found.counts}
        units = {first: margins.rows / first_phi, both: found.units}
        tilts = margins.joined(*found.tilts)
        start = {"g": tilts, "tau": np.zeros_like(tilts), "eta": tilts, "phi_counts": margins.counts}
        return Expected(
            evidence=found.evidence,
            statistics=task.family.statistics(counts.__getitem__, task.problem, units.__getitem__),
            start=start,
            status=Status.CONVERGED,
            excess=0.0,
            tables={both: found.counts} if task.keep_tables else {},
        )


def tables_at_once(problems: Sequence[Problem], other: Mapper) -> Mapper:
    """The mapper for these problems: the other one, where none is a table with known margins."""
    known = ((p, margins) for p in problems if (margins := known_margins(p)) is not None)
    tables = {id(p): (margins, *phi_of(p, margins.rows, p.dispersion)) for p, margins in known}
    return _TablesAtOnce(other, tables) if tables else other


def _law(family: Family, x: Array) -> tuple[Array, Array | None] | None:
    """log P of a chain of two times, and the initial distribution where it is learned; None where other things are, or a P is zero."""
    if not all(isinstance(c, (Moves, Initial)) for c in family.components):
        return None
    moves, first = family.find(Moves), family.find(Initial)  # type: ignore[type-abstract]
    log_p = log_moves(family.template, None if moves is None else moves.component.matrices(x[moves.where]))
    if log_p is None:
        return None
    return log_p, None if first is None else first.component.probabilities(x[first.where])[0]
