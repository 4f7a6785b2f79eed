"""Drawing counts: the right law, at any population, and nothing where nothing can be."""

import numpy as np
import pytest
from scipy import sparse
from tests.graphs import awkward_models

from headcount.individual import MarkovChain, ModelError
from headcount.population import CGM
from headcount.population._cgm import multinomial

MODELS = awkward_models()
every_model = pytest.mark.parametrize("name", MODELS)


@every_model
def test_draws_follow_the_law(name):
    """800 draws of a population of one or two fill the support as its probabilities say (chi-square)."""
    from scipy import stats

    law = CGM(MODELS[name], 1 if len(MODELS[name].variables) > 3 else 2)
    support = {_key(t): np.exp(law.log_pmf(t)) for t in law.support()}
    generator = np.random.default_rng(8)
    found = dict.fromkeys(support, 0)
    draws = 800
    for _ in range(draws):
        found[_key(law.sample(rng=generator))] += 1  # a KeyError here is a draw outside the support
    p = np.array(list(support.values()))
    seen = np.array(list(found.values()))
    common = draws * p >= 5
    expected = np.append(draws * p[common], draws * p[~common].sum())
    observed = np.append(seen[common], seen[~common].sum())
    held = expected > 0
    if held.sum() > 1:
        statistic = ((observed - expected)[held] ** 2 / expected[held]).sum()
        assert stats.chi2(held.sum() - 1).sf(statistic) > 1e-4


def _key(tables):
    return tuple(tuple(tables.table(c).reshape(-1)) for c in tables.model.junction_tree.cliques)


@every_model
@pytest.mark.parametrize("size", [10**9, 10**12])
def test_huge_populations_are_drawn_at_once(name, size):
    """N = 10⁹ and 10¹²: consistent, within six sd of the mean, nothing on impossible entries."""
    model = MODELS[name]
    law = CGM(model, size)
    n = law.sample(rng=6).check()
    assert n.population == size
    for clique in model.junction_tree.cliques:
        mean, table = law.mean(clique), n.table(clique)
        mu = mean / size
        assert (np.abs(table - mean) <= 6 * np.sqrt(size * mu * (1 - mu)) + 1e-3).all()
        assert (table[mean == 0] == 0).all()


def test_rounding_never_leaks_into_an_impossible_entry():
    """Ten times 0.1 and then 0: at N = 10¹⁵ subtracting probabilities would leave some for the last entry."""
    weights = np.array([[0.1] * 10 + [0.0], [0.0] + [0.1] * 10])
    generator = np.random.default_rng(0)
    for _ in range(50):
        drawn = multinomial(np.array([10**15, 10**15]), weights, rng=generator)
        assert drawn.sum(axis=1).tolist() == [10**15, 10**15]
        assert drawn[0, -1] == 0
        assert drawn[1, 0] == 0


def test_probabilities_are_checked():
    """Negative and NaN weights, and someone to place where nothing is possible, are errors."""
    generator = np.random.default_rng(0)
    for bad in ([[0.5, -0.5]], [[np.nan, 1.0]], [[np.inf, 1.0]]):
        with pytest.raises(ModelError, match="finite and 0 or more"):
            multinomial(np.array([3]), np.array(bad), rng=generator)
    with pytest.raises(ModelError, match="without a possible entry"):
        multinomial(np.array([3]), np.array([[0.0, 0.0]]), rng=generator)
    assert multinomial(np.array([0]), np.array([[0.0, 0.0]]), rng=generator).tolist() == [[0, 0]]


@every_model
def test_seeds_reproduce(name):
    """The same seed gives the same tables; an int and its generator are the same seed; another differs."""
    law = CGM(MODELS[name], 10**6)
    first, again = law.sample(rng=3), law.sample(rng=np.random.default_rng(3))
    assert _key(first) == _key(again)
    if sum(1 for c in law.model.junction_tree.cliques if (law.mean(c) > 0).sum() > 1):
        assert _key(first) != _key(law.sample(rng=4))


def test_sparse_chains_draw_the_same_law():
    """Sparse flows of a banded chain: consistent, on the pattern, right means; ten thousand cells."""
    cells = 10_000
    band = sparse.diags_array([np.full(cells, 0.5), np.full(cells - 1, 0.5)], offsets=[0, 1], format="lil")
    band[cells - 1, cells - 1] = 1.0
    initial = np.zeros(cells)
    initial[0] = 1.0
    chain = MarkovChain(initial, sparse.csr_array(band), length=5)
    n = CGM(chain, 10**6).sample(rng=1).check()
    last = n.table((4,))
    expected = 10**6 * np.array([1, 4, 6, 4, 1]) / 16
    assert last[5:].sum() == 0
    assert (np.abs(last[:5] - expected) < 6 * np.sqrt(expected)).all()
