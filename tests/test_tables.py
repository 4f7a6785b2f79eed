"""Named tables: margins, broadcasting and flat positions agree with sums written out by hand."""

import itertools

import numpy as np
import pytest
from scipy import sparse

from headcount.tables import Domain, dense

TABLE = Domain(("a", "b", "c"), (2, 3, 4))
SUBSETS = [s for k in range(4) for s in itertools.permutations("abc", k)]


def by_hand(values: np.ndarray, onto: tuple[str, ...]) -> np.ndarray:
    """n_B(i_B) = Σ n_A(i_A), one entry at a time."""
    out = np.zeros([TABLE.shape["abc".index(v)] for v in onto])
    for entry in itertools.product(*map(range, TABLE.shape)):
        out[tuple(entry["abc".index(v)] for v in onto)] += values[entry]
    return out


@pytest.mark.parametrize("onto", SUBSETS)
def test_projection_sums_out_the_rest(onto: tuple[str, ...]) -> None:
    """A margin is the sum over the other variables, its axes in the order asked for; leading axes stay."""
    draws = np.random.default_rng(1).random((5, *TABLE.shape))
    expected = np.array([by_hand(values, onto) for values in draws])
    np.testing.assert_allclose(TABLE.project(draws, onto), expected, rtol=1e-14)
    np.testing.assert_allclose(TABLE.project(draws[0], onto), expected[0], rtol=1e-14)


@pytest.mark.parametrize("onto", SUBSETS)
def test_positions_add_up_to_the_projection(onto: tuple[str, ...]) -> None:
    """Adding every flat entry at its position gives the margin."""
    values = np.random.default_rng(2).random(TABLE.shape)
    part = TABLE.part(onto)
    summed = np.bincount(TABLE.positions(onto), TABLE.flat(values), minlength=part.size)
    np.testing.assert_allclose(part.table(summed), TABLE.project(values, onto), rtol=1e-14)


@pytest.mark.parametrize("onto", SUBSETS)
def test_expansion_is_the_adjoint_of_projection(onto: tuple[str, ...]) -> None:
    """Σ_A n_A · expand(g_B) = Σ_B project(n_A) · g_B, whatever the order of B."""
    rng = np.random.default_rng(3)
    values, g = rng.random(TABLE.shape), rng.random(TABLE.part(onto).shape)
    left = (values * TABLE.expand(g, onto)).sum()
    np.testing.assert_allclose(left, (TABLE.project(values, onto) * g).sum(), rtol=1e-13)


@pytest.mark.parametrize("onto", [("u", "v"), ("v", "u"), ("u",), ("v",), ()])
def test_sparse_edges_project_as_dense_ones(onto: tuple[str, ...]) -> None:
    """A sparse edge table has the same margins; turned round it stays sparse."""
    edge = Domain(("u", "v"), (3, 4))
    values = np.where(np.random.default_rng(4).random((3, 4)) < 0.5, 2.0, 0.0)
    found = edge.project(sparse.csr_array(values), onto)
    assert sparse.issparse(found) == (len(onto) == 2)
    np.testing.assert_array_equal(dense(found), edge.project(values, onto))


@pytest.mark.parametrize("given", SUBSETS)
def test_by_rows_has_one_row_per_entry_of_the_given_variables(given: tuple[str, ...]) -> None:
    """Rows sum to the margin of the given variables, in their order; the second result is the way back."""
    values = np.random.default_rng(5).random(TABLE.shape)
    rows, back = TABLE.by_rows(values, given)
    np.testing.assert_allclose(rows.sum(axis=1), TABLE.project(values, given).reshape(-1), rtol=1e-14)
    np.testing.assert_array_equal(back(rows), values)
