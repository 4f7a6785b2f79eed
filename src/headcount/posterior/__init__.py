"""What comes back: estimates under the user's labels, draws, frames and datasets, and how they were got."""

from headcount.posterior._answers import Estimate, PopulationEstimate, Total
from headcount.posterior._beliefs import (
    Beliefs,
    GaussianBeliefs,
    NotConvergedError,
    Outcome,
    PointBeliefs,
    Promises,
    Sizes,
    Status,
)
from headcount.posterior._posterior import Posterior
from headcount.posterior._stored import StoredPosterior
from headcount.posterior.derived import IntegratedBeliefs, MixtureBeliefs
from headcount.posterior.fit_check import FitCheck

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
    "PopulationEstimate",
    "Posterior",
    "Promises",
    "Sizes",
    "Status",
    "StoredPosterior",
    "Total",
]
