"""The Gaussian law of the counts, on every awkward graph."""

import functools

import numpy as np
import pytest
from reproduction.gaussian_law import GCGM, MinimalCoordinates, RealTables, edge_mean
from tests.graphs import awkward_models
from tests.population.oracle import joint, stacked

from headcount.individual import MarkovChain, Model, ModelError
from headcount.population import CGM, EdgeConditional, LaplacianFactor, star_weights

MODELS = awkward_models()
every_model = pytest.mark.parametrize("name", MODELS)
N = 50
POSITIVE = [
    name
    for name, model in MODELS.items()
    if all((model.marginal(c) > 0).all() for c in model.junction_tree.cliques)
]
positive_model = pytest.mark.parametrize("name", POSITIVE)
TREES = [name for name, model in MODELS.items() if model.rooted() is not None]
every_tree = pytest.mark.parametrize("name", TREES)


@functools.cache
def dense_law(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of all clique tables side by side, from the joint law of one individual."""
    states, p = joint(MODELS[name])
    one = stacked(MODELS[name], states)
    mean = p @ one
    return N * mean, N * ((one * p[:, None]).T @ one - np.outer(mean, mean))


def side_by_side(tables: RealTables) -> np.ndarray:
    return np.concatenate([tables.table(c).reshape(-1) for c in tables.model.junction_tree.cliques])


def away_from_the_mean(model: Model, seed: int) -> RealTables:
    """A consistent point three times further out than a draw, so that quadratic forms cannot hide."""
    law = GCGM(model, N)
    drawn = law.sample(rng=seed)
    return RealTables(
        model, {c: law.mean(c) + 3 * (drawn.table(c) - law.mean(c)) for c in model.junction_tree.cliques}
    )


@every_model
def test_moments_are_those_of_the_counts(name):
    """GCGM = N(Nμ, NΣ) with the mean and covariance of the CGM, block by block: N, not N²."""
    model = MODELS[name]
    law = GCGM(model, N)
    mean, covariance = dense_law(name)
    cliques = model.junction_tree.cliques
    np.testing.assert_allclose(np.concatenate([law.mean(c).reshape(-1) for c in cliques]), mean, atol=1e-11)
    blocks = [[law.covariance(a, b) for b in cliques] for a in cliques]
    np.testing.assert_allclose(np.block(blocks), covariance, atol=1e-11)


@every_model
def test_separated_tables_are_uncorrelated_given_the_separator(name):
    """z_A ⊥ z_B | z_S: cov(A, B) = cov(A, S) cov(S, S)⁺ cov(S, B), structural zeros included."""
    model = MODELS[name]
    law = GCGM(model, N)
    cliques = model.junction_tree.cliques
    for a, b, separator in model.junction_tree.edges:
        left, right = (law.covariance(cliques[k], separator) for k in (a, b))
        through = left @ np.linalg.pinv(law.covariance(separator), rcond=1e-12) @ right.T
        np.testing.assert_allclose(law.covariance(cliques[a], cliques[b]), through, atol=1e-9)


@positive_model
@pytest.mark.parametrize("drop", ["most probable", "last"])
def test_reduced_covariance_has_full_rank(name, drop):
    """T Σ Tᵀ is positive definite, and it is the covariance of T z."""
    model = MODELS[name]
    law = GCGM(model, N)
    reduced = law.reduced_covariance(drop)
    coordinates = law.coordinates(drop)
    states, p = joint(model)
    rows = []
    for d in coordinates.cliques:
        kept = [[i for i in range(model.size((v,))[0]) if i != coordinates.dropped[v]] for v in d]
        place = [model.variables.index(v) for v in d]
        for values in np.stack(np.meshgrid(*kept, indexing="ij"), axis=-1).reshape(-1, len(d)):
            rows.append((states[:, place] == values).all(axis=1))
    indicator = np.array(rows, dtype=float).reshape(-1, len(states))
    mean = indicator @ p
    np.testing.assert_allclose(law.reduced_mean(drop), N * mean, atol=1e-11)
    expected = N * ((indicator * p) @ indicator.T - np.outer(mean, mean))
    np.testing.assert_allclose(reduced, expected, atol=1e-11)
    if len(reduced):
        scale = np.sqrt(np.diagonal(reduced))
        assert np.linalg.eigvalsh(reduced / np.outer(scale, scale))[0] > 1e-4


@positive_model
@pytest.mark.parametrize("drop", ["most probable", "last"])
def test_precision_is_the_inverse_and_has_the_blocks_of_the_junction_tree(name, drop):
    """Γ = (NΣ̃)⁻¹, and its block (D, E) is zero unless some clique holds D ∪ E."""
    model = MODELS[name]
    law = GCGM(model, N)
    coordinates = law.coordinates(drop)
    inverse = np.linalg.inv(law.reduced_covariance(drop))
    precision = law.reduced_precision(drop)
    scale = np.sqrt(np.outer(np.diagonal(inverse), np.diagonal(inverse)))
    np.testing.assert_allclose(precision.toarray() / scale, inverse / scale, atol=1e-10)
    stored = abs(precision) > 0
    apart = 0
    for d in coordinates.cliques:
        for e in coordinates.cliques:
            if model.junction_tree.covering(tuple(dict.fromkeys((*d, *e)))) is None:
                block = np.ix_(coordinates.places(d), coordinates.places(e))
                assert np.abs(inverse[block] / scale[block]).max(initial=0) < 1e-9
                assert stored[block].sum() == 0
                apart += 1
    assert apart > 0 or len(model.junction_tree.cliques) == 1


def test_dropping_the_most_probable_value_keeps_the_scaled_condition_number_small():
    """Dropping the rarest value of a skewed chain is ill-conditioned; dropping the commonest is not."""
    rare = 1e-9
    matrix = np.array([[0.5, 0.5 - rare, rare]] * 3)
    law = GCGM(MarkovChain(matrix[0], matrix, length=3), N)

    def condition(drop: str) -> float:
        covariance = law.reduced_covariance(drop)
        scale = np.sqrt(np.diagonal(covariance))
        return float(np.linalg.cond(covariance / np.outer(scale, scale)))

    assert condition("most probable") < 100
    assert condition("last") > 1e8


@every_model
@pytest.mark.parametrize("drop", ["most probable", "last"])
def test_recovery_inverts_the_reduction(name, drop):
    """z_A = H z̃ + N h for z̃ = T z: the reduced vector recovers every table, structural zeros or not."""
    model = MODELS[name]
    law = GCGM(model, N)
    coordinates = law.coordinates(drop)
    z = away_from_the_mean(model, 3)
    back = coordinates.recover(coordinates.reduce(z), z.population)
    for scope in z.tables:
        np.testing.assert_allclose(back.table(scope), z.table(scope), atol=1e-10)
    for clique in model.junction_tree.cliques:
        matrix, offset = coordinates.recovery(clique)
        reduction = coordinates.reduction(clique)
        assert reduction.shape == (np.prod(model.size(clique)) - 1, np.prod(model.size(clique)))
        np.testing.assert_array_equal((reduction @ matrix).toarray(), np.eye(reduction.shape[0]))
        np.testing.assert_array_equal(reduction @ offset, 0)
        flat = z.table(clique).reshape(-1)
        np.testing.assert_allclose(reduction @ flat, coordinates.reduce(z)[coordinates.places_inside(clique)])


def test_selection_follows_the_order_asked_for():
    """T_{D,A} z_A is the table of D without its dropped values, whatever the order of D and A."""
    model = MODELS["two cliques of three"]
    coordinates = GCGM(model, N).coordinates({"a": 0, "b": 1, "c": 1, "d": 0})
    z = GCGM(model, N).sample(rng=0)
    for d, a in ((("c", "b"), ("b", "a", "c")), (("b",), ("c", "b", "a")), (("d", "b"), ("b", "c", "d"))):
        expected = z.table(d)
        for axis, v in enumerate(d):
            expected = np.delete(expected, coordinates.dropped[v], axis=axis)
        np.testing.assert_allclose(coordinates.selection(d, a) @ z.table(a).reshape(-1), expected.reshape(-1))
    with pytest.raises(ModelError, match="not inside"):
        coordinates.selection(("a", "d"), ("a", "b", "c"))


@positive_model
def test_density_in_every_form_and_coordinate_is_the_same_number(name):
    """Pearson form = N(z̃; Nμ̃, NΣ̃) for any dropped values; the dense Gaussian is the reference."""
    from scipy import stats

    model = MODELS[name]
    law = GCGM(model, N)
    for seed in range(2):
        z = away_from_the_mean(model, seed)
        value = law.log_density(z)
        for drop in ("most probable", "last"):
            assert law.log_density(z, form="reduced", drop=drop) == pytest.approx(value, abs=1e-8, rel=1e-9)
        coordinates = law.coordinates()
        if coordinates.dimension:
            dense = stats.multivariate_normal(law.reduced_mean(), law.reduced_covariance())
            assert dense.logpdf(coordinates.reduce(z)) == pytest.approx(value, abs=1e-8, rel=1e-9)


@every_model
def test_pearson_form_is_the_quadratic_form_of_the_covariance(name):
    """−2 (log p(z) − log p(Nμ)) = δᵀ (NΣ)⁺ δ for consistent z, structural zeros included."""
    model = MODELS[name]
    law = GCGM(model, N)
    mean, covariance = dense_law(name)
    centre = RealTables(model, {c: law.mean(c) for c in model.junction_tree.cliques})
    z = away_from_the_mean(model, 7)
    delta = side_by_side(z) - mean
    expected = delta @ np.linalg.pinv(covariance, rcond=1e-10) @ delta
    found = -2 * (law.log_density(z) - law.log_density(centre))
    assert found == pytest.approx(expected, rel=1e-7, abs=1e-9)


@every_model
def test_density_normalises_on_the_lattice(name):
    """Log density − log p(n) → 0 like 1/√N or faster near the mean: the constant is right, zeros included."""
    model = MODELS[name]
    gaps = []
    for size in (10**4, 10**6, 10**8):
        n = CGM(model, size).sample(rng=1)
        gaps.append(abs(GCGM(model, size).log_density(n) - CGM(model, size).log_pmf(n)))
    assert gaps[2] < 0.02
    assert gaps[2] <= gaps[0] + 1e-6


@every_model
def test_density_is_zero_off_the_subspace(name):
    """Tables that disagree, have another total or use impossible entries have log-density −∞."""
    model = MODELS[name]
    law = GCGM(model, N)
    assert GCGM(model, N + 1).log_density(law.sample(rng=0)) == -np.inf
    z = law.sample(rng=0)
    for clique in model.junction_tree.cliques:
        for entry in np.argwhere(law.mean(clique) == 0)[:1]:
            table = z.table(clique).copy()
            table[tuple(entry)] += 1.0
            table.reshape(-1)[np.argmax(law.mean(clique))] -= 1.0
            cliques = {c: z.table(c) for c in model.junction_tree.cliques}
            assert law.log_density(RealTables(model, {**cliques, clique: table})) == -np.inf


@every_model
def test_samples_have_the_moments(name):
    """600 draws: every mean and covariance within five standard errors; every draw consistent."""
    model = MODELS[name]
    law = GCGM(model, N)
    generator = np.random.default_rng(5)
    draws = []
    for _ in range(600):
        z = law.sample(rng=generator)
        draws.append(side_by_side(z))
    assert not z.disagreements(tolerance=1e-9 * N)
    x = np.array(draws)
    mean, covariance = dense_law(name)
    sd = np.sqrt(np.diagonal(covariance))
    assert (np.abs(x.mean(axis=0) - mean) <= 5 * sd / np.sqrt(len(x)) + 1e-9).all()
    error = np.sqrt((covariance**2 + np.outer(sd, sd) ** 2) / len(x))
    assert (np.abs(np.cov(x.T).reshape(covariance.shape) - covariance) <= 5 * error + 1e-9).all()


@pytest.mark.parametrize("name", sorted(set(MODELS) - set(POSITIVE)))
def test_structural_zeros_are_named_where_an_inverse_is_asked_for(name):
    """The reduced precision of a model with μ = 0 is refused, naming the entries and what to use instead."""
    with pytest.raises(ModelError, match="has probability 0"):
        GCGM(MODELS[name], N).reduced_precision()


def test_memory_is_refused_with_both_numbers():
    """A covariance beyond the limit is refused before it is made."""
    law = GCGM(MODELS["chain"], N)
    with pytest.raises(ModelError, match=r"would take .*B of memory and the limit is 100 B"):
        law.covariance(("mon", "tue"), memory_limit=100)
    with pytest.raises(ModelError, match="reduced covariance"):
        law.reduced_covariance(memory_limit=100)


@every_tree
def test_tree_factors_multiply_to_the_dense_gaussian(name):
    """cov(z_v, z_w) of all nodes follows from the root's covariance, the gains P and the noises Q alone."""
    model = MODELS[name]
    law = GCGM(model, N)
    rooted = model.rooted()
    root = rooted.variables[0]
    mean = {root: law.mean((root,))}
    covariance = {(root, root): law.covariance((root,))}
    for u, v in rooted.edge_of:
        factor = law.tree_factor(u, v)
        mean[v] = factor.mean(mean[u])
        for w in list(mean):
            if w != v:
                covariance[v, w] = factor.gain.T @ covariance[u, w]
                covariance[w, v] = covariance[v, w].T
        covariance[v, v] = factor.gain.T @ covariance[u, u] @ factor.gain + factor.noise
    for v in rooted.variables:
        np.testing.assert_allclose(mean[v], law.mean((v,)), atol=1e-11)
        for w in rooted.variables:
            np.testing.assert_allclose(covariance[v, w], law.covariance((v,), (w,)), atol=1e-11)


@pytest.mark.parametrize("name", sorted(set(TREES) & set(POSITIVE)))
def test_tree_factors_are_the_density_of_the_nodes(name):
    """Σ log factors = log N of all node counts, each without one entry, by the dense covariance."""
    from scipy import stats

    model = MODELS[name]
    law = GCGM(model, N)
    z = away_from_the_mean(model, 2)
    nodes = {v: z.table((v,)) for v in model.variables}
    kept = {v: slice(0, model.size((v,))[0] - 1) for v in model.variables}
    mean = np.concatenate([law.mean((v,))[kept[v]] for v in model.variables])
    covariance = np.block(
        [[law.covariance((v,), (w,))[kept[v], kept[w]] for w in model.variables] for v in model.variables]
    )
    if not mean.size:
        assert law.node_log_density(nodes) == 0
        return
    value = np.concatenate([nodes[v][kept[v]] for v in model.variables])
    expected = stats.multivariate_normal(mean, covariance).logpdf(value)
    assert law.node_log_density(nodes) == pytest.approx(expected, rel=1e-8, abs=1e-8)


@every_tree
def test_node_density_refuses_what_cannot_be(name):
    """−∞ for a total that is not N; an error for a node without counts."""
    model = MODELS[name]
    law = GCGM(model, N)
    nodes = {v: law.mean((v,)) for v in model.variables}
    assert np.isfinite(law.node_log_density(nodes))
    assert law.node_log_density({**nodes, model.variables[-1]: nodes[model.variables[-1]] * 1.1}) == -np.inf
    with pytest.raises(ModelError, match="no counts for the node"):
        law.node_log_density({})


def test_factors_are_of_edges_and_of_trees():
    """tree_factor refuses what is no edge and what is no tree; conditional_node takes any two variables."""
    with pytest.raises(ModelError, match="not joined by an edge"):
        GCGM(MODELS["chain"], N).tree_factor("mon", "wed")
    with pytest.raises(ModelError, match="no tree"):
        GCGM(MODELS["four-cycle"], N).tree_factor("a", "b")
    with pytest.raises(ModelError, match="needs a tree"):
        GCGM(MODELS["four-cycle"], N).node_log_density({})


WRONG = [
    None,
    3,
    "x",
    [1, 2],
    {},
    np.nan,
    np.array([["a"]]),
    object(),
    [[1, -1], [0, 1]],
    [[np.nan, 1], [1, 0]],
    b"x",
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda value: type(value).__name__)
def test_wrong_arguments_are_errors_of_ours(wrong):
    """Whatever is passed for a model, a population, a scope, tables or counts: a ModelError."""
    law = GCGM(MODELS["chain"], N)
    edge = law.conditional_edge("mon", "tue")
    for call in (
        lambda: GCGM(wrong, 5),
        lambda: law.mean(wrong),
        lambda: law.covariance(wrong),
        lambda: law.coordinates(wrong),
        lambda: law.tree_factor(wrong, "tue"),
        lambda: law.conditional_node("tue", given=wrong),
        lambda: law.conditional_edge("mon", wrong),
        lambda: law.node_log_density(wrong),
        lambda: law.log_density(wrong),
        lambda: MinimalCoordinates(law.model, wrong),
        lambda: EdgeConditional(wrong),
        lambda: edge_mean(edge, wrong, wrong),
        lambda: LaplacianFactor(wrong),
        lambda: star_weights(wrong),
    ):
        with pytest.raises(ModelError):
            call()


def test_real_tables_are_finite_and_complete():
    """Real entries are taken; what is not finite or has another shape is refused."""
    model = MODELS["chain of length one"]
    assert RealTables(model, {(0,): [0.5, 1, 1, 1]}).population == 3.5
    for wrong in ([np.nan, 1, 1, 1], [1.0, 2.0]):
        with pytest.raises(ModelError, match="finite"):
            RealTables(model, {(0,): wrong})
