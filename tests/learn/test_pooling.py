"""Partial pooling: strengths are learned from the flows, and matrices shrink as far as they say."""

import numpy as np
import pytest
from scipy.special import gammaln

import headcount as hc
from headcount.individual import MarkovChain
from headcount.learn import LogisticChain, TabularChain, fit_complete
from headcount.learn._components import Pooling, _strength
from headcount.population import CGM
from learn.cases import lookup


def log_probability(n: np.ndarray, a: np.ndarray) -> float:
    """log of the Dirichlet–multinomial probability of rows n, up to the multinomial coefficients."""
    total = gammaln(a.sum(-1)) - gammaln(n.sum(-1) + a.sum(-1)) + (gammaln(n + a) - gammaln(a)).sum(-1)
    return float(total.sum())


def test_a_strength_is_the_most_probable_one(rng: np.random.Generator) -> None:
    """No strength makes rows of known concentration more probable, and it is near theirs."""
    base = np.array([0.5, 0.3, 0.2])
    rows = rng.dirichlet(20 * base, size=400)
    n = np.array([rng.multinomial(60, p) for p in rows]).astype(float)
    found = _strength(n, np.broadcast_to(base, n.shape))
    best = log_probability(n, found * np.broadcast_to(base, n.shape))
    for other in (0.9 * found, 1.1 * found):
        assert log_probability(n, other * np.broadcast_to(base, n.shape)) < best
    assert found == pytest.approx(20, rel=0.25)


def hourly(spread: float, rng: np.random.Generator, each: int) -> tuple[np.ndarray, np.ndarray]:
    """True matrices of 12 classes around one, and moves of `each` individuals per cell."""
    common = rng.dirichlet(np.full(4, 2.0), size=4)
    true = np.array([[rng.dirichlet(row / spread) for row in common] for _ in range(12)])
    flows = np.array([[rng.multinomial(each, row) for row in p] for p in true]).astype(float)
    return true, flows


@pytest.mark.parametrize("spread", [0.001, 0.02, 0.3])
def test_pooled_matrices_are_nearer_the_truth(spread: float, rng: np.random.Generator) -> None:
    """Whether classes hardly differ or differ much, pooling comes within a quarter of the better extreme."""
    true, flows = hourly(spread, rng, 30)
    chain = MarkovChain(np.full(4, 0.25), np.full((4, 4), 0.25), length=13)
    tables = {(k, k + 1): flows[k] for k in range(12)}

    def error(setting: TabularChain) -> float:
        fit = fit_complete(setting, chain, lookup(tables))
        return float(np.abs(np.array(fit.model.transitions) - true).mean())

    pooled = error(TabularChain(by=12))
    separate, one = error(TabularChain(by=12, pool=False)), error(TabularChain())
    assert pooled < 1.25 * min(separate, one)


def test_the_tree_prior_is_a_dirichlet_where_its_counts_agree(rng: np.random.Generator) -> None:
    """With counts of leaving equal to those of the destinations, value, gradient, information and solution are Dirichlet's."""
    from dataclasses import replace

    rows = (
        TabularChain(by=2, pool=False)
        .bind(MarkovChain([1, 0, 0], np.full((3, 3), 1 / 3), length=3))
        .components[0]
    )
    pseudo = rng.gamma(2.0, size=(6, 3))
    plain = replace(rows, pseudo=pseudo)
    away = pseudo.sum(axis=1) - pseudo[np.arange(6), np.tile(np.arange(3), 2)]
    tree = replace(rows, pseudo=pseudo, going=away)
    x, n, v = rng.normal(size=12), rng.gamma(3.0, size=(6, 3)), rng.normal(size=12)
    assert tree.log_prior(x) == pytest.approx(plain.log_prior(x))
    np.testing.assert_allclose(tree.prior_gradient(x), plain.prior_gradient(x), atol=1e-12)
    np.testing.assert_allclose(tree.closed_form(x, n), plain.closed_form(x, n), atol=1e-12)
    np.testing.assert_allclose(tree.closed_solve(x, n, v), plain.closed_solve(x, n, v), atol=1e-10)


