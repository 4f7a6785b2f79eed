"""Learning: parameters from counts, with standard errors."""

from headcount.learn._chains import LearnInitial, LogisticChain, TabularChain
from headcount.learn._family import Component, Family, Natural, Parametrisation
from headcount.learn._feature_table import features
from headcount.learn._fit import fit, fit_complete
from headcount.learn._going import Going
from headcount.learn._infer import infer, infer_initial
from headcount.learn._log_linear import LogLinear
from headcount.learn._nmixture import NMixture, nmixture
from headcount.learn._populations import (
    ByGroup,
    Known,
    LearnArrivals,
    LearnDetection,
    LearnFidelity,
    LearnHazard,
    LearnMemory,
    LearnRate,
    LearnSizes,
    LearnSurvival,
)
from headcount.learn._result import Fit, FitNotConvergedError, Forecast, compare
from headcount.learn._series import forecast, update
from headcount.learn._steps import Periodic, Smooth
from headcount.learn._uncertainty import Direction, Information

__all__ = [
    "ByGroup",
    "Component",
    "Direction",
    "Family",
    "Fit",
    "FitNotConvergedError",
    "Forecast",
    "Going",
    "Information",
    "Known",
    "LearnArrivals",
    "LearnDetection",
    "LearnFidelity",
    "LearnHazard",
    "LearnInitial",
    "LearnMemory",
    "LearnRate",
    "LearnSizes",
    "LearnSurvival",
    "LogLinear",
    "LogisticChain",
    "NMixture",
    "Natural",
    "Parametrisation",
    "Periodic",
    "Smooth",
    "TabularChain",
    "compare",
    "features",
    "fit",
    "fit_complete",
    "forecast",
    "infer",
    "infer_initial",
    "nmixture",
    "update",
]
