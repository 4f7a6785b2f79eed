"""N individuals: consistent tables of counts, their exact law (CGM), laws of their number, how they move together."""

from headcount.numerics import deviance, log_factorial, poisson_log_pmf, stirling_error
from headcount.population._cgm import CGM, compositions
from headcount.population._conditionals import EdgeConditional, step_moments
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
from headcount.population._tables import CountTables
from headcount.population.laplacian import LaplacianFactor, laplacian, star_weights

__all__ = [
    "CGM",
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
    "NegativeBinomialSize",
    "Numbers",
    "Others",
    "Overdispersion",
    "PoissonSize",
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
    "parse_dispersion",
    "parse_population",
    "poisson_log_pmf",
    "star_weights",
    "step_moments",
    "stirling_error",
    "unit_tables",
]
