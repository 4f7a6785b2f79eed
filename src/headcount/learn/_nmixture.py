r"""N-mixture models: sites that are visited several times, with covariates on abundance and on detection.

.. math::

    N_s \sim \mathrm{Poisson}(λ_s) \text{ or } \mathrm{NB}(λ_s, r), \qquad y_{sv} \mid N_s \sim \mathrm{Binomial}(N_s, p_{sv}), \qquad
    \log λ_s = β·x_s, \quad \mathrm{logit}\, p_{sv} = γ·z_{sv}

The likelihood sums over all numbers at every site (J. A. Royle, Biometrics 2004). Its gradient is Fisher's: from
:math:`\mathrm{E}[N_s \mid y]`, and for log r from :math:`\mathrm{E}[ψ(N_s + r) \mid y]`. As p → 0 with λp held, the counts of one site
become independent Poisson numbers (times a common gamma variable of shape r). Where the data fit this limit nearly as well, they do not
tell how many there are (E. B. Dennis et al., Biometrics 2015), and the result says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.linalg import block_diag
from scipy.special import digamma, expit, gammaln, log_expit, logsumexp, ndtri

from headcount._types import Array, Mask
from headcount.checks import attempt, finite_number, numbers
from headcount.individual import ModelError
from headcount.numerics import log_factorial

if TYPE_CHECKING:
    import pandas as pd

MOST_INDIVIDUALS = 10_000
"""Largest number at one site that is added up, which bounds memory: 80 kB per site and array."""
LEFT_OUT = -27.0
"""Log of the share of the largest term at which a sum may end: 10⁻¹²."""
LOG_SIZES = (-6.0, 12.0)
"""Bounds of log r: from e⁶ times more variance than a Poisson's at λ = 1 to e⁻¹² times λ² more."""
UNBOUNDED_GAIN = 1.92
"""Nats below which a 95 % interval by likelihood ratio reaches the limit λ → ∞: half the 95 % quantile of χ² with 1 degree of freedom."""
STEP = 1e-4
"""Of the central differences of the gradient, in parameters of standardised covariates."""
FAR = 1e-4
"""Twice the nats below the maximum, by the curvature, at which a search has not ended: a hundredth of a standard error."""
LARGEST_SD = 10.0
"""Standard error of a parameter of standardised covariates beyond which it is at an edge: p or λ is 0 or 1 to all digits within it."""
DRAWS, SEED = 200, 0
"""Draws of the parameters over which the laws of N are averaged: their Monte-Carlo error is 7 % of a parameter's share in an sd."""


