"""The paper's propositions and Theorem 1, as numbers.

Source: Liu, Sheldon and Dietterich (ICML 2014), Propositions 1–3 and Theorem 1.

* Proposition 1, the law of the counts: Σ_n p(n) = 1 over all tables, enumerated.
* Theorem 1 (i), the limit: the total variation between CGM(N, θ) and GCGM(N, θ), as a density on the lattice of
minimal coordinates, falls
  like 1/√N; for all tables by enumeration and by draws from the CGM, TV = E_p (1 − q/p)₊, and for node counts alone,
  whose exact law is a
  product of sums of two binomials.
* Theorem 1 (ii) and Proposition 2, the graph: the inverse of the reduced covariance vanishes between coordinates that no clique holds.
* Proposition 3, the rank: the covariance of all indicators is singular, that of the minimal coordinates is not.

Settings: a chain of two cells and three times for the limit; the birds' transitions on 2 × 2 cells, started uniformly,
for the graph; a chain, a
star and a cycle for the rank. Seed 20140621 for the draws and the cycle's potentials.

Deviations: the paper proves these and shows no numbers.

Duration: about one CPU minute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headcount.individual import DiscreteModel, MarkovChain, Model, Tree
from headcount.population import CGM
from reproduction.drawing import COLOURS, axes_grid
from reproduction.gaussian_law import GCGM
from reproduction.tasks import SEED, Inputs, Result, Row, Setting, Task

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
INITIAL, MATRIX = (0.6, 0.4), ((0.7, 0.3), (0.2, 0.8))
ENUMERATED = (2, 4, 8)
NODES = (2, 4, 8, 16, 32, 64, 128)
SAMPLED = (8, 32, 128, 512, 2048)
DRAWS = 2000
MODELS = ("chain", "star", "cycle")
RANKS = ("size", "rank", "reduced size", "reduced rank", "condition", "condition, last dropped")
CAPTION = "Theorem 1 and the propositions as numbers"


def plan(*, quick: bool = False) -> list[Task]:
    """All tasks. Side 0 says that a task has a model of its own."""
    nodes = NODES[:5] if quick else NODES
    enumerated = ENUMERATED[:2] if quick else ENUMERATED
    sampled = SAMPLED[:2] if quick else SAMPLED
    tasks = [
        Task(
            "limit",
            limit,
            Setting(0, 0.0, n, steps=3),
            options={
                "nodes": n in nodes,
                "tables": n in enumerated,
                "draws": (DRAWS // 10 if quick else DRAWS) if n in sampled else 0,
            },
        )
        for n in sorted({*nodes, *enumerated, *sampled})
    ]
    tasks.append(Task("precision", precision, Setting(2, 1.0, 1, steps=4)))
    return [*tasks, Task("rank", rank, Setting(0, 0.0, 1, steps=3))]


def limit(setting: Setting, data_set: int, engine: str, options: Mapping[str, Any], inputs: Inputs) -> Result:
    """Total variation between the exact and the Gaussian law: of nodes, and of all tables, enumerated or sampled."""
    del data_set, engine, inputs
    chain = MarkovChain(INITIAL, MATRIX, length=setting.steps)
    size = setting.population
    exact, gaussian = CGM(chain, size), GCGM(chain, size)
    rows = [Row("nodes apart", nodes_apart(chain, size))] if options["nodes"] else []
    if options["tables"]:
        pairs = np.array([(exact.log_pmf(n), gaussian.log_density(n)) for n in exact.support()])
        p, q = np.exp(pairs).T
        rows += [Row("total probability", float(p.sum())), Row("tables apart", total_variation(p, q))]
    if options["draws"]:
        rng = np.random.default_rng([SEED, size])
        drawn = [exact.sample(rng=rng) for _ in range(options["draws"])]
        ratio = np.exp([gaussian.log_density(n) - exact.log_pmf(n) for n in drawn])
        short = np.maximum(1.0 - ratio, 0.0)
        rows += [
            Row("sampled tables apart", float(short.mean())),
            Row("sampled tables error", float(short.std(ddof=1) / np.sqrt(len(short)))),
        ]
    return Result(tuple(rows))


def total_variation(p: Array, q: Array) -> float:
    """½ Σ |p − q| over the support of p, plus half of what q leaves outside it."""
    return float(0.5 * np.abs(p - q).sum() + 0.5 * abs(1.0 - q.sum()))


def nodes_apart(chain: MarkovChain, size: int) -> float:
    """Total variation of (n_0(0), n_1(0), n_2(0)): p(a) p(b | a) p(c | b), each step Bin(a, P₀₀) + Bin(N − a, P₁₀)."""
    law = GCGM(chain, size)
    start = _binomial(size, INITIAL[0])
    step = np.array(
        [np.convolve(_binomial(a, MATRIX[0][0]), _binomial(size - a, MATRIX[1][0])) for a in range(size + 1)]
    )
    exact = start[:, None, None] * step[:, :, None] * step[None, :, :]
    times = range(3)
    covariance = np.array([[law.covariance((s,), (t,))[0, 0] for t in times] for s in times])
    grid = [np.arange(size + 1) - law.mean((t,))[0] for t in times]
    inverse = np.linalg.inv(covariance)
    quadratic = sum(
        inverse[s, t] * np.expand_dims(grid[s], _others(s)) * np.expand_dims(grid[t], _others(t))
        for s in times
        for t in times
    )
    constant = np.linalg.slogdet(2 * np.pi * covariance)[1]
    return total_variation(exact, np.exp(-0.5 * (quadratic + constant)))


def _others(axis: int) -> tuple[int, int]:
    first, second = (k for k in range(3) if k != axis)
    return first, second


def _binomial(count: int, probability: float) -> Array:
    """The law of Bin(count, probability)."""
    from scipy.special import gammaln

    k = np.arange(count + 1)
    choose = gammaln(count + 1) - gammaln(k + 1) - gammaln(count - k + 1)
    return np.exp(choose + k * np.log(probability) + (count - k) * np.log1p(-probability))


def precision(
    setting: Setting, data_set: int, engine: str, options: Mapping[str, Any], inputs: Inputs
) -> Result:
    """|Γ_ij| / √(Γ_ii Γ_jj) of the inverted reduced covariance, and the largest entry that no clique holds."""
    del data_set, engine, options, inputs
    from headcount.simulate import birds

    world = birds(setting.side, setting.weights, setting.population, steps=setting.steps, rng=SEED)
    rooted = world.model.rooted()
    assert rooted is not None
    matrices = [p for p in rooted.transitions if p is not None]
    model = MarkovChain(np.full(setting.cells, 1 / setting.cells), matrices)
    law = GCGM(model, setting.population)
    coordinates = law.coordinates()
    gamma = np.linalg.inv(law.reduced_covariance())
    scaled = np.abs(gamma) / np.sqrt(np.outer(np.diag(gamma), np.diag(gamma)))
    held = np.zeros(gamma.shape, bool)
    for clique in model.junction_tree.cliques:
        places = coordinates.places_inside(tuple(clique))
        held[np.ix_(places, places)] = True
    rows = [Row("scaled", float(v), k) for k, v in enumerate(scaled.ravel())]
    ends = np.cumsum([coordinates.width(c) for c in coordinates.cliques])
    rows += [Row("block end", float(end), k) for k, end in enumerate(ends)]
    rows += [
        Row("largest outside the cliques", float(scaled[~held].max())),
        Row("size", float(len(gamma))),
        Row("held", float(held.mean())),
    ]
    return Result(tuple(rows))


def models() -> Iterator[tuple[str, Model]]:
    """A chain, a star and a cycle (whose triangulation has two cliques of three)."""
    rng = np.random.default_rng(SEED)
    yield "chain", MarkovChain(INITIAL, MATRIX, length=4)
    p = [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]]
    yield "star", Tree([0.2, 0.3, 0.5], dict.fromkeys("abc", ("centre", p)), root="centre")
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")]
    yield "cycle", DiscreteModel(dict.fromkeys("abcd", (0, 1)), {s: rng.normal(size=(2, 2)) for s in pairs})


def rank(setting: Setting, data_set: int, engine: str, options: Mapping[str, Any], inputs: Inputs) -> Result:
    """Size and rank of the covariance of all indicators, and of the minimal coordinates."""
    del setting, data_set, engine, options, inputs
    rows = []
    for k, (_, model) in enumerate(models()):
        law = GCGM(model, 1)
        scopes = [*model.junction_tree.cliques, *model.junction_tree.separators]
        full = np.block([[law.covariance(a, b) for b in scopes] for a in scopes])
        reduced, last = law.reduced_covariance(), law.reduced_covariance("last")
        values = (
            len(full),
            np.linalg.matrix_rank(full),
            len(reduced),
            np.linalg.matrix_rank(reduced),
            _condition(reduced),
            _condition(last),
        )
        rows += [Row(name, float(v), k) for name, v in zip(RANKS, values, strict=True)]
    return Result(tuple(rows))


def _condition(matrix: Array) -> float:
    """Condition number of the correlation matrix."""
    scale = 1 / np.sqrt(np.diag(matrix))
    return float(np.linalg.cond(matrix * np.outer(scale, scale)))


def figure(frame: pd.DataFrame) -> Figure:
    """The limit and the picture of the precision."""
    drawn, (left, right) = axes_grid(1, 2, width=10, height=4.6)
    part = frame[frame["kind"] == "limit"]
    for quantity, label, colour in (
        ("nodes apart", "node counts", COLOURS["Laplace"]),
        ("tables apart", "all counts, enumerated", COLOURS["MAP"]),
        ("sampled tables apart", "all counts, sampled", COLOURS["TiltedEP"]),
    ):
        line = part[part["quantity"] == quantity].sort_values("population")
        left.plot(line["population"], line["value"], "o-", color=colour, label=label)
        if len(line) and quantity != "tables apart":
            n, v = float(line["population"].iloc[-1]), float(line["value"].iloc[-1])
            x = np.array([8.0, n])
            left.plot(x, v * np.sqrt(n / x), "k:", lw=1)
    left.set_xscale("log", base=2)
    left.set(yscale="log", xlabel="N", ylabel="total variation", title="CGM → GCGM (dotted: 1/√N)")
    left.legend()
    picture, ends = precision_of(frame)
    if picture is not None:
        shown = right.imshow(np.log10(np.maximum(picture, 1e-16)), vmin=-16, vmax=0, cmap="Blues")
        for end in ends[:-1]:
            right.axhline(end - 0.5, color="0.6", lw=0.5)
            right.axvline(end - 0.5, color="0.6", lw=0.5)
        right.set(title="precision of the minimal coordinates", xticks=[], yticks=[])
        drawn.colorbar(shown, ax=right, label="log₁₀ |scaled entry|")
    return drawn


def precision_of(frame: pd.DataFrame) -> tuple[Array | None, Array]:
    """The stored picture and the ends of its blocks."""
    part = frame[frame["kind"] == "precision"]
    values = part[part["quantity"] == "scaled"].sort_values("step")["value"].to_numpy()
    ends = part[part["quantity"] == "block end"].sort_values("step")["value"].to_numpy()
    if not len(values):
        return None, ends
    size = int(np.sqrt(len(values)))
    return values.reshape(size, size), ends


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """What the comparison page says of each exhibit."""
    part = frame[frame["kind"].isin(["limit", "precision", "rank"])]

    def pick(quantity: str) -> pd.DataFrame:
        return part[part["quantity"] == quantity].sort_values(["population", "step"])

    ranks = {name: pick(name)[pick(name)["kind"] == "rank"]["value"].tolist() for name in RANKS}
    return {
        "nodes": dict(zip(pick("nodes apart")["population"], pick("nodes apart")["value"], strict=True)),
        "tables": dict(zip(pick("tables apart")["population"], pick("tables apart")["value"], strict=True)),
        "sampled": dict(
            zip(
                pick("sampled tables apart")["population"],
                zip(
                    pick("sampled tables apart")["value"], pick("sampled tables error")["value"], strict=True
                ),
                strict=True,
            )
        ),
        "total": pick("total probability")["value"].tolist(),
        "outside": pick("largest outside the cliques")["value"].tolist(),
        "ranks": ranks,
    }


def section(frame: pd.DataFrame) -> str:
    """Its part of the comparison page."""
    found = numbers(frame)
    out = []
    if found["total"]:
        off = max(abs(p - 1) for p in found["total"])
        out.append(f"* **Proposition 1.** The probabilities of all tables add up to 1 within {off:.0e}.")
    for name, what in (("nodes", "node counts"), ("sampled", "all counts")):
        values = {n: v[0] if isinstance(v, tuple) else v for n, v in found[name].items() if n >= 8}
        if len(values) > 1:
            first, last = min(values), max(values)
            slope = np.log(values[last] / values[first]) / np.log(last / first)
            out.append(
                f"* **Theorem 1 (i).** Total variation between CGM and GCGM, {what}: {values[first]:.3f} at N = "
                f"{first}, {values[last]:.4f} at N = {last}; "
                f"it falls like N^{slope:.2f} (1/√N is the law)."
            )
    if found["outside"]:
        out.append(
            "* **Theorem 1 (ii), Proposition 2.** The largest entry of the inverted reduced covariance between "
            "coordinates that no clique holds is "
            f"{found['outside'][0]:.0e} of its diagonal: zero, to rounding."
        )
    if found["ranks"]["size"]:
        out += ["* **Proposition 3.** Size and rank of the covariance:", ""]
        out += ["| model | " + " | ".join(RANKS) + " |", "|---|" + "---|" * len(RANKS)]
        for k, model in enumerate(MODELS):
            out.append(f"| {model} | " + " | ".join(f"{found['ranks'][r][k]:.4g}" for r in RANKS) + " |")
    return "\n".join([*out, ""])
