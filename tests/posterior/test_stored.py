"""A posterior read from a file answers as the one that was saved."""

from html import escape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import headcount as hc
from headcount.engines import Posterior, Status
from headcount.individual import ModelError

TIMES = [pd.Timestamp("2023-03-05") + pd.Timedelta(days=7 * k) for k in range(4)]
MOVES = np.array([[0.8, 0.2, 0.0], [0.3, 0.6, 0.1], [0.1, 0.2, 0.7]])
COUNTS = np.array([[520.0, 280, 180], [540, 280, 190], [530, 290, 200], [510, 300, 170]])


@pytest.fixture(scope="module")
def post() -> Posterior:
    chain = hc.MarkovChain([0.5, 0.3, 0.2], MOVES, times=TIMES, cells=["p", "q", "r"])
    return hc.infer(hc.Problem(chain, 1000, hc.Poisson(COUNTS)))


def test_a_file_answers_what_the_posterior_does(post: Posterior, tmp_path: Path) -> None:
    """Means, spreads, intervals at any level, medians and flags are those of the posterior; so are status, evidence and check."""
    post.save(tmp_path / "post.nc")
    back = Posterior.load(tmp_path / "post.nc")
    assert back.status is Status.CONVERGED
    assert back.engine == post.engine
    assert back.log_evidence == pytest.approx(post.log_evidence, rel=1e-12)
    assert back.fit_check["verdict"] == post.fit_check.verdict
    for found, kept in (
        (back.node("2023-03-12"), post.node("2023-03-12")),
        (back.edge(*TIMES[:2]), post.edge(*TIMES[:2])),
    ):
        for name in ("mean", "sd", "median", "reliable"):
            ours, theirs = getattr(found, name), getattr(kept, name)
            assert ours.dims == theirs.dims
            assert ours.to_numpy() == pytest.approx(theirs.to_numpy(), abs=1e-9)
        for level in (0.9, 0.5):
            for end in ("lower", "upper"):
                assert np.array_equal(found.interval(level)[end], kept.interval(level)[end])
        assert found.interval(0.5).attrs["level"] == 0.5
    pd.testing.assert_frame_equal(
        back.to_frame("flows")[["mean"]], post.to_frame("flows")[["mean"]], atol=1e-9
    )
    with pytest.raises(ValueError, match="not followed by"):
        back.edge(TIMES[0], TIMES[2])
    with pytest.raises(ValueError, match="unknown variable '2024-01-01'"):
        back.node("2024-01-01")


def test_totals_and_draws_come_from_the_draws_in_the_file(post: Posterior, tmp_path: Path) -> None:
    """Totals agree with the posterior's within the error of the draws; flows need their draws, and what is not there is refused."""
    post.save(tmp_path / "plain.nc")
    post.save(tmp_path / "flows.nc", draws=400, draw_flows=True)
    plain, full = Posterior.load(tmp_path / "plain.nc"), Posterior.load(tmp_path / "flows.nc")
    for weights in (
        {TIMES[1]: [1, 1, 0]},
        {TIMES[1]: [1, 0, 0], TIMES[2]: [0, 1, 0]},
        {tuple(TIMES[:2]): np.eye(3)},
    ):
        wanted, found = post.total(weights), full.total(weights)
        assert found.mean == pytest.approx(wanted.mean, abs=1e-6)
        assert found.sd == pytest.approx(wanted.sd, rel=0.15)  # four standard errors of 400 draws
        assert abs(found.lower - wanted.lower) <= 0.5 * wanted.sd
        assert float(found.median).is_integer()
    assert plain.size == 100
    assert len(plain.sample()[(TIMES[0],)]) == 100
    some = full.sample(7, rng=1)
    assert some[(TIMES[0],)].shape == (7, 3)
    assert np.array_equal(some[tuple(TIMES[:2])].sum("2023-03-12 00:00:00"), some[(TIMES[0],)])
    with pytest.raises(ValueError, match="draw_flows=True"):
        plain.total({tuple(TIMES[:2]): np.eye(3)})
    with pytest.raises(ValueError, match="the file holds 100 draws, 500 are asked for"):
        plain.sample(500)
    hc.infer(post.problem, "MAP").save(tmp_path / "map.nc")
    silent = Posterior.load(tmp_path / "map.nc")
    assert np.isnan(silent.node(TIMES[0]).interval(0.5).lower).all()
    with pytest.raises(ValueError, match="no joint draws"):
        silent.sample()