@dataclass
class Likelihood:
    """The likelihood of an N-mixture on designs whose covariates are standardised; x is (β, γ) and, if negative binomial, log r."""

    counts: Array
    """y, shape (sites, visits); NaN where nobody looked."""
    abundance: Array
    """Shape (sites, K)."""
    detection: Array
    """Shape (sites, visits, L)."""
    negative_binomial: bool

    def __post_init__(self) -> None:
        self.visited = np.isfinite(self.counts)
        self.seen = np.where(self.visited, self.counts, 0.0)
        self._reach(int(2 * self.seen.max(initial=0.0)) + 50)

    def _reach(self, most: int) -> None:
        """Take all numbers n up to ``most``, and ``ways``: Σ_v log of n over y, shape (sites, n), all that does not depend on x."""
        self.n = np.arange(min(most, MOST_INDIVIDUALS) + 1.0)
        self.ways = np.zeros((len(self.counts), len(self.n)))
        for y, visited in zip(self.seen.T, self.visited.T, strict=True):
            missed = self.n - y[:, None]
            chosen = log_factorial(self.n) - log_factorial(y)[:, None] - log_factorial(np.maximum(missed, 0))
            self.ways += np.where(visited[:, None], np.where(missed < 0, -np.inf, chosen), 0.0)

    def parts(self, x: Array) -> tuple[Array, Array, float]:
        """Linear predictors of log λ (sites,) and logit p (sites, visits), and r (infinite: Poisson)."""
        k = self.abundance.shape[1]
        size = float(np.exp(x[-1])) if self.negative_binomial else np.inf
        return self.abundance @ x[:k], self.detection @ x[k : k + self.detection.shape[2]], size

    def laws(self, x: Array) -> tuple[Array, Array, bool]:
        """p(N | y) of every site (sites, n), log p(y) (sites,), and whether the sums end where nothing is left."""
        log_mean, odds, size = self.parts(x)
        # log p^y (1 − p)^(n − y) = y logit p + n log(1 − p)
        told = np.where(self.visited, self.seen * odds, 0.0).sum(axis=1)
        unseen = np.where(self.visited, log_expit(-odds), 0.0).sum(axis=1)
        while True:
            law = log_size_law(self.n, log_mean[:, None], size)
            terms = self.ways + law + self.n * unseen[:, None]
            ended = bool((terms[:, -1] <= terms.max(axis=1) + LEFT_OUT).all())
            if ended or len(self.n) > MOST_INDIVIDUALS:
                break
            self._reach(2 * len(self.n))
        total = logsumexp(terms, axis=1)
        return np.exp(terms - total[:, None]), np.asarray(total + told), ended

    def loss(self, x: Array) -> tuple[float, Array]:
        """−log p(y; x) and its gradient."""
        weights, evidence, _ = self.laws(x)
        log_mean, odds, size = self.parts(x)
        mean, expected = np.exp(log_mean), weights @ self.n
        pulled = expected - mean if np.isinf(size) else (expected - mean) * size / (size + mean)
        left = np.where(self.visited, self.seen - expected[:, None] * expit(odds), 0.0)
        slope = [pulled @ self.abundance, np.einsum("sv,svl->l", left, self.detection)]
        if self.negative_binomial:
            more = weights @ digamma(self.n + size) - digamma(size) + np.log(size / (size + mean))
            slope.append(np.array([size * np.sum(more + (mean - expected) / (size + mean))]))
        return -float(evidence.sum()), -np.concatenate(slope)

    def limit(self, x: Array) -> float:
        """−log p(y) for λ → ∞ with λp held; γ then acts on log p."""
        log_mean, log_p, size = self.parts(x)
        each = np.where(self.visited, log_mean[:, None] + log_p, 0.0)
        mean = np.where(self.visited, np.exp(each), 0.0).sum(axis=1)
        value = (self.seen * each - np.where(self.visited, log_factorial(self.seen), 0.0)).sum()
        if np.isinf(size):
            return -float(value - mean.sum())
        count = self.seen.sum(axis=1)
        mixed = (
            gammaln(size + count) - gammaln(size) + size * np.log(size) - (size + count) * np.log(size + mean)
        )
        return -float(value + mixed.sum())

    def information(self, x: Array) -> Array:
        """−∂² log p(y; x), by differences of the gradient."""
        steps = STEP * np.eye(len(x))
        found = np.array([(self.loss(x + h)[1] - self.loss(x - h)[1]) / (2 * STEP) for h in steps])
        return 0.5 * (found + found.T)


def log_size_law(n: Array, log_mean: Array, size: float) -> Array:
    """log of the Poisson (size ∞) or negative binomial probability of n."""
    mean = np.exp(log_mean)
    if np.isinf(size):
        return np.asarray(n * log_mean - mean - log_factorial(n))
    spread = np.log(size + mean)
    ways = gammaln(n + size) - gammaln(size) - log_factorial(n)
    return np.asarray(ways + size * (np.log(size) - spread) + n * (log_mean - spread))


