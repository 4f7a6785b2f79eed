r"""Populations whose number of individuals is not known: the same engine at a few numbers, weighed by what each explains.

.. math:: p(N \mid y) \propto p(N)\,p(y \mid N), \qquad p(n \mid y) = \sum_N p(N \mid y)\,p(n \mid y, N)

exactly. :math:`\log p(y\mid N)`, the engine's evidence, is smooth in N, so five sizes give it everywhere: they are the Gauss nodes of
:math:`p(N\mid y)`, with which the mean and the variance of everything that is a polynomial in N are exact. The search starts at the most
probable N, where

.. math:: \frac{d}{dN}\log p(N) + A(\theta+g) - A(\theta) = 0

with g the tilts of MAP at N, by the envelope theorem. Exact engines add up all sizes instead.

A sampler gives no evidence. It takes a known number of candidates, each of whom may be absent: M candidates of whom each is there with
probability q have :math:`N \sim \mathrm{Bin}(M, q)`; with the factor :math:`p(N)/\mathrm{Bin}(N; M, q)` on the number that is there, N has
any law p on 0 … M. A candidate that is redrawn as a whole is a path that is born or dies. Groups have candidates of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import block_diag, csr_array, issparse
from scipy.special import gammaln, xlog1py, xlogy

from headcount.engines._map import MAP
from headcount.engines._tilting import Tilts
from headcount.engines.sampling._sampler import SampleBeliefs
from headcount.errors import ProblemError
from headcount.individual import OpenChain, RootedTree
from headcount.observe import Observation
from headcount.observe._binding import Site
from headcount.observe._groups import Member, OpenView, Stack, View
from headcount.population import SizeLaw, TotalSize, Unknown
from headcount.posterior._beliefs import Beliefs, NobodyBeliefs, Outcome, PointBeliefs, Sizes, Status
from headcount.posterior._derived import GroupBeliefs, MixtureBeliefs

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from headcount._types import Array
    from headcount.engines._engine import Engine
    from headcount.observe import Problem

    Run = Callable[[Problem, Mapping[str, Any] | None], Outcome]

NODES = 5
"""Sizes at which an engine runs. Exact for polynomials in N up to degree 9; means are linear in N to second order."""
FEW_SIZES = 9
"""Whole numbers up to which every size is run on its own."""
POINTS = 4001
"""Sizes at which p(N | y) is tabulated; every one of them up to here, every so-many-th above."""
NEGLIGIBLE = 45.0
"""Nats below the most probable size at which others are left out: e^(−45) = 3e-20."""
ADDED_UP, MOST_SIZES = 32.0, 3000
"""An exact engine adds up sizes until one is this many nats (1e-14) below the best; and at most this many sizes."""
SEARCH_TOLERANCE, MOST_SEARCHES = 0.1, 40
"""The most probable size is found to this share of its standard deviation, in at most so many runs of MAP."""
CLOSE_CENTRE, CLOSE_SPREAD = 0.5, 1.3
"""First nodes are kept where the posterior's mean is within this many sds of theirs, and its sd within this factor."""
MOST_ROUNDS = 4
"""Times that new nodes are taken."""
FIRST_MOMENTS = 1e4
"""Weight of a law's total, mean and variance against its higher moments, where nodes cannot have all of them."""
LEAST_NOBODY = 1e-12
"""Probability of no individual at all above which that case is a part of its own: smaller ones are rounding of the others."""
NO_SIZE = "no number of individuals agrees with the data: check the exact counts and zeros"
UNCERTAIN, UNINFORMED = 0.5, 0.95
"""Relative sd of N (of `Unknown`), and share of the prior's sd that is left (of other laws), above which counts are said not to tell N."""


