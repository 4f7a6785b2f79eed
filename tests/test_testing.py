"""The public checks pass on what is right and fail on what is wrong, with the law that is broken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from scipy.special import gammaln

import headcount as hc
from headcount.engines import ClosedForm, PathGibbs, TiltedEP
from headcount.testing import check_engine, check_noise, check_population

AT = np.array([4.0, 7.0, 30.0])
NOISES = [
    hc.Poisson([3.0, 9.0, 25.0], rate=0.7, background=0.5),
    hc.Binomial([2.0, 6.0, 11.0], detection=0.6),
    hc.NegativeBinomial([3.0, 9.0, 25.0], dispersion=2.0),
    hc.Gaussian([3.3, 9.1, 25.0], sd=1.5),
]


@dataclass(frozen=True, eq=False, kw_only=True)
class Doubled(hc.Observation):
    """Poisson(n) whose slope, or whose draws, are wrong."""

    wrong: str = "slope"
    whole: ClassVar[bool] = True

    def log_prob(self, n):
        return self.counts * np.log(n) - n - gammaln(self.counts + 1)

    def slope(self, n):
        return (2 if self.wrong == "slope" else 1) * (self.counts / n - 1)

    def curvature(self, n):
        return (2 if self.wrong == "slope" else 1) * -self.counts / np.asarray(n) ** 2

    def sample(self, n, *, rng):
        return rng.poisson((1.1 if self.wrong == "draws" else 1.0) * n).astype(float)


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: type(noise).__name__)
def test_our_noises_pass(noise: hc.Observation) -> None:
    """Every noise of the library obeys the laws."""
    check_noise(noise, AT)


@pytest.mark.parametrize(
    ("wrong", "law"), [("slope", "derivative of log_prob"), ("draws", "mean of log_prob")]
)
def test_a_wrong_noise_is_found(wrong: str, law: str) -> None:
    """The broken law is named."""
    check_noise(Doubled([3.0, 9.0, 25.0], wrong="nothing"), AT)
    with pytest.raises(AssertionError, match=law):
        check_noise(Doubled([3.0, 9.0, 25.0], wrong=wrong), AT)


def test_engines() -> None:
    """The default and the sampler pass; an engine at the prior's centre does not get near enough for a strict limit."""
    check_engine(TiltedEP())
    check_engine(PathGibbs(sweeps=2000), means=0.1)
    with pytest.raises(AssertionError, match="means of"):
        check_engine(TiltedEP(centre="prior"), means=1e-4)
    gaussian = hc.Problem(
        hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=2),
        4,
        hc.Gaussian([2.2, 1.7], sd=1.0, on=0),
    )
    check_engine(ClosedForm(), [gaussian])


@pytest.mark.parametrize(
    "chain",
    [
        hc.OpenChain([2.0], [[1.0]], arrivals=1, survival=0.7, length=2),
        hc.MemoryChain(
            [0.5, 0.5],
            [[0.8, 0.2], [0.3, 0.7]],
            [[[0.9, 0.1], [0.4, 0.6]], [[0.7, 0.3], [0.1, 0.9]]],
            length=3,
        ),
        hc.SemiMarkovChain([0.5, 0.5], [0.2, 0.5, 0.8], [[0.0, 1.0], [1.0, 0.0]], length=3),
        hc.HomeChain([0.6, 0.4], [[0.8, 0.2], [0.3, 0.7]], [0.5, 0.2], length=3),
    ],
    ids=["open", "memory", "stays", "homes"],
)
def test_kinds_of_population(chain: hc.MarkovChain) -> None:
    """Arrivals, memory, stays and homes pass."""
    check_population(chain)


def test_a_wrong_kind_of_population_is_found() -> None:
    """A chain whose marginals are not those of its individuals."""

    class Wrong(hc.OpenChain):
        def marginal(self, scope):
            return 1.3 * super().marginal(scope)

    with pytest.raises(AssertionError, match="simulated counts"):
        check_population(Wrong([2.0], [[1.0]], arrivals=1, survival=0.7, length=2))
