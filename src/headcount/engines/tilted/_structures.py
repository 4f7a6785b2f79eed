"""Which structure a Gaussian engine uses on chains and trees, and what Monte-Carlo error that leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headcount.engines._settings import Rule, one_of, whole
from headcount.structure import Sampling, Solver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from headcount.structure import Field, Structure

STRUCTURE_RULES: Mapping[str, Rule] = {
    "structure": one_of("auto", "tree", "matrix-free"),
    "draws": whole(least=8),
    "final_draws": whole(least=8),
    "draw_seed": whole(least=0),
}
"""Of the settings that TiltedEP, Laplace and ClosedForm share. Fewer than 8 draws leave no error estimate."""


def solver_of(engine: Any) -> Solver:
    """The settings of such an engine as its structure takes them."""
    return Solver(engine.structure, Sampling(engine.draws, engine.final_draws, engine.draw_seed))


def field_and_evidence(
    structure: Structure,
    tau: Sequence[NDArray[Any]],
    nu: Sequence[NDArray[Any]],
    evidence: float | None,
    log_z: float,
) -> tuple[Callable[[], Field], float | None, dict[str, float]]:
    """The posterior (made when asked for), the evidence with log Z from the final draws, and its error for the diagnostics.

    ``evidence`` holds ``log_z`` of the last sweep. Where nothing is random it stays as it is.
    """
    if not structure.monte_carlo:
        return lambda: structure.field(tau, nu), evidence, {}
    field = structure.field(tau, nu)
    assert field.log_z is not None
    final, error = field.log_z
    better = None if evidence is None else evidence - log_z + final
    return lambda: field, better, {"log_evidence_mc_error": error}
