"""Groups: several kinds in one count, against a sum over every individual's path; refusals."""

import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, logsumexp

import headcount as hc
from headcount.engines import MAP, Enumerate, Laplace, PathGibbs, TiltedEP
from headcount.observe import ProblemError

UP = hc.MarkovChain([0.7, 0.3], [[0.4, 0.6], [0.1, 0.9]], length=3, cells=["a", "b"])
DOWN = hc.MarkovChain([0.2, 0.8], [[0.8, 0.2], [0.5, 0.5]], length=3, cells=["a", "b"])
SEEN = np.array([[2.0, 3.0], [1.0, np.nan], [1.0, 4.0]])


def problem(observations: object = None) -> hc.Problem:
    groups = {"up": hc.Group(UP, 3), "down": hc.Group(DOWN, 2)}
    return hc.Problem(groups=groups, observations=hc.Poisson(SEEN) if observations is None else observations)


def by_paths(weights: tuple[int, int] = (1, 1)) -> tuple[float, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Evidence, and mean and variance of every group's flow tables, from all paths of all five individuals, or units of several."""
    paths = list(itertools.product(range(2), repeat=3))

    def law(chain: hc.MarkovChain) -> np.ndarray:
        return np.array(
            [
                chain.initial[p[0]] * np.prod([chain.transitions[t][p[t], p[t + 1]] for t in (0, 1)])
                for p in paths
            ]
        )

    tables = np.zeros((8, 2, 2, 2))
    for k, p in enumerate(paths):
        for t in (0, 1):
            tables[k, t, p[t], p[t + 1]] = 1.0
    laws = {"up": law(UP), "down": law(DOWN)}
    total, first, second = 0.0, 0.0, 0.0
    for who in itertools.product(range(8), repeat=5):
        up, down = (w * tables[list(k)].sum(axis=0) for w, k in zip(weights, (who[:3], who[3:]), strict=True))
        p = laws["up"][list(who[:3])].prod() * laws["down"][list(who[3:])].prod()
        flows = up + down
        n = np.array([flows[0].sum(axis=1), flows[0].sum(axis=0), flows[1].sum(axis=0)])
        with np.errstate(divide="ignore"):
            terms = SEEN * np.log(n) - n - gammaln(SEEN + 1)
        weight = p * np.exp(np.where(np.isnan(SEEN), 0.0, terms).sum())
        both = np.stack([up, down, up + down])
        total, first, second = total + weight, first + weight * both, second + weight * both**2
    mean = first / total
    variance = second / total - mean**2
    names = ("up", "down", "sum")
    return np.log(total), dict(zip(names, mean, strict=True)), dict(zip(names, variance, strict=True))


def test_enumeration_of_groups_is_the_sum_over_all_individuals_paths():
    """Enumerate gives every group's and the sum's means, variances and the evidence as a sum over all 8⁵ populations does."""
    evidence, mean, variance = by_paths()
    post = hc.infer(problem(), Enumerate())
    assert post.log_evidence == pytest.approx(evidence, abs=1e-9)
    for name in ("up", "down", "sum"):
        part = post if name == "sum" else post.group(name)
        for t in (0, 1):
            np.testing.assert_allclose(part.edge(t, t + 1).mean.values, mean[name][t], atol=1e-9)
            np.testing.assert_allclose(part.edge(t, t + 1).sd.values ** 2, variance[name][t], atol=1e-9)


@pytest.mark.parametrize(
    ("engine", "mean_error", "evidence_error"),
    [
        (TiltedEP(), 0.08, 0.03),
        (PathGibbs(draws=4000), 0.06, None),
        (MAP(), 0.4, None),
        (Laplace(), 0.4, None),
    ],
)
def test_every_engine_takes_groups(engine, mean_error, evidence_error):
    """Engines agree with the exact answer as closely as they do without groups; sizes are kept to rounding, or to Monte-Carlo error."""
    evidence, mean, _ = by_paths()
    post = hc.infer(problem(), engine, rng=1, strict=False)
    for name in ("up", "down"):
        np.testing.assert_allclose(post.group(name).edge(0, 1).mean.values, mean[name][0], atol=mean_error)
        assert float(post.group(name).node(1).mean.sum()) == pytest.approx(
            {"up": 3, "down": 2}[name], abs=1e-6 if engine.name != "PathGibbs" else 0.02
        )
    if evidence_error is not None:
        assert post.log_evidence == pytest.approx(evidence, abs=evidence_error)


def test_one_group_is_the_problem_without_groups():
    """A single group gives the answers, and the evidence, of the plain problem."""
    alone = hc.infer(
        hc.Problem(groups={"all": hc.Group(UP, 50)}, observations=hc.Poisson(10 * SEEN)), TiltedEP()
    )
    plain = hc.infer(hc.Problem(UP, 50, hc.Poisson(10 * SEEN)), TiltedEP())
    np.testing.assert_allclose(alone.edge(0, 1).mean, plain.edge(0, 1).mean, rtol=1e-6)
    np.testing.assert_allclose(alone.edge(0, 1).sd, plain.edge(0, 1).sd, rtol=1e-5)
    assert alone.log_evidence == pytest.approx(plain.log_evidence, abs=1e-4)


def test_cells_may_differ_between_groups():
    """A cell that only one group knows counts that group alone; sums and flows may be seen."""
    more = hc.MarkovChain([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]], length=3, cells=["b", "c"])
    seen = [
        hc.Exact({0: [10, 25, 15]}),
        hc.Poisson([[12.0], [20.0], [18.0]], sums={"east": ["b", "c"]}, on=None),
        hc.Poisson([[3, 5, 0], [1, 9, 2], [0, 5, 9]], on=(1, 2)),
    ]
    grouped = hc.Problem(groups={"x": hc.Group(UP, 20), "y": hc.Group(more, 30)}, observations=seen)
    post = hc.infer(grouped)
    assert list(post.node(0).mean.coords["0"].values) == ["a", "b", "c"]
    np.testing.assert_allclose(post.node(0).mean, [10, 25, 15], atol=1e-5)
    assert float(post.group("x").node(0).mean[0]) == pytest.approx(10, abs=1e-5)
    assert list(post.group("y").node(2).mean.coords["2"].values) == ["b", "c"]
    draws = post.sample(20, rng=1, integer=True)[0, 1]
    assert (draws.sum(dim=["0", "1"]) == 50).all()
    assert (draws.sum(dim="1") == [10, 25, 15]).all()


