"""`MarkovChain`: one individual moving between cells over time."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from headcount import memory
from headcount.checks import brief, is_sequence, numbers, whole_number
from headcount.errors import ModelError, raise_all, repeated, shown
from headcount.individual._model import Variable
from headcount.individual._rooted_tree import Matrix, RootedTree
from headcount.individual._tree import RootedModel
from headcount.individual._validate import (
    as_matrix,
    frozen,
    law_problems,
    matrix_problems,
    shape_problems,
    unit_rows,
)
from headcount.labels import label_tuple, split_labels, take_in_order

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
        or one per origin. It is `Company` with rho = 1/(1 + κ) in every `Problem` of this chain. None: exactly.

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
        names = _time_names(given, length, times, single=single)
        steps = given * (len(names) - 1) if single else given
        sizes = [len(law), *(_columns(matrix, k, single=single) for k, matrix in enumerate(steps))]
        labels = _cells_per_time(
            _first_labels(initial, given, names) if cells is None else cells, names, sizes
        )
        law, problems = take_in_order(law, law_axes, labels[: len(law_axes)], what="initial")
        problems += law_problems(law, labels[0], "initial")
        matrices, wrong = _matrices(steps, labels, single=single)
        raise_all([*problems, *wrong])
        if not steps:  # no step uses the one matrix, but a wrong one is still a mistake
            raise_all(_matrices(given, [labels[0], labels[0]], single=True)[1])
        self._states = dict(zip(names, labels, strict=True))
        parent = np.arange(-1, len(names) - 1, dtype=np.intp)
        self._tree = RootedTree(names, parent, unit_rows(frozen(law)), (None, *matrices))
        self.concentration = None if concentration is None else _concentration(concentration, sizes[:-1])

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
    for time, names, size in zip(times, labels, sizes, strict=True):
        where = "" if shared else f" at time {time!r}"
        if len(names) != size:
            problems[f"{len(names)} cells are named but there are {size}{where}: name each once"] = None
        problems |= dict.fromkeys(
            f"cell {c!r} is named twice{where}: names must differ" for c in repeated(names)
        )
    return list(problems)
