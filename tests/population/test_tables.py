"""Tables that belong to one sample, or say where they do not."""

import numpy as np
import pytest
from scipy import sparse
from tests.graphs import awkward_models

from headcount.individual import MarkovChain, ModelError
from headcount.population import CGM, CountTables

MODELS = awkward_models()
every_model = pytest.mark.parametrize("name", MODELS)


@every_model
def test_tables_of_a_sample_agree_and_count_it(name, rng):
    """n_A(i) counts the individuals in configuration i, for every scope inside a clique, in any order."""
    model = MODELS[name]
    samples = model.sample(37, rng=rng)
    tables = CountTables.from_samples(model, samples).check()
    assert tables.population == 37
    column = {v: k for k, v in enumerate(model.variables)}
    for clique in model.junction_tree.cliques:
        for scope in {clique, clique[::-1], clique[:1], clique[-1:]}:
            expected = np.zeros(model.size(scope), dtype=int)
            np.add.at(expected, tuple(samples[:, column[v]] for v in scope), 1)
            np.testing.assert_array_equal(tables.table(scope), expected)


@every_model
def test_separators_may_be_given_or_left_out(name):
    """Tables with and without their separators are the same; a wrong separator is found."""
    model = MODELS[name]
    whole = CGM(model, 11).sample(rng=4)
    again = CountTables(model, whole.tables)
    for scope in whole.tables:
        np.testing.assert_array_equal(again.table(scope), whole.table(scope))
    for separator in model.junction_tree.separators:
        wrong = np.array(whole.table(separator))
        wrong.reshape(-1)[0] += 1
        assert CountTables(model, {**whole.tables, separator: wrong}).disagreements()


def test_every_disagreement_is_listed():
    """The check names each entry, both values and both tables, all at once."""
    model = MODELS["homogeneous chain"]
    tables = CountTables(
        model,
        {
            (0, 1): [[3, 0], [0, 0]],
            (1, 2): [[0, 0], [1, 2]],
            (2, 3): [[0, 1], [2, 0]],
            (3, 4): [[1, 1], [1, 1]],
        },
    )
    with pytest.raises(ModelError) as caught:
        tables.check()
    text = "\n".join(caught.value.problems)
    assert "n(1=0) is 3 in table (1,), but table (1, 2) sums to 0 there" in text
    assert "n(1=1) is 0 in table (1,), but table (1, 2) sums to 3 there" in text
    assert "table (3, 4) sums to 4, table (0, 1) to 3" in text
    assert "n(3=1) is 1 in table (3,), but table (3, 4) sums to 2 there" in text
    assert len(caught.value.problems) == 4


def test_every_bad_table_is_listed():
    """Shapes, fractions, negative counts, unknown scopes and missing cliques come in one message."""
    model = MODELS["chain"]
    with pytest.raises(ModelError) as caught:
        CountTables(
            model,
            {("mon", "tue"): np.full((3, 3), 0.5), ("mon", "wed"): np.zeros((3, 3), int), ("tue",): [1]},
        )
    text = "\n".join(caught.value.problems)
    for part in (
        "no whole number",
        "neither a clique nor a separator",
        "shape (1,)",
        "no table for the clique ('tue', 'wed')",
    ):
        assert part in text
    with pytest.raises(ModelError, match="the count -1"):
        CountTables(model, {("mon", "tue"): -np.eye(3, dtype=int), ("tue", "wed"): np.eye(3, dtype=int)})


def test_whole_floats_are_counts_and_fractions_are_not():
    """Integers written as floats (as pandas does beside NaN) are taken; 0.5, NaN and 2**53 are not."""
    model = MODELS["chain of length one"]
    assert CountTables(model, {(0,): [1.0, 2.0, 0.0, 4.0]}).population == 7
    for bad in (0.5, np.nan, np.inf, 2.0**53):
        with pytest.raises(ModelError, match="no whole number"):
            CountTables(model, {(0,): [bad, 0.0, 0.0, 0.0]})


