"""The numbers printed in Liu, Sheldon and Dietterich (ICML 2014), Section 5.

Each table maps a row ("MAP" or "GCGM", "node" or "edge") to (mean, standard deviation over 10 data sets) for every column.
"""

from __future__ import annotations

from collections.abc import Mapping

Cell = tuple[float, float]
Rows = Mapping[tuple[str, str], tuple[Cell, ...]]

RUNS = 10
"""Data sets behind every printed mean ± standard deviation."""

TABLE1: Rows = {
    ("MAP", "node"): ((0.173, 0.020), (0.066, 0.015), (0.064, 0.012), (0.069, 0.013)),
    ("MAP", "edge"): ((0.350, 0.030), (0.164, 0.030), (0.166, 0.027), (0.178, 0.025)),
    ("GCGM", "node"): ((0.184, 0.018), (0.039, 0.007), (0.017, 0.003), (0.009, 0.002)),
    ("GCGM", "edge"): ((0.401, 0.026), (0.076, 0.008), (0.034, 0.003), (0.017, 0.002)),
}
"""N = 36, 360, 1080, 3600, with L = 36 and w = (1, 2, 2, 2)."""

TABLE2: Rows = {
    ("MAP", "node"): ((0.107, 0.014), (0.064, 0.012), (0.018, 0.004)),
    ("MAP", "edge"): ((0.293, 0.038), (0.166, 0.027), (0.031, 0.004)),
    ("GCGM", "node"): ((0.013, 0.002), (0.017, 0.003), (0.024, 0.004)),
    ("GCGM", "edge"): ((0.032, 0.004), (0.034, 0.003), (0.037, 0.005)),
}
"""w = (.5, 1, 1, 1), (1, 2, 2, 2), (2, 4, 4, 4), with L = 36 and N = 1080."""

TABLE3: Rows = {
    ("MAP", "node"): ((0.011, 0.005), (0.025, 0.007), (0.064, 0.012), (0.113, 0.015)),
    ("MAP", "edge"): ((0.013, 0.004), (0.056, 0.012), (0.166, 0.027), (0.297, 0.035)),
    ("GCGM", "node"): ((0.017, 0.003), (0.017, 0.003), (0.017, 0.003), (0.020, 0.003)),
    ("GCGM", "edge"): ((0.024, 0.002), (0.027, 0.003), (0.034, 0.003), (0.048, 0.005)),
}
"""L = 16, 25, 36, 49, with N = 30 L and w = (1, 2, 2, 2)."""

FIGURE2_CELLS = (16, 36, 64, 100, 144)
FIGURE2_SECONDS: Mapping[str, tuple[float, ...]] = {
    "MAP": (1.1, 10.7, 20.6, 44.4, 78.2),
    "GCGM": (0.8, 1.6, 3.1, 6.6, 12.2),
}
"""CPU seconds for node and edge counts together, N = 100 L, w = (1, 2, 2, 2); read off the figure."""