def test_the_tree_prior_has_its_own_derivatives_and_maximum(rng: np.random.Generator) -> None:
    """The tree's gradient and information are differences of its log prior, its maximum has none, and `closed_solve` inverts."""
    from dataclasses import replace

    rows = (
        TabularChain(by=2, pool=False)
        .bind(MarkovChain([1, 0, 0], np.full((3, 3), 1 / 3), length=3))
        .components[0]
    )
    tree = replace(rows, pseudo=rng.gamma(2.0, size=(6, 3)), going=rng.gamma(2.0, size=6))
    n = 5 * rng.gamma(3.0, size=(6, 3))
    x = tree.closed_form(np.zeros(12), n)
    np.testing.assert_allclose(tree.gradient(x, n) + tree.prior_gradient(x), 0, atol=1e-10)
    steps = 1e-5 * np.eye(12)
    slope = [(tree.log_prior(x + s) - tree.log_prior(x - s)) / 2e-5 for s in steps]
    bend = [(tree.prior_gradient(x + s) - tree.prior_gradient(x - s)) / 2e-5 for s in steps]
    np.testing.assert_allclose(tree.prior_gradient(x), slope, atol=1e-7)
    np.testing.assert_allclose(tree.prior_information(x), -np.array(bend), atol=1e-7)
    v = rng.normal(size=12)
    whole = tree.information(x, n) + tree.prior_information(x)
    np.testing.assert_allclose(whole @ tree.closed_solve(x, n, v), v, atol=1e-8)


def test_a_prior_matrix_counts_as_many_individuals_as_it_is_given(rng: np.random.Generator) -> None:
    """P = (n + strength × prior) / (n_i + strength); learned, the strength is large where the moves follow the prior."""
    chain = MarkovChain([0.5, 0.5], np.full((2, 2), 0.5), length=2)
    old = np.array([[0.9, 0.1], [0.3, 0.7]])
    moves = np.array([[6.0, 4.0], [1.0, 1.0]])

    def learned(flows: np.ndarray, **options: object) -> hc.Fit:
        return fit_complete(TabularChain(prior=old, **options), chain, lookup({(0, 1): flows}))

    given = learned(moves, strength=5.0)
    np.testing.assert_allclose(
        given.model.transitions[0], (moves + 5 * old) / (moves.sum(1, keepdims=True) + 5)
    )
    follows = learned(1000 * old).shrinkage["prior"]
    against = learned(1000 * old[::-1]).shrinkage["prior"]
    assert follows > 1e4
    assert against < 10


def test_weights_of_classes_shrink_as_much_as_they_vary(rng: np.random.Generator) -> None:
    """The sd between classes is near the true one, and near zero where classes do not differ."""
    chain = MarkovChain(np.full(3, 1 / 3), np.full((3, 3), 1 / 3), length=41)
    found = {}
    for true in (0.0, 0.8):
        weights = 1.0 + true * rng.normal(size=40)
        tables = {}
        for k, w in enumerate(weights):
            p = np.exp(w * np.eye(3))
            p /= p.sum(axis=1, keepdims=True)
            tables[(k, k + 1)] = np.array([rng.multinomial(200, row) for row in p]).astype(float)
        setting = LogisticChain(np.eye(3)[None], names=["stay"], by=40)
        fit = fit_complete(setting, chain, lookup(tables))
        found[true] = fit.shrinkage["stay"]
    assert found[0.0] < 0.1
    assert found[0.8] == pytest.approx(0.8, rel=0.35)


def test_observed_flows_need_no_inference(rng: np.random.Generator) -> None:
    """`fit` of exactly observed flows is the fit of complete counts, with their probability as evidence and a note."""
    chain = MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=4)
    world = hc.simulate.population(chain, 50, rng=1)
    pairs = [(t, t + 1) for t in range(3)]
    tables = {p: np.asarray(world.tables.table(p), dtype=float) for p in pairs}
    problem = hc.Problem(chain, 50, [hc.Exact(tables[p], on=p) for p in pairs])
    fit = hc.fit(TabularChain(), problem)
    total = sum(tables.values())
    np.testing.assert_allclose(fit.model.transitions[0], total / total.sum(axis=1, keepdims=True))
    assert fit.evidence == pytest.approx(CGM(fit.model, 50).log_pmf(world.tables))
    assert "nothing is hidden" in fit.notes[-1]
    assert Pooling(1).centre is None


