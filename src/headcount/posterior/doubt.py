r"""What withholds agreement: reasons to doubt an answer that no test of the counts rejects, and what would help.

Between counts, net moves are in the means, :math:`n_{t+1} \approx n_t P`; gross moves (churn) mostly in the scatter,
:math:`\operatorname{cov} = \sum_i n_i \phi_i (\operatorname{diag} p_i - p_i p_i^\top)`. With :math:`\phi` free only the product of churn
and :math:`\phi` is left. So moves that were learned from counts are identified only as far as the means tell them, and an agreement of
counts with as many parameters as counts says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, logit, ndtri

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headcount._types import Array
    from headcount.observe import Observation, Problem
    from headcount.population import DispersionEstimate

WIDEST_CHURN = 0.5
"""Standard error of the log-odds of moving, by the means of counts alone, above which gross moves are not identified: a 90 % interval of
the odds then spans a factor of five."""
FREE_PER_PARAMETER = 1.0
"""Free counts that must be left per learned parameter for an agreement to mean anything: with as many as there are parameters, half of
the scatter is explained by them."""
FAR_BELOW = 0.5
"""Scatter around learned parameters, in that of the model, below which the fit is closer than chance allows."""
SCATTER_GAIN = 2.0
"""Nats of evidence from which an estimated dispersion is one that the data need: less is what independent individuals give by chance."""
OTHER_LEVEL = 0.01
"""p-value below which another cause of movement is taken to be wanted."""
LEAST_CONTRACTION = 0.5
"""1 − posterior/prior variance of the log-odds of moves below which the prior holds more than half of what is said of them."""
FEWEST_DRAWS = 10.0
"""Effective draws of the parameters below which their spread is known to no better than a quarter."""
FEWEST_MOVES = 24.0
"""Moves that must have been seen (of tags, or in a survey) to speak of moves that are seen: shares are then known to .1. A reading y with
error variance v tells as much as y²/(y + v) of them."""
RULED_OUT = 4.5
"""Nats by which the law of N must hold twice the number that was found for less probable, to rule it out: three standard deviations."""
MOST_NAMED = 3
"""Parameters that one sentence names."""


@dataclass(frozen=True)
class Advice:
    """One thing to do: what kind of information it adds, the call to write, and why it helps.

    Attributes
    ----------
    kind
        ``"tags"``, ``"flows"`` (a survey of them), ``"prior"``, ``"law"`` (moves that are given, not learned), ``"dispersion"``,
        ``"noise"``, ``"rate"`` (the share that is counted), ``"sums"`` (of flows), ``"parameters"`` (their uncertainty) or ``"data"``.
    call
        What to write.
    words
        The same in a sentence.
    """

    kind: str
    call: str
    words: str

    def __str__(self) -> str:
        return f"{self.words}: {self.call}"

    @property
    def name(self) -> str:
        """The kind of information in words."""
        return _KINDS[self.kind]


_KINDS = {
    "tags": "tags",
    "flows": "a survey of flows",
    "prior": "a prior",
    "law": "a given law of moves",
    "dispersion": "a dispersion",
    "noise": "another noise",
    "rate": "the share that is counted",
    "sums": "sums of flows",
    "parameters": "posteriors that include the parameters' uncertainty",
    "data": "more counts",
}


@dataclass(frozen=True)
class Churn:
    """The share of individuals that move in a step: the estimate, and what the means of counts tell of it, its scatter left aside."""

    share: float
    log_odds_error: float
    """Standard error of log(share/(1 − share)), for individuals that scatter as the model says; infinite where the means tell nothing."""
    other: float = 1.0
    """p-value of the test whether more stay, or more go anywhere, than the model says, by counts' means, flows and tags."""

    @property
    def identified(self) -> bool:
        """Whether the means alone tell how many move."""
        return self.log_odds_error <= WIDEST_CHURN

    def widened(self, dispersion: float) -> Churn:
        """The same where counts scatter so many times more than the model says."""
        factor = max(dispersion, 1.0) if np.isfinite(dispersion) else 1.0
        return replace(self, log_odds_error=self.log_odds_error * float(np.sqrt(factor)))

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """The shares that the means of counts allow."""
        middle = float(logit(np.clip(self.share, 1e-9, 1 - 1e-9)))
        reach = float(ndtri(0.5 + level / 2)) * min(self.log_odds_error, 1e3)
        return float(expit(middle - reach)), float(expit(middle + reach))

    def __str__(self) -> str:
        low, high = self.interval()
        return f"between {low:.1%} and {high:.1%} of all individuals move in a step"


