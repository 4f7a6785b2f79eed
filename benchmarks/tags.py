"""Claim: tags weigh as much as they should beside relative abundances, and site fidelity that is learned is scored by recoveries.

*Shares*: the counts of 2 000 birds on nine cells are known only up to a factor. As exact counts of 100 000 they seem to tell weights seven
times as well as they do; with a dispersion that is learned from their scatter, errors are those of the 2 000, and tags weigh beside them.

*Site fidelity*: everybody has a home on a map of nine cells and is there with probability .6 at every time, else a step of a random walk
from where they were. Three chains are learned from Poisson counts of 3 000 and 300 recoveries (first and last position) and scored on 300
further recoveries, in nats per recovery, beside the rival that stays with the best probability and is else anywhere: one without memory;
the same going back to the cell before with a probability that the evidence chooses; and one with homes, whose fidelity and moves are
learned together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import headcount as hc
from benchmarks._report import Check, Report, Table

WORLDS = 4
FIRST_SEED = 9700
BIRDS, SHARES_OF, RECOVERIES = 2000, 100_000, 300
SIDE, TIMES, PEOPLE, AT_HOME = 3, 10, 3000, 0.6
RETURNING = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
"""Probabilities to go back to the cell before, of which the evidence takes one."""


def shares(seed: int) -> list[list[Any]]:
    """Mean standard error of the weights by what is known of the counts, without and with recoveries."""
    world = hc.simulate.birds(3, (1.0, 2.0, 2.0, 2.0), BIRDS, steps=12, rng=seed)
    counts = np.array([world.tables.table((t,)) for t in world.model.times])
    rng = np.random.default_rng(seed)
    tags = hc.Tracks(recoveries(rng, world.model.sample(RECOVERIES, rng=rng)), counted=False)
    known = {
        "the birds' own numbers": (BIRDS, hc.Exact(counts), None),
        "shares, taken as counts": (
            SHARES_OF,
            hc.Exact.of_shares(counts / BIRDS, population=SHARES_OF),
            None,
        ),
        "shares, dispersion learned": (
            SHARES_OF,
            hc.Exact.of_shares(counts / BIRDS, population=SHARES_OF),
            "estimate:phi",
        ),
    }
    rows = []
    for name, (people, seen, together) in known.items():
        for beside in ([], [tags]):
            problem = hc.Problem(world.model, people, [seen, *beside])
            fit = hc.fit(
                hc.LogisticChain(world.features), problem, dispersion=together, strict=False, progress=False
            )
            alone = people if fit.dispersion is None else people / fit.dispersion.value
            rows.append([name, "yes" if beside else "no", float(fit.standard_errors.mean()), float(alone)])
    return rows


def recoveries(rng: np.random.Generator, paths: np.ndarray) -> dict[str, np.ndarray]:
    """One pair of times of every path, the later one of the rest at random."""
    count, times = paths.shape
    first = rng.integers(0, times - 1, count)
    last = rng.integers(first + 1, times)
    at = np.arange(count)
    return {"from_time": first, "from_cell": paths[at, first], "to_time": last, "to_cell": paths[at, last]}


def homes(seed: int) -> dict[str, float]:
    """Nats per recovery of individuals with homes."""
    rng = np.random.default_rng(seed)
    cells = SIDE**2
    place = np.stack(np.divmod(np.arange(cells), SIDE), axis=1)
    gap = np.abs(place[:, None] - place[None]).sum(axis=-1).astype(float)
    law = rng.dirichlet(np.full(cells, 3.0))
    walk = np.exp(-0.7 * gap) * law
    walk /= walk.sum(axis=1, keepdims=True)
    reach = walk.cumsum(axis=1)

    def paths(count: int) -> np.ndarray:
        home = rng.choice(cells, count, p=law)
        found = [home]
        for _ in range(TIMES - 1):
            away = (rng.random((count, 1)) > reach[found[-1]]).sum(axis=1).clip(max=cells - 1)
            found.append(np.where(rng.random(count) < AT_HOME, home, away))
        return np.stack(found, axis=1)

    counts = np.stack([np.bincount(column, minlength=cells) for column in paths(PEOPLE).T])
    seen = hc.Poisson(rng.poisson(counts))
    told, held = recoveries(rng, paths(RECOVERIES)), recoveries(rng, paths(RECOVERIES))
    tags = hc.Tracks(told, counted=False)
    features = np.stack([np.eye(cells), -gap, np.broadcast_to(np.log(law), gap.shape)])
    chain = hc.MarkovChain(None, np.full((cells, cells), 1 / cells), length=TIMES)
    plain = hc.fit(
        hc.LogisticChain(features), hc.Problem(chain, PEOPLE, [seen, tags]), strict=False, progress=False
    )
    walked = np.asarray(plain.model.transitions[0])
    before, here = np.indices((cells, cells))

    def with_memory(back: float) -> Any:
        """The posterior where an individual goes back to the cell before with this probability, and else moves as the chain does."""
        memory = np.tile((1 - back) * walked, (cells, 1, 1))
        memory[before, here, before] += back
        chain = hc.MemoryChain(plain.model.initial, walked, memory, length=TIMES)
        return hc.infer(hc.Problem(chain, PEOPLE, [seen, tags]), strict=False, progress=False)

    learned = max((with_memory(back) for back in RETURNING), key=lambda post: post.log_evidence)
    at_first = hc.HomeChain(plain.model.initial, np.full((cells, cells), 1 / cells), 0.3, length=TIMES)
    setting = hc.learn.LearnFidelity(hc.LogisticChain(features))
    settled = hc.fit(setting, hc.Problem(at_first, PEOPLE, [seen, tags]), strict=False, progress=False)
    post = plain.posterior
    return {
        "chain": float(post.log_prob(held).mean()),
        "memory, learned": float(learned.log_prob(held).mean()),
        "homes, learned": float(settled.posterior.log_prob(held).mean()),
        "stay, else anywhere": float(post.log_prob(held, null="stay").mean()),
        "anywhere": float(post.log_prob(held, null=True).mean()),
        "fidelity": float(settled.model.fidelity[0]),
    }


def run(*, quick: bool) -> Report:
    """Both halves, world by world."""
    count = 1 if quick else WORLDS
    found = [shares(FIRST_SEED + k) for k in range(count)]
    tables = np.array([[row[2:] for row in one] for one in found]).mean(axis=0)
    rows = [[*row[:2], *values] for row, values in zip(found[0], tables.tolist(), strict=True)]
    scores = [homes(FIRST_SEED + k) for k in range(count)]
    fidelity = [one.pop("fidelity") for one in scores]
    means = {name: float(np.mean([one[name] for one in scores])) for name in scores[0]}
    gap = means["stay, else anywhere"] - means["chain"]
    memory, settled = ((means[name] - means["chain"]) / gap for name in ("memory, learned", "homes, learned"))
    return Report(
        "tags",
        "Tags beside relative abundances, and recoveries of individuals that come home.",
        checks=[
            Check(
                "standard errors of weights with tags, shares with a learned dispersion over the birds' own numbers",
                tables[5, 0] / tables[1, 0],
                at_least=0.8,
                at_most=1.25,
            ),
            Check(
                "share of the gap to the rival that stays which learned homes close", settled, at_least=1.0
            ),
            Check(
                "largest error of the fidelity",
                float(np.abs(np.array(fidelity) - AT_HOME).max()),
                at_most=0.15,
            ),
        ],
        tables=[
            Table(
                "Weights from shares and recoveries",
                ["counts", "recoveries", "mean standard error", "as many as move alone"],
                rows,
            ),
            Table(
                "Recoveries of individuals that come home, nats per recovery",
                ["model", *(f"world {k}" for k in range(count)), "mean"],
                [[name, *(one[name] for one in scores), means[name]] for name in means],
                f"A memory of one step closes {memory:.2f} of the gap between the chain and the rival that stays.",
            ),
        ],
        seeds=[FIRST_SEED],
    )
