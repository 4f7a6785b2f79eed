"""Models on a rooted tree of transition matrices: `Tree`, and `MarkovChain`, one individual moving between cells over time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Self, final

import numpy as np
from scipy import sparse

from headcount import memory
from headcount._types import Array, Index, Scope, Variable
from headcount.checks import brief, generator, instance, is_sequence, label, numbers, whole_number
from headcount.errors import ModelError, raise_all, repeated, shown
from headcount.individual._discrete import DiscreteModel, named_states
from headcount.individual._model import (
    Larger,
    Model,
    as_matrix,
    checked_potentials,
    draw,
    draw_given,
    frozen,
    law_problems,
    matrix_problems,
    sample_size,
    shape_problems,
    unit_rows,
)
from headcount.individual.junction_tree import JunctionTree
from headcount.individual.rooted_tree import Matrix, RootedTree, ScaledSteps, node_marginals, tilted
from headcount.labels import label_tuple, split_labels, take_in_order
from headcount.tables import dense

Edges = Mapping[Variable, tuple[Variable, Any]]
_PAIR_COPIES = 2
"""Tables of the result's size that exist at once while a joint table is made: the dense transition and the result."""


class RootedModel(Model):
    """p(x) = pi(x_r) prod_v P_v(x_parent(v), x_v). Abstract: `MarkovChain` and `Tree` say how it is given."""

    steps_are_directed = True

    _states: dict[Variable, tuple[Hashable, ...]]
    _tree: RootedTree

    @classmethod
    def from_rooted(
        cls, tree: RootedTree, states: Mapping[Variable, Sequence[Hashable]] | None = None
    ) -> Self:
        """A model on a rooted tree that is known to be right (nothing is checked or copied)."""
        made = cls.__new__(cls)
        labels = states or {}
        made._states = {
            v: tuple(labels[v]) if v in labels else tuple(range(n))
            for v, n in zip(tree.variables, tree.sizes, strict=True)
        }
        made._tree = tree
        return made

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The names of the variables, root first, parents before children; for a chain, the time labels."""
        return self._tree.variables

    @property
    def states(self) -> Mapping[Variable, tuple[Hashable, ...]]:
        """The labels of every variable's states."""
        return self._states

    @property
    def initial(self) -> Array:
        """pi, the law of the root."""
        return self._tree.initial

    @property
    def factors(self) -> tuple[tuple[Scope, Array], ...]:
        """(root,): log pi, and (parent, child): log P, so that A(theta) = 0."""
        tree = self._tree
        tables = (tree.sizes[tree.parents[v]] * tree.sizes[v] for v in range(1, len(tree.parents)))
        memory.require(8 * sum(tables), "the factors as tables", remedy="use the transitions themselves")
        with np.errstate(divide="ignore"):
            edges = ((edge, np.log(dense(tree.transitions[v]))) for edge, v in tree.edge_of.items())
            return ((tree.variables[0],), np.log(tree.initial)), *edges

    @property
    def log_partition(self) -> float:
        """Zero: the factors are conditional probabilities."""
        return 0.0

    @property
    def junction_tree(self) -> JunctionTree:
        """One clique (parent, child) per edge, separators the nodes between them."""
        return self._tree.junction_tree

    def rooted(self) -> RootedTree:
        """The tree of transitions itself."""
        return self._tree

    def marginal(self, scope: Sequence[Variable]) -> Array:
        """P(x_A); one or two variables by matrix products, more by the junction tree."""
        names = self.scope(scope)
        if len(names) == 0:
            return np.ones(())
        index = self._tree.index
        if len(names) == 1:
            return self._node_marginals[index[names[0]]].copy()
        if len(names) == 2:
            memory.require(
                _PAIR_COPIES * 8 * self.domain(names).size,
                f"the joint table of {names[0]!r} and {names[1]!r}",
                remedy="ask for single variables, or sample",
            )
            return pair_marginal(self._tree, self._node_marginals, index[names[0]], index[names[1]])
        return self._general.marginal(names)

    def tilt(self, potentials: Mapping[Scope, Any]) -> tuple[Model, float]:
        """P' ∝ p exp(sum g): of the same class when every g sits on a node or an edge, a discrete model otherwise."""
        split = split_potentials(self._tree, potentials)
        if split is None:
            return self._general.tilt(potentials)
        nodes, edges = split
        change, tree = tilted(self._tree, nodes, edge_potentials=edges)
        return type(self).from_rooted(tree, self._states), change

    def sample(self, size: int, *, rng: np.random.Generator | int) -> Index:
        """Draw individuals from the root down: ``(size, len(variables))`` state indices."""
        tree, size, rng = self._tree, sample_size(size, len(self.variables)), generator(rng)
        drawn = np.empty((size, len(tree.parents)), dtype=np.intp)
        drawn[:, 0] = draw(tree.initial, rng.random(size))
        for v in range(1, len(tree.parents)):
            law = partial(_row, tree.transitions[v])
            drawn[:, v] = draw_given(law, drawn[:, tree.parents[v]], rng.random(size))
        return drawn

    @cached_property
    def _node_marginals(self) -> tuple[Array, ...]:
        return node_marginals(self._tree)

    @cached_property
    def _general(self) -> DiscreteModel:
        return DiscreteModel.from_model(self)


