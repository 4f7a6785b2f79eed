"""What every structure answers: given Gaussian sites on what was observed, the moments of everything; and which one is chosen.

A structure is the Gaussian law of a population's counts around one centre. It is asked with one precision ``tau`` and one
potential ``nu`` per observed entry (:meth:`Structure.solve`, many times) and, at the end, for the whole posterior
(:meth:`Structure.field`). All values are deviations from the centre's expected counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
from scipy.sparse import csr_array

from headcount.checks import finite_number, instance
from headcount.individual import FactoredTree, Model, ModelError, RootedTree

if TYPE_CHECKING:
    from headcount._linalg import Array
    from headcount.observe import Site
    from headcount.tables import Domain, Scope


T = TypeVar("T")


class NotPositiveDefinite(ArithmeticError):
    """The sites' precisions are so negative that no Gaussian exists; the caller should damp its step."""


def itself(value: T) -> T:
    """Its argument: ``partial(itself, rows)`` makes rows that are already there, and can be pickled, unlike a lambda."""
    return value


def selection(site: Site, size: int) -> Array:
    """The site as a dense ``(K, size)`` matrix on the flat table of its scope."""
    if site.weights is not None:
        return np.asarray(site.weights.todense())
    rows = np.zeros((len(site), size))
    rows[np.arange(len(site)), site.index] = 1.0
    return rows


def margin_rows(table: Domain, onto: Scope) -> csr_array:
    """The sparse 0/1 matrix that sums a flat table down to the flat table of ``onto``; for the whole table its identity."""
    size, places = table.size, table.positions(onto)
    return csr_array((np.ones(size), (places, np.arange(size))), shape=(table.part(onto).size, size))


def by_site(values: Array, sites: Sequence[Site]) -> tuple[Array, ...]:
    """Values of all sites' entries, end to end, cut into one array per site."""
    ends = np.cumsum([len(site) for site in sites]).tolist()
    return tuple(values[end - len(site) : end] for site, end in zip(sites, ends, strict=True))


@dataclass(frozen=True)
class KnownCounts:
    """What is known before any iteration: exact deviations, and Gaussian readings with a full covariance.

    Both are keyed by the site's position; ``readings`` holds (precision matrix, potential) in deviations.
    """

    exact: Mapping[int, Array]
    readings: Mapping[int, tuple[Array, Array]]

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {type(value).__name__}; give a mapping from the position of a site"
            for name, value in (("exact", self.exact), ("readings", self.readings))
            if not isinstance(value, Mapping)
        ]
        if problems:
            raise ModelError(problems)

    @classmethod
    def nothing(cls) -> KnownCounts:
        """No exact sites, no correlated readings."""
        return cls({}, {})


@dataclass(frozen=True)
class Moments:
    """Mean and variance of the deviation at every site's entries, and log Z of the Gaussian with its sites."""

    mean: tuple[Array, ...]
    variance: tuple[Array, ...]
    log_z: float


class MovesOf(NamedTuple):
    """The possible moves of one edge, where a table of all pairs would be too large."""

    entries: np.ndarray
    """Positions in the flat (parent, child) table."""
    mean: Array
    """Deviations from the centre."""
    variance: Array
    mc_error: Array
    """Monte-Carlo standard error of the sds."""


class Field(ABC):
    """The Gaussian posterior of one structure."""

    @property
    def log_z(self) -> tuple[float, float] | None:
        """log Z and its Monte-Carlo standard error; None where :meth:`Structure.solve` gives it without error."""
        return None

    def mc_error(self, scope: Scope) -> Array | None:
        """Monte-Carlo standard error of every entry's sd; None where variances carry none."""
        return None

    def more_draws(self, draws: int, client: Any = None) -> Field:
        """The same posterior with so many draws more behind its variances; itself where these carry no Monte-Carlo error."""
        return self

    def moves(self, scope: Scope) -> MovesOf | None:
        """Moments of the possible moves of an edge, where the structure keeps them as a list; None elsewhere."""
        return None

    @abstractmethod
    def mean(self, scope: Scope) -> Array:
        """Posterior mean deviation of a table."""

    @abstractmethod
    def variance(self, scope: Scope) -> Array:
        """Posterior variance of every entry of a table."""

    @abstractmethod
    def covariance(self, a: Scope, b: Scope) -> Array:
        """Posterior covariance between two tables, flattened."""

    def site_covariance(self, rows: np.ndarray) -> Array | None:
        """Posterior covariance of some entries of the sites (their positions, all sites end to end); None where `covariance` gives it."""
        return None

    def sample_nodes(self, size: int, *, rng: np.random.Generator) -> Array | None:
        """Joint draws of the deviations of all nodes, ``(size, entries)``, nodes end to end; None where only whole tables are drawn."""
        return None

    @abstractmethod
    def sample(self, size: int, *, rng: np.random.Generator) -> dict[Scope, Array]:
        """Joint draws of deviations of all cliques, ``(size, *table)``."""


