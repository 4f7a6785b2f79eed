"""Cells of a Markov chain: one sequence of labels, or one per time, and never a guess."""

import numpy as np
import pandas as pd
import pytest

from headcount.individual import MarkovChain, ModelError
from headcount.learn._components import with_transitions

THIRDS = np.full((3, 3), 1 / 3)
HALF = [[0.5, 0.5], [0.5, 0.5]]
RACE, PARTY = ("w", "b", "n"), ("d", "r", "o")


@pytest.mark.parametrize(
    "cells",
    [
        [list(RACE), list(PARTY)],
        [np.array(RACE), np.array(PARTY)],
        [pd.Index(RACE), pd.Index(PARTY)],
        np.array([RACE, PARTY]),
        {"race": RACE, "party": list(PARTY)},
        [list(RACE), PARTY],
    ],
    ids=["lists", "arrays", "indexes", "one array", "mapping", "list and tuple"],
)
def test_labels_per_time_when_sizes_are_equal(cells) -> None:
    """A list, array or index of labels per time names every time's cells, also when their numbers are equal."""
    chain = MarkovChain([0.5, 0.3, 0.2], [THIRDS], times=["race", "party"], cells=cells)
    assert dict(chain.states) == {"race": RACE, "party": PARTY}
    with pytest.raises(ModelError, match="differ between times"):
        _ = chain.cells


def test_labels_per_time_of_a_homogeneous_chain() -> None:
    """One matrix for all steps may lead between cells of other names; it is held once."""
    chain = MarkovChain([0.5, 0.5], HALF, length=3, cells=[["a", "b"], ["c", "d"], ["e", "f"]])
    assert list(chain.states.values()) == [("a", "b"), ("c", "d"), ("e", "f")]
    assert chain.transitions[0] is chain.transitions[1]


def test_tuples_are_labels() -> None:
    """Entries that are tuples are labels of all times: map cells named (row, column)."""
    cells = [(0, 0), (0, 1), (1, 0)]
    chain = MarkovChain([0.5, 0.3, 0.2], THIRDS, length=4, cells=cells)
    assert chain.cells == tuple(cells)


def test_tuples_per_time_where_nothing_else_fits() -> None:
    """Where the number of cells changes, one tuple per time can only be its labels."""
    chain = MarkovChain([0.5, 0.3, 0.2], [np.full((3, 2), 0.5)], cells=[("a", "b", "c"), ("x", "y")])
    assert list(chain.states.values()) == [("a", "b", "c"), ("x", "y")]


def test_what_could_be_either_is_refused() -> None:
    """Two tuples of two for two times of two cells: labels of times or labels that are tuples? Both can be said otherwise."""
    pairs = [("a", "b"), ("x", "y")]
    with pytest.raises(ModelError, match="could be the labels of the times, or labels that are tuples"):
        MarkovChain([0.5, 0.5], HALF, length=2, cells=pairs)
    per_time = MarkovChain([0.5, 0.5], HALF, length=2, cells=[list(p) for p in pairs])
    assert list(per_time.states.values()) == pairs
    shared = MarkovChain([0.5, 0.5], HALF, length=2, cells={0: pairs, 1: pairs})
    assert shared.cells == tuple(pairs)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([["a", "b"]], "give one sequence of labels per time"),
        ([["a", "b"], "c"], "give one sequence of labels per time"),
        ([["a", "b"], ["c"]], r"1 cells are named but there are 2 at time 1"),
        ([["a", "b"], ["c", "c"]], r"cell 'c' is named twice at time 1"),
        ([("a", "b", "c"), ("x", "y", "z")], None),
        ({0: ["a", "b"]}, "no labels for the times 1"),
        (3, "cells is 3"),
        ([["a", ["b"]], ["c", "d"]], "cells"),
    ],
)
def test_cells_that_do_not_fit(cells, message) -> None:
    """Every misfit is refused with the time and both numbers."""
    if message is None:  # two labels that are tuples of three: two cells at both times
        assert MarkovChain([0.5, 0.5], HALF, length=2, cells=cells).cells == tuple(cells)
        return
    with pytest.raises(ModelError, match=message):
        MarkovChain([0.5, 0.5], HALF, length=2, cells=cells)


def test_one_tuple_per_time_is_refused_with_the_remedy() -> None:
    """Two tuples for two times of three cells are not three labels; the message says to give lists."""
    with pytest.raises(ModelError, match="give lists for the first"):
        MarkovChain([0.5, 0.3, 0.2], [THIRDS], cells=[RACE, PARTY])


def test_labelled_inputs_follow_the_labels_of_their_time() -> None:
    """A labelled matrix is put in the order of the cells before and after its step."""
    frame = pd.DataFrame([[0.1, 0.9], [0.6, 0.4]], index=["a", "b"], columns=["c", "d"])
    chain = MarkovChain(
        pd.Series({"a": 0.2, "b": 0.8}), [frame], cells=[["b", "a"], ["d", "c"]], times=["one", "two"]
    )
    np.testing.assert_array_equal(chain.initial, [0.8, 0.2])
    np.testing.assert_array_equal(chain.transitions[0], [[0.4, 0.6], [0.9, 0.1]])
    with pytest.raises(ModelError, match=r"axis 1 of transitions\[0\] has unknown cells 'c', 'd'"):
        MarkovChain([0.5, 0.5], [frame], cells=["a", "b"])


def test_every_step_of_an_array_is_its_own_matrix() -> None:
    """An array of T − 1 different matrices gives T − 1 different steps (views of an array share no identity)."""
    steps = np.random.default_rng(1).dirichlet(np.ones(3), size=(40, 3))
    chain = MarkovChain([0.2, 0.3, 0.5], steps)
    for made, given in zip(chain.transitions, steps, strict=True):
        np.testing.assert_allclose(made, given, rtol=1e-12)


def test_a_fit_keeps_the_labels_of_every_time() -> None:
    """A learned chain has its template's cells, per time and named by tuples too, where both could be confused."""
    names = {0: (("a", "b"), ("c", "d")), 1: (("e", "f"), ("g", "h"))}
    chain = MarkovChain([0.5, 0.5], [HALF], cells=names)
    made = with_transitions(chain, [0.3, 0.7], [HALF])
    assert dict(made.states) == names