@dataclass(frozen=True)
class Learned:
    """What a fit knows of parameters that were learned from the same counts."""

    tangent: Callable[[], Array] = field(repr=False)
    """∂E[y]/∂parameters of all observed counts under the model, (counts, K)."""
    initial: int = 0
    """How many of them are an initial law's: they meet the first counts, one by one, and take nothing from the others."""
    moves: bool = False
    """Whether moves are among the parameters."""
    plug_in: bool = False
    """Whether the posterior takes the estimate for the truth."""
    edge: tuple[str, ...] = ()
    """Probabilities that ran to zero, and weights that run to ±∞."""
    churn: Callable[[], Churn | None] = field(default=lambda: None, repr=False)
    """How many move in a step, by the means of counts; None where that is no question (no steps between the same cells)."""
    integrates: bool = False
    """Whether moves and a dispersion learned beside them would be integrated over under a neutral prior."""
    leans: tuple[str, ...] = ()
    """Why a Gaussian around the estimates is no answer of the counts: a prior of the user's that holds or pulls them, a ridge."""
    homes: bool = False
    """Whether a fidelity to homes was learned, of which counts tell by their scatter alone."""
    integral: Any = field(default=None, repr=False)
    """The draws of the parameters (`headcount.learn._neutral.Integral`); None where a Gaussian describes them."""
    pooled: Callable[..., Any] | None = field(default=None, repr=False)
    """Of many tables: makes the check of all of them together (`headcount.learn._pooled.PooledCheck`)."""


def flows_seen(problem: Problem) -> bool:
    """Whether more than counts of single variables tells moves: positions of tags after their first, or tables of several variables."""
    moves = sum(_moves_read(site.noise) for site in problem.sites if len(site.scope) > 1)
    moves += sum(one.moves for by_group in problem.records.values() for one in by_group.values())
    return moves >= FEWEST_MOVES


def _moves_read(noise: Observation) -> float:
    """How many moves that are seen one by one tell as much as readings of flows."""
    y = np.maximum(noise.implied(), 0.0)
    (low, variance), (high, _) = noise.moments(y), noise.moments(y + 1.0)
    error = variance / np.maximum(high - low, np.finfo(float).tiny) ** 2
    return float(np.sum(np.divide(y**2, y + error, out=np.zeros_like(y), where=(y > 0) & np.isfinite(error))))


def unknown_rate(problem: Problem, found: float) -> bool:
    """Whether no count says which share of all individuals it sees (all are then taken to be seen), and twice those found are possible."""
    if problem.size_known or problem.opens or not problem.sites:
        return False
    if not all(_counts_everybody(site.noise) for site in problem.sites):
        return False
    law, sizes = problem.population, np.ceil([found, 2.0 * found])
    if len(problem.kinds) == 1:
        once, twice = law.log_pmf(sizes)
    else:  # the law of a sum, by its moments
        once, twice = -0.5 * (sizes - law.mean) ** 2 / law.variance
    return not twice <= once - RULED_OUT


def _counts_everybody(noise: Observation) -> bool:
    """Whether a noise has one expected count per individual, without being a count of all of them for certain."""
    zero = np.zeros(np.shape(noise.counts))
    slope = noise.moments(zero + 1.0)[0] - noise.moments(zero)[0]
    return not noise.exact and bool(np.all(slope == 1.0))


ONLY_SCATTER = "only the scatter of the counts tells them, of which a dispersion was estimated; a missing cause of movement looks the same"
"""Why flows are not reliable after an estimated dispersion."""


def flow_doubt(problem: Problem, estimate: DispersionEstimate | None) -> str:
    """Why flows are in doubt although the counts are not; empty where they are not.

    Counts tell how much they scatter, not whether overdispersion or a missing cause of movement makes them.
    """
    scatters = estimate is not None and estimate.gain >= SCATTER_GAIN
    return ONLY_SCATTER if scatters and not flows_seen(problem) else ""


SHARE = Advice(
    "rate",
    "hc.Poisson(counts, rate=share) or hc.Problem(model, hc.About(number, sd=error), counts)",
    "Say which share is counted, or what is known of the number",
)
EVERYBODY = "assumes that everybody is counted (no rate or detection is given): if half are, N doubles"
"""What is said first of an unknown number of individuals without a rate."""


def more_information(problem: Problem) -> tuple[Advice, ...]:
    """What tells moves where counts do not, the strongest first."""
    tags = Advice(
        "tags",
        "hc.Problem(model, N, [counts, hc.Tracks(table)])",
        "records of some individuals (tags, panels, phones), even a few dozen, tell moves directly",
    )
    survey = Advice(
        "flows",
        "hc.Problem(model, N, [counts, hc.Poisson(flows, on=(t, u), rate=share)])",
        "so does a survey of flows at any step",
    )
    prior = Advice(
        "prior",
        'hc.TabularChain(prior=table, strength="learned")',
        "an older table of moves can be given as a prior; the answer then rests on it",
    )
    law = Advice(
        "law",
        'hc.infer(hc.Problem(hc.MarkovChain(initial, matrix), N, counts), dispersion="estimate")',
        "moves that are known from elsewhere can be given instead of learned",
    )
    return (tags, survey, prior, law)


DISPERSION = Advice(
    "dispersion",
    'dispersion="estimate" (--dispersion estimate)',
    "Where individuals move together, or moves vary between steps, an estimated dispersion learns how much, and widens the intervals",
)
SUMS = Advice(
    "sums",
    "post.total({(time, next): weights})",
    "most flows are too few individuals for their ranges to be called reliable; sums over cells or times are more",
)
INTEGRATE = Advice(
    "parameters",
    'hc.fit(..., standard_errors=True, parameters="integrated")',
    "posteriors that include the uncertainty of the parameters",
)

