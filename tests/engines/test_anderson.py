"""Mixing of fixed-point iterates, and how far it is trusted."""

import numpy as np
import pytest

from headcount.engines.tilted._anderson import FARTHEST, Seen, Trust, mixed


def test_mixing_goes_no_further_than_it_is_trusted():
    """A contraction by .99: the differences lead to its root at once, 99 plain steps away."""
    past = tuple(Seen(np.array([x]), np.array([-0.01 * x])) for x in (1.0, 0.99))
    plain = np.ones(1)
    assert mixed(past, plain, lambda r: r, Trust(1e3)) == pytest.approx(0.0, abs=1e-12)
    step = 0.99 * 0.01
    assert mixed(past, plain, lambda r: r, Trust(3.0)) == pytest.approx(0.99 - step - 3 * step)


def test_trust_is_lost_and_regained():
    trust = Trust()
    assert trust.after(better=True) == Trust(FARTHEST)
    for _ in range(20):
        trust = trust.refused()
    assert not trust.some
    assert trust.after_plain(better=False) == trust
    assert trust.after_plain(better=True).some
