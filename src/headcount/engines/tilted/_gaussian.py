r"""What Gaussian engines share: their settings, and their evidence, in which exactly seen counts are probabilities, not densities.

:class:`ClosedForm` needs nothing else: one pass of Gaussian message passing, no iteration (the paper's Sec. 3).

Conditioning on exact counts multiplies the evidence by the Gaussian's density at them. With :math:`d_k` the variance of the k-th
count given those before it, that is :math:`\prod_k (2\pi d_k)^{-1/2}`. Of counts with little spread it is not a probability: it
exceeds one, and grows without bound where other counts leave these no choice. Whole numbers have unit bins, so
:math:`e^{-\pi\delta^2}`, whose integral is one, takes the place of the constraint. One count at a time, given exactly those before it,

.. math:: \int N(\delta; r_k, d_k)\,e^{-\pi\delta^2}\,d\delta = (1 + 2\pi d_k)^{-1/2}\exp\frac{-\pi r_k^2}{1 + 2\pi d_k},

which is the density where counts are wide, and one where they are certain: counts that follow from the others need no care. The
:math:`d_k` are the squared pivots of a pivoted Cholesky factor of the exact counts' covariance. Cells, flows and sums are all rows.

Putting the bins on all counts at once, :math:`\det(I + 2\pi\Sigma)^{-1/2}`, counts a bin again for every count that follows from
others; it is used only where the covariance is too large to form, and for cells only.

Measured against enumeration, on random problems with 2 to 5 individuals and exact cells, flows and sums: of 327 the log evidence was
off by .02 in the median, .6 in the 99th percentile, .76 at most; as a density (127 of them) by .15, 37 and 41.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from headcount._device import DEVICES, find_device
from headcount.engines._cost import (
    GaussianUse,
    Solving,
    gaussian_device_memory,
    gaussian_memory,
    gaussian_seconds,
)
from headcount.engines._tilting import Tilts, kind_on_device
from headcount.engines.engine import DirectEngine, Engine, Rule, number, one_of, or_none, whole
from headcount.engines.tilted._centre import Centre, Roles
from headcount.posterior import Beliefs, GaussianBeliefs
from headcount.posterior.program import FORCED
from headcount.structure import KnownCounts, NotPositiveDefinite, Recall, Sampling, Solver
from headcount.structure.base import itself

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headcount._types import Array
    from headcount.observe import ClosedProblem
    from headcount.observe.binding import Site
    from headcount.structure import Field, Structure

ROUNDING = 1e-6
"""By which the log of a probability near one may exceed zero: evidence is a sum of about 1e4 terms of size 1 to 1e5, each to 1e-16."""


@dataclass(frozen=True, kw_only=True)
class GaussianEngine(Engine):
    """What TiltedEP, Laplace and ClosedForm share: how the moments of a Gaussian are found.

    Parameters
    ----------
    structure
        How a chain's or tree's moments are found: with matrices (``"tree"``, exact, L³), without (``"matrix-free"``: means exact,
        standard deviations and evidence with a stated Monte-Carlo error), or ``"auto"``: without where matrices would take minutes.
    draws, final_draws, draw_seed
        Without matrices: draws per sweep and at the end, and their seed. None draws as many as the error asks for.
    mc_error
        Without matrices: relative Monte-Carlo error of sds (rms, of cells and of the flows of each step) at which the final draws stop.
        The most that the draws can be is 1/(2 mc_error²), 192 for the default of 5 %; that many give it to every sd.
    device
        ``"cuda"`` passes over transitions on a graphics card, in double precision; it needs the extra ``gpu`` (CuPy).
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        "structure": one_of("auto", "tree", "matrix-free"),
        "draws": or_none(whole(least=8)),
        "final_draws": or_none(whole(least=8)),
        "draw_seed": whole(least=0),
        "mc_error": number(most=0.125),
        "device": one_of(*DEVICES),
    }
    """Fewer than 8 draws leave no error estimate; more than an eighth is what 32 draws, the fewest at the end, always have."""
    takes_dispersion: ClassVar[bool] = True
    takes_numbers: ClassVar[bool] = True
    structure: Literal["auto", "tree", "matrix-free"] = "auto"
    draws: int | None = None
    final_draws: int | None = None
    draw_seed: int = 0
    mc_error: float = 0.05
    device: Literal["cpu", "cuda"] = "cpu"

    use: ClassVar[GaussianUse]
    """What the engine takes."""

    @property
    def _solving(self) -> Solving:
        return Solving(self.structure, self.draws, self.final_draws)

    def memory(self, problem: ClosedProblem) -> int:
        """See `Engine`."""
        return gaussian_memory(problem, self.use, self._solving, on_device=self.device != "cpu")

    def device_memory(self, problem: ClosedProblem) -> int:
        """See `Engine`."""
        if self.device == "cpu" or problem.model.rooted() is None:
            return 0
        return gaussian_device_memory(problem, self.use, kind_on_device(problem, self.structure))

    def seconds(self, problem: ClosedProblem, speed: float) -> float:
        """See `Engine`."""
        return gaussian_seconds(problem, self.use, self._solving, speed)

    def solver(self, recall: Recall | None = None) -> Solver:
        """These settings as a structure takes them, for one run; ``recall`` where each solve may start from the last."""
        sampling = Sampling(self.draws, self.final_draws, self.draw_seed, self.mc_error)
        return Solver(self.structure, sampling, recall)

    def prior_centre(self, problem: ClosedProblem) -> Centre:
        """The Gaussian at the prior, without tilts."""
        return Centre.at(Roles.of(Tilts(problem, find_device(self.device)), solver=self.solver()))


