"""Claim: intervals on the networks of the bnlearn repository, loops and deterministic tables included, within two minutes each.

The 24 networks that pgmpy ships, 2 000 individuals, every third variable counted with a Gaussian error of sd 5, the default call.
Time is that of the inference and of the intervals of all variables, in a process of its own after another network has compiled what is
compiled; beside it the plan, the most probable counts alone (`MAP`), and pgmpy's marginals of one individual (N = 1), which have to be
ours. Coverage is that of hidden counts with a mean above 10, of variables that nobody counted and of tables of two adjacent ones.
mbi fits the same counts from the same network (mirror descent from its potentials, the defaults), where the tables are small; errors
are misplaced shares, Σ|inferred − true| / 2N per table. The register of `docs/tutorials/hospital.md` stands beside mbi too.
"""

from __future__ import annotations

import gzip
import importlib.resources
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import headcount as hc
from benchmarks._measure import in_child
from benchmarks._planned import peak_of
from benchmarks._report import Check, Curve, Report, Table
from benchmarks.peers.compare import ENVIRONMENT
from headcount import engines

Scope = tuple[Any, ...]

NAMES = (
    *(
        "asia",
        "cancer",
        "earthquake",
        "sachs",
        "survey",
        "alarm",
        "child",
        "insurance",
        "mildew",
        "water",
        "barley",
        "hailfinder",
    ),
    *(
        "hepar2",
        "win95pts",
        "andes",
        "diabetes",
        "link",
        "munin1",
        "pathfinder",
        "pigs",
        "munin",
        "munin2",
        "munin3",
        "munin4",
    ),
)
SMALL = NAMES[:8]
POPULATION, SD, EVERY = 2000, 5.0, 3
SEEDS = (1, 2, 3)
MOST_PAIRS, MOST_ENTRIES = 30, 500
"""Adjacent pairs per network whose tables are looked at, and entries of such a table at most."""
BY_PGMPY = 50_000
"""Table entries up to which pgmpy is asked: beyond, its variable elimination takes minutes."""
BY_MBI = 40
"""Variables up to which mbi is asked: its first run compiles for 55 s of processor time at 37 variables."""
PATIENCE = 900
"""Seconds that one network may take in all."""


def network(name: str) -> hc.DiscreteModel:
    """A network, read by the product."""
    return hc.DiscreteModel.from_bif(_file(name))


def _file(name: str) -> Any:
    return importlib.resources.files("pgmpy") / "utils" / "example_models" / f"{name}.bif.gz"


def counted(model: hc.DiscreteModel, seed: int) -> tuple[hc.Problem, np.ndarray]:
    """Every third variable's counts with noise, and the states of all individuals."""
    rng = np.random.default_rng(seed)
    people = model.sample(POPULATION, rng=rng)
    seen = []
    for k, v in list(enumerate(model.variables))[::EVERY]:
        n = np.bincount(people[:, k], minlength=len(model.states[v]))
        seen.append(hc.Gaussian(n + rng.normal(0, SD, n.shape), sd=SD, on=v))
    return hc.Problem(model, POPULATION, seen), people


def measured(name: str, seeds: list[int]) -> list[dict[str, Any]]:
    """One network, with every seed; `MAP` and pgmpy beside the first one, mbi beside all."""
    warm = counted(network("water" if name != "water" else "andes"), 0)[0]
    engines.run(warm, engines.MAP())
    engines.run(warm).node(warm.model.variables[1]).interval(0.9)
    start = time.process_time()
    model = network(name)
    shape = {
        "variables": len(model.variables),
        "entries": sum(model.junction_tree.table_sizes),
        "possible": sum(model.possible.counts),
        "read": time.process_time() - start,
    }
    made: list[dict[str, Any]] = []
    asked = []
    for seed in seeds:
        problem, people = counted(model, seed)
        made.append({"name": name, "seed": seed, **shape, **_asked(problem, people)})
        if seed == SEEDS[0]:
            start = time.process_time()
            engines.run(problem, engines.MAP(), strict=False)
            made[-1]["map"] = time.process_time() - start
            if shape["entries"] <= BY_PGMPY:
                made[-1].update(_pgmpy(name, model))
        asked.append((problem, made[-1].pop("true"), made[-1].pop("means")))
    if len(model.variables) <= BY_MBI and shape["entries"] <= BY_PGMPY and ENVIRONMENT.exists():
        _beside_mbi(asked, made)
    return made