def test_tables_routes_and_scores_know_groups():
    """Tables have a column group; a route stays in its group; the score of a track sums over the groups it may be of."""
    post = hc.infer(problem(), TiltedEP())
    nodes, flows = post.to_frame(), post.to_frame("flows")
    assert list(nodes.columns[:4]) == ["time", "group", "cell", "mean"]
    assert list(flows.columns[:5]) == ["time", "group", "origin", "dest", "mean"]
    assert nodes.groupby("group")["mean"].sum().to_dict() == pytest.approx({"up": 9.0, "down": 6.0})
    routes = post.routes(40, rng=1, to="b", **{"from": "a"})
    assert (routes.groupby("id")["group"].nunique() == 1).all()
    assert set(routes[routes["time"] == 2]["cell"]) == {"b"}
    law = {name: post.group(name) for name in ("up", "down")}
    steps = {
        n: [p.edge(t, t + 1).mean.values / p.node(t).mean.values[:, None] for t in (0, 1)]
        for n, p in law.items()
    }
    first = {n: p.node(0).mean.values[0] for n, p in law.items()}
    weighed = sum(first[n] * (steps[n][0] @ steps[n][1])[0, 1] for n in law)
    score = post.log_prob({"id": [1, 1], "time": [0, 2], "cell": ["a", "b"]})
    assert score[1] == pytest.approx(np.log(weighed / sum(first.values())), abs=1e-6)
    shares = post.connectivity({"a": ["a"]}, None, 0, 2, draws=50)
    assert shares["share"].to_numpy()[1] == pytest.approx(np.exp(score[1]), abs=1e-6)


