"""What comes back: estimates under the user's labels, draws, frames and datasets, and how they were got."""

from headcount.posterior._beliefs import Beliefs, Promises
from headcount.posterior._posterior import Estimate, Posterior, Total
from headcount.posterior._status import NotConvergedError, Outcome, Status

__all__ = ["Beliefs", "Estimate", "NotConvergedError", "Outcome", "Posterior", "Promises", "Status", "Total"]
