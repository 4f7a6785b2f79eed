"""Where counts cannot earn trust, nothing is called reliable, and what would help is said."""

from __future__ import annotations

import numpy as np
import pytest

import headcount as hc
from headcount.learn._result import distance
from headcount.posterior.doubt import Churn, flows_seen
from headcount.posterior.result import provenance


def sites(steps: int, *, rho: float, seed: int = 0) -> tuple[hc.Problem, list[np.ndarray]]:
    """Exact counts at three sites, with rows that vary from step to step."""
    rng = np.random.default_rng([5, seed])
    p = 0.8 * np.eye(3) + 0.2 * rng.dirichlet(np.ones(3), 3)
    n = [rng.multinomial(5000, rng.dirichlet(np.full(3, 5.0)))]
    flows = []
    for _ in range(steps):
        rows = [rng.dirichlet(row * (1 / rho - 1)) if rho else row for row in p]
        flows.append(np.stack([rng.multinomial(int(k), row) for k, row in zip(n[-1], rows, strict=True)]))
        n.append(flows[-1].sum(0))
    chain = hc.MarkovChain(None, np.full((steps, 3, 3), 1 / 3))
    return hc.Problem(chain, 5000, hc.Exact(np.array(n, dtype=float))), flows


def test_moves_learned_from_a_short_series_are_not_reliable_and_tags_are_advised_first() -> None:
    """Six parameters beside ten free counts, churn in the scatter alone: no agreement, tags first, a dispersion last."""
    problem, flows = sites(5, rho=0.02)
    post = hc.fit(hc.TabularChain(), problem, strict=False).posterior
    check = post.fit_check
    assert check.agrees is False
    assert check.doubts
    assert [advice.kind for advice in check.advice] == ["tags", "flows", "prior", "law", "dispersion"]
    assert "hc.Tracks" in check.verdict
    assert not any(post.edge(t, t + 1).reliable.any() for t in range(5))
    assert check.churn is not None
    low, high = check.churn.interval()
    assert low < 1 - sum(np.trace(f) for f in flows) / 25_000 < high


def test_moves_and_a_dispersion_are_integrated_over_together() -> None:
    """The ridge of churn times dispersion is in the posterior: intervals hold the flows where the plain maximum's do not."""
    problem, flows = sites(5, rho=0.02, seed=1)
    fits = {
        prior: hc.fit(hc.TabularChain(), problem, strict=False, dispersion="estimate", prior=prior)  # type: ignore[arg-type]
        for prior in ("neutral", None)
    }
    assert fits["neutral"].working == pytest.approx(fits[None].working)  # estimates stay the maximum's

    def covered(prior: str | None) -> float:
        ends = [fits[prior].posterior.edge(t, t + 1).interval(0.9) for t in range(5)]
        inside = [(f >= e["lower"]) & (f <= e["upper"]) for e, f in zip(ends, flows, strict=True)]
        return float(np.mean(inside))

    assert covered("neutral") >= 0.85
    assert covered(None) <= 0.75
    integral = fits["neutral"].integral
    assert integral is not None
    assert fits[None].integral is None
    low, high = integral.churn_interval()
    assert low < 1 - sum(np.trace(f) for f in flows) / 25_000 < high
    post = fits["neutral"].posterior
    assert "log churn flat" in post.outcome.info["parameters"]
    assert post.diagnostics["parameter_effective_size"] == integral.effective_size > 20
    assert post.fit_check.agrees is None
    assert not post.edge(0, 1).reliable.any()


def test_the_prior_is_named_where_it_decides() -> None:
    """Two exact margins of one table: of its four free directions the counts tell two, and the doubt says that the prior tells the rest."""
    problem = hc.Problem(
        hc.MarkovChain(None, np.full((1, 3, 3), 1 / 3)),
        900,
        hc.Exact([[300.0, 400.0, 200.0], [350.0, 300.0, 250.0]]),
    )
    fit = hc.fit(hc.TabularChain(), problem, strict=False)
    assert fit.integral is not None
    assert min(fit.integral.contraction.values()) < 0.5
    check = fit.posterior.fit_check
    assert any("the prior" in doubt and "contraction" in doubt for doubt in check.doubts)
    assert not fit.posterior.edge(0, 1).reliable.any()
    # The law of a whole table is that of its only problem.
    np.testing.assert_allclose(fit.total(0, 1)["sd"], fit.posterior.edge(0, 1).sd, rtol=1e-9)
    with pytest.raises(ValueError, match='give "neutral", or None'):
        hc.fit(hc.TabularChain(), problem, prior="flat")  # type: ignore[arg-type]


