"""The exact law of the counts."""

import decimal
import functools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from tests.graphs import awkward_models
from tests.population.oracle import (
    indicators,
    joint,
    key,
    log_base_measure,
    log_pmf_of_potentials,
    ordered_samples,
)

from headcount.individual import MarkovChain, ModelError
from headcount.population import CGM, CountTables, compositions, log_factorial
from headcount.population._cgm import multinomial

MODELS = awkward_models()
every_model = pytest.mark.parametrize("name", MODELS)


def population_for(name: str) -> int:
    """The largest population whose ordered samples can be listed in no time."""
    return 3 if np.prod(MODELS[name].size(MODELS[name].variables)) <= 16 else 2


@functools.cache
def enumerated(name: str, size: int) -> tuple[CGM, list[CountTables], np.ndarray]:
    """The law, its support, and the probability of every point."""
    law = CGM(MODELS[name], size)
    points = list(law.support())
    return law, points, np.exp([law.log_pmf(t) for t in points])


@every_model
def test_law_and_base_measure_are_those_of_ordered_samples(name):
    """p(n) = Σ p(x¹)…p(x^N) and h(n) = the number of ordered samples with counts n; both forms of f agree."""
    model, size = MODELS[name], population_for(name)
    expected = ordered_samples(model, size)
    law, points, p = enumerated(name, size)
    seen = {}
    for tables, p_n in zip(points, p, strict=True):
        number, probability = expected[key(tables)]
        assert math.exp(log_base_measure(law, tables)) == pytest.approx(number, rel=1e-12)
        assert p_n == pytest.approx(probability, rel=1e-12, abs=0)
        assert math.exp(log_pmf_of_potentials(law, tables)) == pytest.approx(probability, rel=1e-11, abs=0)
        seen[key(tables)] = p_n
    assert seen.keys() == expected.keys()
    assert sum(seen.values()) == pytest.approx(1, abs=1e-12)


@every_model
def test_moments_of_the_enumerated_law(name):
    """E n_A = Nμ_A and cov(n_A, n_B) = N(⟨μ_{A,B}⟩ − μ_A μ_Bᵀ), for every N; N² would be off by N."""
    model = MODELS[name]
    for size in range(1, population_for(name) + 1):
        check_moments(model, *enumerated(name, size))


def check_moments(model, law, points, p):
    cliques = model.junction_tree.cliques
    stacks = [np.array([t.table(c).reshape(-1) for t in points], dtype=float) for c in cliques]
    for a, n_a in zip(cliques, stacks, strict=True):
        np.testing.assert_allclose(p @ n_a, law.mean(a).reshape(-1), rtol=0, atol=1e-10)
        for b, n_b in zip(cliques, stacks, strict=True):
            covariance = (n_a * p[:, None]).T @ n_b - np.outer(p @ n_a, p @ n_b)
            np.testing.assert_allclose(covariance, law.covariance(a, b), rtol=0, atol=1e-10)


@every_model
def test_covariance_of_any_two_margins(name):
    """cov(n_A, n_B) holds for A and B far apart or overlapping, not only for cliques."""
    model = MODELS[name]
    states, p = joint(model)
    scopes = [(v,) for v in model.variables] + [tuple(model.variables[-1:] + model.variables[:1])]
    scopes = [s for s in scopes if len(set(s)) == len(s)]
    law = CGM(model, 7)
    for a in scopes:
        for b in scopes:
            i_a, i_b = indicators(model, states, a), indicators(model, states, b)
            expected = 7 * ((i_a * p[:, None]).T @ i_b - np.outer(p @ i_a, p @ i_b))
            np.testing.assert_allclose(law.covariance(a, b), expected, atol=1e-12)


@every_model
def test_separated_counts_are_independent_given_the_separator(name):
    """n_A ⊥ n_B | n_S: p(a, b, s) p(s) = p(a, s) p(b, s) on the enumerated law."""
    model = MODELS[name]
    _, support, probabilities = enumerated(name, population_for(name))
    points = list(zip(support, probabilities, strict=True))
    cliques = model.junction_tree.cliques
    for a, b, separator in model.junction_tree.edges:
        both, left, right, alone = {}, {}, {}, {}
        for tables, p in points:
            n_a, n_b, n_s = (
                tuple(np.asarray(tables.table(c)).reshape(-1)) for c in (cliques[a], cliques[b], separator)
            )
            for table, at in ((both, (n_a, n_b)), (left, n_a), (right, n_b), (alone, n_s)):
                table[at] = table.get(at, 0.0) + p
        margin = dict(_separator_counts(points, cliques[a], separator))
        for (n_a, n_b), p in both.items():
            assert p * alone[margin[n_a]] == pytest.approx(left[n_a] * right[n_b], rel=1e-10, abs=0)
        assert len(both) >= max(len(left), len(right))


