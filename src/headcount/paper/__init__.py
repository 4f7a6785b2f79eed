"""The paper, reproduced: one module per table and figure, and the numbers printed beside ours.

Liu, Sheldon and Dietterich, *Gaussian Approximation of Collective Graphical Models*, ICML 2014.
"""

from headcount.paper._reproduce import EXPERIMENTS, reproduce
from headcount.paper._runner import ReproductionError

__all__ = ["EXPERIMENTS", "ReproductionError", "reproduce"]
