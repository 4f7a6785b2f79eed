"""Exact counts on sparse maps: flows have the law of the sum over all tables, and a sampler that cannot reach it says so."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from benchmarks.exact_tables import judge, problem
from scipy.special import gammaln
from tests.engines.sums_over_tables import chain_moments, table_moments, varying_rows

import headcount as hc
from headcount.engines import PathGibbs, TableBP
from headcount.engines.sampling import _path_gibbs, _worms
from headcount.engines.sampling._worms import free_entries, never_moved, possible_table
from headcount.solve.raking import raked_tilts

QUICK = PathGibbs(sweeps=4000, burn_in=300, draws=10, workers=1)


def ring(cells: int, each: int, stay: float, **more: object) -> hc.Problem:
    """Everybody stays or goes on to the next cell; before and after each cell has the same count."""
    step = stay * np.eye(cells) + (1 - stay) * np.roll(np.eye(cells), 1, axis=1)
    chain = hc.MarkovChain(np.ones(cells) / cells, step[None])
    return hc.Problem(chain, cells * each, hc.Exact(np.full((2, cells), float(each))), **more)


def ring_law(cells: int, each: int, stay: float) -> tuple[float, float]:
    """The same number k moves on from every cell, with weight (each choose k)^cells."""
    k = np.arange(each + 1)
    choose = np.array([np.prod([(each - a) / (a + 1) for a in range(n)]) for n in k])
    w = (choose * (1 - stay) ** k * stay ** (each - k)) ** cells
    w /= w.sum()
    mean = float(w @ k)
    return mean, float(np.sqrt(w @ (k - mean) ** 2))


@pytest.mark.parametrize("engine", [TableBP(), QUICK], ids=["TableBP", "PathGibbs"])
@pytest.mark.parametrize(("cells", "each", "stay"), [(4, 2, 0.5), (6, 10, 0.8), (8, 5, 0.7)])
def test_a_one_way_ring_turns(cells, each, stay, engine):
    """The only free direction turns the whole ring: the number of movers has its exact mean and sd."""
    post = hc.infer(ring(cells, each, stay), engine, rng=1)
    mean, sd = ring_law(cells, each, stay)
    assert post.beliefs.mean((0, 1))[0, 1] == pytest.approx(mean, abs=0.1 * sd)
    assert np.sqrt(post.beliefs.variance((0, 1))[0, 1]) == pytest.approx(sd, rel=0.1)


@pytest.mark.parametrize(
    ("cells", "each", "stay", "noise"),
    [
        (4, 40, 0.7, lambda y, **on: hc.Binomial(np.round(0.95 * y), detection=0.95, **on)),
        (6, 10, 0.8, lambda y, **on: hc.Poisson(3.0 * y, rate=3.0, **on)),
        (5, 6, 0.6, lambda y, **on: hc.Gaussian(y + 0.4, sd=1.0, **on)),
    ],
)
def test_readings_of_moves_choose_among_the_tables_of_a_ring(cells, each, stay, noise):
    """Between exact counts a ring has one free number; what is read of some moves weighs it, and the default has that law."""
    moved, k = round(each * (1 - stay)), np.arange(each + 1.0)
    seen = np.where(np.roll(np.eye(cells), 1, axis=1) > 0, float(moved), np.nan)
    seen[0] = np.nan
    plain = ring(cells, each, stay)
    asked = hc.Problem(plain.model, plain.population, [*plain.observations, noise(seen, on=(0, 1))])
    log_w = cells * (gammaln(each + 1) - gammaln(k + 1) - gammaln(each - k + 1))
    log_w += cells * (k * np.log(1 - stay) + (each - k) * np.log(stay))
    one = noise(np.full(1, float(moved)))
    log_w += (cells - 1) * np.array([float(one.log_prob(np.array([n]))[0]) for n in k])
    w = np.exp(log_w - log_w.max())
    mean = w @ k / w.sum()
    sd = np.sqrt(w @ (k - mean) ** 2 / w.sum())
    post = hc.infer(asked, rng=1)
    assert post.beliefs.mean((0, 1))[0, 1] == pytest.approx(mean, abs=0.1 * max(sd, 0.2))
    assert np.sqrt(post.beliefs.variance((0, 1))[0, 1]) == pytest.approx(sd, rel=0.1, abs=0.02)


def _three_cells(p: np.ndarray, rows: np.ndarray, columns: np.ndarray, seen: np.ndarray) -> list[np.ndarray]:
    """Mean and sd of a table of three cells with known margins, some of it read with Poisson noise: all tables added up."""
    tables = []
    for head in itertools.product(range(int(rows.max()) + 1), repeat=4):
        n = np.zeros((3, 3))
        n[:2, :2] = np.reshape(head, (2, 2))
        n[:2, 2] = rows[:2] - n[:2, :2].sum(axis=1)
        n[2] = columns - n[:2].sum(axis=0)
        if (n >= 0).all():
            tables.append(n)
    n = np.array(tables)
    with np.errstate(divide="ignore", invalid="ignore"):
        read = np.where(
            np.isnan(seen), 0.0, np.where(n > 0, seen * np.log(n) - n, np.where(seen > 0, -np.inf, 0))
        )
    log_w = (n * np.log(p) - gammaln(n + 1) + read).sum(axis=(1, 2))
    w = np.exp(log_w - log_w.max())
    mean = np.tensordot(w / w.sum(), n, 1)
    return [mean, np.sqrt(np.tensordot(w / w.sum(), (n - mean) ** 2, 1))]


@pytest.mark.parametrize("seed", range(12))
def test_readings_of_moves_between_exact_counts(seed):
    """Few individuals in three cells counted exactly twice, and some moves read: means within .2 sds of all tables, sds within 10 %."""
    rng = np.random.default_rng(seed)
    p, rows = rng.dirichlet(np.ones(3), 3), rng.integers(1, 6, 3)
    truth = np.array([rng.multinomial(n, q) for n, q in zip(rows, p, strict=True)])
    seen = np.where(rng.random((3, 3)) < 0.6, rng.poisson(truth).astype(float), np.nan)
    counts = np.stack([rows, truth.sum(axis=0)]).astype(float)
    chain = hc.MarkovChain(np.ones(3) / 3, p[None])
    asked = hc.Problem(chain, int(rows.sum()), [hc.Exact(counts), hc.Poisson(seen, on=(0, 1))])
    mean, sd = _three_cells(p, rows, counts[1], seen)
    post = hc.infer(asked, rng=1)
    assert np.abs(post.beliefs.mean((0, 1)) - mean).max() < 0.2 * max(sd.max(), 0.1)
    np.testing.assert_allclose(np.sqrt(post.beliefs.variance((0, 1))), sd, rtol=0.1, atol=0.05)
    said = hc.infer(asked, "TiltedEP")
    off = np.abs(said.beliefs.mean((0, 1)) - mean) > 0.2 * np.maximum(sd, 0.1)
    assert "sharp_readings" in said.diagnostics or not off.any()


@pytest.mark.parametrize("number", range(1, 31, 2))
def test_flows_have_the_law_of_the_sum_over_all_tables(number):
    """Rings, sparse maps, grids, dense maps and trees, counted at all or some times: means within .2 sds, sds within 10 %."""
    kind, asked, truth = problem(number)
    for engine in (QUICK,) if "hidden" in kind else (QUICK, TableBP()):
        post = hc.infer(asked, engine, rng=number)
        found = judge(post, truth)
        assert found["beyond"] < 1, engine.name
        assert found["wide"] < (0.1 if engine.name == "TableBP" else 0.15)


@pytest.mark.parametrize(
    "engine", [TableBP(), PathGibbs(sweeps=5000, burn_in=500)], ids=["TableBP", "PathGibbs"]
)
def test_rows_that_vary_have_their_law_on_a_ring(engine):
    """With rho the weights are Dirichlet–multinomial: the same moves have that law."""
    asked = ring(4, 3, 0.6, dispersion=hc.Overdispersion(rho=0.2))
    post = hc.infer(asked, engine, rng=2)
    step = np.asarray(asked.model.rooted().transitions[1])
    exact = varying_rows(step, 4.0, np.full(4, 3), np.full(4, 3))
    np.testing.assert_allclose(post.beliefs.mean((0, 1)), exact.mean, atol=0.05)
    np.testing.assert_allclose(post.beliefs.variance((0, 1)), exact.variance, atol=0.08)


@pytest.mark.parametrize(("cells", "each", "stay"), [(4, 2, 0.5), (6, 10, 0.8), (8, 5, 0.7)])
def test_what_is_free_and_never_moves_is_not_mixed(cells, each, stay, monkeypatch):
    """Without worms all chains may stand at one table, with R-hat 1 and sd 0: the status is not good."""
    made = _path_gibbs.path_worms

    def none(arrays):
        return made(arrays)._replace(near=False, far=np.zeros(0, np.int64))

    monkeypatch.setattr(_path_gibbs, "path_worms", none)
    assert not hc.infer(ring(cells, each, stay), QUICK, rng=1, strict=False).status.good
    monkeypatch.setattr(_worms.TableWorms, "_sweep", _still)
    assert not hc.infer(ring(cells, each, stay), TableBP(), strict=False).status.good


def _still(self, sweeps, seen, draws):
    """A sweep that moves nothing."""
    if len(seen):
        for (i, j), n in np.ndenumerate(self.counts):
            seen[i, j, n] += sweeps
    if len(draws):
        draws[:] = self.counts
    return sweeps


def test_a_rare_flow_that_never_moved_is_no_alarm():
    """Of two who stay with probability .999 a swap has weight 1e-6: never seen, and rightly so."""
    step = np.array([[0.999, 0.001], [0.001, 0.999]])
    draws = np.tile(np.eye(2, dtype=np.int64), (100, 1, 1))
    assert never_moved(step, np.zeros(2), draws) < 1e-5
    even = np.full((2, 2), 0.5)
    assert never_moved(even, np.zeros(2), draws) > 0.5


def test_free_entries_are_those_that_differ_between_tables():
    """Strong components and bridges find exactly the entries that take two values among all tables listed; a table is found if any is."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        support = rng.random(tuple(rng.integers(2, 5, 2))) < 0.6
        made = np.where(support, rng.poisson(0.7, support.shape), 0)
        rows, columns = made.sum(axis=1), rng.permutation(made.sum(axis=0))
        listed = [
            np.array(t)
            for t in itertools.product(
                *(list(_rows(int(r), s, columns)) for r, s in zip(rows, support, strict=True))
            )
            if (np.sum(t, axis=0) == columns).all()
        ]
        table = possible_table(support, rows, columns)
        assert (table is None) == (not listed)
        if table is not None:
            assert (table.sum(axis=1) == rows).all()
            assert (table.sum(axis=0) == columns).all()
            np.testing.assert_array_equal(free_entries(table, support), np.ptp(listed, axis=0) > 0)


