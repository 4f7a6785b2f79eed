"""The non-zero entries of a precision matrix: the graph of the model, drawn as a matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.plot._frames import count_text, printed
from headcount.plot._picture import GREY, Picture, colour_bar, look, new_figure

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping


def precision_sparsity(
    matrix: Any,
    *,
    blocks: Mapping[Hashable, int] | None = None,
    tolerance: float = 1e-10,
) -> Picture:
    """Entries of a precision matrix Λ, coloured by the partial correlation |Λ_ij|/√(Λ_ii Λ_jj); white where there is none.

    Two entries of a Gaussian are independent given all others exactly where Λ is zero, so that the Markov property of the model is
    the pattern seen here.

    Parameters
    ----------
    matrix : array_like or scipy.sparse array, shape (K, K)
        Λ, symmetric with a positive diagonal.
    blocks : mapping of label to size, optional
        Names and lengths of consecutive blocks (for a chain, its times): drawn as lines and tick labels.
    tolerance : float
        Partial correlations up to this are rounding, and are counted as zero.

    Returns
    -------
    Picture
        ``numbers``: ``row, column, value, partial``, one row per entry kept (diagonal included).
    """
    import pandas as pd
    from scipy import sparse

    entries = sparse.coo_array(matrix)
    size = entries.shape[0]
    diagonal = np.asarray(entries.diagonal(), dtype=float)
    _check(entries.shape, diagonal, blocks)
    partial = np.abs(entries.data) / np.sqrt(diagonal[entries.row] * diagonal[entries.col])
    kept = partial > tolerance
    numbers = pd.DataFrame(
        {
            "row": entries.row[kept],
            "column": entries.col[kept],
            "value": entries.data[kept],
            "partial": partial[kept],
        }
    )
    image = np.full((size, size), np.nan)
    image[numbers["row"], numbers["column"]] = np.log10(numbers["partial"])
    with look():
        figure = new_figure(6.2, 5.4)
        axes = figure.subplots()
        # Light for weak, dark for strong, as ink on paper: absent entries are the paper itself.
        drawn = axes.imshow(image, cmap="viridis_r", vmax=0.0, interpolation="nearest")
        colour_bar(figure, drawn, axes, "log₁₀ |partial correlation|", shrink=0.8)
        _mark_blocks(axes, size, blocks)
        axes.spines[["top", "right"]].set_visible(True)
        share = 100 * len(numbers) / size**2
        axes.set_title(
            f"Precision matrix, {size} × {size}: {count_text(len(numbers))} entries ({share:.3g} %)",
            loc="left",
        )
    return Picture(figure, numbers)


def _check(shape: tuple[int, ...], diagonal: np.ndarray, blocks: Mapping[Hashable, int] | None) -> None:
    problems = []
    if shape[0] != shape[1]:
        problems.append(f"matrix must be square, got shape {shape}")
    elif not (diagonal > 0).all():
        problems.append(
            f"the diagonal of a precision is positive; {int((~(diagonal > 0)).sum())} entries are not"
        )
    if blocks is not None and sum(blocks.values()) != shape[0]:
        problems.append(f"the blocks have {sum(blocks.values())} entries together, the matrix {shape[0]}")
    if problems:
        raise ValueError("; ".join(problems))


def _mark_blocks(axes: Any, size: int, blocks: Mapping[Hashable, int] | None) -> None:
    if blocks is None:
        axes.set_xlabel("entry")
        axes.set_ylabel("entry")
        return
    ends = np.cumsum(list(blocks.values()))
    for end in ends[:-1]:
        axes.axhline(end - 0.5, color=GREY, linewidth=0.5)
        axes.axvline(end - 0.5, color=GREY, linewidth=0.5)
    middles = ends - np.array(list(blocks.values())) / 2 - 0.5
    step = max(1, len(middles) // 12)
    names = [printed(name) for name in blocks]
    axes.set_xticks(middles[::step], names[::step], rotation=45 if max(map(len, names)) > 3 else 0)
    axes.set_yticks(middles[::step], names[::step])
    axes.set_xlabel("entries, by block")
    axes.set_ylabel("entries, by block")
