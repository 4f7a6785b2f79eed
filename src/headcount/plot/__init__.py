"""Pictures: each function takes a Posterior, a Result or its frames, and gives a figure with the numbers that it shows."""

from headcount.plot._accessor import Pictures
from headcount.plot._animation import animate
from headcount.plot._calibration import calibration, coverage
from headcount.plot._counts import count_map
from headcount.plot._curves import convergence, learning_curves
from headcount.plot._fit import pit_histogram, residual_map, residuals_over_time
from headcount.plot._flows import flow_map, net_flux_map
from headcount.plot._picture import Picture
from headcount.plot._series import observed_against_inferred
from headcount.plot._sparsity import precision_sparsity

__all__ = [
    "Picture",
    "Pictures",
    "animate",
    "calibration",
    "convergence",
    "count_map",
    "coverage",
    "flow_map",
    "learning_curves",
    "net_flux_map",
    "observed_against_inferred",
    "pit_histogram",
    "precision_sparsity",
    "residual_map",
    "residuals_over_time",
]
