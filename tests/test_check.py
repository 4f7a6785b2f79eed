"""Simulation-based calibration: what is right is called right, what is wrong is called wrong, in words."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

import headcount as hc
from headcount import check

NAN = float("nan")


def chain(initial=(0.5, 0.3, 0.2)) -> hc.MarkovChain:
    return hc.MarkovChain(
        initial, [[0.8, 0.15, 0.05], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]], length=4, cells=["a", "b", "c"]
    )


def problem(model: hc.MarkovChain | None = None) -> hc.Problem:
    counts = np.full((4, 3), 100.0)
    counts[2] = NAN
    return hc.Problem(model or chain(), 300, hc.Poisson(counts))


def test_the_default_engine_is_calibrated_and_says_so() -> None:
    """90 % intervals of nodes and flows hold 87 to 95 % (whole numbers), no test speaks, and the error rate is stated."""
    found = hc.check.calibration(problem(), datasets=60, rng=1)
    assert found.calibrated
    at = found.table[found.table["nominal"] == 0.9]
    assert at["covered"].between(0.87, 0.95).all()
    assert found.verdict.startswith("Calibrated: in 60 data sets")
    assert "0.01 of such checks" in found.verdict
    assert set(found.pit["group"]) == {"nodes", "flows"}
    pit = found.pit["pit"].to_numpy()
    assert pit.min() >= 0
    assert pit.max() <= 1
    assert pit.mean() == pytest.approx(0.5, abs=0.03)
    assert found.picture().numbers["group"].tolist() == found.table["group"].tolist()
    assert found.pit_picture().numbers["share"].sum() == pytest.approx(1)


def test_an_engine_that_trusts_the_counts_too_much_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts taken as ten times more exact than they are: intervals are said to be too narrow, with the factor."""

    def trusting(data, engine, parametrisation, seed):
        del engine, parametrisation, seed
        sure = [hc.Gaussian(s.noise.counts, on=s.scope[0], sd=1.0) for s in data.sites]
        return hc.infer(hc.Problem(data.model, data.population, sure))

    monkeypatch.setattr(check, "_answer", trusting)
    found = hc.check.calibration(problem(), datasets=20, rng=1)
    assert not found.calibrated
    assert "intervals of nodes are too narrow by about a factor of" in found.verdict
    assert found.verdict.startswith("Not calibrated")


def test_an_unknown_initial_law_is_drawn_from_its_prior() -> None:
    """The default answer with an unknown initial law is calibrated too."""
    found = hc.check.calibration(problem(chain(None)), datasets=30, rng=2)
    assert found.calibrated, found.verdict


def test_learned_parameters_are_part_of_the_answer() -> None:
    """With a parametrisation every data set is fitted: integrated over the parameters the answer is calibrated."""
    setting = hc.LogisticChain(np.eye(3)[None], names=["stay"])
    truth = setting.bind(chain()).model(np.array([1.5]))
    found = hc.check.calibration(problem(truth), parametrisation=setting, datasets=20, rng=3)
    assert found.calibrated, found.verdict


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"datasets": 3}, "datasets"),
        ({"error_rate": 2.0}, "error_rate"),
        ({"engine": "MAP"}, "no spread"),
    ],
)
def test_what_cannot_be_checked_is_refused_in_words(change, match) -> None:
    """Too few data sets, an error rate that is none, an engine without intervals."""
    with pytest.raises(ValueError, match=match):
        hc.check.calibration(problem(), **({"rng": 1, "datasets": 10} | change))


def test_nothing_observed_is_refused() -> None:
    """Without observations there is nothing to infer."""
    with pytest.raises(hc.ProblemError, match="nothing is observed"):
        hc.check.calibration(hc.Problem(chain(), 300), rng=1)


@pytest.mark.parametrize(("y", "mean", "sd"), [(3.0, 3.0, 1.0), (7.0, 4.2, 1.5), (0.0, 12.0, 4.0)])
def test_the_crps_of_a_gaussian_is_its_integral(y: float, mean: float, sd: float) -> None:
    """CRPS = ∫ (F(x) − 1[y ≤ x])² dx."""
    x = np.linspace(mean - 12 * sd - 12, mean + 12 * sd + 12, 400_001)
    integral = np.trapezoid((ndtr((x - mean) / sd) - (x >= y)) ** 2, x)
    ((_, _, crps, _, _),) = check._scored(1, "forecast", np.array([y]), np.array([mean]), np.array([sd]), 0.9)
    assert crps == pytest.approx(integral, abs=1e-3)
