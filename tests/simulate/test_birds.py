"""The migrating birds: closed forms, consistency, reproducibility."""

import math

import numpy as np
import pytest

from headcount import memory
from headcount.individual import ModelError
from headcount.simulate import WINDS, birds

SIDE = 4
CELLS = SIDE * SIDE


@pytest.fixture(scope="module")
def world():
    return birds(SIDE, (1, 2, 2, 2), 480, steps=9, rng=11)


def place(cell: int) -> tuple[int, int]:
    """(column, row), numbered column by column from the lower left."""
    return divmod(cell, SIDE)


def test_features_are_their_closed_forms(world):
    """f1 = 4·LogNormalPDF(d; 1, 1), f2 = cos of the angle to the goal, f3 = unit·wind, f4 = 2·[i = j]."""
    from scipy.stats import lognorm

    features = np.asarray(world.features)
    assert features.shape == (8, 4, CELLS, CELLS) == world.features.shape
    goal = place(CELLS - 1)
    for t, wind in enumerate(world.winds):
        for i in range(CELLS):
            for j in range(CELLS):
                dx, dy = place(j)[0] - place(i)[0], place(j)[1] - place(i)[1]
                gx, gy = goal[0] - place(i)[0], goal[1] - place(i)[1]
                d = math.hypot(dx, dy)
                angle = math.atan2(dy, dx) - math.atan2(gy, gx)
                expected = [
                    4 * lognorm_pdf(d) if i != j else 0.0,
                    math.cos(angle) if i != j and i != CELLS - 1 else 0.0,
                    (dx * wind[0] + dy * wind[1]) / d if i != j else 0.0,
                    2.0 if i == j else 0.0,
                ]
                np.testing.assert_allclose(features[t, :, i, j], expected, rtol=1e-13, atol=1e-15)
    assert lognorm_pdf(2.5) == pytest.approx(lognorm(s=1, scale=math.e).pdf(2.5))


def lognorm_pdf(d: float) -> float:
    return math.exp(-((math.log(d) - 1) ** 2) / 2) / (d * math.sqrt(2 * math.pi))


def test_first_values_of_the_features(world):
    """A few values worked out on paper: one step right, one diagonal step, the far corner."""
    f = world.features[0]
    assert world.features.names == ("distance", "direction", "wind", "stay")
    assert f[0, 0, 1] == pytest.approx(4 / math.sqrt(2 * math.pi) * math.exp(-0.5))  # d = 1
    assert f[1, 0, 1] == pytest.approx(math.sqrt(0.5))  # up, with the goal at 45°
    assert f[1, 0, SIDE + 1] == pytest.approx(1.0)  # straight at the goal
    assert f[1, CELLS - 1].tolist() == [0.0] * CELLS  # already there
    assert f[1, CELLS - 2, CELLS - 3] == pytest.approx(-1.0)  # straight away from it


def test_transitions_are_the_softmax_of_the_features(world):
    """P_t(j | i) = exp(w·f)/Σ, the same matrices that learning makes of the returned features and weights."""
    from headcount.individual._log_linear import LogLinearTransitions

    learned = LogLinearTransitions(np.asarray(world.features)).transitions((1, 2, 2, 2))
    np.testing.assert_allclose(np.stack(world.model.transitions), learned, rtol=1e-13)
    limited = birds(SIDE, population=10, steps=4, max_distance=2.0, rng=0)
    learned = LogLinearTransitions(np.asarray(limited.features), limited.mask).transitions((1, 2, 2, 2))
    np.testing.assert_allclose(np.stack(limited.model.transitions), learned, rtol=1e-13)


def test_cells_are_numbered_column_by_column(world):
    """Cell 0 lies lower left, cell 1 above it, the last cell upper right."""
    np.testing.assert_array_equal(world.coordinates, [place(c) for c in range(CELLS)])


def test_counts_and_flows_agree(world):
    """All birds start in cell 0; flows leave what was there and arrive as what is there next; N is kept."""
    assert world.counts.shape == (9, CELLS)
    assert world.flows.shape == (8, CELLS, CELLS)
    assert world.counts[0].tolist() == [480] + [0] * (CELLS - 1)
    np.testing.assert_array_equal(world.flows.sum(axis=2), world.counts[:-1])
    np.testing.assert_array_equal(world.flows.sum(axis=1), world.counts[1:])
    assert world.population == 480
    world.tables.check()


def test_birds_go_to_the_goal():
    """The mean place moves towards the upper right corner, and by the end most birds are near it."""
    world = birds(6, (1, 2, 2, 2), 10**6, rng=3)
    centre = world.counts @ world.coordinates / 10**6
    assert centre[0].tolist() == [0.0, 0.0]
    assert (centre[-1] > 3.5).all()


def test_observations_are_poisson():
    """y ~ Poisson(rate·n): zero where no bird is, mean and variance rate·n where many are."""
    world = birds(6, population=10**7, rate=0.5, rng=2)
    y, n = world.observed.values, world.counts
    assert (y[n == 0] == 0).all()
    assert (y == np.rint(y)).all()
    z = ((y - 0.5 * n) / np.sqrt(0.5 * np.maximum(n, 1)))[n > 100]
    assert abs(z.mean()) < 5 / math.sqrt(z.size)
    assert abs(z.var() - 1) < 5 * math.sqrt(2 / z.size)


