"""Claim: a number of individuals that nobody counted is found with honest intervals, and open populations are those of Dail and Madsen.

Coverage: two cells, five times, Poisson counts at rate ½; N drawn from its law (for "unknown", log-uniform from 30 to 600), 300 worlds per
law. Accuracy: the mean and sd of N and the evidence against the sum over all N. Dail–Madsen: one cell, five times, detection ½, survival
.8; the likelihood by its truncated sums, term by term over survivors.
"""

from __future__ import annotations

from time import process_time

import numpy as np
from scipy.special import gammaln

import headcount as hc
from benchmarks._report import Check, Report, Table

CHAIN = hc.MarkovChain([0.7, 0.3], [[0.8, 0.2], [0.3, 0.7]], length=5)
RATE, WORLDS, FIRST_SEED = 0.5, 300, 20_000
LAWS = {
    "Poisson": hc.About(120, sd=120**0.5),
    "negative binomial": hc.About(120, sd=40),
    "range": hc.Between(60, 240),
    "unknown": hc.Unknown(),
}
EXACT = hc.engines.Enumerate(most=100_000)


def run(*, quick: bool) -> Report:
    """Coverage, accuracy, and the open population."""
    checks, covered = [], []
    for name, law in LAWS.items():
        worlds = 10 if quick else WORLDS
        held = np.array([_covers(law, FIRST_SEED + k) for k in range(worlds)], dtype=float)
        share, promised = (float(v) for v in held.mean(axis=0))
        covered.append([name, worlds, share, promised, float(np.sqrt(promised * (1 - promised) / worlds))])
        checks += [
            Check(f"{name}: 90 % intervals that hold N", share, at_least=0.87),
            Check(f"{name}: 90 % intervals that hold N, not too wide", share, at_most=0.93),
        ]
    accuracy, worst = _accuracy((10,) if quick else (5, 10, 50, 200))
    checks += [
        Check("mean of N, largest error (individuals)", worst[0], at_most=0.15),
        Check("sd of N, largest relative error", worst[1], at_most=0.02),
        Check("evidence, largest error (nats)", worst[2], at_most=0.03),
    ]
    opened = [_dail_madsen(first) for first in ((5, 50) if quick else (5, 50, 500))]
    checks += [
        Check(
            f"Dail–Madsen at N = {first}: error of the log-likelihood (nats)",
            error,
            at_most=5e-3 if first < 50 else 1e-3,
        )
        for first, error, *_ in opened
    ]
    checks.append(Check(f"Dail–Madsen at N = {opened[-1][0]}: times faster", opened[-1][4], at_least=100))
    return Report(
        "sizes",
        "Unknown numbers of individuals, and populations that come and go.",
        checks=checks,
        tables=[
            Table(
                "Coverage of N",
                ["law", "worlds", "90 % interval holds N", "probability in it", "standard error"],
                covered,
                "Ends are whole numbers, so that an interval holds 90 % or a little more: what it holds is the probability in it.",
            ),
            Table(
                "Against the sum over all N",
                ["mean", "law", "mean of N off by", "sd of N off by (share)", "evidence off by (nats)"],
                accuracy,
            ),
            Table(
                "One cell against Dail and Madsen's sums",
                [
                    "expected at first",
                    "log-likelihood off by (nats)",
                    "sums (CPU s)",
                    "infer (CPU s)",
                    "times faster",
                ],
                opened,
            ),
        ],
        seeds=[FIRST_SEED],
    )


def _counted(number: int, rng: np.random.Generator) -> hc.Poisson:
    paths = CHAIN.sample(number, rng=rng)
    n = np.stack([(paths == i).sum(axis=0) for i in range(2)], axis=1)
    return hc.Poisson(rng.poisson(RATE * n), rate=RATE)


