"""Tracks: tables of positions as likelihoods over cells, and everything that is refused."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.special import gammaln

import headcount as hc
from headcount.engines import Enumerate, PathGibbs, TiltedEP
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
        ({"id": [1], "time": ["mon"], "cell": ["a"]}, {"given_first": True}, "needs counted=False"),
        (
            {"id": [1, 1], "time": ["mon"] * 2, "cell": ["a", "b"], "probability": [0.5, 0.5]},
            {"given_first": True, "counted": False},
            "not certain",
        ),
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


MOVES = np.array([[0.6, 0.4], [0.3, 0.7]])
TWO = hc.MarkovChain([0.7, 0.3], MOVES, length=3, cells=["a", "b"])
TAGS = pd.DataFrame({"id": [1, 1, 1, 2, 2], "time": [0, 1, 2, 0, 2], "cell": ["a", "b", "b", "b", "a"]})
SEEN = np.array([[3.0, 2.0], [np.nan, 4.0], [2.0, 1.0]])


def by_paths(*, counted: bool) -> tuple[float, np.ndarray, np.ndarray]:
    """Evidence, and mean and variance of the population's flows, from all paths of four individuals (two tagged) or of two more."""
    paths = list(itertools.product(range(2), repeat=3))
    law = np.array([TWO.initial[p[0]] * MOVES[p[0], p[1]] * MOVES[p[1], p[2]] for p in paths])
    fits = {1: [float(p == (0, 1, 1)) for p in paths], 2: [float(p[0] == 1 and p[2] == 0) for p in paths]}
    tables = np.zeros((8, 2, 2, 2))
    for k, p in enumerate(paths):
        for t in (0, 1):
            tables[k, t, p[t], p[t + 1]] = 1.0
    total, first, second = 0.0, 0.0, 0.0
    for who in itertools.product(range(8), repeat=4):
        weight = law[list(who)].prod()
        if counted:
            weight *= fits[1][who[0]] * fits[2][who[1]]
        flows = tables[list(who)].sum(axis=0)
        n = np.array([flows[0].sum(axis=1), flows[0].sum(axis=0), flows[1].sum(axis=0)])
        with np.errstate(divide="ignore"):
            terms = SEEN * np.log(n) - n - gammaln(SEEN + 1)
        weight = weight * np.exp(np.where(np.isnan(SEEN), 0.0, terms).sum())
        total, first, second = total + weight, first + weight * flows, second + weight * flows**2
    if not counted:
        total *= (law @ fits[1]) * (law @ fits[2])
        first, second = (part * (law @ fits[1]) * (law @ fits[2]) for part in (first, second))
    return np.log(total), first / total, second / total - (first / total) ** 2


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("engine", [Enumerate(), TiltedEP(), PathGibbs(draws=3000)])
def test_a_tag_inside_the_counts_and_one_outside(engine, counted):
    """Totals, flows and evidence are those of a sum over all populations that have these tracks, or that come beside them."""
    evidence, mean, variance = by_paths(counted=counted)
    post = hc.infer(hc.Problem(TWO, 4, [hc.Poisson(SEEN), hc.Tracks(TAGS, counted=counted)]), engine, rng=1)
    loose = {"Enumerate": 1e-9, "TiltedEP": 0.07, "PathGibbs": 0.05}[engine.name]
    for t in (0, 1):
        edge = post.edge(t, t + 1)
        np.testing.assert_allclose(edge.mean.values, mean[t], atol=loose)
        np.testing.assert_allclose(edge.sd.values**2, variance[t], atol=loose)
        assert float(edge.mean.sum()) == pytest.approx(4, abs=1e-6 if engine.name != "PathGibbs" else 0.01)
    if post.log_evidence is not None:
        assert post.log_evidence == pytest.approx(evidence, abs=1e-9 if engine.name == "Enumerate" else 0.1)
    if counted:
        rounding = 1e-6 if engine.name != "PathGibbs" else 0.01
        np.testing.assert_allclose(post.group(1).edge(0, 1).mean.values, [[0, 1], [0, 0]], atol=rounding)


