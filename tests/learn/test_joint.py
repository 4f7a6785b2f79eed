"""Log-linear models with many weights: the joint climb, and priors on effects, against evidences and differences."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import headcount as hc
from headcount.learn import LogLinear
from headcount.learn import _search as starts
from headcount.learn._joint import _coding, _reckoned_from, _Side, climbed_together
from headcount.learn._log_linear import Potentials
from headcount.observe import LaplaceNoise

SIZES = {"a": 3, "b": 4, "c": 2}
PAIRS = list(itertools.combinations(SIZES, 2))
NOISES = {
    "Gaussian": lambda y, rng: hc.Gaussian({p: t + rng.normal(0, 5, t.shape) for p, t in y.items()}, sd=5.0),
    "Laplace": lambda y, rng: LaplaceNoise(
        {p: t + rng.laplace(0, 4, t.shape) for p, t in y.items()}, scale=4.0
    ),
    "Poisson": lambda y, rng: hc.Poisson({p: rng.poisson(t) for p, t in y.items()}),
}


def case(noise: str, seed: int = 3, population: int = 500) -> tuple[hc.DiscreteModel, hc.Problem]:
    """Noisy two-way tables of three variables that depend on each other."""
    rng = np.random.default_rng(seed)
    true = hc.DiscreteModel(SIZES, {p: 0.7 * rng.normal(size=[SIZES[v] for v in p]) for p in PAIRS})
    tables = {p: population * true.marginal(p) for p in PAIRS}
    flat = hc.DiscreteModel(SIZES, {p: np.zeros([SIZES[v] for v in p]) for p in PAIRS})
    return flat, hc.Problem(flat, population, NOISES[noise](tables, rng))


def objective(family: hc.learn.Family, problem: hc.Problem, x: np.ndarray) -> float:
    """MAP's evidence by its own engine, and the log prior."""
    found = hc.infer(family.apply(x, problem), "MAP").log_evidence
    assert found is not None
    return found + family.components[0].log_prior(x)


@pytest.mark.parametrize("noise", NOISES)
def test_the_joint_climb_ends_at_the_maximum_of_maps_evidence(noise: str) -> None:
    """No change of a weight by a tenth of its standard error, up or down, raises evidence + prior by more than the tolerance leaves."""
    flat, problem = case(noise, seed=4)
    family = LogLinear.saturated(flat, PAIRS, ridge="learned").bind(flat)
    near = climbed_together([family], [problem], family.start(), 1e-3)
    assert near is not None
    assert near.distance <= 1e-3
    (family,) = near.families
    top = objective(family, problem, near.x)
    (weights,) = family.components
    errors = 1 / np.sqrt(
        weights.known(
            near.x,
            weights.statistic(_counts(family, problem, near.x), _counts(family, problem, near.x), problem),
        )
        + weights.prior_scale()
    )
    for k in range(len(near.x)):
        for side in (-0.1, 0.1):
            moved = near.x.copy()
            moved[k] += side * errors[k]
            assert objective(family, problem, moved) < top + 1e-5


def _counts(family, problem, x):
    post = hc.infer(family.apply(x, problem), "MAP")
    return lambda scope: post.beliefs.mean(scope)


