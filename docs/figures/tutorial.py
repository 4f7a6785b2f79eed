"""What the pictures of the tutorials share: the names that a page's own code leaves behind, and arrows between places."""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch

DOCS = Path(__file__).parents[1]
IMAGES = DOCS / "images"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


def names_of(page: str, *, until: str | None = None) -> dict[str, Any]:
    """Run a page's Python blocks without prompts, up to the first that holds `until`."""
    names: dict[str, Any] = {"__name__": page}
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(DOCS.parent / "examples")
        os.chdir(folder)  # pages write small files
        try:
            for block in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
                if until is not None and until in block:
                    break
                if ">>>" not in block:
                    exec(compile(block, page, "exec"), names)
        finally:
            os.chdir(here)
    return names


def draw_moves(
    axes: Axes, step: pd.DataFrame, places: pd.DataFrame, *, colour: str, column: str, top: float
) -> None:
    """Arrows from origin to dest, width ∝ √column (`top` has the widest); fainter where the interval reaches down."""
    for row in step.sort_values(column).to_dict("records"):
        width = 3.0 * np.sqrt(row[column] / top)
        sure = max(0.0, row["lower"] / row["mean"]) if "lower" in row else 0.5
        axes.add_patch(
            FancyArrowPatch(
                tuple(places.loc[row["origin"], ["x", "y"]]),
                tuple(places.loc[row["dest"], ["x", "y"]]),
                connectionstyle="arc3,rad=0.12",
                arrowstyle="-|>",
                mutation_scale=4 + 2.6 * width,
                linewidth=width,
                color=colour,
                alpha=0.35 + 0.6 * sure,
                shrinkA=4,
                shrinkB=5,
            )
        )