def _covers(law: hc.population.SizeLaw, seed: int) -> tuple[bool, float]:
    """Whether the 90 % interval of one world holds its N, and the posterior probability that it does."""
    rng = np.random.default_rng(seed)
    drawn = (
        np.exp(rng.uniform(np.log(30), np.log(600)))
        if isinstance(law, hc.Unknown)
        else law.sample(1, rng=rng)[0]
    )
    number = max(1, round(float(drawn)))
    found = hc.infer(hc.Problem(CHAIN, law, _counted(number, rng))).population
    ends = found.interval(0.9)
    inside = (found.values >= float(ends.lower)) & (found.values <= float(ends.upper))
    return bool(float(ends.lower) <= number <= float(ends.upper)), float(found.probabilities[inside].sum())


def _accuracy(means: tuple[int, ...]) -> tuple[list[list[object]], tuple[float, float, float]]:
    """TiltedEP against the exact mixture over N."""
    rows: list[list[object]] = []
    for mean in means:
        seen = _counted(mean, np.random.default_rng(FIRST_SEED + mean))
        laws = {
            "Poisson": hc.About(mean, sd=mean**0.5),
            "negative binomial": hc.About(mean, sd=2 * mean**0.5),
            "range": hc.Between(mean // 2, 2 * mean),
            "unknown": hc.Unknown(),
        }
        for name, law in laws.items():
            problem = hc.Problem(CHAIN, law, seen)
            exact, found = hc.infer(problem, EXACT), hc.infer(problem, "TiltedEP")
            a, b = exact.population, found.population
            assert exact.log_evidence is not None
            assert found.log_evidence is not None
            rows.append(
                [
                    mean,
                    name,
                    abs(a.mean - b.mean),
                    abs(b.sd / a.sd - 1),
                    abs(exact.log_evidence - found.log_evidence),
                ]
            )
    errors = np.array([row[2:] for row in rows], dtype=float).max(axis=0)
    return rows, (float(errors[0]), float(errors[1]), float(errors[2]))


def _dail_madsen(first: int) -> list[float]:
    """Expected number at first, error of the evidence, CPU seconds of the sums and of infer, and their ratio."""
    rng = np.random.default_rng(FIRST_SEED + first)
    arrivals, survival, detection, times = first / 5, 0.8, 0.5, 5
    n = [int(rng.poisson(first))]
    for _ in range(times - 1):
        n.append(int(rng.binomial(n[-1], survival) + rng.poisson(arrivals)))
    y = rng.binomial(n, detection)
    begun = process_time()
    exact = _sums(y, first, arrivals, survival, detection)
    summed = process_time() - begun
    chain = hc.OpenChain([first], [[1.0]], arrivals=arrivals, survival=survival, length=times)
    problem = hc.Problem(chain, observations=hc.Binomial(y[:, None], detection=detection))
    hc.infer(problem)
    begun = process_time()
    found = hc.infer(problem)
    took = process_time() - begun
    assert found.log_evidence is not None
    return [first, abs(found.log_evidence - exact), summed, took, summed / took]


def _sums(y: np.ndarray, first: float, arrivals: float, survival: float, detection: float) -> float:
    """log p(y): Σ over n_1 … n_T ≤ K, each step Σ over survivors c ≤ min(n, n') of Bin(c; n, ω) Poisson(n' − c; γ)."""
    size = int(2 * first + 10 * first**0.5 + 30)
    n = np.arange(size)
    log_factorial = gammaln(np.arange(2 * size) + 1.0)

    def binomial(k: np.ndarray, m: np.ndarray, p: float) -> np.ndarray:
        inside = k <= m
        rest = np.where(inside, m - k, 0)
        ways = log_factorial[m] - log_factorial[np.minimum(k, m)] - log_factorial[rest]
        return np.where(inside, np.exp(ways + k * np.log(p) + rest * np.log1p(-p)), 0.0)

    def poisson(k: np.ndarray, mean: float) -> np.ndarray:
        return np.exp(k * np.log(mean) - mean - log_factorial[k])

    step = np.zeros((size, size))
    for a in n:
        for b in n:
            c = np.arange(min(a, b) + 1)
            step[a, b] = binomial(c, np.array(a), survival) @ poisson(b - c, arrivals)
    law = poisson(n, first) * binomial(np.array(y[0]), n, detection)
    for seen in y[1:]:
        law = (law @ step) * binomial(np.array(seen), n, detection)
    return float(np.log(law.sum()))
