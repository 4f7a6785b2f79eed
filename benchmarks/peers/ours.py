"""Our engines, run exactly as the peers are: arrays in, arrays out, in a process of their own."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import headcount as hc
from benchmarks.peers._peer import Arrays, tell, twice
from headcount import engines


def solve(problem: Arrays) -> tuple[Arrays, dict[str, Any]]:
    """Counts and flows, with spreads where the engine has them."""
    task = str(problem["task"])
    model = hc.MarkovChain(problem["initial"], list(problem["transitions"]))
    noise: Any = {
        "map": hc.Poisson,
        "poisson": hc.Poisson,
        "exact": hc.Exact,
        "gaussian": lambda seen: hc.Gaussian(seen, sd=float(problem.get("sd", 1.0))),
    }[task]
    engine = {
        "map": engines.MAP(),
        "exact": engines.MAP(tolerance=1e-10),
        "gaussian": engines.ClosedForm(),
        "poisson": engines.TiltedEP(),
    }[task]
    times = model.variables
    pairs = list(itertools.pairwise(times))

    bound = hc.Problem(model, int(problem["population"]), [noise(problem["observed"])])

    def work() -> tuple[hc.Posterior, Arrays]:
        posterior = hc.infer(bound, engine)
        answer: Arrays = {"nodes": np.stack([posterior.beliefs.mean((t,)) for t in times])}
        if task in {"map", "exact"}:
            answer["edges"] = np.stack([posterior.beliefs.mean(pair) for pair in pairs])
        else:
            answer["sds"] = np.stack([posterior.sd_table((t,)) for t in times])
        return posterior, answer

    (posterior, answer), told = twice(work)
    if posterior.log_evidence is not None:
        told["log_evidence"] = posterior.log_evidence
    return answer, {**told, "status": posterior.status.value}


if __name__ == "__main__":
    tell("headcount", solve)
