"""What every model of one individual can be asked, and checks on the laws, matrices and log tables that it is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from headcount import memory
from headcount._device import row_of_entries
from headcount._types import Array, Index, Scope, Variable
from headcount.checks import attempt, brief, instance, label, numbers, whole_number
from headcount.errors import ModelError, named, raise_all, repeated, shown
from headcount.individual.junction_tree import CliqueLaw
from headcount.individual.possible import Possible
from headcount.tables import Domain, dense

if TYPE_CHECKING:
    from headcount.individual._rooted_models import MarkovChain
    from headcount.individual.junction_tree import JunctionTree
    from headcount.individual.possible import PassPlan
    from headcount.individual.rooted_tree import RootedTree


HIDDEN_STATE, WAITING_STATE, GONE_STATE = -1, -2, -3
"""Codes, beside cells 0, 1, …, of states in which an individual is in no cell: for another reason, not there yet, gone for good."""


class Larger(NamedTuple):
    """The graph on which a model is a plain rooted tree, where that has more states than are seen."""

    tree: RootedTree
    cells: tuple[Index, ...]
    """Per node, which of the variable's states each state is; negative where it is none (`HIDDEN_STATE` and others)."""


class Model(ABC):
    """The law of one individual: p(x) = exp(sum_C theta_C(x_C) − A(theta)) over named variables.

    States are named too. A *scope* is a tuple of variables, ``(5,)`` for one; a table over it has one axis
    per variable, in the order given.
    """

    initial_known: bool = True
    """Whether the law of the first variable was given; otherwise it is learned."""
    concentration: float | tuple[float, ...] | None = None
    """Of the Dirichlet laws from which the rows of every step are drawn; None: they are as given."""
    steps_are_directed: bool = False
    """Whether edges are steps from one variable to the next, as in a chain or tree, so that moves can scatter."""
    expected_number: float | None = None
    """Expected number of individuals, where the model says it: of those who are ever there. Their number is then Poisson."""
    opens: bool = False
    """Whether individuals may arrive or leave."""

    @property
    @abstractmethod
    def variables(self) -> tuple[Variable, ...]:
        """The names of the variables; for a chain, the time labels."""

    @property
    @abstractmethod
    def states(self) -> Mapping[Variable, tuple[Hashable, ...]]:
        """The labels of every variable's states."""

    @property
    @abstractmethod
    def factors(self) -> tuple[tuple[Scope, Array], ...]:
        """Log potentials ``(scope, theta)`` whose sum is log p(x) + A(theta); each scope lies in a clique."""

    @property
    @abstractmethod
    def log_partition(self) -> float:
        """A(theta) of `factors`."""

    @property
    @abstractmethod
    def junction_tree(self) -> JunctionTree:
        """Maximal cliques, the tree that joins them, separators with nu(S)."""

    @property
    def has_hidden_states(self) -> bool:
        """Whether individuals follow a larger graph than that of their cells."""
        return type(self).larger is not Model.larger

    def as_chain(self) -> MarkovChain | None:
        """The model itself where its variables are times in their order; None elsewhere."""
        return None

    def larger(self) -> Larger | None:
        """The rooted tree that the individuals follow; None for a model that is none.

        Its states are the model's own here. A model whose individuals remember more than their cell, or may be in none, has its own.
        """
        tree = self.rooted()
        return None if tree is None else Larger(tree, tuple(np.arange(size) for size in tree.sizes))

    def own_moves(self, full: Callable[[Scope], Array], scope: Scope) -> Array | None:
        """Of counts on the larger graph, the moves of cells that the model's own transitions make; None where that is all that is seen."""
        del full, scope
        return None

    @abstractmethod
    def marginal(self, scope: Sequence[Variable]) -> Array:
        """mu_A(i_A) = P(x_A = i_A), one axis per variable in the order given, for any scope A."""

    @abstractmethod
    def tilt(self, potentials: Mapping[Scope, Any]) -> tuple[Model, float]:
        """p'(x) ∝ p(x) exp(sum_A g_A(x_A)), and A(theta + g) − A(theta) = log E_p exp(sum_A g_A(x_A))."""

    @abstractmethod
    def sample(self, size: int, *, rng: np.random.Generator | int) -> Index:
        """Draw `size` independent individuals: state indices, one column per variable."""

    @abstractmethod
    def rooted(self) -> RootedTree | None:
        """Initial law and transitions, when the model is (or can be) a chain or a tree; None otherwise."""

    @property
    def clique_law(self) -> CliqueLaw:
        """The marginals of all cliques at once."""
        tree = self.junction_tree
        tables = {clique: dense(self.marginal(clique)) for clique in tree.cliques}
        possible = Possible.of(tree, [(clique, table > 0) for clique, table in tables.items()])
        listed = (possible.listed_values(c, table) for c, table in enumerate(tables.values()))
        return CliqueLaw(possible, self.log_partition, tuple(listed))

    @property
    def possible(self) -> Possible:
        """Which entries of the clique tables are possible."""
        return self.clique_law.possible

    def passes(self, scopes: Sequence[Scope]) -> tuple[PassPlan, list[Array]] | None:
        """The plan of belief propagation for further potentials on these scopes, and the model's own potentials clique by clique.

        None where there is none: of models whose passes are those of `rooted`, or where some scope lies in no clique.
        """
        del scopes
        return None

    def __repr__(self) -> str:
        sizes = [len(labels) for labels in self.states.values()]
        low, high = min(sizes), max(sizes)
        states = f"{low} states each" if low == high else f"{low} to {high} states"
        return f"<{type(self).__name__}: {len(sizes)} variables ({shown(self.variables, 4)}), {states}>"

    def size(self, scope: Sequence[Variable]) -> tuple[int, ...]:
        """The shape of a table over `scope`."""
        return self.domain(scope).shape

    def scope(self, scope: Sequence[Variable]) -> Scope:
        """`scope` as a tuple of distinct, known variables; `ModelError` if it is not one."""
        return checked_scope(scope, self.states)

    def domain(self, scope: Sequence[Variable]) -> Domain:
        """The names and sizes of a table over `scope`."""
        names = self.scope(scope)
        return Domain(names, tuple(len(self.states[v]) for v in names))

    def joint_marginal(self, a: Sequence[Variable], b: Sequence[Variable]) -> Array:
        """<mu_{A,B}>(i, j) = P(x_A = i, x_B = j), (size of A, size of B) in C order; they may overlap.

        Raises
        ------
        ModelError
            Before anything is allocated, if the table would take more than the memory limit (`headcount.memory`).
        """
        rows, columns = self.domain(a), self.domain(b)
        memory.require(
            8 * rows.size * columns.size,
            f"the joint marginal of {rows.scope!r} and {columns.scope!r}",
            remedy="ask for fewer variables at once",
        )
        both = self.domain((*rows.scope, *(v for v in columns.scope if v not in rows.scope)))
        table = self.marginal(both.scope)
        if len(both.scope) == len(rows.scope) + len(columns.scope):
            return table.reshape(rows.size, columns.size)
        joint = np.zeros((rows.size, columns.size))
        joint[both.positions(rows.scope), both.positions(columns.scope)] = both.flat(table)
        return joint


