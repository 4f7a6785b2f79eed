"""Laws that a noise, an engine or a kind of population of your own must obey, as checks to run on it before you trust it.

Each returns nothing and raises `AssertionError`, with the law that is broken and by how much, at the first that does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from headcount._types import Array
    from headcount.engines import Engine
    from headcount.individual import MarkovChain
    from headcount.observe import Observation, Problem

DRAWS = 4000
"""Simulated counts and individuals."""
STANDARD_ERRORS = 5.0
"""Distance of a simulated mean from its law that is too far: happens once in two million by chance."""
STEP = 1e-4
"""Relative step of differences: their error is its square, and float64's precision over it, both far below `SLOPES`."""
SLOPES, CURVATURES = 1e-3, 1e-2
"""Relative errors of slopes and curvatures that are put down to differences."""
FEW = 4
"""Individuals of problems that are enumerated."""
MEANS, NATS = 0.35, 0.5
"""How far an approximate engine may be from enumeration of `FEW` individuals, in individuals and in nats."""


def _require(law: str, holds: Any, found: Any) -> None:
    if not np.all(holds):
        raise AssertionError(f"{law}; found {found}")


def _close(law: str, found: Any, expected: Any, *, relative: float = 0.0, absolute: Any = 0.0) -> None:
    found, expected = np.asarray(found, dtype=float), np.asarray(expected, dtype=float)
    _require(law, np.isclose(found, expected, rtol=relative, atol=absolute), f"{found}, expected {expected}")


def check_noise(noise: Observation, n: Sequence[float] | Array, *, rng: int = 0) -> None:
    """Check a noise at true counts ``n``, one per count of the noise, inside its domain.

    Its functions take arrays of shape (..., K); slope and curvature are the derivatives of `log_prob`, and no curvature is above 0 where
    the class says that it is log-concave; part of the counts is the same noise; what `sample` draws has the mean and the variance that
    `log_prob` gives, where the counts are whole numbers and the class says how to draw them.

    Examples
    --------
    >>> import headcount as hc
    >>> check_noise(hc.NegativeBinomial([3.0, 8.0], dispersion=2.0), [4.0, 6.0])
    """
    from headcount.observe import Observation

    at = np.asarray(n, dtype=float)
    name = type(noise).__name__
    _require(
        f"{name}: give as many true counts as the noise has counts", at.shape == noise.counts.shape, at.shape
    )
    value = noise.log_prob(at)
    _require(f"{name}.log_prob is finite at the true counts given", np.isfinite(value), value)
    h = STEP * np.maximum(at, 1.0)
    up, down = noise.log_prob(at + h), noise.log_prob(at - h)
    scale = np.maximum(np.abs(up - value), np.abs(down - value)) / h
    slope = (up - down) / (2 * h)
    _require(
        f"{name}.slope is the derivative of log_prob",
        np.abs(noise.slope(at) - slope) <= SLOPES * np.maximum(scale, 1e-6),
        (noise.slope(at), slope),
    )
    curvature = (noise.slope(at + h) - noise.slope(at - h)) / (2 * h)
    _require(
        f"{name}.curvature is the derivative of slope",
        np.abs(noise.curvature(at) - curvature) <= CURVATURES * np.maximum(np.abs(curvature), scale),
        (noise.curvature(at), curvature),
    )
    if noise.log_concave:
        _require(f"{name} says log_concave", noise.curvature(at) <= 1e-9, noise.curvature(at))
    both = np.stack([at, at + h])
    for function in (noise.log_prob, noise.slope, noise.curvature):
        _close(f"{name} takes counts of shape (..., K)", function(both)[1], function(at + h), relative=1e-9)
    last = np.arange(len(at))[-1:]
    _close(
        f"{name}.take is the noise of some counts",
        noise.take(last).log_prob(at[last]),
        value[last],
        relative=1e-12,
    )
    draws = type(noise).sample is not Observation.sample
    if noise.whole and draws and not noise.bound:
        _check_draws(noise, np.rint(at), np.random.default_rng(rng))


def _check_draws(noise: Observation, at: Array, rng: np.random.Generator) -> None:
    """That draws of whole counts have the law of log_prob."""
    from dataclasses import replace

    name = type(noise).__name__
    drawn = np.array([noise.sample(at, rng=rng) for _ in range(DRAWS)])
    most = int(drawn.max() + 10 * drawn.std() + 20)
    for k, count in enumerate(at):
        one = noise.take(np.array([k]))
        y = np.arange(most + 1.0)
        p = np.exp([float(replace(one, counts=np.array([v])).log_prob(np.array([count]))[0]) for v in y])
        _close(
            f"{name}: the probabilities of all counts sum to 1 at n = {count:g}", p.sum(), 1.0, absolute=1e-6
        )
        mean, variance = y @ p, (y - y @ p) ** 2 @ p
        error = STANDARD_ERRORS * np.sqrt(variance / DRAWS)
        _close(f"{name}.sample has the mean of log_prob", drawn[:, k].mean(), mean, absolute=error + 1e-9)
        fourth = (y - mean) ** 4 @ p
        error = STANDARD_ERRORS * np.sqrt(max(fourth - variance**2, 0.0) / DRAWS)
        _close(
            f"{name}.sample has the variance of log_prob", drawn[:, k].var(), variance, absolute=error + 1e-9
        )