def over_sizes(engine: Engine, problem: Problem, run: Run) -> Outcome:
    """Run an engine on a problem whose N has a law.

    Raises
    ------
    ValueError
        From an engine that cannot: it gives no evidence to weigh sizes with.
    """
    if engine.takes_sizes is None:
        raise ValueError(
            f"{engine.name} takes a known number of individuals only, and the population is {problem.population!r}: use TiltedEP "
            "(the default), MAP, Laplace, ClosedForm, Enumerate or PathGibbs, or give a number"
        )
    # Groups whose members are flocks move together as well.
    together = problem.disperses or (problem.stack is not None and problem.stack.company is not None)
    if together and not engine.takes_dispersion:
        raise ValueError(
            f"{engine.name} takes individuals that move together (a dispersion, or groups with a weight) only where their number is "
            "known: use TiltedEP"
        )
    began = time.perf_counter()
    sized = Sized(problem, run)
    if engine.takes_sizes == "point":
        outcome = _most_probable(sized)
    elif engine.takes_sizes == "candidates":
        outcome = among_candidates(problem, run, _about(problem, run))
    elif engine.takes_sizes == "all":
        outcome = _added_up(sized)
    else:
        outcome = _mixed(sized)
    return replace(outcome, seconds=time.perf_counter() - began)


@dataclass
class Sized:
    """One problem at several sizes; every run is kept."""

    problem: Problem
    run: Run
    runs: dict[int, Outcome | None] = field(default_factory=dict)
    slopes: dict[int, float] = field(default_factory=dict)
    """A(θ+g) − A(θ) of MAP, by size."""
    _tilts: dict[int, Array] = field(default_factory=dict)
    _offsets: dict[int, float] = field(default_factory=dict)
    """What tracks and groups add to the evidence of their core, by size."""

    @property
    def law(self) -> SizeLaw:
        """Of N; of several groups of unknown size, that of the first (and the known ones)."""
        return self.problem.next_size

    def at(self, size: int) -> Outcome | None:
        """The engine's answer for N = size; None where so many cannot have been counted so. Started from the nearest size before."""
        if size not in self.runs:
            near = [n for n, found in self.runs.items() if found is not None and n > 0]
            best = self.runs[min(near, key=lambda n: abs(n - size))] if near else None
            start = None if best is None else best.beliefs.diagnostics
            if start is not None and not np.isfinite(start.get("g", 0.0)).all():
                start = None  # a group was empty there
            self.runs[size] = self._answer(size, start)
        return self.runs[size]

    def _answer(self, size: int, start: Mapping[str, Any] | None) -> Outcome | None:
        model = self.problem.model
        if size == 0 and self.law is self.problem.population:
            value = self.problem.log_likelihood(lambda scope: np.zeros(model.size(scope)))
            return None if value == -np.inf else Outcome(NobodyBeliefs(model, value), Status.EXACT)
        try:
            closed = self.problem.with_population(size)
        except ProblemError:
            return None
        self._offsets[size] = closed.log_offset
        found = self.run(closed, start)
        # A run from another size's answer may end where a cold one does not.
        return found if start is None or found.status.good else self.run(closed, None)

    def evidence(self, size: int) -> float:
        """log p(y | N)."""
        found = self.at(size)
        if found is None:
            return -np.inf
        value = found.beliefs.log_evidence
        if value is None:
            raise ProblemError(
                f"no evidence is known for N = {size}, so that sizes cannot be weighed: give a number of individuals"
            )
        return float(value) + self._offsets.get(size, 0.0)

    def slope(self, size: int) -> float:
        """d/dN of log p(N) and of MAP's optimal value."""
        if size not in self.slopes:
            try:
                self.slopes[size] = self._map_slope(size)
            except ProblemError:
                self.slopes[size] = 1.0  # too few so far
        return self.slopes[size] + self.law.slope(size)

    def _map_slope(self, size: int) -> float:
        """A(θ+g) − A(θ) at MAP's tilts g, other groups of unknown size at their most probable ones.

        The chain of all groups has one A; λ, the tilt that holds a group at its size, tells the group's own: A_g = A − λ_g.
        """
        closed = self.problem.with_population(max(size, self.law.others + 1))
        while not closed.size_known:
            closed = closed.with_population(_peak(Sized(closed, self.run)).size)
        core = closed.core
        near = min(self._tilts, key=lambda n: abs(n - size), default=None)
        start = None if near is None else {"g": self._tilts[near]}
        found = MAP(tolerance=1e-5).run(core, rng=np.random.default_rng(0), progress=False, start=start)
        tilts = found.beliefs.diagnostics["g"]
        if np.isfinite(tilts).all():
            self._tilts[size] = tilts
        gain = float(Tilts(core).evaluate(tilts)[0])
        if closed.stack is None:
            return gain
        held = tilts[-len(closed.stack.members) :][self.problem.free_member]
        return gain - float(held) if np.isfinite(held) else 1.0


