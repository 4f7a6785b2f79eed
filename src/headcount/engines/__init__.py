"""Engines: every way to infer, behind one verb; and the Posterior they return."""

from headcount.engines._map import MAP
from headcount.engines._run import Plan, plan, run
from headcount.engines._table_bp import TableBP
from headcount.engines.choice import Auto, Choice, select
from headcount.engines.engine import DirectEngine, Engine, IterativeEngine
from headcount.engines.exact import Enumerate
from headcount.engines.sampling._path_gibbs import PathGibbs
from headcount.engines.tilted._gaussian import ClosedForm
from headcount.engines.tilted._laplace import Laplace
from headcount.engines.tilted._tilted_ep import TiltedEP
from headcount.posterior import (
    Beliefs,
    Estimate,
    NotConvergedError,
    Outcome,
    Posterior,
    Promises,
    Status,
    Total,
)

__all__ = [
    "MAP",
    "Auto",
    "Beliefs",
    "Choice",
    "ClosedForm",
    "DirectEngine",
    "Engine",
    "Enumerate",
    "Estimate",
    "IterativeEngine",
    "Laplace",
    "NotConvergedError",
    "Outcome",
    "PathGibbs",
    "Plan",
    "Posterior",
    "Promises",
    "Status",
    "TableBP",
    "TiltedEP",
    "Total",
    "plan",
    "run",
    "select",
]
