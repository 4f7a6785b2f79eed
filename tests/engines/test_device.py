"""Engines on a device give the CPU's answers: on a device that only pretends everywhere, on CuPy's where there is one."""

from __future__ import annotations

import builtins
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from tests.fake_device import fake_device

import headcount as hc
from headcount import _device
from headcount.engines import MAP, ClosedForm, Laplace, TiltedEP
from headcount.memory import TooLargeError
from headcount.structure._variance_draws import noise

AGREE = 1e-8
"""Of N, between means on a device and on the CPU."""


def real_device() -> bool:
    try:
        _device._cuda()
    except _device.DeviceError:
        return False
    return True


@pytest.fixture(
    params=[
        "pretended",
        pytest.param(
            "cuda", marks=pytest.mark.skipif(not real_device(), reason="CuPy finds no CUDA device here")
        ),
    ]
)
def device(request, monkeypatch):
    """A device, under the name "cuda"."""
    if request.param == "pretended":
        made = fake_device()
        monkeypatch.setattr(_device, "_cuda", lambda: made)
    return _device._cuda()


@cache
def problem(name):
    """Chains of six cells: dense, sparse, with a transition per step, a tree; cells, flows and sums seen, some exactly."""
    rng = np.random.default_rng(5)
    table = rng.dirichlet(np.ones(6), size=6)
    steps = table
    if name in ("sparse", "sparse flows"):
        near = np.abs(np.subtract.outer(np.arange(6), np.arange(6))) <= 2
        steps = sparse.csr_array((table * near) / (table * near).sum(axis=1, keepdims=True))
    if name == "steps":
        steps = list(rng.dirichlet(np.ones(6), size=(3, 6)))
    model = hc.MarkovChain(rng.dirichlet(np.full(6, 5.0)), steps, length=4)
    if name == "tree":
        model = hc.Tree(
            rng.dirichlet(np.full(6, 5.0)),
            {1: (0, table), 2: (1, table), 3: (1, table.T / table.sum(axis=0)[:, None])},
        )
    paths = model.sample(300, rng=rng)
    counts = {t: np.bincount(x, minlength=6) for t, x in zip(model.variables, paths.T, strict=True)}
    flows = np.zeros((6, 6))
    np.add.at(flows, (paths[:, 1], paths[:, 2]), 1.0)
    one = hc.Exact(counts[1], on=1) if name == "exact" else hc.Poisson(counts[1], on=1)
    if name == "correlated":
        one = hc.Gaussian(counts[1], covariance=9.0 * (np.eye(6) + 0.3), on=1)
    seen = [hc.Poisson(counts[0], on=0), one, hc.Poisson(counts[3], on=3)]
    if name.endswith("flows"):
        seen.append(hc.Poisson(flows, on=(1, 2)))
    return hc.Problem(model, 300, seen)


def agree(here, there, tolerance=AGREE):
    """Means of all cells and flows within the tolerance; sds as near as rounding lets draws be."""
    variables, n = here.problem.model.variables, here.problem.population
    for scope in [(v,) for v in variables] + list(here.problem.model.rooted().edge_of):
        mine, theirs = (post.beliefs.mean(scope) for post in (here, there))
        assert isinstance(theirs, np.ndarray)
        np.testing.assert_allclose(theirs, mine, atol=tolerance * n, rtol=0)
        if here.beliefs.has_spread:
            mine, theirs = (post.beliefs.variance(scope) for post in (here, there))
            np.testing.assert_allclose(theirs, mine, atol=1e-6 * n, rtol=0)


@pytest.mark.parametrize(
    "name", ["dense", "sparse", "steps", "tree", "exact", "flows", "sparse flows", "correlated"]
)
def test_the_default_without_matrices(name, device):
    """TiltedEP without matrices, whatever is seen: means, sds, errors and evidence of the CPU."""
    del device
    here, there = (
        hc.infer(problem(name), TiltedEP(structure="matrix-free", device=place)) for place in ("cpu", "cuda")
    )
    agree(here, there)
    if here.log_evidence is not None:
        assert there.log_evidence == pytest.approx(here.log_evidence, abs=1e-6)
    scope = next(iter(problem(name).model.rooted().edge_of))
    np.testing.assert_allclose(there.beliefs.mc_error(scope), here.beliefs.mc_error(scope), atol=1e-6)


