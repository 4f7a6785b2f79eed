"""The Problem: what it accepts, what it says of itself, and what it computes."""

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array
from tests.graphs import awkward_models

import headcount as hc
from headcount.observe import Observation

STEP = np.array([[0.8, 0.2], [0.3, 0.7]])


def chain(step=STEP, length=3):
    return hc.MarkovChain([0.5, 0.5], step, length=length)


@pytest.mark.parametrize("population", [7, 7.0, np.int64(7), np.float32(7), np.array(7), np.array([7.0])])
def test_population_is_a_whole_number(population):
    """Anything that is a whole number is N, as an int."""
    problem = hc.Problem(chain(), population)
    assert problem.population == 7
    assert type(problem.population) is int


def test_largest_population():
    """N = 10**12 is kept to the last individual."""
    assert hc.Problem(chain(), 10**12 + 1).population == 10**12 + 1


def test_one_several_or_no_observations():
    """A single observation is a sequence of one; an empty sequence and a generator are fine."""
    one = hc.Poisson([[1, 2]] * 3)
    assert hc.Problem(chain(), 5, one).observations == (one,)
    assert hc.Problem(chain(), 5, []).sites == ()
    assert len(hc.Problem(chain(), 5, (o for o in (one, one))).sites) == 6


def test_the_same_entry_may_be_seen_twice():
    """Two readings are two sites, and their likelihoods multiply."""
    first, second = hc.Poisson([1, 2], on=0), hc.Gaussian([1.5, 2.5], on=0, sd=1)
    both = hc.Problem(chain(), 5, [first, second])
    assert [(s.source, s.scope) for s in both.sites] == [(0, (0,)), (1, (0,))]
    table = {0: [2.0, 3.0]}
    parts = [hc.Problem(chain(), 5, [o]).log_likelihood(table) for o in (first, second)]
    assert both.log_likelihood(table) == pytest.approx(sum(parts), abs=1e-14)


def test_log_likelihood_is_the_sum_over_what_was_seen():
    """Entries, sums and flows, from a mapping of scopes, from a function, and read off a larger table."""
    observations = [
        hc.Poisson([[1, np.nan], [2, 3], [0, 1]], rate=0.5),
        hc.Gaussian([[1.0, 2], [3, 4]], on=(1, 0), sd=2),
        hc.Poisson([4], on=(0, 1), sums=[[1, 0, 0, 1]]),
    ]
    problem = hc.Problem(chain(), 10, observations)
    edge = np.array([[4.0, 1], [2, 3]])
    last = np.array([5.0, 5])
    expected = stats.poisson.logpmf([1, 2, 3, 0, 1], [2.5, 3, 2, 2.5, 2.5]).sum()
    expected += stats.norm.logpdf([1, 2, 3, 4], edge.T.ravel(), 2).sum() + stats.poisson.logpmf(4, 7)
    whole = {(0, 1): edge, (0,): edge.sum(1), (1,): edge.sum(0), (2,): last}
    for tables in (whole, whole.__getitem__, {(0, 1): edge, 2: last}, {(1, 0): edge.T, 2: last}):
        assert problem.log_likelihood(tables) == pytest.approx(expected, abs=1e-12)


def test_log_likelihood_refuses_tables_it_cannot_use():
    """A missing table and one of the wrong size are named."""
    problem = hc.Problem(chain(), 10, hc.Poisson([[1, 2]] * 3))
    with pytest.raises(ValueError, match=r"no table covers the observed \(2,\)"):
        problem.log_likelihood({0: [5, 5], 1: [5, 5]})
    with pytest.raises(ValueError, match=r"must have 2 entries, got 3"):
        problem.log_likelihood({0: [5, 5, 5]})


def traits(model, *observations, population=10):
    return hc.Problem(model, population, observations).core.traits


def test_traits_of_the_shape():
    """Chain, tree or junction tree; sparse or not; the largest clique table."""
    models = awkward_models()
    nobody = traits(chain())
    assert (nobody.shape, nobody.sparse, nobody.largest_table, nobody.variables) == ("chain", False, 4, 3)
    assert traits(chain(csr_array(STEP))).sparse
    assert traits(models["star"]).shape == "tree"
    assert traits(models["tree with unequal domains"]).largest_table == 6
    assert (traits(models["four-cycle"]).shape, traits(models["four-cycle"]).largest_table) == ("junction", 8)
    assert traits(models["chain of length one"]).largest_table == 4