class Sampling(NamedTuple):
    """How many draws, and which ones; None draws what the error asks for."""

    sweep: int | None = None
    """Draws in the sweeps of an engine."""
    final: int | None = None
    """Draws at the end."""
    seed: int = 0
    error: float = 0.05
    """Relative error of sds (rms) at which the final draws stop."""


@dataclass
class Recall:
    """What one sweep of an engine hands to the next: solutions to start from, the number of draws, and the sites as rows.

    Results depend on it only within the tolerance of the solver. A run that starts from the answer to a similar problem gets the
    numbers of draws of that one (common random numbers), and solves its first draws sharply: roughly solved ones would move its sites
    away from where they were.
    """

    draws: int | None = None
    """Draws per sweep."""
    final: int | None = None
    """Final draws, where an earlier run has found how many are needed."""
    near: bool = False
    """Whether the first sweep starts near the answer."""
    mean: Array | None = None
    blocks: dict[int, Array] = field(default_factory=dict)
    sensors: Any = None

    @classmethod
    def of(cls, numbers: Array | None, *, near: bool = False) -> Recall:
        """With the numbers of draws of an earlier run, if there was one."""
        sweep, final = (0, 0) if numbers is None else np.asarray(numbers).tolist()
        return cls(sweep or None, final or None, near)

    def solution(self, number: int, shape: tuple[int, int]) -> Array | None:
        """Of a block of draws, what the last sweep left; None where there was none of this shape."""
        last = self.blocks.get(number)
        return None if last is None or last.shape != shape else last

    @property
    def numbers(self) -> Array:
        """Draws per sweep and at the end; 0 for none."""
        return np.array([self.draws or 0, self.final or 0])


class Solver(NamedTuple):
    """Which structure a chain or tree gets, and the draws of the one without matrices."""

    structure: Literal["auto", "tree", "matrix-free"] = "tree"
    sampling: Sampling = Sampling()
    recall: Recall | None = None
    """What each sweep of a run hands to the next; each run has its own."""


class Structure(ABC):
    """The Gaussian law of a population around one centre, for one shape of graph.

    Parameters
    ----------
    population
        N.
    sites
        Where something is observed.
    known
        Exact sites and correlated readings; nothing if left out.
    """

    monte_carlo: ClassVar[bool] = False
    """Whether variances and log Z carry Monte-Carlo error, which the field then states."""
    kinds: ClassVar[dict[str, type[Structure]]] = {}
    """The structures that :func:`structure_for` chooses from: ``class TreeStructure(Structure, kind="tree")`` puts itself here."""

    def __init__(self, population: float, sites: Sequence[Site], known: KnownCounts | None) -> None:
        expected = "a positive number of individuals"
        self.population = finite_number(
            population, "population", least=np.finfo(float).tiny, expected=expected
        )
        instance(sites, Sequence, "sites", expected="a sequence of sites, for example problem.sites")
        self.sites: tuple[Site, ...] = tuple(sites)
        self.known = KnownCounts.nothing() if known is None else known
        instance(self.known, KnownCounts, "known", expected="a KnownCounts, or None")

    def __init_subclass__(cls, *, kind: str | None = None) -> None:
        if kind is not None:
            Structure.kinds[kind] = cls

    @abstractmethod
    def solve(self, tau: Sequence[Array], nu: Sequence[Array]) -> Moments:
        """Moments at the sites, under ``exp(−½ tau δ² + nu δ)`` on every site's entries.

        Raises
        ------
        NotPositiveDefinite
            When negative precisions outweigh the prior.
        """

    def unseen_variance(self) -> tuple[Array, ...]:
        """Variance of the deviation at every site's entries, of which nothing is seen."""
        nothing = [np.zeros(len(site)) for site in self.sites]
        return self.solve(nothing, nothing).variance

    @abstractmethod
    def field(self, tau: Sequence[Array], nu: Sequence[Array]) -> Field:
        """The whole posterior under the same sites."""


