"""Wrong types to the constructors: our errors, naming the argument, never a raw one."""

import datetime as dt

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given

import headcount as hc

MODEL = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], length=3, cells=("a", "b"))
PARAMETERS = {
    hc.Poisson: ("rate", "background"),
    hc.NegativeBinomial: ("dispersion", "rate", "background"),
    hc.Binomial: ("detection",),
    hc.Gaussian: ("sd", "covariance"),
    hc.LaplaceNoise: ("scale",),
    hc.Exact: (),
}
GOOD = {"dispersion": 2.0, "detection": 0.5, "sd": 1.0, "scale": 1.0}

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.dates(),
    st.sampled_from(
        [
            object(),
            int,
            len,
            lambda: 1,
            {1, 2},
            np.datetime64("2020-01-01"),
            dt.timedelta(1),
            slice(1),
            10**400,
        ]
    ),
)
nested = st.recursive(scalars, lambda s: st.lists(s, max_size=3) | st.tuples(s, s), max_leaves=6)
anything = st.one_of(
    nested,
    st.dictionaries(st.text(max_size=2) | st.integers(0, 3), nested, max_size=2),
    nested.map(lambda v: pd.Series([v, v])),
    st.sampled_from(
        [
            np.array(["a", "b"]),
            np.array([1 + 2j]),
            np.zeros((2, 0)),
            pd.DataFrame({"a": ["x"]}),
            pd.Series([1.0], index=[("a", [1])]),
            np.ma.array([["x", "y"]], mask=[[True, False]]),
        ]
    ),
)


def refused(make) -> tuple[str, ...]:
    """What the refusal says; nothing when there is none. Any other error goes through."""
    try:
        make()
    except hc.ProblemError as error:
        return error.problems
    return ()


@pytest.mark.parametrize("noise", PARAMETERS)
@given(data=st.data())
def test_noises_refuse_in_words(noise, data) -> None:
    """Whatever comes for one argument of a noise: it is bound, or refused by an error that says what is expected."""
    good = {name: GOOD[name] for name in PARAMETERS[noise] if name in GOOD}
    arguments = {"counts": np.full((3, 2), 1.0), **good}
    name = data.draw(st.sampled_from(["counts", "on", "sums", *PARAMETERS[noise]]))
    if name == "covariance":
        del arguments["sd"]
    arguments[name] = data.draw(anything)
    refused(lambda: hc.Problem(MODEL, 10, noise(**arguments)))


@given(model=anything, population=anything, observations=anything)
@example(model=MODEL, population=10**400, observations=())
@example(model=MODEL, population=np.array([7]), observations=())
@example(model=MODEL, population=3, observations=np.array(5))
@example(model=MODEL, population=3, observations=pd.DataFrame({"a": [1]}))
def test_problems_refuse_in_words(model, population, observations) -> None:
    """Whatever comes for the model, the population or the observations is refused by naming it."""
    for name, *arguments in (
        ("model", model, 10, ()),
        ("population", MODEL, population, ()),
        ("obs", MODEL, 10, observations),
    ):
        assert all(text.startswith(name) for text in refused(lambda a=arguments: hc.Problem(*a)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hc.Poisson(None), r"Poisson\(counts=\.\.\.\) is None \(NoneType\): give numbers"),
        (lambda: hc.Poisson([[1.0]], rate="3"), r"Poisson\(rate=\.\.\.\) is '3' \(str\): give numbers"),
        (lambda: hc.Poisson([[1.0]], rate=True), r"Poisson\(rate=\.\.\.\) is True \(bool\): give numbers"),
        (lambda: hc.Poisson([[1.0]], background=len), r"Poisson\(background=\.\.\.\) is <built-in"),
        (lambda: hc.Binomial([[1.0]], detection=None), r"Binomial\(detection=\.\.\.\) is None"),
        (lambda: hc.Poisson([[1 + 2j]]), r"Poisson\(counts=\.\.\.\) is \[\[\(1\+2j\)\]\] \(list\)"),
        (lambda: hc.Poisson([1.0, "2"]), r"Poisson\(counts=\.\.\.\) is \[1\.0, '2'\] \(list\)"),
        (lambda: hc.Gaussian([1.0], sd="wide"), r"Gaussian\(sd=\.\.\.\) is 'wide' \(str\)"),
    ],
)
def test_what_the_refusal_says(make, message: str) -> None:
    """The argument, its value and type, and what to give; text that looks like a number is not read as one."""
    with pytest.raises(hc.ProblemError, match=message):
        make()


def test_settings_of_a_noise_of_ones_own() -> None:
    """A field that is not annotated as a number may hold text, True or a function; one annotated float may not."""
    from dataclasses import dataclass
    from typing import Any

    @dataclass(frozen=True, eq=False, kw_only=True)
    class Mine(hc.Observation):
        kind: str = "square"
        link: Any = abs
        scale: float = 1.0

        def log_prob(self, n):
            return -self.link(self.counts - n) / self.scale

    noise = hc.Problem(MODEL, 10, Mine(np.ones((3, 2)), kind="other", scale=2)).sites[0].noise
    assert noise.kind == "other"
    assert noise.link is abs
    with pytest.raises(hc.ProblemError, match=r"Mine\(scale=\.\.\.\) is 'big'"):
        Mine([1.0], scale="big")