@final
class Tree(RootedModel):
    """p(x) = pi(x_r) prod_v P_v(x_parent(v), x_v): a law for the root, one matrix for every other variable.

    Parameters
    ----------
    initial
        The law pi of the root.
    edges
        ``{child: (parent, matrix)}``, the matrix dense or sparse with rows for the parent's states; each row
        sums to one.
    root
        The name of the root; needed only when there are no edges (0 if not given).
    states
        ``{variable: labels}`` for the variables that have them; 0, 1, ... for the others.

    Notes
    -----
    `variables` puts the root first and every variable after its parent. A row within 1e-8 of summing to one
    is read as printed decimals and divided by its sum; anything further off is an error.

    Examples
    --------
    >>> noisy, same = [[0.9, 0.1], [0.2, 0.8]], [[1, 0], [0, 1]]
    >>> tree = Tree([0.5, 0.5], {"left": ("top", noisy), "right": ("top", same)})
    >>> tree.variables
    ('top', 'left', 'right')
    >>> tree.marginal(("left", "right"))
    array([[0.45, 0.1 ],
           [0.05, 0.4 ]])
    """

    def __init__(
        self,
        initial: Any,
        edges: Mapping[Variable, tuple[Variable, Any]],
        *,
        root: Variable | None = None,
        states: Mapping[Variable, Sequence[Hashable]] | None = None,
    ) -> None:
        order = _topological(_checked_edges(edges), root)
        root = order[0]
        law = frozen(initial, "initial")
        raise_all(shape_problems(law, 1, "initial", "one probability per state of the root, a 1-D array"))
        names = {child: f"the matrix {above!r} -> {child!r}" for child, (above, _) in edges.items()}
        matrices = {child: as_matrix(matrix, names[child]) for child, (_, matrix) in edges.items()}
        expected = "a matrix, the parent's states by the child's"
        raise_all(wrong for c, m in matrices.items() for wrong in shape_problems(m, 2, names[c], expected))
        sizes = {root: law.size, **{child: matrix.shape[1] for child, matrix in matrices.items()}}
        self._states = _labelled(sizes, order, states)
        problems = law_problems(law, [self._states[root]], f"the law of {root!r}")
        for child in order[1:]:
            before, after = self._states[edges[child][0]], self._states[child]
            problems += matrix_problems(matrices[child], before, after, names[child])
        raise_all(problems)
        place = {v: k for k, v in enumerate(order)}
        parent = np.array([-1, *(place[edges[child][0]] for child in order[1:])], dtype=np.intp)
        transitions = (None, *(unit_rows(matrices[child]) for child in order[1:]))
        self._tree = RootedTree(order, parent, unit_rows(law), transitions)

    @property
    def edges(self) -> dict[Variable, tuple[Variable, Matrix]]:
        """``{child: (parent, matrix)}``."""
        return {
            child: (parent, self._tree.transitions[k]) for (parent, child), k in self._tree.edge_of.items()
        }


