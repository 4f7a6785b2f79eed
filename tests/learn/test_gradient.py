"""Fisher's identity: E[n | y]·∂θ − Nμ·∂θ is the gradient of the evidence."""

import numpy as np
import pytest

from headcount.engines import MAP, Enumerate, TiltedEP
from headcount.learn import LogisticChain
from headcount.learn._expect import Evaluation, Expectation
from learn.cases import birds, tiny_cases

CASES = tiny_cases()


def evaluator(case, engine) -> Expectation:
    family = case.parametrisation.bind(case.problem.model)
    return Expectation([family], [case.problem], engine, 0, lambda tasks: [t.run() for t in tasks])


def central(expect: Expectation, x: np.ndarray, h: float = 1e-4) -> np.ndarray:
    def value(at: np.ndarray) -> float:
        found: Evaluation = expect(at, None)
        return found.value

    return np.array([(value(x + s) - value(x - s)) / (2 * h) for s in h * np.eye(len(x))])


@pytest.mark.parametrize("name", CASES)
def test_gradient_of_the_exact_evidence(name: str) -> None:
    """By enumeration the gradient is the derivative of log p(y) + log prior, to 1e-4 and better."""
    case = CASES[name]
    expect = evaluator(case, Enumerate())
    gradient = expect(case.parameters, None).gradient
    assert np.abs(gradient).max() > 1e-2
    assert np.abs(gradient - central(expect, case.parameters)).max() < 1e-6


@pytest.mark.parametrize("name", CASES)
def test_gradient_of_the_map_objective(name: str) -> None:
    """By the envelope theorem the gradient at the MAP counts is the derivative of MAP's optimal value."""
    case = CASES[name]
    expect = evaluator(case, MAP(tolerance=1e-11))
    gradient = expect(case.parameters, None).gradient
    assert np.abs(gradient - central(expect, case.parameters)).max() < 1e-4


def test_gradient_of_map_on_birds() -> None:
    """The same on a map of birds."""
    world, problem = birds()
    family = LogisticChain(world.features).bind(problem.model)
    expect = Expectation([family], [problem], MAP(tolerance=1e-11), 0, lambda ts: [t.run() for t in ts])
    x = np.array([0.7, 1.5, 2.2, 1.8])
    gradient = expect(x, None).gradient
    assert np.abs(gradient / central(expect, x) - 1).max() < 1e-4


@pytest.mark.parametrize("name", CASES)
def test_tilted_ep_estimates_the_exact_gradient(name: str, record_property) -> None:
    """TiltedEP's gradient is near the enumerated one: within a fraction of a complete count's standard error.

    The distance is recorded with the test's results, as √(Δ·I⁻¹Δ), I the information of complete counts.
    """
    case = CASES[name]
    exact = evaluator(case, Enumerate())(case.parameters, None)
    close = evaluator(case, TiltedEP())(case.parameters, None)
    gap = close.gradient - exact.gradient
    distance = float(np.sqrt(gap @ exact.objective.solve(case.parameters, gap)))
    record_property("distance", distance)
    print(f"{name}: TiltedEP's gradient is {distance:.3g} standard errors from the exact one")
    assert distance < 0.15