@dataclass(frozen=True)
class NMixture:
    """A fitted N-mixture: see `nmixture`.

    Attributes
    ----------
    coefficients
        ``estimate``, ``sd`` (standard error), ``lower`` and ``upper``, by name: of log λ, of logit p, and ``log size``.
    log_likelihood
        At the maximum.
    sites
        By site: ``expected`` (λ), and ``mean``, ``sd``, ``lower`` and ``upper`` of N given its counts, over draws of the parameters.
    total
        Mean and sd of the number at all sites together.
    identified
        Whether the counts bound abundance from above. Where they do not, ``sites`` and ``total`` are those of the estimates alone.
    note
        What to know before use; empty where there is nothing.
    level
        Of all intervals.
    """

    coefficients: pd.DataFrame
    log_likelihood: float
    sites: pd.DataFrame
    total: tuple[float, float]
    identified: bool
    note: str
    level: float

    def __repr__(self) -> str:
        known = f"{self.total[0]:.4g} ± {self.total[1]:.2g} individuals at {len(self.sites)} sites"
        return f"NMixture({known}, log-likelihood {self.log_likelihood:.6g}{self.note and f'; {self.note}'})\n{self.coefficients}"

    @property
    def aic(self) -> float:
        """2 (parameters − log-likelihood)."""
        return 2.0 * (len(self.coefficients) - self.log_likelihood)


def nmixture(
    counts: Any,
    *,
    abundance: Mapping[str, Any] | None = None,
    detection: Mapping[str, Any] | None = None,
    mixture: Literal["poisson", "negative binomial"] = "poisson",
    level: float = 0.9,
) -> NMixture:
    """Fit an N-mixture model: numbers at sites that were visited several times.

    Parameters
    ----------
    counts
        Shape (sites, visits), or a frame with one row per site; NaN where nobody looked.
    abundance
        Covariates of log λ by name, one number per site.
    detection
        Covariates of logit p by name, one number per site, or one per site and visit.
    mixture
        The law of the number at a site; ``"negative binomial"`` learns its size r as well, the variance being λ + λ²/r.
    level
        Of the intervals.

    Returns
    -------
    NMixture
        Coefficients with standard errors, and the number at every site.

    Raises
    ------
    ModelError
        With everything that is wrong with the arguments.
    """
    level = finite_number(level, "level", least=1e-6, most=1 - 1e-6, expected="a number between 0 and 1")
    abundance, detection = {} if abundance is None else abundance, {} if detection is None else detection
    sites, y, *designs = _checked(counts, abundance, detection, mixture)
    (first, turn), (second, other_turn) = map(_standardised, designs)
    likelihood = Likelihood(y, first, second, mixture == "negative binomial")
    x, log_likelihood, gain = _search(likelihood)
    covariance, flat = _covariance(likelihood, x)
    ended = likelihood.laws(x)[2] and bool(np.isfinite(covariance).all())
    names = [f"abundance {name}" for name in ("(intercept)", *abundance)]
    names += [f"detection {name}" for name in ("(intercept)", *detection)]
    names += ["log size"] * likelihood.negative_binomial
    back = block_diag(turn, other_turn, *[np.eye(1)] * likelihood.negative_binomial)
    table = _table(names, back @ x, _errors(covariance, flat, back), level)
    identified = gain >= UNBOUNDED_GAIN and ended
    numbers_at, total = _numbers(likelihood, x, covariance if identified else None, level, sites)
    return NMixture(
        coefficients=table,
        log_likelihood=log_likelihood,
        sites=numbers_at,
        total=total,
        identified=identified,
        note="; ".join(_notes(table, gain, ended)),
        level=level,
    )


def _notes(table: pd.DataFrame, gain: float, ended: bool) -> list[str]:
    """What is to be said of a fit."""
    notes = []
    edge = [name for name in table.index if np.isinf(table["sd"][name])]
    if "log size" in edge and table["estimate"]["log size"] > 0:
        notes.append(
            "numbers scatter no more than a Poisson's: mixture='poisson' says the same with one parameter less"
        )
    if gain < UNBOUNDED_GAIN:
        notes.append(
            "the counts do not bound abundance: infinitely many individuals that are almost never seen explain them nearly as well "
            f"({max(gain, 0.0):.2g} nats less; {UNBOUNDED_GAIN} are needed). More visits, marked individuals or a known detection would "
            "tell; sites and total are those of the estimates alone"
        )
    elif not ended:
        notes.append(
            f"no maximum was reached with up to {MOST_INDIVIDUALS} individuals at a site: sites and total are those of the estimates alone"
        )
    elif others := [name for name in edge if name != "log size"]:
        notes.append(
            f"{', '.join(others)}: at an edge, where the likelihood is flat: any larger value does as well"
        )
    return notes


