"""Parametrisations from anything: they are made, or refused in our words; and so is a fit with one wrong argument."""

import numpy as np
import pytest
from hypothesis import given, settings
from tests.constructors import GARBAGE, Call, misfits, one_broken, outcome

import headcount as hc

CHAIN = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], length=2)
FEATURES = np.eye(2)[None].tolist()
CALLS: dict[str, Call] = {
    "LogisticChain": (
        hc.LogisticChain,
        {"features": [*FEATURES, *FEATURES], "names": ("stay", "also"), "fixed": {"also": 0.5}, "ridge": 0.1},
    ),
    "LogLinear": (
        hc.LogLinear,
        {"features": {"a": {(0,): [0.0, 1.0]}, "b": {(1,): [0.0, 1.0]}}, "fixed": {"a": 0.5}, "ridge": 0.1},
    ),
    "TabularChain": (hc.TabularChain, {"dirichlet": 1.5}),
}


def test_every_argument_takes_or_refuses_anything() -> None:
    """One wrong argument of any parametrisation works, or is refused with a message of ours: never a raw error."""
    found = misfits(CALLS)
    assert not found, f"{len(found)} calls:\n" + "\n".join(found)


@settings(max_examples=100)
@given(one_broken(CALLS))
def test_every_part_of_an_argument_too(case: tuple[str, str, object]) -> None:
    """The same with one part broken inside a list, a tuple or a mapping."""
    name, argument, value = case
    function, arguments = CALLS[name]
    assert outcome(function, {**arguments, argument: value}) is None


def test_a_fit_names_what_is_no_problem_and_no_parametrisation() -> None:
    """Anything else in their places is refused in our words before an E-step is run."""
    problem = hc.Problem(CHAIN, 10, hc.Poisson([[5.0, 5.0], [6.0, 4.0]]))
    for value in GARBAGE:
        for arguments in ((value, problem), (hc.LogisticChain(FEATURES), value)):
            with pytest.raises((hc.ModelError, hc.ProblemError), match=r"\S"):
                hc.fit(*arguments)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_features_that_are_no_numbers_are_refused_beside_fixed_weights(bad):
    """The refusal names the feature's fault, whichever weight is fixed; a forbidden move may have any features."""
    features = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 2.0], [1.0, 0.0]]])
    for k, message in ((0, "feature 0 from 0 to 1"), (1, "fixed weights \\(also\\)")):
        wrong = features.copy()
        wrong[k, 0, 1] = bad
        with pytest.raises(hc.ModelError, match=message):
            hc.LogisticChain(wrong, names=("stay", "also"), fixed={"also": 0.5})
        mask = np.array([[0.0, -np.inf], [0.0, 0.0]])
        hc.LogisticChain(wrong, names=("stay", "also"), fixed={"also": 0.5}, mask=mask)
