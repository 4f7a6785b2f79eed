"""Everything that is known of populations, together: random combinations against enumeration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.combinations import FIRST_HOMES, problem_of, random_combination, wide_combination

import headcount as hc
from headcount.engines import Enumerate

SEEDS = range(30)


@pytest.mark.parametrize("seed", SEEDS)
def test_combinations_agree_with_enumeration(seed: int) -> None:
    """No mean off by more than .1 N or half a posterior sd, evidence within 1 nat; MAP answers too, and nothing is refused.

    Enumeration knows no phi and no rho, lists few individuals only, and sizes without an end for minutes: there, that both answer is all
    that is asked (`tests/engines/test_sizes.py` has sums over all sizes).
    """
    case = random_combination(seed, people=3)
    problem = problem_of(case)
    found = hc.infer(problem, "TiltedEP", strict=False)
    point = hc.infer(problem, "MAP", strict=False)
    for v in problem.model.variables:
        assert np.isfinite(found.node(v).mean.values).all(), case.name
        assert np.isfinite(point.node(v).mean.values).all(), case.name
    if case.size in {"about", "unknown"} or case.opens:
        return
    try:
        exact = hc.infer(problem, Enumerate(most=100_000))
    except (hc.ProblemError, ValueError):  # too many to list, or a dispersion that no individual has
        return
    people = exact.population.mean
    for v in problem.model.variables:
        off = np.abs(found.node(v).mean.values - exact.node(v).mean.values)
        assert (off <= np.maximum(0.1 * people, 0.5 * exact.node(v).sd.values)).all(), case.name
    if found.log_evidence is not None:
        assert found.log_evidence == pytest.approx(exact.log_evidence, abs=1.0), case.name


@pytest.mark.parametrize("seed", range(FIRST_HOMES + 15))
def test_every_graph_and_noise_agree_with_enumeration(seed: int) -> None:
    """The same on semi-Markov stays, chains with a memory or homes, trees and loops, with every noise; what `infer` picks, and `TiltedEP`.

    All converge but where nothing is said of two sizes of which a sum is all that is seen.
    """
    case = wide_combination(seed, people=3 if seed % 2 else 40)
    problem = problem_of(case)
    told = case.size != "unknown" or case.kind == "one"
    answers = [hc.infer(problem, engine, rng=seed, strict=False) for engine in (None, "TiltedEP", "MAP")]
    for found in answers:
        assert found.status.good or not told, case.name
        for v in problem.model.variables:
            assert np.isfinite(found.node(v).mean.values).all(), case.name
    try:
        exact = hc.infer(problem, Enumerate(most=100_000))
    except (hc.ProblemError, ValueError):
        return
    people = exact.population.mean
    for found in answers[:2]:
        if not found.status.good:
            continue
        for v in problem.model.variables:
            off = np.abs(found.node(v).mean.values - exact.node(v).mean.values)
            assert (off <= np.maximum(0.1 * people, 0.5 * exact.node(v).sd.values)).all(), case.name
        if found.log_evidence is not None:
            assert found.log_evidence == pytest.approx(exact.log_evidence, abs=1.0), case.name


@pytest.mark.parametrize("seed", [0, 6, 9])
def test_combinations_go_through_files_and_the_page(seed: int, tmp_path: Path) -> None:
    """What is written, of all and of every group, is read again with the same means, and shown."""
    case = random_combination(seed, people=20)
    found = hc.infer(problem_of(case), "TiltedEP", strict=False)
    hc.io.write_results(found, tmp_path / "results")
    back = hc.Posterior.load(tmp_path / "results" / "posterior.nc")
    for v in found.problem.model.variables:
        np.testing.assert_allclose(back.node(v).mean, found.node(v).mean, rtol=1e-6, atol=1e-9)
    assert hc.report.write(tmp_path / "results").stat().st_size > 10_000
