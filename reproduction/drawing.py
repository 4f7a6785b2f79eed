"""What all figures share: colours, a grid of axes, and files with the same bits for the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount._disk import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Distinguishable without colour vision (Okabe and Ito).
COLOURS = {
    "MAP": "#d55e00",
    "NLBP": "#cc79a7",
    "Laplace": "#0072b2",
    "EdgeEP": "#56b4e9",
    "TiltedEP": "#009e73",
    "PathGibbs": "#000000",
}


def axes_grid(rows: int, columns: int, *, width: float, height: float, **options: Any) -> tuple[Figure, Any]:
    """A figure outside pyplot's global state, and its axes."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(width, height), layout="constrained")
    return drawn, drawn.subplots(rows, columns, **options)


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write ``stem.svg`` and ``stem.png``."""
    import matplotlib as mpl

    paths = []
    with mpl.rc_context({"svg.hashsalt": "headcount", "svg.fonttype": "none", "path.simplify": True}):
        for kind, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
            path = stem.with_suffix(f".{kind}")
            with replacing(path) as temporary:
                figure.savefig(temporary, format=kind, metadata=metadata, dpi=110)
            paths.append(path)
    return paths
