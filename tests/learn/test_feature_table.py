"""Features of moves from a table of cells: their values, names, products, and what is refused."""

import numpy as np
import pandas as pd
import pytest

import headcount as hc
from headcount.individual import ModelError

CELLS = pd.DataFrame(
    {
        "cell": ["a", "b", "c"],
        "x": [0.0, 3.0, 0.0],
        "y": [0.0, 0.0, 4.0],
        "food": [1.0, 0.0, 2.0],
        "habitat": ["wood", "field", "wood"],
    }
)
FAR = np.array([[0.0, 3, 4], [3, 0, 5], [4, 5, 0]])


def test_every_kind_of_feature():
    """Staying, distance, neighbours, values of destination and origin, and products have the values that their names say."""
    made = hc.features(
        CELLS,
        distance=True,
        adjacency=[("a", "b")],
        destination=["food", "habitat"],
        origin="food",
        interactions=["distance:food_to", ("stay", "food_to")],
    )
    food = CELLS["food"].to_numpy()
    expected = {
        "stay": np.eye(3),
        "distance": FAR,
        "adjacent": np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]),
        "food_to": np.tile(food, (3, 1)),
        "habitat[field]_to": np.tile([0.0, 1, 0], (3, 1)),
        "food_from": food[:, None] * (1 - np.eye(3)),
        "distance:food_to": FAR * food,
        "stay:food_to": np.diag(food),
    }
    assert made.coords["feature"].values.tolist() == list(expected)
    assert made.coords["dest"].values.tolist() == ["a", "b", "c"]
    for name, values in expected.items():
        np.testing.assert_allclose(made.sel(feature=name).values, values)


def test_a_formula_says_the_same():
    """A formula gives the features of the options; functions leave staying alone; degrees are distances in km."""
    a = hc.features(CELLS, "stay + distance + food_to + distance:food_to")
    b = hc.features(CELLS, distance=True, destination="food", interactions=["distance:food_to"])
    assert a.equals(b)
    logs = hc.features(CELLS.set_index("cell"), "log(distance) + sqrt(food_to)")
    np.testing.assert_allclose(logs[0].values, np.log(FAR + np.eye(3)))
    np.testing.assert_allclose(logs[1].values, np.sqrt(np.tile(CELLS["food"], (3, 1))))
    assert hc.features(CELLS, distance="log").equals(hc.features(CELLS, "stay + log(distance)"))
    degrees = CELLS.rename(columns={"x": "lon", "y": "lat"})
    assert hc.features(degrees, "distance")[0, 0, 2] == pytest.approx(4 * 111.19, rel=1e-3)
    assert hc.features(CELLS, stay=False, adjacency=4.5)[0].values.tolist() == [
        [0, 1, 1],
        [1, 0, 0],
        [1, 0, 0],
    ]


def test_weights_of_these_features_are_learned():
    """A fit takes the features as they are, under their names and cells, and finds the weights that made the data."""
    made = hc.features(CELLS, "stay + distance + food_to")
    truth = np.array([1.0, -0.4, 0.6])
    chain = hc.MarkovChain([0.4, 0.3, 0.3], np.full((3, 3), 1 / 3), length=12, cells=["a", "b", "c"])
    model = hc.LogisticChain(made).bind(chain).model(truth)
    world = hc.simulate.population(model, 20_000, observe=hc.simulate.poisson(), rng=1)
    found = hc.fit(hc.LogisticChain(made), hc.Problem(model, 20_000, hc.Poisson(world.observed)))
    assert list(found.weights.coords["feature"].values) == ["stay", "distance", "food_to"]
    assert (np.abs(found.weights.values - truth) < 4 * found.standard_errors.values).all()


@pytest.mark.parametrize(
    ("cells", "options", "says"),
    [
        (CELLS, {"formula": "stay + speed_to"}, "no feature 'speed_to'"),
        (CELLS, {"formula": "cc(hour, 4)"}, "basis=Periodic"),
        (CELLS, {"formula": "tan(distance)"}, "no function tan"),
        (CELLS, {"formula": "log(food_to)"}, "not a finite number"),
        (CELLS, {"formula": "stay", "distance": True}, "says everything"),
        (CELLS, {"formula": "adjacent"}, "needs adjacency"),
        (CELLS, {"adjacency": [("a", "z")]}, "pairs of cells"),
        (CELLS, {"stay": False}, "no feature was asked for"),
        (CELLS.drop(columns="x"), {"distance": True}, "needs cell and x, y"),
        (pd.concat([CELLS, CELLS]), {}, "twice"),
        (CELLS.assign(habitat=["wood", None, "wood"]), {"destination": "habitat"}, "empty entries"),
        (7, {}, "a row per cell"),
    ],
)
def test_what_cannot_be_is_refused(cells, options, says):
    """Unknown columns and functions, values that are no numbers and tables without places are refused in words."""
    with pytest.raises(ModelError, match=says):
        hc.features(cells, **options)