def gaussian_beliefs(
    centre: Centre,
    tau: Array,
    nu: Array,
    rest: float = 0.0,
    *,
    settled: bool = False,
    log_z: float | None = None,
    more: Mapping[str, Any] | None = None,
) -> GaussianBeliefs:
    """The Gaussian around a centre under sites, with its log evidence as a probability.

    The evidence is what the centre has, ``rest`` and log Z: that given, the structure's own, or without matrices that of the final draws.
    Beside exact counts that is a density: unit masses take its place, or no number does. Nor is one given where whole numbers would have a
    probability above one; the diagnostics, to which ``more`` is added, then say so. The field is made when it is asked for.

    Parameters
    ----------
    tau, nu
        Sites of all observed entries, beside those that the centre has.
    rest
        Log of what the approximated likelihoods are, less what their sites are.
    settled
        Whether the mean is that of the centre's law.
    """
    structure, tilts = centre.structure, centre.roles.tilts
    tau, nu = tau + centre.fixed_tau, nu + centre.fixed_nu
    rest += centre.gain + centre.constant
    sites = tilts.split(tau), tilts.split(nu)
    drawn = structure.field(*sites) if structure.monte_carlo else None
    probable: tuple[float, float] | None
    if centre.roles.exact.any():
        probable = _log_z_of_exact(centre, tau, nu)
    elif drawn is not None:
        probable = drawn.log_z
    else:
        probable = structure.solve(*sites).log_z if log_z is None else log_z, 0.0
    found, error = _probability(centre, rest, probable)
    said: dict[str, Any] = {"log_evidence_note": _NO_EVIDENCE} if found is None else {}
    if drawn is not None:
        said["log_evidence_mc_error"] = error
    return GaussianBeliefs(
        centre.model(),
        tilts.problem,
        centre.population,
        # partial, not lambda: a posterior can be pickled
        partial(structure.field, *sites) if drawn is None else partial(itself, drawn),
        settled=settled or not tilts.problem.sites,
        log_evidence=found,
        diagnostics=said | dict(more or {}),
    )


_NO_EVIDENCE = (
    "there is no evidence: it is given where an unknown size is not held at one number; beside exact counts where they are independent "
    "cells, or up to 1 500 cells, flows and sums, and where the Gaussian gives them a probability below one"
)