def _rows(total, support, most):
    ranges = [range(min(total, int(m)) + 1) if s else range(1) for s, m in zip(support, most, strict=True)]
    return (n for n in itertools.product(*ranges) if sum(n) == total)


def test_what_is_certain_is_answered_exactly():
    """Flows that are the same in all tables have sd 0 and whole means; the others have theirs."""
    step = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 0.4, 0.6], [0.0, 0.0, 0.5, 0.5]])
    rows, columns = np.array([2, 2, 3, 3]), np.array([1, 1, 5, 3])
    chain = hc.MarkovChain(rows / 10, step[None])
    post = hc.infer(hc.Problem(chain, 10, hc.Exact(np.array([rows, columns], dtype=float))), TableBP())
    exact = table_moments(step, rows, columns)
    np.testing.assert_allclose(post.beliefs.mean((0, 1))[:2], exact.mean[:2], atol=1e-9)
    assert not post.beliefs.variance((0, 1))[:2].any()
    np.testing.assert_allclose(post.beliefs.mean((0, 1)), exact.mean, atol=0.05)


@pytest.mark.parametrize("hidden", [False, True], ids=["one step", "a time in between"])
def test_the_sampler_is_connected_where_flows_are_observed(hidden):
    """On a one-way ring with exact counts and a reading of one flow, or of all who stay, flows have the law of the enumeration."""
    step = 0.6 * np.eye(3) + 0.4 * np.roll(np.eye(3), 1, axis=1)
    chain = hc.MarkovChain(np.ones(3) / 3, [step] * (1 + hidden))
    counts = hc.Exact({t: np.ones(3) for t in ((0, 2) if hidden else (0, 1))})
    one = np.full((3, 3), np.nan)
    one[0, 0] = 0.0
    stayers = hc.Poisson(np.array([0.0]), on=(0, 1), sums=[np.eye(3).ravel()])
    for flows in (hc.Poisson(one, on=(0, 1)), stayers):
        problem = hc.Problem(chain, 3, [counts, flows])
        true, got = hc.infer(problem, hc.engines.Enumerate()), hc.infer(problem, QUICK, rng=1)
        np.testing.assert_allclose(got.edge(0, 1).mean, true.edge(0, 1).mean, atol=0.04)
        np.testing.assert_allclose(got.edge(0, 1).sd, true.edge(0, 1).sd, atol=0.04)
        assert true.edge(0, 1).sd.values.max() > 0.2


