"""Exact and Gaussian observations: one pass of Gaussian message passing, no iteration (the paper's Sec. 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from headcount._device import find_device
from headcount.engines._engine import DirectEngine
from headcount.engines._tilting import Tilts
from headcount.engines.tilted._centre import Centre, Roles
from headcount.engines.tilted._evidence import GaussianEngine, field_and_evidence
from headcount.posterior._beliefs import Beliefs, GaussianBeliefs

if TYPE_CHECKING:
    from headcount.observe import Problem


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

    def solve(self, problem: Problem, rng: np.random.Generator) -> Beliefs:
        """See :class:`DirectEngine`."""
        del rng
        wrong = sorted({type(s.noise).__name__ for s in problem.sites if not s.noise.gaussian})
        if wrong:
            message = f"ClosedForm takes exact and Gaussian observations; {', '.join(wrong)} noise needs TiltedEP (the default)"
            raise ValueError(message)
        tilts = Tilts(problem, find_device(self.device))
        centre = Centre.at(Roles.of(tilts, solver=self.solver()), np.zeros(int(tilts.offsets[-1])))
        rest = centre.gain + centre.constant
        field, final, errors = field_and_evidence(centre, centre.fixed_tau, centre.fixed_nu, rest)
        return GaussianBeliefs(
            problem.model,
            problem,
            field,
            settled=not problem.sites,
            log_evidence=final,
            diagnostics=errors,
        )
