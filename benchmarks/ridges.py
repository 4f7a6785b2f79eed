"""Claim: where noisy counts leave moves on a ridge or at an edge, integration under a neutral prior is right where the maximum is not.

Three sites, six years, 5 000 individuals, a free matrix, the initial law unknown; Poisson counts, and binomial counts of 70 %. In one kind
of world the matrix is drawn from the neutral prior itself: there 90 % intervals of flows must hold nine in ten. In the others churn is
given, about .13 (sticky) or .6 (mobile). Beside the integral stand the plain maximum (``prior=None``) and the best of two trivial
answers to the true counts: independence, and as many that stay as the margins allow.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

import headcount as hc
from benchmarks._report import Check, Report, Table
from benchmarks.doubt import LEAST_COVERAGE, LEVEL, WORST_ERROR, baselines, dirichlet_steps, margins

WORLDS = 6
"""Worlds of each kind: each takes 10 to 20 s."""
FIRST_SEED = 9300
STEPS, PEOPLE, SITES, DETECTION = 5, 5000, 3, 0.7
CHURN = {"from the prior": None, "sticky": 0.13, "mobile": 0.6}
ROWS_SD = 0.2
"""Standard deviation of log churn between sites, in worlds of given churn."""


def world(seed: int, churn: float | None, noise: str) -> tuple[hc.Problem, list[np.ndarray]]:
    """The counts of a world, and its true flows."""
    rng = np.random.default_rng(seed)
    middle, sd = (rng.uniform(np.log(1e-3), 0.0), 0.5) if churn is None else (np.log(churn), ROWS_SD)
    leaving = np.full(SITES, np.inf)
    while (outside := leaving >= 0).any():
        leaving[outside] = rng.normal(middle, sd, outside.sum())
    p = np.diag(-np.expm1(leaving))
    p[~np.eye(SITES, dtype=bool)] = (
        np.exp(leaving)[:, None] * rng.dirichlet(np.ones(SITES - 1), SITES)
    ).ravel()
    flows = dirichlet_steps(rng, rng.multinomial(PEOPLE, rng.dirichlet(np.ones(SITES))), p, STEPS, 0.0)
    counts = margins(flows).astype(int)
    seen = (
        hc.Poisson(rng.poisson(counts))
        if noise == "poisson"
        else hc.Binomial(rng.binomial(counts, DETECTION), detection=DETECTION)
    )
    chain = hc.MarkovChain(None, np.full((STEPS, SITES, SITES), 1 / SITES))
    return hc.Problem(chain, PEOPLE, seen), flows


def judged(post: Any, flows: list[np.ndarray]) -> tuple[float, float, bool]:
    """Coverage of flows, the share that is misplaced, and whether the user is told that all is well."""
    inside, reliable, means = [], [], []
    for t, truth in enumerate(flows):
        edge = post.edge(t, t + 1)
        ends = edge.interval(LEVEL)
        inside.append((truth >= ends["lower"].values) & (truth <= ends["upper"].values))
        reliable.append(edge.reliable.values)
        means.append(edge.mean.values)
    told = post.fit_check.agrees is True and float(np.mean(reliable)) > 0.5
    return float(np.mean(inside)), _misplaced(means, flows), told


def _misplaced(guess: Any, flows: list[np.ndarray]) -> float:
    """The share of individuals that a guess of all flows puts in a wrong place."""
    wrong = sum(0.5 * np.abs(g - f).sum() for g, f in zip(guess, flows, strict=True))
    return float(wrong) / (STEPS * PEOPLE)


def run(*, quick: bool) -> Report:
    """Fit every world twice, and hold both answers against the truth."""
    rows, fair, misled, errors, seconds = [], [], 0, [], []
    for noise in ("poisson", "binomial"):
        for k, (name, churn) in enumerate(CHURN.items()):
            found = []
            for seed in range(1 if quick else WORLDS):
                problem, flows = world(FIRST_SEED + 100 * k + seed, churn, noise)
                began = perf_counter()
                fit = hc.fit(hc.TabularChain(), problem, strict=False, progress=False)
                one = judged(fit.posterior, flows)
                seconds.append(perf_counter() - began)
                plain = hc.fit(hc.TabularChain(), problem, strict=False, progress=False, prior=None)
                guesses = zip(*map(baselines, flows), strict=True)
                trivial = min(_misplaced(guess, flows) for guess in guesses)
                size = np.nan if fit.integral is None else fit.integral.effective_size
                found.append((*one, *judged(plain.posterior, flows), trivial, size))
                misled += one[2] and (one[0] < LEAST_COVERAGE or one[1] > WORST_ERROR * trivial)
            table = np.array(found, dtype=float)
            fair += list(table[:, 0]) if churn is None else []
            errors.append(table[:, [1, 4, 6]])
            means = table.mean(axis=0)
            rows.append(
                [
                    f"{noise}, {name}",
                    len(table),
                    means[0],
                    means[3],
                    means[1],
                    means[4],
                    means[6],
                    int(np.isfinite(table[:, 7]).sum()),
                    float(np.nanmedian(table[:, 7])) if np.isfinite(table[:, 7]).any() else None,
                    int(table[:, 2].sum()),
                ]
            )
            print("  ", rows[-1], flush=True)
    integrated, plain_error, trivial_error = np.concatenate(errors).mean(axis=0)
    columns = [
        *("world", "worlds", "coverage, integrated", "coverage, maximum", "misplaced, integrated", "misplaced, maximum"),
        *("best trivial", "of these integrated", "effective draws, median", "told that all is well"),
    ]  # fmt: skip
    return Report(
        "ridges",
        "Noisy counts at few sites: moves integrated over under a neutral prior, the plain maximum, and trivial answers.",
        checks=[
            Check(
                "coverage of 90 % intervals of flows, matrices from the prior",
                float(np.mean(fair)),
                at_least=0.85,
            ),
            Check(
                "misplaced share, integrated over plain maximum, all worlds",
                integrated / plain_error,
                at_most=0.7,
            ),
            Check(
                "misplaced share, integrated over best trivial, all worlds",
                integrated / trivial_error,
                at_most=1.0,
            ),
            Check("worlds told that all is well that are wrong", int(misled), at_most=0),
            Check("seconds of a fit with its posterior, median", float(np.median(seconds)), at_most=60.0),
        ],
        tables=[Table("Moves of noisy counts", columns, rows)],
        seeds=[FIRST_SEED],
    )