def _labelled(
    sizes: Mapping[Variable, int], order: Sequence[Variable], states: Any
) -> dict[Variable, tuple[Hashable, ...]]:
    """The labels of every variable in order: those given, else 0, 1, ... ."""
    given = {} if states is None else instance(states, Mapping, "states", expected="{variable: labels}")
    raise_all(
        f"states names {v!r}, which is not in the tree: it has {shown(order)}"
        for v in given
        if v not in sizes
    )
    return named_states({v: given.get(v, int(sizes[v])) for v in order})


def _checked_edges(edges: Any) -> Edges:
    """The edges as given, if they are ``{child: (parent, matrix)}``."""
    instance(edges, Mapping, "edges", expected="{child: (parent, matrix)}")
    raise_all(
        f"edges[{child!r}] is {brief(edge)}: give (parent, matrix)"
        for child, edge in edges.items()
        if not isinstance(edge, tuple) or len(edge) != 2 or not isinstance(edge[0], Hashable)
    )
    return edges


def _topological(edges: Edges, root: Variable | None) -> tuple[Variable, ...]:
    """All variables with the root first and parents before children."""
    root = label(root, "root")
    if not edges:
        return (0 if root is None else root,)
    children: dict[Variable, list[Variable]] = {}
    for child, (parent, _) in edges.items():
        children.setdefault(parent, []).append(child)
    tops = [parent for parent in children if parent not in edges]
    if len(tops) != 1 or root not in (None, tops[0]):
        raise ModelError(
            f"a tree has one root, a parent without a parent; the edges have {len(tops)} ({tops!r}) and root is "
            f"{root!r}: give every other variable a parent, and no cycle"
        )
    order = [tops[0]]
    for v in order:
        order += children.get(v, [])
    lost = sorted(set(edges) - set(order), key=repr)
    if lost:
        raise ModelError(f"{lost!r} are not reached from the root {tops[0]!r}: the edges have a cycle")
    return tuple(order)


def pair_marginal(tree: RootedTree, nodes: Sequence[Array], a: int, b: int) -> Array:
    """P(x_a = i, x_b = j) = sum_k mu_w(k) M_a(k, i) M_b(k, j), w the common ancestor, M products of P."""
    if tree.parents[b] == a:  # an edge needs no way up, which is long in a chain
        if isinstance(tree.transitions, ScaledSteps):
            return np.asarray(dense(tree.transitions.table(b)))
        return nodes[a][:, None] * dense(tree.transitions[b])
    up_a, up_b = tree.path_to_root(a), tree.path_to_root(b)
    common = next(node for node in up_a if node in set(up_b))
    from_a = _product_down(tree, up_a[: up_a.index(common)])
    from_b = _product_down(tree, up_b[: up_b.index(common)])
    law = nodes[common]
    if from_a is None:
        return np.diag(law) if from_b is None else law[:, None] * dense(from_b)
    joint = (law[:, None] * dense(from_a)).T
    return np.ascontiguousarray(joint) if from_b is None else joint @ dense(from_b)


def _product_down(tree: RootedTree, path: Sequence[int]) -> Matrix | None:
    """The transition matrix from above `path` (child first) down to its first node; None for no step."""
    product: Matrix | None = None
    for node in path:
        step = tree.transitions[node]
        product = step if product is None else step @ product
    return product


def _row(matrix: Matrix, i: int) -> Array:
    return matrix[[i]].toarray()[0] if sparse.issparse(matrix) else matrix[i]


