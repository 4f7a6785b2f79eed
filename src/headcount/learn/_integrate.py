"""Posteriors after a fit: parameters that were learned are not known, and several maxima may explain the data alike.

The parameters are N(x̂, V) around the estimate. One warm-started E-step at each end of every standard deviation of V gives the response
of all expected counts to it, and `IntegratedBeliefs` adds its square to the variance. Where the evidence at an end is much lower than a
Gaussian's ½ nat below the maximum, the data forbid to go so far: the end is moved inwards, by its own fall. Where the data say nothing,
the end is `LONGEST_SPREAD` away. A probability that ran to zero has no Gaussian around it: its mean and standard deviation are those of a
flat prior times the evidence, found on a grid, and the posterior is made there (`_off_the_edge`). Maxima within `RIVAL` nats of the best
are mixed by their evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, logit

from headcount._types import Array
from headcount.engines import Posterior, Status
from headcount.individual import MarkovChain, OpenChain
from headcount.learn._climb import Climb, Climber, Optimum, em_residual, first_state, usable
from headcount.learn._components import Initial
from headcount.learn._expect import Evaluation, Expectation
from headcount.learn._family import Family, Part
from headcount.learn._information import EDGE, Information, both_ends, observed_information
from headcount.learn._starts import RIVAL, same_maximum
from headcount.observe import Problem
from headcount.posterior import IntegratedBeliefs, MixtureBeliefs
from headcount.tables import Domain, Scope

EXPECTED_FALL = 0.5
"""Nats by which the evidence falls over one standard deviation if it is Gaussian."""
DEEPEST_FALL = 1.5
"""Nats of fall beyond which an end is moved inwards: three times what is expected, so that the sd is wrong by a factor of 1.7."""
MOST_RESPONSES = 20_000_000
"""Most numbers kept of all responses of one problem: 160 MB. Beyond, the columns are mixed at random into fewer (see `_sketched`)."""
FEWEST_COLUMNS = 8
"""Fewest columns worth keeping: a variance from 8 random ones is known to 50 %."""
BATCH = 16
"""Columns whose tables are held at once."""
RANDOM_COLUMNS = 50
"""Most parameters integrated over with a random engine: each adds the Monte-Carlo error of its means to the variance."""
EDGE_GRID = 1e-6 * 3.0 ** np.arange(12)
"""Values of a probability that ran to zero at which the evidence is found: up to .18, each three times the last, which is fine enough for a
function that falls as e^(−a p) does (its mean comes out within 2 %)."""
MOST_EDGES = 10
"""Probabilities that ran to zero up to which they are integrated over: each takes 12 E-steps."""
TANGENT_STEP = 1e-4
"""Step of differences of expected counts: its square and float64's precision over it are both below 1e-7."""
SMALLEST_SHARE = 1e-9
"""Floor of the information about π as a share of that of complete counts, against rounding."""


def integrated(
    expect: Expectation,
    climb: Climb,
    information: Information | None,
    optima: Sequence[Optimum] = (),
) -> tuple[Posterior, ...]:
    """One posterior per problem, its spread including that of the parameters; without standard errors, of the initial law only."""
    point = climb.point
    best = _around(expect, point, information)
    if information is None:
        return best
    others = _other_maxima(expect, climb, information, optima)
    if not others:
        return best
    parts = [best, *(_around(expect, at, known) for at, known in others)]
    # Not Laplace's volume around each: at probabilities near zero, where most second maxima lie, log-odds have no Gaussian.
    heights = np.array([point.value, *(at.value for at, _ in others)])
    weights = np.exp(heights - heights.max())
    return tuple(_mixed(group, weights / weights.sum()) for group in zip(*parts, strict=True))


def _mixed(parts: Sequence[Posterior], weights: Array) -> Posterior:
    """Several maxima as one posterior; its problem is that of the best."""
    first = parts[0]
    if not first.beliefs.has_spread:
        return first
    beliefs = MixtureBeliefs(
        [p.beliefs for p in parts],
        weights,
        first.beliefs.log_evidence,
        dict(first.diagnostics) | {"maxima": len(parts)},
    )
    first.outcome.info["parameters"] += (
        f"; {len(parts)} maxima mixed by their evidence ({', '.join(f'{w:.2g}' for w in weights)})"
    )
    return Posterior(first.problem, first.settings, replace(first.outcome, beliefs=beliefs))


