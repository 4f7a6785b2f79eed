"""Claim: an open population seen in part: our evidence is the likelihood of the standard N-mixture model, and its intervals hold the truth.

Bikes at 34 stations of San Francisco, every hour from 8 to 20 o'clock of a Monday (`examples/docks`): they come and go, and two observers
each see a bike with probability ½. The standard model (Dail and Madsen) adds up the numbers at each station: initial Poisson(λ), arrivals
Poisson(γ), each bike stays with probability ω, each observer sees it with probability p. Here its forward sum is truncated at 120.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import binom, poisson

import headcount as hc
from benchmarks._report import ROOT, Check, Report, Table

DOCKS = ROOT / "examples" / "docks"
LARGEST = 120
"""Where the standard model's sums are cut; the largest true number is 69."""
EVALUATIONS = 400
"""Of the likelihood by its sum, at most: Nelder–Mead ends before."""
POLISH = 60
"""Evaluations of ours, from the sum's maximum on."""
NAMES = ("λ", "γ", "ω", "p")


def read(folder: Path = DOCKS) -> tuple[np.ndarray, pd.DataFrame]:
    """Counts (observer, time, station), and the truth."""
    seen = pd.read_csv(folder / "visits.csv", dtype={"cell": str})
    truth = pd.read_csv(folder / "truth.csv", dtype={"cell": str})
    order = list(truth["cell"].unique())
    tables = [
        part.pivot(index="time", columns="cell", values="count")[order].to_numpy()
        for _, part in seen.groupby("visit")
    ]
    return np.stack(tables), truth


def truncated_sum(seen: np.ndarray, lam: float, gamma: float, omega: float, p: float) -> tuple[float, Any]:
    """Log-likelihood of Dail and Madsen's model, and the posterior law of every number (time, station, n)."""
    n = np.arange(LARGEST + 1)
    stay, come = binom.pmf(n, n[:, None], omega), poisson.pmf(n, gamma)
    step = np.stack([np.convolve(row, come)[: LARGEST + 1] for row in stay])
    told = np.exp(binom.logpmf(seen[..., None], n, p).sum(axis=0))
    before, scale = np.empty_like(told), np.empty(told.shape[:2])
    law = np.broadcast_to(poisson.pmf(n, lam), told.shape[1:])
    for t in range(len(told)):
        law = (before[t - 1] @ step if t else law) * told[t]
        scale[t] = law.sum(axis=1)
        before[t] = law / scale[t][:, None]
    after = np.ones_like(told)
    for t in range(len(told) - 2, -1, -1):
        after[t] = (told[t + 1] * after[t + 1]) @ step.T / scale[t + 1][:, None]
    return float(np.log(scale).sum()), before * after


def problem(seen: np.ndarray, lam: float, gamma: float, omega: float, p: float) -> hc.Problem:
    """The same model as a chain: nobody moves from station to station, all come from outside and go there."""
    _, times, stations = seen.shape
    chain = hc.OpenChain(
        np.full(stations, lam), np.eye(stations), arrivals=gamma, survival=omega, length=times
    )
    return hc.Problem(chain, observations=[hc.Binomial(one, detection=p) for one in seen])


def best(likelihood: Callable[..., float], start: np.ndarray, most: int) -> tuple[np.ndarray, float]:
    """Parameters of the largest likelihood, and that likelihood; searched in logs and logits, by steps of 0.05 at first."""
    x = _working(start)
    simplex = np.vstack([x, x + 0.05 * np.eye(4)])
    found = minimize(
        lambda x: -likelihood(*_natural(x)),
        x,
        method="Nelder-Mead",
        options={"maxfev": most, "initial_simplex": simplex},
    )
    return _natural(found.x), -float(found.fun)


def _natural(x: np.ndarray) -> np.ndarray:
    return np.array([np.exp(x[0]), np.exp(x[1]), expit(x[2]), expit(x[3])])


