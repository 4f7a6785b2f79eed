"""Which structure a Gaussian engine uses on chains and trees, and what Monte-Carlo error that leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headcount.engines._settings import Rule, one_of, whole
from headcount.engines.tilted import _unit_mass as unit_mass
from headcount.structure import Sampling, Solver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headcount._types import Array
    from headcount.engines.tilted._centre import Centre
    from headcount.structure import Field

STRUCTURE_RULES: Mapping[str, Rule] = {
    "structure": one_of("auto", "tree", "matrix-free"),
    "draws": whole(least=8),
    "final_draws": whole(least=8),
    "draw_seed": whole(least=0),
}
"""Of the settings that TiltedEP, Laplace and ClosedForm share. Fewer than 8 draws leave no error estimate."""

ROUNDING = 1e-6
"""By which the log of a probability near one may exceed zero: evidence is a sum of about 1e4 terms of size 1 to 1e5, each to 1e-16."""


def solver_of(engine: Any) -> Solver:
    """The settings of such an engine as its structure takes them."""
    return Solver(engine.structure, Sampling(engine.draws, engine.final_draws, engine.draw_seed))


def field_and_evidence(
    centre: Centre, tau: Array, nu: Array, evidence: float, log_z: float
) -> tuple[Callable[[], Field], float | None, dict[str, float]]:
    """The posterior (made when asked for), its log evidence as a probability, and the evidence's Monte-Carlo error for the diagnostics.

    ``evidence`` holds ``log_z`` of the last sweep. Beside exact counts that is a density: unit masses take its place, or no number does.
    Nor is one given where whole numbers would have a probability above one. Without matrices log Z is that of the final draws.
    """
    structure, split = centre.structure, centre.roles.tilts.split
    sites = split(tau), split(nu)
    probable = unit_mass.log_z(centre, tau, nu) if centre.roles.exact.any() else log_z
    if not structure.monte_carlo:
        return lambda: structure.field(*sites), _probability(centre, evidence - log_z, probable), {}
    field = structure.field(*sites)
    assert field.log_z is not None
    final, error = field.log_z
    found = _probability(centre, evidence - log_z, None if probable is None else final)
    return lambda: field, found, {"log_evidence_mc_error": error}


def _probability(centre: Centre, rest: float, log_z: float | None) -> float | None:
    """rest + log Z; None where there is no log Z, or where whole numbers would have a probability above one."""
    whole = all(site.noise.whole for site in centre.roles.tilts.problem.sites)
    if log_z is None or (whole and rest + log_z > ROUNDING):
        return None
    return rest + log_z