def test_learned_weights_that_the_means_tell_still_agree() -> None:
    """Birds with four weights: the check agrees, and flows of enough birds are reliable; plug-in posteriors are not."""
    world = hc.simulate.birds(4, (1.0, 2.0, 2.0, 2.0), 480, steps=10, rng=3)
    fit = hc.fit(hc.LogisticChain(world.features), hc.Problem(world.model, 480, hc.Poisson(world.observed)))
    check = fit.posterior.fit_check
    assert check.agrees
    assert check.churn is not None
    assert check.churn.identified
    assert fit.posterior.node(5).reliable.any()
    assert fit.plug_in.fit_check.agrees is None
    assert "plug-in" in fit.plug_in.fit_check.verdict
    assert not fit.plug_in.node(5).reliable.any()


def test_an_estimated_dispersion_is_said_and_flows_stay_doubtful() -> None:
    """Moves given, flocks of six: counts are reliable once the scatter is allowed, flows that nobody saw are not."""
    moves = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    chain = hc.MarkovChain([0.5, 0.3, 0.2], moves, length=10)
    world = hc.simulate.population(chain, 1200, dispersion=hc.Flocks(6), rng=5)
    problem = hc.Problem(chain, 1200, hc.Poisson(world.observed))
    alone = hc.infer(problem).fit_check
    assert alone.agrees is False
    assert alone.advice[0].kind == "dispersion"
    post = hc.infer(problem, dispersion="estimate")
    assert post.fit_check.agrees
    assert "once a scatter of" in post.fit_check.verdict
    assert post.node(5).reliable.all()
    assert not post.edge(4, 5).reliable.any()
    assert (
        "only the scatter of the counts tells them" in provenance(post, level=0.9)["fit_check"]["flow_doubt"]
    )


def test_less_scatter_than_chance_is_found_only_where_it_is_asked_for_and_names_another_noise() -> None:
    """Binomial counts declared Poisson: phi stays at 1 or above, and the check names the binomial with its evidence."""
    chain = hc.MarkovChain(np.full(6, 1 / 6), 0.6 * np.eye(6) + 0.4 / 6, length=20)
    world = hc.simulate.population(chain, 4000, rng=1)
    seen = np.random.default_rng(2).binomial(np.asarray(world.counts).astype(int), 0.95)
    problem = hc.Problem(chain, 4000, hc.Poisson(seen, rate=0.95))
    check = hc.infer(problem).fit_check
    assert check.agrees
    assert [advice.kind for advice in check.advice] == ["noise"]
    assert "hc.Binomial(counts, detection=0.95)" in check.verdict
    found, asked = (
        hc.infer(problem, dispersion=text).dispersion_estimate for text in ("estimate", "estimate:phi")
    )
    assert found is not None
    assert asked is not None
    assert asked.value < 1.0 == found.value


def test_an_unknown_number_without_a_rate_says_first_that_everybody_is_counted() -> None:
    """With a rate nothing is assumed in silence, and nothing is said."""
    chain = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.2, 0.8]], length=4)
    seen = np.random.default_rng(0).poisson(70, (4, 2)).astype(float)
    assumed = hc.infer(hc.Problem(chain, hc.Unknown(), hc.Poisson(seen)))
    told = hc.infer(hc.Problem(chain, hc.Unknown(), hc.Poisson(seen, rate=0.7)))
    assert assumed.fit_check.verdict.startswith("Assumes that everybody is counted")
    assert "Assumes that everybody is counted" in repr(assumed)
    assert assumed.population.note.startswith("Assumes that everybody is counted")
    assert "everybody" not in told.fit_check.verdict + told.population.note
    assert assumed.fit_check.agrees is None
    assert assumed.fit_check.advice[0].kind == "rate"
    assert not any(assumed.node(t).reliable.any() for t in range(4))
    assert told.fit_check.agrees
    assert told.node(0).reliable.all()