def split_potentials(
    tree: RootedTree, potentials: Mapping[Scope, Any]
) -> tuple[list[Array | None], list[Matrix | None] | None] | None:
    """Node and edge potentials (None: no edges) in the tree's order; None when one is on neither a node nor an edge."""
    nodes: list[Array | None] = [None] * len(tree.parents)
    edges: list[Matrix | None] = [None] * len(tree.parents)
    sizes = dict(zip(tree.variables, tree.sizes, strict=True))
    for scope, g in checked_potentials(potentials, sizes).items():
        if scope == ():  # a constant, which any node may carry
            place, g = tree.place(tree.variables[:1]), np.full(tree.sizes[0], float(g))
        elif (found := tree.find(scope)) is not None:
            place = found
        else:
            return None
        slots = edges if place.edge else nodes
        before, g = slots[place.node], place.turn(g)
        slots[place.node] = g if before is None else before + g
    return nodes, (edges if any(g is not None for g in edges) else None)


_BYTES_PER_TIME = 200
"""Bytes of Python objects that a chain keeps per time (names, labels, references), whatever its matrices are."""


class MarkovChain(RootedModel):
    """p(x) = pi(x_0) prod_t P_t(x_t, x_{t+1}): an initial law, and a transition matrix per step.

    Parameters
    ----------
    initial
        pi, the law of the cell at the first time, shape ``(L,)``. Labelled (pandas, xarray) inputs are put
        in the order of `cells`, or of the first labels met.
        None: unknown, and learned by `headcount.infer` and `fit`.
    transitions
        One matrix for all steps (then `length` or `times` says how many), or a sequence of T − 1 matrices (an
        array of shape ``(T − 1, L, L)`` is one), each dense or scipy.sparse; ``[i, j]`` is the probability of
        going from i to j. Matrices of a sequence may be rectangular: the cells may change from time to time.
    length
        T, the number of times.
    times
        The names of the times, which are the model's variables; 0, ..., T − 1 if not given.
    cells
        The names of the cells; 0, ..., L − 1 if not given. Either one sequence of labels, the same at all times; or, when they
        change, one list, array or index of labels per time, or a mapping from every time to its labels. An entry that is a tuple,
        such as ``(row, column)``, is a label; tuples are read as the labels of a time only where the number of cells changes,
        and refused where they could be either.
    concentration
        How well the transitions are known: every row is Dirichlet(κ p) around the given one, anew at every step; κ > 0 is one number,
        or one per origin. It is `Overdispersion` with rho = 1/(1 + κ) in every `Problem` of this chain. None: exactly.

    Notes
    -----
    A row within 1e-8 of summing to one is read as printed decimals and divided by its sum; anything further
    off is an error. A homogeneous chain holds its matrix once.

    Examples
    --------
    >>> moves = [[0.9, 0.1], [0.5, 0.5]]
    >>> chain = MarkovChain([1, 0], moves, times=["mon", "tue", "wed"], cells=["pond", "hill"])
    >>> chain.marginal(("wed",))
    array([0.86, 0.14])
    >>> chain.joint_marginal(("mon",), ("tue",))
    array([[0.9, 0.1],
           [0. , 0. ]])
    >>> tilted, change = chain.tilt({("tue",): [0, float("-inf")]})    # no one is on the hill on Tuesday
    >>> tilted.marginal(("wed",)).round(3), round(change, 3)
    (array([0.9, 0.1]), -0.105)
    """

    initial_known: bool = True
    """Whether the initial distribution was given; if not, it is uniform here, and `headcount.infer` learns it."""
    concentration: float | tuple[float, ...] | None = None
    """κ, or None where the transitions are known exactly."""

    def __init__(
        self,
        initial: Any,
        transitions: Any,
        *,
        length: int | None = None,
        times: Sequence[Variable] | None = None,
        cells: Sequence[Any] | Mapping[Any, Sequence[Hashable]] | None = None,
        concentration: Any = None,
    ) -> None:
        single = _is_matrix(transitions)
        given = (
            [transitions] if single else _as_list(transitions, "transitions", "one matrix, or one per step")
        )
        self.initial_known = initial is not None
        if initial is None:
            initial = _uniform(given)
        law, law_axes = split_labels(initial)
        law = numbers(law, "initial", expected="one probability per cell, a 1-D array")
        raise_all(shape_problems(law, 1, "initial", "one probability per cell, a 1-D array"))
        raise_all(_row_problems(law, given))
        names = _time_names(given, length, times, single=single)
        steps = given * (len(names) - 1) if single else given
        sizes = [len(law), *(_columns(matrix, k, single=single) for k, matrix in enumerate(steps))]
        labels = _cells_per_time(
            _first_labels(initial, given, names) if cells is None else cells, names, sizes
        )
        law, problems = take_in_order(law, law_axes, labels[: len(law_axes)], what="initial")
        problems += law_problems(law, labels[:1], "initial")
        matrices, wrong = _matrices(steps, labels, single=single)
        raise_all([*problems, *wrong])
        if not steps:  # no step uses the one matrix, but a wrong one is still a mistake
            raise_all(_matrices(given, [labels[0], labels[0]], single=True)[1])
        self._states = dict(zip(names, labels, strict=True))
        self._tree = RootedTree.chain(names, unit_rows(frozen(law)), matrices)
        self.concentration = None if concentration is None else _concentration(concentration, sizes[:-1])

    def as_chain(self) -> MarkovChain:
        """See `Model`."""
        return self

    @property
    def times(self) -> tuple[Variable, ...]:
        """The time labels."""
        return self._tree.variables

    @property
    def cells(self) -> tuple[Hashable, ...]:
        """The cell labels; `ModelError` when they differ between times (see `states`)."""
        first, *others = self._states.values()
        if any(other != first for other in others):
            raise ModelError("the cells differ between times: use .states[time]")
        return first

    @property
    def transitions(self) -> list[Matrix]:
        """The T − 1 transition matrices; equal steps of a homogeneous chain are the same object."""
        return list(self._tree.transitions[1:])

    def with_moves(self, initial: Any, transitions: Any) -> MarkovChain:
        """The chain with another initial distribution and other transitions, its times and cells kept."""
        return MarkovChain(initial, transitions, times=self.times, cells=self.states)

    @property
    def step_alike(self) -> bool:
        """Whether all steps are one, so that the chain can be continued."""
        return all(step is self._tree.transitions[1] for step in self._tree.transitions[1:])

    def between(self, first: int, last: int) -> MarkovChain:
        """The chain from time number ``first`` to number ``last``, both included; its first law is unknown unless it is the chain's own."""
        times = self.times[first : last + 1]
        steps = self.transitions[0] if self.step_alike and last > first else self.transitions[first:last]
        law = self.initial if first == 0 and self.initial_known else None
        cells = {time: self.states[time] for time in times}
        return MarkovChain(law, steps, times=times, cells=cells, concentration=self.concentration)

    def continued(self, times: Sequence[Variable]) -> MarkovChain:
        """The chain from its last time on, with steps like its own.

        Raises
        ------
        ModelError
            Where its steps differ, so that nobody knows the next ones.
        """
        if not self.step_alike or len(self.times) < 2:
            raise ModelError("the transitions change with time: give the model of the new times, model=...")
        return MarkovChain(
            None,
            self.transitions[0],
            times=(self.times[-1], *times),
            cells=self.cells,
            concentration=self.concentration,
        )