def checked_scope(scope: Sequence[Variable], known: Mapping[Variable, Any]) -> Scope:
    """`scope` as a tuple of distinct, known variables."""
    if not isinstance(scope, (tuple, list)):
        example = f"({scope!r},)" if isinstance(scope, (str, int)) else "(v,)"
        raise ModelError(
            f"a scope is a tuple of variables, got {brief(scope)}: write {example} for one variable"
        )
    names = tuple(label(v, "a variable of the scope") for v in scope)
    problems = [f"unknown variable {named(v)}: the model has {shown(known)}" for v in names if v not in known]
    problems += [
        f"variable {v!r} appears twice in the scope {names!r}: name it once" for v in repeated(names)
    ]
    raise_all(problems)
    return names


def checked_model(model: Any) -> Model:
    """`model`, if it is one."""
    if not isinstance(model, Model):
        raise ModelError(f"model is {brief(model)}: give a Model, such as MarkovChain, Tree or DiscreteModel")
    return model


def sample_size(size: Any, variables: int) -> int:
    """The number of individuals to draw, if their states fit into memory."""
    count = whole_number(size, "size")
    memory.require(
        8 * count * variables,
        f"the states of {count:,} individuals",
        remedy="draw fewer, or counts with CGM.sample",
    )
    return count