def _beside_mbi(asked: list[tuple[Any, ...]], made: list[dict[str, Any]]) -> None:
    """Add misplaced shares, ours and mbi's, of nodes and of pairs, to what was measured; and mbi's seconds."""
    wanted = list(asked[0][1])
    answers, told = by_mbi([problem for problem, _, _ in asked], SD, wanted)
    for one, theirs, (_, true, means) in zip(made, answers, asked, strict=True):
        for what, width in (("nodes", 1), ("pairs", 2)):
            scopes = [scope for scope in wanted if len(scope) == width]
            one[f"{what} misplaced"] = [
                float(np.mean([misplaced(answer[s], true[s]) for s in scopes])) for answer in (means, theirs)
            ]
        one["mbi"] = told["seconds"], told["compile_seconds"]


def _asked(problem: hc.Problem, people: np.ndarray) -> dict[str, Any]:
    """The default call and the intervals of all variables, beside their plan; and what of both is true."""
    model, plan = problem.model, engines.plan(problem)
    found: dict[str, Any] = {}

    def ask() -> None:
        begun = time.perf_counter()
        found["posterior"] = posterior = hc.infer(problem)
        found["inference"] = time.perf_counter() - begun
        found["nodes"] = {(v,): _interval(posterior, (v,)) for v in model.variables}
        found["seconds"] = time.perf_counter() - begun

    _, peak, cpu = peak_of(ask)
    pairs = {pair: _interval(found["posterior"], pair) for pair in adjacent(model)}
    seen = {site.scope for site in problem.sites}
    nodes = {scope: ends for scope, ends in found["nodes"].items() if scope not in seen}
    true = {scope: table(model, people, scope) for scope in (*nodes, *pairs)}
    return {
        "counts": sum(map(len, problem.sites)),
        "engine": found["posterior"].engine,
        "status": found["posterior"].status.value,
        "inference": found["inference"],
        "seconds": found["seconds"],
        "processor": cpu,
        "peak": peak,
        "planned seconds": plan.seconds,
        "planned memory": plan.memory,
        "nodes": _covered(true, nodes),
        "pairs": _covered(true, pairs),
        "true": true,
        "means": {scope: ends[0] for scope, ends in {**nodes, **pairs}.items()},
    }


def table(model: hc.DiscreteModel, people: np.ndarray, scope: Scope) -> np.ndarray:
    """The true counts of some variables."""
    shape = model.size(scope)
    flat = np.ravel_multi_index([people[:, model.variables.index(v)] for v in scope], shape)
    return np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape)


def misplaced(found: np.ndarray, true: np.ndarray) -> float:
    """Share of individuals in the wrong entry."""
    return float(np.abs(found - true).sum() / (2 * true.sum()))


def by_mbi(
    problems: Sequence[hc.Problem], sd: float, wanted: Sequence[Scope]
) -> tuple[list[dict[Scope, np.ndarray]], dict[str, Any]]:
    """Tables of a network by mbi, per problem, from the same counts and the network's own potentials; and what its runs took."""
    model, sites = problems[0].model, problems[0].sites
    place = {v: k for k, v in enumerate(model.variables)}
    scopes = {
        "factors": [scope for scope, _ in model.factors],
        "measured": [site.scope for site in sites],
        "wanted": wanted,
    }
    given = {
        "network": json.dumps(
            {what: [[place[v] for v in s] for s in found] for what, found in scopes.items()}
        ),
        "sizes": [len(model.states[v]) for v in model.variables],
        "values": np.concatenate([np.asarray(values).ravel() for _, values in model.factors]),
        "noisy": np.stack([np.concatenate([site.noise.counts for site in p.sites]) for p in problems]),
        "sd": sd,
        "population": problems[0].population,
    }
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "problem.npz", Path(folder) / "answer.npz"
        np.savez(source, **given)  # type: ignore[arg-type]
        told = in_child("benchmarks.peers.with_mbi", [source, target], python=str(ENVIRONMENT))
        with np.load(target) as file:
            found = [
                {scope: file[f"{k}-{r}"] for k, scope in enumerate(wanted)} for r in range(len(problems))
            ]
    return found, told