def test_a_group_of_unknown_size_is_a_mixture_over_its_sizes():
    """p(size | y) ∝ p(size) p(y | size): size, counts, flows and evidence are those of all sizes weighed by their exact evidence."""
    short = {
        n: hc.MarkovChain(c.initial, c.transitions[0], length=2, cells=["a", "b"])
        for n, c in [("u", UP), ("d", DOWN)]
    }
    law, seen = hc.Between(0, 4), hc.Poisson(SEEN[[0, 2]])
    sizes = np.arange(5)
    evidence, flows = [], []
    for n in sizes:
        groups = {"u": hc.Group(short["u"], 2), "d": hc.Group(short["d"], int(n))}
        post = hc.infer(hc.Problem(groups=groups, observations=seen), Enumerate())
        evidence.append(post.log_evidence + float(law.log_pmf(n)))
        flows.append(post.group("d").edge(0, 1).mean.values)
    weights = np.exp(np.array(evidence) - np.logaddexp.reduce(evidence))
    mean = weights @ sizes
    groups = {"u": hc.Group(short["u"], 2), "d": hc.Group(short["d"], law)}
    for engine, close in ((Enumerate(), 1e-9), (TiltedEP(), 0.07)):
        post = hc.infer(hc.Problem(groups=groups, observations=seen), engine)
        own = post.group("d")
        assert own.population.mean == pytest.approx(mean, abs=close)
        assert own.population.sd == pytest.approx(np.sqrt(weights @ (sizes - mean) ** 2), abs=close)
        assert post.population.mean == pytest.approx(mean + 2, abs=close)
        assert post.log_evidence == pytest.approx(np.logaddexp.reduce(evidence), abs=close)
        np.testing.assert_allclose(own.edge(0, 1).mean.values, np.tensordot(weights, flows, 1), atol=close)
        assert float(post.group("u").node(1).mean.sum()) == pytest.approx(2.0, abs=1e-6)


def test_two_groups_of_unknown_size_are_a_mixture_over_both():
    """Sizes of both groups and of all, flows and evidence are sums over all pairs of sizes, each exact; the sampler agrees."""
    short = [hc.MarkovChain(c.initial, c.transitions[0], length=2, cells=["a", "b"]) for c in (UP, DOWN)]
    laws, seen = (hc.Between(0, 2), hc.Between(1, 3)), hc.Poisson(SEEN[[0, 2]])

    def asked(*sizes: object) -> hc.Problem:
        groups = {n: hc.Group(c, s) for n, c, s in zip("ud", short, sizes, strict=True)}
        return hc.Problem(groups=groups, observations=seen)

    pairs = np.array(
        [(a, b) for a in range(3) for b in range(1, 4) if a + b > 1]
    )  # two cells were seen filled
    found = [hc.infer(asked(*map(int, pair)), Enumerate()) for pair in pairs]
    log_p = np.array([post.log_evidence for post in found]) - np.log(9)
    weights = np.exp(log_p - np.logaddexp.reduce(log_p))
    flows = np.tensordot(weights, [post.group("d").edge(0, 1).mean.values for post in found], 1)
    for engine, close in ((Enumerate(), 1e-9), (TiltedEP(), 0.06), (PathGibbs(sweeps=3000), 0.05)):
        post = hc.infer(asked(*laws), engine, rng=1)
        for part, sizes in (
            (post.group("u"), pairs[:, 0]),
            (post.group("d"), pairs[:, 1]),
            (post, pairs.sum(1)),
        ):
            mean = weights @ sizes
            assert part.population.mean == pytest.approx(mean, abs=close)
            assert part.population.sd == pytest.approx(np.sqrt(weights @ (sizes - mean) ** 2), abs=close)
        np.testing.assert_allclose(post.group("d").edge(0, 1).mean.values, flows, atol=close)
        if engine.name != "PathGibbs":
            assert post.log_evidence == pytest.approx(np.logaddexp.reduce(log_p), abs=close)