def _other_maxima(
    expect: Expectation,
    best: Climb,
    information: Information,
    optima: Sequence[Optimum],
) -> list[tuple[Evaluation, Information]]:
    """Maxima within `RIVAL` nats of the best that the fit's own engine climbs to from the other optima."""
    found: list[tuple[Evaluation, Information]] = []
    climbs: list[Climb] = []
    if information.flat:  # the other climbs ended on the same ridge, which the spread follows already
        return found
    for optimum in optima[1:]:
        if not optima[0].evidence - optimum.evidence < RIVAL:
            continue
        start = expect(optimum.working, None)
        if start.failure:
            continue
        first = first_state(Climb(start, residual=em_residual(start)), expect, optimum.start)
        ended, status = Climber(expect, tolerance=1e-3)(first)
        at = ended.climb.point
        if not status.good or best.point.value - at.value >= RIVAL:
            continue
        if not any(same_maximum(ended.climb, other) for other in [best, *climbs]):
            climbs.append(ended.climb)
            found.append((at, observed_information(at, expect)))
    return found


def _off_the_edge(expect: Expectation, point: Evaluation) -> tuple[Evaluation, Array]:
    r"""A point with probabilities that ran to zero at their mean under a flat prior, and one standard deviation of each, shape (K, E).

    With the evidence L(p), the other parameters held, :math:`E\,p^k = \int p^k L(p)\,dp / \int L(p)\,dp`, by the trapezium rule in log p.
    The ends of a column at :math:`p e^{\pm s}` differ by :math:`2 p \sinh s`: s is arsinh(sd/mean).
    """
    count = len(expect.families[0].names)
    stay = point, np.zeros((count, 0))
    flat = expect.families[0].find(Initial)  # integrated over by its own response
    apart = np.zeros(0, np.intp) if flat is None else flat.where
    edge = [(name, way) for name, way in point.objective.vanishing(point.x, EDGE) if not way[apart].any()]
    if not 0 < len(edge) <= MOST_EDGES or expect.engine.random or not np.isfinite(point.value):
        return stay
    natural = expect.families[0].natural(point.x)
    x, columns = point.x.copy(), []
    for name, way in edge:
        k = natural.names.index(name)
        now, up = (
            logit(max(natural.values[k], np.finfo(float).tiny)),
            way * np.sign(natural.jacobian[k] @ way),
        )
        mean, sd = _edge_moments(expect, point, up, now)
        if np.isnan(mean):
            return stay
        x += (logit(mean) - now) * up
        columns.append(up * np.arcsinh(sd / mean))
    moved = expect(x, point.starts)
    return (moved, np.array(columns).T) if usable(moved, point) else stay


def _edge_moments(expect: Expectation, point: Evaluation, up: Array, now: float) -> tuple[float, float]:
    """Mean and standard deviation of one probability, whose log-odds ``now`` grow along ``up``; NaN where the evidence is not finite."""
    found = expect.several([point.x + move * up for move in logit(EDGE_GRID) - now], point.starts)
    values = np.array([at.value if usable(at, point) else -np.inf for at in found])
    weight = EDGE_GRID * np.exp(values - max(point.value, values.max()))
    if not (np.isfinite(weight).all() and weight.sum() > 0):
        return np.nan, np.nan
    mean, square = (float(weight @ EDGE_GRID**power / weight.sum()) for power in (1, 2))
    return mean, float(np.sqrt(square - mean**2))