def _search(likelihood: Likelihood) -> tuple[Array, float, float]:
    """Parameters and log-likelihood at the maximum, and how far this is above that of the limit λ → ∞, in nats."""
    from scipy.optimize import minimize  # slow to import

    k = likelihood.abundance.shape[1]
    covariates = k + likelihood.detection.shape[2]
    start = np.zeros(covariates + likelihood.negative_binomial)
    start[0] = np.log(2.0 * max(float(likelihood.seen[likelihood.visited].mean()), 0.1))
    bounds = [(None, None)] * covariates + [LOG_SIZES] * likelihood.negative_binomial
    settings = {"ftol": 1e-13, "gtol": 1e-6, "maxiter": 1000}
    best = minimize(likelihood.loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=settings)
    below = np.array(best.x)
    below[k] = min(below[k], 0.0)  # log p in place of logit p
    limit = minimize(likelihood.limit, below, method="L-BFGS-B", bounds=bounds)
    return np.asarray(best.x), -float(best.fun), float(limit.fun - best.fun)


def _checked(
    counts: Any, abundance: Mapping[str, Any], detection: Mapping[str, Any], mixture: str
) -> tuple[Any, Array, Array, Array]:
    """Labels of the sites, counts, and both designs with their intercepts; everything wrong is said at once."""
    wrong: list[str] = []
    y = attempt(wrong, numbers, counts, "counts")
    if mixture not in ("poisson", "negative binomial"):
        wrong.append(f'mixture is {mixture!r}: give "poisson" or "negative binomial"')
    if y is None or y.ndim != 2 or not np.isfinite(y).any():
        raise ModelError([*wrong, "counts must be a table of (sites, visits) with at least one count"])
    seen = y[~np.isnan(y)]
    if not ((seen >= 0) & (seen == np.rint(seen)) & (seen <= MOST_INDIVIDUALS / 4)).all():
        wrong.append(
            f"counts must be whole numbers from 0 to {MOST_INDIVIDUALS // 4}, NaN where nobody looked: larger ones are for hc.fit"
        )
    designs = _designs(wrong, np.isfinite(y), abundance, detection)
    if wrong:
        raise ModelError(wrong)
    sites = counts.index if hasattr(counts, "iloc") else range(len(y))
    return sites, y, *designs


def _designs(
    wrong: list[str], visited: Mask, abundance: Mapping[str, Any], detection: Mapping[str, Any]
) -> tuple[Array, Array]:
    """Covariates with an intercept before them: (sites, K) and (sites, visits, L)."""
    made = []
    for what, given, used in (
        ("abundance", abundance, np.asarray(visited.any(axis=1))),
        ("detection", detection, visited),
    ):
        if not isinstance(given, Mapping):
            raise ModelError([*wrong, f"{what} is a {type(given).__name__}: give a mapping by name"])
        columns = [_column(wrong, v, f"{what}[{name!r}]", used) for name, v in given.items()]
        design = np.stack([np.ones(used.shape), *columns], axis=-1)
        if not wrong and np.linalg.matrix_rank(_standardised(design)[0][used]) < design.shape[-1]:
            wrong.append(f"the covariates of {what} are constant, or sums of each other: leave one out")
        made.append(design)
    return made[0], made[1]


def _column(wrong: list[str], values: Any, what: str, used: Mask) -> Array:
    """A covariate in the shape of ``used``, zero where it is not; zeros beside a complaint where it is wrong."""
    given = attempt(wrong, numbers, values, what)
    if given is not None and given.shape == used.shape[:1] and used.ndim == 2:
        given = np.broadcast_to(given[:, None], used.shape)
    if given is None or given.shape != used.shape or not np.isfinite(given[used]).all():
        if given is not None:
            wrong.append(
                f"{what} must have one finite number per {'site and visit' if used.ndim == 2 else 'site'}, shape {used.shape}"
            )
        return np.zeros(used.shape)
    return np.where(used, given, 0.0)


