"""Mistakes that people make in the first hour: the message names the likely one, and the right call."""

import numpy as np
import pandas as pd
import pytest

import headcount as hc
from headcount import _compile

CHAIN = hc.MarkovChain(None, np.full((3, 3), 1 / 3), length=5)
PROBLEM = hc.Problem(CHAIN, 60, hc.Poisson(np.full((5, 3), 20.0)))
DAYS = pd.date_range("2024-01-01", periods=5, tz="Europe/Berlin")
DATED = {zone: hc.MarkovChain(None, np.full((3, 3), 1 / 3), times=list(days)) for zone, days in
         (("naive", DAYS.tz_localize(None)), ("aware", DAYS))}  # fmt: skip


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: hc.infer(CHAIN), "a model has no counts: hc.Problem"),
        (lambda: hc.infer("counts.csv"), r"hc.io.read_problem\('counts.csv'"),
        (lambda: hc.infer(pd.DataFrame()), "counts need a model and a population"),
        (lambda: hc.infer(hc.infer(PROBLEM)), "posterior.problem"),
        (lambda: hc.infer_many(PROBLEM), r"infer one with hc.infer\(problem\)"),
        (lambda: hc.infer_many([CHAIN]), r"problems\[0\] is a MarkovChain"),
        (lambda: hc.fit(PROBLEM, hc.TabularChain()), "the parametrisation comes first"),
        (lambda: hc.Poisson(np.ones((5, 3), dtype=bool)), "is True and False"),
        (lambda: hc.Poisson(pd.DataFrame(np.ones((5, 3), dtype=bool))), "is True and False"),
        (lambda: hc.MarkovChain([0.5, 0.5], np.full((3, 3), 1 / 3), length=5), "initial has 2 probabilities"),
    ],
)
def test_what_is_given_instead_is_named(call, words):
    """A model, a file, a table or a posterior in the place of a problem says how a problem is made of it."""
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    ("model", "counts", "words"),
    [
        (CHAIN, np.ones((3, 5)), "it looks transposed: give its .T, time by cell"),
        (CHAIN, pd.DataFrame(np.ones((3, 5))), "it is transposed"),
        (CHAIN, pd.DataFrame(np.ones((5, 3)), columns=list("012")), "texts, and the model's are numbers"),
        (DATED["naive"], pd.DataFrame(np.ones((5, 3)), index=DAYS), "tz_localize\\(None\\)"),
        (DATED["aware"], pd.DataFrame(np.ones((5, 3)), index=DAYS.tz_localize(None)), "no time zone"),
    ],
)
def test_tables_that_nearly_fit_say_what_differs(model, counts, words):
    """Transposed arrays, texts for numbers and times with or without a zone are recognised."""
    with pytest.raises(hc.ProblemError, match=words):
        hc.Problem(model, 60, hc.Poisson(counts))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: hc.infer(PROBLEM, engin="MAP"),
            r"infer has no argument 'engin' \(did you mean 'engine'\?\)",
        ),
        (
            lambda: hc.Problem(CHAIN, 60, observation=[]),
            r"Problem has no argument 'observation' \(did you mean",
        ),
        (lambda: hc.io.read_problem("x.csv", rate=0.3), r"give it as parameters=\{'rate'"),
        (lambda: hc.fit(hc.TabularChain(), PROBLEM, ridge=1.0), "it is LogisticChain's"),
    ],
)
def test_misspelt_keywords_are_asked_about(call, words):
    """A keyword that a function has not comes with the nearest that it has, or with what to write instead."""
    with pytest.raises(TypeError, match=words):
        call()


def test_a_problem_is_shown_in_one_line():
    """repr(Problem) says model, population and what was seen, without the arrays."""
    assert repr(PROBLEM) == (
        "<Problem: MarkovChain: 5 variables (0, 1, 2, 3, ... (5 in all)), 3 states each; population 60; 15 counts with Poisson noise>"
    )


def test_a_person_is_told_why_the_first_answer_takes_long(monkeypatch, capsys):
    """Before something is compiled for the first time, a terminal is told so, once; a log is not."""
    for person in (False, True):
        _compile._say_that_one_waits.cache_clear()
        monkeypatch.setattr("sys.stderr.isatty", lambda person=person: person, raising=False)
        _compile._say_that_one_waits()
        _compile._say_that_one_waits()
        assert capsys.readouterr().err.count("compiling, once") == person
