"""N individuals: consistent tables of counts, their exact law (CGM) and its Gaussian limit (GCGM)."""

from headcount.numerics import deviance, log_factorial, poisson_log_pmf, stirling_error
from headcount.population._cgm import CGM, compositions
from headcount.population._conditionals import (
    EdgeConditional,
    NodeConditional,
    node_conditional,
    step_moments,
)
from headcount.population._dispersion import (
    Dispersion,
    DispersionEstimate,
    Flocks,
    Independent,
    Overdispersion,
    ToEstimate,
    as_dispersion,
    parse_dispersion,
    unit_tables,
)
from headcount.population._gcgm import GCGM, MinimalCoordinates
from headcount.population._laplacian import LaplacianFactor, laplacian, star_weights
from headcount.population._size import (
    About,
    Between,
    Exactly,
    Group,
    NegativeBinomialSize,
    Numbers,
    Others,
    PoissonSize,
    SizeLaw,
    TotalSize,
    Unknown,
    as_law,
    parse_population,
)
from headcount.population._tables import CountTables, RealTables

__all__ = [
    "CGM",
    "GCGM",
    "About",
    "Between",
    "CountTables",
    "Dispersion",
    "DispersionEstimate",
    "EdgeConditional",
    "Exactly",
    "Flocks",
    "Group",
    "Independent",
    "LaplacianFactor",
    "MinimalCoordinates",
    "NegativeBinomialSize",
    "NodeConditional",
    "Numbers",
    "Others",
    "Overdispersion",
    "PoissonSize",
    "RealTables",
    "SizeLaw",
    "ToEstimate",
    "TotalSize",
    "Unknown",
    "as_dispersion",
    "as_law",
    "compositions",
    "deviance",
    "laplacian",
    "log_factorial",
    "node_conditional",
    "parse_dispersion",
    "parse_population",
    "poisson_log_pmf",
    "star_weights",
    "step_moments",
    "stirling_error",
    "unit_tables",
]
