"""Both samplers against the enumeration, within their own Monte-Carlo error.

A comparison looks at every entry of every node and clique: z = (estimate − exact) / standard error, batch means of 4 × 20
batches. It fails above 5.5. With about 900 entries in all and t-distributed z (79 degrees of freedom, P(|t| > 5.5) = 5e-7), a
correct sampler would fail the whole file with probability below 5e-4 over seeds; the seeds are fixed.
"""

import subprocess
import sys

import numpy as np
import pytest
from reproduction.rivals import Gibbs
from tests.engines.sampler_cases import cases, scopes
from tests.graphs import awkward_models

import headcount as hc
from headcount.engines.exact._count_states import count_state_beliefs
from headcount.engines.exact._enumerate import enumerated
from headcount.engines.sampling import _arrays
from headcount.engines.sampling._path_gibbs import PathGibbs
from headcount.individual import DiscreteModel, MarkovChain
from headcount.observe import Gaussian, Poisson, Problem, ProblemError
from headcount.posterior._beliefs import Status

CASES = cases()
PATHS = PathGibbs(burn_in=120, sweeps=1000)
TABLES = Gibbs(burn_in=4000, moves=100_000)
LIMIT = 5.5


def run(engine, problem, seed=1):
    return engine.run(problem.core, rng=np.random.default_rng(seed), progress=False)


def furthest(beliefs, exact, problem):
    """The largest |z| over all entries."""
    worst = 0.0
    for scope in scopes(problem):
        error = beliefs.error(scope) + 1e-9 * problem.population
        worst = max(worst, float(np.max(np.abs(beliefs.mean(scope) - exact.mean(scope)) / error)))
    return worst


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "engine", [PATHS, PathGibbs(burn_in=120, sweeps=1000, proposals=False)], ids=["default", "no proposals"]
)
def test_paths_agree_with_enumeration(name, engine):
    """Node and flow means of the path sampler are the exact ones, with whole-path proposals and without."""
    outcome = run(engine, CASES[name])
    assert outcome.status is Status.SAMPLED
    assert furthest(outcome.beliefs, enumerated(CASES[name].core), CASES[name]) < LIMIT


@pytest.mark.parametrize("name", [n for n in CASES if "structural" not in n])
def test_tables_agree_with_enumeration(name):
    """Node and flow means of the table sampler are the exact ones, on chains and on trees."""
    outcome = run(TABLES, CASES[name])
    assert outcome.status is Status.SAMPLED
    assert furthest(outcome.beliefs, enumerated(CASES[name].core), CASES[name]) < LIMIT


def _seen_everywhere(model, population):
    """Poisson counts of every variable, drawn around the expected ones with a background so that none is impossible."""
    rng = np.random.default_rng(11)
    counts = {v: rng.poisson(population * model.marginal((v,))).astype(float) for v in model.variables}
    return Problem(model, population, [Poisson(counts, background=0.1)])


@pytest.mark.parametrize("name", [n for n, m in awkward_models().items() if m.rooted() is not None])
def test_paths_agree_with_enumeration_on_every_awkward_tree(name):
    """Chains, stars, separate parts, single cells, zeros: same means as the enumeration."""
    problem = _seen_everywhere(awkward_models()[name], 2)
    assert furthest(run(PATHS, problem).beliefs, enumerated(problem.core), problem) < LIMIT


@pytest.mark.parametrize("engine", [PATHS, TABLES])
def test_the_comparison_sees_a_wrong_likelihood(engine):
    """Against the answer for one count changed by one, the same comparison fails by far."""
    other = Problem(CASES["a missing count"].model, 4, [Poisson([[1, 2], [np.nan, 1], [3, 1]])])
    assert furthest(run(engine, CASES["a missing count"]).beliefs, enumerated(other.core), other) > 2 * LIMIT