def _separator_counts(points, clique, separator):
    for tables, _ in points:
        yield (
            tuple(tables.table(clique).reshape(-1)),
            tuple(np.asarray(tables.table(separator)).reshape(-1)),
        )


@every_model
def test_what_cannot_happen_has_probability_zero(name):
    """Tables of another N, tables that disagree, and tables on impossible entries all have log p = −∞."""
    model = MODELS[name]
    law = CGM(model, 2)
    assert law.log_pmf(CGM(model, 3).sample(rng=0)) == -np.inf
    states, p = joint(model)
    for impossible in states[p == 0][:3]:
        tables = CountTables.from_samples(model, np.stack([impossible, impossible]))
        assert law.log_pmf(tables) == -np.inf
        assert log_pmf_of_potentials(law, tables) == -np.inf
        assert log_base_measure(law, tables) > -np.inf  # the samples exist; only the model forbids them


def test_disagreeing_tables_have_no_ordered_sample():
    """h(n) = 0 when two cliques differ on their separator."""
    model = MODELS["homogeneous chain"]
    tables = dict(CGM(model, 2).sample(rng=1).tables)
    tables[(0, 1)] = np.array([[2, 0], [0, 0]])
    tables[(1, 2)] = np.array([[0, 0], [1, 1]])
    wrong = CountTables(model, {c: tables[c] for c in model.junction_tree.cliques})
    assert log_base_measure(CGM(model, 2), wrong) == -np.inf
    assert CGM(model, 2).log_pmf(wrong) == -np.inf


def test_a_large_support_is_refused_with_both_numbers():
    """Enumeration says how many tables there may be, and the limit, before it starts."""
    law = CGM(MODELS["chain"], 50)
    with pytest.raises(ModelError, match=r"up to .*e\+.* tables and the limit is 1e\+06"):
        next(law.support())


@every_model
def test_the_bound_on_the_support_is_a_bound(name):
    """No support is larger than its bound, so nothing within the limit is refused wrongly the other way."""
    from headcount.population._cgm import support_bound

    law, points, _ = enumerated(name, 2)
    assert len(points) <= support_bound(law.model, law.means, 2) * (1 + 1e-9)


@given(seed=st.integers(0, 2**32 - 1), cells=st.integers(1, 3), length=st.integers(1, 3))
def test_reversing_time_changes_nothing(seed, cells, length):
    """A chain and its time reversal give the same counts the same probability."""
    rng = np.random.default_rng(seed)
    forward = (
        MarkovChain(
            rng.dirichlet(np.ones(cells)),
            rng.dirichlet(np.ones(cells), (length - 1, cells)),
            times=range(length),
        )
        if length > 1
        else MarkovChain(rng.dirichlet(np.ones(cells)), [])
    )
    backward_steps = []
    for t in range(length - 1, 0, -1):
        together = forward.marginal((t, t - 1))
        backward_steps.append(together / together.sum(axis=1, keepdims=True))
    backward = MarkovChain(forward.marginal((length - 1,)), backward_steps, times=range(length - 1, -1, -1))
    n = CGM(forward, 40).sample(rng=rng)
    turned = CountTables(backward, {c: n.table(c) for c in backward.junction_tree.cliques})
    assert CGM(backward, 40).log_pmf(turned) == pytest.approx(CGM(forward, 40).log_pmf(n), rel=1e-9, abs=1e-9)


@given(seed=st.integers(0, 2**32 - 1))
def test_permuting_states_changes_nothing(seed):
    """Renaming cells permutes the tables and leaves their probability as it is."""
    rng = np.random.default_rng(seed)
    initial, matrix = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3), 3)
    order = rng.permutation(3)
    model = MarkovChain(initial, matrix, length=3)
    permuted = MarkovChain(initial[order], matrix[np.ix_(order, order)], length=3)
    n = CGM(model, 25).sample(rng=rng)
    m = CountTables(permuted, {c: n.table(c)[np.ix_(order, order)] for c in model.junction_tree.cliques})
    assert CGM(permuted, 25).log_pmf(m) == pytest.approx(CGM(model, 25).log_pmf(n), rel=1e-11)


