"""An engine to start from: the prior mean, which looks at no data. Replace the steps, then run this file."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

import headcount as hc
from headcount.engines import IterativeEngine
from headcount.observe import ClosedProblem
from headcount.posterior import PointBeliefs


@dataclass(frozen=True)
class MyState:
    """What the next step needs; a step makes a new one."""

    problem: ClosedProblem
    model: hc.Model
    change: float = np.inf


@dataclass(frozen=True)
class MyEngine(IterativeEngine):
    """The prior mean."""  # REPLACE: the method, its equation and its reference

    name: ClassVar[str] = "MyEngine"
    tolerance: float = 1e-8
    max_iterations: int = 100

    def init(self, problem, rng):
        """The first state; refuse here what the engine cannot do, and name an engine that can."""
        if problem.traits.correlated:
            raise ValueError("MyEngine takes independent errors; for correlated ones use TiltedEP")
        return MyState(problem, problem.model)

    def step(self, state):
        """The next state."""
        return replace(state, change=0.0)  # REPLACE

    def residual(self, state):
        """How far from the answer; at or below `tolerance` the run ends."""
        return state.change

    def finish(self, state):
        """What the state stands for: means here; GaussianBeliefs for means with covariances."""
        return PointBeliefs(state.model, state.problem.population)


def check() -> None:
    """Means are those of the law of one individual, times N; REPLACE by a comparison with hc.engines.Enumerate()."""
    chain = hc.MarkovChain([0.9, 0.1], [[0.7, 0.3], [0.2, 0.8]], length=3)
    post = hc.infer(hc.Problem(chain, 12, hc.Poisson([[9, 1], [6, 3], [4, 5]])), MyEngine())
    assert post.status.good
    assert np.allclose(post.node(1).mean, 12 * chain.marginal((1,)))


if __name__ == "__main__":
    check()
    print("MyEngine ran")
