"""How an inference ended, and what to say when it ended badly."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from headcount.posterior._beliefs import Beliefs


class Status(Enum):
    """How a run ended. Only the first four are answers that can be used without a second look."""

    CONVERGED = "converged"
    EXACT = "exact"
    SAMPLED = "sampled"
    EDGE = "at the edge"
    """Of a fit: the maximum was reached, and lies where some probabilities are zero."""
    BUDGET = "iteration budget spent"
    STALLED = "stalled"
    NOT_FINITE = "not finite"

    @property
    def good(self) -> bool:
        """Whether the answer is what the engine promises."""
        return self in {Status.CONVERGED, Status.EXACT, Status.SAMPLED, Status.EDGE}

    @property
    def causes(self) -> str:
        """What usually lies behind it and what to try."""
        return {
            Status.BUDGET: (
                "raise max_iterations (of a sampler: sweeps or moves), or loosen the tolerance; look at the trace: a residual that "
                "still falls needs time"
            ),
            Status.STALLED: (
                "the residual no longer falls: data far from the model (check population, rates and transitions), or "
                "a noise that is not log-concave; try TiltedEP(damping=0.3), MAP or PathGibbs"
            ),
            Status.NOT_FINITE: (
                "a number left the range of float64 (check for extreme rates, probabilities or counts), or the mode lies at the edge "
                "of a likelihood's domain, where Laplace and EdgeEP have no curvature to use: try TiltedEP or MAP"
            ),
        }.get(self, "")


@dataclass(frozen=True)
class Outcome:
    """What a run leaves: beliefs, and how they were got."""

    beliefs: Beliefs
    status: Status
    iterations: int = 0
    residual: float = 0.0
    tolerance: float = 0.0
    seconds: float = 0.0
    trace: tuple[dict[str, float], ...] = ()
    info: dict[str, Any] = field(default_factory=dict)
    learned: Callable[[], NDArray[np.float64]] | None = field(default=None, repr=False)
    """Where parameters were learned from these data: ∂E[y]/∂parameters of all observed counts under the model, (counts, K)."""


class Named(Protocol):
    """The part of an engine that a result keeps: its name. Its settings are its dataclass fields."""

    @property
    def name(self) -> str: ...


class NotConvergedError(RuntimeError):
    """An engine did not reach its tolerance. The posterior as far as it got is in :attr:`posterior`."""

    def __init__(
        self, engine: str, status: Status, residual: float, tolerance: float, iterations: int
    ) -> None:
        self.status, self.residual = status, residual
        self.posterior: object = None
        super().__init__(
            f"{engine} did not converge: {status.value} after {iterations} iterations, residual {residual:.3g} "
            f"(asked: {tolerance:.3g}). Likely causes and remedies: {status.causes}. "
            "To look at the answer all the same, call infer(..., strict=False)."
        )