@pytest.mark.parametrize("engine", [PATHS, TABLES])
@pytest.mark.parametrize("name", ["three cells", "observed flows", "star"])
def test_spreads_agree_with_enumeration(engine, name):
    """Variances to 15 % where they exceed 0.05 (4000 nearly independent sweeps: about 2.2 % standard error, 6 % for rare ones)."""
    exact, found = enumerated(CASES[name].core), run(engine, CASES[name]).beliefs
    for scope in scopes(CASES[name]):
        wide = exact.variance(scope) > 0.05
        np.testing.assert_allclose(found.variance(scope)[wide], exact.variance(scope)[wide], rtol=0.15)
    first, last = (CASES[name].model.variables[k] for k in (0, -1))
    between = exact.covariance((first,), (last,))
    np.testing.assert_allclose(
        found.covariance((first,), (last,)), between, atol=0.15 * np.abs(between).max() + 0.02
    )


@pytest.mark.parametrize("engine", [PATHS, TABLES])
def test_means_are_consistent_non_negative_and_sum_to_the_population(engine):
    """Flows add up to nodes at both ends to 1e-9 N, every entry ≥ 0, every table sums to N; and so does every draw."""
    problem = CASES["three cells"]
    found = run(engine, problem).beliefs
    assert found.promises.non_negative
    assert found.promises.consistent
    for a, b in [(0, 1), (1, 2)]:
        table = found.mean((a, b))
        assert table.min() >= 0
        np.testing.assert_allclose(table.sum(axis=1), found.mean((a,)), atol=1e-9 * 3)
        np.testing.assert_allclose(table.sum(axis=0), found.mean((b,)), atol=1e-9 * 3)
        assert table.sum() == pytest.approx(3)
    draws = found.sample(30, rng=np.random.default_rng(0), integer=True)
    np.testing.assert_array_equal(draws[(0, 1)].sum(axis=1), draws[(1, 2)].sum(axis=2))
    assert np.all(draws[(0, 1)].sum(axis=(1, 2)) == 3)


def cumulative(exact, v):
    """P(n ≤ k | y) for the counts of a node from its least to its largest one, (counts, cells)."""
    return exact.count_law((v,))[1].cumsum(axis=0)


@pytest.mark.parametrize("engine", [PATHS, TABLES])
def test_quantiles_of_nodes_are_close_to_the_exact_ones(engine):
    """Where the exact cumulative probability is not within 0.04 of the level, the sample quantile is the exact one."""
    problem = CASES["three cells"]
    exact, found = enumerated(problem.core), run(engine, problem).beliefs
    for level in (0.1, 0.5, 0.9):
        for v in problem.model.variables:
            clear = np.all(np.abs(cumulative(exact, v) - level) > 0.04, axis=0)
            np.testing.assert_array_equal(
                found.quantile((v,), level)[clear], exact.quantile((v,), level)[clear]
            )


@pytest.mark.parametrize(
    "engine",
    [
        PathGibbs(burn_in=30, sweeps=60, batches=3, draws=5),
        Gibbs(burn_in=100, moves=3000, batches=3, draws=100),
    ],
    ids=["paths", "tables"],
)
def test_the_seed_fixes_every_bit_and_the_threads_none(engine):
    """Same seed, same bits, whatever the number of workers; another seed, other bits; NumPy's global state untouched."""
    problem = CASES["observed flows"]
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    one, again, alone, other = (
        run(e, problem, seed).beliefs
        for e, seed in [
            (engine, 7),
            (engine, 7),
            (type(engine)(**{**vars(engine), "workers": 1}), 7),
            (engine, 8),
        ]
    )
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    for scope in scopes(problem):
        np.testing.assert_array_equal(one.mean(scope), again.mean(scope))
        np.testing.assert_array_equal(one.mean(scope), alone.mean(scope))
        np.testing.assert_array_equal(one.variance(scope), again.variance(scope))
    assert not np.array_equal(one.mean((0, 1)), other.mean((0, 1)))
    np.testing.assert_array_equal(one.node_draws, alone.node_draws)


