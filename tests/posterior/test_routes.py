"""Individuals in the posterior: routes, scores of tracks, connectivity."""

import itertools
import json

import numpy as np
import pytest

import headcount as hc
from headcount.engines import MAP, Enumerate, Laplace, PathGibbs, TiltedEP
from headcount.individual import ModelError
from headcount.posterior._routes import _spread, individual_chain

CELLS = ["a", "b", "c"]


def problem(population: int = 60) -> hc.Problem:
    moves = [[0.6, 0.4, 0.0], [0.1, 0.6, 0.3], [0.3, 0.0, 0.7]]
    chain = hc.MarkovChain([0.6, 0.3, 0.1], moves, times=["mon", "tue", "wed", "thu"], cells=CELLS)
    seen = population / 60 * np.array([[30, 22, 8], [25, 20, 15], [20, 20, 20], [15, 22, 23]])
    return hc.Problem(chain, population, hc.Poisson(np.rint(seen)))


@pytest.mark.parametrize("engine", [TiltedEP(), MAP(), Laplace(), Enumerate(), PathGibbs(draws=400)])
def test_an_individual_has_the_posterior_s_moves(engine):
    """N times the individual's law of every move is the posterior's mean flow, for every engine."""
    post = hc.infer(problem(6), engine, rng=1, strict=False)
    law = individual_chain(post)
    for edge in itertools.pairwise(law.variables):
        mean = np.maximum(post.beliefs.mean(edge), 0.0)
        np.testing.assert_allclose(
            6 * law.marginal(edge), mean, atol=0.02 if engine.name == "Laplace" else 1e-8
        )


def test_routes_are_draws_of_that_law():
    """Routes are a table id, time, cell with the law's frequencies; both ends can be fixed, at any time."""
    post = hc.infer(problem())
    table = post.routes(4000, rng=1)
    assert list(table.columns) == ["id", "time", "cell"]
    assert len(table) == 16000
    wide = table.pivot(index="id", columns="time", values="cell")
    seen = (wide["tue"] + wide["wed"]).value_counts() / 4000
    law = individual_chain(post).marginal(("tue", "wed"))
    for i, j in itertools.product(range(3), range(3)):
        assert seen.get(CELLS[i] + CELLS[j], 0.0) == pytest.approx(law[i, j], abs=0.03)
    between = post.routes(50, rng=2, to="c", **{"from": {"tue": "b"}})
    assert between["time"].unique().tolist() == ["tue", "wed", "thu"]
    assert set(between.groupby("id")["cell"].first()) == {"b"}
    assert set(between.groupby("id")["cell"].last()) == {"c"}
    assert post.routes(3, rng=5, from_="a").equals(post.routes(3, rng=5, **{"from": "a"}))


def test_routes_refuse_what_cannot_be():
    """Unknown cells, ends in the wrong order, ways that do not exist and unknown options are refused in words."""
    post = hc.infer(problem())
    with pytest.raises(ModelError, match="from is 'x'"):
        post.routes(1, rng=1, from_="x")
    with pytest.raises(ModelError, match="turn them round"):
        post.routes(1, rng=1, from_={"wed": "a"}, to={"tue": "a"})
    with pytest.raises(ModelError, match="no route"):
        post.routes(1, rng=1, from_={"wed": "a"}, to="c")
    with pytest.raises(TypeError, match="form"):
        post.routes(1, rng=1, form="a")


def test_the_score_of_a_track_is_the_probability_of_its_later_positions():
    """log p(later | first) is the sum over all paths between; the null score forgets who was where; a band is a track of two."""
    post = hc.infer(problem())
    law = individual_chain(post)
    table = {
        "id": [1, 1, 2, 2, 3],
        "time": ["mon", "wed", "tue", "wed", "mon"],
        "cell": ["a", "b", "a", "c", "c"],
    }
    step = law.transitions
    found = post.log_prob(table)
    assert found.index.tolist() == [1, 2, 3]
    assert found[1] == pytest.approx(np.log((step[0] @ step[1])[0, 1]))
    assert found[2] == -np.inf
    assert found[3] == 0.0
    null = post.log_prob(hc.Tracks(table), null=True)
    assert null[1] == pytest.approx(np.log(law.marginal(("wed",))[1]))
    band = {"from_time": ["mon"], "from_cell": ["a"], "to_time": ["wed"], "to_cell": ["b"]}
    assert post.log_prob(band)[0] == pytest.approx(found[1])


def test_the_rival_that_stays():
    """null="stay" is q for staying and (1 − q) times the counts' share for anything, with the q that is best for these tracks."""
    post = hc.infer(problem())
    law = individual_chain(post)
    cells = ["a", "a", "b", "b", "a", "b", "c", "c"]
    table = {"id": [1, 1, 2, 2, 3, 3, 4, 4], "time": ["mon", "wed"] * 4, "cell": cells}
    found = post.log_prob(table, null="stay")
    share, q = dict(zip(CELLS, law.marginal(("wed",)), strict=True)), found.attrs["q"]

    def score(q):
        pairs = zip(cells[::2], cells[1::2], strict=True)
        return np.log([q * (x == y) + (1 - q) * share[y] for x, y in pairs])

    np.testing.assert_allclose(found, score(q), rtol=1e-9)
    assert 0.3 < q < 1
    assert score(q).sum() >= max(score(other).sum() for other in np.linspace(0.01, 0.99, 50)) - 1e-6
    assert found.sum() > post.log_prob(table, null=True).sum()
    thrice = {"id": [1, 1, 1], "time": ["mon", "tue", "wed"], "cell": ["a", "a", "a"]}
    assert post.log_prob(thrice, null="stay").attrs["q"] > 0.99
    with pytest.raises(ModelError, match="give True, False"):
        post.log_prob(table, null="stays")


