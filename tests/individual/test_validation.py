"""What cannot be right is refused in words: the place, the value, the remedy, and all of it at once."""

import numpy as np
import pytest
from scipy import sparse

from headcount.individual import DiscreteModel, MarkovChain, ModelError, Tree

HALF = [0.5, 0.5]
GOOD = np.array([[0.9, 0.1], [0.2, 0.8]])


def refusal(make, *arguments, **named) -> tuple[str, ...]:
    """The problems with which `make` refuses."""
    with pytest.raises(ModelError) as error:
        make(*arguments, **named)
    assert isinstance(error.value, ValueError)
    assert all(problem in str(error.value) for problem in error.value.problems[:20])
    return error.value.problems


@pytest.mark.parametrize("made", [np.array, sparse.csr_array], ids=["dense", "sparse"])
def test_every_bad_row_is_named_with_its_value(made) -> None:
    """A sum that is off, a negative entry, NaN: each named with label, value and remedy, together."""
    first = np.array([[0.9, 0.2], [0.2, 0.8]])
    second = np.array([[1.2, -0.2], [np.nan, 0.5]])
    problems = refusal(MarkovChain, [0.5, 0.6], [made(first), made(second)], cells=["pond", "hill"])
    assert len(problems) == 4
    assert problems[0] == "initial sums to 1.1, not 1: divide it by its sum or add the missing state"
    assert problems[1].startswith(
        "row 'pond' of transitions[0] sums to 1.1, not 1: divide the row by its sum"
    )
    assert problems[2].startswith("transitions[1]['pond', 'hill'] is -0.2")
    assert problems[3].startswith("transitions[1]['hill', 'pond'] is nan")


def test_rows_may_miss_one_by_1e_8_and_no_more() -> None:
    """The tolerance is 1e-8: half of it passes, twice is refused; the law and a conditional table alike."""
    for miss, passes in ((5e-9, True), (-5e-9, True), (2e-8, False), (-2e-8, False)):
        p = GOOD.copy()
        p[1, 1] += miss
        for make in (
            lambda p=p: MarkovChain(HALF, p, length=2),
            lambda p=p: MarkovChain(p[1], GOOD, length=2),
            lambda p=p: Tree(HALF, {"b": ("a", p)}),
            lambda p=p: DiscreteModel.from_cpts({"a": 2, "b": 2}, {"a": ((), HALF), "b": (("a",), p)}),
        ):
            if passes:
                make()
            else:
                assert "sums to" in refusal(make)[0]


def test_wrong_shapes_say_what_was_expected() -> None:
    """Shapes are never guessed at: each complaint states what came and what should have."""
    assert (
        "has the shape (2, 3), expected (3, 3)"
        in refusal(MarkovChain, [0.2, 0.8], np.ones((2, 3)) / 3, length=3)[0]
    )
    assert "needs to know how many" in refusal(MarkovChain, HALF, GOOD)[0]
    assert "length is 0" in refusal(MarkovChain, HALF, GOOD, length=0)[0]
    assert "2 transition matrices: 3, length: 5" in refusal(MarkovChain, HALF, [GOOD, GOOD], length=5)[0]
    assert "times: 2, length: 4" in refusal(MarkovChain, HALF, GOOD, length=4, times="ab")[0]
    assert "1-D" in refusal(MarkovChain, GOOD, GOOD, length=2)[0]
    assert "3 cells are named but there are 2" in refusal(MarkovChain, HALF, GOOD, length=2, cells="abc")[0]
    assert "one sequence of labels per time" in refusal(MarkovChain, HALF, [np.ones((2, 1))], cells="ab")[0]
    assert "expected (2, 3)" in refusal(DiscreteModel, {"a": 2, "b": 3}, {("a", "b"): np.zeros((3, 2))})[0]


def test_names_that_clash_or_are_unknown() -> None:
    """Unknown and repeated names are all listed, with the names there are."""
    assert "time 1 is named twice" in refusal(MarkovChain, HALF, GOOD, times=[1, 1])[0]
    assert "cell 'a' is named twice" in refusal(MarkovChain, HALF, GOOD, length=2, cells="aa")[0]
    problems = refusal(
        DiscreteModel, {"a": 2}, [(("a", "z"), np.zeros((2, 2))), (("y",), [0.0]), (("a", "a"), GOOD)]
    )
    assert [p.split(":")[0] for p in problems[:2]] == ["unknown variable 'z'", "unknown variable 'y'"]
    assert "appears twice" in problems[2]
    assert "has no states" in refusal(DiscreteModel, {"a": ()})[0]
    assert "state 'x' twice" in refusal(DiscreteModel, {"a": "xx"})[0]
    assert "no variables" in refusal(DiscreteModel, {})[0]


