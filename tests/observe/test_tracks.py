"""Tracks: tables of positions as likelihoods over cells, and everything that is refused."""

import numpy as np
import pandas as pd
import pytest

import headcount as hc
from headcount.observe import ProblemError

CHAIN = hc.MarkovChain(
    [0.5, 0.3, 0.2], np.full((3, 3), 1 / 3), times=["mon", "tue", "wed"], cells=["a", "b", "c"]
)


def likelihood(tracks: hc.Tracks, node: int) -> np.ndarray:
    return tracks.read(CHAIN).seen[node][1].toarray()


def test_positions_are_read_by_label():
    """One record per id in order of appearance; a time without a row is a gap; dates, texts and numbers are labels."""
    table = {"id": [7, 3, 7], "time": ["tue", "tue", "wed"], "cell": ["c", "a", "b"]}
    known = hc.Tracks(table).read(CHAIN)
    assert known.ids == (7, 3)
    assert sorted(known.seen) == [1, 2]
    np.testing.assert_array_equal(likelihood(hc.Tracks(table), 1), [[0, 0, 1], [1, 0, 0]])


def test_uncertain_positions():
    """Probabilities are the likelihood of each cell; an sd spreads it over neighbours by a law that sums to one over reports."""
    table = pd.DataFrame({"id": ["x", "x"], "time": "mon", "cell": ["a", "b"], "probability": [0.7, 0.2]})
    np.testing.assert_allclose(likelihood(hc.Tracks(table), 0), [[0.7, 0.2, 0.0]])
    places = {"a": (0, 0), "b": (1, 0), "c": (3, 0)}
    reported = [
        likelihood(hc.Tracks({"id": [1], "time": ["mon"], "cell": [c], "sd": [1.0]}, places=places), 0)
        for c in "abc"
    ]
    np.testing.assert_allclose(np.concatenate(reported).sum(axis=0), 1.0)
    assert reported[0][0, 0] > reported[0][0, 1] > reported[0][0, 2] > 0
    degrees = pd.DataFrame({"cell": list("abc"), "lon": [0.0, 1.0, 3.0], "lat": 0.0})
    far = hc.Tracks({"id": [1], "time": ["mon"], "cell": ["a"], "sd": [20.0]}, places=degrees)
    assert likelihood(far, 0)[0, 1] < 1e-3  # a degree is 111 km


def test_band_recoveries():
    """A row ``from_time, from_cell, to_time, to_cell`` is an individual seen twice."""
    bands = hc.Tracks({"from_time": ["mon"], "from_cell": ["a"], "to_time": ["wed"], "to_cell": ["c"]})
    known = bands.read(CHAIN)
    assert known.ids == (0,)
    assert [known.times()[k].tolist() for k in (0, 1)] == [[0], [2]]


@pytest.mark.parametrize(
    ("table", "options", "says"),
    [
        ({"id": [1], "time": ["mon"]}, {}, "no column cell"),
        ({"id": [], "time": [], "cell": []}, {}, "no rows"),
        ({"id": [1], "time": ["sun"], "cell": ["a"]}, {}, "'sun'"),
        ({"id": [1], "time": ["mon"], "cell": ["z"]}, {}, "'z'"),
        ({"id": [1, 1], "time": ["mon"] * 2, "cell": ["a", "b"]}, {}, "two positions at one time"),
        ({"id": [1], "time": ["mon"], "cell": ["a"], "probability": [1.5]}, {}, r"\[0, 1\]"),
        ({"id": [1], "time": ["mon"], "cell": ["a"], "sd": [1.0]}, {}, "needs places"),
        ({"id": [1], "time": ["mon"], "cell": [None]}, {}, "without id, time or cell"),
        ({"id": [1], "time": ["mon"], "cell": ["a"]}, {"counted": "yes"}, "give True or False"),
        (3, {}, "give a frame"),
    ],
)
def test_what_cannot_be_is_refused(table, options, says):
    """Missing columns, unknown labels, two places at once and impossible numbers are refused in words."""
    with pytest.raises(ProblemError, match=says):
        hc.Tracks(table, **options).read(CHAIN)


def test_tracks_need_times():
    """A model without times is refused."""
    tree = hc.Tree([0.5, 0.5], {"b": ("a", [[0.9, 0.1], [0.2, 0.8]])}, root="a")
    with pytest.raises(ProblemError, match="need times"):
        hc.Tracks({"id": [1], "time": ["a"], "cell": [0]}).read(tree)
