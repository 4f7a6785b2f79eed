"""A noise model to start from: y ~ Poisson(rate · n). Replace the law, then run this file."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammaln, xlogy

import headcount as hc


@dataclass(frozen=True, eq=False, kw_only=True)
class MyNoise(hc.Observation):
    """y ~ Poisson(rate · n)."""  # REPLACE: the law, as an equation

    rate: float = 1.0  # REPLACE: parameters, each one number or one per entry
    log_concave: ClassVar[bool] = True  # REPLACE: is log l(y | n) concave in n?
    whole: ClassVar[bool] = True  # are counts whole numbers ≥ 0?
    positive: ClassVar[dict[str, str]] = {"rate": "give the expected count per individual"}

    def log_prob(self, n):
        """log l(y | n) with its constants; −inf where impossible; finite at n = 0 where y = 0."""
        mean = self.rate * np.asarray(n, dtype=float)
        with np.errstate(invalid="ignore"):
            inside = xlogy(self.counts, mean) - mean - gammaln(self.counts + 1)  # REPLACE
        return np.where(mean >= 0, inside, -np.inf)

    def sample(self, n, *, rng):
        """Draw y; needed to simulate and for the check of fit."""
        return rng.poisson(self.rate * np.asarray(n, dtype=float)).astype(float)  # REPLACE


def check() -> None:
    """The law sums to one, and the default engine agrees with enumeration."""
    every = np.arange(200.0)
    for n in (0.0, 1.0, 7.0):
        total = np.exp(MyNoise(every, rate=0.8).log_prob(np.full(every.shape, n))).sum()
        assert np.isclose(total, 1), f"probabilities at n = {n} sum to {total}"
    chain = hc.MarkovChain([0.9, 0.1], [[0.7, 0.3], [0.2, 0.8]], length=3)
    problem = hc.Problem(chain, 12, MyNoise([[9, 1], [6, np.nan], [4, 5]], rate=0.8))
    exact, fast = hc.infer(problem, "Enumerate"), hc.infer(problem, "TiltedEP")
    assert np.abs(exact.node(1).mean - fast.node(1).mean).max() < 0.2
    assert abs(exact.log_evidence - fast.log_evidence) < 0.1


if __name__ == "__main__":
    check()
    print("MyNoise agrees with enumeration")