def _small_problems() -> list[Problem]:
    """Problems of `FEW` individuals that can be listed: a chain, a chain with a gap in its data, a tree, sums."""
    import headcount as hc

    moves = np.array([[0.7, 0.3], [0.2, 0.8]])
    chain = hc.MarkovChain([0.6, 0.4], moves, length=3, cells=["a", "b"])
    gap = np.array([[2.0, 1.0], [np.nan, np.nan], [1.0, 3.0]])
    tree = hc.Tree(
        [0.5, 0.5], {"left": ("top", moves), "right": ("top", moves.T / moves.sum(axis=0)[:, None])}
    )
    return [
        hc.Problem(chain, FEW, hc.Poisson([[3.0, 1.0], [2.0, 2.0], [1.0, 3.0]])),
        hc.Problem(chain, FEW, hc.Poisson(gap)),
        hc.Problem(tree, FEW, hc.Gaussian({"left": [2.4, 1.3], "right": [1.1, 2.6]}, sd=1.0)),
        hc.Problem(chain, FEW, hc.Poisson([3.0], on=2, sums=[[1.0, 1.0]])),
    ]


def check_engine(
    engine: Engine, problems: Sequence[Problem] | None = None, *, means: float = MEANS, nats: float = NATS
) -> None:
    """Check an engine against enumeration on tiny problems.

    What it promises of its means holds; they are within ``means`` individuals of the exact ones, the evidence (where it gives one) within
    ``nats``; the same seed gives the same answer.

    Parameters
    ----------
    engine
        With its settings.
    problems
        Tiny problems that it takes; a chain, a chain with a time that nobody counted, a tree and a total if left out.

    Examples
    --------
    >>> import headcount as hc
    >>> check_engine(hc.engines.TiltedEP())
    """
    from headcount.engines import Enumerate, run

    for k, problem in enumerate(_small_problems() if problems is None else problems):
        name = f"{engine.name} on problem {k}"
        found, exact = run(problem, engine, rng=0), run(problem, Enumerate(), rng=0)
        for v in problem.model.variables:
            mean = found.node(v).mean.values
            _close(
                f"{name}: means of {v!r} are those of all populations",
                mean,
                exact.node(v).mean.values,
                absolute=means,
            )
            if found.promises.non_negative:
                _require(f"{name} promises means ≥ 0", mean >= -1e-9, mean)
            if found.promises.sums_to_population and problem.size_known:
                _close(
                    f"{name} promises that {v!r} sums to N",
                    mean.sum(),
                    float(problem.population),
                    relative=1e-6,
                )
        if found.log_evidence is not None and found.beliefs.has_spread:
            _close(f"{name}: evidence", found.log_evidence, exact.log_evidence, absolute=nats)
        first = problem.model.variables[0]
        again = run(problem, engine, rng=0).node(first).mean.values
        _close(
            f"{name}: the same seed gives the same answer",
            again,
            found.node(first).mean.values,
            absolute=1e-12,
        )


def check_population(chain: MarkovChain, *, rng: int = 0) -> None:
    """Check a kind of population, a chain whose individuals follow a larger one.

    Every state of the larger chain is a cell or none; its laws sum to 1; simulated counts have the mean N · `marginal`; with few
    individuals the default's answer is that of enumeration, sizes known and unknown.

    Examples
    --------
    >>> import headcount as hc
    >>> check_population(hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=3))
    """
    import headcount as hc

    name, larger = type(chain).__name__, chain.larger()
    _require(f"{name}.larger() is a tree of states", larger is not None, larger)
    assert larger is not None
    tree = larger.tree
    _close(f"{name}: the first law sums to 1", tree.initial.sum(), 1.0, absolute=1e-9)
    for t, (codes, v) in enumerate(zip(larger.cells, tree.variables, strict=True)):
        cells = len(chain.states[v])
        _require(
            f"{name}: one code per state at {v!r}", len(codes) == tree.sizes[t], (len(codes), tree.sizes[t])
        )
        _require(f"{name}: codes of {v!r} are cells, or negative", codes < cells, codes)
        if t:
            rows = np.asarray(tree.transitions[t].sum(axis=1)).ravel()
            _close(f"{name}: rows of the step to {v!r} sum to 1", rows, np.ones_like(rows), absolute=1e-8)
    generator = np.random.default_rng(rng)
    size = None if chain.expected_number is not None else DRAWS
    people = DRAWS if chain.expected_number is None else chain.expected_number
    runs = 1 if size else max(1, round(DRAWS / people))
    drawn = [hc.simulate.population(chain, size, rng=generator) for _ in range(runs)]
    for v in chain.variables:
        mean = people * chain.marginal((v,))
        seen = np.mean([np.asarray(world.table((v,))) for world in drawn], axis=0)
        error = STANDARD_ERRORS * np.sqrt(np.maximum(mean, 1.0) / runs)
        _close(f"{name}: simulated counts of {v!r} have the mean N · marginal", seen, mean, absolute=error)
    _check_few(chain, generator)


def _check_few(chain: MarkovChain, rng: np.random.Generator) -> None:
    """A few individuals by the default and by enumeration."""
    import headcount as hc

    counts = {
        v: rng.poisson(FEW * chain.marginal((v,)) / chain.marginal((v,)).sum()) for v in chain.variables
    }
    seen = hc.Poisson({v: table.astype(float) for v, table in counts.items()})
    for size in (None,) if chain.expected_number is not None else (FEW, hc.Between(FEW - 2, FEW + 2)):
        problem = hc.Problem(chain, size, seen)
        found, exact = hc.infer(problem, "TiltedEP"), hc.infer(problem, "Enumerate")
        name = f"{type(chain).__name__} of {size} individuals"
        for v in chain.variables:
            _close(
                f"{name}: means of {v!r}",
                found.node(v).mean.values,
                exact.node(v).mean.values,
                absolute=MEANS,
            )
        if found.log_evidence is not None:
            _close(f"{name}: evidence", found.log_evidence, exact.log_evidence, absolute=NATS)