@pytest.mark.parametrize("name", ["dense", "sparse", "steps", "tree"])
def test_the_default_with_matrices(name, device):
    """TiltedEP with matrices where single cells are seen: means, sds and evidence of the CPU, and draws and covariances."""
    del device
    here, there = (
        hc.infer(problem(name), TiltedEP(structure="tree", device=place)) for place in ("cpu", "cuda")
    )
    agree(here, there)
    assert there.log_evidence == pytest.approx(here.log_evidence, abs=1e-8)
    mine, theirs = (post.beliefs.covariance((0,), (2,)) for post in (here, there))
    np.testing.assert_allclose(theirs, mine, atol=1e-8)
    mine, theirs = (
        post.beliefs.sample(3, rng=np.random.default_rng(1), integer=False) for post in (here, there)
    )
    for edge, drawn in mine.items():
        np.testing.assert_allclose(theirs[edge], drawn, atol=1e-6)


def test_matrices_are_refused_where_more_than_cells_is_seen(device):
    """Flows with matrices on a device: refused when they are asked for, without matrices when nothing is asked for."""
    del device
    with pytest.raises(hc.ModelError, match='structure="matrix-free"'):
        hc.infer(problem("flows"), TiltedEP(structure="tree", device="cuda"))
    assert hc.infer(problem("flows"), TiltedEP(device="cuda")).beliefs.field.log_z is not None


def test_nearly_unconnected_cells_are_factored_here(device):
    """The noise of a step whose cells hardly exchange anyone: Cholesky's pivots are rounding, and the factor is made on the CPU."""
    from headcount.population.laplacian import LaplacianFactor

    weights = np.ones((6, 6))
    weights[:3, 3:] = weights[3:, :3] = 1e-12
    np.fill_diagonal(weights, 0.0)
    for given in (weights, np.ones((6, 6)) - np.eye(6)):
        here, there = LaplacianFactor(given), LaplacianFactor(device.put(given))
        root = _device.host(there.root)
        np.testing.assert_allclose(root @ root.T, here.root @ here.root.T, atol=1e-13)
        np.testing.assert_allclose(_device.host(there.resistances), here.resistances, rtol=1e-9)


@pytest.mark.parametrize("name", ["dense", "sparse", "tree", "exact", "sparse flows"])
def test_most_probable_counts(name, device):
    """MAP: the counts of the CPU."""
    del device
    agree(*(hc.infer(problem(name), MAP(device=place)) for place in ("cpu", "cuda")))


@pytest.mark.parametrize("engine", [Laplace, ClosedForm])
def test_engines_that_share_the_structure(engine, device):
    """Laplace and ClosedForm take the device too."""
    del device
    asked = problem("dense")
    if engine is ClosedForm:
        asked = hc.Problem(asked.model, 300, hc.Gaussian(asked.sites[1].noise.counts, sd=4.0, on=1))
    agree(*(hc.infer(asked, engine(structure="matrix-free", device=place)) for place in ("cpu", "cuda")))


def test_what_is_asked_afterwards(device):
    """Covariances, joint draws and more final draws of a posterior on a device are the CPU's."""
    del device
    here, there = (
        hc.infer(problem("dense"), TiltedEP(structure="matrix-free", device=place))
        for place in ("cpu", "cuda")
    )
    mine, theirs = (post.beliefs.covariance((0,), (2,)) for post in (here, there))
    np.testing.assert_allclose(theirs, mine, atol=1e-6)
    mine, theirs = (
        post.beliefs.sample(3, rng=np.random.default_rng(1), integer=True) for post in (here, there)
    )
    for edge in pairwise(range(4)):
        np.testing.assert_array_equal(theirs[edge], mine[edge])
    mine, theirs = (post.beliefs.more_draws(8).mc_error((1,)) for post in (here, there))
    np.testing.assert_allclose(theirs, mine, atol=1e-6)