class HiddenStateChain(MarkovChain):
    """A chain of cells whose individuals follow a larger chain: they remember more than their cell, or may be in none.

    Abstract: a subclass gives `full`, the larger chain, and `codes`, which cell each of its states is.
    """

    @property
    @abstractmethod
    def full(self) -> MarkovChain:
        """The chain of one individual on all its states."""

    @property
    @abstractmethod
    def codes(self) -> tuple[Index, ...]:
        """Per time, which cell each state of `full` is; negative where it is none (`HIDDEN_STATE` and others)."""

    @property
    @abstractmethod
    def arguments(self) -> dict[str, Any]:
        """The arguments that make the same chain again."""

    def changed(self, **others: Any) -> Self:
        """The same chain with some of its arguments changed."""
        return type(self)(**(self.arguments | others))

    def with_moves(self, initial: Any, transitions: Any) -> MarkovChain:
        """Refused: one matrix per step does not say how the individuals move."""
        del initial, transitions
        raise ModelError(
            f"a {type(self).__name__} is more than an initial distribution and transitions of cells, which are learned or replaced here: "
            "learn what it is made of (LearnHazard, LearnMemory, LearnArrivals), or change its arguments with chain.changed(...)"
        )

    def between(self, first: int, last: int) -> MarkovChain:
        """See `MarkovChain`; refused where the steps between cells are not all that is known."""
        raise ModelError(
            f"a {type(self).__name__} cannot be cut into parts: give a chain of the times that are wanted"
        )

    def continued(self, times: Sequence[Variable]) -> MarkovChain:
        """See `MarkovChain`; steps of hidden states are the same at all times here."""
        return self.changed(times=(self.times[-1], *times))

    def larger(self) -> Larger:
        """The states of `full`."""
        return Larger(self.full.rooted(), self.codes)

    def marginal(self, scope: Sequence[Variable]) -> Array:
        """Probability to be in these cells; less than one in all where an individual may be in none."""
        table = self.full.marginal(scope)
        for axis, v in enumerate(scope):
            codes = self.codes[self.full.rooted().index[v]]
            cells = cell_map(codes, len(self.states[v])).toarray()
            table = np.moveaxis(np.tensordot(cells, table, (1, axis)), 0, axis)
        return np.asarray(table)

    def sample(self, size: int, *, rng: np.random.Generator | int) -> Any:
        """Refused: the states of an individual are not its cells."""
        raise ModelError(
            f"individuals of a {type(self).__name__} have more states than cells: draw from chain.full"
        )

    def tilt(self, potentials: Any) -> Any:
        """Refused: the law of the cells alone is no chain."""
        raise ModelError(f"a {type(self).__name__} cannot be tilted: tilt chain.full")

    def _see(self) -> None:
        """Set the chain's own first law and steps to those of the cells: the law of every single move; where nobody is, nobody moves."""
        tree, laws, steps = self.full.rooted(), node_marginals(self.full.rooted()), []
        maps = [
            cell_map(codes, len(cells))
            for codes, cells in zip(self.codes, self._states.values(), strict=True)
        ]
        for v in range(1, len(laws)):
            flow = (
                maps[v - 1]
                @ sparse.diags_array(laws[v - 1])
                @ sparse.csr_array(tree.transitions[v])
                @ maps[v].T
            )
            moved = np.asarray(flow.sum(axis=1))
            rows = sparse.diags_array(np.divide(1.0, moved, out=np.zeros_like(moved), where=moved > 0))
            steps.append(small_dense(rows @ flow + sparse.diags_array((moved == 0) * 1.0)))
        first = maps[0] @ laws[0]
        initial = first / first.sum() if first.sum() > 0 else np.full(len(first), 1.0 / len(first))
        self._tree = RootedTree(tree.variables, tree.parent, initial, (None, *steps))