def test_the_size_of_a_group_is_found_among_others():
    """With enough seen, a group that nobody counted is found to its interval; tables and routes know it."""
    rng = np.random.default_rng(2)
    east = hc.MarkovChain(
        [0.8, 0.1, 0.1], np.array([[0.3, 0.6, 0.1], [0.05, 0.35, 0.6], [0.05, 0.05, 0.9]]), length=6
    )
    west = hc.MarkovChain([0.1, 0.1, 0.8], east.transitions[0][::-1, ::-1], length=6)
    truth = [
        np.stack([np.bincount(col, minlength=3) for col in m.sample(n, rng=rng).T])
        for m, n in ((east, 300), (west, 170))
    ]
    seen = hc.Poisson(rng.poisson(truth[0] + truth[1]))
    post = hc.infer(
        hc.Problem(groups={"e": hc.Group(east, 300), "w": hc.Group(west, hc.Unknown())}, observations=seen)
    )
    both = hc.infer(
        hc.Problem(
            groups={"e": hc.Group(east, hc.Unknown()), "w": hc.Group(west, hc.Unknown())}, observations=seen
        )
    )
    for name, true in (("e", 300), ("w", 170)):
        ends = both.group(name).population.interval(0.99)
        assert float(ends["lower"]) <= true <= float(ends["upper"])
        point = hc.infer(both.problem, MAP()).group(name).population
        assert point.mean == pytest.approx(both.group(name).population.mean, abs=2.0)
    assert both.fit_check.verdict.endswith("The data agree with the model.")
    assert both.fit_check.agrees is None  # nobody said that all are counted
    assert len(both.fit_check.doubts) == 1
    assert both.group("w").population.sd > post.group("w").population.sd
    assert both.population.sd == pytest.approx(both.node(0).covariance().sum() ** 0.5, rel=0.02)
    found = post.group("w").population
    ends = found.interval(0.99)
    assert float(ends["lower"]) <= 170 <= float(ends["upper"])
    assert 2 < found.sd < 40
    assert set(post.to_frame()["group"]) == {"e", "w"}
    assert set(post.routes(30, rng=1)["group"]) == {"e", "w"}


def test_unknown_initial_laws_of_groups():
    """Where no group's initial law is known they are learned, and sizes are kept."""
    free = {
        n: hc.Group(hc.MarkovChain(None, c.transitions, cells=["a", "b"]), 40)
        for n, c in [("u", UP), ("d", DOWN)]
    }
    post = hc.infer(hc.Problem(groups=free, observations=hc.Poisson(16 * SEEN)))
    assert float(post.group("u").node(0).mean.sum()) == pytest.approx(40, abs=1e-4)
    assert float(post.node(0).sd[0]) > 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"groups": {}}, "Group"),
        ({"groups": {"x": UP}}, "Group"),
        ({"groups": {"x": hc.Group(UP, -1)}}, "size of the group 'x'"),
        ({"groups": {"x": hc.Group(UP, 0)}}, "nobody is in any"),
        ({"groups": {"x": hc.Group(UP, 3)}, "population": 3}, "beside groups"),
        ({"groups": {"x": hc.Group(UP, 3)}, "model": UP}, "beside groups"),
        (
            {"groups": {"x": hc.Group(UP, 3), "y": hc.Group(hc.MarkovChain([1, 0], np.eye(2), length=2), 1)}},
            "has the times",
        ),
        (
            {"groups": {"x": hc.Group(UP, 3), "y": hc.Group(hc.MarkovChain(None, np.eye(2), length=3), 1)}},
            "to all or to none",
        ),
        ({}, "must be a Model"),
    ],
)
def test_what_does_not_fit_is_refused(options, says):
    """No groups, no models, other times, half-known initial laws and second populations are refused in words."""
    with pytest.raises(ProblemError, match=says):
        hc.Problem(**options)


