"""Sites of one noise that differ in more than numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import headcount as hc
from headcount.engines import MAP, Enumerate, TiltedEP


@dataclass(frozen=True, eq=False, kw_only=True)
class Halved(hc.Observation):
    """Readings of n, or of n / 2, with an sd that may be left out."""

    halved: bool = False
    sd: Any = None

    def log_prob(self, n):
        seen = self.counts * (2 if self.halved else 1)
        return -0.5 * ((seen - np.asarray(n, float)) / (2.0 if self.sd is None else self.sd)) ** 2


@pytest.mark.parametrize(
    "second",
    [Halved([10.0, 15.0], on=1, halved=True), Halved([20.0, 30.0], on=1, sd=9.0)],
    ids=["a flag", "a number that the first leaves out"],
)
@pytest.mark.parametrize("turned", [False, True])
def test_what_one_site_says_is_not_read_into_another(second, turned):
    """Two sites of one class with different flags, or parameters: every engine answers as enumeration does."""
    model = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=2)
    both = [Halved([20.0, 30.0], on=0), second]
    asked = hc.Problem(model, 50, both[::-1] if turned else both)
    exact = hc.infer(asked, Enumerate()).beliefs.mean((1,))
    for engine in (TiltedEP(), MAP()):
        np.testing.assert_allclose(hc.infer(asked, engine).beliefs.mean((1,)), exact, atol=0.1)