MOST_DENSE = 256
"""States up to which transitions that are made here are kept dense: the compiled passes take no sparse ones, and are faster up to here."""


def small_dense(matrix: Any) -> Matrix:
    """A matrix as a dense one where it is small, csr elsewhere."""
    return np.asarray(dense(matrix)) if max(matrix.shape) <= MOST_DENSE else sparse.csr_array(matrix)


def cell_map(codes: Index, cells: int) -> Any:
    """Which cell each state is, shape (cells, states)."""
    seen = np.flatnonzero(codes >= 0)
    return sparse.csr_array((np.ones(len(seen)), (codes[seen], seen)), shape=(cells, len(codes)))


def _concentration(given: Any, origins: Sequence[int]) -> float | tuple[float, ...]:
    """κ as plain numbers, checked."""
    wanted = "give a number above 0, or one per cell that moves start from"
    made = numbers(given, "concentration", expected=wanted.removeprefix("give "))
    if made.ndim > 1 or not (np.isfinite(made) & (made > 0)).all():
        raise ModelError(f"concentration is {brief(given)}: {wanted}")
    if made.ndim == 1 and any(size != len(made) for size in origins):
        raise ModelError(
            f"concentration has {len(made)} numbers, steps start from {shown(sorted(set(origins)))} cells: {wanted}"
        )
    return float(made) if made.ndim == 0 else tuple(made.tolist())