@pytest.mark.parametrize("ridge", ["learned", 0.5])
def test_a_fit_by_the_joint_climb_is_the_fit_by_e_steps(
    ridge: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With priors as the joint climb learned them, or given, E-steps to MAP's own tolerance lead to the same weights."""
    flat, problem = case("Gaussian")
    setting = LogLinear.saturated(flat, PAIRS, ridge=ridge)
    quick = hc.fit(setting, problem, "MAP", standard_errors=False)
    assert quick.status.good
    strengths = np.array(list(quick.shrinkage.values())) ** -2.0
    learned = {"table_ridge": strengths} if ridge == "learned" else {}
    bound = LogLinear.bind
    monkeypatch.setattr(starts, "climbed_together", lambda *args: None)
    monkeypatch.setattr(LogLinear, "bind", lambda self, model: bound(self, model).with_priors([learned]))
    monkeypatch.setattr(Potentials, "shrunk", lambda *args: None)
    slow = hc.fit(setting, problem, "MAP", standard_errors=False)
    np.testing.assert_allclose(quick.working, slow.working, atol=2e-3)
    assert quick.evidence + quick.log_prior >= slow.evidence + slow.log_prior - 1e-5


def test_effects_depend_on_the_law_alone() -> None:
    """Weights reckoned from other states of the same law have the same effects, and so the same prior."""
    rng = np.random.default_rng(0)
    flat, problem = case("Gaussian")
    (weights,) = LogLinear.saturated(flat, PAIRS, ridge="learned").bind(flat).components
    coding = _coding([_Side(weights, problem)])
    assert coding is not None
    inner = rng.normal(size=len(weights.names))
    outer = coding.back(inner)
    assert not np.allclose(inner, outer)
    for pair in PAIRS:
        np.testing.assert_allclose(
            coding.inner.model(inner).marginal(pair), weights.model(outer).marginal(pair), atol=1e-14
        )
    np.testing.assert_allclose(weights.effects(outer), coding.inner.effects(inner), atol=1e-13)
    again = _reckoned_from(dict.fromkeys(SIZES, 0), weights.tables(outer))
    for scope, table in weights.tables(outer).items():
        np.testing.assert_allclose(again[scope], table, atol=1e-13)


def test_effects_are_centred_means() -> None:
    """Interactions are tables without their means along either axis; main effects add the means of the interactions' rows."""
    flat, _ = case("Gaussian")
    (weights,) = LogLinear.saturated(flat, PAIRS, ridge="learned").bind(flat).components
    x = np.random.default_rng(2).normal(size=len(weights.names))
    tables, effects = weights.tables(x), weights.features.split(weights.effects(x))
    ab = tables["a", "b"]
    interaction = ab - ab.mean(axis=0) - ab.mean(axis=1)[:, None] + ab.mean()
    np.testing.assert_allclose(effects["a", "b"], interaction, atol=1e-14)
    main = tables["a",] + ab.mean(axis=1) + tables["a", "c"].mean(axis=1)
    np.testing.assert_allclose(effects["a",], main - main.mean(), atol=1e-14)


def test_the_prior_on_effects_has_its_own_derivatives() -> None:
    """Gradient, information and its diagonal against differences of the log prior."""
    flat, _ = case("Gaussian")
    (weights,) = LogLinear.saturated(flat, PAIRS, ridge="learned").bind(flat).components
    rng = np.random.default_rng(1)
    weights = replace(weights, table_ridge=rng.uniform(0.2, 3, len(weights.table_ridge)))
    x = rng.normal(size=len(weights.names))
    step = 1e-5
    slopes = [
        (weights.log_prior(x + step * e) - weights.log_prior(x - step * e)) / (2 * step)
        for e in np.eye(len(x))
    ]
    np.testing.assert_allclose(weights.prior_gradient(x), slopes, atol=1e-8)
    information = weights.prior_information(x)
    np.testing.assert_allclose(information @ x, -weights.prior_gradient(x), atol=1e-12)
    np.testing.assert_allclose(np.diagonal(information), weights.prior_scale(), atol=1e-14)


def test_learned_priors_place_fewer_people_wrongly() -> None:
    """Under noise as large as most counts the learned prior beats none, on average over four worlds; `saturated` learns it unasked."""
    better = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        sizes = {"a": 5, "b": 6, "c": 4}
        pairs = list(itertools.combinations(sizes, 2))
        true = hc.DiscreteModel(sizes, {p: 0.4 * rng.normal(size=[sizes[v] for v in p]) for p in pairs})
        tables = {p: 400 * true.marginal(p) for p in pairs}
        flat = hc.DiscreteModel(sizes, {p: np.zeros([sizes[v] for v in p]) for p in pairs})
        noisy = {p: t + rng.normal(0, 8, t.shape) for p, t in tables.items()}
        problem = hc.Problem(flat, 400, hc.Gaussian(noisy, sd=8.0))

        def missed(ridge: object) -> float:
            setting = LogLinear.saturated(flat, pairs, ridge=ridge)  # noqa: B023
            found = hc.fit(setting, problem, "MAP", standard_errors=False, strict=False, tolerance=0.05)  # noqa: B023
            return sum(np.abs(found.plug_in.clique(*p).mean.values - tables[p]).sum() for p in pairs)  # noqa: B023

        unasked, weak = missed(None), missed(1e-3)
        better.append(unasked / weak)
    assert np.mean(better) < 0.9


def test_a_prior_is_learned_from_several_problems() -> None:
    """Two problems that share features share strengths, which `Fit.shrinkage` names by scope."""
    flat, first = case("Gaussian")
    _, second = case("Gaussian", seed=4)
    found = hc.fit(LogLinear.saturated(flat, PAIRS), [first, second], "MAP", standard_errors=False)
    assert found.status.good
    assert set(found.shrinkage) == {"a", "b", "c", "a × b", "a × c", "b × c"}
