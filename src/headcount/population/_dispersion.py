r"""How much more (or less) counts scatter than those of independent individuals: moving together.

*Flocks for life* of size c move as one: n = c m with N/c units, so that the log of :math:`E\,e^{g\cdot n}` is
:math:`(N/c)\,[A(\theta + c g) - A(\theta)]`: means as before, covariances c times larger.

*Overdispersion* of a step: of those in state i, parties of size :math:`\phi_i` move together and mix again before the next step. Per
individual the cgf of the step is :math:`\phi_i^{-1}\log\sum_j p_{ij}e^{\phi_i m_j}`, its covariance
:math:`\phi_i\,E[n_i]\,(\mathrm{diag}\,p_i - p_i p_i^\top)`. Less than 1 (timetables) is under-dispersion. With

.. math:: \phi_i = 1 + (\hat n_i - 1)\,\rho

that is the covariance of a Dirichlet–multinomial row with intra-class correlation :math:`\rho`, whose probabilities vary from step to
step: relative errors then stop shrinking with N. :math:`\hat n_i` is the count expected given the data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.sparse import diags_array, issparse
from scipy.special import gammaincinv

from headcount.checks import brief, finite_number, is_sequence
from headcount.errors import ModelError
from headcount.tables import dense

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headcount.individual import Model, RootedTree

    Array = NDArray[np.float64]

Phi = tuple["NDArray[np.float64]", ...]
"""phi of a rooted tree: see `RootedTree.phi`."""


class Dispersion(ABC):
    """How individuals move together. What is here is true of individuals that move alone."""

    flock_size: float = 1.0
    """Individuals that move as one for life."""
    rho: Any = None
    """Intra-class correlation, where it was given."""
    initial: float | None = None
    """phi or rho of the first counts, where it was given."""
    of_steps: ClassVar[bool] = False
    """Whether it is a property of single steps, which must have a direction."""
    estimated: ClassVar[bool] = False
    """Whether the data are to decide: engines need it decided."""
    values: Any = None
    """The size of a flock, phi or rho, as it was given: one, one per state, or by step; None of independent individuals."""

    @property
    @abstractmethod
    def is_none(self) -> bool:
        """Whether individuals are independent after all."""

    @property
    @abstractmethod
    def text(self) -> str:
        """As the command line takes it."""

    @property
    def by_step(self) -> bool:
        """Whether steps are given by name."""
        return False

    def misfits(self, model: Model, most: float) -> list[str]:
        """What does not fit a model of at most so many individuals, in words."""
        del model, most
        return []

    def among(self, nodes: Collection[Hashable]) -> Dispersion:
        """The same for some of the steps."""
        del nodes
        return self

    def rows(self, node: Hashable, size: int) -> Array:
        """phi or rho, whichever was given, of each of the ``size`` states from which moves lead to ``node``."""
        del node
        return np.full(size, self.flock_size)

    def root_phi(self, population: float) -> float:
        """phi of the first counts."""
        del population
        return 1.0

    def spacing(self, counts: Array) -> float:
        """How far apart counts can be, where these are some that are possible."""
        del counts
        return 1.0

    def party(self, node: Hashable, counts: Array) -> Array:
        """How many move together from each state into ``node``, when ``counts`` are there (E n²/E n where they vary)."""
        del node
        return np.ones(len(counts))

    def row_correlations(self, tree: RootedTree) -> tuple[Array, ...] | None:
        """rho of every row, by node; None where rows do not vary."""
        if self.rho is None:
            return None
        steps = zip(tree.variables[1:], tree.parents[1:], strict=True)
        return (np.array([self.initial or 0.0]), *(self.rows(v, tree.sizes[u]) for v, u in steps))

    def phi_of(self, tree: RootedTree, population: float, expected: Callable[[Hashable], Array]) -> Phi:
        """phi at the root and of every step of a tree, given the expected counts of a variable (read for rho only)."""
        parts: list[Array] = [np.array([self.root_phi(population)])]
        for v in range(1, len(tree.parents)):
            u = tree.parents[v]
            counts = np.zeros(tree.sizes[u]) if self.rho is None else expected(tree.variables[u])
            parts.append(self.party(tree.variables[v], np.asarray(counts, dtype=float)))
        return tuple(parts)


@dataclass(frozen=True)
class Independent(Dispersion):
    """Individuals move alone."""

    @property
    def is_none(self) -> bool:
        """See `Dispersion`."""
        return True

    @property
    def text(self) -> str:
        """See `Dispersion`."""
        return "independent"


def as_dispersion(given: Dispersion | None) -> Dispersion:
    """What was given; individuals that move alone for None."""
    return Independent() if given is None else given


@dataclass(frozen=True)
class Flocks(Dispersion):
    """Individuals live in flocks of ``size`` that move as one, all the time.

    Parameters
    ----------
    size
        c ≥ 1; a mean size need not be whole. Covariances of counts are c times those of independent individuals.

    Examples
    --------
    >>> Flocks(5)
    Flocks(size=5.0)
    """

    size: float

    def __post_init__(self) -> None:
        size = finite_number(self.size, "size", least=1.0, expected="the size of a flock, 1 or more")
        object.__setattr__(self, "size", size)

    @property
    def flock_size(self) -> float:  # type: ignore[override]
        """c."""
        return self.size

    @property
    def values(self) -> float:
        """c."""
        return self.size

    @property
    def is_none(self) -> bool:
        """See `Dispersion`."""
        return self.size == 1.0

    @property
    def text(self) -> str:
        """See `Dispersion`."""
        return f"flocks:{self.size:g}"

    def misfits(self, model: Model, most: float) -> list[str]:
        """See `Dispersion`."""
        del model
        return [f"a flock of {self.size:g} is larger than the population, {most:.0f}"] * (self.size > most)

    def root_phi(self, population: float) -> float:
        """See `Dispersion`."""
        del population
        return self.size

    def spacing(self, counts: Array) -> float:
        """A whole flock, if the counts are all made of whole flocks."""
        return self.size if not (counts % self.size).any() else 1.0

    def party(self, node: Hashable, counts: Array) -> Array:
        """The size."""
        del node
        return np.full(len(counts), self.size)


@dataclass(frozen=True)
class Overdispersion(Dispersion):
    """Individuals move together for a step, and mix again before the next.

    Parameters
    ----------
    phi
        Factor on the covariance of every step's moves: one number; one per state a move starts from; or a mapping from
        the variable a move leads to (for a chain: the time of arrival) to either. Above 0; below 1 is under-dispersion.
    rho
        Intra-class correlation of those who start from one state, 0 ≤ rho < 1, instead of phi, in the same forms.
    initial
        The same factor for the first counts (the root), in the terms of phi or rho. Left out, the initial law is known
        exactly and individuals are independent draws from it.

    Examples
    --------
    >>> Overdispersion(rho=0.01)
    Overdispersion(rho=0.01)
    """

    phi: Any = field(default=None, kw_only=True, repr=False)
    rho: Any = field(default=None, kw_only=True, repr=False)
    initial: float | None = field(default=None, kw_only=True, repr=False)

    of_steps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if (self.phi is None) == (self.rho is None):
            raise ModelError("give either phi or rho: Overdispersion(phi=3) or Overdispersion(rho=0.01)")
        name, value, _ = self._given
        given = (
            {node: _factor(one, f"{name}[{node!r}]", name) for node, one in value.items()}
            if isinstance(value, Mapping)
            else _factor(value, name, name)
        )
        object.__setattr__(self, name, given)
        if self.initial is not None:
            expected = "a positive number" if name == "phi" else "a correlation, 0 ≤ initial < 1"
            initial = finite_number(self.initial, "initial", expected=expected)
            object.__setattr__(self, "initial", _factor(initial, "initial", name))

    @property
    def _given(self) -> tuple[str, Any, float]:
        """Which of phi and rho was given, its value, and the value of independent individuals."""
        return ("phi", self.phi, 1.0) if self.rho is None else ("rho", self.rho, 0.0)

    def __repr__(self) -> str:
        name, value, _ = self._given
        first = "" if self.initial is None else f", initial={self.initial:g}"
        return f"Overdispersion({name}={_shown(value)}{first})"

    @property
    def text(self) -> str:
        """As the command line takes it."""
        name, value, _ = self._given
        return f"{name}:{_shown(value)}" + ("" if self.initial is None else f",initial={self.initial:g}")

    @property
    def is_none(self) -> bool:
        """Whether individuals are independent after all."""
        _, given, alone = self._given
        values = given.values() if isinstance(given, Mapping) else [given]
        return self.initial in (None, alone) and all(np.all(np.equal(value, alone)) for value in values)

    @property
    def alone(self) -> float:
        """The value of phi or rho, whichever was given, of independent individuals."""
        return self._given[2]

    @property
    def values(self) -> Any:
        """phi or rho, whichever was given."""
        return self._given[1]

    def by_steps(self, values: Mapping[Hashable, Any]) -> Overdispersion:
        """The same with other values, by the variable that a move leads to."""
        return _overdispersion(self._given[0], values)

    @property
    def by_step(self) -> bool:
        """Whether steps are given by name."""
        return isinstance(self._given[1], Mapping)

    def among(self, nodes: Collection[Hashable]) -> Overdispersion:
        """The same for some of the steps."""
        if not self.by_step:
            return self
        name, given, _ = self._given
        kept: dict[str, Any] = {name: {node: value for node, value in given.items() if node in nodes}}
        return Overdispersion(**kept, initial=self.initial)

    def root_phi(self, population: float) -> float:
        """phi of the first counts."""
        if self.initial is None:
            return 1.0
        return self.initial if self.rho is None else 1.0 + (population - 1.0) * self.initial

    def party(self, node: Hashable, counts: Array) -> Array:
        """As for flocks: phi of every state."""
        rows = self.rows(node, len(counts))
        return rows if self.rho is None else 1.0 + np.maximum(counts - 1.0, 0.0) * rows

    def rows(self, node: Hashable, size: int) -> Array:
        """See `Dispersion`."""
        _, given, alone = self._given
        value = given.get(node, alone) if isinstance(given, Mapping) else given
        return np.broadcast_to(np.asarray(value, dtype=float), (size,)).copy()

    def onto(
        self, origins: Mapping[Hashable, NDArray[np.intp]], sizes: Mapping[Hashable, int]
    ) -> Overdispersion:
        """The same on other states: per variable that a move leads to, which of its old states each new one is, −1 alone."""
        name, _, alone = self._given
        made = {
            node: tuple(np.where(old >= 0, self.rows(node, sizes[node])[np.maximum(old, 0)], alone).tolist())
            for node, old in origins.items()
        }
        return _overdispersion(name, made)

    def misfits(self, model: Model, most: float) -> list[str]:
        """See `Dispersion`."""
        del most
        if self.initial is not None and model.expected_number is not None:
            return ["initial stands beside an OpenChain, whose first numbers are Poisson: leave it out"]
        tree = model.rooted() if model.steps_are_directed else None
        return _undirected(model) if tree is None else self.faults(tree)

    def faults(self, tree: RootedTree) -> list[str]:
        """What of phi does not fit a tree."""
        what, given, _ = self._given
        named = given if isinstance(given, Mapping) else dict.fromkeys(tree.variables[1:], given)
        found = [
            f"{what} names {name!r}, which no move leads to: name a variable other than the first"
            for name in named
            if tree.index.get(name, 0) == 0
        ]
        for v in range(1, len(tree.parents)):
            size, shape = tree.sizes[tree.parents[v]], np.shape(named.get(tree.variables[v], 1.0))
            if shape not in {(), (size,)}:
                found.append(
                    f"{what} of the step into {tree.variables[v]!r} has shape {shape}: give one number, or one "
                    f"per state of {tree.variables[tree.parents[v]]!r} ({size})"
                )
        return found


def _undirected(model: Model) -> list[str]:
    """That steps of a model have no direction."""
    return [
        f"Overdispersion is a property of steps, which a {type(model).__name__} has in no particular direction: give a MarkovChain or a "
        "Tree, or Flocks(c)"
    ]


@dataclass(frozen=True)
class ToEstimate(Dispersion):
    """Dispersion that the data decide: the one under which they are most probable (``dispersion="estimate"``).

    Parameters
    ----------
    form
        ``"flocks"``, ``"phi"`` or ``"rho"``; None tries all that the model has, and takes the one with most evidence.
    by
        One phi or rho per class of steps: ``"hour"`` and the other names of the calendar, a list of them, the period of a cycle, or
        one label per step (as `TabularChain` takes it); or ``"row"``: one per cell that moves start from.
    """

    form: str | None = None
    by: Any = field(default=None, kw_only=True)

    estimated: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.form is not None and self.form not in FORMS:
            raise ModelError(f"form is {brief(self.form)}: give one of {', '.join(FORMS)}, or None for all")
        if self.by is not None and self.form == "flocks":
            raise ModelError(
                "by is given, and flocks stay together at all steps: estimate phi or rho by class"
            )
        if is_sequence(self.by):
            object.__setattr__(self, "by", tuple(self.by))

    @property
    def is_none(self) -> bool:
        """Not before it was estimated."""
        return False

    @property
    def text(self) -> str:
        """As the command line takes it."""
        parts = ["estimate", self.form or "", "" if self.by is None else str(self.by)]
        return ":".join(parts).rstrip(":")

    def misfits(self, model: Model, most: float) -> list[str]:
        """See `Dispersion`."""
        del most
        return _undirected(model) if self.form in {"phi", "rho"} and not model.steps_are_directed else []


MOST_ALLOWED = 1.0
"""Largest s² that `DispersionEstimate.used` allows for: below two degrees of freedom no interval is wide enough anyway."""
FORMS = ("flocks", "phi", "rho")
"""What can be estimated."""


@dataclass(frozen=True)
class DispersionEstimate:
    """A dispersion that was estimated from the data, on the scale psi = log phi.

    Attributes
    ----------
    form
        ``"flocks"``, ``"phi"`` or ``"rho"``.
    psi, psi_error
        Where the evidence is largest, and the standard error by its curvature there.
    scale
        rho = (e^psi − 1)/scale; 1 for the others.
    low, high
        The range of psi.
    gain
        Evidence at the estimate less that of independent individuals, in nats.
    tried
        The evidence of every form that was tried, by its text.
    level
        Of the interval.
    label
        The class of steps that it is of; None where it is of all. Its gain is against independent moves at these steps.
    classes
        The estimates by class of steps, where these were asked for; the others are then those of all steps together.
    steps
        The class of the step that leads to a time; empty where classes are rows.
    """

    form: str
    psi: float
    psi_error: float
    low: float
    high: float
    scale: float = 1.0
    gain: float = float("nan")
    tried: Mapping[str, float] = field(default_factory=dict)
    level: float = 0.9
    label: Any = None
    classes: tuple[DispersionEstimate, ...] = ()
    steps: Mapping[Any, Any] = field(default_factory=dict)

    def value_at(self, psi: float) -> float:
        """A flock's size, phi or rho."""
        psi = float(np.clip(psi, self.low, self.high))
        return float(np.expm1(psi) / self.scale if self.form == "rho" else np.exp(psi))

    def at(self, psi: float) -> Flocks | Overdispersion:
        """The dispersion of this form."""
        value = self.value_at(psi)
        if self.form == "flocks":
            return Flocks(value)
        return _overdispersion(self.form, value)

    @property
    def name(self) -> str:
        """What was estimated."""
        name = {"flocks": "flock size", "phi": "phi", "rho": "rho"}[self.form]
        return name if self.label is None else f"{name} [{self.label}]"

    def _at_steps(self, psi: Callable[[DispersionEstimate], float]) -> Flocks | Overdispersion:
        """The dispersion at psi; by step, where classes of steps have their own."""
        if not self.classes:
            return self.at(psi(self))
        values = {one.label: one.value_at(psi(one)) for one in self.classes}
        if not self.steps:
            return _overdispersion(self.form, tuple(values.values()))
        by_step = {time: values[label] for time, label in self.steps.items()}
        return _overdispersion(self.form, by_step)

    @property
    def dispersion(self) -> Flocks | Overdispersion:
        """The one with the most evidence."""
        return self._at_steps(lambda one: one.psi)

    @property
    def used(self) -> Flocks | Overdispersion:
        r"""The dispersion of the answer's intervals: phi is :math:`e^{s^2}` times as large, s the standard error of log phi.

        90 % intervals are then as wide as those of Student's t with 2/s² degrees of freedom, because the spread was estimated, too:
        (t/z)² is 3.15, 1.50 and 1.21 at 2, 5 and 10 degrees of freedom, and e^s² is 2.72, 1.49 and 1.22.
        """
        return self._at_steps(lambda one: one.psi + min(one.psi_error**2, MOST_ALLOWED))

    @property
    def value(self) -> float:
        """A flock's size, phi or rho."""
        return self.value_at(self.psi)

    @property
    def standard_error(self) -> float:
        """Of `value`, to first order."""
        return float(np.exp(self.psi) / self.scale * self.psi_error)

    @property
    def lower(self) -> float:
        """Lower end of the interval."""
        return self.value_at(self.psi - self._stretch(0.5 + self.level / 2))

    @property
    def upper(self) -> float:
        """Upper end of the interval."""
        return self.value_at(self.psi - self._stretch(0.5 - self.level / 2))

    def _stretch(self, p: float) -> float:
        r"""log of the p-quantile of :math:`\hat\phi/\phi \sim \chi^2_m/m`, the law of a mean of m squares.

        :math:`m = 2/s^2` are the degrees of freedom by the evidence's curvature. With few of them the interval is longer than
        :math:`\pm z s`, and longer above than below: by 1.47 and .80 at m = 5, where z s is 1.04.
        """
        half = self.psi_error**-2
        return float(np.log(gammaincinv(half, p) / half))

    def at_level(self, level: float) -> DispersionEstimate:
        """The same with an interval of another level."""
        return replace(self, level=level, classes=tuple(one.at_level(level) for one in self.classes))

    def __str__(self) -> str:
        return (
            f"{self.name} {self.value:.3g} (standard error {self.standard_error:.2g}, {100 * self.level:.3g} % interval {self.lower:.3g} "
            f"to {self.upper:.3g}), estimated from the data; evidence {self.gain:+.1f} nats against independent individuals"
            + "".join(
                f"; {one.name} {one.value:.3g} ({one.lower:.3g} to {one.upper:.3g})" for one in self.classes
            )
        )

    @property
    def facts(self) -> dict[str, Any]:
        """The same as plain values."""
        names = ("name", "value", "standard_error", "lower", "upper", "level", "gain")
        facts = {n: getattr(self, n) for n in names} | {"used": self.used.text, "tried": dict(self.tried)}
        if self.classes:
            facts["classes"] = {
                str(one.label): {n: getattr(one, n) for n in names[1:5]} for one in self.classes
            }
        return facts


