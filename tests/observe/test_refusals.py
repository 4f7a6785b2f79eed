"""Every refusal, and what it says: the entry, the value, the remedy; all faults at once."""

import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from tests.graphs import awkward_models

import headcount as hc
from headcount.observe import Observation

TIMES, CELLS = ("mon", "tue", "wed"), ("a", "b", "c")
FULL = [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]]
CLOSED = [[0.6, 0.4, 0.0], [0.2, 0.8, 0.0], [0.0, 0.0, 1.0]]
Y = np.ones((3, 3))
NAN = np.nan


def chain(initial=(0.2, 0.3, 0.5), step=FULL):
    return hc.MarkovChain(initial, step, times=TIMES, cells=CELLS)


def refusal(*observations, population=10, model=None):
    with pytest.raises(hc.ProblemError) as caught:
        hc.Problem(chain() if model is None else model, population, observations)
    assert isinstance(caught.value, ValueError)
    assert all(text in str(caught.value) for text in caught.value.problems[:20])
    return caught.value.problems


def only(*observations, **options):
    (text,) = refusal(*observations, **options)
    return text


@pytest.mark.parametrize("population", [0, -3, 2.5, NAN, np.inf, "10", None, True, 2**53 + 2, [3, 4]])
def test_population(population):
    """N must be a whole number ≥ 1 that a float can count."""
    assert re.match(
        r"population: is .*: give a whole number from 1 to 2\*\*53, or About", only(population=population)
    )


def test_observations_that_are_none():
    """Each thing that is no observation is named with its type."""
    assert only(3.0) == "observations[0]: must be an observation such as Poisson(counts), got 3.0 (float)"
    with pytest.raises(
        hc.ProblemError, match=r"observations: must be observations .*, got array.*\(ndarray\)"
    ):
        hc.Problem(chain(), 10, Y)
    with pytest.raises(hc.ProblemError, match=r"got .*\(dict\)"):
        hc.Problem(chain(), 10, {"mon": hc.Poisson([1, 2, 3])})


def test_a_model_that_is_none():
    """The model must be one."""
    with pytest.raises(hc.ProblemError, match=r"model: must be a Model .*, got \[1\] \(list\)"):
        hc.Problem([1], 10, [])


def test_everything_at_once():
    """Faults of several observations and of the population come in one error, in order."""
    bad = Y.copy()
    bad[1, 2] = -1
    found = refusal(
        hc.Poisson(bad, rate=0),
        hc.Poisson([1, 2], on="mon"),
        hc.Gaussian(Y, sd=-1),
        hc.Exact([11, 0.5, NAN], on="tue"),
        population=10,
    )
    assert len(found) == 6
    assert found[0].startswith("observations[1] (Poisson): counts: shape (2,) where the table has (3,);")
    assert "a count must be ≥ 0 (NaN means not observed) [time tue, cell 'c' (got -1)]" in found[1]
    assert "rate must be > 0" in found[2]
    assert "and 4 more]" in found[2]
    assert "sd must be > 0; for counts without error use Exact" in found[3]
    assert "whole number" in found[4]
    assert "cannot exceed the population N = 10" in found[5]


def test_long_messages_are_cut_but_not_the_problems():
    """The message shows twenty faults and counts the rest; `problems` has them all."""
    with pytest.raises(hc.ProblemError, match=r"and 5 more \(see \.problems\)") as caught:
        hc.Problem(chain(), 10, [hc.Poisson([1], on="mon") for _ in range(25)])
    assert len(caught.value.problems) == 25