def test_a_file_tells_of_individuals(post: Posterior, tmp_path: Path) -> None:
    """Routes, scores of tracks, shares between regions and summaries of tables are the posterior's; dates are named by texts."""
    post.save(tmp_path / "post.nc", draws=200, draw_flows=True)
    back = Posterior.load(tmp_path / "post.nc")
    ends = {"from_": {"2023-03-12": "p"}, "to": "r"}
    pd.testing.assert_frame_equal(
        back.routes(20, rng=3, **ends), post.routes(20, rng=3, **ends), check_dtype=False
    )
    tracks = pd.DataFrame({"id": ["x"] * 2, "time": ["2023-03-05", "2023-03-19"], "cell": ["p", "r"]})
    for null in (False, True):
        assert back.log_prob(tracks, null=null)["x"] == pytest.approx(post.log_prob(tracks, null=null)["x"])
    regions = {"west": ["p"], "east": ["q", "r"]}
    found, wanted = (p.connectivity(regions, None, "2023-03-05", TIMES[3], draws=200) for p in (back, post))
    np.testing.assert_allclose(found[["share", "mean"]], wanted[["share", "mean"]], rtol=1e-9)
    np.testing.assert_allclose(found["sd"], wanted["sd"], rtol=0.3)  # four standard errors of 200 draws each
    for scope in (tuple(TIMES[:1]), tuple(TIMES[:2])):
        for ours, theirs in zip(back._summary(scope, 0.5), post._summary(scope, 0.5), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-9)
    assert back.residual == pytest.approx(post.residual)