def _standardised(design: Array) -> tuple[Array, Array]:
    """design @ T with columns of mean 0 and sd 1 after the intercept, and T: coefficients of the design are T times theirs."""
    flat = design.reshape(-1, design.shape[-1])[:, 1:]
    centre, scale = flat.mean(axis=0), flat.std(axis=0)
    turn = np.eye(design.shape[-1])
    turn[0, 1:] = -centre / np.where(scale > 0, scale, 1.0)
    turn[1:, 1:] = np.diag(1.0 / np.where(scale > 0, scale, 1.0))
    return design @ turn, turn


def _covariance(likelihood: Likelihood, x: Array) -> tuple[Array, Array]:
    """Inverse information without the directions in which the likelihood is flat, and these, (K, F); infinite where x is no maximum.

    A likelihood that is flat towards an edge (p = 1 where all visits agree, r = ∞) tells nothing of the parameter, and the parameter
    nothing of the numbers.
    """
    slope = likelihood.loss(x)[1]
    values, vectors = np.linalg.eigh(likelihood.information(x))
    told = values > LARGEST_SD**-2
    root = vectors[:, told] / np.sqrt(values[told])
    covariance = root @ root.T
    if np.sum((slope @ root) ** 2) > FAR or values[0] < -(LARGEST_SD**-2):
        covariance = np.full(covariance.shape, np.inf)
    return covariance, vectors[:, ~told]


def _errors(covariance: Array, flat: Array, back: Array) -> Array:
    """Standard errors of the covariates' coefficients as given; infinite along flat directions, and where there is no maximum."""
    if not np.isfinite(covariance).all():
        return np.full(len(back), np.inf)
    variance = np.einsum("ij,jk,ik->i", back, covariance, back)
    open_ended = LARGEST_SD**2 * np.sum((back @ flat) ** 2, axis=1) > variance
    return np.where(open_ended, np.inf, np.sqrt(variance))


def _table(names: list[str], estimate: Array, sd: Array, level: float) -> pd.DataFrame:
    import pandas as pd

    wide = float(ndtri(0.5 + level / 2)) * sd
    return pd.DataFrame(
        {"estimate": estimate, "sd": sd, "lower": estimate - wide, "upper": estimate + wide},
        index=pd.Index(names, name="parameter"),
    )


def _numbers(
    likelihood: Likelihood, x: Array, covariance: Array | None, level: float, sites: Any
) -> tuple[pd.DataFrame, tuple[float, float]]:
    """N at every site over draws of the parameters (the estimates alone without a covariance), and mean and sd of all together."""
    import pandas as pd

    points = x[None]
    if covariance is not None:
        points = np.random.default_rng(SEED).multivariate_normal(x, covariance, size=DRAWS)
        if likelihood.negative_binomial:
            points[:, -1] = points[:, -1].clip(*LOG_SIZES)
    law = np.zeros((len(likelihood.counts), 0))
    means, variances = [], []
    for point in points:
        weights, _, _ = likelihood.laws(point)
        law = np.pad(law, ((0, 0), (0, weights.shape[1] - law.shape[1]))) + weights / len(points)
        mean = weights @ likelihood.n
        means.append(mean.sum())
        variances.append((weights @ likelihood.n**2 - mean**2).sum())
    n, below = likelihood.n, np.cumsum(law, axis=1)
    mean = law @ n
    table = pd.DataFrame(
        {
            "expected": np.exp(likelihood.parts(x)[0]),
            "mean": mean,
            "sd": np.sqrt(np.maximum(law @ n**2 - mean**2, 0.0)),
            "lower": (below < 0.5 - level / 2).sum(axis=1),
            "upper": (below < 0.5 + level / 2 - 1e-12).sum(axis=1),
        },
        index=pd.Index(sites, name="site"),
    )
    return table, (float(np.mean(means)), float(np.sqrt(np.mean(variances) + np.var(means))))