def test_groups_that_do_not_exist():
    """An unknown group is refused with the names that exist; a plain problem has none."""
    with pytest.raises(ValueError, match="'up', 'down'"):
        hc.infer(problem()).group("left")
    with pytest.raises(ValueError, match="has none"):
        hc.infer(hc.Problem(UP, 5, hc.Poisson(SEEN))).group("up")
    with pytest.raises(ValueError, match="MarkovChain"):
        hc.Group("residents", 3)


def test_the_check_of_fit_knows_groups():
    """Residuals are those of the sum of the groups' own moments: a world of two kinds agrees, and other directions do not."""
    rng = np.random.default_rng(4)
    drift = np.array([[0.3, 0.6, 0.1], [0.05, 0.35, 0.6], [0.05, 0.05, 0.9]])
    east = hc.MarkovChain([0.8, 0.1, 0.1], drift, length=6)
    west = hc.MarkovChain([0.1, 0.1, 0.8], drift[::-1, ::-1], length=6)
    truth = [
        np.stack([np.bincount(col, minlength=3) for col in m.sample(400, rng=rng).T]) for m in (east, west)
    ]
    seen = hc.Poisson(rng.poisson(truth[0] + truth[1]))
    right = hc.infer(
        hc.Problem(groups={"e": hc.Group(east, 400), "w": hc.Group(west, 400)}, observations=seen)
    )
    assert right.fit_check.agrees
    wrong = hc.infer(
        hc.Problem(groups={"e": hc.Group(east, 700), "w": hc.Group(west, 100)}, observations=seen)
    )
    assert wrong.fit_check.agrees is False


def test_moments_of_groups_add_up():
    """The moments behind the check of fit are those of a population simulated group by group."""
    from headcount.posterior.fit_check import counts_of

    seen = hc.Poisson(np.where(np.isnan(SEEN), 2, SEEN))
    counts = counts_of(problem(seen).core, [0, 1, 2])
    drawn = []
    rng = np.random.default_rng(1)
    for _ in range(6000):
        both = np.concatenate([UP.sample(3, rng=rng), DOWN.sample(2, rng=rng)])
        drawn.append(np.concatenate([np.bincount(column, minlength=2) for column in both.T]))
    np.testing.assert_allclose(counts.mean, np.mean(drawn, axis=0), atol=0.05)
    np.testing.assert_allclose(counts.cov_n, np.cov(np.array(drawn).T), atol=0.06)


def test_models_that_groups_cannot_have_are_refused():
    """An open chain says itself how many individuals are expected, and a concentration would be left out without a word."""
    moves = [[0.8, 0.2], [0.3, 0.7]]
    with pytest.raises(hc.ModelError, match="leave the size out"):
        hc.Group(hc.OpenChain([4.0, 2.0], moves, arrivals=1, length=3), 6)
    with pytest.raises(hc.ModelError, match="concentration"):
        hc.Group(hc.MarkovChain([0.5, 0.5], moves, length=3, concentration=5.0), 6)


def test_flows_of_groups_without_matrices():
    """Sums over groups and tags have sds without matrices too, from draws where flows have no covariance: within 15 % of the tree's."""
    chain = hc.MarkovChain([0.6, 0.4], [[0.8, 0.2], [0.3, 0.7]], length=3)
    seen = [hc.Poisson([[6.0, 3], [5, 6], [4, 7]]), hc.Tracks({"id": [1, 1], "time": [0, 2], "cell": [0, 1]})]
    free, tree = (
        hc.infer(hc.Problem(chain, 12, seen), hc.engines.TiltedEP(structure=s)).edge(0, 1).sd
        for s in ("matrix-free", "tree")
    )
    np.testing.assert_allclose(free, tree, rtol=0.15)


