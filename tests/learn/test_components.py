"""Complete-data likelihoods: values, gradients, curvatures and maxima that belong together."""

import itertools

import numpy as np
import pytest

from graphs import awkward_models
from headcount.engines import TiltedEP
from headcount.learn._expect import EStep, Objective
from headcount.learn._log_linear import feature_covariance
from headcount.learn._search import moments, simplex
from learn.cases import tiny_cases

CASES = tiny_cases()


def differences(function, x: np.ndarray, h: float = 1e-5) -> np.ndarray:
    """∂function/∂x by central differences, the parameters last."""
    steps = h * np.eye(len(x))
    return np.stack([(function(x + s) - function(x - s)) / (2 * h) for s in steps], axis=-1)


def objective_of(case) -> Objective:
    family = case.parametrisation.bind(case.problem.model)
    report = EStep(family, case.problem, TiltedEP(), case.parameters, None, 0).run()
    return Objective([family], [report.statistics])


@pytest.mark.parametrize("name", CASES)
def test_gradient_and_information_are_derivatives(name: str) -> None:
    """∂Q/∂x and −∂²Q/∂x² are the differences of Q and of its gradient, prior included."""
    case = CASES[name]
    objective = objective_of(case)
    x = case.parameters + 0.1

    assert np.allclose(objective.gradient(x), differences(objective.value, x), atol=1e-7)
    assert np.allclose(objective.information(x), -differences(objective.gradient, x), atol=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_maximum_has_no_gradient(name: str) -> None:
    """The M-step ends where ∂Q/∂x = 0, and no nearby point has a larger Q."""
    case = CASES[name]
    objective = objective_of(case)
    x = objective.maximise(case.parameters)
    assert np.abs(objective.gradient(x)).max() < 1e-10
    assert np.linalg.eigvalsh(objective.information(x)).min() > 0


@pytest.mark.parametrize("name", CASES)
def test_solve_inverts_the_information(name: str) -> None:
    """`solve`, in closed form or not, is the inverse of the information."""
    case = CASES[name]
    objective = objective_of(case)
    v = np.arange(1.0, len(case.parameters) + 1)
    assert np.allclose(objective.information(case.parameters) @ objective.solve(case.parameters, v), v)


@pytest.mark.parametrize("name", CASES)
def test_natural_parameters_move_as_stated(name: str) -> None:
    """The Jacobian of the natural parameters is their derivative."""
    case = CASES[name]
    family = case.parametrisation.bind(case.problem.model)
    found = family.natural(case.parameters)
    slopes = differences(lambda x: family.natural(x).values, case.parameters)
    assert np.allclose(found.jacobian, slopes, atol=1e-9)
    assert len(found.names) == len(found.values) == len(found.link) == len(set(found.names))


@pytest.mark.parametrize("name", awkward_models())
def test_feature_covariance_on_any_junction_tree(name: str) -> None:
    """One pass up the tree gives the covariance that summing over all joint states gives."""
    model = awkward_models()[name]
    rng = np.random.default_rng(3)
    scopes = [(v,) for v in model.variables] + [
        tuple(reversed(c)) for c in model.junction_tree.cliques if len(c) > 1
    ]
    features = {s: rng.normal(size=(3, *model.size(s))) for s in scopes}
    joint = model.marginal(model.variables)
    total = np.zeros((3, *joint.shape))
    for states in itertools.product(*(range(k) for k in joint.shape)):
        at = dict(zip(model.variables, states, strict=True))
        total[(slice(None), *states)] = sum(
            f[(slice(None), *(at[v] for v in s))] for s, f in features.items()
        )
    flat, p = total.reshape(3, -1), joint.ravel()
    centred = flat - (flat @ p)[:, None]
    assert np.allclose(feature_covariance(model, features, 3), (centred * p) @ centred.T, atol=1e-12)


def test_simplex_projection_is_the_nearest_law() -> None:
    """No law is nearer to v than its projection."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        v = rng.normal(size=4)
        law = simplex(v)
        assert law.min() >= 0
        assert law.sum() == pytest.approx(1)
        others = rng.dirichlet(np.full(4, 0.5), size=200)
        assert (np.linalg.norm(others - v, axis=1) >= np.linalg.norm(law - v) - 1e-12).all()


def test_moments_are_consistent() -> None:
    """With ever longer stationary sequences the moment estimate tends to P, noise or not (Bernstein & Sheldon 2016)."""
    from headcount import simulate
    from headcount.individual import MarkovChain

    p = np.array([[0.8, 0.15, 0.05], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
    mu = np.linalg.matrix_power(p, 200)[0]
    model = MarkovChain(mu / mu.sum(), p, length=4000)
    world = simulate.population(model, 200, observe=simulate.poisson(), rng=4)
    found = moments([world.observed.values], [200])
    assert np.abs(found - p).max() < 0.08
    assert np.abs(found - p).max() < 0.5 * np.abs(np.outer(np.ones(3), mu) - p).max()