def test_tables_that_disagree_are_named():
    """A flow that is one more than its neighbours allow: every entry that two tables contradict is named."""
    model = MODELS["homogeneous chain"]
    n = CGM(model, 50).sample(rng=2)
    flows = {(t, t + 1): n.table((t, t + 1)).copy() for t in range(4)}
    flows[2, 3] += np.eye(2, dtype=int)
    with pytest.raises(ModelError, match=r"n\(3=0\) is .* in table \(3,\), but table"):
        CountTables(model, flows).check()


def test_scopes_across_cliques_are_refused():
    """Clique tables do not determine counts across cliques, and the message says what does."""
    n = CGM(MODELS["chain"], 5).sample(rng=0)
    with pytest.raises(ModelError, match="no clique holds all of"):
        n.table(("mon", "wed"))


def test_samples_are_checked():
    """Samples of the wrong shape or with states that do not exist are refused."""
    with pytest.raises(ModelError, match="shape"):
        CountTables.from_samples(MODELS["chain"], np.zeros((4, 2), dtype=int))
    with pytest.raises(ModelError, match="state 3 of variable 'tue' does not exist"):
        CountTables.from_samples(MODELS["chain"], np.array([[0, 3, 0]]))


@every_model
def test_labels_come_back(name):
    """Every axis of the labelled tables carries the names the user gave, and .sel finds the count."""
    model = MODELS[name]
    n = CGM(model, 20).sample(rng=1)
    data = n.to_xarray()
    assert data.attrs["population"] == 20
    if "counts" in data:
        for t in model.variables:
            np.testing.assert_array_equal(data["counts"].sel(time=t).values, n.table((t,)))
            assert tuple(data["cell"].values.tolist()) == model.states[t]
        for u, v in model.junction_tree.cliques if len(model.variables) > 1 else ():
            np.testing.assert_array_equal(data["flows"].sel(departure=u).values, n.table((u, v)))
            assert data["arrival"].sel(departure=u).item() == v
    else:
        for v in model.variables:
            assert tuple(data[str(v)].values.tolist()) == model.states[v]
            np.testing.assert_array_equal(data[f"counts[{v}]"].values, n.table((v,)))


def test_sparse_edges_turn_and_sum():
    """A sparse table has the margins and the transpose of its dense self."""
    model = MODELS["homogeneous chain"]
    n = CGM(model, 30).sample(rng=1)
    slim = CountTables(model, {c: sparse.csr_array(n.table(c)) for c in model.junction_tree.cliques}).check()
    np.testing.assert_array_equal(slim.table((2, 1)).toarray(), n.table((2, 1)))
    np.testing.assert_array_equal(slim.table((4,)), n.table((4,)))
    np.testing.assert_array_equal(slim.to_xarray()["flows"].values, n.to_xarray()["flows"].values)


@pytest.mark.parametrize(
    "table",
    [
        np.array([[2**63 + 5, 1], [1, 1]], dtype=np.uint64),
        np.full((2, 2), 2**62, dtype=np.int64),
        np.full((2, 2), 2**52, dtype=np.int64),
    ],
    ids=["unsigned", "signed", "sum"],
)
def test_integers_too_large_to_add_up_are_refused(table):
    """Counts are below 2^53 and sum to at most that, whatever integers they come in: nothing wraps round."""
    model = MarkovChain([0.5, 0.5], [[0.5, 0.5]] * 2, length=2)
    with pytest.raises(ModelError, match=r"2\*\*53"):
        CountTables(model, {(0, 1): table})


def test_small_integers_do_not_overflow():
    """Four int8 counts of 100 are 400 individuals."""
    model = MarkovChain([0.5, 0.5], [[0.5, 0.5]] * 2, length=2)
    assert CountTables(model, {(0, 1): np.full((2, 2), 100, dtype=np.int8)}).population == 400
