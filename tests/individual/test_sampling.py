"""Individuals are drawn from the law, and from nothing else."""

import numpy as np
import pytest
from tests.enumeration import Enumeration
from tests.graphs import awkward_models

from headcount.individual import DiscreteModel, Model
from headcount.individual._model import draw

MODELS = awkward_models()
SIZE = 40_000


@pytest.mark.parametrize(
    "kind", [lambda m: m, DiscreteModel.from_model, Enumeration.from_model], ids=["own", "discrete", "oracle"]
)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_frequencies_are_the_law(model: Model, kind) -> None:
    """Every configuration's frequency is within five standard errors of p(x), zero where p(x) is."""
    drawn = kind(model).sample(SIZE, rng=7)
    assert drawn.shape == (SIZE, len(model.variables))
    assert drawn.dtype == np.intp
    joint = Enumeration.from_model(model).joint
    counts = np.zeros(joint.shape)
    np.add.at(counts, tuple(drawn.T), 1)
    assert np.all(counts[joint == 0] == 0)
    error = np.sqrt(SIZE * joint * (1 - joint))
    assert np.all(np.abs(counts - SIZE * joint) <= 5 * error + 1e-6)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_the_same_seed_draws_the_same(model: Model) -> None:
    """A seed fixes the sample; a generator moves on."""
    np.testing.assert_array_equal(model.sample(9, rng=3), model.sample(9, rng=3))
    generator = np.random.default_rng(3)
    np.testing.assert_array_equal(model.sample(9, rng=generator), model.sample(9, rng=3))
    assert model.sample(0, rng=generator).shape == (0, len(model.variables))


def test_states_without_probability_are_never_drawn() -> None:
    """The smallest and largest uniform, and those that hit a step exactly, fall on states that are possible."""
    largest = np.nextafter(1.0, 0.0)
    for total in (1.0, 0.5, 1 - 2**-53, 1 + 2**-52, 0.7):
        law = total * np.array([0.0, 0.5, 0.0, 0.5, 0.0])
        np.testing.assert_array_equal(draw(law, np.array([0.0, 0.25, 0.5, 0.75, largest])), [1, 1, 3, 3, 3])