def run(*, quick: bool) -> Report:
    """Both likelihoods, both maxima, and the truth inside intervals."""
    seen, truth = read()
    if quick:
        seen, truth = seen[:, :4], truth[truth["time"].isin(truth["time"].unique()[:4])]

    def ours(*parameters: float) -> float:
        found = hc.infer(problem(seen, *parameters)).log_evidence
        assert found is not None
        return float(found)

    stations = seen.shape[2]
    theirs, top = best(lambda *x: truncated_sum(seen, *x)[0], np.array([10.0, 1.0, 0.85, 0.45]), EVALUATIONS)
    information = _information(lambda x: truncated_sum(seen, *_natural(x))[0], theirs)
    mine, peak = (theirs, ours(*theirs)) if quick else best(ours, theirs, POLISH)
    start = process_time()
    post = hc.infer(problem(seen, *theirs))
    seconds = process_time() - start
    start = process_time()
    value, law = truncated_sum(seen, *theirs)
    their_seconds = process_time() - start
    standard = _moments(law)
    times = range(seen.shape[1])
    spread, mean = (
        np.stack([getattr(post.node(t), which).values for t in times]) for which in ("sd", "mean")
    )
    covered = _covered(post, truth)
    told = hc.infer(
        problem(
            seen,
            *best(lambda a, b, c, p: truncated_sum(seen, a, b, c, 0.5)[0], theirs, EVALUATIONS)[0][:3],
            0.5,
        )
    )
    covered["numbers, p known,"] = _covered(told, truth)["numbers"]
    apart = np.abs(_working(mine) - _working(theirs)) / np.sqrt(np.diag(np.linalg.inv(information)))
    checks = [
        Check(
            "|log-likelihood − the sum's| per station, nats",
            abs(post.log_evidence - value) / stations,
            at_most=0.05,
        ),  # type: ignore[operator]
        Check("largest distance of the estimates, standard errors", float(apart.max()), at_most=0.2),
        Check(
            "numbers: largest |mean − the sum's| ÷ its sd",
            float((np.abs(mean - standard[0]) / standard[1]).max()),
            at_most=0.1,
        ),
        Check(
            "numbers: rms of sd ÷ the sum's, minus one",
            float(np.sqrt(np.mean((spread / standard[1] - 1) ** 2))),
            at_most=0.05,
        ),
    ] + [
        Check(f"true {name} inside their 90 % interval", share, at_least=0.85, at_most=0.95)
        for name, share in covered.items()
    ]
    later = truth["time"] != truth["time"].iloc[0]
    first = truth[~later]["count"].mean()
    known = truth["left"].notna()
    staying = 1 - truth[known]["left"].sum() / truth[known]["count"].sum()
    true = [first, truth[later]["arrived"].mean(), staying, 0.5]
    rows = [[n, a, b, c] for n, a, b, c in zip(NAMES, true, theirs, mine, strict=True)]
    rows += [["log-likelihood", None, top, peak], ["seconds, once", None, their_seconds, seconds]]
    return Report(
        "docks",
        "An open population seen in part, beside the standard model.",
        checks=checks,
        tables=[Table("Constant rates", ["", "true mean", "truncated sum", "headcount"], rows)],
        seeds=[1],
    )


def _working(x: np.ndarray) -> np.ndarray:
    return np.array([np.log(x[0]), np.log(x[1]), logit(x[2]), logit(x[3])])


def _information(likelihood: Callable[[np.ndarray], float], at: np.ndarray) -> np.ndarray:
    """Minus second differences of the log-likelihood, on the scale of the search."""
    step, x, eye = 1e-3, _working(at), np.eye(4)

    def turned(a: np.ndarray, b: np.ndarray) -> float:
        return likelihood(x + a + b) - likelihood(x + a - b) - likelihood(x - a + b) + likelihood(x - a - b)

    return np.array([[-turned(step * a, step * b) / (4 * step**2) for b in eye] for a in eye])


def _moments(law: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = np.arange(law.shape[-1])
    mean = law @ n
    return mean, np.sqrt(law @ n**2 - mean**2)


def _covered(post: hc.Posterior, truth: pd.DataFrame) -> dict[str, float]:
    """How many true numbers, arrivals and departures lie inside their intervals."""
    tables = {
        "numbers": (post.to_frame("nodes"), "count", slice(None)),
        "arrivals": (post.arrivals(), "arrived", slice(1, None)),
        "departures": (post.departures(), "left", slice(None, -1)),
    }
    shares = {}
    for name, (found, column, rows) in tables.items():
        true = truth.pivot(index="time", columns="cell", values=column)[truth["cell"].unique()].to_numpy()
        found = found.sort_values(["time", "cell"])
        shares[name] = float(
            ((found["lower"] <= true[rows].ravel()) & (true[rows].ravel() <= found["upper"])).mean()
        )
    return shares