@pytest.mark.parametrize(("sd", "everybody"), [(10, False), (100, True)])
def test_what_is_known_of_the_number_may_rule_out_that_half_are_counted(sd: float, everybody: bool) -> None:
    """About 140 ± 10 are told by a census; of 140 ± 100 the counts alone tell, and nothing is said of whom they see."""
    chain = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.2, 0.8]], length=4)
    seen = hc.Poisson(np.random.default_rng(0).poisson(70, (4, 2)).astype(float))
    check = hc.infer(hc.Problem(chain, hc.About(140, sd=sd), seen)).fit_check
    assert ("everybody" in check.verdict) == everybody
    assert check.agrees is (None if everybody else True)


@pytest.mark.parametrize(("sd", "seen"), [(300.0, False), (20.0, True)])
def test_a_survey_tells_moves_by_what_it_tells_not_by_being_there(sd: float, seen: bool) -> None:
    """Readings of some 100 individuals with an error of 300 each tell next to nothing of them."""
    read = hc.Gaussian(np.full((3, 3), 100.0), sd=sd, on=(0, 1))
    chain = hc.MarkovChain([0.5, 0.3, 0.2], np.full((3, 3), 1 / 3), length=3)
    assert flows_seen(hc.Problem(chain, 900, [hc.Poisson(np.full((3, 3), 300.0)), read])) == seen


def test_a_weight_that_runs_off_has_a_one_sided_posterior_and_is_named() -> None:
    """A move that is never made: its weight has no maximum, the flow keeps a spread, and the verdict says so."""
    features = np.zeros((2, 3, 3))
    features[0], features[1, 0, 2] = np.eye(3), 1
    p = np.exp(np.tensordot([1.5, -40.0], features, 1))
    p /= p.sum(1, keepdims=True)
    world = hc.simulate.population(hc.MarkovChain([0.8, 0.1, 0.1], p, length=12), 3000, rng=1)
    blank = hc.MarkovChain([0.8, 0.1, 0.1], np.full((3, 3), 1 / 3), length=12)
    fit = hc.fit(
        hc.LogisticChain(features, names=["stay", "0 to 2"]),
        hc.Problem(blank, 3000, hc.Exact(np.asarray(world.counts))),
        strict=False,
    )
    post = fit.posterior
    assert post.fit_check.agrees is None
    assert "0 to 2 ran off" in post.fit_check.verdict
    assert post.edge(0, 1).sd[0, 2] > 1
    assert post.edge(0, 1).sd[0, 2] > 3 * fit.plug_in.edge(0, 1).sd[0, 2]


def test_margins_with_a_large_dispersion_are_learned_without_blaming_the_user() -> None:
    """The engine's second-order term takes flows below zero: weights are learned from them all the same."""
    rng = np.random.default_rng(5)
    zones, people = 15, 500_000
    place = rng.uniform(0, 300, (zones, 2))
    distance = np.maximum(np.linalg.norm(place[:, None] - place[None], axis=-1), 5.0)
    p = rng.lognormal(0, 1.5, zones) * distance**-2.0
    p /= p.sum(1, keepdims=True)
    first = rng.multinomial(people, rng.dirichlet(np.ones(zones)))
    flows = np.stack(
        [rng.multinomial(n, rng.dirichlet(row * 30 + 1e-9)) for n, row in zip(first, p, strict=True)]
    )
    seen = hc.Exact(np.array([first, flows.sum(0)], dtype=float))
    setting = hc.LogisticChain(np.stack([np.eye(zones), -np.log(distance)]), names=["stay", "-log d"])
    fit = hc.fit(
        setting,
        hc.Problem(hc.MarkovChain(None, p[None]), people, seen),
        dispersion=hc.Overdispersion(rho=0.5),
        strict=False,
    )
    assert np.isfinite(fit.working).all()
    with pytest.raises(hc.ModelError, match="flows are not counts"):
        hc.learn.fit_complete(
            setting, hc.MarkovChain(None, p[None]), lambda scope: np.full((zones,) * len(scope), -1.0)
        )