def test_winds_are_drawn_evenly_or_taken_as_given():
    """Each night has one of five winds with equal chance; winds passed in are used as they are."""
    drawn = birds(1, population=1, steps=5001, rng=4).winds
    found = [int((drawn == wind).all(axis=1).sum()) for wind in WINDS]
    assert sum(found) == 5000
    assert all(abs(count - 1000) < 5 * math.sqrt(800) for count in found)
    mine = [[0.3, -0.2], [0.0, 1.0]]
    np.testing.assert_array_equal(birds(3, population=5, steps=3, winds=mine, rng=0).winds, mine)
    with pytest.raises(ModelError, match=r"winds has shape \(2, 2\)"):
        birds(3, steps=4, winds=mine, rng=0)


def test_no_flight_is_longer_than_the_limit():
    """max_distance = 3√2 allows exactly the flights of at most 3√2, itself included."""
    world = birds(6, population=10, max_distance=3 * math.sqrt(2), rng=0)
    step = world.coordinates[None] - world.coordinates[:, None]
    near = (step**2).sum(axis=2) <= 18
    for matrix in world.model.transitions:
        np.testing.assert_array_equal(matrix > 0, near)
    assert near[0, 21]  # three right, three up
    assert not near[0, 26]  # four right, two up
    barely = math.sqrt(13)  # two by three, and its square is below 13 in floating point
    assert barely**2 < 13
    assert birds(4, population=1, steps=2, max_distance=barely, rng=0).model.transitions[0][0, 11] > 0


def test_sparse_worlds_have_the_law_of_dense_ones():
    """sparse=True gives the same transition matrices, and counts and flows that agree."""
    from scipy import sparse

    slim = birds(6, population=1000, max_distance=2.0, sparse=True, rng=1)
    full = birds(6, population=1000, max_distance=2.0, rng=1)
    np.testing.assert_array_equal(slim.winds, full.winds)
    for a, b in zip(slim.model.transitions, full.model.transitions, strict=True):
        assert sparse.issparse(a)
        np.testing.assert_array_equal(a.toarray(), b)
    np.testing.assert_array_equal(slim.flows.sum(axis=1), slim.counts[1:])
    assert (slim.flows[:, full.mask == -np.inf] == 0).all()
    with pytest.raises(ModelError, match="give a limit"):
        birds(sparse=True, rng=0)


def test_ten_thousand_cells():
    """A 100 × 100 map: refused dense with both numbers, made sparse."""
    with memory.limited("2GB"), pytest.raises(ModelError, match=r"would take .* GB .* the limit is 2 GB"):
        birds(100, max_distance=3 * math.sqrt(2), rng=0)
    with memory.limited("2GB"), pytest.raises(ModelError, match=r"would take .* TB"):
        birds(300, rng=0)
    world = birds(100, population=10**6, steps=4, max_distance=3 * math.sqrt(2), sparse=True, rng=0)
    assert world.counts.shape == (4, 10_000)
    assert world.features.shape == (3, 4, 10_000, 10_000)
    assert (world.counts.sum(axis=1) == 10**6).all()
    with (
        memory.limited("2GB"),
        pytest.raises(ModelError, match=r"world.flows as one array would take 2.4 GB"),
    ):
        _ = world.flows
    assert world.tables.table((0, 1)).sum() == 10**6


def test_seeds_reproduce_and_nothing_global_moves():
    """The same seed, as an int or a generator, gives the same world; the global state is untouched."""
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    a, b, c = birds(rng=5), birds(rng=np.random.default_rng(5)), birds(rng=6)
    for field in ("counts", "flows", "winds"):
        np.testing.assert_array_equal(getattr(a, field), getattr(b, field))
    np.testing.assert_array_equal(a.observed.values, b.observed.values)
    assert (a.counts != c.counts).any()
    calm = np.zeros((19, 2))
    assert (birds(winds=calm, rng=5).counts != birds(winds=calm, rng=6).counts).any()
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_the_seed_must_be_given():
    """There is no clock seed to fall back on."""
    with pytest.raises(TypeError, match="rng"):
        birds()


def test_labels(world):
    """Observed counts carry time, cell and the place of the cell; features their names."""
    observed = world.observed
    assert observed.dims == ("time", "cell")
    assert observed["time"].values.tolist() == list(world.model.times)
    assert observed["cell"].values.tolist() == list(world.model.cells)
    assert observed.sel(cell=5)["column"].item() == 1
    assert observed.sel(cell=5)["row"].item() == 1
    named = world.features.to_xarray()
    np.testing.assert_array_equal(named.sel(feature="wind")[2].values, world.features.wind(2))


def test_worlds_become_problems(world):
    """The observed counts go into a problem as they are."""
    from headcount.observe import Poisson, Problem

    problem = Problem(world.model, 480, [Poisson(world.observed)])
    assert sum(len(site.noise.counts) for site in problem.sites) == world.observed.size


@pytest.mark.parametrize(
    "arguments",
    [{"side": 1}, {"steps": 1}, {"population": 1}, {"rate": 0.0}, {"steps": 2}, {"max_distance": math.inf}],
)
def test_smallest_worlds(arguments):
    """One cell, one time, one bird, nothing seen: ordinary inputs."""
    world = birds(**{"side": 2, "population": 7, "steps": 3, **arguments}, rng=0)
    assert (world.counts.sum(axis=1) == arguments.get("population", 7)).all()
    assert np.asarray(world.features).shape == world.features.shape
    assert world.observed.shape == world.counts.shape


def test_every_bad_argument_is_named():
    """All problems at once, each with the value."""
    with pytest.raises(ModelError) as caught:
        birds(0, (1, 2, 3), steps=0, rate=-1.0, max_distance=-2.0, rng=0)
    assert len(caught.value.problems) == 5
    with pytest.raises(ModelError, match="whole number"):
        birds(2, population=1.5, rng=0)