def test_flocks_of_groups_are_units_of_several():
    """Flocks of two beside groups: exact engines count units, as a sum over all paths of the units does; the default is near."""
    evidence, mean, variance = by_paths(weights=(2, 2))
    groups = {"up": hc.Group(UP, 6), "down": hc.Group(DOWN, 4)}
    asked = hc.Problem(groups=groups, observations=hc.Poisson(SEEN), dispersion=hc.Flocks(2))
    exact = hc.infer(asked, Enumerate(most=10**6))
    assert exact.log_evidence == pytest.approx(evidence, abs=1e-9)
    for name in ("up", "down", "sum"):
        part = exact if name == "sum" else exact.group(name)
        np.testing.assert_allclose(part.edge(0, 1).mean.values, mean[name][0], atol=1e-9)
        np.testing.assert_allclose(part.edge(0, 1).sd.values ** 2, variance[name][0], atol=1e-9)
    found = hc.infer(asked, TiltedEP())
    assert found.log_evidence == pytest.approx(evidence, abs=0.35)
    np.testing.assert_allclose(found.edge(0, 1).sd.values ** 2, variance["sum"][0], rtol=0.25)
    assert float(found.group("up").node(2).mean.sum()) == pytest.approx(6, abs=1e-6)


def test_a_group_may_count_several_times():
    """Three families of two and two singles: totals, flows and evidence are those of all paths, at the accuracy of five individuals."""
    evidence, mean, variance = by_paths(weights=(2, 1))
    groups = {"up": hc.Group(UP, 3, weight=2), "down": hc.Group(DOWN, 2)}
    asked = hc.Problem(groups=groups, observations=hc.Poisson(SEEN))
    found = hc.infer(asked, TiltedEP())
    assert found.population.mean == 8
    assert found.log_evidence == pytest.approx(evidence, abs=0.5)  # five units, two of them of one individual
    np.testing.assert_allclose(found.edge(0, 1).sd.values ** 2, variance["sum"][0], rtol=0.3)
    np.testing.assert_allclose(found.edge(0, 1).mean.values, mean["sum"][0], atol=0.35)
    assert found.sample(4, rng=1, integer=True)[(0, 1)].shape == (4, 2, 2)
    exact = hc.infer(asked, Enumerate())
    assert exact.log_evidence == pytest.approx(evidence, abs=1e-9)
    np.testing.assert_allclose(exact.edge(0, 1).mean.values, mean["sum"][0], atol=1e-9)
    unsure = hc.Problem(
        groups=groups | {"down": hc.Group(DOWN, hc.Between(0, 3))}, observations=hc.Poisson(SEEN)
    )
    exact, sampled = hc.infer(unsure, Enumerate()), hc.infer(unsure, PathGibbs(sweeps=4000), rng=1)
    error = 5 * np.asarray(exact.edge(0, 1).sd) / np.sqrt(1000)
    assert (np.abs(np.asarray(sampled.edge(0, 1).mean) - np.asarray(exact.edge(0, 1).mean)) < error).all()
    assert hc.Group(UP, hc.Unknown(), weight=2).weight == 2  # families of unknown number
    both = {"up": hc.Group(UP, 4, weight=2), "down": hc.Group(DOWN, 2)}  # weights and flocks multiply
    units = hc.Problem(groups=both, dispersion=hc.Flocks(2)).cloud.members
    assert [(member.weight, member.law.most) for member in units] == [(4.0, 2), (2.0, 1)]


def test_overdispersion_of_groups_is_kept_within_them():
    """Moves of one kind scatter together: intervals are wider than without, as those of sampled rows are; tags move alone."""
    groups = {"up": hc.Group(UP, 400), "down": hc.Group(DOWN, 300)}
    seen = [hc.Poisson([[362, 340], [240, 460], [233, 475]])]
    alone = hc.infer(hc.Problem(groups=groups, observations=seen))
    together = hc.infer(hc.Problem(groups=groups, observations=seen, dispersion="rho:0.05"))
    assert (together.group("up").node(2).sd > 1.3 * alone.group("up").node(2).sd).all()
    none = hc.infer(hc.Problem(groups=groups, observations=seen, dispersion="rho:0.0"))
    np.testing.assert_allclose(none.edge(0, 1).sd, alone.edge(0, 1).sd, rtol=1e-6)
    assert none.log_evidence == pytest.approx(alone.log_evidence, abs=1e-6)
    tag = hc.Tracks({"id": [1, 1], "time": [0, 1], "cell": ["a", "b"]})
    asked = hc.Problem(UP, 300, [hc.Poisson([[200, 90], [90, 190], [60, 230]]), tag], dispersion="rho:0.05")
    found, drawn = hc.infer(asked), hc.infer(asked, PathGibbs(sweeps=800), rng=1, strict=False)
    np.testing.assert_allclose(found.edge(0, 1).mean, drawn.edge(0, 1).mean, atol=1.5)
    np.testing.assert_allclose(found.edge(0, 1).sd, drawn.edge(0, 1).sd, rtol=0.15)
    assert float(found.group(1).node(2).mean.sum()) == pytest.approx(1, abs=1e-6)