def draw_given(law: Callable[[int], Array], given: Index, uniform: Array) -> Index:
    """For each individual, a state from ``law(its given state)``; each law is asked for once."""
    drawn = np.empty(len(given), dtype=np.intp)
    order = np.argsort(given, kind="stable")
    present, starts, counts = np.unique(given[order], return_index=True, return_counts=True)
    for state, start, count in zip(present, starts, counts, strict=True):
        rows = order[start : start + count]
        drawn[rows] = draw(law(int(state)), uniform[rows])
    return drawn


def draw(law: Array, uniform: Array) -> Index:
    """Inverse distribution function; a state of probability zero is never drawn."""
    steps = np.cumsum(law)
    # uniform < 1, and its product with the total is less than the total in floating point too.
    return np.searchsorted(steps, uniform * steps[-1], side="right")


ROW_TOLERANCE = 1e-8
"""How far a row may be from one: decimals printed with nine digits pass, a lost entry does not."""
FILE_ROUNDING = 1e-6
"""How far rows of a network file may be from one: published networks are off by up to 3e-7."""
_ROUNDING = 1e-12
"""Rows this near to one are left as they are: the sum of thousands of doubles is off by less."""


def shape_problems(values: Any, axes: int, what: str, expected: str) -> list[str]:
    """One problem if `values` has not that many axes."""
    return [] if values.ndim == axes else [f"{what} has the shape {values.shape}: give {expected}"]


def law_problems(
    table: Any,
    labels: Sequence[Sequence[Hashable]],
    what: str,
    *,
    axes: str = "one probability per state, a 1-D array",
    remedy: str = "divide it by its sum or add the missing state",
    tolerance: float = ROW_TOLERANCE,
) -> list[str]:
    """Every way in which a table (dense or csr) is not a law along its last axis.

    ``labels`` are the states of every axis, ``axes`` says which they are, ``remedy`` what to do about rows that do not sum to one.
    """
    shape = tuple(map(len, labels))
    if table.shape != shape:
        return [f"{what} has the shape {table.shape}, expected {shape}: {axes}"]

    def named_at(index: Iterable[int]) -> str:
        return ", ".join(repr(names[k]) for names, k in zip(labels, index, strict=False))

    wrong = _improper(table)
    problems = [
        f"{what}[{named_at(index)}] is {value}: probabilities are finite and not negative"
        for index, value in wrong.items()
    ]
    with np.errstate(invalid="ignore"):
        sums = np.asarray(table.sum(axis=-1))
    spoiled = {index[:-1] for index in wrong}
    for row in map(tuple, np.argwhere(np.abs(sums - 1) > tolerance).tolist()):
        if row not in spoiled:
            whose = f"row {named_at(row)} of {what}" if row else what
            problems.append(f"{whose} sums to {sums[row]:.10g}, not 1: {remedy}")
    return problems


def _improper(table: Any) -> dict[tuple[int, ...], float]:
    """The entries of a table (dense or csr) that are no probabilities."""
    values = table.data if sparse.issparse(table) else table
    bad = ~np.isfinite(values) | (values < 0)
    if not bad.any():
        return {}
    where = np.nonzero(bad)
    if sparse.issparse(table):
        where = row_of_entries(table)[bad], table.indices[bad]
    return dict(zip(zip(*(axis.tolist() for axis in where), strict=True), values[bad].tolist(), strict=True))


def matrix_problems(
    matrix: Any, origins: Sequence[Hashable], dests: Sequence[Hashable], what: str
) -> list[str]:
    """Every way in which a matrix (dense or csr) is not stochastic by rows; one that is by columns is named as such."""
    if matrix.shape == (len(origins),) * 2 and not _improper(matrix):
        rows, columns = (np.abs(np.asarray(matrix.sum(axis=k)) - 1).max() for k in (1, 0))
        if columns <= ROW_TOLERANCE < rows:
            return [
                f"{what} has columns that sum to 1, and rows that do not: give its transpose, one row per state before"
            ]
    return law_problems(
        matrix,
        (origins, dests),
        what,
        axes=f"rows are the {len(origins)} states before, columns the {len(dests)} states after",
        remedy="divide the row by its sum, or add the missing destination (staying put is one too)",
    )