AT_ONCE = Advice(
    "data",
    "hc.infer(problem of all times) (all tables, without --after)",
    "Infer everything at once, past and new counts",
)


def named(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def doubts_of(
    problem: Problem,
    learned: Learned | None,
    estimate: DispersionEstimate | None,
    *,
    free: float,
    taken: float,
    too_few: str,
    dispersion: float,
    closer_than_chance: bool,
) -> tuple[list[str], list[Advice]]:
    """Why an agreement would say nothing, and what would help.

    Parameters
    ----------
    free, taken
        Counts that learned parameters leave free, and those that they take.
    too_few
        That nothing is left to check, in words; empty where something is.
    dispersion
        Scatter around the fit, in that of the model.
    closer_than_chance
        Whether it is below what chance allows.
    """
    if learned is None:
        return ([too_few], [MORE_COUNTS]) if too_few else ([], [])
    doubts, advice = [], []
    if learned.plug_in:
        doubts.append("the uncertainty of the learned parameters is not included (plug-in)")
        advice.append(INTEGRATE)
    taken -= learned.initial
    if too_few:
        doubts.append(too_few)
    elif free < FREE_PER_PARAMETER * taken:
        doubts.append(
            f"{taken:.0f} learned parameters leave {max(free, 0.0):.0f} counts free: the fit says nothing about the model"
        )
    if closer_than_chance and dispersion < FAR_BELOW:
        doubts.append(
            f"counts scatter only {max(dispersion, 0.0):.2g} times as much around what was learned from them as chance would have it"
        )
    if learned.edge:
        doubts.append(
            f"at the edge: {named(learned.edge)} ran off (some moves are never or always made), which counts alone rarely justify"
        )
    doubts += learned.leans
    if learned.integral is not None:
        doubts += _prior_doubts(learned.integral)
    churn, seen = told_churn(learned, dispersion, estimate), flows_seen(problem)
    if (learned.moves or learned.homes) and not (seen and churn is None):
        noisy = learned.homes or (
            (learned.integral is not None or learned.integrates)
            and not all(site.noise.exact for site in problem.sites)
        )
        doubts += _churn_doubts(churn, estimate) or [FROM_NOISE] * (noisy and not seen)
    if doubts and not advice:
        advice += more_information(problem) if learned.moves or learned.homes else [_MORE_DATA]
        if learned.moves and learned.integrates and problem.dispersion is None:
            advice.append(DISPERSION)
    return doubts, advice


FROM_NOISE = (
    "the counts are few and noisy, or tell of homes by their scatter alone: how many move is told by a scatter that is small beside that "
    "of the noise or of a dispersion, and leans on what is said of both"
)
"""Few noisy counts do not earn agreement: of 36 simulated worlds 6 were told that all is well, and 3 of them were wrong; where only what
was integrated was withheld, 1 of 1 (``benchmarks/ridges.py``, 2026-11-18)."""


def _prior_doubts(integral: Any) -> list[str]:
    """Whether the prior, not the counts, tells moves; or too few draws do."""
    leaning = [
        f"{name} ({value:.2f})" for name, value in integral.contraction.items() if value < LEAST_CONTRACTION
    ]
    doubts = []
    if leaning:
        doubts.append(
            f"the prior tells more than the counts about {named(leaning)} (contraction below {LEAST_CONTRACTION:g})"
        )
    if integral.effective_size < FEWEST_DRAWS:
        doubts.append(
            f"the integral over the parameters rests on {integral.effective_size:.0f} effective draws"
        )
    return doubts


MORE_COUNTS = Advice(
    "data", "hc.Problem(model, hc.Unknown(), [counts, more])", "more counts of the same individuals"
)
_MORE_DATA = Advice("data", "hc.fit(parametrisation, [problem, another])", "more counts, or fewer parameters")


def told_churn(
    learned: Learned | None, dispersion: float, estimate: DispersionEstimate | None
) -> Churn | None:
    """What the means tell of gross moves, for the scatter that was found; None where no moves were learned."""
    churn = None if learned is None or not learned.moves else learned.churn()
    return None if churn is None else churn.widened(dispersion if estimate is None else 1.0)


def _churn_doubts(churn: Churn | None, estimate: DispersionEstimate | None) -> list[str]:
    """Whether gross moves were read off the scatter of the counts."""
    if churn is None:
        both = "moves and a dispersion were both learned from the scatter of the same counts"
        return [] if estimate is None or estimate.gain < SCATTER_GAIN else [both]
    doubts = []
    if churn.other < OTHER_LEVEL:
        doubts.append(
            f"more stay, or fewer go far, than the model says, or the reverse (p = {churn.other:.1g}): a cause of movement is missing"
        )
    if churn.identified:
        return doubts
    return [
        *doubts,
        "how many move is read off the scatter of the counts, which a dispersion or a missing cause changes as well: their means allow "
        f"that {churn}",
    ]
