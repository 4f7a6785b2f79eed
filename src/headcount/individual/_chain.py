"""`MarkovChain`: one individual moving between cells over time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, final

import numpy as np
from scipy import sparse

from headcount.individual._errors import ModelError, raise_all
from headcount.individual._labels import Labels, split_labels, take_in_order
from headcount.individual._model import Variable, label_tuple, repeated
from headcount.individual._rooted_model import RootedModel
from headcount.individual._rooted_tree import Matrix, RootedTree
from headcount.individual._validate import as_matrix, frozen, law_problems, matrix_problems, unit_rows


@final
class MarkovChain(RootedModel):
    """p(x) = pi(x_0) prod_t P_t(x_t, x_{t+1}): an initial law, and a transition matrix per step.

    Parameters
    ----------
    initial
        pi, the law of the cell at the first time, shape ``(L,)``. Labelled (pandas, xarray) inputs are put
        in the order of `cells`, or of the first labels met.
    transitions
        One matrix for all steps (then `length` or `times` says how many), or a sequence of T − 1 matrices (an
        array of shape ``(T − 1, L, L)`` is one), each dense or scipy.sparse; ``[i, j]`` is the probability of
        going from i to j. Matrices of a sequence may be rectangular: the cells may change from time to time.
    length
        T, the number of times.
    times
        The names of the times, which are the model's variables; 0, ..., T − 1 if not given.
    cells
        The names of the cells, the same at all times, or a sequence of T such sequences when they change; 0,
        ..., L − 1 if not given.

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

    def __init__(
        self,
        initial: Any,
        transitions: Any,
        *,
        length: int | None = None,
        times: Sequence[Variable] | None = None,
        cells: Sequence[Any] | None = None,
    ) -> None:
        initial, transitions, cells = _unlabelled(initial, transitions, cells)
        law = frozen(initial)
        matrices, count = _steps(transitions, length, times)
        names = tuple(range(count)) if times is None else label_tuple(times)
        if law.ndim != 1:
            raise ModelError(f"initial has the shape {law.shape}: give one probability per cell, a 1-D array")
        labels, problems = _cell_labels(cells, [len(law), *(matrix.shape[-1] for matrix in matrices)])
        if not problems:
            problems = law_problems(law, labels[0], "initial") + _matrix_problems(matrices, labels)
        problems += [f"time {t!r} is named twice: names must differ" for t in repeated(names)]
        raise_all(problems)
        unit = {id(matrix): unit_rows(matrix) for matrix in matrices}
        steps = tuple(unit[id(matrix)] for matrix in matrices)
        self._states = dict(zip(names, labels, strict=True))
        self._tree = RootedTree(
            names, np.arange(-1, count - 1, dtype=np.intp), unit_rows(law), (None, *steps)
        )

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


def _unlabelled(
    initial: Any, transitions: Any, cells: Sequence[Any] | None
) -> tuple[Any, Any, Sequence[Any] | None]:
    """Pandas and xarray inputs as plain arrays, in the order of `cells` or of the first labels met."""
    law, law_labels = split_labels(initial)
    several = isinstance(transitions, (list, tuple)) and not _is_matrix(transitions)
    parts = [split_labels(m) for m in (transitions if several else [transitions])]
    own = [*law_labels, *(names for _, labels in parts for names in labels[-2:])]
    found = next((names for names in own if names is not None), None)
    if found is None:
        return law, (transitions if several else parts[0][0]), cells
    order = found if cells is None else label_tuple(cells)
    law, problems = take_in_order(law, law_labels, order, what="initial")
    made = []
    for k, (values, labels) in enumerate(parts):
        what = f"transitions[{k}]" if several else "the transition matrix"
        last: Labels = [*([None] * (len(labels) - 2)), *labels[-2:]]
        taken, wrong = take_in_order(values, last, order, what=what)
        made.append(taken)
        problems += wrong
    raise_all(problems)
    return law, (made if several else made[0]), order


def _matrix_problems(matrices: Sequence[Matrix], labels: Sequence[tuple[Hashable, ...]]) -> list[str]:
    """What is wrong with the matrices, each looked at once."""
    problems: list[str] = []
    homogeneous = len({id(matrix) for matrix in matrices}) == 1
    seen: set[tuple[int, int, int]] = set()
    for step, matrix in enumerate(matrices):
        before, after = labels[step], labels[step + 1]
        key = (id(matrix), len(before), len(after))
        if key not in seen:
            seen.add(key)
            what = "the transition matrix" if homogeneous else f"transitions[{step}]"
            problems += matrix_problems(matrix, before, after, what)
    return problems


def _steps(
    transitions: Any, length: int | None, times: Sequence[Variable] | None
) -> tuple[list[Matrix], int]:
    """The T − 1 matrices, one shared object when homogeneous, and T."""
    single = _is_matrix(transitions)
    if times is not None and length is not None and len(times) != length:
        raise ModelError(f"length is {length} but {len(times)} times are named: give one of the two")
    count = len(times) if times is not None else length
    if single:
        if count is None:
            raise ModelError(
                "one transition matrix for all steps needs to know how many: give length=T or times=[...]"
            )
        if count < 1:
            raise ModelError(f"length is {count}: a chain has at least one time")
        matrix = as_matrix(transitions)
        if count == 1:  # no step uses it, but a wrong matrix is still a mistake
            cells = range(matrix.shape[0])
            raise_all(matrix_problems(matrix, cells, cells, "the transition matrix"))
        return [matrix] * (count - 1), count
    made: dict[int, Matrix] = {}
    matrices = [made.setdefault(id(m), as_matrix(m)) for m in transitions]
    if count is not None and count != len(matrices) + 1:
        raise ModelError(
            f"{len(matrices)} transition matrices make a chain of {len(matrices) + 1} times, not {count}: "
            "give one per step"
        )
    raise_all(
        f"transitions[{k}] has the shape {m.shape}: give a matrix, origin by destination"
        for k, m in enumerate(matrices)
        if m.ndim != 2
    )
    return matrices, len(matrices) + 1


def _is_matrix(given: Any) -> bool:
    """Whether this is one matrix (an array, sparse, or rows of numbers) and not a sequence of them."""
    if sparse.issparse(given) or not isinstance(given, (list, tuple)):
        return getattr(given, "ndim", 0) == 2
    return len(given) > 0 and all(not sparse.issparse(row) and np.ndim(row) == 1 for row in given)


def _cell_labels(
    cells: Sequence[Any] | None, sizes: Sequence[int]
) -> tuple[list[tuple[Hashable, ...]], list[str]]:
    """The labels of every time's cells, and what is wrong with them."""
    if cells is None:
        return [tuple(range(size)) for size in sizes], []
    if len(set(sizes)) > 1:
        labels = [tuple(c) for c in cells] if all(isinstance(c, (list, tuple)) for c in cells) else []
        if len(labels) != len(sizes):
            return [], [
                f"the number of cells changes over time ({list(sizes)}): give one sequence of labels per time"
            ]
    else:
        shared = label_tuple(cells)
        labels = [shared] * len(sizes)
    problems = []
    for t, (names, size) in enumerate(zip(labels, sizes, strict=True)):
        if len(names) != size and (t == 0 or names is not labels[t - 1]):
            problems.append(
                f"{len(names)} cells are named but there are {size} at position {t}: name each once"
            )
    problems += [
        f"cell {c!r} is named twice: names must differ"
        for c in {c: 0 for names in labels for c in repeated(names)}
    ]
    return labels, problems