@dataclass(frozen=True)
class Peak:
    """The most probable N, and the likelihood's curvature in log N there."""

    size: int
    bend: float
    pull: float
    """Slope of the log-likelihood in log N."""

    def log_likelihood(self, n: Array) -> Array:
        """The quadratic in log N, up to a constant."""
        u = np.log(n / self.size)
        return np.asarray(self.pull * u - 0.5 * self.bend * u**2)


def _peak(sized: Sized) -> Peak:
    """By bisection in log N, with secants; the slope falls with N."""
    low, high = sized.problem.size_bounds
    low = max(low, 1)
    if not sized.problem.sites or low == high:
        return Peak(max(low, min(high, round(sized.law.mean))), 0.0, 0.0)
    size = min(max(round(min(sized.law.mean, sized.problem.typical_population)), low), high)
    below: tuple[int, float | None] = (low, None)
    above: tuple[int, float | None] = (high, None)
    for _ in range(MOST_SEARCHES):
        slope = sized.slope(size)
        below, above = ((size, slope), above) if slope > 0 else (below, (size, slope))
        bend = _bend(sized, size)
        sd = size / np.sqrt(bend) if bend > 0 else np.inf
        if abs(slope) * sd < SEARCH_TOLERANCE or above[0] - below[0] <= 1:
            break
        size = _between(below, above, sized.problem.typical_population)
        if size in sized.slopes:
            break
    best = _flattest({n: sized.slope(n) for n in sized.slopes})
    return Peak(best, max(_bend(sized, best, alone=True), 0.0), best * sized.slopes[best])


def _flattest(slopes: Mapping[int, float]) -> int:
    """The size of the smallest slope, of those that were looked at; an end where all slopes have one sign: the peak lies there."""
    if max(slopes.values()) < 0:
        return min(slopes)
    if min(slopes.values()) > 0:
        return max(slopes)
    return min(slopes, key=lambda n: abs(slopes[n]))


