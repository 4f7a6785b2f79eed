"""What is seen: noise models, and the Problem that binds them to a model and a population."""

from headcount.errors import ProblemError
from headcount.observe._base import Fault, Observation
from headcount.observe._noises import (
    NOISES,
    Binomial,
    Censored,
    Exact,
    Gaussian,
    LaplaceNoise,
    NegativeBinomial,
    Poisson,
)
from headcount.observe._problem import Problem
from headcount.observe._start import LearnedStart, Start
from headcount.observe._tracks import Tracks
from headcount.observe.binding import Site
from headcount.observe.closed import ClosedProblem, Traits
from headcount.observe.cloud import SIZES

__all__ = [
    "NOISES",
    "SIZES",
    "Binomial",
    "Censored",
    "ClosedProblem",
    "Exact",
    "Fault",
    "Gaussian",
    "LaplaceNoise",
    "LearnedStart",
    "NegativeBinomial",
    "Observation",
    "Poisson",
    "Problem",
    "ProblemError",
    "Site",
    "Start",
    "Tracks",
    "Traits",
]
