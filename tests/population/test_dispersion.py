"""Individuals that move together: the arguments, and the exact law of parties."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import gammaln
from tests.structure.cases import Where

from headcount.individual import MarkovChain, ModelError, RootedTree, tilted
from headcount.population import DispersionEstimate, Flocks, Overdispersion, ToEstimate, parse_dispersion
from headcount.structure import TreeStructure

N = 4
PARTIES = (np.array([2.0]), np.array([2.0, 1.0]), np.array([1.0, 1.0]))
"""The root moves in pairs; from the first cell pairs, from the second single individuals; then all alone."""


def shared_out(count: int, party: int, p: np.ndarray):
    """All rows of one cell's moves with their probabilities: count/party parties, each to one cell."""
    units = count // party
    for first in range(units + 1):
        split = np.array([first, units - first])
        log_p = gammaln(units + 1) - gammaln(split + 1).sum() + (split * np.log(p)).sum()
        yield party * split, math.exp(log_p)


def all_tables(tree: RootedTree):
    """(n_0, table of step 1, table of step 2, probability) of every population, listed."""
    for n0, p0 in shared_out(N, 2, tree.initial):
        rows = [
            shared_out(int(n), int(k), p) for n, k, p in zip(n0, PARTIES[1], tree.transitions[1], strict=True)
        ]
        for (a, pa), (b, pb) in itertools.product(*map(list, rows)):
            first = np.array([a, b])
            rows = [
                shared_out(int(n), 1, p) for n, p in zip(first.sum(axis=0), tree.transitions[2], strict=True)
            ]
            for (c, pc), (d, pd) in itertools.product(*map(list, rows)):
                yield n0, first, np.array([c, d]), p0 * pa * pb * pc * pd


@pytest.fixture
def dispersed(rng: np.random.Generator) -> RootedTree:
    chain = MarkovChain(
        rng.dirichlet([2.0, 2.0]), [rng.dirichlet([2.0, 2.0], 2), rng.dirichlet([2.0, 2.0], 2)]
    )
    tree = chain.rooted()
    return RootedTree(tree.variables, tree.parent, tree.initial, tree.transitions, PARTIES)


def test_the_gain_and_the_tilted_moments_are_those_of_all_populations_listed(dispersed, rng):
    """log E e^{g·n} = N (gain); under e^{g·n} counts have means Nμ' and exactly the covariance of the tilted structure."""
    nodes = [rng.normal(size=2) for _ in range(3)]
    edges = [None, rng.normal(size=(2, 2)), rng.normal(size=(2, 2))]
    entries, weights = [], []
    for n0, first, second, p in all_tables(dispersed):
        n1, n2 = first.sum(axis=0), second.sum(axis=0)
        g = (
            n0 @ nodes[0]
            + n1 @ nodes[1]
            + n2 @ nodes[2]
            + (first * edges[1]).sum()
            + (second * edges[2]).sum()
        )
        entries.append(np.concatenate([n0, n1, n2, first.ravel(), second.ravel()]))
        weights.append(p * math.exp(g))
    table, weight = np.array(entries), np.array(weights)
    gain, made = tilted(dispersed, nodes, edge_potentials=edges)
    initial, transitions = made.initial, made.transitions
    assert N * gain == pytest.approx(math.log(weight.sum()), abs=1e-12)
    weight /= weight.sum()
    mean = weight @ table
    structure = TreeStructure(dispersed.with_law(initial, transitions), N, ())
    np.testing.assert_allclose(np.concatenate(structure.means), mean[:6], rtol=0, atol=1e-12)
    exact = (table - mean).T @ (weight[:, None] * (table - mean))
    field = structure.field((), ())
    scopes = [(0,), (1,), (2,), (0, 1), (1, 2)]
    found = np.block([[field.covariance(a, b) for b in scopes] for a in scopes])
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-11)
    np.testing.assert_allclose(
        np.concatenate([field.variance(s).ravel() for s in scopes]), np.diagonal(exact), rtol=0, atol=1e-11
    )


def test_draws_of_the_structure_have_the_parties_covariance(dispersed, rng):
    """20 000 Gaussian draws: every variance within 6 of its standard errors (a false alarm in 1e7 runs)."""
    structure = TreeStructure(dispersed, N, ())
    field = structure.field((), ())
    drawn = field.sample(20_000, rng=rng)
    for scope in ((0, 1), (1, 2)):
        variance = field.variance(scope)
        np.testing.assert_allclose(
            drawn[scope].var(axis=0), variance, rtol=6 * math.sqrt(2 / 20_000), atol=1e-12
        )