def _around(expect: Expectation, point: Evaluation, information: Information | None) -> tuple[Posterior, ...]:
    """The posteriors at a maximum, with the spread of the parameters around it."""
    edge = np.zeros((len(point.x), 0))
    if information is not None and information.edge:
        point, edge = _off_the_edge(expect, point)
    posteriors = expect.posteriors(point)
    initial = [
        initial_response(posterior, family, point.x)
        for posterior, family in zip(posteriors, expect.families, strict=True)
    ]
    columns, why_not = _columns(expect, information, initial[0].parameters)
    columns = np.hstack([columns, edge])
    none: list[dict[Scope, Array]] = [{} for _ in posteriors]
    responses = _responses(expect, point, columns) if columns.shape[1] else none
    said = {"parameters": why_not or "learned, their uncertainty included"}
    made = []
    for k, posterior in enumerate(posteriors):
        tangent = partial(_tangent, expect.families[k], _of_sizes(posterior, expect.problems[k]), point.x)
        outcome = replace(posterior.outcome, learned=tangent, info=posterior.outcome.info | said)
        own = Posterior(posterior.problem, posterior.settings, outcome)
        made.append(_widened(own, (responses[k], initial[k].response), initial[k].log_evidence))
    return tuple(made)


def _of_sizes(posterior: Posterior, problem: Problem) -> Problem:
    """The problem with the numbers of individuals that were found; an open population's follow from its parameters."""
    return problem if isinstance(problem.model, OpenChain) else posterior.at_found_sizes(problem)


def _widened(
    posterior: Posterior, responses: Sequence[Response | None], log_evidence: float | None
) -> Posterior:
    """The posterior with the responses to its parameters in its spread; as it is where it has none."""
    beliefs, outcome = posterior.beliefs, posterior.outcome
    parts = [response for response in responses if response]
    if not parts or not beliefs.has_spread:
        return posterior
    widened = IntegratedBeliefs(
        beliefs, posterior.problem, partial(_joined, parts), log_evidence, posterior.diagnostics
    )
    # The integral over parameters is Gaussian, whatever the engine was.
    status = Status.CONVERGED if outcome.status is Status.EXACT else outcome.status
    return Posterior(posterior.problem, posterior.settings, replace(outcome, beliefs=widened, status=status))


Response = Mapping[Scope, Array] | Callable[[Scope], Array]


def _joined(parts: Sequence[Response], scope: Scope) -> Array:
    """All responses of a table side by side, shape (entries, columns)."""
    return np.hstack([part(scope) if callable(part) else _of_table(part, scope) for part in parts])


def _of_table(responses: Mapping[Scope, Array], scope: Scope) -> Array:
    """The response of a table inside a clique, by margins."""
    clique = next(c for c in responses if set(scope) <= set(c))
    table = responses[clique]
    margin = np.asarray(Domain(clique, table.shape[1:]).project(table, scope))
    return margin.reshape(len(table), -1).T


def _columns(expect: Expectation, information: Information | None, apart: Sequence[int]) -> tuple[Array, str]:
    """Standard deviations of the parameters, (K, R), without those along `apart` given the others; or why there are none."""
    count = len(expect.families[0].names)
    none = np.zeros((count, 0))
    kept = np.setdiff1d(np.arange(count), apart)
    if not len(kept):
        return none, "given with the model"
    if information is None:
        return none, "learned, their uncertainty not included"
    if expect.engine.random and len(kept) > RANDOM_COLUMNS:
        return none, (
            f"learned, their uncertainty not included ({len(kept)} parameters are too many for a random engine)"
        )
    covariance = information.spread @ information.spread.T
    values, vectors = np.linalg.eigh(covariance[np.ix_(kept, kept)])
    some = values > 1e-14 * values.max(initial=0.0)
    return covariance[:, kept] @ (vectors[:, some] / np.sqrt(values[some])), ""


