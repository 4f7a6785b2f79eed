"""Pictures: each function takes a Posterior, a Result or its frames, and gives a figure with the numbers that it shows."""

from headcount.plot import _counts, _curves, _fit, _flows, _series
from headcount.plot._accessor import Pictures, takes_results
from headcount.plot._animation import animate
from headcount.plot._calibration import calibration, coverage
from headcount.plot._curves import learning_curves
from headcount.plot._picture import Picture
from headcount.plot._sparsity import precision_sparsity

count_map = takes_results(_counts.count_map, "nodes", "coordinates")
convergence = takes_results(_curves.convergence, "trace")
flow_map = takes_results(_flows.flow_map, "flows", "coordinates")
net_flux_map = takes_results(_flows.net_flux_map, "flows", "coordinates")
pit_histogram = takes_results(_fit.pit_histogram, "check")
residual_map = takes_results(_fit.residual_map, "check", "coordinates")
residuals_over_time = takes_results(_fit.residuals_over_time, "check")
observed_against_inferred = takes_results(_series.observed_against_inferred, "nodes")

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
