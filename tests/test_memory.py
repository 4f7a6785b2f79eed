"""Memory is refused before it is taken, with both numbers, and the limit is the user's."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from headcount import memory
from headcount.errors import ModelError
from headcount.individual import DiscreteModel, MarkovChain
from headcount.population import CGM

CELLS = 20_000


@pytest.fixture(scope="module")
def chain() -> MarkovChain:
    """A sparse chain of 20 000 cells: each dense table would take 3.2 GB."""
    stay = sparse.eye_array(CELLS).tocsr()
    return MarkovChain(np.full(CELLS, 1 / CELLS), stay, length=3)


QUESTIONS = {
    "pair": lambda chain: chain.marginal((0, 1)),
    "distant pair": lambda chain: chain.marginal((0, 2)),
    "triple": lambda chain: chain.marginal((0, 1, 2)),
    "joint marginal": lambda chain: chain.joint_marginal((0,), (1,)),
    "factors": lambda chain: chain.factors,
    "discrete": lambda chain: DiscreteModel.from_model(chain),
    "covariance": lambda chain: CGM(chain, 100).covariance((0,), (1,)),
    "sample": lambda chain: chain.sample(10**12, rng=1),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_dense_tables_of_twenty_thousand_cells_are_refused(chain: MarkovChain, name: str) -> None:
    """Refused with the bytes needed and the limit, before anything large is allocated."""
    tracemalloc.start()
    try:
        with (
            memory.limited("1GB"),
            pytest.raises(ModelError, match=r"would take .*[GT]B of memory and the limit is 1 GB"),
        ):
            QUESTIONS[name](chain)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5e7


def test_a_dense_matrix_is_not_copied_beyond_the_limit() -> None:
    """The matrix given is there already; the model's own copy is what is refused."""
    moves = np.full((500, 500), 1 / 500)
    with memory.limited("1MB"), pytest.raises(ModelError, match=r"a copy of .* would take 2 MB"):
        MarkovChain(np.full(500, 1 / 500), moves, length=2)
    moves.flags.writeable = False
    with memory.limited("1MB"):
        assert MarkovChain(np.full(500, 1 / 500), moves, length=2).transitions[0] is moves


def test_small_questions_of_a_large_chain_are_answered(chain: MarkovChain) -> None:
    """What stays sparse is answered under the same limit."""
    with memory.limited("1GB"):
        assert chain.marginal((2,)).sum() == pytest.approx(1)
        assert CGM(chain, 100).sample(rng=1).population == 100


def test_the_limit_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of code overrides the environment, which overrides the share of free memory; a wrong one is named."""
    monkeypatch.setenv(memory.VARIABLE, "3GB")
    assert memory.limit() == 3 * 10**9
    with memory.limited(500):
        assert memory.limit() == 500
    assert memory.limit() == 3 * 10**9
    monkeypatch.setenv(memory.VARIABLE, "much")
    with pytest.raises(ModelError, match=r"HEADCOUNT_MEMORY.*got 'much'"):
        memory.limit()
    monkeypatch.delenv(memory.VARIABLE)
    free = memory.free_memory()
    assert free is None or memory.limit() <= free


def test_what_is_just_allowed() -> None:
    """The limit itself may be taken, one byte more may not."""
    memory.require(100, "this", limit=100)
    with pytest.raises(ModelError, match="this would take 101 B of memory and the limit is 100 B"):
        memory.require(101, "this", limit=100)
