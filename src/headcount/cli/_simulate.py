"""``headcount simulate``: tables with a known truth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headcount.cli._show import show_files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def run_birds(
    side: int, weights: str, population: int, *, steps: int, rate: float, seed: int, out: Path
) -> None:
    """Simulate the birds and write them."""
    from headcount.io import write_world
    from headcount.simulate import birds

    try:
        numbers = [float(part) for part in weights.split(",")]
    except ValueError:
        raise ValueError(f"--weights takes four numbers with commas between them, got {weights!r}") from None
    world = birds(side, numbers, population, steps=steps, rate=rate, rng=seed)
    show_files(write_world(world, out), good=False)


def run_chain(
    tables: Mapping[str, Any],
    size: int,
    *,
    steps: int | None,
    noise: str,
    parameters: Mapping[str, float | None],
    seed: int,
    out: Path,
) -> None:
    """Simulate individuals that move by the user's own transitions."""
    from headcount import simulate
    from headcount.io import read_chain, write_world

    seen = {
        "poisson": lambda: simulate.poisson(parameters["rate"]),  # type: ignore[arg-type]
        "binomial": lambda: simulate.binomial(_needed(parameters, "detection")),
        "gaussian": lambda: simulate.gaussian(_needed(parameters, "sd")),
        "exact": simulate.exact,
    }
    if noise not in seen:
        raise ValueError(f"--noise is one of {', '.join(seen)}, got {noise!r}")
    observe = seen[noise]()
    chain, places = read_chain(
        tables["transitions"], initial=tables["initial"], cells=tables["cells"], length=steps
    )
    world = simulate.population(chain, size, observe=observe, rng=seed)
    show_files(write_world(world, out, places=places), good=False)


def _needed(parameters: Mapping[str, float | None], name: str) -> float:
    value = parameters[name]
    if value is None:
        raise ValueError(f"--{name} is needed for this noise")
    return value
