"""N individuals: consistent tables of counts, their exact law (CGM) and its Gaussian limit (GCGM)."""

from headcount.numerics import deviance, log_factorial, poisson_log_pmf, stirling_error
from headcount.population._cgm import CGM, compositions
from headcount.population._conditionals import EdgeConditional, NodeConditional, node_conditional
from headcount.population._dispersion import Company, Dispersion, Flocks, parse_dispersion
from headcount.population._gcgm import GCGM
from headcount.population._groups import Group
from headcount.population._laplacian import LaplacianFactor, laplacian, star_weights
from headcount.population._minimal import MinimalCoordinates
from headcount.population._tables import CountTables, RealTables

__all__ = [
    "CGM",
    "GCGM",
    "Company",
    "CountTables",
    "Dispersion",
    "EdgeConditional",
    "Flocks",
    "Group",
    "LaplacianFactor",
    "MinimalCoordinates",
    "NodeConditional",
    "RealTables",
    "compositions",
    "deviance",
    "laplacian",
    "log_factorial",
    "node_conditional",
    "parse_dispersion",
    "poisson_log_pmf",
    "star_weights",
    "stirling_error",
]