def _between(below: tuple[int, float | None], above: tuple[int, float | None], scale: int) -> int:
    """The next size to look at: where a line through both slopes in log N is zero, kept off the ends."""
    left, right = np.log(below[0]), np.log(above[0])
    if below[1] is not None and above[1] is not None:
        share = below[1] / (below[1] - above[1])
        middle = left + np.clip(share, 0.05, 0.95) * (right - left)
    elif above[1] is None:  # nothing is known of the upper end: double
        middle = min(np.log(2.0) + max(left, np.log(max(scale // 8, 1))), right)
    else:
        middle = max(right - np.log(2.0), left)
    size = round(float(np.exp(middle)))
    return min(max(size, below[0] + (below[1] is not None)), above[0] - (above[1] is not None))


def _bend(sized: Sized, size: int, *, alone: bool = False) -> float:
    """−d² of the log posterior of N (``alone``: of its likelihood) in log N at one size, from the nearest other slope."""
    others = [n for n in sized.slopes if n != size]
    if not others:
        return 0.0
    other = min(others, key=lambda n: abs(np.log(n / size)))
    slopes = [sized.slopes[n] + (0.0 if alone else sized.law.slope(n)) for n in (size, other)]
    values = [n * s for n, s in zip((size, other), slopes, strict=True)]
    return float(-(values[0] - values[1]) / np.log(size / other))


def _grid(low: float, high: float) -> tuple[Array, Array]:
    """Whole numbers from low to high, and how many each stands for."""
    low, high = np.floor(max(low, 1.0)), np.ceil(high)
    if high - low < POINTS:
        n = np.arange(low, high + 1.0)
        return n, np.ones_like(n)
    n = np.unique(
        np.rint(np.geomspace(low, high, POINTS) if high > 10 * low else np.linspace(low, high, POINTS))
    )
    edges = np.concatenate([[low - 0.5], 0.5 * (n[1:] + n[:-1]), [high + 0.5]])
    return n, np.diff(edges)


def _posterior(
    sized: Sized, likelihood: Callable[[Array], Array], *, positive: bool = False
) -> tuple[Sizes, float]:
    """p(N | y) where it is not negligible, and its log normaliser; ``positive``: of N ≥ 1."""
    low, high = sized.problem.size_bounds
    nobody = not positive and low == 0 and sized.law.least == 0 and sized.at(0) is not None
    for _ in range(2):  # the whole range first, then where something is
        n, stands = _grid(low, high)
        log_p = likelihood(n) + sized.law.log_pmf(n) + np.log(stands)
        kept = np.flatnonzero(log_p - np.log(stands) > np.max(log_p - np.log(stands)) - NEGLIGIBLE)
        low, high = n[max(kept[0] - 1, 0)], n[min(kept[-1] + 1, len(n) - 1)]
    if nobody:
        n, log_p = np.append(0.0, n), np.append(sized.evidence(0) + float(sized.law.log_pmf(0)), log_p)
    top = float(log_p.max())
    p = np.exp(log_p - top)
    return Sizes(n, p / p.sum()), top + float(np.log(p.sum()))


def _interpolated(values: Mapping[int, float]) -> Callable[[Array], Array]:
    """The evidence as a function of N: a quadratic in log N, with a polynomial through what it misses, held at the ends."""
    sizes = np.array(sorted(values), dtype=float)
    y = np.array([values[int(n)] for n in sizes])
    if len(sizes) == 1:
        return lambda n: np.full(np.shape(n), y[0])
    u = np.log(sizes)
    middle, half = 0.5 * (u[0] + u[-1]), 0.5 * (u[-1] - u[0])
    x = (u - middle) / half
    square = np.polyfit(x, y, min(2, len(x) - 1))
    rest = np.polyfit(x, y - np.polyval(square, x), min(len(x) - 1, 6)) if len(x) > 3 else np.zeros(1)
    slopes = [np.polyval(np.polyder(square), end) for end in (-1.0, 1.0)]
    convex = len(square) == 3 and square[0] > 0

    def at(n: Array) -> Array:
        t = (np.log(n) - middle) / half
        inside = np.clip(t, -1.0, 1.0)
        value = np.polyval(square, inside if convex else t) + np.polyval(rest, inside)
        # Beyond its nodes a likelihood that is not concave goes on as a line.
        return value + np.where(t < -1, slopes[0] * (t + 1), slopes[1] * (t - 1)) * (np.abs(t) > 1) * convex

    return at


def _gauss(sizes: Sizes, count: int) -> Array:
    """The Gauss nodes of a discrete law, as whole numbers ≥ 1, by the three-term recurrence of its orthogonal polynomials."""
    (n, p), (mean, sd) = sizes, _moments(sizes)
    scale = sd or 1.0
    x = (n - mean) / scale
    before, now = np.zeros_like(x), np.ones_like(x)
    alpha, beta = np.zeros(count), np.zeros(count)
    for k in range(count):
        alpha[k] = float(p @ (x * now**2))
        ahead = (x - alpha[k]) * now - (beta[k - 1] if k else 0.0) * before
        beta[k] = np.sqrt(float(p @ ahead**2))
        before, now = now, ahead / beta[k]
    matrix = np.diag(alpha) + np.diag(beta[:-1], 1) + np.diag(beta[:-1], -1)
    return np.unique(np.maximum(np.rint(mean + scale * np.linalg.eigvalsh(matrix)), 1.0))


def _weights(sizes: Sizes, nodes: Array) -> Array:
    """Weights ≥ 0 of the nodes that have the first moments of the law: those of Gauss, where the nodes are not rounded."""
    from scipy.optimize import nnls  # slow to import

    (n, p), (mean, sd) = sizes, _moments(sizes)
    scale = sd or 1.0
    powers = np.arange(min(len(nodes), NODES))[:, None]
    first = np.where(powers < 3, FIRST_MOMENTS, 1.0)
    moments = ((n - mean) / scale) ** powers @ p
    found, _ = nnls(first * ((nodes - mean) / scale) ** powers, first[:, 0] * moments)
    return np.asarray(found / found.sum())


def _mixed(sized: Sized) -> Outcome:
    """The engine at the Gauss nodes of p(N | y)."""
    peak = _peak(sized)
    sizes, log_total = _posterior(sized, peak.log_likelihood)
    for _ in range(MOST_ROUNDS):
        if len(sizes.values) <= FEW_SIZES:
            return _weighed(sized, [int(n) for n in sizes.values])
        for n in sorted(_gauss(sizes, NODES), key=lambda n: abs(n - peak.size)):
            sized.evidence(int(n))
        found = {n: sized.evidence(n) for n in sized.runs if n > 0 and sized.runs[n] is not None}
        if not found:
            raise ProblemError(NO_SIZE)
        before = sizes
        sizes, log_total = _posterior(sized, _interpolated(found))
        if _near(before, sizes):
            break
    nodes = sorted(found)
    return _combined(sized, nodes, _weights(sizes, np.array(nodes, dtype=float)), sizes, log_total)


def _near(before: Sizes, after: Sizes) -> bool:
    """Whether nodes made for one law serve another."""
    (a, sd_a), (b, sd_b) = (_moments(sizes) for sizes in (before, after))
    ratio = sd_a / max(sd_b, 1e-300)
    return abs(a - b) <= CLOSE_CENTRE * sd_b and 1 / CLOSE_SPREAD <= ratio <= CLOSE_SPREAD


def _moments(sizes: Sizes) -> tuple[float, float]:
    """Mean and standard deviation."""
    return sizes.mean, float(np.sqrt(np.square(sizes.values - sizes.mean) @ sizes.probabilities))


def _added_up(sized: Sized) -> Outcome:
    """All sizes, from the most probable outwards, until what is left is negligible."""
    low, high = sized.problem.size_bounds
    middle = _peak(sized).size
    found: dict[int, float] = {}
    for step, end in ((-1, low), (1, high)):
        n = middle if step > 0 else middle - 1
        while (end - n) * step >= 0:
            found[n] = sized.evidence(n) + float(sized.law.log_pmf(n))
            if found[n] < max(found.values()) - ADDED_UP and found[n] > -np.inf:
                break
            if len(found) > MOST_SIZES:
                raise ProblemError(
                    f"more than {MOST_SIZES} sizes of the population would have to be added up: use TiltedEP, or give a number"
                )
            n += step
    return _weighed(sized, sorted(found))


def _weighed(sized: Sized, candidates: list[int]) -> Outcome:
    """The engine at all candidates, weighed by what it says."""
    log_p = np.array([sized.evidence(n) + float(sized.law.log_pmf(n)) for n in candidates])
    top = float(log_p.max())
    if top == -np.inf:
        raise ProblemError(NO_SIZE)
    kept = np.flatnonzero(log_p > top - ADDED_UP)
    p = np.exp(log_p[kept] - top)
    values = np.array(candidates, dtype=float)[kept]
    weights = p / p.sum()
    total = top + float(np.log(p.sum()))
    return _combined(sized, [int(n) for n in values], weights, Sizes(values, weights), total)


def _combined(sized: Sized, nodes: list[int], weights: Array, sizes: Sizes, log_total: float) -> Outcome:
    """One outcome from those at the nodes: all that is known of the worst of them."""
    n, w, ran = _parts(sized, nodes, weights, sizes)
    somebody = [o for o in ran if not isinstance(o.beliefs, NobodyBeliefs)] or ran
    worst = next((o for o in ran if not o.status.good), somebody[0])
    parts = [o.beliefs for o in ran]
    diagnostics = {
        **parts[int(np.argmax(w))].diagnostics,
        "sizes_run": len(sized.runs),
        **_note(sized.law, sizes),
    }
    beliefs = MixtureBeliefs(parts, w, log_total, diagnostics, *_all_sizes(sized, sizes, n, parts))
    return Outcome(
        beliefs,
        worst.status,
        sum(o.iterations for o in sized.runs.values() if o is not None),
        max(o.residual for o in ran),
        worst.tolerance,
        trace=worst.trace,
    )


def _parts(
    sized: Sized, nodes: list[int], weights: Array, sizes: Sizes
) -> tuple[Array, Array, list[Outcome]]:
    """The sizes that carry weight, nobody among them where that is possible, their weights, and the engine's answers."""
    n, w = np.array(nodes, dtype=float), np.asarray(weights, dtype=float)
    nobody = float(sizes.probabilities[0]) if sizes.values[0] == 0 and 0 not in nodes else 0.0
    if nobody > LEAST_NOBODY:
        n, w = np.append(0.0, n), np.append(nobody, w * (1 - nobody))
    found = {k: sized.at(int(n[k])) for k in np.flatnonzero(w > 0).tolist()}
    ran = {k: outcome for k, outcome in found.items() if outcome is not None}
    some = list(ran)
    return n[some], w[some] / w[some].sum(), list(ran.values())


def _all_sizes(
    sized: Sized, sizes: Sizes, nodes: Array, parts: list[Beliefs]
) -> tuple[Sizes, dict[int, Sizes]]:
    """The laws of N and of every group of unknown size, from that of the size that was weighed and what the parts say of the others."""
    law = sized.law
    if not isinstance(law, TotalSize):
        return sizes, {}
    others = {} if sized.problem.groups is None else parts[-1].group_sizes
    found = {k: sizes.carried(nodes, [part.group_sizes[k] for part in parts]) for k in others}
    found[sized.problem.free_member] = Sizes(sizes.values - law.others, sizes.probabilities)
    if not others:
        return sizes, found
    return sizes.carried(nodes, [part.sizes for part in parts if part.sizes is not None]), found


def _about(problem: Problem, run: Run) -> list[Sizes]:
    """The approximate posterior of every size that is not known, at the most probable values of the others; groups in their order."""
    found, groups = [], problem.groups or {}
    for name in [n for n, group in groups.items() if isinstance(group.size, SizeLaw)] or [None]:
        first = problem if name is None else problem.with_groups({name: groups[name], **groups})
        sized = Sized(first, run)
        sizes = _posterior(sized, _peak(sized).log_likelihood, positive=True)[0]
        found.append(Sizes(sizes.values - sized.law.others, sizes.probabilities))
    return found


def _note(law: SizeLaw, sizes: Sizes) -> dict[str, str]:
    """What the counts leave open about N, in words; nothing where they tell it."""
    mean, sd = _moments(sizes)
    if isinstance(law, Unknown) and sd > UNCERTAIN * mean:
        return {
            "size_note": "the counts hardly bound the number of individuals: say more about it (About, Between)"
        }
    if not isinstance(law, Unknown) and sd > UNINFORMED * np.sqrt(law.variance):
        return {
            "size_note": "the counts say next to nothing about the number of individuals: its posterior is what was given"
        }
    return {}


def _most_probable(sized: Sized) -> Outcome:
    """The point estimate at the most probable N."""
    size = _peak(sized).size
    found = sized.at(size)
    if found is None:
        raise ProblemError(NO_SIZE)
    beliefs = found.beliefs
    assert isinstance(beliefs, PointBeliefs | GroupBeliefs)
    value = beliefs.log_evidence
    nodes = np.array([float(size)])
    total, groups = _all_sizes(sized, Sizes(nodes, np.ones(1)), nodes, [beliefs])
    kept = replace(
        beliefs,
        log_evidence=None if value is None else value + float(sized.law.log_pmf(size)),
        sizes=total,
        group_sizes=groups,
    )
    return replace(found, beliefs=kept)


@dataclass(frozen=True, eq=False, kw_only=True)
class SizeFactor(Observation):
    """The factor on the number of candidates that are there; its one count says nothing."""

    log_factor: Callable[[Array], Array] = field(metadata={"per": "all"})

    def log_prob(self, n: ArrayLike) -> Array:
        """log p(n) − log Bin(n; M, q)."""
        return self.log_factor(np.asarray(n, dtype=float))


def among_candidates(
    problem: Problem, run: Callable[[Problem, Mapping[str, Any] | None], Outcome], about: Sequence[Sizes]
) -> Outcome:
    """Run a sampler on as many candidates as ``about``, the approximate posterior of every size that is not known, has at most.

    Raises
    ------
    ProblemError
        When the model is not a chain or tree.
    """
    made, factors = _candidates(problem, about)
    lifted = [made.lifted(site) for site in problem.full[1]]
    if len(made.members) > 1:
        lifted.append(made.sizes_site(len(problem.observations)))
    lifted += [_factor_site(made, k, factor) for k, factor in factors]
    outcome = run(problem.recast(made.model, tuple(lifted), made.population), None)
    beliefs = outcome.beliefs
    assert isinstance(beliefs, SampleBeliefs)
    first = beliefs.node_draws.reshape(-1, beliefs.arrays.cells)
    absent = {k: first[:, made.starts[0][k + 1] - 1] for k, _ in factors}
    hidden = 3 if isinstance(problem.model, OpenChain) else 1
    view = OpenView(problem.model, hidden=hidden) if problem.stack is None else View(made)
    seen = GroupBeliefs(
        beliefs,
        view,
        None,
        beliefs.diagnostics,
        _sizes_of(made.population - np.sum(list(absent.values()), axis=0)),
        {k: _sizes_of(made.members[k].size - gone) for k, gone in absent.items()},
    )
    return replace(outcome, beliefs=seen)


def _candidates(
    problem: Problem, about: Sequence[Sizes]
) -> tuple[Stack, list[tuple[int, Callable[[Array], Array]]]]:
    """The groups with candidates where their size is not known; of each of these, its position and the log factor on its number."""
    model, _ = problem.full
    tree, stack = model.rooted(), problem.stack
    if tree is None:
        raise ProblemError("PathGibbs takes a population of unknown size on chains and trees: use TiltedEP")
    if stack is None:
        everywhere = tuple(np.arange(size) for size in tree.sizes)
        # in the tree's order, which of a discrete model need not be the order of its variables
        states = {v: model.states[v] for v in tree.variables}
        stack = Stack((Member(None, 0, tree, everywhere),), states)
    members = list(stack.members)
    factors: list[tuple[int, Callable[[Array], Array]]] = []
    for (k, law), sizes in zip(_free_sizes(problem), about, strict=True):
        most = max(int(sizes.values[-1]), 1)
        share = sizes.mean / most
        members[k] = _with_absent(members[k], most, share)
        factors.append((k, partial(_log_factor, law, most, share)))
    return Stack(tuple(members), stack.states), factors


def _free_sizes(problem: Problem) -> list[tuple[int, Callable[[Array], Array]]]:
    """The members of the stack whose size is not known, and log p of it."""
    law = problem.population
    assert isinstance(law, SizeLaw)
    if problem.groups is not None:
        sizes = [group.size for group in problem.groups.values()]
        return [(k, size.log_pmf) for k, size in enumerate(sizes) if isinstance(size, SizeLaw)]
    followed = 0 if problem.stack is None else len(problem.stack.members) - 1
    return [(followed, lambda n: law.log_pmf(n + followed))]


def _log_factor(law: Callable[[Array], Array], most: int, share: float, n: Array) -> Array:
    """log p(n) − log Bin(n; M, q)."""
    ways = gammaln(most + 1.0) - gammaln(n + 1.0) - gammaln(np.maximum(most - n, 0.0) + 1.0)
    binomial = ways + xlogy(n, share) + xlog1py(most - n, -share)
    return np.where(n <= most, law(n) - binomial, -np.inf)


def _factor_site(stack: Stack, member: int, factor: Callable[[Array], Array]) -> Site:
    """The factor on how many of a member's candidates are there: all but those in its last state at the root."""
    root, starts = next(iter(stack.states)), stack.starts[0]
    there = np.zeros((1, starts[-1]))
    there[0, starts[member] : starts[member + 1] - 1] = 1.0
    noise = SizeFactor(np.zeros(1), on=(root,), log_factor=factor)
    return Site((root,), int(starts[-1]), None, csr_array(there), noise, ["the number of individuals"])


def _sizes_of(numbers: NDArray[Any]) -> Sizes:
    values, counts = np.unique(numbers, return_counts=True)
    return Sizes(values.astype(float), counts / counts.sum())


def _with_absent(member: Member, most: int, share: float) -> Member:
    """``most`` candidates of a group, each of whom is there with probability ``share``; the last state of every node is absence."""
    tree = member.tree
    steps = [_still_absent(matrix) for matrix in tree.transitions[1:]]
    initial = np.append(share * tree.initial, 1.0 - share)
    cells = tuple(np.append(seen, -1) for seen in member.cells)
    return Member(member.name, most, RootedTree(tree.variables, tree.parent, initial, (None, *steps)), cells)


def _still_absent(matrix: Any) -> Any:
    """A step after which the absent are still absent."""
    if issparse(matrix):
        return csr_array(block_diag([matrix, np.ones((1, 1))]))
    wide = np.zeros((matrix.shape[0] + 1, matrix.shape[1] + 1))
    wide[:-1, :-1] = matrix
    wide[-1, -1] = 1.0
    return wide