def test_potentials_that_underflow_are_passed_in_logs(device):
    """Tilts of a thousand nats, which belief propagation takes in log space, on the CPU: the same law comes back to the device."""
    from headcount.individual.rooted_tree import node_beliefs, tilted

    tree = problem("dense").model.rooted()
    g = np.zeros((4, 6))
    g[2, 1:] = [-1000.0, -2000.0, -1.0, -np.inf, 0.0]
    for passes in (node_beliefs, tilted):
        mine, theirs = passes(tree, g), passes(tree.on(device), g)
        assert theirs[0] == pytest.approx(mine[0], abs=1e-12)
        laws = [found[1] if passes is node_beliefs else found[1].transitions for found in (mine, theirs)]
        for a, b in zip(*(law[1:] for law in laws), strict=True):
            np.testing.assert_allclose(_device.host(b), a, atol=1e-14)


def test_noise_of_moves_is_that_of_the_compiled_loops(device):
    """Noise by whole arrays has the bits of the compiled loops, so draws agree: sums by row of a dense step."""
    from headcount.structure._matrix_free_kernels import _row_noise, _row_room

    key, draws, width = np.uint64(2**63 + 12345), 40, 7
    ends = np.arange(0, 3 * width + 1, width)
    columns, values = np.tile(np.arange(width, dtype=np.int32), 3), np.full(3 * width, 1 / width)
    step = (ends, columns, values, np.ones(3), np.ones(width), np.full(3, 5.0))
    room = _row_room(ends, draws)
    place = device.xp.asarray(np.arange(3 * width, dtype=np.uint64).reshape(3, width))
    found = _device.host(noise(key, place, device.xp.asarray(np.full((3, width), np.sqrt(5 / width))), draws))
    for i in range(3):
        _row_noise(step, i, key, np.zeros((3, draws)), room)
        np.testing.assert_allclose(found[:, i], room[1].T, atol=1e-15)


def test_a_device_that_is_too_small_is_refused_with_both_numbers(monkeypatch):
    """What a run needs and what is free are named before anything is copied."""
    small = fake_device(free=1000)
    monkeypatch.setattr(_device, "_cuda", lambda: small)
    for engine in (MAP(device="cuda"), TiltedEP(device="cuda")):
        with pytest.raises(TooLargeError, match=r"of the device's memory and 1(\.0)? kB of it is free"):
            hc.infer(problem("dense"), engine)


def test_without_cupy_or_device_it_says_what_to_do(monkeypatch):
    """No CuPy: how to install it, and what runs without; any other name: what there is."""
    found = builtins.__import__

    def nothing(name, *args, **kwargs):
        if name.startswith("cupy"):
            raise ImportError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", nothing)
    _device._cuda.cache_clear()
    with pytest.raises(_device.DeviceError, match=r'pip install "headcount\[gpu\]", or leave device out'):
        hc.infer(problem("dense"), TiltedEP(device="cuda"))
    monkeypatch.undo()
    _device._cuda.cache_clear()
    with pytest.raises(ValueError, match="device must be one of 'cpu', 'cuda', got 'tpu'"):
        TiltedEP(device="tpu")


def test_problems_that_no_device_solves(device):
    """Individuals that move together, and models that are no tree, are refused in words."""
    del device
    asked = problem("dense")
    together = hc.Problem(
        asked.model, 300, hc.Poisson(asked.sites[1].noise.counts, on=1), dispersion=hc.Overdispersion(phi=3.0)
    )
    with pytest.raises(hc.ModelError, match="chains and trees of independent individuals"):
        hc.infer(together, TiltedEP(device="cuda"))
