"""Random combinations of what is known of populations: graphs, sizes, groups, weights, tags, arrivals, dispersion, noises, tables.

Every combination is made from individuals that are drawn one by one, so that exact counts and tags are possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import headcount as hc

SIZES = ("known", "about", "between", "unknown")
KINDS = ("one", "two groups", "weights")
TAGS = ("none", "counted", "apart")
OPEN = (False, True)
TOGETHER = ("alone", "flocks", "phi", "rho")
NOISES = ("poisson", "binomial", "gaussian", "exact")
TABLES = ("cells", "flows", "sums")
FIRST_HOMES = 60
GRAPHS = ("chain", "stays", "arriving stays", "memory", "tree", "loop")
"""What individuals follow; the last two have no times, so no tags and arrivals, and the loop no groups and no steps."""
ALL_NOISES = (*NOISES, "negative binomial", "laplace")


@dataclass(frozen=True)
class Combination:
    """One choice of each, and the number of individuals per group, about."""

    size: str
    kind: str
    tags: str
    opens: bool
    together: str
    noise: str
    table: str
    people: int
    seed: int
    graph: str = "chain"

    @property
    def name(self) -> str:
        """In words."""
        opens = ("open " if self.opens else "closed ") + self.graph
        parts = (self.size, self.kind, f"tags {self.tags}", opens, self.together, self.noise, self.table)
        return ", ".join(parts) + f" (seed {self.seed})"


def random_combination(seed: int, people: int = 4) -> Combination:
    """A combination that people can have: an open population says its own numbers."""
    rng = np.random.default_rng([41, seed])
    pick = lambda choices: choices[int(rng.integers(len(choices)))]  # noqa: E731
    opens = bool(rng.random() < 0.25)
    size = "known" if opens else pick(SIZES)
    return Combination(
        size, pick(KINDS), pick(TAGS), opens, pick(TOGETHER), pick(NOISES), pick(TABLES), people, seed
    )


def wide_combination(seed: int, people: int = 4) -> Combination:
    """The same on every graph and with every noise; from `FIRST_HOMES` on of individuals that go back to a home."""
    rng = np.random.default_rng([43, seed])
    pick = lambda choices: choices[int(rng.integers(len(choices)))]  # noqa: E731
    graph, kind, together = pick(GRAPHS), pick(KINDS), pick(TOGETHER)
    graph = "homes" if seed >= FIRST_HOMES else graph
    timed, opens = graph not in {"tree", "loop"}, graph == "arriving stays"
    if graph == "loop":
        kind, together = "one", pick(("alone", "flocks"))
    size, tags = "known" if opens else pick(SIZES), pick(TAGS) if timed else "none"
    return Combination(size, kind, tags, opens, together, pick(ALL_NOISES), pick(TABLES), people, seed, graph)


def law_of(size: str, number: int) -> Any:
    """What is said of a number."""
    return {
        "known": number,
        "about": hc.About(number, sd=max(1.0, 0.4 * number)),
        "between": hc.Between(max(number - 3, 0), number + 3),
        "unknown": hc.Unknown(),
    }[size]


def model_of(case: Combination, rng: np.random.Generator, units: int) -> hc.Model:
    """The law of one individual, at random."""
    if case.graph == "loop":
        pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
        return hc.DiscreteModel(
            dict.fromkeys("abcd", (0, 1)), {pair: rng.normal(0, 0.7, (2, 2)) for pair in pairs}
        )
    start, moves = rng.dirichlet([2, 2]), rng.dirichlet([2, 2], 2)
    if case.graph == "tree":
        return hc.Tree(start, {"b": ("a", moves), "c": ("a", rng.dirichlet([2, 2], 2))}, root="a")
    if case.graph == "memory":
        return hc.MemoryChain(start, moves, rng.dirichlet([2, 2], (2, 2)), length=3)
    if case.graph == "homes":
        return hc.HomeChain(start, moves, rng.uniform(0.1, 0.7), length=3)
    if case.graph == "stays":
        return hc.SemiMarkovChain(start, rng.uniform(0.1, 0.9, (2, 2)), [[0, 1], [1, 0]], length=3)
    if case.graph == "arriving stays":
        hazard = rng.uniform(0.1, 0.9, (2, 2))
        return hc.SemiMarkovChain(units * start, hazard, [[0, 0.6], [0.7, 0]], arrivals=0.5, length=2)
    if case.opens:
        return hc.OpenChain(units * start, moves, arrivals=0.7, survival=0.8, length=2)
    return hc.MarkovChain(start, moves, length=3)


def cells_of(model: hc.Model, number: int, rng: np.random.Generator) -> np.ndarray:
    """The cell of every individual at every variable, negative where it is in none."""
    larger = model.larger()
    if larger is None:
        return np.asarray(model.sample(number, rng=rng))
    tree = larger.tree
    labels = {v: tuple(range(n)) for v, n in zip(tree.variables, tree.sizes, strict=True)}
    kind = hc.MarkovChain if tree.is_chain else hc.Tree
    paths = kind.from_rooted(tree, labels).sample(number, rng=rng)
    return np.stack([larger.cells[t][paths[:, t]] for t in range(len(larger.cells))], axis=1)


def problem_of(case: Combination) -> hc.Problem:
    """The problem, with data drawn from it."""
    rng = np.random.default_rng([42, case.seed])
    flock = 2 if case.together == "flocks" else 1
    names = [None] if case.kind == "one" else ["a", "b"]
    weights = {None: 1, "a": 2 if case.kind == "weights" else 1, "b": 1}
    groups: dict[Any, tuple[hc.Model, Any, int]] = {}
    last, flows = np.zeros(2), np.zeros((2, 2))
    tags: list[dict[str, Any]] = []
    for name in names:
        units = max(1, round(case.people / flock))
        model = model_of(case, rng, units * flock)
        if case.opens:
            number, size = max(1, rng.poisson(model.expected_number / flock)), None
        else:
            number, size = units, law_of(case.size, units * flock)
        cells = cells_of(model, number, rng)
        each = flock * weights[name]
        for i in (0, 1):
            last[i] += each * (cells[:, -1] == i).sum()
            for j in (0, 1):
                flows[i, j] += each * ((cells[:, 0] == i) & (cells[:, 1] == j)).sum()
        if case.tags != "none":
            for t in range(cells.shape[1]):
                if cells[0, t] >= 0:
                    tags.append({"id": f"{name}", "time": t, "cell": int(cells[0, t]), "group": name})
        groups[name] = model, size, weights[name]
    together = {
        "alone": None,
        "flocks": hc.Flocks(2),
        "phi": hc.Overdispersion(phi=1.5),
        "rho": hc.Overdispersion(rho=0.1),
    }[case.together]
    variables = next(iter(groups.values()))[0].variables
    seen: list[Any] = [_observed(case, variables, last, flows, rng)]
    if tags:
        columns = {k: [row[k] for row in tags] for k in ("id", "time", "cell", "group")}
        if case.kind == "one":
            columns.pop("group")
        seen.append(hc.Tracks(columns, counted=case.tags == "counted"))
    if case.kind == "one":
        model, size, _ = groups[None]
        return hc.Problem(model, size, seen, dispersion=together)
    made = {name: hc.Group(model, size, weight=weight) for name, (model, size, weight) in groups.items()}
    return hc.Problem(groups=made, observations=seen, dispersion=together)


def _observed(
    case: Combination,
    variables: tuple[Any, ...],
    last: np.ndarray,
    flows: np.ndarray,
    rng: np.random.Generator,
) -> Any:
    """What is seen of the true tables: cells of the last variable, the flows of the first step, or a total."""
    if case.table == "flows":
        true, where = flows, {"on": variables[:2]}
    elif case.table == "sums":
        true, where = last.sum(keepdims=True), {"on": variables[-1], "sums": [[1.0, 1.0]]}
    else:
        true, where = last, {"on": variables[-1]}
    if case.noise == "poisson":
        return hc.Poisson(rng.poisson(true).astype(float), **where)
    if case.noise == "binomial":
        return hc.Binomial(rng.binomial(true.astype(int), 0.6).astype(float), detection=0.6, **where)
    if case.noise == "gaussian":
        return hc.Gaussian(true + rng.normal(0, 1.5, true.shape), sd=1.5, **where)
    if case.noise == "negative binomial":
        return hc.NegativeBinomial(
            rng.poisson(true * rng.gamma(5, 0.2, true.shape)).astype(float), dispersion=5, **where
        )
    if case.noise == "laplace":
        return hc.LaplaceNoise(true + rng.laplace(0, 1.2, true.shape), scale=1.2, **where)
    return hc.Exact(true, **where)