def _is_matrix(given: Any) -> bool:
    """Whether this is one matrix (an array, sparse, or rows of numbers) and not a sequence of them."""
    if sparse.issparse(given) or not isinstance(given, (list, tuple)):
        return getattr(given, "ndim", 0) == 2
    return len(given) > 0 and all(
        not sparse.issparse(row) and not isinstance(row, str) and _axes(row) == 1 for row in given
    )


def _axes(given: Any) -> int:
    """The number of axes; −1 for a ragged list."""
    try:
        return np.ndim(given)
    except ValueError:
        return -1


def _as_list(given: Any, what: str, expected: str) -> list[Any]:
    if isinstance(given, (list, tuple)) or getattr(given, "ndim", 0) >= 1:
        return list(given)
    raise ModelError(f"{what} is {brief(given)}: give {expected}")


def _time_names(given: Sequence[Any], length: Any, times: Any, *, single: bool) -> tuple[Variable, ...]:
    """The names of the times, as many as `length`, `times` and the number of matrices say; they must agree."""
    counts: dict[str, int] = {} if single else {f"the {len(given)} transition matrices": len(given) + 1}
    names = None if times is None else label_tuple(times, "times")
    if names is not None:
        counts["times"] = len(names)
        raise_all(f"time {t!r} is named twice: names must differ" for t in repeated(names))
    if length is not None:
        counts["length"] = whole_number(
            length, "length", least=1, expected="at least one time, as a whole number"
        )
    count = _agreed(counts)
    memory.require(_BYTES_PER_TIME * count, f"a chain of {count:,} times", remedy="take fewer times")
    return tuple(range(count)) if names is None else names


def _agreed(counts: Mapping[str, int]) -> int:
    """The one number of times that everything given says."""
    if not counts:
        raise ModelError(
            "one transition matrix for all steps needs to know how many: give length=T or times=[...]"
        )
    found = set(counts.values())
    if len(found) > 1 or min(found) < 1:
        said = ", ".join(f"{what}: {number}" for what, number in counts.items())
        raise ModelError(
            f"a chain has one number of times, at least 1; these differ ({said}): make them agree"
        )
    return found.pop()


def _first_labels(
    initial: Any, given: Sequence[Any], times: Sequence[Variable]
) -> dict[Variable, tuple[Hashable, ...]] | None:
    """The first labels that came with the inputs (pandas, xarray), for all times; None if there are none."""
    axes = (split_labels(values)[1] for values in (initial, *given))
    first = next((found for labels in axes for found in labels if found is not None), None)
    return None if first is None else dict.fromkeys(times, first)


def _uniform(given: Sequence[Any]) -> Any:
    """The uniform distribution over the origins of the first step."""
    if not given:
        raise ModelError("initial is None and there is no transition matrix: give one of them")
    rows = given[0].shape[0] if hasattr(given[0], "shape") else len(given[0])
    return np.full(rows, 1 / max(rows, 1))


def _row_problems(law: Array, matrices: Sequence[Any]) -> list[str]:
    """That the initial law has not one probability per row of the first matrix, where there is one."""
    tables = [m if hasattr(m, "shape") else numbers(m, "the transition matrix") for m in matrices[:1]]
    rows = [table.shape[0] for table in tables if len(table.shape) == 2 and table.shape[0] != len(law)]
    return [
        f"initial has {len(law)} probabilities, the transition matrix {n} rows: give one probability per cell"
        for n in rows
    ]


def _columns(matrix: Any, step: int, *, single: bool) -> int:
    """The number of states after a step."""
    what = _name(step, single=single)
    array = matrix if hasattr(matrix, "shape") else numbers(matrix, what)
    raise_all(shape_problems(array, 2, what, "a matrix, origin by destination"))
    return int(array.shape[1])


def _name(step: int, *, single: bool) -> str:
    return "the transition matrix" if single else f"transitions[{step}]"