def test_counts_above_the_number_of_units() -> None:
    """30 pairs and 30 singles are 90 individuals: a Poisson count of 75 in a cell, against the sum over both groups, to 3 % of an sd.

    Grids of counts that ended at 60, the number of units, never settled.
    """
    chain = hc.MarkovChain([0.8, 0.2], [[0.8, 0.2], [0.3, 0.7]], length=2)
    groups = {"pairs": hc.Group(chain, 30, weight=2), "singles": hc.Group(chain, 30)}
    seen = [75.0, 12.0]
    found = hc.infer(hc.Problem(groups=groups, observations=hc.Poisson(seen, on=0)), "TiltedEP")
    a, b = np.meshgrid(np.arange(31), np.arange(31), indexing="ij")
    n = 2 * a + b
    log_p = stats.binom.logpmf(a, 30, 0.8) + stats.binom.logpmf(b, 30, 0.8)
    log_p += stats.poisson.logpmf(seen[0], n) + stats.poisson.logpmf(seen[1], 90 - n)
    p = np.exp(log_p - logsumexp(log_p))
    mean = float((p * n).sum())
    sd = float(np.sqrt((p * (n - mean) ** 2).sum()))
    assert float(found.node(0).mean[0]) == pytest.approx(mean, abs=0.03 * sd)
    assert float(found.node(0).sd[0]) == pytest.approx(sd, rel=0.03)
    assert found.log_evidence == pytest.approx(float(logsumexp(log_p)), abs=0.02)
    assert float(found.group("pairs").node(0).mean[0]) == pytest.approx(
        2 * float((p * a).sum()), abs=0.03 * sd
    )


@pytest.mark.parametrize("weight", [2, 3])
@pytest.mark.parametrize("size", [5, hc.Between(2, 7)], ids=["known", "unknown"])
def test_units_of_different_weight_are_sampled(weight, size) -> None:
    """Where units of one group stand for several individuals, the path sampler agrees with the exact sum: cells, moves and sums.

    5 of its stated errors on 30 means: wrong alarm below 2e-5.
    """
    first = hc.MarkovChain([0.6, 0.4], [[0.7, 0.3], [0.2, 0.8]], length=3)
    other = hc.MarkovChain([0.2, 0.8], [[0.3, 0.7], [0.6, 0.4]], length=3)
    groups = {"single": hc.Group(first, size), "flock": hc.Group(other, 3, weight=weight)}
    seen = [
        hc.Poisson([[4.0, 7.0], [np.nan, 5.0], [6.0, 5.0]], rate=0.9),
        hc.Binomial([[3, 1], [1, 2]], detection=0.6, on=(0, 1)),
        hc.Gaussian([11.0], sd=1.2, sums=[[1, 1]], on=2),
    ]
    problem = hc.Problem(groups=groups, observations=seen)
    exact = hc.infer(problem, "Enumerate")
    found = hc.infer(problem, hc.engines.PathGibbs(sweeps=4000), rng=5)
    for a, b in [*((exact.node(t), found.node(t)) for t in range(3)), (exact.edge(1, 2), found.edge(1, 2))]:
        error = (
            5 * np.asarray(a.sd) / np.sqrt(1000) + 1e-9
        )  # a quarter of the sweeps are independent, at least
        assert (np.abs(np.asarray(b.mean) - np.asarray(a.mean)) < error).all()
