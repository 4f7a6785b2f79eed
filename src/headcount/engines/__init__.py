"""Engines: every way to infer, behind one verb; and the Posterior they return."""

from headcount.engines._auto import Auto, Choice, select
from headcount.engines._beliefs import Beliefs, Promises
from headcount.engines._closed_form import ClosedForm
from headcount.engines._edge_ep import EdgeEP
from headcount.engines._engine import DirectEngine, Engine, IterativeEngine, Outcome
from headcount.engines._enumerate import Enumerate
from headcount.engines._gibbs import Gibbs
from headcount.engines._infer import infer
from headcount.engines._laplace import Laplace
from headcount.engines._map import MAP
from headcount.engines._nlbp import NLBP
from headcount.engines._path_gibbs import PathGibbs
from headcount.engines._plan import Plan, plan
from headcount.engines._posterior import Estimate, Posterior, Total
from headcount.engines._status import NotConvergedError, Status
from headcount.engines._tilted_ep import TiltedEP

__all__ = [
    "MAP",
    "NLBP",
    "Auto",
    "Beliefs",
    "Choice",
    "ClosedForm",
    "DirectEngine",
    "EdgeEP",
    "Engine",
    "Enumerate",
    "Estimate",
    "Gibbs",
    "IterativeEngine",
    "Laplace",
    "NotConvergedError",
    "Outcome",
    "PathGibbs",
    "Plan",
    "Posterior",
    "Promises",
    "Status",
    "TiltedEP",
    "Total",
    "infer",
    "plan",
    "select",
]
