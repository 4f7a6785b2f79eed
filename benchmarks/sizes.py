"""Claim: a number of individuals that nobody counted is found with honest intervals, and open populations are those of Dail and Madsen.

Coverage: two cells, five times, Poisson counts at rate ½; N drawn from its law (for "unknown", log-uniform from 30 to 600), 300 worlds per
law. Accuracy: mean and sd of one or two unknown numbers and the evidence against the sum over all numbers and counts. Dail–Madsen: one
cell, five times, detection ½, survival .8; the likelihood by its truncated sums, term by term over survivors.
"""

from __future__ import annotations

from time import process_time

import numpy as np
from scipy.special import gammaln
from scipy.stats import binom, poisson

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
OTHER = hc.MarkovChain([0.2, 0.8], [[0.4, 0.6], [0.1, 0.9]], length=5)
LARGEST_PAIR = 20
"""Numbers of each of two kinds up to which the sum over both is made: at 50 it would take an hour."""


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
    accuracy, worst = _accuracy((10,) if quick else (5, 10, 20, 50, 200))
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
                [
                    "kinds",
                    "mean",
                    "law",
                    "asked for",
                    "mean of N off by",
                    "sd of N off by (share)",
                    "evidence off by (nats)",
                    "engine",
                ],
                accuracy,
                "The checks are of the default, which takes exact sums where they are quick; TiltedEP by name is beside it.",
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


def _counts(chain: hc.MarkovChain, number: int, rng: np.random.Generator) -> np.ndarray:
    paths = chain.sample(number, rng=rng)
    return np.stack([(paths == i).sum(axis=0) for i in range(2)], axis=1)


def _counted(number: int, rng: np.random.Generator) -> hc.Poisson:
    return hc.Poisson(rng.poisson(RATE * _counts(CHAIN, number, rng)), rate=RATE)


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
    """The default, and TiltedEP by name, against the exact sum over one or two numbers and all counts."""
    rows: list[list[object]] = []
    for kinds in (1, 2):
        for mean in means if kinds == 1 else [m for m in means if m <= LARGEST_PAIR]:
            rng = np.random.default_rng(FIRST_SEED + mean + 1000 * (kinds - 1))
            chains = (CHAIN, OTHER)[:kinds]
            n = sum(_counts(chain, mean, rng) for chain in chains)
            seen = rng.poisson(RATE * n)
            laws = {
                "Poisson": hc.About(mean, sd=mean**0.5),
                "negative binomial": hc.About(mean, sd=2 * mean**0.5),
                "range": hc.Between(mean // 2, 2 * mean),
                "unknown": hc.Unknown(),
            }
            for name, law in laws.items():
                groups = {k: hc.Group(chain, law) for k, chain in enumerate(chains)}
                observed = hc.Poisson(seen, rate=RATE)
                problem = (
                    hc.Problem(CHAIN, law, observed)
                    if kinds == 1
                    else hc.Problem(groups=groups, observations=observed)
                )
                exact = _sum_over_sizes(chains, law, seen, 3 * mean + 40)
                for engine in (None, "TiltedEP"):
                    rows.append(
                        [
                            kinds,
                            mean,
                            name,
                            engine or "default",
                            *_errors(hc.infer(problem, engine), kinds, exact),
                        ]
                    )
    errors = np.array([row[4:7] for row in rows if row[3] == "default"], dtype=float).max(axis=0)
    return rows, (float(errors[0]), float(errors[1]), float(errors[2]))


def _errors(
    found: hc.posterior.Posterior, kinds: int, exact: tuple[np.ndarray, np.ndarray, float]
) -> list[object]:
    """Largest error of a mean and relative one of an sd of a number, error of the evidence, and which engine it was."""
    mean, sd, evidence = exact
    got = [found.population] if kinds == 1 else [found.group(k).population for k in range(kinds)]
    assert found.log_evidence is not None
    return [
        float(np.abs(np.array([g.mean for g in got]) - mean).max()),
        float(np.abs(np.array([g.sd for g in got]) / sd - 1).max()),
        abs(found.log_evidence - evidence),
        found.engine,
    ]


def _sum_over_sizes(
    chains: tuple[hc.MarkovChain, ...], law: hc.population.SizeLaw, seen: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Means and sds of the numbers of each kind, and the log evidence: sums over all numbers up to ``most`` and all counts.

    Written for two cells and Poisson readings, with nothing of the library but the law of the number: for every pair of numbers the
    counts of the first cells, (a, b), go forward in time by convolutions of binomials.
    """
    numbers = np.arange(most + 1)
    log_p = law.log_pmf(numbers)
    steps = [[_binomial_steps(n, chain) for n in numbers] for chain in chains]
    total, evidence = np.zeros((most + 1,) * len(chains)), np.full((most + 1,) * len(chains), -np.inf)
    for sizes in np.ndindex(*total.shape):
        prior = sum(log_p[n] for n in sizes)
        if prior > -np.inf:
            evidence[sizes] = prior + _log_likelihood(
                [s[n] for s, n in zip(steps, sizes, strict=True)], sizes, seen
            )
    top = evidence.max()
    weights = np.exp(evidence - top)
    total = weights / weights.sum()
    margins = [total.sum(axis=tuple(j for j in range(total.ndim) if j != k)) for k in range(total.ndim)]
    mean = np.array([m @ numbers for m in margins])
    sd = np.sqrt([m @ (numbers - e) ** 2 for m, e in zip(margins, mean, strict=True)])
    return mean, sd, float(top + np.log(weights.sum()))


def _binomial_steps(n: int, chain: hc.MarkovChain) -> tuple[np.ndarray, np.ndarray]:
    """The law of the first cell's count among n, at first and from step to step."""
    step = np.asarray(chain.transitions[0])
    first = binom.pmf(np.arange(n + 1), n, chain.initial[0])
    rows = [
        np.convolve(
            binom.pmf(np.arange(a + 1), a, step[0, 0]), binom.pmf(np.arange(n - a + 1), n - a, step[1, 0])
        )
        for a in range(n + 1)
    ]
    return first, np.array(rows)


def _log_likelihood(
    steps: list[tuple[np.ndarray, np.ndarray]], sizes: tuple[int, ...], seen: np.ndarray
) -> float:
    """log p(y | numbers) of readings of the sum over kinds."""
    counts = sum(np.meshgrid(*(np.arange(n + 1) for n in sizes), indexing="ij"))
    law = steps[0][0] if len(steps) == 1 else np.outer(steps[0][0], steps[1][0])
    log_scale = 0.0
    for t, (y, z) in enumerate(seen):
        if t:
            law = steps[0][1].T @ law if len(steps) == 1 else steps[0][1].T @ law @ steps[1][1]
        law = law * poisson.pmf(y, RATE * counts) * poisson.pmf(z, RATE * (sum(sizes) - counts))
        scale = law.sum()
        if scale == 0.0:
            return -np.inf
        law, log_scale = law / scale, log_scale + np.log(scale)
    return float(log_scale)


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
