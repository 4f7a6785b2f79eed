"""Figure 1: learning curves of EM, relative error of the weights against the iteration.

Source: Liu, Sheldon and Dietterich (ICML 2014), Section 5, the figure of EM convergence.

Settings: the birds on L = 16 cells, N ∈ {16, 160, 480, 1600}, w ∈ {(.5, 1, 1, 1), (1, 2, 2, 2), (2, 4, 4, 4)}, T = 20,
10 data sets each, EM from w = 0,
50 iterations, with the paper's method (`Laplace`), `MAP` and `TiltedEP` as E-steps.
Seeds: (20140621, ℓ, 1000·w₁, N, T, data set, 1000·sequence).

Deviations: the paper does not say from where EM starts, how many data sets a curve averages, nor how many sequences it learns from; we
start at zero and show one sequence, and (5 data sets) three sequences with winds of their own that share w. The paper prints
no numbers here; those beside ours were read off its curves after 50 iterations. Added: the end points of direct ascent to the
maximum of the same evidence, and the error that complete counts would leave.

Duration: about 20 CPU minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.learn import LogisticChain, fit, fit_complete
from reproduction.drawing import COLOURS, axes_grid
from reproduction.tasks import Inputs, Result, Row, Setting, Task, engine_of, problem_of, world_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ENGINES = ("MAP", "Laplace", "TiltedEP")
POPULATIONS = (16, 160, 480, 1600)
WEIGHTS = (0.5, 1.0, 2.0)
LABELS = {0.5: "w₀.₅", 1.0: "w₁", 2.0: "w₂"}
ITERATIONS = 50
DATA_SETS = {1: 10, 3: 5}
"""Data sets by the number of sequences."""
READ_OFF: Mapping[float, Mapping[int, tuple[str, str]]] = {
    0.5: {16: (".26", ".37"), 160: (".10", ".13"), 480: (".06–.08",) * 2, 1600: (".06–.08",) * 2},
    1.0: {16: (".17", ".20"), 160: (".06", ".10"), 480: (".03–.06",) * 2, 1600: (".03–.06",) * 2},
    2.0: {16: (".11", ".09"), 160: (".05", ".08"), 480: (".01–.02",) * 2, 1600: (".01–.02",) * 2},
}
"""By w and N: the paper's MAP and GCGM after 50 iterations, read off its curves."""
CAPTION = "Relative error of the weights against the iteration of EM"


def plan(*, quick: bool = False) -> list[Task]:
    """All tasks."""
    tasks: list[Task] = []
    populations, iterations = ((160,), 10) if quick else (POPULATIONS, ITERATIONS)
    for weight in (1.0,) if quick else WEIGHTS:
        for population in populations:
            setting = Setting(3 if quick else 4, weight, population, steps=10 if quick else 20)
            for sequences, data_sets in ({1: 2} if quick else DATA_SETS).items():
                for data_set in range(data_sets):
                    tasks += _data_set(setting, data_set, sequences, iterations)
    return tasks


def _data_set(setting: Setting, data_set: int, sequences: int, iterations: int) -> list[Task]:
    """EM and ascent with every engine, and the floor, on one data set."""
    share = {"sequences": sequences, "iterations": iterations}
    complete = Task("learning", learning, setting, data_set, "", {"method": "complete", **share})
    return [complete] + [
        Task("learning", learning, setting, data_set, name, {"method": method, **share})
        for name in ENGINES
        for method in ("em", "ascent")
    ]


def learning(
    setting: Setting, data_set: int, engine: str, options: Mapping[str, Any], inputs: Inputs
) -> Result:
    """‖w_learn − w_true‖₁ / ‖w_true‖₁ after every iteration (EM), at the end (ascent), or from complete counts."""
    del inputs
    worlds = [world_of(setting, data_set, sequence=k) for k in range(options["sequences"])]
    chains = [LogisticChain(np.asarray(world.features)) for world in worlds]
    if options["method"] == "complete":
        found = fit_complete(
            chains, [w.model for w in worlds], [w.tables for w in worlds], truth=setting.weights
        )
    else:
        found = fit(
            chains,
            [problem_of(world) for world in worlds],
            engine_of(engine, {}),
            method=options["method"],
            start="zero",
            max_iterations=options["iterations"] if options["method"] == "em" else None,
            truth=setting.weights,
            standard_errors=options["method"] == "ascent",  # they take ascent on to the evidence's maximum
            strict=False,
            progress=False,
        )
    rows = [Row("error", float(row["error"]), int(row["iteration"])) for row in found.rows]
    if options["method"] != "em":
        rows = [Row("error", rows[-1].value)]
    rows += [Row("weight", float(w), k) for k, w in enumerate(found.working)]
    rows += [Row("converged", float(found.status.good)), Row("e_steps", float(found.e_steps))]
    return Result(tuple(rows))


