"""Two results held against each other."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from headcount.report._compare import ComparisonError, compare_results
from sample_results import attributes, chain, network


def test_differences_are_second_minus_first() -> None:
    """Means subtract, and a result compared with itself differs nowhere."""
    a, b = chain(seed=1), chain(seed=2)
    found = compare_results(a, b)
    np.testing.assert_allclose(found.nodes["difference"], b.nodes["mean"] - a.nodes["mean"])
    np.testing.assert_allclose(found.flows["difference"], b.flows["mean"] - a.flows["mean"])
    same = compare_results(a, a)
    assert not same.nodes["clear"].any()
    assert same.evidence == 0.0
    turned = compare_results(b, a)
    np.testing.assert_allclose(turned.nodes["lower"], -found.nodes["upper"])


def test_intervals_of_differences_hold_what_they_say() -> None:
    """For independent Gaussian answers the interval of the difference is the exact one: sds add in squares; so it holds 90 %."""
    a, b = chain(seed=1), chain(seed=2)
    wide = (a.nodes["mean"] > 30) & (b.nodes["mean"] > 30)
    found = compare_results(a, b).nodes[wide]
    half = 1.6448536269514722 * np.hypot(a.nodes["sd"], b.nodes["sd"])[wide]
    np.testing.assert_allclose(found["upper"] - found["difference"], half, rtol=1e-6)
    np.testing.assert_allclose(found["difference"] - found["lower"], half, rtol=1e-6)
    rng = np.random.default_rng(0)
    draws = rng.normal(b.nodes["mean"], b.nodes["sd"], (4000, len(b.nodes))) - rng.normal(
        a.nodes["mean"], a.nodes["sd"], (4000, len(a.nodes))
    )
    inside = (draws[:, wide] >= found["lower"].to_numpy()) & (draws[:, wide] <= found["upper"].to_numpy())
    assert inside.mean() == pytest.approx(0.9, abs=0.01)


def test_evidence_only_of_the_same_counts() -> None:
    """Evidences subtract where both results have seen the same counts, and are not compared otherwise."""
    a = chain()
    better = dataclasses.replace(a, attributes=attributes(log_evidence=-4.0))
    assert compare_results(a, better).evidence == pytest.approx(5.0)
    other = dataclasses.replace(better, nodes=better.nodes.assign(observed=1.0))
    found = compare_results(a, other)
    assert found.evidence is None
    assert "different counts" in " ".join(found.notes)
    none = dataclasses.replace(a, attributes=attributes(log_evidence=None))
    assert "no evidence" in " ".join(compare_results(a, none).notes)


def test_what_cannot_be_compared_is_refused() -> None:
    """Unlike models, other levels, nothing in common; a part in common is said."""
    a = chain()
    with pytest.raises(ComparisonError, match="compare like with like"):
        compare_results(a, network())
    with pytest.raises(ComparisonError, match="same level"):
        compare_results(a, dataclasses.replace(a, attributes=attributes(interval_level=0.5)))
    later = dataclasses.replace(a, nodes=a.nodes.assign(time=a.nodes["time"] + 100))
    with pytest.raises(ComparisonError, match="no time and cell in common"):
        compare_results(a, later)
    half = dataclasses.replace(a, nodes=a.nodes[a.nodes["time"] < 3])
    assert "27 counts are in both results" in " ".join(compare_results(a, half).notes)