def test_unknown_labels_of_a_frame_are_listed() -> None:
    """A label that is no cell, and a cell without a label, on either axis, are both named."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(GOOD, index=["a", "b"], columns=["a", "sea"])
    problems = refusal(MarkovChain, HALF, frame, length=3, cells=["a", "b"])
    assert "unknown cells 'sea'" in problems[0]
    assert "has no 'b'" in problems[1]


def test_scopes_are_tuples_of_known_variables() -> None:
    """A bare variable, a string, a stranger and a repetition are refused; cell 0 and time 0 are ordinary."""
    chain = MarkovChain(HALF, GOOD, length=3)
    assert chain.marginal((0,)).shape == (2,)
    assert "write (0,)" in refusal(chain.marginal, 0)[0]
    assert "write ('0',)" in refusal(chain.marginal, "0")[0]
    assert "unknown variable 3" in refusal(chain.marginal, (0, 3))[0]
    assert "appears twice" in refusal(chain.joint_marginal, (0, 0), (1,))[0]
    assert (
        len(refusal(chain.tilt, {(0,): [0.0], (9,): [0.0, 0.0], (1,): [np.nan, 0.0], (2,): [np.inf, 0.0]}))
        == 4
    )


def test_trees_have_one_root_and_no_cycle() -> None:
    """Two roots, a cycle, a part that hangs in the air, a root that is not one: each refused by name."""
    assert "have 2 (['a', 'c'])" in refusal(Tree, HALF, {"b": ("a", GOOD), "d": ("c", GOOD)})[0]
    assert "have 0" in refusal(Tree, HALF, {"a": ("b", GOOD), "b": ("a", GOOD)})[0]
    assert "cycle" in refusal(Tree, HALF, {"b": ("a", GOOD), "c": ("d", GOOD), "d": ("c", GOOD)})[0]
    assert "root is 'b'" in refusal(Tree, HALF, {"b": ("a", GOOD)}, root="b")[0]
    assert "not in the tree" in refusal(Tree, HALF, {"b": ("a", GOOD)}, states={"z": "xy"})[0]
    assert "give (parent, matrix)" in refusal(Tree, HALF, {"b": GOOD})[0]
    assert Tree(HALF, {}, root="only").variables == ("only",)


def test_conditional_tables_need_their_parents() -> None:
    """A stranger among the parents, a missing table and a bad row are reported together."""
    problems = refusal(
        DiscreteModel.from_cpts,
        {"a": ("yes", "no"), "b": 2, "c": 2},
        {"a": ((), [0.5, 0.4]), "b": (("a", "ghost"), GOOD)},
    )
    assert len(problems) == 3
    assert "sums to 0.9" in problems[0]
    assert "'ghost'" in problems[1]
    assert "'c' has no conditional table" in problems[2]


def test_many_problems_are_counted_not_all_printed() -> None:
    """Fifty bad rows: all fifty in .problems, twenty in the message, thirty counted."""
    with pytest.raises(ModelError, match="and 30 more") as error:
        MarkovChain(np.full(50, 0.02), np.full((50, 50), 0.03), length=2)
    assert len(error.value.problems) == 50


def test_cells_that_change_have_no_common_names() -> None:
    """`cells` does not pick one time's labels when they differ."""
    assert "differ between times" in refusal(lambda: MarkovChain(HALF, [np.full((2, 3), 1 / 3)]).cells)[0]


def test_a_matrix_no_step_uses_is_still_checked() -> None:
    """A chain of one time looks at the matrix it was given: nothing is accepted and ignored."""
    assert "sums to 1.1" in refusal(MarkovChain, HALF, [[0.9, 0.2], [0.2, 0.8]], length=1)[0]
    assert MarkovChain(HALF, GOOD, length=1).transitions == []


def test_a_model_cannot_be_changed_from_outside() -> None:
    """Writing into what was given, or into what came back, does not change the law."""
    law, dense, csr = np.array(HALF), GOOD.copy(), sparse.csr_array(GOOD)
    theta = np.zeros((2, 2))
    models = [
        MarkovChain(law, dense, length=2),
        MarkovChain(law, csr, length=2),
        DiscreteModel({0: 2, 1: 2}, {(0, 1): theta}),
    ]
    before = [model.marginal((0, 1)) for model in models]
    law[0], dense[0, 0], csr.data[0], theta[0, 0] = 9.0, 9.0, 9.0, 9.0
    for model, joint in zip(models, before, strict=True):
        model.marginal((1,))[:] = 9.0
        np.testing.assert_array_equal(model.marginal((0, 1)), joint)
        np.testing.assert_allclose(model.marginal((1,)), joint.sum(axis=0), rtol=0, atol=1e-15)


def test_labels_are_plain_values() -> None:
    """Arrays of labels become Python values; dates stay dates; the model says what it is."""
    pandas = pytest.importorskip("pandas")
    chain = MarkovChain(HALF, GOOD, times=np.arange(3), cells=np.array(["a", "b"]))
    assert repr(chain.times) == "(0, 1, 2)"
    assert repr(chain.cells) == "('a', 'b')"
    assert repr(chain) == "<MarkovChain: 3 variables (0, 1, 2), 2 states each>"
    days = pandas.date_range("2024-01-01", periods=3)
    assert MarkovChain(HALF, GOOD, times=days).times == tuple(days)
    nights = np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[ns]")
    assert MarkovChain(HALF, GOOD, times=nights).marginal(
        (np.datetime64("2024-01-02"),)
    ).sum() == pytest.approx(1)


def test_a_transposed_matrix_is_named() -> None:
    """Columns that sum to 1 where rows do not are the likeliest mistake of all: it is said once, not row by row."""
    for matrix in ([[0.9, 0.3], [0.1, 0.7]], sparse.csr_array([[0.9, 0.3], [0.1, 0.7]])):
        (problem,) = refusal(MarkovChain, HALF, matrix, length=3)
        assert "give its transpose" in problem
    assert len(refusal(MarkovChain, HALF, [[0.9, 0.4], [0.1, 0.7]], length=3)) == 2
