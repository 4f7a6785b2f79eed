"""What comes back: estimates under the user's labels, draws, frames and datasets, and how they were got."""

from headcount.posterior._beliefs import (
    Beliefs,
    GaussianBeliefs,
    NotConvergedError,
    Outcome,
    PointBeliefs,
    Promises,
    Status,
)
from headcount.posterior._derived import IntegratedBeliefs, MixtureBeliefs
from headcount.posterior._fit_check import FitCheck
from headcount.posterior._posterior import Estimate, Posterior, Total
from headcount.posterior._stored import StoredEstimate, StoredPosterior

__all__ = [
    "Beliefs",
    "Estimate",
    "FitCheck",
    "GaussianBeliefs",
    "IntegratedBeliefs",
    "MixtureBeliefs",
    "NotConvergedError",
    "Outcome",
    "PointBeliefs",
    "Posterior",
    "Promises",
    "Status",
    "StoredEstimate",
    "StoredPosterior",
    "Total",
]