def errors(frame: pd.DataFrame) -> pd.DataFrame:
    """Learning errors with the method and the number of sequences as columns."""
    import json

    part = frame[(frame["kind"] == "learning") & (frame["quantity"] == "error")].copy()
    known = {text: json.loads(text) for text in part["options"].unique()}
    for name in ("method", "sequences", "iterations"):
        part[name] = [known[text][name] for text in part["options"]]
    return part


def curve(part: pd.DataFrame) -> pd.Series:
    """Mean error over data sets at every iteration; a data set that converged early keeps its last error."""
    table = part.pivot_table(index="step", columns="data_set", values="value")
    return table.reindex(range(int(part["iterations"].max()) + 1)).ffill().mean(axis=1)


def ends(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean and sd of the last error: rows w, N and sequences; columns method and engine."""
    part = errors(frame)
    keys = ["weight", "population", "sequences", "method", "engine", "data_set"]
    last = part.sort_values("step").groupby(keys, observed=True)["value"].last()
    return last.groupby(keys[:-1], observed=True).agg(["mean", "std", "count"]).reset_index()


def closer(frame: pd.DataFrame) -> pd.DataFrame:
    """Error of TiltedEP's fit less that of MAP's on the same data: mean and standard error by N and sequences, all w."""
    part = errors(frame)
    part = part[(part["method"] == "ascent") & part["engine"].isin(["MAP", "TiltedEP"])]
    keys = ["population", "sequences", "weight", "data_set"]
    wide = part.pivot_table(index=keys, columns="engine", values="value", observed=True)
    gap = (wide["TiltedEP"] - wide["MAP"]).groupby(keys[:2], observed=True)
    return gap.agg(["mean", "sem", "count"]).reset_index()


def figure(frame: pd.DataFrame) -> Figure:
    """One panel for every w and N: solid one sequence, dashed three; crosses direct ascent; dotted complete counts."""
    part = errors(frame)
    weights, populations = sorted(part["weight"].unique()), sorted(part["population"].unique())
    drawn, grid = axes_grid(
        len(weights),
        len(populations),
        width=3.1 * len(populations) + 2,
        height=2.6 * len(weights) + 0.6,
        squeeze=False,
        sharex=True,
    )
    for i, weight in enumerate(weights):
        for j, population in enumerate(populations):
            here = part[(part["weight"] == weight) & (part["population"] == population)]
            _panel(grid[i, j], here)
            grid[i, j].set_title(f"{LABELS.get(weight, weight)}, N = {population}", fontsize="medium")
    for axes in grid[-1]:
        axes.set_xlabel("iteration")
    for axes in grid[:, 0]:
        axes.set_ylabel("relative error of w")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    drawn.legend(
        handles, labels, loc="outside lower center", ncols=min(6, 2 * len(populations)), fontsize="small"
    )
    return drawn


def _panel(axes: Any, part: pd.DataFrame) -> None:
    """The curves of one setting."""
    from matplotlib.ticker import LogLocator

    for sequences, style in ((1, "-"), (3, "--")):
        some = part[part["sequences"] == sequences]
        for name in ENGINES:
            em = some[(some["method"] == "em") & (some["engine"] == name)]
            if em.empty:
                continue
            line = curve(em)
            label = f"{name}, {sequences} sequence" + ("s" if sequences > 1 else "")
            axes.plot(line.index, line, style, color=COLOURS[name], label=label, lw=1.3)
            end = some[(some["method"] == "ascent") & (some["engine"] == name)]["value"].mean()
            axes.plot(
                [line.index[-1]], [end], "x" if sequences == 1 else "+", color=COLOURS[name], clip_on=False
            )
        floor = some[some["method"] == "complete"]["value"].mean()
        axes.axhline(floor, color="0.4", ls=":", lw=1 if sequences == 1 else 0.6)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")


def section(frame: pd.DataFrame) -> str:
    """Its part of the comparison page: end points, and the claims of the paper's text."""
    table = ends(frame)
    names = [("em", n) for n in ENGINES] + [("ascent", n) for n in ENGINES] + [("complete", "")]
    titles = ["paper, MAP", "paper, GCGM", *(f"EM, {n}" for n in ENGINES), *(f"ascent, {n}" for n in ENGINES)]
    titles.append("complete counts")
    out = [
        "Solid: one sequence; dashed: three. Crosses at the right: where direct ascent on the same evidence ends. "
        "Dotted: complete counts.",
        "",
        "Relative error of w at the end, mean ± standard deviation over data sets (the paper's read off its curves; it does "
        "not say how many sequences it had):",
        "",
        "| w | N | sequences | " + " | ".join(titles) + " |",
        "|---|---|---|" + "---|" * len(titles),
    ]
    index = table.set_index(["weight", "population", "sequences", "method", "engine"])
    for weight, population, sequences in sorted({key[:3] for key in index.index}):
        cells = list(READ_OFF.get(weight, {}).get(population, ("", "")))
        for method, name in names:
            row = index.loc[(weight, population, sequences, method, name)]
            cells.append(f"{row['mean']:.3f} ± {row['std']:.3f}")
        label = LABELS.get(weight, f"{weight:g}")
        out.append(f"| {label} | {population} | {sequences} | " + " | ".join(cells) + " |")
    return "\n".join([*out, "", *_claims(frame), *_ours(frame), ""])


def _ours(frame: pd.DataFrame) -> list[str]:
    """TiltedEP's fits against MAP's, paired."""
    said = [
        f"N = {row.population}, {row.sequences} sequence{'s' if row.sequences > 1 else ''}: "
        f"{row.mean:+.4f} ± {row.sem:.4f}"
        for row in closer(frame).itertuples()
    ]
    return [
        "* Error of `TiltedEP`'s fit less that of `MAP`'s on the same data (direct ascent; mean over w and data sets ± "
        f"standard error): {'; '.join(said)}."
    ]


def _claims(frame: pd.DataFrame) -> list[str]:
    """What the paper's text says of its figure, against the means of one sequence."""
    part = errors(frame)
    part = part[(part["method"] == "em") & (part["sequences"] == 1)]
    at = {
        key: curve(some)
        for key, some in part.groupby(["weight", "population", "engine"], observed=True)
        if key[2] in {"MAP", "Laplace"}
    }
    pairs = sorted({key[:2] for key in at})

    def worse(settings: list[tuple[float, int]], step: int) -> str:
        count = sum(at[(*k, "Laplace")].iloc[step] > at[(*k, "MAP")].iloc[step] for k in settings)
        return f"{count} of {len(settings)} panels"

    small, large = [k for k in pairs if k[1] <= 160], [k for k in pairs if k[1] > 160]
    strong = [k for k in pairs if k[0] == 2.0]
    out = []
    if small:
        out.append(
            "* *“For small population sizes (N = 16 and N = 160), the GCGM does not do as well as the MAP "
            "approximation.”* Ours: GCGM's E-step ends with the "
            f"larger error in {worse(small, -1)}."
        )
    if large:
        out.append(f"* For N = 480 and 1600, GCGM's E-step ends with the larger error in {worse(large, -1)}.")
    over = [k for k in pairs if at[(*k, "Laplace")].min() < 0.95 * at[(*k, "Laplace")].iloc[-1]]
    if small:
        said = ", ".join(f"{LABELS.get(w, w)} N = {n}" for w, n in over) or "none"
        out.append(
            f"* *“In some cases, it overfits the data.”* Ours: panels in which GCGM's error rises by more than 5 % "
            f"from its lowest: {said}."
        )
    if strong:
        out.append(
            "* *“For w₂ … the MAP approximation learns faster, although the GCGM eventually matches its "
            "performance.”* Ours, at w₂: GCGM's error is "
            f"the larger after 10 iterations in {worse(strong, 10)}, at the end in {worse(strong, -1)}."
        )
    return out