LABELS = {
    "unknown cell": (
        xr.DataArray(Y, dims=("time", "cell"), coords={"time": list(TIMES), "cell": ["a", "b", "x"]}),
        "unknown label 'x' along 'cell': the model has 'a', 'b', 'c'",
    ),
    "unknown time": (
        pd.DataFrame(Y, index=["mon", "tue", "sun"], columns=list(CELLS)),
        "unknown label 'sun' along 'the index'",
    ),
    "repeated label": (
        xr.DataArray(Y, dims=("time", "cell"), coords={"time": list(TIMES), "cell": ["a", "b", "b"]}),
        "repeated label 'b' along 'cell'",
    ),
    "repeated row": (
        pd.DataFrame({"time": ["mon", "mon"], "cell": ["a", "a"], "count": [1, 2]}),
        "repeated row ('mon', 'a')",
    ),
    "unknown dimension": (
        xr.DataArray(Y, dims=("week", "cell")),
        "dimension 'week' is not one of 'time' or 'variable' × 'cell' or 'state': rename it",
    ),
    "missing dimension": (xr.DataArray([1.0, 2, 3], dims="cell"), "dimensions ('cell',) where"),
    "unlabelled and too short": (
        xr.DataArray(Y[:, :2], dims=("time", "cell")),
        "dimension 'cell' has no labels and length 2 where 3 are needed",
    ),
    "wrong shape": (Y[:2], "shape (2, 3) where the table has (3, 3)"),
    "flat": (Y.ravel(), "shape (9,) where the table has (3, 3)"),
    "text in a series": (
        pd.Series(["many", "few"], index=pd.MultiIndex.from_tuples([("mon", "a"), ("mon", "b")])),
        "counts: must be numbers, or labelled numbers",
    ),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels_and_shapes(case):
    """Labels the model does not have, repeated ones, and wrong shapes are named."""
    data, message = LABELS[case]
    assert message in only(hc.Poisson(data))


def test_several_unknown_labels_are_listed():
    """All unknown labels of an axis are named, a few of them when there are many."""
    data = xr.DataArray(np.ones((3, 7)), dims=("time", "cell"), coords={"cell": list("tuvwxyz")})
    assert "unknown labels 't', 'u', 'v', 'w', 'x', ... (7 in all)" in only(hc.Poisson(data))


@pytest.mark.parametrize("data", [[[1, 2], [3]], [["1", "2", "3"]] * 3])
def test_data_that_are_no_numbers(data):
    """Ragged lists and text are refused where they are given, with the argument's name."""
    with pytest.raises(
        hc.ProblemError,
        match=r"Poisson\(counts=\.\.\.\) is \[.* \(list\): give numbers in a rectangular array",
    ):
        hc.Poisson(data)


def test_scopes():
    """Unknown variables, repeated ones, and tables outside a clique."""
    assert "unknown variable 'sun' in on: the model has 'mon', 'tue', 'wed'" in only(
        hc.Poisson([1, 2, 3], on="sun")
    )
    assert "names a variable twice" in only(hc.Poisson(Y, on=("mon", "mon")))
    assert "the variables ('mon', 'wed') are not together in one clique" in only(
        hc.Poisson(Y, on=("mon", "wed"))
    )
    assert "beside counts that already name their variables" in only(hc.Poisson({"mon": [1, 2, 3]}, on="mon"))
    assert "rate has no value for 'tue'" in only(
        hc.Poisson({"mon": [1, 2, 3], "tue": [1, 2, 3]}, rate={"mon": 1.0})
    )


def test_variables_of_different_sizes():
    """Plain arrays need equal numbers of states; labelled counts must be of the variable's own states."""
    model = awkward_models()["tree with unequal domains"]
    assert "different numbers of states" in only(hc.Poisson(np.ones((4, 2))), model=model)
    stray = pd.DataFrame({"variable": ["a"], "state": [2], "count": [1]})
    assert "counts for 2, which is not a state of 'a'" in only(hc.Poisson(stray), model=model)
    sums = hc.Poisson(np.ones((4, 1)), sums=[[1, 1]])
    assert "sums over variables with different states" in only(sums, model=model)


def test_nothing_observed():
    """All NaN, or no row at all, is a mistake, not an observation."""
    assert "every count is NaN or absent" in only(hc.Poisson(np.full((3, 3), NAN)))
    assert "every count is NaN or absent" in only(hc.Poisson({}))


WHOLE = {
    "poisson": hc.Poisson,
    "negative binomial": lambda y: hc.NegativeBinomial(y, dispersion=1),
    "binomial": lambda y: hc.Binomial(y, detection=0.5),
    "exact": lambda y: hc.Exact(y),
}


@pytest.mark.parametrize("noise", WHOLE)
@pytest.mark.parametrize(("count", "text"), [(-1, "≥ 0"), (1.5, "a whole number"), (np.inf, "finite")])
def test_counts_of_count_noises(noise, count, text):
    """Count noises need whole counts ≥ 0; the entry is named."""
    y = np.full((3, 3), NAN)
    y[1, 0] = count
    found = refusal(WHOLE[noise](y))
    assert any(text in line and f"time tue, cell 'a' (got {count:g})" in line for line in found)


def test_continuous_noises_take_any_finite_count():
    """Negative and fractional counts are data under Gaussian and Laplace noise; infinite ones are not."""
    y = Y * -1.5
    hc.Problem(chain(), 10, [hc.Gaussian(y, sd=1), hc.LaplaceNoise(y, scale=1)])
    y[0, 0] = -np.inf
    assert "finite" in only(hc.Gaussian(y, sd=1))


PARAMETERS = {
    "rate zero": (lambda: hc.Poisson(Y, rate=0), "rate must be > 0"),
    "rate NaN": (lambda: hc.Poisson(Y, rate=NAN), "rate must be a finite number wherever there is a count"),
    "background negative": (lambda: hc.Poisson(Y, background=-1), "background must be ≥ 0"),
    "background infinite": (lambda: hc.Poisson(Y, background=np.inf), "background must be a finite number"),
    "dispersion zero": (
        lambda: hc.NegativeBinomial(Y, dispersion=0),
        "dispersion must be > 0; for none, use Poisson",
    ),
    "negative binomial rate": (lambda: hc.NegativeBinomial(Y, dispersion=1, rate=-1), "rate must be > 0"),
    "negative binomial background": (
        lambda: hc.NegativeBinomial(Y, dispersion=1, background=-1),
        "background must be ≥ 0",
    ),
    "detection zero": (lambda: hc.Binomial(Y, detection=0), "strictly between 0 and 1"),
    "detection above one": (lambda: hc.Binomial(Y, detection=1.2), "strictly between 0 and 1"),
    "detection one": (lambda: hc.Binomial(Y, detection=1), "every individual is counted: use Exact"),
    "detected above N": (lambda: hc.Binomial(Y * 11, detection=0.5), "cannot exceed the population N = 10"),
    "sd zero": (lambda: hc.Gaussian(Y, sd=0), "sd must be > 0; for counts without error use Exact"),
    "scale zero": (lambda: hc.LaplaceNoise(Y, scale=0), "scale must be > 0"),
    "covariance not symmetric": (
        lambda: hc.Gaussian(Y[0], on="mon", covariance=np.triu(Y) + np.eye(3)),
        "symmetric, positive definite",
    ),
    "covariance singular": (lambda: hc.Gaussian(Y[0], on="mon", covariance=Y), "positive definite"),
    "covariance shape": (
        lambda: hc.Gaussian(Y, covariance=np.eye(9)),
        "covariance: shape (9, 9) where (3, 3, 3)",
    ),
    "covariance labelled": (
        lambda: hc.Gaussian(Y[0], on="mon", covariance=pd.DataFrame(np.eye(3))),
        "labels are not read here",
    ),
    "rate shape": (lambda: hc.Poisson(Y, rate=[1.0, 2]), "rate: shape (2,) does not broadcast"),
    "rate label": (
        lambda: hc.Poisson(Y, rate=pd.Series([1.0], index=pd.Index(["x"], name="cell"))),
        "rate: unknown label 'x'",
    ),
    "rate row absent": (
        lambda: hc.Poisson(Y, rate=pd.Series([1.0, 1], index=pd.Index(["a", "b"], name="cell"))),
        "rate must be a finite number wherever there is a count [time mon, cell 'c'",
    ),
}


@pytest.mark.parametrize("case", PARAMETERS)
def test_parameters(case):
    """Parameters outside their range, NaN ones and ones of the wrong shape are refused with the remedy."""
    make, message = PARAMETERS[case]
    assert message in only(make())


def test_gaussian_needs_one_of_two():
    """Gaussian takes sd or covariance: neither and both are refused where they are given."""
    with pytest.raises(hc.ProblemError, match="got neither"):
        hc.Gaussian(Y)
    with pytest.raises(hc.ProblemError, match="got both"):
        hc.Gaussian(Y, sd=1, covariance=np.eye(9))


SUMS = {
    "columns": ([[1, 1]], "sums has shape (1, 2) where (K, 3) is needed"),
    "weights": ([[1, 0.5, 0]], "sums must hold 0 and 1 only, got 0.5"),
    "not a number": ([[1, NAN, 0]], "sums must hold 0 and 1 only, got nan"),
    "not a number, labelled": (
        xr.DataArray([[1, NAN, 0]], dims=("region", "mon")),
        "sums must hold 0 and 1 only, got nan",
    ),
    "empty": ([[0, 0, 0]], "sum 0 has no entries"),
    "unknown state": ({"all": ["a", "x"]}, "unknown label 'x' along \"sum 'all'\""),
    "a state twice": ({"all": ["a", "a"]}, "sums must hold 0 and 1 only, got 2"),
    "text": ({"all": "ab"}, "must list its states, got the text 'ab'"),
    "series": (pd.Series([1.0, 1, 1]), "got a Series"),
    "frame label": (pd.DataFrame([[1, 1]], columns=["a", "x"]), "unknown label 'x'"),
    "dimensions": (xr.DataArray([[1, 1, 1]], dims=("cell", "state")), "one for the sums and"),
}


@pytest.mark.parametrize("case", SUMS)
def test_sums(case):
    """A sum is a set of entries, each once, all of them known."""
    sums, message = SUMS[case]
    assert message in only(hc.Poisson([1], on="mon", sums=sums))


def test_counts_where_nobody_can_be():
    """A count y > 0 at probability 0 names time and cell; a background, a zero or NaN make it possible."""
    model = chain((0.5, 0.5, 0.0), CLOSED)
    y = np.array([[3.0, 4, 0], [3, 4, 2], [NAN, 1, NAN]])
    text = only(hc.Poisson(y), model=model)
    assert "no background: pass background=..." in text
    assert "[time tue, cell 'c' (got 2)]" in text
    hc.Problem(model, 10, hc.Poisson(y, background=0.1))
    partly = np.where(y == 2, 0.1, 0)
    hc.Problem(model, 10, hc.Poisson(y, background=partly))
    hc.Problem(model, 10, hc.Gaussian(y, sd=1))
    assert "where this count cannot occur" in only(hc.Binomial(y, detection=0.5), model=model)
    assert "[sum 0 of time tue (got 1)]" in only(hc.Poisson([1], on="tue", sums=[[0, 0, 1]]), model=model)
    edge = np.zeros((3, 3))
    edge[0, 2] = 1
    assert "time mon, cell 'a' to time tue, cell 'c'" in only(
        hc.Poisson(edge, on=("mon", "tue")), model=model
    )
    y[1, 2] = 0
    hc.Problem(model, 10, hc.Poisson(y))


def test_counts_where_everybody_must_be():
    """Where the model puts all N, a count that N individuals cannot give is refused, exact or not."""

    class AtMostFive(Observation):
        def log_prob(self, n):
            return np.where(n <= 5, 0.0, -np.inf)

    model = chain((1.0, 0.0, 0.0))
    text = only(AtMostFive([9, NAN, NAN], on="mon"), model=model)
    assert "every individual is there under the model (n = N)" in text
    assert "[time mon, cell 'a' (got 9)]" in text
    assert "they add up to 9" in only(hc.Exact([9, NAN, NAN], on="mon"), model=model)
    hc.Problem(model, 10, hc.Exact([10, NAN, NAN], on="mon"))


def test_exact_tables_add_up_to_the_population():
    """A whole exact table sums to N, a part of one does not exceed it."""
    assert "they add up to 9, the population is N = 10" in only(hc.Exact([3, 3, 3], on="mon"))
    assert "they add up to 12, above the population N = 10" in only(hc.Exact([6, 6, NAN], on="mon"))
    hc.Problem(chain(), 10, [hc.Exact([3, 3, 4], on="mon"), hc.Exact([6, 4, NAN], on="tue")])


def test_exact_readings_of_one_entry_agree():
    """Two different exact counts of one entry cannot both be."""
    text = only(hc.Exact([3, NAN, NAN], on="mon"), hc.Exact([4, NAN, NAN], on="mon"))
    assert "observations[1] (Exact): another exact observation says 3" in text
    hc.Problem(chain(), 10, [hc.Exact([3, NAN, NAN], on="mon")] * 2)


FLOW = np.array([[1.0, 1, 1], [2, 1, 0], [0, 2, 2]])  # rows 3, 3, 4; columns 3, 4, 3


def test_exact_margins_agree():
    """A flow and a node, and two flows, agree on what they share; the state and both values are named."""
    flow = hc.Exact(FLOW, on=("mon", "tue"))
    hc.Problem(
        chain(), 10, [flow, hc.Exact([3, 3, 4], on="mon"), hc.Exact(FLOW[[0, 2, 1]], on=("tue", "wed"))]
    )
    text = only(flow, hc.Exact([4, 2, 4], on="mon"))
    assert "('mon', 'tue') and ('mon') contradict each other" in text
    assert "mon = 'a': 3 against 4; mon = 'b': 3 against 2" in text
    assert "('mon', 'tue') and ('tue', 'wed')" in only(flow, hc.Exact(FLOW, on=("tue", "wed")))
    part = FLOW.copy()
    part[0, 0] = NAN
    assert "mon = 'b': 3 against 2" in only(hc.Exact(part, on=("mon", "tue")), hc.Exact([4, 2, 4], on="mon"))
    assert "mon = 'a': 2 against 1" in only(
        hc.Exact(part, on=("mon", "tue")), hc.Exact([1, 3, NAN], on="mon")
    )


def test_exact_sums_agree_with_entries():
    """A sum equals its known entries, is not below some of them, and agrees with a larger table's margin."""
    entries = hc.Exact([3, 3, NAN], on="mon")
    assert (
        "the exact entries in it add up to 6; correct the sum or an entry [sum 0 of time mon (got 7)]"
        in only(entries, hc.Exact([7], on="mon", sums=[[1, 1, 0]]))
    )
    assert "add up to 3" in only(entries, hc.Exact([2], on="mon", sums=[[0, 1, 1]]))
    assert "add up to 4" in only(hc.Exact(FLOW, on=("mon", "tue")), hc.Exact([5], on="tue", sums=[[0, 1, 0]]))
    hc.Problem(chain(), 10, [entries, hc.Exact([6, 7], on="mon", sums=[[1, 1, 0], [1, 0, 1]])])


def test_exact_sums_agree_with_each_other():
    """Sums that no table of N individuals has are refused even when no entry is known."""
    regions = [[1, 1, 0], [0, 0, 1]]
    assert "no table of N = 10 individuals has all of them" in only(hc.Exact([6, 5], on="mon", sums=regions))
    assert "no table" in only(hc.Exact([3, 3, 3], on="mon", sums=[[1, 1, 0], [0, 1, 1], [1, 0, 1]]))
    hc.Problem(chain(), 10, hc.Exact([6, 4], on="mon", sums=regions))


def test_noisy_counts_against_exact_ones():
    """A count y > 0 where the exact count is zero, and more detected than there are, name the cell."""
    nobody = hc.Exact([0, 4, 6], on="mon")
    text = only(nobody, hc.Poisson([1, 4, 6], on="mon"))
    assert "given the exact counts of the other observations" in text
    assert "[time mon, cell 'a' (got 1)]" in text
    assert "cell 'b' (got 5)" in only(nobody, hc.Binomial([0, 5, 6], on="mon", detection=0.5))
    assert "time tue, cell 'a' (got 4)" in only(
        hc.Exact(FLOW, on=("mon", "tue")), hc.Binomial([4, NAN, NAN], on="tue", detection=0.5)
    )
    hc.Problem(chain(), 10, [nobody, hc.Poisson([1, 4, 6], on="mon", background=0.1)])


def test_take_needs_plain_counts():
    """An observation that still holds labelled data cannot be indexed by position."""
    with pytest.raises(TypeError, match="a Problem's sites have them"):
        hc.Poisson(pd.Series([1.0, 2])).take([0])


BINOMIAL, POISSON = hc.Binomial([4.0, 0, 7], detection=0.5, on="mon"), hc.Poisson([[0, 1, 2]] * 3)
NEEDED = {
    "binomial": ((BINOMIAL,), 10, "counts of 'mon': they need at least 11 individuals"),
    "binomial beside exact": (
        (hc.Binomial([4.0, NAN, NAN], detection=0.5, on="mon"), hc.Exact([NAN, 7.0, NAN], on="mon")),
        10,
        "counts of 'mon': they need at least 11 individuals",
    ),
    "poisson": ((POISSON,), 1, "counts of 'mon': they need at least 2 individuals"),
    "edges": (
        (hc.Poisson(np.ones((3, 3)), on=("mon", "tue")),),
        8,
        "counts of 'mon', 'tue': they need at least 9 individuals",
    ),
    "a sum": (
        (hc.Binomial([NAN, 0.0], detection=0.5, on="mon", sums={"x": ["a", "b"], "y": ["c"]}), BINOMIAL),
        10,
        "counts of 'mon': they need at least 11 individuals",
    ),
}


@pytest.mark.parametrize("case", NEEDED)
def test_counts_that_need_more_than_everyone(case):
    """Counts that are each possible, but together need more than N individuals, are refused; with one more N will do."""
    observations, population, message = NEEDED[case]
    found = refusal(*observations, population=population)
    assert any(text.startswith(message) for text in found)
    needed = int(re.search(r"at least (\d+)", message)[1])
    hc.Problem(chain(), needed, observations)


def test_a_background_needs_nobody():
    """With a background, or a noise that any n explains, counts say nothing of how many there must be."""
    hc.Problem(
        chain(), 1, [hc.Poisson(Y, background=0.1), hc.Gaussian(9 * Y, sd=1), hc.LaplaceNoise(9 * Y, scale=1)]
    )
