"""Claim: many small problems are fitted at a small multiple of what a direct sum takes, and a dispersion at a small multiple of the fit.

N-mixture: 191 sites, three visits each, λ = 5 and p = .4 learned by `fit` and by BFGS on the direct sum over N, both in CPU seconds of
one run. Dispersion: 2000 individuals in flocks of 4 between three states on 31 days, counted exactly or with Poisson error;
``fit(dispersion="estimate")`` against the same fit without. Compilation is not counted: every fit is made once before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, gammaln

import headcount as hc
from benchmarks._report import Check, Report, Table
from headcount.learn import LearnDetection, LearnSizes

SITES, VISITS, MEAN, DETECTION = 191, 3, 5.0, 0.4
MOVES = np.array([[0.9, 0.07, 0.03], [0.15, 0.8, 0.05], [0.05, 0.1, 0.85]])
DAYS, PEOPLE, FLOCK = 31, 2000, 4


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """The result and the CPU seconds."""
    begun = time.process_time()
    found = function()
    return found, time.process_time() - begun


def direct_sum(counts: np.ndarray) -> tuple[float, float, float]:
    """λ, p and the log-likelihood of an N-mixture, by BFGS on the sum over N up to 60."""
    n, y = np.arange(61.0)[None, None], counts[:, :, None]

    def loss(x: np.ndarray) -> float:
        mean, p = np.exp(x[0]), expit(x[1])
        ways = gammaln(n + 1) - gammaln(y + 1) - gammaln(np.maximum(n - y, 0) + 1)
        seen = np.where(n >= y, ways + y * np.log(p) + (n - y) * np.log1p(-p), -np.inf).sum(axis=1)
        terms = seen + (n * np.log(mean) - mean - gammaln(n + 1))[0]
        top = terms.max(axis=1)
        return -float((top + np.log(np.exp(terms - top[:, None]).sum(axis=1))).sum())

    best = minimize(loss, [np.log(4.0), 0.0], method="BFGS")
    return float(np.exp(best.x[0])), float(expit(best.x[1])), -float(best.fun)


def mixture(sites: int) -> list[float]:
    """CPU seconds of both, their ratio, and how far the evidence is off, in nats."""
    rng = np.random.default_rng(4)
    counts = rng.binomial(rng.poisson(MEAN, sites)[:, None], DETECTION, size=(sites, VISITS))
    site = hc.MarkovChain([1.0], [[1.0]], length=1)
    problems = [
        hc.Problem(site, hc.About(4.0, sd=2.0), [hc.Binomial([[y]], detection=0.5) for y in row])
        for row in counts
    ]
    hc.fit(
        LearnDetection(LearnSizes()), problems
    )  # compiles; a few sites alone need not tell λ from p, and climb without end
    (_, _, best), direct = timed(lambda: direct_sum(counts))
    fit, seconds = timed(lambda: hc.fit(LearnDetection(LearnSizes()), problems))
    return [sites, direct, seconds, seconds / direct, fit.evidence - best]


def dispersed(noise: str, days: int) -> list[Any]:
    """CPU seconds without and with an estimated dispersion, and their ratio."""
    chain = hc.MarkovChain([0.7, 0.2, 0.1], MOVES, length=days)
    world = hc.simulate.population(chain, PEOPLE, dispersion=hc.Flocks(FLOCK), rng=3)
    counts = np.array([np.asarray(world.tables.table((t,))) for t in range(days)])
    seen = hc.Exact(counts) if noise == "exact" else hc.Poisson(np.random.default_rng(1).poisson(counts))
    problem = hc.Problem(chain, PEOPLE, seen)
    fitted = lambda **more: hc.fit(hc.TabularChain(), problem, strict=False, **more)  # noqa: E731
    fitted()
    _, alone = timed(fitted)
    found, together = timed(lambda: fitted(dispersion="estimate"))
    return [noise, alone, together, together / alone, str(found.dispersion)]


def run(*, quick: bool) -> Report:
    """All fits, as ratios in one run."""
    sites = mixture(40 if quick else SITES)
    rows = [dispersed(noise, 8 if quick else DAYS) for noise in ("exact", "poisson")]
    return Report(
        "small",
        "Fits of many small problems, and of a dispersion, against what they need at least.",
        checks=[
            Check("CPU time of an N-mixture over that of the direct sum", sites[3], at_most=20.0, ratio=True),
            Check(
                "evidence of the N-mixture against the direct sum, nats",
                abs(sites[4]),
                at_most=0.01,
                error=0.001,
            ),
            *(
                Check(
                    f"CPU time with a dispersion over that without, {row[0]} counts",
                    row[3],
                    at_most=5.0,
                    ratio=True,
                )
                for row in rows
            ),
        ],
        tables=[
            Table("N-mixture", ["sites", "direct sum, s", "fit, s", "ratio", "nats off"], [sites]),
            Table("Dispersion", ["counts", "without, s", "with, s", "ratio", "found"], rows),
        ],
    )