def test_a_checkpoint_keeps_learned_priors(tmp_path) -> None:
    """A fit whose priors are learned goes on from its checkpoint to the same answer."""
    chain = MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=9)
    world = hc.simulate.population(chain, 300, observe=hc.simulate.poisson(), rng=1)
    problem = hc.Problem(chain, 300, hc.Poisson(world.observed))
    path = tmp_path / "fit.checkpoint"
    options = {"engine": "MAP", "start": "sticky", "standard_errors": False, "strict": False}
    first = hc.fit(TabularChain(by=2), problem, checkpoint=path, **options)
    again = hc.fit(TabularChain(by=2), problem, checkpoint=path, **options)
    np.testing.assert_allclose(again.working, first.working, atol=0.02)
    assert again.shrinkage["movement"] == pytest.approx(first.shrinkage["movement"], rel=0.05)
    first.save(tmp_path / "fit.npz")
    loaded = hc.Fit.load(tmp_path / "fit.npz")
    assert loaded.shrinkage == first.shrinkage
    np.testing.assert_allclose(loaded.model.transitions[1], first.model.transitions[1])


@pytest.mark.parametrize("rho", [0.0, 0.02, 0.1])
def test_observed_flows_tell_rho(rho: float) -> None:
    """The intra-class correlation of flows that were observed lies within three standard errors of the true one, zero included."""
    chain = MarkovChain([0.3, 0.3, 0.4], [[0.6, 0.2, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]], length=60)
    together = {"dispersion": hc.Overdispersion(rho=rho)} if rho else {}
    world = hc.simulate.population(chain, 300, rng=3, **together)
    pairs = [(t, t + 1) for t in range(59)]
    flows = [hc.Exact(np.asarray(world.tables.table(p), dtype=float), on=p) for p in pairs]
    found = hc.fit(TabularChain(), hc.Problem(chain, 300, flows), dispersion="estimate").dispersion
    assert found is not None
    assert found.form == "rho"
    assert abs(found.value - rho) < 3 * found.standard_error
    with pytest.raises(hc.ProblemError, match="which tell rho"):
        hc.fit(TabularChain(), hc.Problem(chain, 300, flows), dispersion="estimate:phi")


def test_observed_flows_tell_rho_by_class() -> None:
    """Classes of steps have rho of their own where flows were observed, each as those flows alone would have it; so have rows."""
    matrix = [[0.6, 0.2, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]
    chain = MarkovChain([0.3, 0.3, 0.4], matrix, length=81)
    scatter = hc.Overdispersion(rho={t: 0.1 if t % 2 else 0.002 for t in range(1, 81)})
    world = hc.simulate.population(chain, 300, rng=3, dispersion=scatter)
    pairs = [(t, t + 1) for t in range(80)]
    flows = [hc.Exact(np.asarray(world.tables.table(p), dtype=float), on=p) for p in pairs]
    problem = hc.Problem(chain, 300, flows)
    found = hc.fit(TabularChain(), problem, dispersion="estimate:rho:2").dispersion
    assert found is not None
    assert [one.label for one in found.classes] == [0, 1]
    even, odd = found.classes
    assert abs(even.value - 0.1) < 3 * even.standard_error
    assert abs(odd.value - 0.002) < 3 * odd.standard_error
    assert found.dispersion.rho[1] == even.value
    common = hc.fit(TabularChain(), problem, dispersion="estimate:rho").dispersion
    assert common is not None
    assert found.gain > common.gain + 10
    rows = hc.fit(TabularChain(), problem, dispersion="estimate:rho:row").dispersion
    assert rows is not None
    assert [one.label for one in rows.classes] == [0, 1, 2]
    assert np.shape(rows.dispersion.rho) == (3,)