STAY = [[1.0, 0.0], [0.0, 1.0]]
GROUPS = {
    "one of three cells is seen": (
        [[0.16, 0.15, 0.69], [0.25, 0.05, 0.7], [0.45, 0.13, 0.42]],
        None,
        [[np.nan, 1.0, np.nan], [np.nan, 0.0, np.nan]],
        (1, hc.Between(1, 4)),
    ),
    "one group stays": ([[0.2, 0.8], [0.8, 0.2]], STAY, [[4.0, 2.0], [2.0, 4.0]], (3, 3)),
    "no way back": ([[0.5, 0.5], [0.0, 1.0]], [[0.7, 0.3], [0.0, 1.0]], [[3.0, 3], [3, 3], [2, 4]], (3, 3)),
    "three groups": (
        [[0.5, 0.5], [0.3, 0.7]],
        [[0.9, 0.1], [0.1, 0.9]],
        [[3.0, 2], [2, 3]],
        (2, 1, 2),
    ),
}


@pytest.mark.parametrize("name", GROUPS)
def test_individuals_of_different_groups_exchange_cells(name):
    """Totals over groups are exact and so are their sizes: the sampler mixes, and every group's flows are those of the enumeration."""
    first, second, seen, sizes = GROUPS[name]
    steps = len(seen) - 1
    start = np.arange(2.0, 2.0 + len(first)) / np.arange(2.0, 2.0 + len(first)).sum()
    chains = [
        hc.MarkovChain(start, [first if k % 2 == 0 or second is None else second] * steps) for k in range(3)
    ]
    groups = {k: hc.Group(chain, size) for k, (chain, size) in enumerate(zip(chains, sizes, strict=False))}
    asked = hc.Problem(groups=groups, observations=hc.Exact(np.array(seen)))
    true = hc.infer(asked, hc.engines.Enumerate(most=2_000_000))
    got = hc.infer(asked, PathGibbs(sweeps=4000, burn_in=500, workers=1), rng=1)
    for k in groups:
        one, other = true.group(k).edge(0, 1), got.group(k).edge(0, 1)
        np.testing.assert_allclose(other.mean, one.mean, atol=0.05)
        np.testing.assert_allclose(other.sd, one.sd, atol=0.05)