def test_the_law_stays_accurate_at_a_million_millions():
    """The log-probability at N = 10¹² equals the product of binomials in exact arithmetic to 1e-9."""
    size = 10**12
    chain = MarkovChain([0.25, 0.75], [[0.5, 0.5], [0.125, 0.875]], length=2)
    n = CGM(chain, size).sample(rng=3)
    a, b = (int(x) for x in n.table((0,)))
    stay, back = (int(x) for x in n.table((0, 1))[:, 0])
    expected = log_binomial(size, a, "0.25") + log_binomial(a, stay, "0.5") + log_binomial(b, back, "0.125")
    assert CGM(chain, size).log_pmf(n) == pytest.approx(float(expected), abs=1e-9)


def log_binomial(total: int, count: int, p: str) -> decimal.Decimal:
    """Log C(n, k) pᵏ (1 − p)ⁿ⁻ᵏ in 60 digits, for n, k and n − k in the thousands of millions."""
    with decimal.localcontext(prec=60):
        two_pi = 2 * decimal.Decimal("3.14159265358979323846264338327950288419716939937510582097494")

        def log_factorial(n: int) -> decimal.Decimal:
            x = decimal.Decimal(n)
            return x * x.ln() - x + (two_pi * x).ln() / 2 + 1 / (12 * x) - 1 / (360 * x**3)

        choose = log_factorial(total) - log_factorial(count) - log_factorial(total - count)
        return choose + count * decimal.Decimal(p).ln() + (total - count) * (1 - decimal.Decimal(p)).ln()


def test_sparse_chains_have_the_law_of_dense_ones():
    """Sparse transitions give sparse flows, the same probabilities, and never a dense table on the way."""
    from scipy import sparse

    matrix = np.array([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75], [0.0, 0.0, 1.0]])
    slim = MarkovChain([0.5, 0.5, 0.0], sparse.csr_array(matrix), length=4)
    full = MarkovChain([0.5, 0.5, 0.0], matrix, length=4)
    n = CGM(slim, 1000).sample(rng=5)
    assert all(sparse.issparse(n.tables[c]) for c in slim.junction_tree.cliques)
    m = CountTables(full, {c: n.tables[c].toarray() for c in full.junction_tree.cliques})
    assert n.check() is n
    for log_pmf in (CGM.log_pmf, log_pmf_of_potentials):
        assert log_pmf(CGM(slim, 1000), n) == pytest.approx(log_pmf(CGM(full, 1000), m))
    off = dict(n.tables) | {(0, 1): sparse.csr_array(np.array([[0, 0, 1000], [0, 0, 0], [0, 0, 0]]))}
    assert (
        CGM(slim, 1000).log_pmf(CountTables(slim, {c: off[c] for c in slim.junction_tree.cliques})) == -np.inf
    )


@pytest.mark.parametrize("population", [0, -1, 1.5, "many", 2**53 + 1, float("nan"), True, None, 1j])
def test_a_population_is_a_whole_number(population):
    """N must be an integer from 1 to 2⁵³; the message says so."""
    with pytest.raises(ModelError, match="whole number"):
        CGM(MODELS["chain"], population)


def test_log_factorial_counts():
    """0! = 1! = 1, 2! = 2, 5! = 120."""
    np.testing.assert_allclose(np.exp(log_factorial([0, 1, 2, 5])), [1, 1, 2, 120])


def test_compositions_are_all_and_different():
    """C(5 + 4 − 1, 4 − 1) = 56 rows, each summing to 5, none twice."""
    rows = compositions(5, 4)
    assert len(np.unique(rows, axis=0)) == len(rows) == 56
    assert np.all(rows.sum(axis=1) == 5)
    assert np.all(rows >= 0)


@pytest.mark.parametrize("total", [32_767, 32_768, 70_000])
def test_compositions_of_many(total):
    """Every part is held whole, above the range of 16 bits too."""
    rows = compositions(total, 2)
    np.testing.assert_array_equal(rows[:, 0], np.arange(total + 1))
    np.testing.assert_array_equal(rows[:, 1], np.arange(total, -1, -1))


def test_nothing_to_share_among_none():
    """Zero is the empty sum, once; nothing else is."""
    assert compositions(0, 0).shape == (1, 0)
    assert compositions(3, 0).shape == (0, 0)


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