def test_tags_in_a_population_of_unknown_size():
    """Sizes are weighed by the probability of counts and tags together: exact sums over sizes, each exact."""
    law = hc.Between(2, 4)
    for counted in (True, False):
        evidence = []
        for n in (2, 3, 4):
            post = hc.infer(
                hc.Problem(TWO, n, [hc.Poisson(SEEN), hc.Tracks(TAGS, counted=counted)]), Enumerate()
            )
            evidence.append(post.log_evidence)
        weights = np.exp(np.array(evidence) - np.logaddexp.reduce(evidence))
        post = hc.infer(
            hc.Problem(TWO, law, [hc.Poisson(SEEN), hc.Tracks(TAGS, counted=counted)]), Enumerate()
        )
        assert post.population.mean == pytest.approx(float(weights @ [2, 3, 4]), abs=1e-9)
        assert post.log_evidence == pytest.approx(np.logaddexp.reduce(evidence) - np.log(3), abs=1e-9)
        drawn = hc.infer(post.problem, PathGibbs(sweeps=3000), rng=1)  # of candidates beside those with tags
        assert drawn.population.mean == pytest.approx(post.population.mean, abs=0.04)
        np.testing.assert_allclose(drawn.edge(0, 1).mean, post.edge(0, 1).mean, atol=0.05)
    tagged = hc.Problem(TWO, hc.Between(0, 400), [hc.Poisson(60 * SEEN), hc.Tracks(TAGS)])
    assert hc.infer(tagged, TiltedEP()).population.mean == pytest.approx(270, abs=40)


def test_tags_that_cannot_be_are_refused():
    """More counted tags than individuals, and positions the model forbids are refused in words."""
    stay = hc.MarkovChain([0.5, 0.5], np.eye(2), length=3, cells=["a", "b"])
    with pytest.raises(ProblemError, match=r"does not allow these positions.*id 1.*id 2"):
        hc.Problem(stay, 4, hc.Tracks(TAGS))
    with pytest.raises(ProblemError, match="2 tracked individuals"):
        hc.Problem(TWO, 1, hc.Tracks(TAGS))
    hc.Problem(TWO, 1, hc.Tracks(TAGS, counted=False))


def test_a_tag_stands_for_its_flock():
    """Beside flocks of c a counted tag is a unit of c individuals: exact engines count units, the default is near them."""
    seen = [hc.Poisson(np.round(12 * SEEN)), hc.Tracks(TAGS)]
    asked = hc.Problem(TWO, 60, seen, dispersion=hc.Flocks(2))
    found, drawn = hc.infer(asked), hc.infer(asked, PathGibbs(sweeps=2000), rng=1)
    for t in (0, 1):
        np.testing.assert_allclose(found.edge(t, t + 1).mean, drawn.edge(t, t + 1).mean, atol=0.25)
        np.testing.assert_allclose(found.edge(t, t + 1).sd, drawn.edge(t, t + 1).sd, rtol=0.12)
    assert float(found.group(1).node(2).mean.sum()) == pytest.approx(2, abs=1e-6)


@pytest.mark.parametrize("engine", [Enumerate(), TiltedEP(), PathGibbs(draws=4000)], ids=lambda e: e.name)
@pytest.mark.parametrize("tags", [1, 3])
def test_one_of_several_tags_is_one_individual(engine, tags):
    """Of tags with equal records each is in one cell: its variance is p(1 − p), and draws are paths, by enumeration of all paths."""
    chain = hc.MarkovChain([0.5, 0.5], [[0.7, 0.3], [0.2, 0.8]], length=3)
    seen = np.array([[3.0, 2.0], [1.0, 4.0], [2.0, 3.0]])
    table = {"id": list(range(tags)), "time": [0] * tags, "cell": [0] * tags}
    post = hc.infer(hc.Problem(chain, 5, [hc.Gaussian(seen, sd=0.7), hc.Tracks(table)]), engine, rng=1)
    one = post.group(0)
    # All paths of five individuals, of whom the tagged begin in cell 0.
    paths = np.array(list(itertools.product(range(2), repeat=3)))
    moves = np.array([[0.7, 0.3], [0.2, 0.8]])
    law = moves[paths[:, 0], paths[:, 1]] * moves[paths[:, 1], paths[:, 2]]
    who = np.array(list(itertools.product(range(8), repeat=5)))
    counts = np.eye(2)[paths][who].sum(axis=1)
    weight = law[who].prod(axis=1) * np.exp(-np.square((counts - seen) / 0.7).sum(axis=(1, 2)) / 2)
    weight *= (paths[who[:, :tags], 0] == 0).all(axis=1)
    joint = np.zeros((2, 2))
    np.add.at(joint, (paths[who[:, 0], 1], paths[who[:, 0], 2]), weight / weight.sum())
    p = joint.sum(axis=0)
    loose = {"Enumerate": 1e-9, "TiltedEP": 0.03, "PathGibbs": 0.015}[engine.name]
    np.testing.assert_allclose(one.node(2).mean, p, atol=loose)
    np.testing.assert_allclose(one.node(2).sd ** 2, p * (1 - p), atol=loose)
    np.testing.assert_allclose(
        one.beliefs.covariance((1,), (2,)), joint - np.outer(joint.sum(axis=1), p), atol=loose
    )
    drawn = one.sample(2000, rng=1)[1, 2].values
    np.testing.assert_array_equal(drawn.sum(axis=(1, 2)), 1)
    np.testing.assert_allclose(drawn.mean(axis=0), one.edge(1, 2).mean, atol=0.05)  # four standard errors
