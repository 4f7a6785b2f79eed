"""Log-linear transitions: a softmax per row, with the exact gradient and Hessian of the flows' likelihood."""

import numpy as np
import pytest

from headcount.individual import LogLinearTransitions, ModelError

CASES = {
    "homogeneous": ((3, 4, 4), None),
    "per step": ((5, 3, 4, 4), None),
    "masked": ((3, 4, 4), "one"),
    "masked per step": ((5, 3, 4, 4), "one"),
    "mask per step": ((3, 4, 4), "each"),
}


def make(case: str, rng: np.random.Generator) -> tuple[LogLinearTransitions, np.ndarray, np.ndarray]:
    """Transitions, weights and flows that respect the mask."""
    shape, masked = CASES[case]
    mask = np.zeros((4, 4))
    if masked:
        mask[0, 1] = mask[2, 0] = mask[2, 3] = -np.inf
    mask = np.broadcast_to(mask, (5, 4, 4)) if masked == "each" else mask
    flows = rng.integers(0, 9, size=(5, 4, 4)) * np.isfinite(mask)
    return LogLinearTransitions(rng.normal(size=shape), mask if masked else None), rng.normal(size=3), flows


@pytest.mark.parametrize("case", CASES)
def test_rows_are_a_softmax_of_the_features(case: str, rng: np.random.Generator) -> None:
    """P(i, j) = exp(w·f(i, j)) / sum_k exp(w·f(i, k)) over allowed moves; zero for forbidden ones."""
    model, weights, _ = make(case, rng)
    p = model.transitions(weights)
    p = p[None] if model.steps is None else p
    np.testing.assert_allclose(p.sum(axis=2), 1, rtol=0, atol=1e-14)
    for t, i, j, k in np.ndindex(len(p), 4, 4, 4):
        if np.isfinite(model.mask[t, i, j]) and np.isfinite(model.mask[t, i, k]):
            gap = weights @ (model.features[t, :, i, j] - model.features[t, :, i, k])
            assert np.log(p[t, i, j] / p[t, i, k]) == pytest.approx(gap, abs=1e-12)
    assert np.all((p == 0) == np.isneginf(model.mask))


@pytest.mark.parametrize("case", CASES)
def test_gradient_and_hessian_are_those_of_the_value(case: str, rng: np.random.Generator) -> None:
    """Central differences of l give the gradient, of the gradient the Hessian, which is never positive."""
    model, weights, flows = make(case, rng)
    step = 1e-5 * np.eye(3)
    slope = [(model.value(weights + e, flows) - model.value(weights - e, flows)) / 2e-5 for e in step]
    bend = [(model.gradient(weights + e, flows) - model.gradient(weights - e, flows)) / 2e-5 for e in step]
    np.testing.assert_allclose(model.gradient(weights, flows), slope, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(model.hessian(weights, flows), bend, rtol=1e-6, atol=1e-6)
    assert np.linalg.eigvalsh(model.hessian(weights, flows)).max() <= 1e-10


@pytest.mark.parametrize("case", CASES)
def test_expected_flows_have_zero_slope(case: str, rng: np.random.Generator) -> None:
    """At the weights that made them, flows n(i) P(i, j) are stationary."""
    model, weights, flows = make(case, rng)
    expected = flows.sum(axis=2, keepdims=True) * model.transitions(weights)
    np.testing.assert_allclose(model.gradient(weights, expected), 0, rtol=0, atol=1e-10)


def test_flows_of_equal_steps_may_be_added_first(rng: np.random.Generator) -> None:
    """A homogeneous likelihood sees only the sum of the flows over time."""
    model, weights, flows = make("homogeneous", rng)
    assert model.value(weights, flows) == pytest.approx(model.value(weights, flows.sum(axis=0)))
    np.testing.assert_allclose(model.hessian(weights, flows), model.hessian(weights, flows.sum(axis=0)))


def test_huge_weights_neither_overflow_nor_lose_rows(rng: np.random.Generator) -> None:
    """Scores of ±10⁴ still give rows that sum to one, and a finite value where moves are allowed."""
    model, weights, _ = make("masked", rng)
    p = model.transitions(1e4 * weights)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=0, atol=1e-14)
    assert np.isfinite(model.value(1e4 * weights, np.eye(4)))


def test_a_forbidden_move_that_was_made_is_impossible(rng: np.random.Generator) -> None:
    """l = −inf when someone made a move the mask forbids; features of forbidden moves may be NaN."""
    mask = np.array([[0.0, -np.inf], [0.0, 0.0]])
    features = np.array([[[1.0, np.nan], [0.5, 2.0]]])
    model = LogLinearTransitions(features, mask)
    assert model.value([1.0], [[0, 1], [0, 0]]) == -np.inf
    assert model.value([1.0], [[3, 0], [1, 1]]) > -np.inf
    assert np.isfinite(model.gradient([1.0], [[3, 0], [1, 1]])).all()


def test_the_chain_carries_labels(rng: np.random.Generator) -> None:
    """chain() is the Markov chain with these transitions, labelled; per-step features fix its length."""
    model, weights, _ = make("per step", rng)
    chain = model.chain(weights, np.full(4, 0.25), times=list("uvwxyz"), cells=list("abcd"))
    np.testing.assert_allclose(chain.transitions[2], model.transitions(weights)[2], rtol=0, atol=1e-15)
    assert chain.times == tuple("uvwxyz")
    with pytest.raises(ModelError, match="5 transition matrices: 6, length: 3"):
        model.chain(weights, np.full(4, 0.25), length=3)


def test_what_does_not_fit_is_refused(rng: np.random.Generator) -> None:
    """Shapes, weights, flows, masks that close a cell, NaN features: an error that says what to give."""
    with pytest.raises(ModelError, match=r"give \(K, L, L\)"):
        LogLinearTransitions(np.zeros((3, 4)))
    with pytest.raises(ModelError, match="feature 0 from 1 to 0 at step 0 is nan"):
        LogLinearTransitions([[[0.0, 0.0], [np.nan, 0.0]]])
    with pytest.raises(ModelError, match="forbids every move from cell 1 at step 0"):
        LogLinearTransitions(np.zeros((1, 2, 2)), [[0.0, 0.0], [-np.inf, -np.inf]])
    with pytest.raises(ModelError, match="mask holds NaN"):
        LogLinearTransitions(np.zeros((1, 2, 2)), [[np.nan, 0.0], [0.0, 0.0]])
    with pytest.raises(ModelError, match="the mask has the shape"):
        LogLinearTransitions(np.zeros((5, 1, 2, 2)), np.zeros((4, 2, 2)))
    model, weights, flows = make("per step", rng)
    with pytest.raises(ModelError, match="give 3 finite numbers"):
        model.transitions([1.0, 2.0])
    with pytest.raises(ModelError, match="flows have the shape"):
        model.value(weights, flows[:3])
    with pytest.raises(ModelError, match="1 flows are not counts"):
        model.gradient(weights, np.where(np.arange(80).reshape(5, 4, 4) == 7, -1, flows))