def test_a_start_near_the_data_changes_nothing_but_the_start():
    """Paths first drawn from a tilted model lead to the same answer."""
    problem = CASES["a missing count"]
    tilted, _ = problem.model.tilt({(0,): np.array([-0.5, 0.3]), (2,): np.array([0.4, -0.2])})
    engine = PathGibbs(burn_in=120, sweeps=2000, start=tilted)
    assert furthest(run(engine, problem).beliefs, enumerated(problem.core), problem) < LIMIT


def test_large_populations_use_the_closed_form_and_agree_with_the_exact_recursion(monkeypatch):
    """Two cells, N = 400, tables forbidden: Poisson in closed form gives the count-state answer, nodes and flows."""
    chain = MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=4)
    problem = Problem(chain, 400, [Poisson([[260, 130], [250, 160], [np.nan, np.nan], [200, 230]])])
    exact = count_state_beliefs(problem.core)
    monkeypatch.setattr(_arrays, "TABLE_ENTRIES", 0)
    found = run(PathGibbs(burn_in=100, sweeps=300), problem).beliefs
    assert found.arrays.slots.table.size == 0
    assert found.diagnostics["whole_path_proposals"]
    assert furthest(found, exact, problem) < LIMIT
    for t in range(4):
        np.testing.assert_allclose(found.variance((t,)), exact.variance((t,)), rtol=0.2)


def test_error_bars_are_honest():
    """Over 60 seeds the mean squared z of each of six node entries lies in [0.3, 2.2] (chi-square: wrong alarm below 1e-5)."""
    problem = CASES["three cells"]
    exact = enumerated(problem.core)
    engine = PathGibbs(burn_in=60, sweeps=300, draws=0)
    squares = []
    for seed in range(60):
        found = run(engine, problem, seed).beliefs
        squares.append([((found.mean(s) - exact.mean(s)) / found.error(s)) ** 2 for s in [(0,), (2,)]])
    ratio = np.mean(squares, axis=0)
    assert ratio.min() > 0.3
    assert ratio.max() < 2.2


def test_smoothing_beats_counting():
    """Fifty individuals, three cells: blended node means have less than half the error of counting."""
    rng = np.random.default_rng(4)
    chain = MarkovChain(rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3), size=3), length=4)
    problem = Problem(chain, 50, [Poisson(rng.poisson(50 / 3, size=(4, 3)))])
    exact = count_state_beliefs(problem.core)
    smooth, counted = [], []
    for seed in range(6):
        found = run(PathGibbs(burn_in=100, sweeps=200, draws=20), problem, seed).beliefs
        nodes = found.node_draws.mean(axis=(0, 1))
        for t in range(4):
            smooth.append(np.abs(found.mean((t,)) - exact.mean((t,))).sum())
            counted.append(np.abs(nodes[found.arrays.node(t)] - exact.mean((t,))).sum())
    assert np.mean(smooth) < 0.5 * np.mean(counted)


@pytest.mark.parametrize(
    "engine",
    [
        PathGibbs(burn_in=30, sweeps=60, batches=3, draws=0),
        Gibbs(burn_in=4000, moves=3000, batches=3, draws=100, configurations=0),
    ],
    ids=["paths", "tables"],
)
def test_a_run_without_configurations_still_gives_its_tables(engine, tmp_path):
    """Frames, intervals and files come from moments and node draws; only joint draws are refused, in words."""
    problem = CASES["three cells"]
    found = hc.infer(problem, engine, rng=1, strict=False)
    for kind in ("nodes", "flows"):
        frame = found.to_frame(kind)
        assert (frame["lower"] <= frame["upper"]).all()
        assert frame["upper"].max() > 0
    found.save(tmp_path / "posterior.nc")
    assert (tmp_path / "posterior.nc").stat().st_size > 0
    with pytest.raises(ValueError, match="no whole configurations were kept"):
        found.sample(2, rng=1)


