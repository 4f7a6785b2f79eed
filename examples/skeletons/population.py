"""A kind of population to start from: individuals who cannot be counted for one step after they arrive in a cell from another."""

from functools import cached_property

import numpy as np

import headcount as hc
from headcount.individual import HIDDEN_STATE, HiddenStateChain


class MyChain(HiddenStateChain):
    """Individuals are at rest in a cell, or just arrived there and unseen."""  # REPLACE: what an individual does

    def __init__(self, initial, transitions, *, settle, length=None, times=None, cells=None):
        super().__init__(initial, transitions, length=length, times=times, cells=cells)
        self.settle = settle  # REPLACE: further parameters

    @cached_property
    def full(self):
        """The larger chain that an individual follows: at rest by cell, then unseen by cell."""
        size = len(self.cells)
        steps = []
        for p in map(np.asarray, self.transitions):  # REPLACE: its matrices
            stay, go = np.diag(np.diag(p)), p - np.diag(np.diag(p))
            steps.append(
                np.block([[stay, go], [self.settle * np.eye(size), (1 - self.settle) * np.eye(size)]])
            )
        return hc.MarkovChain(np.append(self.initial, np.zeros(size)), steps, times=self.times)

    @property
    def codes(self):
        """Which cell each state of the larger chain is, at every time; unseen states are none."""
        cells = np.arange(len(self.cells))  # REPLACE
        one = np.append(cells, np.full(len(cells), HIDDEN_STATE))
        return (one,) * len(self.times)

    @property
    def arguments(self):
        """What makes the same chain again; files need it."""
        given = {"initial": self.initial, "transitions": self.transitions, "settle": self.settle}
        return given | {"times": self.times, "cells": self.states}


def check() -> None:
    """The default engine agrees with enumeration, and an unknown number is found."""
    chain = MyChain([0.5, 0.5], [[0.7, 0.3], [0.3, 0.7]], settle=0.8, length=3)
    tiny = hc.Problem(chain, 5, hc.Poisson([[2, 3], [2, 1], [2, 2]]))
    exact, fast = hc.infer(tiny, "Enumerate"), hc.infer(tiny, "TiltedEP")
    assert abs(exact.log_evidence - fast.log_evidence) < 0.2
    assert np.abs(exact.node(1).mean - fast.node(1).mean).max() < 0.3
    world = hc.simulate.population(chain, 200, rng=1)
    post = hc.infer(hc.Problem(chain, hc.About(180, sd=40), hc.Poisson(world.observed)))
    assert abs(post.population.mean - 200) < 3 * post.population.sd


if __name__ == "__main__":
    check()
    print("MyChain agrees with enumeration")