def _probability(
    centre: Centre, rest: float, log_z: tuple[float, float] | None
) -> tuple[float | None, float]:
    """The evidence and its error; None where there is none, or where whole numbers would have a probability above one."""
    evidence, error = (math.nan, math.nan) if log_z is None else (rest + log_z[0], log_z[1])
    numbers = centre.numbers
    if numbers is not None and centre.roles.exact.any():
        free = [k for k, law in enumerate(numbers.laws) if law.variance > 0]
        if (numbers.variance[free] < NARROW_SIZE).any():
            return None, math.nan
    whole = all(site.noise.whole for site in centre.roles.tilts.problem.sites)
    if math.isnan(evidence) or (whole and evidence > ROUNDING):
        return None, math.nan
    return evidence, error


NARROW_SIZE = 0.1
"""Variance of a group's size at the centre below which no evidence is given beside exact counts: they hold the size at an end of what its
law allows, where its Gaussian is a density and not a probability (off by 7 nats at a variance of 1e-6). Chosen, not measured."""
PRECISION = 2 * np.pi
"""Of the Gaussian with integral one and height one; over c² it is that with integral c, for counts that are c apart."""
MOST_ROWS = 1500
"""Exact counts whose covariance is formed; also the largest exact table of flows. 18 MB, and about a second to factor."""
CERTAIN = 1e-9
"""Variance, in individuals squared, below which a count follows from the others: its factor is one to 3e-9."""
MISFIT = 1e-4
"""Individuals, relative to √N, by which a certain count may miss what the others leave for it before the number is not given."""


def _log_z_of_exact(centre: Centre, tau: Array, nu: Array) -> tuple[float, float] | None:
    """log Z with exact counts as unit masses, as `_log_z_of_masses`; beside one unknown size those of the cloud of Poisson counts.

    There the size's site and law are told from Poisson's by whole numbers already, and may leave no Gaussian without the exact counts:
    they give the ratio of densities only.
    """
    cloud = centre.poisson_tau
    if cloud is None:
        return _log_z_of_masses(centre, tau, nu)
    none = np.zeros_like(nu)
    found = _log_z_of_masses(centre, cloud, none)
    return (
        None
        if found is None
        else (found[0] + centre.solve(tau, nu)[2] - centre.solve(cloud, none)[2], found[1])
    )


def _log_z_of_masses(centre: Centre, tau: Array, nu: Array) -> tuple[float, float] | None:
    """log Z of the structure with exact counts as unit masses, and its Monte-Carlo error; None where no number can be trusted.

    That is where without the constraints there is no Gaussian, and where there are too many exact flows or sums.
    """
    sites = centre.roles.tilts.problem.sites
    exact = [k for k, site in enumerate(sites) if site.noise.exact and site.source != FORCED]
    split = centre.roles.tilts.split
    try:
        # Without matrices only the covariance of what is seen is made, not that of whole tables.
        widest = 0 if centre.structure.monte_carlo else max(sites[k].size for k in exact)
        if max(sum(len(sites[k]) for k in exact), widest) > MOST_ROWS:
            return _all_at_once(centre, exact, tau, nu)
        structure = centre.structure_given(KnownCounts({}, centre.readings))
        rest, error = _of(structure, split(tau), split(nu))
        one_by_one = _one_by_one(centre, exact, structure.field(split(tau), split(nu)))
    except (NotPositiveDefinite, FloatingPointError):
        return None
    return None if one_by_one is None else (rest + one_by_one, error)


def _of(structure: Structure, tau: list[Array], nu: list[Array]) -> tuple[float, float]:
    """log Z of a structure, and its Monte-Carlo error."""
    drawn = structure.field(tau, nu).log_z if structure.monte_carlo else None
    return (structure.solve(tau, nu).log_z, 0.0) if drawn is None else drawn


