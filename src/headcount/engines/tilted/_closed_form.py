"""Exact and Gaussian observations: one pass of Gaussian message passing, no iteration (the paper's Sec. 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from headcount._device import find_device
from headcount.engines._engine import DirectEngine
from headcount.engines._tilting import Tilts
from headcount.engines.tilted._centre import Centre, Roles
from headcount.engines.tilted._evidence import STRUCTURE_RULES, field_and_evidence, solver_of
from headcount.posterior._beliefs import Beliefs, GaussianBeliefs

if TYPE_CHECKING:
    from headcount.observe import Problem


@dataclass(frozen=True)
class ClosedForm(DirectEngine):
    """Condition the Gaussian model on exact and Gaussian observations, on any junction tree.

    Exact margins are constraints, not tiny variances. The evidence is the Gaussian model's, with exact counts as unit masses. Means can
    be negative where counts are small (the posterior's promises say so); ``TiltedEP`` and ``MAP`` cannot.

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

    rules: ClassVar = STRUCTURE_RULES
    name: ClassVar[str] = "ClosedForm"
    takes_dispersion: ClassVar[bool] = True
    takes_sizes: ClassVar = "evidence"
    structure: Literal["auto", "tree", "matrix-free"] = "auto"
    draws: int | None = None
    final_draws: int | None = None
    draw_seed: int = 0
    mc_error: float = 0.05
    device: Literal["cpu", "cuda"] = "cpu"

    def solve(self, problem: Problem, rng: np.random.Generator) -> Beliefs:
        """See :class:`DirectEngine`."""
        del rng
        wrong = sorted({type(s.noise).__name__ for s in problem.sites if not s.noise.gaussian})
        if wrong:
            message = f"ClosedForm takes exact and Gaussian observations; {', '.join(wrong)} noise needs TiltedEP (the default)"
            raise ValueError(message)
        tilts = Tilts(problem, find_device(self.device))
        centre = Centre.at(Roles.of(tilts, solver=solver_of(self)), np.zeros(int(tilts.offsets[-1])))
        rest = centre.gain + centre.constant
        field, final, errors = field_and_evidence(centre, centre.settled_tau, centre.settled_nu, rest)
        return GaussianBeliefs(
            problem.model,
            problem,
            field,
            settled=not problem.sites,
            log_evidence=final,
            diagnostics=errors,
        )