Kind = Literal["tree", "matrix-free"]
AFFORDABLE = 2e10
"""Σ L³ over the edges up to which matrices are formed by default: 1000 cells and 20 times, which took about a minute."""
AFFORDABLE_ON_DEVICE = 1.5e12
"""The same on a graphics card: 4096 cells and 20 times, a few seconds on an H200."""
MOST_COUNTS = 5000
"""Observed counts up to which their covariance is formed on graphs that are no tree: 200 MB per matrix, 5 s per factor on one core."""
WORTH = 130
"""Products of L × L matrices that cost as much as the matrix-free solver's passes: it forms 12 sweeps of 33 columns and 192 at the end,
about 20 iterations of two passes each, 4 operations per entry, where the tree takes 12 sweeps of 30 operations per L³."""


def kind_of(
    tree: RootedTree | None, wanted: str, *, counts: int = 0, affordable: float | None = None
) -> Kind:
    """Which structure a solver's setting means: "auto" is matrix-free where matrices would cost too much.

    Those are, of chains and trees, of cells by cells; of other graphs, of the observed ``counts``.
    """
    if wanted != "auto":
        return "matrix-free" if wanted == "matrix-free" else "tree"
    too_much = counts > MOST_COUNTS if tree is None else _cost_too_much(tree, affordable)
    return "matrix-free" if too_much else "tree"


def _cost_too_much(tree: RootedTree, affordable: float | None) -> bool:
    """Whether matrices of a tree cost more than is affordable, and more than passes over its moves."""
    steps = tree.transitions[1:]
    cubes = sum(prod(m.shape) * max(m.shape) for m in steps)
    moves = sum(int(getattr(m, "nnz", prod(m.shape))) for m in steps)
    most = AFFORDABLE if affordable is None else affordable
    return cubes > most and cubes > WORTH * moves


def structure_for(
    law: RootedTree | FactoredTree | Model,
    population: float,
    sites: Sequence[Site],
    known: KnownCounts | None = None,
    *,
    solver: Solver | None = None,
    flock: float = 1.0,
    spread: float = 0.0,
) -> Structure:
    """The structure for a law's graph: chains and trees have their own, everything else is a junction tree.

    Parameters
    ----------
    law
        One individual, tilts included; in factors only for a structure without matrices.
    population
        N.
    sites
        Where something is observed.
    known
        Exact counts and correlated Gaussian readings among the sites.
    solver
        Whether a chain or tree is solved with matrices (the default) or without.
    flock
        Factor on all covariances given N, for laws that are no RootedTree; that has its own.
    spread
        Variance of N, likewise.
    """
    instance(law, (RootedTree, FactoredTree, Model), "law", expected="a Model or a RootedTree")
    wanted = Solver() if solver is None else solver
    kind: str = "matrix-free"
    tree = law if isinstance(law, (RootedTree, FactoredTree)) else law.rooted()
    if not isinstance(tree, FactoredTree):
        kind = kind_of(tree, wanted.structure, counts=sum(map(len, sites)))
    settings: dict[str, Any] = {}
    if kind == "matrix-free":
        settings = {"sampling": wanted.sampling, "recall": wanted.recall}
    if tree is None:
        kind = "junction tree" if kind == "tree" else "matrix-free junction tree"
        settings |= {"flock": flock, "spread": spread}
    chosen: Any = Structure.kinds[kind]
    made: Structure = chosen(law if tree is None else tree, population, sites, known, **settings)
    return made