def as_matrix(matrix: Any, what: str) -> Any:
    """A read-only float matrix, csr or C-ordered; an array that is read-only already is not copied."""
    if not sparse.issparse(matrix):
        return frozen(matrix, what)
    if matrix.dtype.kind not in "biuf":
        raise ModelError(f"{what} is a sparse matrix of {matrix.dtype}: give numbers")
    made = sparse.csr_array(matrix, dtype=np.float64, copy=True)
    made.sum_duplicates()
    return made


def frozen(values: Any, what: str = "the array") -> Array:
    """A read-only C-ordered float array; a copy unless it is one already."""
    given = numbers(values, what)
    if given.flags.writeable:
        made_here = isinstance(values, (list, tuple)) or not np.may_share_memory(given, np.asarray(values))
        if not made_here:
            memory.require(
                given.nbytes, f"a copy of {what}", remedy="give a sparse matrix, or one that is read-only"
            )
            given = given.copy()
        given.flags.writeable = False
    return given


def unit_rows(matrix: Any) -> Any:
    """The matrix with rows that sum to one to rounding, so that flows and node marginals agree.

    Only a matrix that passed `matrix_problems` comes here: its rows are within `ROW_TOLERANCE` of one, that
    is, printed decimals.
    """
    sums = np.asarray(matrix.sum(axis=-1))
    if np.all(np.abs(sums - 1) <= _ROUNDING):
        return matrix
    if not sparse.issparse(matrix):
        return frozen(matrix / sums[..., None])
    values = matrix.data / np.repeat(sums, np.diff(matrix.indptr))
    return sparse.csr_array((values, matrix.indices, matrix.indptr), shape=matrix.shape)


def checked_potentials(potentials: Mapping[Scope, Any], sizes: Mapping[Hashable, int]) -> dict[Scope, Any]:
    """Log tables by scope, checked, to be added to a model's own."""
    return dict(log_tables(instance(potentials, Mapping, "potentials", expected="{scope: log table}"), sizes))


def log_tables(given: Any, sizes: Mapping[Hashable, int]) -> list[tuple[Scope, Any]]:
    """Log tables with their scopes, as float arrays (sparse kept) of the right shape, no NaN or +inf; all problems at once."""
    expected = "{scope: log table}, or a sequence of (scope, log table)"
    try:
        pairs = list(given.items() if isinstance(given, Mapping) else given)
    except TypeError:
        raise ModelError(f"factors is {brief(given)}: give {expected}") from None
    problems: list[str] = []
    made = []
    for pair in pairs:
        if isinstance(pair, (tuple, list)) and len(pair) == 2:
            made.append(attempt(problems, _log_table, *pair, sizes))
        else:
            problems.append(f"factors holds {brief(pair)}: give {expected}")
    raise_all(problems)
    return [one for one in made if one is not None]


def _log_table(given: Any, values: Any, sizes: Mapping[Hashable, int]) -> tuple[Scope, Any]:
    """A scope, and a log potential over it."""
    scope = checked_scope(given, sizes)
    what, shape = f"the log table over {scope!r}", tuple(sizes[v] for v in scope)
    table = as_matrix(values, what) if sparse.issparse(values) else numbers(values, what)
    if table.shape != shape:
        raise ModelError(
            f"{what} has the shape {table.shape}, expected {shape}: one axis per variable, in that order"
        )
    entries: Any = table.data if sparse.issparse(table) else table
    bad = np.isnan(entries) | np.isposinf(entries)
    if bad.any():
        first = tuple(int(k) for k in np.argwhere(bad)[0])
        raise ModelError(
            f"{what} has {int(bad.sum())} entries that are NaN or +inf, the first at {first}: "
            "give finite log potentials, or −inf where a configuration is impossible"
        )
    return scope, table