@pytest.mark.parametrize(
    "text",
    [
        "flocks:5",
        "rho:0.01",
        "phi:3.0",
        "rho:0.1,initial=0.02",
        "estimate",
        "estimate:flocks",
    ],
)
def test_text_and_value_are_one(text):
    """What is parsed says the same text again."""
    assert parse_dispersion(parse_dispersion(text).text) == parse_dispersion(text)


def test_parsed_values():
    """Each form of the text."""
    assert parse_dispersion("flocks:5") == Flocks(5)
    assert parse_dispersion("rho:0.01") == Overdispersion(rho=0.01)
    assert parse_dispersion("phi:3,initial=2") == Overdispersion(phi=3, initial=2)
    assert parse_dispersion("phi:3") == Overdispersion(phi=3)
    assert parse_dispersion("rho:.01") == Overdispersion(rho=0.01)
    assert parse_dispersion("estimate") == ToEstimate()
    assert parse_dispersion("estimate:rho") == ToEstimate("rho")
    assert parse_dispersion("estimate:rho:hour") == ToEstimate("rho", by="hour")
    assert parse_dispersion("estimate::24") == ToEstimate(by=24)


@pytest.mark.parametrize(
    "text", ["", "flocks", "flocks:many", "phi:", "phi:size=3", "herds:2", "estimate:herds", "rho:"]
)
def test_other_text_is_refused_with_what_would_do(text):
    """The message names the forms there are."""
    with pytest.raises(ModelError, match="give"):
        parse_dispersion(text)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Flocks(0.5),
        lambda: Flocks(np.inf),
        lambda: Overdispersion(),
        lambda: Overdispersion(phi=2, rho=0.1),
        lambda: Overdispersion(phi=0),
        lambda: Overdispersion(phi=[1, -1]),
        lambda: Overdispersion(phi="two"),
        lambda: Overdispersion(rho=1),
        lambda: Overdispersion(rho=-0.1),
        lambda: Overdispersion(rho=[0.1, 1.0]),
        lambda: ToEstimate("herds"),
        lambda: Overdispersion(rho=0.1, initial=1.0),
        lambda: Overdispersion(phi=2, initial=0),
    ],
)
def test_values_that_cannot_be_are_refused(make):
    """Sizes below one, factors not above zero, correlations outside [0, 1)."""
    with pytest.raises(ModelError):
        make()


def test_rho_by_step():
    """Steps that are not named have none; a part of the steps keeps its own."""
    overdispersion = Overdispersion(rho={1: 0.5, 2: [0.1, 0.2]})
    counts = np.array([3.0, 11.0])
    assert overdispersion.party(1, counts).tolist() == [2.0, 6.0]
    assert overdispersion.party(2, counts).tolist() == [1.2, 3.0]
    assert overdispersion.party(3, counts).tolist() == [1.0, 1.0]
    assert overdispersion.among((0, 1)) == Overdispersion(rho={1: 0.5})
    assert Overdispersion(rho={1: 0.0}).is_none
    with pytest.raises(ModelError, match=r"rho\[1\]"):
        Overdispersion(rho={1: 1.5})


@pytest.mark.parametrize("squares", [3, 8, 400])
def test_the_interval_of_a_mean_of_few_squares_holds_its_expectation(squares, rng):
    """phi estimated as a mean of m squares, standard error √(2/m) of its logarithm: 90 % of the intervals hold phi, m however small."""
    found = rng.chisquare(squares, 4000) / squares
    made = [DispersionEstimate("phi", np.log(x), np.sqrt(2 / squares), -9.0, 9.0) for x in found]
    assert np.mean([one.lower <= 1.0 <= one.upper for one in made]) == pytest.approx(0.9, abs=0.02)


def test_one_is_nothing():
    """Factors of one and correlations of zero are independent individuals."""
    assert Flocks(1).is_none
    assert Overdispersion(phi=[1.0, 1.0]).is_none
    assert Overdispersion(phi={1: 1.0}, initial=1.0).is_none
    assert Overdispersion(rho=0).is_none
    assert not Overdispersion(rho=0, initial=0.1).is_none
    assert not Overdispersion(phi={1: 1.0, 2: [1.0, 2.0]}).is_none


def test_the_compiled_solver_takes_the_factors(dispersed, rng):
    """Means and variances at sites on nodes, by the compiled solver and by the two passes that keep covariances."""
    sites = [Where((v,), np.arange(2)) for v in range(3)]
    structure = TreeStructure(dispersed, N, sites)
    assert structure._compiled_cells is not None
    tau, nu = [rng.gamma(1.0, 0.3, 2) for _ in sites], [rng.normal(size=2) for _ in sites]
    found, field = structure.solve(tau, nu), structure.field(tau, nu)
    for k, site in enumerate(sites):
        np.testing.assert_allclose(found.mean[k], field.mean(site.scope), rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.variance[k], field.variance(site.scope), rtol=0, atol=1e-12)