def test_connectivity_of_one_step_is_the_share_of_flows():
    """Over one step the share is that of the mean flows, and its draws are those of the flows."""
    post = hc.infer(problem())
    table = post.connectivity({"west": ["a"], "east": ["b", "c"]}, None, "mon", "tue", draws=300)
    flow = post.edge("mon", "tue").mean.values
    np.testing.assert_allclose(table["mean"], np.concatenate([flow[0], flow[1:].sum(axis=0)]), rtol=1e-6)
    np.testing.assert_allclose(table["share"][:3], flow[0] / flow[0].sum())
    assert ((table["lower"] <= table["share"]) & (table["share"] <= table["upper"])).all()
    assert table.attrs["level"] == 0.9
    longer = post.connectivity({"west": ["a"]}, {"all": CELLS}, "mon", "thu", draws=20)
    assert longer[["share", "lower", "upper"]].to_numpy() == pytest.approx(1.0)
    assert longer["sd"][0] == pytest.approx(0.0)


def test_who_takes_which_way_is_pure_chance():
    """Given flows, the numbers by region are those of a random matching of who came with where they go."""
    held = np.array([[[3], [2]]])  # five of two regions in one cell, one of none
    flows = np.array([[[4, 2]]])
    rng = np.random.default_rng(0)
    drawn = np.array([_spread(held, flows, rng)[0, :, 0] for _ in range(4000)])
    pool = [0, 0, 0, 1, 1, 2]
    exact = np.array(
        [[np.sum(np.take(pool, c) == a) for a in (0, 1)] for c in itertools.combinations(range(6), 4)]
    )
    np.testing.assert_allclose(drawn.mean(axis=0), exact.mean(axis=0), atol=0.05)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(exact.T, bias=True), atol=0.05)


def test_connectivity_without_spread_and_what_it_refuses():
    """A point estimate gives shares without intervals; overlapping, unknown and empty regions and times out of order are refused."""
    post = hc.infer(problem(), MAP())
    table = post.connectivity({"west": ["a"]}, {"east": ["b"]}, "mon", "wed")
    assert table["share"].between(0, 1).all()
    assert table["sd"].isna().all()
    with pytest.raises(ModelError, match="two regions"):
        post.connectivity({"w": ["a"], "v": ["a"]}, None, "mon", "tue")
    with pytest.raises(ModelError, match="'z'"):
        post.connectivity({"w": ["z"]}, None, "mon", "tue")
    with pytest.raises(ModelError, match="not after"):
        post.connectivity(None, None, "tue", "mon")


def test_routes_as_lines():
    """One GeoJSON line per individual through the places of its cells."""
    post = hc.infer(problem())
    places = {"a": (0, 0), "b": (1, 0), "c": (1, 1)}
    table = post.routes(3, rng=1)
    lines = hc.io.route_lines(table, places)
    assert json.loads(json.dumps(lines)) == lines
    assert len(lines["features"]) == 3
    first = table[table["id"] == 0]["cell"].tolist()
    assert lines["features"][0]["geometry"]["coordinates"] == [list(map(float, places[c])) for c in first]
    with pytest.raises(ModelError, match="no place"):
        hc.io.route_lines(table, {"a": (0, 0)})


def _counted(kind: str) -> hc.Problem:
    """Two times of individuals who are counted in units, or of whom not all candidates are there."""
    one = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=2, cells=["a", "b"])
    other = hc.MarkovChain([0.2, 0.8], [[0.2, 0.8], [0.6, 0.4]], length=2, cells=["a", "b"])
    seen = hc.Poisson([[11.0, 9.0], [12.0, 8.0]])
    weights = {"pairs": hc.Group(one, 4, weight=2), "single": hc.Group(other, 12)}
    return {
        "flocks": hc.Problem(one, 20, seen, dispersion=hc.Flocks(2)),
        "weights": hc.Problem(groups=weights, observations=seen),
        "unknown": hc.Problem(one, hc.Between(12, 30), seen),
    }[kind]


@pytest.mark.parametrize(
    "engine", [TiltedEP(), MAP(), Enumerate(), PathGibbs(draws=400)], ids=lambda e: e.name
)
@pytest.mark.parametrize("kind", ["flocks", "weights", "unknown"])
def test_individuals_are_taken_at_random_not_units(kind, engine):
    """Between neighbouring times connectivity is the expected flow, routes begin where individuals are, and a score is flow over count."""
    post = hc.infer(_counted(kind), engine, rng=1, strict=False)
    flow, here = post.edge(0, 1).mean.values, post.node(0).mean.values
    table = post.connectivity(None, None, 0, 1, rng=2)
    near = {"rtol": 1e-6} if engine.name != "PathGibbs" else {"rtol": 0.02}
    np.testing.assert_allclose(table["mean"], flow.ravel(), **near)
    np.testing.assert_allclose(table["share"], (flow / here[:, None]).ravel(), **near)
    if (
        post.beliefs.has_spread
    ):  # the share of a draw's flow, whose mean over draws is near the quotient of means
        middle = (table["lower"] + table["upper"]) / 2
        assert (np.abs(middle - table["share"]) < 0.15).all()
    first = post.routes(4000, rng=3).query("time == 0")["cell"].value_counts(normalize=True)
    assert first["a"] == pytest.approx(here[0] / here.sum(), abs=0.03)
    tracks = hc.Tracks({"id": ["x", "x"], "time": [0, 1], "cell": ["a", "b"]})
    assert post.log_prob(tracks)["x"] == pytest.approx(np.log(flow[0, 1] / here[0]), abs=0.02)