def _matrices(
    steps: Sequence[Any], labels: Sequence[tuple[Hashable, ...]], *, single: bool
) -> tuple[list[Matrix], list[str]]:
    """The matrix of every step, in the order of its cells, rows summing to one, and what is wrong; equal steps share one."""
    made: dict[tuple[int, ...], Matrix] = {}
    matrices: list[Matrix] = []
    problems: list[str] = []
    for step, given in enumerate(steps):
        before, after = labels[step], labels[step + 1]
        values, axes = split_labels(given)
        # A plain matrix is the same whatever the cells are called; a labelled one is put in their order.
        key = (id(given), id(before), id(after)) if axes else (id(given), len(before), len(after))
        if key not in made:
            what = _name(step, single=single)
            values, wrong = take_in_order(values, axes, (before, after)[: len(axes)], what=what)
            matrix = as_matrix(values, what)
            wrong = wrong or matrix_problems(matrix, before, after, what)
            made[key] = matrix if wrong else unit_rows(matrix)
            problems += wrong
        matrices.append(made[key])
    return matrices, problems


def _cells_per_time(
    cells: Any, times: Sequence[Variable], sizes: Sequence[int]
) -> list[tuple[Hashable, ...]]:
    """The labels of every time's cells; see `MarkovChain` for the rule."""
    if cells is None:
        plain = {size: tuple(range(size)) for size in sizes}
        return [plain[size] for size in sizes]
    if isinstance(cells, Mapping):
        absent = [t for t in times if t not in cells]
        if absent:
            raise ModelError(f"cells has no labels for the times {shown(absent)}: give every time its labels")
        labels = [label_tuple(cells[t], f"cells[{t!r}]") for t in times]
    else:
        rows = getattr(cells, "ndim", 1) > 1
        rows = rows and not sparse.issparse(cells)
        entries = list(cells) if rows else list(label_tuple(cells, "cells", hashable=False))
        labels = _labels_of_times(entries, sizes)
    raise_all(_label_problems(labels, times, sizes))
    return labels


def _labels_of_times(entries: list[Any], sizes: Sequence[int]) -> list[tuple[Hashable, ...]]:
    """The labels of every time from one sequence: labels that all times share, or one sequence of labels per time."""
    listed = any(is_sequence(entry) and not isinstance(entry, tuple) for entry in entries)
    tuples = {len(entry) if isinstance(entry, tuple) else None for entry in entries}
    if listed or len(set(sizes)) > 1:
        return _listed_by_time(entries, sizes)
    if len(entries) == len(sizes) > 1 and tuples == {sizes[0]}:
        raise ModelError(
            "cells has one tuple per time, which could be the labels of the times, or labels that are tuples: give "
            "lists for the first, and a mapping from every time to its labels for the second"
        )
    return [label_tuple(entries, "cells")] * len(sizes)


def _listed_by_time(entries: list[Any], sizes: Sequence[int]) -> list[tuple[Hashable, ...]]:
    """Labels given as one sequence per time."""
    if len(entries) != len(sizes) or not all(map(is_sequence, entries)):
        raise ModelError(
            f"cells has {len(entries)} entries for {len(sizes)} times with {shown(sizes)} cells: give one "
            "sequence of labels per time"
        )
    return [label_tuple(entry, f"cells[{k}]") for k, entry in enumerate(entries)]


def _label_problems(
    labels: Sequence[tuple[Hashable, ...]], times: Sequence[Variable], sizes: Sequence[int]
) -> list[str]:
    problems: dict[str, None] = {}
    shared = all(names is labels[0] for names in labels)
    fine: set[tuple[int, int]] = set()
    for time, names, size in zip(times, labels, sizes, strict=True):
        if (id(names), size) in fine:  # labels that times share are looked at once
            continue
        fine.add((id(names), size))
        where = "" if shared else f" at time {time!r}"
        if len(names) != size:
            problems[f"{len(names)} cells are named but there are {size}{where}: name each once"] = None
        problems |= dict.fromkeys(
            f"cell {c!r} is named twice{where}: names must differ" for c in repeated(names)
        )
    return list(problems)