@pytest.mark.parametrize("length", [4, 6])
def test_worms_cross_any_number_of_hidden_times(length):
    """A ring counted exactly at both ends only, with up to four hidden times between: flows of every step are those of the sum."""
    step = 0.6 * np.eye(4) + 0.4 * np.roll(np.eye(4), 1, axis=1)
    counts = np.full((length, 4), np.nan)
    counts[0] = counts[-1] = 2.0
    asked = hc.Problem(hc.MarkovChain(np.full(4, 0.25), step, length=length), 8, hc.Exact(counts))
    found = chain_moments([step] * (length - 1), {0: np.full(4, 2), length - 1: np.full(4, 2)})
    post = hc.infer(asked, PathGibbs(sweeps=20_000, burn_in=500, workers=1), rng=1)
    judged = judge(post, {(t, t + 1): answer for t, answer in enumerate(found)})
    assert judged["beyond"] < 1
    assert judged["wide"] < 0.1


def test_a_table_without_a_choice_is_answered_exactly():
    """Exact counts that leave every flow one number: means, medians and intervals are that number, zeros too (one was 5 … 5)."""
    step = [[0.7, 0.3, 0.0], [0.0, 0.7, 0.3], [0.0, 0.0, 1.0]]
    counts = np.array([[5.0, 3.0, 2.0], [4.0, 4.0, 2.0], [3.0, 3.0, 4.0]])
    post = hc.infer(hc.Problem(hc.MarkovChain([0.5, 0.3, 0.2], [step] * 2), 10, hc.Exact(counts)), TableBP())
    for t, only in enumerate(([[4, 1, 0], [0, 3, 0], [0, 0, 2]], [[3, 1, 0], [0, 2, 2], [0, 0, 2]])):
        flow = post.edge(t, t + 1)
        np.testing.assert_allclose(flow.mean, only)
        np.testing.assert_allclose(flow.sd, 0.0, atol=1e-12)
        frame = post.to_frame("flows")
        here = frame[frame["time"] == t]
        np.testing.assert_array_equal(here["lower"], here["mean"])
        np.testing.assert_array_equal(here["upper"], here["mean"])


def test_tilts_have_the_margins_where_moves_are_rare():
    """A worm lasts as many steps as there are cells only if its tilts have both margins: also where one rare move is forced."""
    rare = np.full((6, 6), 1e-6) + np.eye(6)
    rows, columns = np.array([50, 60, 70, 40, 30, 20]), np.array([49, 61, 71, 39, 30, 20])
    a, b = raked_tilts(rare, rows, columns)
    made = a[:, None] * rare * b
    np.testing.assert_allclose(made.sum(axis=1), rows, atol=0.02)
    np.testing.assert_allclose(made.sum(axis=0), columns, atol=0.02)
    start = possible_table(rare > 0, rows, columns)
    worms = _worms.TableWorms(rare, np.zeros(6), start, b, np.arange(1, 5, dtype=np.uint64))
    worms.burn(200)
    assert worms.worms > len(worms.row) / (4 * len(rows))
