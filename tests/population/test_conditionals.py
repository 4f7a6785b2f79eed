"""p(z_v | z_u) and p(z_uv | z_u, z_v), and the Laplacians they rest on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reproduction.gaussian_law import GCGM, edge_covariance, edge_mean, log_determinant, node_conditional
from scipy import sparse
from tests.graphs import awkward_models

from headcount.individual import MarkovChain, ModelError
from headcount.population import EdgeConditional, LaplacianFactor, laplacian, star_weights

MODELS = awkward_models()
every_model = pytest.mark.parametrize("name", [n for n, m in MODELS.items() if len(m.variables) > 1])
N = 50


def random_table(seed: int, *, zeros: bool) -> np.ndarray:
    """A table of expected counts, some of them impossible, with an empty row and column now and then."""
    rng = np.random.default_rng(seed)
    table = rng.gamma(0.5, 10.0, size=(rng.integers(1, 5), rng.integers(1, 5))) + 1e-6
    if zeros:
        table *= rng.random(table.shape) < 0.6
        table[rng.integers(len(table))] *= rng.random() < 0.7
        table[0, 0] += 1.0
    return table


def edge_law(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The margins' matrix B ((z_u; z_v) = B z_uv) and the covariance of z_uv, by definition."""
    rows, columns = table.shape
    margins = np.concatenate(
        [np.kron(np.eye(rows), np.ones(columns)), np.kron(np.ones(rows), np.eye(columns))]
    )
    flat = table.reshape(-1)
    return margins, np.diag(flat) - np.outer(flat, flat) / flat.sum()


def variance_under(edge: EdgeConditional, nodes: np.ndarray) -> np.ndarray:
    """Var[z_uv(i,j)] = Var[z_uv(i,j) | z_u, z_v] + M_ij² e_ijᵀ K⁺ V K⁺ e_ij, where (z_u; z_v) has the covariance V."""
    split, spread = len(edge.table), nodes
    for _ in range(2):  # K⁺ V, then K⁺ (K⁺ V)ᵀ
        spread = np.concatenate(edge.potentials(spread[:split], spread[split:])).T
    own = np.diagonal(spread)
    through = own[:split, None] + own[None, split:] + spread[:split, split:] + spread[split:, :split].T
    return edge.variance + edge.table**2 * through


@every_model
def test_node_conditional_is_gaussian_conditioning(name):
    """Gain cov(v, u) cov(u, u)⁺, noise cov(v, v) − cov(v, u) cov(u, u)⁺ cov(u, v), any two variables."""
    model = MODELS[name]
    law = GCGM(model, N)
    for u in model.variables:
        for v in model.variables:
            if u == v:
                continue
            conditional = law.conditional_node(v, given=u)
            cov_u, cov_vu = law.covariance((u,)), law.covariance((v,), (u,))
            inverse = np.linalg.pinv(cov_u, rcond=1e-12)
            np.testing.assert_allclose(conditional.gain.T @ cov_u, cov_vu, atol=1e-10)
            np.testing.assert_allclose(conditional.mean(law.mean((u,))), law.mean((v,)), atol=1e-10)
            expected = law.covariance((v,)) - cov_vu @ inverse @ cov_vu.T
            np.testing.assert_allclose(conditional.noise, expected, atol=1e-10)


@every_model
def test_edge_conditional_is_gaussian_conditioning(name):
    """Mean, variance and covariance of z_uv given its nodes equal those of the dense Gaussian."""
    model = MODELS[name]
    law = GCGM(model, N)
    clique = model.junction_tree.cliques[0]
    if len(clique) < 2:
        return
    u, v = clique[:2]
    check_edge(law.conditional_edge(u, v), seed=1)


@given(seed=st.integers(0, 2**32 - 1), zeros=st.booleans())
def test_edge_conditional_of_any_table(seed, zeros):
    """The same for random tables, cut into unconnected parts by structural zeros."""
    check_edge(EdgeConditional(random_table(seed, zeros=zeros)), seed=seed)