def _responses(expect: Expectation, point: Evaluation, columns: Array) -> list[dict[Scope, Array]]:
    """Per problem and clique, half the change of expected counts between the ends of every column, (columns, *table)."""
    sizes = [
        sum(int(np.prod(p.model.size(tuple(c)))) for c in p.model.junction_tree.cliques)
        for p in expect.problems
    ]
    width = columns.shape[1]
    most = MOST_RESPONSES // max(sizes)
    mixing = np.eye(width) if width <= most else _sketched(width, max(most, FEWEST_COLUMNS))
    made: list[dict[Scope, Array]] = [{} for _ in expect.problems]
    for begin in range(0, width, BATCH):
        some = np.arange(begin, min(begin + BATCH, width))
        ends = _ends(expect, point, columns[:, some])
        for k, tables in enumerate(made):
            for clique in ends[0][0][k]:
                halves = np.array([0.5 * (up[k][clique] - down[k][clique]) for up, down in ends])
                part = np.tensordot(mixing[:, some], halves, axes=1)
                tables[clique] = tables[clique] + part if clique in tables else part
    return made


def _sketched(width: int, kept: int) -> Array:
    """Random signs, shape (kept, width): E[MᵀM] = 1, so that sums of squares over fewer columns are right on average."""
    return np.random.default_rng(0).choice([-1.0, 1.0], size=(kept, width)) / np.sqrt(kept)


Tables = tuple[Mapping[Scope, Array], ...]


def _ends(expect: Expectation, point: Evaluation, columns: Array) -> list[tuple[Tables, Tables]]:
    """Expected counts at both ends of every column; where no end can be evaluated, those at the point itself."""

    def nearer(end: Evaluation) -> float:
        if not usable(end, point):
            return 0.3
        fall = point.value - end.value
        return float(np.sqrt(EXPECTED_FALL / fall)) if fall > DEEPEST_FALL else 1.0

    ends, _ = both_ends(
        point,
        expect,
        columns,
        np.ones(columns.shape[1]),
        lambda up, down: (nearer(up), nearer(down)),
        keep_tables=True,
    )
    if all(usable(end, point) for pair in ends for end in pair):
        return [(up.tables, down.tables) for up, down in ends]
    here = expect.several([point.x], point.starts, keep_tables=True)[0]
    both = [[end if usable(end, point) else here for end in pair] for pair in ends]
    return [(up.tables, down.tables) for up, down in both]


def _tangent(family: Family, problem: Problem, x: Array) -> Array:
    """∂E[y]/∂x of all observed counts before seeing them, shape (counts, K), by central differences."""
    n, mean = _expected(family.apply(x, problem))
    slope = _expected(family.apply(x, problem), n + 1.0)[1] - mean
    made = []
    for shift in TANGENT_STEP * np.eye(len(x)):
        (up, high), (down, low) = (_expected(family.apply(x + s, problem), n) for s in (shift, -shift))
        made.append((slope * (up - down) + high - low) / (2 * TANGENT_STEP))
    return np.array(made).T


def _expected(problem: Problem, at: Array | None = None) -> tuple[Array, Array]:
    """Expected entries under the model, and what the noise makes of them (or of those given)."""
    model = problem.model
    population = problem.population if problem.size_known else problem.population.mean
    n = np.concatenate([population * s.margin(model.marginal(s.scope).ravel()) for s in problem.sites])
    given = n if at is None else at
    mean = np.zeros(len(n))
    for index, law in problem.noises:
        mean[index] = law.moments(given[index])[0]
    return n, mean


class InitialResponse(NamedTuple):
    """What a learned initial distribution adds to a posterior at its estimate."""

    parameters: Sequence[int] = ()
    """Positions of its log-odds among all parameters where their uncertainty is found here (or cannot be), not by E-steps."""
    response: Callable[[Scope], Array] | None = None
    """Change of a table's mean per standard deviation of the log-odds, given all other parameters, shape (entries, K)."""
    log_evidence: float | None = None
    """Integrated over the initial distribution where its uncertainty is included."""


