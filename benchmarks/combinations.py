"""Claim: every combination of what is known of a population has an answer, and the answer is right.

500 random combinations of sizes (known, `About`, `Between`, `Unknown`), groups or weights, tags (counted or apart), arrivals, flocks, phi
or rho, noises (Poisson, binomial, Gaussian, exact) and tables (cells, flows, sums), with data drawn from each
(`tests/combinations.py`). Half have about three individuals per group, half about 200. What `infer` picks answers each, and
`TiltedEP` and `MAP` by name; every fifth is saved, read again, and shown on a page. The first two are held against enumeration, and where
that is too long against the path sampler. Where neither knows the combination (both know no phi, which is no law of individuals; the
sampler no units of different weight in one count), that there is an answer is all that is asked; the table says how many these are.

A mean is right if it is within .1 N or half a posterior sd, the evidence if it is within 1 nat.
"""

from __future__ import annotations

import os
import re
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from tests.combinations import problem_of, random_combination

import headcount as hc
from benchmarks._report import Check, Report, Table
from headcount.engines import Enumerate, PathGibbs

COMBINATIONS, QUICK = 500, 20
FEW, MANY = 3, 200
"""Individuals per group, about: few enough to enumerate, and enough for the path sampler to be the harder judge."""
EXACT = Enumerate(most=10_000_000)
SAMPLERS = [PathGibbs(sweeps=600 * k, burn_in=200 * k, draws=100, workers=1) for k in (1, 5)]
NUMBERS = re.compile(r"[0-9][0-9.e+]*")
PAGES = 5
"""Every so many-th combination is saved, read again and shown: writing takes as long as all the rest."""
REFUSED = (hc.ProblemError, ValueError, hc.ModelError)
"""What an oracle says of combinations that it does not know."""


def oracle(problem: hc.Problem, seed: int) -> tuple[str, hc.Posterior | None]:
    """The name of the judge, and its answer; None where it knows no such combination."""
    why = ""
    for judge in (EXACT, *SAMPLERS):
        try:
            found = hc.infer(problem, judge, rng=seed, strict=False)
        except REFUSED as refusal:
            why = f"{judge.name}: {NUMBERS.sub('…', str(refusal))[:50]}"
            continue
        if found.status.good:
            return judge.name, found
        why = f"{judge.name}: not mixed"
    return why, None


def distance(found: hc.Posterior, exact: hc.Posterior) -> float:
    """The largest error of a mean count, over what is allowed."""
    people, worst = max(exact.population.mean, 1.0), 0.0
    for v in exact.problem.model.variables:
        here = exact.node(v)
        allowed = np.maximum(0.1 * people, 0.5 * here.sd.values)
        worst = max(worst, float((np.abs(found.node(v).mean.values - here.mean.values) / allowed).max()))
    return worst


def _read_again(found: hc.Posterior, folder: Path) -> bool:
    """Whether the file has the same means and sds, and the page is written."""
    hc.io.write_results(found, folder)
    back = hc.Posterior.load(folder / "posterior.nc")
    same = all(
        np.allclose(back.node(v).mean, found.node(v).mean) and np.allclose(back.node(v).sd, found.node(v).sd)
        for v in found.problem.model.variables
    )
    return same and hc.report.write(folder).stat().st_size > 0