def _one_by_one(centre: Centre, exact: list[int], field: Field) -> float | None:
    """Σ_k log of the unit mass of each exact count, given those before it."""
    tilts = centre.roles.tilts
    sites = [tilts.problem.sites[k] for k in exact]
    rows = np.concatenate([np.arange(tilts.offsets[k], tilts.offsets[k + 1]) for k in exact])
    covariance = field.site_covariance(rows)
    if covariance is None:
        covariance = _by_tables(sites, field)
    centred = [centre.expected[tilts.offsets[k] : tilts.offsets[k + 1]] for k in exact]
    seen = [np.asarray(site.noise.counts, dtype=float) for site in sites]
    means = [site.margin(field.mean(site.scope).reshape(-1)) for site in sites]
    gap = np.concatenate(seen) - np.concatenate(centred) - np.concatenate(means)
    factor, pivots, rank, _ = dpstrf(covariance, tol=CERTAIN, lower=1)
    lower, order = np.tril(factor[:, :rank]), pivots - 1
    white = solve_triangular(lower[:rank], gap[order[:rank]], lower=True)
    left = gap[order[rank:]] - lower[rank:] @ white
    if np.abs(left).max(initial=0.0) > MISFIT * np.sqrt(centre.population):
        return None
    wide = PRECISION / _spacing(tilts.problem) ** 2 * np.diagonal(lower) ** 2
    return float(-0.5 * (np.log1p(wide) + white**2 * wide / (1 + wide)).sum())


def _spacing(problem: ClosedProblem) -> float:
    """How far apart exact counts can be: one individual, or one whole flock."""
    counts = [np.asarray(site.noise.counts, dtype=float) for site in problem.sites if site.noise.exact]
    return problem.together.spacing(np.concatenate([[float(problem.population)], *counts]))


def _by_tables(sites: Sequence[Site], field: Field) -> Array:
    """The lower triangle of the sites' covariance, from that of whole tables."""
    ends = np.cumsum([0, *(len(site) for site in sites)])
    covariance = np.zeros((ends[-1], ends[-1]))
    for i, a in enumerate(sites):
        for j, b in enumerate(sites[: i + 1]):
            block = a.margin(b.margin(field.covariance(a.scope, b.scope)).T).T
            covariance[ends[i] : ends[i + 1], ends[j] : ends[j + 1]] = block
    return covariance


def _all_at_once(centre: Centre, exact: list[int], tau: Array, nu: Array) -> tuple[float, float] | None:
    """The unit masses as sites: every cell once, and without the largest one of every variable that is seen whole."""
    tilts = centre.roles.tilts
    sites = tilts.problem.sites
    if any(len(sites[k].scope) > 1 or sites[k].index is None for k in exact):
        return None
    picked = np.zeros(len(centre.g), dtype=bool)
    found: dict[object, dict[int, int]] = {}
    for k in exact:
        for place, entry in enumerate(np.asarray(sites[k].index)):
            found.setdefault(sites[k].scope, {}).setdefault(int(entry), int(tilts.offsets[k]) + place)
    for scope, entries in found.items():
        places = np.array(list(entries.values()))
        picked[places] = True
        if len(places) == tilts.problem.model.domain(scope).size:  # type: ignore[arg-type]
            picked[places[np.argmax(centre.expected[places])]] = False
    precision = PRECISION / _spacing(tilts.problem) ** 2
    tau, nu = np.where(picked, precision, tau), np.where(picked, 0.0, nu)
    structure = centre.structure_given(KnownCounts({}, centre.readings))
    return _of(structure, tilts.split(tau), tilts.split(nu))


@dataclass(frozen=True)
class ClosedForm(GaussianEngine, DirectEngine):
    """Condition the Gaussian model on exact and Gaussian observations, on any junction tree.

    Exact margins are constraints, not tiny variances. The evidence is the Gaussian model's, with exact counts as unit masses. Means can
    be negative where counts are small (the posterior's promises say so); ``TiltedEP`` and ``MAP`` cannot.

    Parameters
    ----------
    structure, draws, final_draws, draw_seed, mc_error, device
        See :class:`GaussianEngine`.
    """

    name: ClassVar[str] = "ClosedForm"
    use: ClassVar[GaussianUse] = GaussianUse(sweeps=1, matrices=8)

    def solve(self, problem: ClosedProblem, rng: np.random.Generator) -> Beliefs:
        """See :class:`DirectEngine`."""
        del rng
        wrong = sorted({type(s.noise).__name__ for s in problem.sites if not s.noise.gaussian})
        if wrong:
            message = f"ClosedForm takes exact and Gaussian observations; {', '.join(wrong)} noise needs TiltedEP (the default)"
            raise ValueError(message)
        centre = self.prior_centre(problem)
        nothing = np.zeros_like(centre.g)
        return gaussian_beliefs(centre, nothing, nothing)