def test_traits_of_the_observations():
    """Closed form, exact, count noise, concavity and the kinds of tables seen."""
    model, y = chain(), [[1, 2]] * 3
    nothing = traits(model)
    assert nothing.all_gaussian
    assert not any([nothing.any_exact, nothing.count_noise, nothing.nodes, nothing.edges, nothing.sums])
    both = traits(model, hc.Gaussian(y, sd=1), hc.Exact([4, 6], on=1))
    assert both.all_gaussian
    assert both.any_exact
    assert not any([both.count_noise, both.poisson_shaped])
    counts = traits(model, hc.Poisson(y), hc.Gaussian(y, sd=1))
    assert counts.count_noise
    assert not counts.all_gaussian
    assert counts.log_concave
    assert counts.entries == 12
    shaped = traits(model, hc.NegativeBinomial(y, dispersion=1), hc.Exact([4, 6], on=1))
    assert shaped.poisson_shaped
    assert not shaped.log_concave
    assert traits(model, hc.Gaussian([1, 2], on=0, covariance=np.eye(2))).correlated
    edges = traits(model, hc.Poisson(np.ones((2, 2)), on=(0, 1)))
    assert edges.edges
    assert not any([edges.nodes, edges.sums])
    assert traits(model, hc.Poisson([3], on=0, sums=[[1, 1]])).sums
    cliques = awkward_models()["two cliques of three"]
    assert traits(cliques, hc.Poisson(np.zeros((2, 2, 3)), on=("a", "b", "c"))).cliques


def test_with_model_keeps_the_counts():
    """Another model of the same variables: the same sites, not bound again, the same as bound anew."""
    problem = hc.Problem(chain(), 10, hc.Poisson([[1, 2]] * 3))
    other = chain(STEP[::-1].copy())
    twin = problem.with_model(other)
    assert twin.model is other
    assert twin.sites is problem.sites
    assert (twin.population, twin.observations) == (problem.population, problem.observations)
    assert twin.core.traits == hc.Problem(other, 10, problem.observations).core.traits


def test_with_model_checks_what_the_model_decides():
    """A model under which a count is impossible, or a scope no clique, is refused; labels are bound anew."""
    problem = hc.Problem(chain(), 10, [hc.Poisson([1, 2], on=2), hc.Poisson(np.ones((2, 2)), on=(0, 1))])
    with pytest.raises(hc.ProblemError, match="time 2, cell 1"):
        problem.with_model(hc.MarkovChain([1.0, 0], [[1.0, 0], [0, 1]], length=3))
    apart = hc.DiscreteModel({0: 2, 1: 2, 2: 2}, {(0, 2): np.zeros((2, 2)), (1, 2): np.zeros((2, 2))})
    with pytest.raises(hc.ProblemError, match="not together in one of its cliques"):
        problem.with_model(apart)
    assert problem.with_model(chain(length=4)).model.variables == (0, 1, 2, 3)


def test_problems_and_their_parts_are_frozen():
    """Nothing of a problem can be reassigned, nor its counts written to."""
    problem = hc.Problem(chain(), 10, hc.Poisson([[1, 2]] * 3))
    with pytest.raises(AttributeError):
        problem.population = 11
    with pytest.raises(AttributeError):
        problem.sites[0].scope = (1,)
    with pytest.raises(ValueError, match="read-only"):
        problem.sites[0].noise.counts[0] = 5
    with pytest.raises(ValueError, match="read-only"):
        problem.observations[0].counts[0] = 5
    assert isinstance(problem.sites[0].noise, Observation)


def test_the_users_array_is_not_shared():
    """Changing the array afterwards does not change the problem."""
    y = np.ones((3, 2))
    problem = hc.Problem(chain(), 10, hc.Poisson(y))
    y[:] = 7
    assert problem.sites[0].noise.counts.tolist() == [1, 1]


def test_one_group_or_tagged_individual_alone():
    """`of` has the model and number of one kind, unseen; a name that nobody has is refused in words, on any graph."""
    step = np.array([[0.9, 0.1], [0.2, 0.8]])
    kinds = {
        "a": hc.Group(hc.MarkovChain([0.5, 0.5], step, length=2), hc.About(9, sd=2)),
        "b": hc.Group(hc.MarkovChain([1, 0], step, length=2), 4),
    }
    tags = hc.Tracks({"id": ["x"], "time": [0], "cell": [1], "group": ["a"]})
    both = hc.Problem(groups=kinds, observations=[hc.Poisson([[6, 7], [8, 5]]), tags])
    assert repr(both.of("a").population) == "About(9, sd=2)"
    assert (both.of("b").population, both.of("b").sites) == (4, ())
    assert both.of("x").population == 1
    ring = hc.DiscreteModel(
        dict.fromkeys("abc", 2), {pair: np.eye(2) for pair in (("a", "b"), ("b", "c"), ("c", "a"))}
    )
    for problem in (both, hc.Problem(ring, 20, hc.Poisson([3, 17], on="a"))):
        with pytest.raises(ValueError, match="no group 'nobody'"):
            problem.of("nobody")
        with pytest.raises(ValueError, match="no group 'nobody'"):
            hc.infer(problem).group("nobody")
