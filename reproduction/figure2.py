"""Figure 2: CPU time of inference against the size of the map.

Source: Liu, Sheldon and Dietterich (ICML 2014), Section 5, the figure of running times (their last experiment).

Settings: the birds on L ∈ {16, 36, 64, 100, 144} cells, N = 100 L, w = (1, 2, 2, 2), T = 20, three data sets each;
extended to L = 400 and 1024 (one data set)
for `MAP`, `Laplace` and `TiltedEP`. Node counts alone, and node and edge counts together.
Seeds: (20140621, ℓ, 1000·w₁, N, T, data set, stream).

Deviations: the printed seconds were read off the figure and measured on a machine of 2013; ours are CPU seconds of one
process with one BLAS
thread on the machine named in the manifest, one task at a time, after a warm-up on a small map. Convergence is to each engine's
own tolerance (1e-8 or below).

Duration: about 10 CPU minutes, nearly all of it L = 1024.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reproduction import printed
from reproduction.drawing import COLOURS, axes_grid
from reproduction.tasks import Inputs, Result, Row, Setting, Task, problem_of, run_engine, world_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ENGINES = ("MAP", "NLBP", "EdgeEP", "Laplace", "TiltedEP")
FAST = ("MAP", "Laplace", "TiltedEP")
SIDES = (4, 6, 8, 10, 12)
LARGE = (20, 32)
PRINTED = printed.FIGURE2_SECONDS
CAPTION = "CPU seconds of inference against the number of cells L, N = 100 L"


def plan(*, quick: bool = False) -> list[Task]:
    """All tasks; each runs alone."""
    tasks = []
    for side in SIDES[:3] if quick else SIDES:
        for data_set in range(1 if quick else 3):
            tasks += [_task(side, data_set, name) for name in ENGINES]
    if not quick:
        tasks += [_task(side, 0, name) for side in LARGE for name in FAST]
    return tasks


def _task(side: int, data_set: int, name: str) -> Task:
    return Task("seconds", seconds, Setting(side, 1.0, 100 * side**2), data_set, name, alone=True)


def seconds(
    setting: Setting, data_set: int, engine: str, options: Mapping[str, Any], inputs: Inputs
) -> Result:
    """CPU and wall seconds for node counts alone, and for node and edge counts."""
    del inputs
    small = Setting(2, 1.0, 40, steps=4)
    for warm in (small, setting):
        problem = problem_of(world_of(warm, data_set))
        wall, cpu = time.perf_counter(), time.process_time()
        posterior = run_engine(problem, engine, options, seed=warm.seed(data_set, 1))
        for t in range(warm.steps):
            posterior.beliefs.mean((t,))
        nodes = (time.perf_counter() - wall, time.process_time() - cpu)
        for t in range(warm.steps - 1):
            posterior.beliefs.mean((t, t + 1))
        both = (time.perf_counter() - wall, time.process_time() - cpu)
    return Result(
        (
            Row("nodes_wall_seconds", nodes[0]),
            Row("nodes_cpu_seconds", nodes[1]),
            Row("total_wall_seconds", both[0]),
            Row("total_cpu_seconds", both[1]),
            Row("iterations", float(posterior.outcome.iterations)),
            Row("converged", float(posterior.status.good)),
        )
    )


def mean_seconds(frame: pd.DataFrame, quantity: str = "total_cpu_seconds") -> pd.DataFrame:
    """Mean over data sets: one row per engine, one column per number of cells."""
    part = frame[(frame["kind"] == "seconds") & (frame["quantity"] == quantity)]
    return part.pivot_table(index="engine", columns="cells", values="value", aggfunc="mean", observed=True)


def figure(frame: pd.DataFrame) -> Figure:
    """Ours and the printed seconds, nodes alone and nodes with edges, on logarithmic axes."""
    drawn, (left, right) = axes_grid(1, 2, width=10, height=4.8, sharey=True)
    for axes, quantity, title in (
        (left, "nodes_cpu_seconds", "node counts"),
        (right, "total_cpu_seconds", "node and edge counts"),
    ):
        table = mean_seconds(frame, quantity)
        for name in ENGINES:
            if name in table.index:
                line = table.loc[name].dropna()
                axes.plot(line.index, line, marker="o", color=COLOURS[name], label=name)
        axes.set(xscale="log", yscale="log", xlabel="L", title=title)
        ticks = sorted({*map(int, table.columns), *printed.FIGURE2_CELLS})
        axes.set_xticks(ticks, [str(c) for c in ticks])
        axes.minorticks_off()
    for name, values in printed.FIGURE2_SECONDS.items():
        colour = COLOURS["MAP" if name == "MAP" else "Laplace"]
        right.plot(
            printed.FIGURE2_CELLS, values, "x--", color=colour, alpha=0.7, label=f"{name}, printed (2014)"
        )
    left.set_ylabel("CPU seconds")
    handles, labels = right.get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=4, fontsize="small")
    return drawn


def section(frame: pd.DataFrame) -> str:
    """Its part of the comparison page: seconds of ours and of the paper."""
    both, nodes = mean_seconds(frame), mean_seconds(frame, "nodes_cpu_seconds")
    cells = [int(c) for c in both.columns]
    out = ["| CPU seconds, L = | " + " | ".join(map(str, cells)) + " |", "|---|" + "---|" * len(cells)]
    known = {name: dict(zip(printed.FIGURE2_CELLS, values, strict=True)) for name, values in PRINTED.items()}
    for name, values in known.items():
        out.append(
            f"| {name}, printed | "
            + " | ".join(f"{values[c]:g}" if c in values else "" for c in cells)
            + " |"
        )
    for name in (n for n in ENGINES if n in both.index):
        for table, what in ((nodes, "nodes"), (both, "nodes and edges")):
            row = [table.loc[name].get(c) for c in cells]
            text = ["" if v is None or v != v else f"{v:.3g}" for v in row]
            out.append(f"| {name}, {what} | " + " | ".join(text) + " |")
    return "\n".join([*out, "", *_claims(both, known), ""])


def _claims(both: pd.DataFrame, known: Mapping[str, Mapping[int, float]]) -> list[str]:
    """Our times against the printed ones, and what the paper's text says of them."""
    cells, out = [int(c) for c in both.columns], []
    for rival, engine in (("MAP", "MAP"), ("GCGM", "EdgeEP"), ("GCGM", "Laplace")):
        if engine in both.index:
            ratios = [known[rival][c] / both.loc[engine, c] for c in cells if c in known[rival]]
            out.append(
                f"* `{engine}` against the printed {rival}: {min(ratios):.0f} to {max(ratios):.0f} times faster, "
                f"machines of 2014 and now compared."
            )
    if "MAP" in both.index and "Laplace" in both.index:
        slower = [both.loc["Laplace", c] / both.loc["MAP", c] for c in cells if c in known["MAP"]]
        out.append(
            "* *“The average running time of GCGM is more than 6 times faster than for the MAP approximation.”* "
            "Ours is the other way round: converged MAP, by "
            f"its dual, takes {min(slower):.1f} to {max(slower):.1f} times less than the joint mode."
            if min(slower) > 1
            else f"* Joint mode over converged MAP, in time: {min(slower):.2f} to {max(slower):.2f} (printed: less than 1/6)."
        )
    return out