def one(seed: int) -> dict[str, Any]:
    """What became of one combination."""
    people = FEW if seed % 2 else MANY
    case = random_combination(seed, people=people)
    row: dict[str, Any] = {"case": case.name, "people": people, "seed": seed}
    try:
        problem = problem_of(case)
        found, tilted, point = (
            hc.infer(problem, e, rng=seed, strict=False) for e in (None, "TiltedEP", "MAP")
        )
        row["vague"] = sum(law.vague for _, law in problem.kinds.values()) > 1
        row["good"], row["tilted"], row["engine"] = found.status.good, tilted.status.good, found.engine
        row["finite"] = bool(
            all(
                np.isfinite(post.node(v).mean.values).all()
                for post in (found, tilted, point)
                for v in problem.model.variables
            )
        )
        if seed % PAGES == 0:
            with tempfile.TemporaryDirectory() as folder:
                row["file"] = _read_again(found, Path(folder) / "results")
        row["noted"] = bool(found.outcome.info.get("notes"))
        row["judge"], exact = oracle(problem, seed)
    except Exception as error:
        return row | {"raised": f"{type(error).__name__}: {str(error)[:160]}"}
    # An engine is no judge of itself, and an answer that says it has not converged makes no claim.
    claims = [p for p in (found, tilted) if exact is not None and p.status.good and p.engine != exact.engine]
    for post in claims:
        assert exact is not None
        row["off"] = max(row.get("off", 0.0), distance(post, exact))
        if post.log_evidence is not None and exact.log_evidence is not None:
            row["nats"] = max(row.get("nats", 0.0), abs(post.log_evidence - exact.log_evidence))
    return row


def run(*, quick: bool) -> Report:
    """All combinations, on all cores."""
    seeds = list(range(QUICK if quick else COMBINATIONS))
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn")) as pool:
        rows = list(pool.map(one, seeds))
    held = [r for r in rows if "off" in r]
    weighed = [r for r in rows if "nats" in r]
    checks = [
        Check(
            "combinations that raise an error",
            sum("raised" in r for r in rows),
            at_most=0,
            note=f"of {len(rows)}",
        ),
        Check("answers that are not finite", sum(not r.get("finite", True) for r in rows), at_most=0),
        Check(
            "answers that did not converge and do not name what the counts cannot tell",
            sum(not r.get("good", True) and not r["vague"] for r in rows),
            at_most=0,
            note=f"{sum(not r.get('good', True) and r['vague'] for r in rows)} name two sizes that only their sum tells of",
        ),
        Check(
            "answers of TiltedEP by name that did not converge, and say so",
            sum(not r.get("tilted", True) for r in rows),
            at_most=15,
        ),
        Check(
            "files or pages that differ or fail",
            sum(not r.get("file", True) for r in rows),
            at_most=0,
            note=f"of {sum('file' in r for r in rows)}",
        ),
        Check(
            "combinations with a mean off by more than .1 N and half an sd",
            sum(r["off"] > 1 for r in held),
            at_most=0,
            note=f"of {len(held)} that an oracle knows",
        ),
        Check(
            "largest error of a mean, over what is allowed",
            max((r["off"] for r in held), default=0.0),
            at_most=1.0,
        ),
        Check(
            "combinations with evidence off by more than 1 nat",
            sum(r["nats"] > 1 for r in weighed),
            at_most=0,
            note=f"of {len(weighed)}",
        ),
    ]
    judged: dict[str, int] = {}
    for r in rows:
        judged[r.get("judge", "raised")] = judged.get(r.get("judge", "raised"), 0) + 1
    bad = [
        [
            r["case"],
            r["people"],
            r.get("raised", ""),
            r.get("off"),
            r.get("nats"),
            r.get("good"),
            r.get("tilted"),
            r.get("engine"),
            r.get("file"),
        ]
        for r in rows
        if "raised" in r
        or r.get("off", 0) > 0.8
        or r.get("nats", 0) > 0.8
        or not r["good"]
        or not r["tilted"]
        or not r.get("file", True)
    ]
    return Report(
        "combinations",
        "Random combinations of everything that is known of populations, against enumeration and the path sampler.",
        checks=checks,
        tables=[
            Table(
                "Who judged",
                ["judge, or why it did not", "combinations"],
                sorted(judged.items(), key=lambda kv: -kv[1]),
            ),
            Table(
                "The worst, and whatever failed",
                [
                    "combination",
                    "individuals",
                    "raised",
                    "mean, of what is allowed",
                    "nats",
                    "converged",
                    "TiltedEP",
                    "engine",
                    "file",
                ],
                bad,
            ),
        ],
        seeds=seeds,
    )
