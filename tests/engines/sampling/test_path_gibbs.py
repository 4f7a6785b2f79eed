"""Parts of the path sampler: pairs of individuals redrawn together, the law of the first paths, tables raked to margins.

Pairs reach states that no move of one individual, and no exchange of two subtrees, can reach.
"""

import numpy as np
import pytest

import headcount as hc
from headcount.engines import Enumerate, PathGibbs
from headcount.errors import ProblemError
from headcount.solve.raking import rake

STEP = np.array([[0.7, 0.0, 0.3], [0.0, 0.8, 0.2], [0.5, 0.5, 0.0]])
"""From cells A and B one may go to X and come back, not from A to B."""
NAN = np.nan


@pytest.mark.parametrize("people", [2, 3, 5])
@pytest.mark.parametrize("sums", [False, True], ids=["cells", "sums"])
def test_one_leaves_where_another_arrives(people: int, sums: bool) -> None:
    """Exactly one is in X at the middle time, which one is open: sampled means are the exact ones, also without pairs."""
    chain = hc.MarkovChain([0.5, 0.5, 0.0], STEP, length=3)
    ends = [1.0, people - 1.0, 0.0]
    seen = [hc.Exact([ends, [NAN] * 3, ends])]
    if sums:
        seen.append(hc.Exact([people - 1.0], on=1, sums=[[1, 1, 0]]))
    else:
        seen.append(hc.Exact([NAN, NAN, 1.0], on=1))
    problem = hc.Problem(chain, people, seen)
    exact = hc.infer(problem, Enumerate())
    assert 0.1 < float(exact.node(1).mean[0]) < 0.9
    post = hc.infer(problem, PathGibbs(sweeps=400), rng=1)
    np.testing.assert_allclose(post.node(1).mean, exact.node(1).mean, atol=0.1)
    np.testing.assert_allclose(post.node(1).sd, exact.node(1).sd, atol=0.1)
    alone = hc.infer(problem, PathGibbs(sweeps=400, pairs=0), rng=1)
    np.testing.assert_allclose(alone.node(1).mean, exact.node(1).mean, atol=0.1)


def test_pairs_leave_the_posterior_as_it_is() -> None:
    """Overlapping sums and noisy counts on a tree: many pairs and few sweeps have the exact moments."""
    rng = np.random.default_rng(4)
    steps = rng.dirichlet(np.ones(3), size=(2, 3))
    tree = hc.Tree(rng.dirichlet(np.ones(3)), {"b": ("a", steps[0]), "c": ("a", steps[1])})
    seen = [
        hc.Poisson([1.0, 2.0, 0.0], on="a"),
        hc.Gaussian([1.2, 2.9], sd=0.5, on="b", sums=[[1, 1, 0], [0, 1, 1]]),
        hc.Binomial([0.0, 1.0, 1.0], detection=0.5, on="c"),
    ]
    problem = hc.Problem(tree, 4, seen)
    exact = hc.infer(problem, Enumerate())
    post = hc.infer(problem, PathGibbs(sweeps=1000, pairs=20), rng=2)
    for v in "abc":
        np.testing.assert_allclose(post.node(v).mean, exact.node(v).mean, atol=0.05)
        np.testing.assert_allclose(post.node(v).sd, exact.node(v).sd, atol=0.05)


def test_pairs_are_refused_where_their_law_is_not_known() -> None:
    """Beside observed flows, and of a single individual: in words, and by default without pairs."""
    chain = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], length=2)
    flows = hc.Problem(chain, 3, hc.Poisson([[1.0, 0], [1, 1]], on=(0, 1)))
    single = hc.Problem(chain, 1, hc.Poisson([[1.0, 0], [0, 1]]))
    for problem in (flows, single):
        with pytest.raises(ProblemError, match=r"pairs=2.* no flows are observed"):
            hc.infer(problem, PathGibbs(pairs=2), rng=1)
        got, exact = hc.infer(problem, PathGibbs(), rng=1), hc.infer(problem, Enumerate())
        np.testing.assert_allclose(got.node(0).mean, exact.node(0).mean, atol=0.1)


@pytest.mark.parametrize("weak", [1.0, 1e-3, 1e-8])
def test_raking_meets_both_margins_and_keeps_odds_ratios(weak):
    """Also where the table nearly falls apart into blocks, which scaling in turn alone would not finish."""
    rng = np.random.default_rng(5)
    table = np.kron(np.eye(3), np.ones((4, 4))) * rng.random((12, 12)) + weak * rng.random((12, 12))
    rows, columns = (table.sum(axis=k) * np.exp(0.2 * rng.normal(size=12)) for k in (1, 0))
    columns *= rows.sum() / columns.sum()
    out = rake(table, rows, columns)
    np.testing.assert_allclose(out.sum(axis=1), rows, atol=1e-11 * rows.sum())
    np.testing.assert_allclose(out.sum(axis=0), columns, atol=1e-11 * rows.sum())
    assert out.min() > 0

    def odds(t):
        return np.log(t[:-1, :-1] * t[1:, 1:] / (t[:-1, 1:] * t[1:, :-1]))

    np.testing.assert_allclose(odds(out), odds(table), atol=1e-6)


def test_raking_keeps_zeros_and_empty_cells():
    """A zero stays zero; a margin of zero empties its row."""
    out = rake(
        np.array([[2.0, 0.0], [1.0, 3.0], [1.0, 1.0]]), np.array([2.0, 4.0, 0.0]), np.array([2.5, 3.5])
    )
    assert out[0, 1] == 0
    np.testing.assert_array_equal(out[2], 0.0)
    np.testing.assert_allclose(out.sum(axis=1), [2.0, 4.0, 0.0])
