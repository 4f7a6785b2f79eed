"""What a posterior can be asked: labelled tables, totals, promises, reliability; and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from tests.engines.cases import problem
from tests.engines.test_promises import several

import headcount as hc
from headcount.engines import MAP, ClosedForm, Enumerate, Laplace, TiltedEP

N = 60


def test_every_part_of_a_posterior():
    """Labels come back on node, edge and clique; a total is a sum of them with the covariance's variance."""
    post = hc.infer(several(), TiltedEP())
    node, edge = post.node("tue"), post.edge("tue", "wed")
    assert list(node.mean.coords["tue"].values) == ["a", "b", "c"]
    assert edge.mean.dims == ("tue", "wed")
    np.testing.assert_allclose(post.edge("wed", "tue").mean.values, edge.mean.values.T)
    assert (node.sd >= 0).all()
    interval = node.interval(0.8)
    assert interval.attrs["level"] == 0.8
    assert ((interval["lower"] <= node.mean) & (node.mean <= interval["upper"])).all()
    assert node.covariance(post.node("mon")).shape == (3, 3)
    total = post.total({"tue": [1, 1, 0]})
    assert total.mean == pytest.approx(float(node.mean[:2].sum()))
    assert total.sd**2 == pytest.approx(node.covariance()[:2, :2].sum())
    both = post.total({("mon", "tue"): np.ones((3, 3))})
    assert both.mean == pytest.approx(N)
    assert both.sd == pytest.approx(0.0, abs=1e-4)
    assert len(post.trace) == post.outcome.iterations
    assert "TiltedEP" in repr(post)


def test_a_total_of_one_entry_is_that_entry():
    """The total of one entry has the entry's own mean, median and interval, for every kind of engine."""
    for engine in (TiltedEP(), Enumerate(), Laplace()):
        post = hc.infer(problem("chain", "poisson", 5), engine)
        node = post.node("tue")
        for k in range(3):
            total = post.total({"tue": np.eye(3)[k]}, level=0.8)
            ends = node.interval(0.8)
            assert total.mean == pytest.approx(float(node.mean[k]))
            assert (total.median, total.lower, total.upper) == (
                node.median[k],
                ends["lower"][k],
                ends["upper"][k],
            )


def test_a_total_stays_within_what_its_weights_allow():
    """Sums of counts lie between 0 and N and are whole; half of one between 0 and N/2; a difference may be negative."""
    post = hc.infer(problem("chain", "poisson", 5), TiltedEP())
    whole = post.total({"tue": [1, 1, 0]}, level=0.999)
    assert 0 <= whole.lower <= whole.median <= whole.upper <= 5
    assert whole.lower == round(whole.lower)
    half = post.total({"tue": [0.5, 0.5, 0]}, level=0.999)
    assert 0 <= half.lower <= half.upper <= 2.5
    assert post.total({"tue": [1, -1, 0]}, level=0.999).lower < 0
    assert post.total({"tue": [1, 1, 1]}).lower == post.total({"tue": [1, 1, 1]}).upper == 5


def test_nothing_is_reliable_where_a_promise_fails():
    """A negative mean is never reliable, and nothing beside it: the Gaussian does not hold there."""
    model = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], length=2)
    far = [[950.0, 50.0], [50.0, 950.0]]
    post = hc.infer(hc.Problem(model, 1000, [hc.Gaussian(far, sd=1.0)]), ClosedForm())
    assert float(post.edge(0, 1).mean.min()) < 0
    assert not post.edge(0, 1).reliable.any()
    assert not post.node(0).reliable.any()


def test_where_the_gaussian_cannot_promise_it_says_so():
    """Twenty zeros drive the paper's means below zero, and its posterior does not promise otherwise."""
    model = hc.MarkovChain([0.005, 0.995], [[0.99, 0.01], [0.00005, 0.99995]], length=20)
    zeros = {t: np.array([0.0, np.nan]) for t in range(20)}
    asked = hc.Problem(model, 1000, [hc.Poisson(zeros)])
    assert not hc.infer(asked, Laplace()).promises.non_negative
    assert hc.infer(asked, TiltedEP()).promises.non_negative


def test_unknown_scopes():
    """Variables the model does not have, and variables that share no clique, are refused by name."""
    post = hc.infer(problem("chain", "poisson", 40), TiltedEP())
    with pytest.raises(ValueError, match="unknown variable 'sun'"):
        post.node("sun")
    with pytest.raises(ValueError, match="inside one clique"):
        post.edge("mon", "wed")
    with pytest.raises(ValueError, match="level is"):
        post.node("mon").interval(1.0)


def test_a_point_estimate_has_no_spread():
    """MAP gives NaN for sd and interval, and refuses covariance and draws, naming who has them."""
    post = hc.infer(problem("chain", "poisson", 40), MAP())
    assert np.isnan(post.node("mon").sd).all()
    assert np.isnan(post.node("mon").interval()["lower"]).all()
    for ask in (post.node("mon").covariance, lambda: post.sample(1, rng=0)):
        with pytest.raises(ValueError, match="TiltedEP"):
            ask()


def test_an_interval_is_reliable_from_a_prior_variance_of_ten():
    """With N μ(1 − μ) = 9.9 and 10.2 expected before the data, the first cell is not reliable and the second is."""
    model = hc.MarkovChain([0.0100, 0.0103, 0.9797], np.eye(3), length=1)
    post = hc.infer(hc.Problem(model, 1000, [hc.Poisson([[9.0, 12.0, 980.0]])]), TiltedEP())
    assert post.node(0).reliable.values.tolist() == [False, True, True]


def test_what_is_impossible_is_reliable():
    """A move that the model forbids is certainly zero: sd 0 and reliable, however few individuals there are."""
    model = hc.MarkovChain([0.5, 0.5], [[1.0, 0.0], [0.5, 0.5]], length=2)
    edge = hc.infer(hc.Problem(model, 6, [hc.Poisson([[3.0, 4.0], [4.0, 1.0]])]), TiltedEP()).edge(0, 1)
    assert edge.sd.values[0, 1] == 0
    assert edge.reliable.values.tolist() == [[False, True], [False, False]]
