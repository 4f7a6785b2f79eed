"""The example of the page "Which tool when": one small problem, given to headcount and to the peers that can take it.

``python -m benchmarks.peers.worked`` runs it and stores the answers in ``benchmarks/results/worked.json``.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import headcount as hc
from benchmarks._measure import in_child
from benchmarks._report import RESULTS, _clean, provenance
from benchmarks.peers.compare import ENVIRONMENT, MBI, PYCBP

ZONES = ["home", "work", "shop"]
TOTALS = np.array([[70.0, 20.0, 10.0], [35.0, 50.0, 15.0], [55.0, 25.0, 20.0]])
"""People per zone in the morning, at noon, in the evening; everybody is counted."""
MOVES = np.array([[0.6, 0.3, 0.1], [0.3, 0.6, 0.1], [0.5, 0.2, 0.3]])


def ours() -> Any:
    """The posterior of all counts, which are known, and flows, which are not."""
    chain = hc.MarkovChain([0.7, 0.2, 0.1], MOVES, length=3, cells=ZONES)
    return hc.infer(hc.Problem(chain, 100, hc.Exact(TOTALS)))


def main() -> None:
    """Run all, store the flows of the first step."""
    post = ours()
    ends = post.edge(0, 1).interval(0.9)
    found: dict[str, Any] = {
        "headcount": np.asarray(post.edge(0, 1).mean).tolist(),
        "lower": np.asarray(ends["lower"]).tolist(),
        "upper": np.asarray(ends["upper"]).tolist(),
        "engine": post.engine,
    }
    given = {
        "task": "exact",
        "initial": np.array([0.7, 0.2, 0.1]),
        "transitions": np.stack([MOVES, MOVES]),
        "population": 100,
        "observed": TOTALS,
    }
    for rival in (MBI, PYCBP):
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "problem.npz", Path(folder) / "answer.npz"
            np.savez(source, **given)
            told = in_child(f"benchmarks.peers.{rival.module}", [source, target], python=str(ENVIRONMENT))
            with np.load(target) as file:
                found[rival.name] = file["edges"][0].tolist()
        found[f"{rival.name} version"] = told["version"]
    content = {"provenance": provenance(quick=False, seconds=0.0), "zones": ZONES, **found}
    text = json.dumps(_clean(content), indent=1, ensure_ascii=False)
    (RESULTS / "worked.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
