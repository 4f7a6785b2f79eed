"""Learning: parameters from counts, with standard errors."""

from headcount.learn._compare import compare
from headcount.learn._complete import fit_complete
from headcount.learn._component import Component, Natural
from headcount.learn._family import Family
from headcount.learn._fit import fit
from headcount.learn._forecast import Forecast
from headcount.learn._information import Direction, Information
from headcount.learn._log_linear import LogLinear
from headcount.learn._parametrisation import LearnRate, LogisticChain, Parametrisation, TabularChain
from headcount.learn._result import Fit, FitNotConvergedError

__all__ = [
    "Component",
    "Direction",
    "Family",
    "Fit",
    "FitNotConvergedError",
    "Forecast",
    "Information",
    "LearnRate",
    "LogLinear",
    "LogisticChain",
    "Natural",
    "Parametrisation",
    "TabularChain",
    "compare",
    "fit",
    "fit_complete",
]