def test_a_file_bounds_its_answers_as_the_posterior_does(tmp_path: Path) -> None:
    """With N unknown, ends and sums reach up to the largest N, and the total of all cells is no certain number."""
    chain = hc.MarkovChain([0.5, 0.3, 0.2], MOVES, times=TIMES, cells=["p", "q", "r"])
    post = hc.infer(hc.Problem(chain, hc.Unknown(), hc.Poisson(COUNTS // 20)))
    post.save(tmp_path / "post.nc", draws=300)
    back = Posterior.load(tmp_path / "post.nc")
    for whole in (True, False):
        found, kept = (p.node(TIMES[1]).interval(0.5, whole=whole) for p in (back, post))
        for end in ("lower", "upper"):
            np.testing.assert_allclose(found[end], kept[end], rtol=1e-9)
    everybody = back.total({TIMES[1]: 1})
    assert everybody.sd > 0
    assert everybody.lower < everybody.median < everybody.upper
    one, same = (p.total({TIMES[1]: [0, 1, 0]}) for p in (back, post))
    assert (one.lower, one.median, one.upper) == (same.lower, same.median, same.upper)


def test_tables_of_pairs_have_every_state_in_the_models_order(tmp_path: Path) -> None:
    """Pairs that are impossible have no row in a file; states keep their places all the same, also beside the draws."""
    moves = [[0.0, 0.3, 0.7], [0.5, 0.0, 0.5]]
    tree = hc.Tree([0.5, 0.5], {"b": ("a", moves)}, root="a", states={"a": ["x", "y"], "b": ["k", "l", "m"]})
    post = hc.infer(hc.Problem(tree, 60, hc.Poisson([15, 9, 36], on="b")))
    post.save(tmp_path / "post.nc", draw_flows=True)
    back = Posterior.load(tmp_path / "post.nc")
    for pair in (("a", "b"), ("b", "a")):
        found, kept = back.edge(*pair).mean, post.edge(*pair).mean
        assert found.dims == kept.dims
        assert all(found[v].values.tolist() == kept[v].values.tolist() for v in pair)
        np.testing.assert_allclose(found, kept, atol=1e-9)
    found, kept = (p.total({("a", "b"): [[0, 1, 0], [1, 0, 1]]}) for p in (back, post))
    assert found.mean == pytest.approx(kept.mean, abs=1e-6)
    assert found.sd == pytest.approx(kept.sd, rel=0.3)  # four standard errors of 100 draws


def test_what_a_file_has_not_is_refused_in_words(post: Posterior, tmp_path: Path) -> None:
    """What needs the model, the engine or tables that are not stored says so; dates in messages have no empty clock."""
    post.save(tmp_path / "post.nc")
    back = Posterior.load(tmp_path / "post.nc")
    for name in ("problem", "predictive", "beliefs", "more_draws"):
        with pytest.raises(AttributeError, match=f"no '{name}': it needs the model and the engine"):
            getattr(back, name)
    with pytest.raises(AttributeError, match=r"no 'nonsense'$"):
        back.nonsense  # noqa: B018
    with pytest.raises(ModelError, match="without arrivals and departures"):
        back.arrivals()
    with pytest.raises(
        ValueError, match="tables of one or two variables, not of 2023-03-05, 2023-03-12, 2023-03-19:"
    ):
        back.clique(*TIMES[:3])
    assert np.isnan(back.connectivity(None, None, *TIMES[:2])["sd"]).all()  # no draws of flows
    for asked in (post, back):
        with pytest.raises(ValueError, match=r"has 2023-03-05, 2023-03-12, 2023-03-19, 2023-03-26$"):
            asked.node("2024-01-01")
        with pytest.raises(ModelError, match="t0 is 2024-05-06: give one of 2023-03-05, "):
            asked.connectivity(None, None, pd.Timestamp("2024-05-06"), TIMES[3])


def test_networks_come_back_too(tmp_path: Path) -> None:
    """Tables by variable and pair, in either order of the pair."""
    model = hc.Tree([0.5, 0.5], {"b": ("a", [[0.8, 0.2], [0.3, 0.7]])}, root="a")
    post = hc.infer(hc.Problem(model, 100, hc.Poisson({"b": [40.0, 60.0]})), "TiltedEP")
    post.save(tmp_path / "tree.nc", draw_flows=True)
    back = Posterior.load(tmp_path / "tree.nc")
    assert back.node("b").mean.to_numpy() == pytest.approx(post.node("b").mean.to_numpy())
    assert back.edge("b", "a").mean.to_numpy() == pytest.approx(post.edge("b", "a").mean.to_numpy())
    assert back.total({"a": [1, 0]}).sd == pytest.approx(post.total({"a": [1, 0]}).sd, rel=0.3)


def test_what_is_no_posterior_is_refused(tmp_path: Path) -> None:
    """A missing and a foreign file are named, with what to do."""
    with pytest.raises(FileNotFoundError, match=r"none\.nc: there is no such file"):
        Posterior.load(tmp_path / "none.nc")
    (tmp_path / "text.nc").write_text("no")
    with pytest.raises(ValueError, match="not a posterior of headcount"):
        Posterior.load(tmp_path / "text.nc")


def test_notebooks_show_cards(post: Posterior, tmp_path: Path) -> None:
    """Problem, posterior, estimate, fit and stored posterior show status, fit, largest numbers and a picture, all text escaped."""
    html = post._repr_html_()
    for part in (
        "TiltedEP",
        "converged",
        escape(post.fit_check.verdict),
        "<svg",
        "largest at",
        "post.plot.flows",
    ):
        assert part in html
    assert "1000" in post.node(TIMES[0])._repr_html_()
    assert "→" in post.edge(*TIMES[:2])._repr_html_()
    asked = post.problem._repr_html_()
    assert "12 of 12" in asked
    assert "Poisson" in asked
    post.save(tmp_path / "post.nc")
    assert "Posterior from a file" in Posterior.load(tmp_path / "post.nc")._repr_html_()
    features = np.array([np.eye(3), [[0.0, 1, 2], [1, 0, 1], [2, 1, 0]]])
    fit = hc.fit(hc.LogisticChain(features, names=["stay", "far<b>"]), post.problem, "MAP", strict=False)
    shown = fit._repr_html_()
    assert "far&lt;b&gt;" in shown
    assert "<b>}" not in shown
    assert fit.status.value in shown


def test_groups_and_sizes_are_in_files(tmp_path):
    """Every group's tables and the law of its size come back from a file and from a folder of results; the page names them."""
    from headcount import report
    from headcount.io import load_result, write_results

    up = hc.MarkovChain([0.7, 0.3], [[0.4, 0.6], [0.1, 0.9]], length=3, cells=["a", "b"])
    down = hc.MarkovChain([0.2, 0.8], [[0.8, 0.2], [0.5, 0.5]], length=3, cells=["a", "b"])
    groups = {"up": hc.Group(up, 30), 7: hc.Group(down, hc.Between(5, 60))}
    post = hc.infer(hc.Problem(groups=groups, observations=hc.Poisson([[20.0, 30], [11, 40], [12, 39]])))
    post.save(tmp_path / "post.nc")
    _, files = write_results(post, tmp_path / "out")
    assert {"group_nodes.csv", "group_flows.csv"} <= {path.name for path in files}
    for stored in (post.load(tmp_path / "post.nc"), post.load(tmp_path / "out")):
        for name in groups:
            own, back = post.group(name), stored.group(name)
            np.testing.assert_allclose(back.node(1).mean, own.node(1).mean)
            np.testing.assert_allclose(back.edge(0, 1).sd, own.edge(0, 1).sd)
            assert back.population.mean == pytest.approx(own.population.mean)
            assert back.population.known is (name == "up")
        assert stored.population.interval(0.5).equals(post.population.interval(0.5))
        with pytest.raises(ValueError, match="no group 'left'"):
            stored.group("left")
        with pytest.raises(ValueError, match="sum over groups"):
            stored.group("up").sample()
        with pytest.raises(ModelError, match=r"ask one of them, group\(name\)"):
            stored.routes(1, rng=0)
        assert set(stored.group("up").routes(5, rng=0)["cell"]) <= {"a", "b"}
    report.write(load_result(tmp_path / "out"), tmp_path / "page.html")
    assert "Group up" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_what_only_a_posterior_in_memory_has_is_named() -> None:
    """The list of what a file cannot answer has every public question of a `Posterior` that a `StoredPosterior` lacks."""
    from headcount.posterior import Posterior, StoredPosterior
    from headcount.posterior._stored import NOT_IN_FILES

    asked = {name for name in dir(Posterior) if not name.startswith("_")} - set(dir(StoredPosterior))
    asked -= {"save_draws"}  # for draws that no memory holds: a file has draws already
    assert asked | {"problem", "outcome", "settings", "beliefs"} == NOT_IN_FILES