def check_edge(edge: EdgeConditional, *, seed: int) -> None:
    table = edge.table
    margins, covariance = edge_law(table)
    both = margins @ covariance @ margins.T
    scale = np.sqrt(np.diagonal(both).clip(min=1e-300))
    scale[scale < 1e-12] = 1.0
    gain = (
        covariance
        @ margins.T
        @ (np.linalg.pinv(both / np.outer(scale, scale), rcond=1e-11) / np.outer(scale, scale))
    )
    rng = np.random.default_rng(seed)
    truth = table.reshape(-1) + rng.normal(size=table.size) * np.sqrt(table.reshape(-1))
    truth += table.reshape(-1) * (table.sum() - truth.sum()) / table.sum()
    nodes = margins @ truth
    split = len(table)
    expected = table.reshape(-1) + gain @ (nodes - margins @ table.reshape(-1))
    found = edge_mean(edge, nodes[:split], nodes[split:])
    size = table.sum()
    np.testing.assert_allclose(found.reshape(-1), expected, atol=1e-7 * size)
    np.testing.assert_allclose(margins @ found.reshape(-1), nodes, atol=1e-11 * size)
    conditional = covariance - gain @ margins @ covariance
    np.testing.assert_allclose(edge_covariance(edge), conditional, atol=1e-7 * size)
    np.testing.assert_allclose(edge.variance.reshape(-1), np.diagonal(conditional), atol=1e-7 * size)
    assert (edge.variance >= 0).all()
    # Under the prior law of the nodes the flow has its prior variance back.
    np.testing.assert_allclose(
        variance_under(edge, both).reshape(-1), np.diagonal(covariance), atol=1e-7 * size
    )


def test_flows_between_clusters_joined_by_a_thread():
    """Two clusters joined by a 1e-20 probability: flows keep their margins and variances their value."""
    thread = 1e-20
    table = 100 * np.array(
        [[0.2, 0.1, thread, 0.0], [0.1, 0.1, 0.0, 0.0], [0.0, 0.0, 0.2, 0.1], [thread, 0.0, 0.1, 0.1]]
    )
    cut = np.where(table > 1e-10, table, 0.0)
    edge, reference = EdgeConditional(table), EdgeConditional(cut)
    assert len(reference.noise.parts) == 2
    assert len(edge.noise.parts) == 1
    np.testing.assert_allclose(edge.variance[cut > 0], reference.variance[cut > 0], rtol=1e-12)
    a, b = np.array([31.0, 18.0, 27.0, 24.0]), np.array([28.0, 21.0, 29.0, 22.0])
    found = edge_mean(edge, a, b)
    np.testing.assert_allclose(found.sum(axis=1), a, rtol=1e-13)
    np.testing.assert_allclose(found.sum(axis=0), b, rtol=1e-13)
    np.testing.assert_allclose(found[cut > 0], edge_mean(reference, a, b)[cut > 0], rtol=1e-9)
    moved = edge_mean(
        edge, a, b + np.array([-1.0, 0.0, 1.0, 0.0])
    )  # one more crosses: only the thread can carry it
    np.testing.assert_allclose(moved.sum(axis=0), b + np.array([-1.0, 0.0, 1.0, 0.0]), rtol=1e-9)


@pytest.mark.parametrize("full", [0, 1])
def test_flows_into_a_cell_that_holds_nearly_all(full):
    """The margins' covariance, rounded as it is, gives the flows' own spread, though one cell holds 1e-30 of all."""
    gain = np.array([[1e-30, 1 - 2.0**-53], [3e-30, 1.0]])[:, :: 1 if full else -1]
    table = np.array([[4.0], [5.0]]) * gain
    margins, covariance = edge_law(table)
    found = variance_under(EdgeConditional(table, gain), margins @ covariance @ margins.T)
    np.testing.assert_allclose(found.ravel(), np.diagonal(covariance), rtol=1e-12)


def test_margins_the_support_cannot_carry_are_refused():
    """Individuals in impossible cells or across unconnected parts: an error that names them all."""
    edge = EdgeConditional(np.array([[10.0, 0.0], [0.0, 5.0], [0.0, 0.0]]))
    assert edge_mean(edge, [9.0, 6.0, 0.0], [9.0, 6.0]).tolist() == [[9.0, 0.0], [0.0, 6.0], [0.0, 0.0]]
    with pytest.raises(ModelError) as caught:
        edge_mean(edge, [9.0, 5.0, 1.0], [10.0, 5.0])
    assert len(caught.value.problems) == 2
    assert "never puts anyone there" in caught.value.problems[0]
    assert "more than can come from the first node" in caught.value.problems[1]