def adjacent(model: hc.DiscreteModel) -> list[tuple[Any, Any]]:
    """Parents and children, evenly chosen where there are many."""
    every = [(parent, child) for (*parents, child), _ in model.factors for parent in parents]
    every = [pair for pair in every if np.prod(model.size(pair)) <= MOST_ENTRIES]
    return every[:: max(1, -(-len(every) // MOST_PAIRS))]


def _interval(posterior: hc.Posterior, scope: Scope) -> tuple[np.ndarray, ...]:
    """Mean, and the ends of the 90 % interval."""
    return posterior.mean_table(scope), *posterior.interval_tables(scope, 0.9)


def _covered(true: dict[Scope, np.ndarray], found: dict[Scope, tuple[np.ndarray, ...]]) -> list[int]:
    """Counts with a mean above 10 (and of these, with one below N − 10) inside their interval, and in all: four numbers."""
    total = np.zeros(4, dtype=int)
    for scope, (mean, lower, upper) in found.items():
        inside = (lower <= true[scope]) & (true[scope] <= upper)
        for k, wanted in enumerate((mean > 10, (mean > 10) & (mean < POPULATION - 10))):
            total[2 * k : 2 * k + 2] += inside[wanted].sum(), wanted.sum()
    return total.tolist()


def _pgmpy(name: str, model: hc.DiscreteModel) -> dict[str, float]:
    """Marginals of one individual by pgmpy: seconds, and how far ours are from them."""
    from pgmpy.inference import VariableElimination
    from pgmpy.readwrite import BIFReader

    theirs = BIFReader(string=gzip.decompress(_file(name).read_bytes()).decode()).get_model()
    for table in theirs.get_cpds():
        table.normalize()
    start, asked, apart = time.process_time(), VariableElimination(theirs), 0.0
    for v in model.variables:
        answer = asked.query([v], show_progress=False)
        order = [answer.state_names[v].index(label) for label in model.states[v]]
        apart = max(apart, float(np.abs(model.marginal((v,)) - answer.values[order]).max()))
    theirs_took = time.process_time() - start
    start = time.process_time()
    again = network(name)
    for v in again.variables:
        again.marginal((v,))
    return {"pgmpy": theirs_took, "pgmpy apart": apart, "marginals": time.process_time() - start}


HOSPITAL, RELEASED_SD = 5_000, 15.0
"""Patients of the tutorial's register, and the sd of the noise on every released count."""
RELEASED: tuple[Scope, ...] = (
    *((v,) for v in ["HRBP", "SAO2", "PRESS", "EXPCO2", "PCWP", "CVP", "HISTORY", "BP", "HREKG", "MINVOL"]),
    *(("CO", "HR"), ("TPR", "CO"), ("VENTLUNG", "VENTTUBE")),
)
DISEASES = ["HYPOVOLEMIA", "LVFAILURE", "PULMEMBOLUS", "INSUFFANESTH", "KINKEDTUBE", "DISCONNECT"]
CROSSED = (
    ("LVFAILURE", "HYPOVOLEMIA"),
    ("HYPOVOLEMIA", "MINVOL"),
    ("CVP", "PCWP"),
    ("SAO2", "BP"),
    ("HISTORY", "HREKG"),
)


def hospital() -> dict[str, list[list[Any]]]:
    """The register of the tutorial: diseases and cross tables that nobody released, by us and by mbi."""
    alarm, rng = network("alarm"), np.random.default_rng(4)
    patients = alarm.sample(HOSPITAL, rng=3)
    true = {
        scope: table(alarm, patients, scope) for scope in (*RELEASED, *((v,) for v in DISEASES), *CROSSED)
    }
    released = [
        hc.Gaussian(
            true[s] + rng.normal(0, RELEASED_SD, true[s].shape), sd=RELEASED_SD, on=s if s[1:] else s[0]
        )
        for s in RELEASED
    ]
    problem = hc.Problem(alarm, HOSPITAL, released)
    posterior = hc.infer(problem)
    wanted = [*((v,) for v in DISEASES), *CROSSED]
    theirs = by_mbi([problem], RELEASED_SD, wanted)[0][0] if ENVIRONMENT.exists() else {}
    diseases, crossed = [], []
    for scope in wanted:
        mean, lower, upper = _interval(posterior, scope)
        if not scope[1:]:
            by_them = theirs[scope][0] if theirs else None
            diseases.append([scope[0], true[scope][0], mean[0], lower[0], upper[0], by_them])
            continue
        inside = (lower <= true[scope]) & (true[scope] <= upper)
        by_them = misplaced(theirs[scope], true[scope]) if theirs else None
        crossed.append(
            [" × ".join(scope), inside.size, misplaced(mean, true[scope]), by_them, float(inside.mean())]
        )
    return {"diseases": diseases, "crossed": crossed}


def run(*, quick: bool) -> Report:
    """Every network with every seed, one process per network."""
    names, seeds = (SMALL, SEEDS[:1]) if quick else (NAMES, SEEDS)
    found: dict[str, list[dict[str, Any]]] = {}
    failed: dict[str, str] = {}
    for name in names:
        try:
            found[name] = in_child(__name__, [name, *seeds], timeout=PATIENCE * len(seeds))
        except RuntimeError as error:
            failed[name] = str(error)
        print(f"  {name}: {found[name][0]['seconds'] if name in found else failed[name]}", flush=True)
    return report(found, failed, hospital())


def report(
    found: dict[str, list[dict[str, Any]]], failed: dict[str, str], register: dict[str, list[list[Any]]]
) -> Report:
    """Checks and tables of what was measured."""
    every = [one for runs in found.values() for one in runs]
    worst = {name: max(one["processor"] for one in runs) for name, runs in found.items()}
    answered = [n for n, runs in found.items() if all(r["engine"] == "TiltedEP" for r in runs)]
    slack = {n: _ratio(runs, "planned seconds", "processor") for n, runs in found.items()}
    memory = {n: _ratio(runs, "planned memory", "peak") for n, runs in found.items() if runs[0]["peak"] > 3e7}
    nodes, pairs = (np.sum([one[what] for one in every], axis=0) for what in ("nodes", "pairs"))
    beside = [one for one in every if "mbi" in one]
    checks = [
        *(
            Check(
                f"networks with intervals within {words} minutes of processor time",
                sum(worst[n] <= seconds for n in answered),
                at_least=least,
            )
            for words, seconds, least in (("two", 120, 20), ("ten", 600, 22))
        ),
        Check("hidden counts inside their 90 % interval", nodes[0] / nodes[1], at_least=0.87, at_most=0.93),
        Check("entries of adjacent pairs inside", pairs[0] / pairs[1], at_least=0.87, at_most=0.93),
        Check("insurance", worst.get("insurance", float("nan")), at_most=5.0, unit="s"),
        Check("plan ÷ time, the worst network", _farthest(slack), at_least=1 / 3, at_most=3.0),
        Check("plan ÷ memory, the worst network", _farthest(memory), at_least=1 / 3, at_most=3.0),
        Check(
            "marginals of one individual, farthest from pgmpy's",
            max(one["pgmpy apart"] for one in every if "pgmpy" in one),
            at_most=1e-9,
        ),
        *(
            Check(f"misplaced share of {words} ÷ mbi's", _against_mbi(beside, what), at_most=1.0)
            for words, what in (("hidden counts", "nodes"), ("adjacent pairs", "pairs"))
        ),
    ]
    return Report(
        "networks",
        "Intervals on the networks of the bnlearn repository.",
        checks=checks,
        tables=[
            _networks_table(found, failed, slack, nodes, pairs),
            _mbi_table(found),
            *_hospital_tables(register),
        ],
        curves=[_times(found)],
        seeds=list(SEEDS),
    )


def _farthest(ratios: dict[str, float]) -> float:
    """The ratio farthest from one; NaN of none."""
    return max(ratios.values(), key=lambda x: abs(np.log(x)), default=float("nan"))


def _against_mbi(beside: list[dict[str, Any]], what: str) -> float:
    """Ours ÷ mbi's, of the means over networks and seeds."""
    ours, theirs = np.mean([one[f"{what} misplaced"] for one in beside] or [[np.nan, np.nan]], axis=0)
    return float(ours / theirs)


def _networks_table(
    found: dict[str, list[dict[str, Any]]],
    failed: dict[str, str],
    slack: dict[str, float],
    nodes: np.ndarray,
    pairs: np.ndarray,
) -> Table:
    rows: list[list[Any]] = []
    for name, runs in found.items():
        first = runs[0]
        n, p = (np.sum([one[what] for one in runs], axis=0) for what in ("nodes", "pairs"))
        cpu = float(np.median([one["processor"] for one in runs]))
        rows.append(
            [
                name,
                len(runs),
                first["variables"],
                first["counts"],
                first["entries"],
                first["possible"],
                cpu,
                float(np.median([one["seconds"] for one in runs])),
                cpu / first["map"],
                slack[name],
                first["peak"] / 1e9,
                _ratio(runs, "planned memory", "peak"),
                n[0] / n[1] if n[1] else None,
                p[0] / p[1] if p[1] else None,
                first["pgmpy"] / first["marginals"] if "pgmpy" in first else None,
            ]
        )
    rows += [[name, *[None] * 13, why] for name, why in failed.items()]
    return Table(
        "Networks: every third variable counted, intervals of all variables",
        [
            "network",
            "seeds",
            "variables",
            "counts",
            "table entries",
            "possible",
            "processor, s",
            "wall, s",
            "time ÷ MAP's",
            "plan ÷ time",
            "GB",
            "plan ÷ memory",
            "hidden counts covered",
            "pairs covered",
            "pgmpy ÷ ours, N = 1",
        ],
        rows,
        "Medians over seeds. Processor time of one core counts, here and in the plan: others used the machine too, and wall time is "
        "theirs as well. The check of memory leaves out networks below 30 MB, where the interpreter's own scatter is as large. "
        f"{nodes[1]:,} counts and {pairs[1]:,} entries of pairs were looked at; of those whose complement is above 10 as well, "
        f"{nodes[2] / nodes[3]:.3f} and {pairs[2] / pairs[3]:.3f} are inside. Whole-number intervals hold at least what they promise, "
        "and more where an sd is below about one individual. The last column: seconds of pgmpy's variable elimination for all "
        "marginals of one individual ÷ ours, file included.",
    )


def _mbi_table(found: dict[str, list[dict[str, Any]]]) -> Table:
    rows = []
    for name, runs in found.items():
        beside = [one for one in runs if "mbi" in one]
        if beside:
            values = [
                np.mean([one[f"{what} misplaced"] for one in beside], axis=0) for what in ("nodes", "pairs")
            ]
            later, compiling = np.median([one["mbi"] for one in beside], axis=0)
            ours = float(np.median([one["processor"] for one in beside]))
            rows.append([name, *np.concatenate(values), ours, later, later + compiling])
    return Table(
        "The same counts beside mbi",
        ["network", "hidden counts", "mbi", "pairs", "mbi", "s", "mbi, later runs, s", "mbi, first run, s"],
        rows,
        "Misplaced shares, means over tables and seeds; processor seconds. mbi gives points, ours are with intervals of all variables. "
        "mbi fits noisy counts as well as it can, whatever their noise; potentials of −∞ are −60 there. "
        f"Networks of more than {BY_MBI} variables were not asked of it."
        + ("" if rows else " mbi was not at hand in this run."),
    )


def _hospital_tables(register: dict[str, list[list[Any]]]) -> list[Table]:
    return [
        Table(
            "The hospital's register: diseases that nobody counted",
            ["disease", "true", "mean", "lower", "upper", "mbi"],
            register["diseases"],
            "The 90 % interval.",
        ),
        Table(
            "The hospital's register: cross tables that nobody released",
            ["table", "entries", "misplaced", "misplaced, mbi", "inside the 90 % interval"],
            register["crossed"],
        ),
    ]


def _times(found: dict[str, list[dict[str, Any]]]) -> Curve:
    """Processor seconds against possible entries."""
    kinds: dict[str, Callable[[list[dict[str, Any]]], float]] = {
        "TiltedEP, with all intervals": lambda runs: float(np.median([one["processor"] for one in runs])),
        "MAP": lambda runs: float(runs[0]["map"]),
    }
    series = {
        kind: sorted((float(runs[0]["possible"]), of(runs)) for runs in found.values())
        for kind, of in kinds.items()
    }
    return Curve("Time with intervals, and MAP's", "possible table entries", "processor seconds", series)


def _ratio(runs: list[dict[str, Any]], planned: str, taken: str) -> float:
    """Planned ÷ taken, the median over seeds."""
    return float(np.median([one[planned] / one[taken] for one in runs]))


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], [int(seed) for seed in sys.argv[2:]])))
