"""The published methods: the paper's edge-by-edge EP and its fixed point; non-linear belief propagation, a damped way to the MAP."""

from __future__ import annotations

import numpy as np
import pytest
from reproduction.rivals import NLBP, EdgeEP
from reproduction.rivals.edge_ep import Coordinates
from tests.engines.cases import MODELS, means, problem

import headcount as hc
from headcount.engines import MAP, ClosedForm, Laplace, NotConvergedError

TREES = [name for name, model in MODELS.items() if model.rooted() is not None]


@pytest.mark.parametrize("noise", ["poisson", "poisson_with_background", "negative_binomial", "user"])
@pytest.mark.parametrize("graph", TREES)
def test_the_fixed_point_is_the_joint_mode(graph, noise):
    """EdgeEP's means and variances are Laplace's to 1e-6 N, and so is its evidence."""
    asked = problem(graph, noise, 200)
    edge, joint = hc.infer(asked, EdgeEP()), hc.infer(asked, Laplace())
    np.testing.assert_allclose(means(edge), means(joint), atol=1e-6 * 200)
    for v in asked.model.variables:
        np.testing.assert_allclose(edge.beliefs.variance((v,)), joint.beliefs.variance((v,)), atol=1e-6 * 200)
    assert edge.log_evidence == pytest.approx(joint.log_evidence, abs=1e-6)


@pytest.mark.parametrize("graph", TREES)
def test_gaussian_noise_needs_one_sweep(graph):
    """With Gaussian noise, unobserved nodes included, one sweep up and down is the closed form."""
    asked = problem(graph, "gaussian", 50)
    once = hc.infer(asked, EdgeEP(max_iterations=1), strict=False)
    np.testing.assert_allclose(means(once), means(hc.infer(asked, ClosedForm())), atol=1e-9 * 50)


def test_one_sweep_leaves_every_node_with_everything():
    """After one sweep over a tree with Gaussian noise the modes themselves, not only the final solve, are the posterior means."""
    asked = problem("star", "gaussian", 50)
    engine = EdgeEP()
    state = engine.step(engine.init(asked.core))
    exact = hc.infer(asked, ClosedForm())
    tree = asked.model.rooted()
    for v, (edge, mode) in enumerate(zip(state.edges, state.modes, strict=True)):
        full = edge.likelihood.coordinates.embed(mode) + 50 * asked.model.marginal((tree.variables[v],))
        np.testing.assert_allclose(full, exact.beliefs.mean((tree.variables[v],)), atol=1e-9 * 50)


def test_correlated_readings_and_sums_of_cells():
    """Gaussian readings with a covariance and sums of cells enter as they do in the closed form and in Laplace."""
    model = MODELS["chain"]
    covariance = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 3.0]])
    readings = [
        hc.Gaussian([20.0, 15.0, 12.0], covariance=covariance, on="mon"),
        hc.Gaussian([33.0], sd=2.0, on="tue", sums=[[1, 1, 0]]),
    ]
    asked = hc.Problem(model, 50, readings)
    once = hc.infer(asked, EdgeEP(max_iterations=1), strict=False)
    np.testing.assert_allclose(means(once), means(hc.infer(asked, ClosedForm())), atol=1e-8)
    counted = hc.Problem(model, 50, [*readings, hc.Poisson([30.0], on="wed", sums=[[0, 1, 1]])])
    np.testing.assert_allclose(
        means(hc.infer(counted, EdgeEP())), means(hc.infer(counted, Laplace())), atol=1e-6 * 50
    )


def test_minimal_coordinates_lose_nothing():
    """Dropping the most probable cell and the unreachable ones keeps every deviation that sums to zero."""
    expected = np.array([3.0, 0.0, 5.0, 2.0])
    frame = Coordinates.of(expected)
    assert frame.dropped == 2
    np.testing.assert_array_equal(frame.kept, [0, 3])
    deviation = np.array([1.0, 0.0, -3.0, 2.0])
    np.testing.assert_allclose(frame.embed(deviation[frame.kept]), deviation)
    slope = np.array([0.3, 9.0, -0.2, 0.7])
    assert frame.pull(slope) @ deviation[frame.kept] == pytest.approx(slope @ deviation)


def test_what_it_is_not_made_for_is_refused_all_at_once():
    """Loops, edge tables and exact counts are named together."""
    model = MODELS["four-cycle"]
    asked = hc.Problem(
        model, 4, [hc.Exact([2.0, 2.0], on="a"), hc.Poisson([[1.0, 1.0], [1.0, 1.0]], on=("a", "b"))]
    )
    with pytest.raises(ValueError, match=r"not a chain or a tree.*several variables.*Exact") as refusal:
        hc.infer(asked, EdgeEP())
    assert "use TiltedEP" in str(refusal.value)


def persistent(length=20, seed=0):
    """Individuals who hardly move: every time sees the same counts."""
    model = hc.MarkovChain([0.5, 0.3, 0.2], 0.97 * np.eye(3) + 0.01, length=length)
    return problem(model, "poisson", 300, seed=seed)


def test_without_heavy_damping_it_oscillates():
    """Undamped, twenty looks at the same individuals never settle; damped to a twentieth, they do, at the MAP."""
    asked = persistent()
    assert not hc.infer(asked, NLBP(damping=1.0), strict=False).status.good
    np.testing.assert_allclose(
        means(hc.infer(asked, NLBP(damping=0.05))), means(hc.infer(asked, MAP())), atol=1e-6 * 300
    )


def test_adaptive_damping_finds_its_own_pace():
    """Started undamped, the adaptive variant still reaches the MAP."""
    asked = persistent()
    post = hc.infer(asked, NLBP(damping=1.0, adaptive=True))
    np.testing.assert_allclose(means(post), means(hc.infer(asked, MAP())), atol=1e-6 * 300)


def test_its_value_is_that_of_the_map():
    """N [A(θ+g) − A(θ)] + Σ [log l(y | n) − g n] at the fixed point is the optimum of MAP."""
    asked = problem("chain", "poisson", 40)
    assert hc.infer(asked, NLBP()).log_evidence == pytest.approx(
        hc.infer(asked, MAP()).log_evidence, abs=1e-6
    )


def test_it_gives_a_point_and_says_so():
    """No spread, no draws; the promises of a law hold."""
    post = hc.infer(problem("chain", "poisson", 40), NLBP())
    assert np.isnan(post.node("mon").sd).all()
    assert post.promises.non_negative
    assert post.promises.consistent
    with pytest.raises(ValueError, match="TiltedEP"):
        post.sample(1, rng=0)


def test_refusals():
    """Exact and cornered noise have no slope; a damping outside (0, 1] is no damping; running out of iterations raises."""
    for noise in ("exact", "laplace"):
        with pytest.raises(ValueError, match="use MAP"):
            hc.infer(problem("chain", noise, 40), NLBP())
    with pytest.raises(ValueError, match="damping must be a number above 0 and at most 1"):
        NLBP(damping=0.0)
    with pytest.raises(NotConvergedError, match="residual"):
        hc.infer(persistent(), NLBP(max_iterations=3))