def _overdispersion(form: str, value: Any) -> Overdispersion:
    """Overdispersion with rho, or else with phi."""
    return Overdispersion(rho=value) if form == "rho" else Overdispersion(phi=value)


def _shown(value: Any) -> str:
    """One number, or shortly several."""
    return f"{value:g}" if isinstance(value, float) else brief(value)


def _factor(value: Any, name: str, form: str) -> float | tuple[float, ...]:
    """phi or rho of a step, one number or one per state, as plain values."""
    try:
        made = np.array(value, dtype=float)
    except (TypeError, ValueError):
        made = np.array(np.nan)
    possible = (made > 0) & (made < np.inf) if form == "phi" else (made >= 0) & (made < 1)
    if made.ndim > 1 or not possible.all():
        wanted = "a positive number" if form == "phi" else f"a correlation, 0 ≤ {name} < 1"
        raise ModelError(f"{name} is {brief(value)}: give {wanted}, or one per state")
    return float(made) if made.ndim == 0 else tuple(made.tolist())


def unit_tables(
    dispersion: Dispersion | None, tree: RootedTree | None, population: float, tables: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    r"""Count tables in independent units, n/φ, from which a model's parameters are learned.

    The moves of those in i are :math:`n_{ij} = \phi_i m_{ij}` with :math:`m_i` ~ Multinomial(:math:`n_i/\phi_i, p_i`), so that

    .. math:: \log p(n) = \sum_{ij} (n_{ij}/\phi_i) \log p_{ij} + \sum_k (n_{0k}/\phi_0) \log \pi_k + \text{terms without p and } \pi

    and, by Fisher's identity, :math:`\partial \log p(y)/\partial \log p_{ij} = E[n_{ij} | y]/\phi_i` (with rows that sum to one).
    """
    if dispersion is None or dispersion.is_none:
        return tables
    if not dispersion.of_steps:
        size = dispersion.flock_size
        return lambda scope: tables(scope) / size
    assert tree is not None
    phi = dispersion.phi_of(tree, population, lambda v: tables((v,)))

    def units(scope: Any) -> Any:
        place, table = tree.place(scope), tables(scope)
        if not place.edge:
            return np.asarray(table) / phi[place.node]
        if issparse(table):
            return place.turn(diags_array(1.0 / phi[place.node]) @ place.turn(table)).tocsr()
        return place.turn(np.asarray(place.turn(dense(table))) / phi[place.node][:, None])

    return units


def parse_dispersion(text: str) -> Dispersion | None:
    """``flocks:5``, ``phi:4``, ``rho:0.01``, ``estimate``, ``estimate:rho``; None of ``alone``.

    ``estimate:rho:hour`` and ``estimate:phi:24`` estimate one per hour of the day and per place in a cycle of 24 steps,
    ``estimate:rho:row`` one per cell that moves start from.
    ``rho:0.01,initial=0.001`` says how the first counts scatter, too.

    Raises
    ------
    ModelError
        For anything else.
    """
    kind, _, rest = text.strip().partition(":")
    try:
        return _READERS[kind](rest)
    except ModelError:
        raise
    except (KeyError, ValueError):
        raise ModelError(
            f"{text!r} is not a dispersion: give estimate, flocks:5, phi:4, rho:0.01 or alone (that of noise is --noise-dispersion)"
        ) from None


def _read_estimate(text: str) -> ToEstimate:
    form, _, by = text.partition(":")
    return ToEstimate(form or None, by=int(by) if by.isdigit() else by or None)


def _read_overdispersion(form: str, text: str) -> Overdispersion:
    value, _, first = text.partition(",initial=")
    return Overdispersion(**{form: float(value)}, initial=float(first) if first else None)


_READERS: dict[str, Callable[[str], Dispersion | None]] = {
    "alone": lambda _: None,
    "estimate": _read_estimate,
    "flocks": lambda text: Flocks(float(text)),
    "phi": lambda text: _read_overdispersion("phi", text),
    "rho": lambda text: _read_overdispersion("rho", text),
}