def test_noise_of_a_nearly_certain_move_keeps_its_digits():
    """Q_jj = Nμ p(1 − p) at p = 1 − 1e-15 to full relative precision: no 1 − 1 on the diagonal."""
    rare = 1e-15
    chain = MarkovChain([1.0, 0.0], [[1 - rare, rare], [0.0, 1.0]], length=2)
    noise = GCGM(chain, 10**6).tree_factor(0, 1).noise
    np.testing.assert_allclose(noise, 1e6 * rare * np.array([[1, -1], [-1, 1]]), rtol=1e-12)


def test_unreachable_rows_keep_the_models_gain():
    """P is the model's own matrix, also where no one can be; backwards, such rows are zero."""
    chain = MODELS["absorbing and unreachable cells"]
    law = GCGM(chain, N)
    np.testing.assert_array_equal(law.tree_factor(0, 1).gain, chain.transitions[0])
    assert law.tree_factor(1, 0).gain[2].tolist() == [0.0, 0.0, 0.0]


def test_sparse_factors_equal_dense_ones():
    """A sparse transition matrix gives a sparse gain and noise of the same values."""
    matrix = np.array([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75], [0.1, 0.0, 0.9]])
    slim = GCGM(MarkovChain([0.5, 0.5, 0.0], sparse.csr_array(matrix), length=3), N)
    full = GCGM(MarkovChain([0.5, 0.5, 0.0], matrix, length=3), N)
    for u, v in ((0, 1), (1, 2)):
        a, b = slim.tree_factor(u, v), full.tree_factor(u, v)
        assert sparse.issparse(a.gain)
        assert sparse.issparse(a.noise)
        np.testing.assert_allclose(a.gain.toarray(), b.gain)
        np.testing.assert_allclose(a.noise.toarray(), b.noise, atol=1e-13)
    shift = np.array([1.0, -1.0, 0.0])
    nodes = {t: full.mean((t,)) + shift for t in range(3)}
    assert slim.node_log_density(nodes) == pytest.approx(full.node_log_density(nodes))
    z = full.sample(rng=1)
    assert slim.log_density(z) == pytest.approx(full.log_density(z))


@given(seed=st.integers(0, 2**32 - 1), zeros=st.booleans())
def test_laplacian_factor(seed, zeros):
    """S x = r, log det of S grounded, and resistances, against dense linear algebra; rank = n − parts."""
    weights = star_weights(random_table(seed, zeros=zeros))
    factor, matrix = LaplacianFactor(weights), laplacian(weights)
    rng = np.random.default_rng(seed)
    r = matrix @ rng.normal(size=len(matrix))
    np.testing.assert_allclose(matrix @ factor.solve(r), r, atol=1e-9 * (1 + np.abs(r).max()))
    kept = np.concatenate([np.empty(0, dtype=int), *(part[:-1] for part in factor.parts)])
    assert len(kept) == factor.rank
    sign, log_det = np.linalg.slogdet(matrix[np.ix_(kept, kept)])
    assert sign > 0
    assert log_determinant(factor) == pytest.approx(log_det, abs=1e-6)
    inverse = np.linalg.pinv(matrix, rcond=1e-13)
    own = np.diagonal(inverse)
    dense = own[:, None] + own[None, :] - 2 * inverse
    for part in factor.parts:
        block = np.ix_(part, part)
        np.testing.assert_allclose(factor.resistances[block], dense[block], rtol=1e-5, atol=1e-6)
    outside = np.isinf(factor.resistances).sum()
    assert outside == len(matrix) ** 2 - sum(len(part) ** 2 for part in factor.parts)


@given(seed=st.integers(0, 2**32 - 1), zeros=st.booleans())
def test_noise_is_the_sum_of_multinomial_covariances(seed, zeros):
    """Q = Σ_i m_i (diag p_i − p_i p_iᵀ), rows sum to zero, for any table."""
    table = random_table(seed, zeros=zeros)
    found = node_conditional(table)
    expected = np.zeros((table.shape[1],) * 2)
    for row in table[table.sum(axis=1) > 0]:
        p = row / row.sum()
        expected += row.sum() * (np.diag(p) - np.outer(p, p))
    np.testing.assert_allclose(found.noise, expected, atol=1e-12 * table.sum())
    np.testing.assert_allclose(found.noise.sum(axis=1), 0, atol=1e-13 * table.sum())


def test_a_row_below_the_smallest_normal_number_holds_no_one():
    """Rows of 1e-310 individuals, whose inverse overflows, leave the noise of the others as it is."""
    table = np.array([[0.3, 0.7], [6e-311, 4e-311]])
    np.testing.assert_array_equal(star_weights(table), star_weights(table[:1]))
