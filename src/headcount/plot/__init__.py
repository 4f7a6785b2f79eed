"""Pictures: each function takes a Posterior, a Result or its frames, and gives a figure with the numbers that it shows."""

from headcount.plot._accessor import Pictures
from headcount.plot._charts import (
    calibration,
    convergence,
    coverage,
    learning_curves,
    observed_against_inferred,
    pit_histogram,
    residuals_over_time,
)
from headcount.plot._maps import animate, count_map, flow_map, net_flux_map, residual_map
from headcount.plot.picture import Picture

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
    "residual_map",
    "residuals_over_time",
]
