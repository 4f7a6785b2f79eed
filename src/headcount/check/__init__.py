"""Checks that need many inferences: whether the answers to a problem are calibrated."""

from headcount.check._calibration import Calibration, calibration

__all__ = ["Calibration", "calibration"]