def test_a_distance_is_a_number_only_where_a_standard_error_is_one() -> None:
    """Nobody reads of 10³⁵ standard errors."""
    assert distance(0.3).startswith("0.3 standard errors from the maximum")
    assert "e+35" not in distance(3.4e35)
    assert "running off" in distance(3.4e35)


def test_a_range_of_churn_widens_with_the_scatter() -> None:
    """The standard error of the log-odds grows with the root of the dispersion, and never shrinks."""
    told = Churn(0.2, 0.1)
    assert told.identified
    assert told.widened(0.01).log_odds_error == told.log_odds_error
    assert told.widened(100).log_odds_error == pytest.approx(1.0)
    assert not told.widened(100).identified
    low, high = told.interval()
    assert 0 < low < 0.2 < high < 1


def at_equilibrium(seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Features of a chain of six cells (stay, distance, habitat), and its flows of 3 000 individuals from its steady distribution on."""
    rng, cells = np.random.default_rng(seed), 6
    gap = np.abs(np.subtract.outer(np.arange(cells), np.arange(cells))).astype(float)
    features = np.stack([np.eye(cells), -gap, np.broadcast_to(rng.normal(size=cells), (cells, cells))])
    p = np.exp(np.tensordot([1.5, 0.7, 1.2], features, 1))
    p /= p.sum(axis=1, keepdims=True)
    n, flows = rng.multinomial(3000, np.linalg.matrix_power(p, 1000)[0]), []
    for _ in range(9):
        flows.append(np.array([rng.multinomial(k, row) for k, row in zip(n, p, strict=True)]))
        n = flows[-1].sum(axis=0)
    return features, flows


@pytest.mark.parametrize(("seed", "surveyed"), [(0, False), (1, False), (1, True)])
def test_a_model_without_staying_is_not_believed_at_equilibrium(seed: int, surveyed: bool) -> None:
    """A steady distribution tells weights well and churn badly; with staying left free the means tell neither, nor do three moves seen."""
    features, flows = at_equilibrium(seed)
    counts = np.stack([flows[0].sum(axis=1), *(table.sum(axis=0) for table in flows)]).astype(float)
    seen = [hc.Exact(counts)]
    if surveyed:
        rng = np.random.default_rng(2)
        seen.append(hc.Poisson(rng.poisson(0.001 * flows[4]), on=(4, 5), rate=0.001))
    problem = hc.Problem(hc.MarkovChain(None, np.full((6, 6), 1 / 6), length=10), 3000, seen)
    check = hc.fit(hc.LogisticChain(features[1:]), problem, progress=False).posterior.fit_check
    low, high = check.churn.interval()
    assert low < 1 - sum(np.trace(table) for table in flows) / 27_000 < high
    assert check.agrees is None
    assert check.advice[0].kind == "tags"


def away_from_equilibrium(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The same features, and exact counts of 3 000 individuals that begin anywhere."""
    features, _ = at_equilibrium(seed)
    p = np.exp(np.tensordot([1.5, 0.7, 1.2], features, 1))
    rng = np.random.default_rng([1, seed])
    start = rng.dirichlet(np.full(6, 2.0))
    chain = hc.MarkovChain(start, p / p.sum(axis=1, keepdims=True), length=10)
    return features, np.asarray(hc.simulate.population(chain, 3000, rng=rng).counts, dtype=float)


def test_a_prior_that_the_counts_contradict_is_not_believed() -> None:
    """A ridge of 100 (weights of 0 ± 0.1, where 1.5, 0.7 and 1.2 are true) pulls; one of 1 hardly does, and the check agrees."""
    features, counts = away_from_equilibrium(1)
    problem = hc.Problem(hc.MarkovChain(None, np.full((6, 6), 1 / 6), length=10), 3000, hc.Exact(counts))
    strong, weak = (
        hc.fit(hc.LogisticChain(features, ridge=ridge), problem, progress=False).posterior
        for ridge in (100.0, 1.0)
    )
    assert strong.fit_check.agrees is None
    assert "standard errors away from what the counts tell" in strong.fit_check.verdict
    assert not strong.edge(0, 1).reliable.any()
    assert weak.fit_check.agrees
    # what is not reliable in an agreeing fit has its reason, and what would help
    assert ("sums" in [advice.kind for advice in weak.fit_check.advice]) == (
        "too few individuals" in weak.fit_check.verdict
    )


def test_a_prior_that_says_more_than_the_counts_is_named() -> None:
    """A ridge of 10⁵ at the true weights pulls nowhere: still it is the prior that tells them."""
    features, counts = away_from_equilibrium(1)
    problem = hc.Problem(hc.MarkovChain(None, np.full((6, 6), 1 / 6), length=10), 3000, hc.Exact(counts))
    names = ("stay", "near", "habitat")
    centre = dict(zip(names, (1.5, 0.7, 1.2), strict=True))
    setting = hc.LogisticChain(features, ridge=1e5, prior=centre, names=list(names))
    check = hc.fit(setting, problem, progress=False).posterior.fit_check
    assert check.agrees is None
    assert "the prior tells more than the counts" in check.verdict


@pytest.mark.parametrize(("cells", "prior"), [(3, None), (5, "neutral")])
def test_moves_on_a_ridge_that_is_not_integrated_are_not_believed(cells: int, prior: str | None) -> None:
    """The plain maximum where it was asked for, and free matrices of more parameters than are integrated over."""
    rng = np.random.default_rng([4, 3])
    p = 0.5 * np.eye(cells) + 0.5 * rng.dirichlet(np.ones(cells), cells)
    start = rng.dirichlet(np.full(cells, 5.0))
    world = hc.simulate.population(hc.MarkovChain(start, p, length=31), 5000, rng=rng)
    blank = hc.MarkovChain(None, np.full((cells, cells), 1 / cells), length=31)
    problem = hc.Problem(blank, 5000, hc.Exact(np.asarray(world.counts)))
    post = hc.fit(hc.TabularChain(), problem, strict=False, prior=prior, progress=False).posterior  # type: ignore[arg-type]
    assert post.fit_check.agrees is None
    assert "too badly for a Gaussian" in post.fit_check.verdict
    assert not post.edge(0, 1).reliable.any()


def test_tags_that_contradict_the_model_are_seen() -> None:
    """Distance alone explains counts at equilibrium, and how many stay; where those went who moved is seen of sixty tags."""
    features, flows = at_equilibrium(1)
    rng = np.random.default_rng(3)
    rows = []
    for tag in range(60):
        at = int(rng.choice(6, p=flows[0].sum(axis=1) / 3000))
        rows.append((tag, 0, at))
        for t, table in enumerate(flows):
            at = int(rng.choice(6, p=table[at] / table[at].sum()))
            rows.append((tag, t + 1, at))
    tags = hc.Tracks({name: [row[k] for row in rows] for k, name in enumerate(("id", "time", "cell"))})
    counts = np.stack([flows[0].sum(axis=1), *(table.sum(axis=0) for table in flows)]).astype(float)
    problem = hc.Problem(
        hc.MarkovChain(None, np.full((6, 6), 1 / 6), length=10), 3000, [hc.Exact(counts), tags]
    )
    wrong, right = (
        hc.fit(hc.LogisticChain(kept), problem, progress=False).posterior.fit_check
        for kept in (features[1:], features)
    )
    assert wrong.churn.other < 0.01 < right.churn.other
    assert "a cause of movement is missing" in wrong.verdict
    assert right.agrees


def test_a_ridge_that_was_learned_is_no_opinion() -> None:
    """Features without effect get a ridge that holds them at zero, as it should: that is not said to be a prior that tells more."""
    rng = np.random.default_rng(1)
    features = np.concatenate(
        [np.eye(3)[None], [[[0, 1, 2], [1, 0, 1], [2, 1, 0]]], rng.normal(size=(2, 3, 3))]
    )
    moves = np.exp(np.tensordot([2.0, -0.5, 0.0, 0.0], features, 1))
    chain = hc.MarkovChain([0.4, 0.3, 0.3], moves / moves.sum(axis=1, keepdims=True), length=6)
    world = hc.simulate.population(chain, 2000, observe=hc.simulate.poisson(), rng=2)
    fit = hc.fit(
        hc.LogisticChain(features, ridge="learned"),
        hc.Problem(chain, 2000, hc.Poisson(world.observed)),
        strict=False,
    )
    assert "the prior tells more" not in fit.posterior.fit_check.verdict