def test_too_few_draws_for_r_hat_are_not_called_mixed():
    """Three draws per chain: R-hat is unknown, so the status is not "sampled" and the residual is infinite."""
    outcome = run(PathGibbs(burn_in=12, sweeps=3, batches=2), CASES["three cells"])
    assert outcome.status is Status.BUDGET
    assert np.isnan(outcome.beliefs.diagnostics["r_hat"])
    assert outcome.residual == np.inf


@pytest.mark.parametrize("engine", [PathGibbs(), Gibbs()], ids=["paths", "tables"])
def test_refusals_say_what_and_why(engine):
    """Loops in the graph and correlated errors are refused by name; all reasons at once."""
    agree = np.log([[3.0, 1.0], [1.0, 3.0]])
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    ring = DiscreteModel(dict.fromkeys("abcd", 2), dict.fromkeys(pairs, agree))
    with pytest.raises(ProblemError, match="chain or a tree"):
        run(engine, Problem(ring, 3, [Poisson([1.0, 2.0], on="a")]))
    chain = MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=2)
    noise = Gaussian([1.0, 2.0], covariance=[[1.0, 0.5], [0.5, 1.0]], on=1)
    with pytest.raises(ProblemError, match="correlated"):
        run(engine, Problem(chain, 3, [noise]))


def test_tables_refuse_structural_zeros_by_name():
    """The message counts the zeros of each step, names the first, and points to PathGibbs."""
    with pytest.raises(
        ProblemError, match=r"structural zeros between 0 and 1 .*state 0 to state 2.*PathGibbs"
    ):
        run(TABLES, CASES["structural zeros"])


def test_cells_nobody_reaches_are_not_structural_zeros():
    """A start in one cell leaves empty rows, which the moves do not need."""
    assert run(TABLES, CASES["deterministic start"]).status is Status.SAMPLED


def test_no_possible_state_is_an_error_that_names_the_counts():
    """Too short a burn-in to reach the data raises, with the counts still impossible and what to do."""
    absorbing = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    chain = MarkovChain([1.0, 0.0, 0.0], absorbing, length=3)
    problem = Problem(chain, 1, [Poisson([[1, 0, 0], [0, 1, 0], [1, 0, 0]])])  # nobody comes back
    with pytest.raises(ProblemError, match=r"found no state .*burn_in = 12;.*raise burn_in"):
        run(PathGibbs(burn_in=12, sweeps=20), problem)


@pytest.mark.parametrize(
    ("engine", "settings", "message"),
    [
        (
            PathGibbs,
            {"chains": 0, "thin": 0},
            r"chains must be .*at least 1, got 0; thin must be .*at least 1, or None, got 0",
        ),
        (PathGibbs, {"sweeps": -1}, "sweeps must be a whole number, at least 1, got -1"),
        (PathGibbs, {"burn_in": float("nan")}, "burn_in must be a whole number, at least 0, got nan"),
        (PathGibbs, {"sweeps": 5}, r"sweeps \(5\) must be at least batches \(20\)"),
        (PathGibbs, {"proposals": "yes"}, "proposals must be True or False, or None"),
        (PathGibbs, {"start": 3}, "start must be a model"),
        (
            Gibbs,
            {"burn_in": -1, "workers": 0},
            "burn_in must be .*at least 0, got -1; workers must be .*got 0",
        ),
        (Gibbs, {"moves": 5}, r"moves \(5\) must be at least draws \(500\)"),
        (Gibbs, {"tolerance": "low"}, "tolerance must be a number above 0, got 'low'"),
    ],
)
def test_settings_are_checked_when_given(engine, settings, message):
    """Every wrong setting is in one message, with its range."""
    with pytest.raises(ValueError, match=message):
        engine(**settings)


def test_importing_the_engines_leaves_numba_alone():
    """The compiler is loaded when a kernel first runs, not before."""
    code = "import sys, headcount.engines; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
