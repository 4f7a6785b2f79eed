"""Which structure a Gaussian engine uses on chains and trees, and what Monte-Carlo error that leaves."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from headcount.engines._settings import Rule, number, one_of, or_none, whole
from headcount.engines.tilted import _unit_mass as unit_mass
from headcount.structure import Recall, Sampling, Solver
from headcount.structure._field import itself

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headcount._types import Array
    from headcount.engines.tilted._centre import Centre
    from headcount.structure import Field

STRUCTURE_RULES: Mapping[str, Rule] = {
    "structure": one_of("auto", "tree", "matrix-free"),
    "draws": or_none(whole(least=8)),
    "final_draws": or_none(whole(least=8)),
    "draw_seed": whole(least=0),
    "mc_error": number(most=0.125),
}
"""Of the settings that TiltedEP, Laplace and ClosedForm share. Fewer than 8 draws leave no error estimate; more than an
eighth is what 32 draws, the fewest at the end, always have."""

ROUNDING = 1e-6
"""By which the log of a probability near one may exceed zero: evidence is a sum of about 1e4 terms of size 1 to 1e5, each to 1e-16."""


def solver_of(engine: Any, *, sweeps: bool = False) -> Solver:
    """The settings of such an engine as its structure takes them, for one run; ``sweeps`` where each solve may start from the last."""
    sampling = Sampling(engine.draws, engine.final_draws, engine.draw_seed, engine.mc_error)
    return Solver(engine.structure, sampling, Recall() if sweeps else None)


def field_and_evidence(
    centre: Centre, tau: Array, nu: Array, rest: float, log_z: float | None = None
) -> tuple[Callable[[], Field], float | None, dict[str, float]]:
    """The posterior (made when asked for), its log evidence as a probability, and the evidence's Monte-Carlo error for the diagnostics.

    The evidence is ``rest`` and log Z: that given, the structure's own, or without matrices that of the final draws. Beside exact counts
    that is a density: unit masses take its place, or no number does. Nor is one given where whole numbers would have a probability above
    one.
    """
    structure, split = centre.structure, centre.roles.tilts.split
    sites = split(tau), split(nu)
    drawn = structure.field(*sites) if structure.monte_carlo else None
    probable: tuple[float, float] | None
    if centre.roles.exact.any():
        probable = unit_mass.log_z(centre, tau, nu)
    elif drawn is not None:
        probable = drawn.log_z
    else:
        probable = structure.solve(*sites).log_z if log_z is None else log_z, 0.0
    found = None if probable is None else _probability(centre, rest + probable[0])
    if drawn is None:
        return partial(structure.field, *sites), found, {}  # partial, not lambda: a posterior can be pickled
    error = math.nan if found is None or probable is None else probable[1]
    return partial(itself, drawn), found, {"log_evidence_mc_error": error}


def _probability(centre: Centre, evidence: float) -> float | None:
    """The evidence; None where there is none, or where whole numbers would have a probability above one."""
    whole = all(site.noise.whole for site in centre.roles.tilts.problem.sites)
    return None if math.isnan(evidence) or (whole and evidence > ROUNDING) else evidence