def initial_response(posterior: Posterior, family: Family, x: Array) -> InitialResponse:
    """The uncertainty of an initial distribution learned under the flat prior, from the covariances of the posterior."""
    initial = family.find(Initial)
    evidence = posterior.beliefs.log_evidence
    if initial is None:
        return InitialResponse(log_evidence=evidence)
    info = posterior.outcome.info
    template = family.template
    if isinstance(template, MarkovChain) and template.initial_known:
        info["initial"] = "learned from all counts without a prior"
        return InitialResponse(log_evidence=evidence)
    where = initial.where
    info["initial"] = "learned from all counts under a flat prior"
    if not posterior.beliefs.has_spread:
        return InitialResponse(where.tolist(), log_evidence=evidence)
    if "log_evidence_mc_error" in posterior.diagnostics:
        # Solved without matrices: there are no covariances of flows with the first counts.
        info["initial"] += ", its uncertainty not included"
        return InitialResponse(where.tolist(), log_evidence=evidence)
    info["initial"] += ", its uncertainty included"
    return _by_covariances(posterior, initial, x[initial.where])


def _by_covariances(posterior: Posterior, initial: Part[Initial], x: Array) -> InitialResponse:
    r"""The response cov(n_A, n₀) J^(−1/2), and the evidence integrated over log π.

    With θ = log π and n₀ the first counts, log p(n | π) is linear in θ, so that

    .. math::

        J = (N + L)(\operatorname{diag} π − ππᵀ) − \operatorname{cov}(n_0 | y, π̂)          \qquad\text{(observed information of θ)}

        \operatorname{cov}(n_A, n_B | y) = \operatorname{cov}(n_A, n_B | y, π̂)
            + \operatorname{cov}(n_A, n_0 | y, π̂)\, J^{-1} \operatorname{cov}(n_0, n_B | y, π̂)

    (the law of total covariance). For a Gaussian posterior this removes the prior that n₀ ~ Multinomial(N, π̂) would have brought, so
    no count is used twice: as data and as the initial distribution.
    """
    rows = initial.component
    first = (posterior.problem.model.variables[0],)
    free = rows.place[1]
    phi = posterior.problem.root_phi  # log p(n | π) is linear in log π with the slope n₀/φ₀
    units = posterior.population.mean / phi
    complete = rows.information(x, np.full(rows.free.shape, units / rows.free.sum()))
    complete += rows.prior_information(x)
    shares = posterior.problem.model.marginal(first)
    varying = None if posterior.problem.size_known else shares
    with_score = partial(
        _with_score, posterior.beliefs, first, varying
    )  # partial, not a closure: it can be pickled
    hidden = with_score(first)
    if not posterior.problem.size_known:
        hidden = hidden - np.outer(shares, hidden.sum(axis=0))
    hidden = hidden[np.ix_(free, free)] / phi**2
    lower = np.linalg.cholesky(complete)
    half = np.linalg.solve(lower, np.linalg.solve(lower, 0.5 * (hidden + hidden.T)).T)
    share, vectors = np.linalg.eigh(np.eye(len(free)) - 0.5 * (half + half.T))
    share = np.maximum(share, SMALLEST_SHARE)
    root = np.linalg.solve(lower.T, vectors / np.sqrt(share))  # root rootᵀ = J⁻¹
    evidence = posterior.beliefs.log_evidence
    if evidence is not None:
        log_det = 2 * float(np.log(np.diagonal(lower)).sum()) + float(np.log(share).sum())
        prior = rows.log_prior(x) + float(gammaln(rows.free.sum()))
        # What the evidence rises to at its maximum, where the distribution was learned under another dispersion.
        slope = rows.gradient(x, posterior.beliefs.mean(first)[None] / phi) + rows.prior_gradient(x)
        evidence += 0.5 * float(np.sum((root.T @ slope) ** 2))
        evidence += prior + 0.5 * (len(free) * np.log(2 * np.pi) - log_det)
    return InitialResponse(initial.where.tolist(), partial(_response, with_score, free, root / phi), evidence)


def _with_score(beliefs: Any, first: Scope, varying: Array | None, scope: Scope) -> Array:
    """cov(n_A, n₀ − Nπ); the second is the score of log π, and N may vary too: π is then `varying`."""
    found = np.asarray(beliefs.covariance(scope, first))
    return found if varying is None else found - found.sum(axis=1, keepdims=True) * varying


def _response(with_score: Callable[[Scope], Array], free: Any, root: Array, scope: Scope) -> Array:
    return with_score(scope)[:, free] @ root
