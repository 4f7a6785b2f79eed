"""Gaussian solvers, one per shape of graph: given Gaussian sites on what is observed, the moments."""

from headcount.structure._gaussian_tree import Contradiction, GaussianTree
from headcount.structure._junction import JunctionStructure
from headcount.structure._junction_draws import JunctionDrawsStructure
from headcount.structure._matrix_free import MatrixFreeStructure
from headcount.structure._tree import TreeStructure
from headcount.structure.base import (
    AFFORDABLE_ON_DEVICE,
    Field,
    KnownCounts,
    Moments,
    NotPositiveDefinite,
    Recall,
    Sampling,
    Solver,
    Structure,
    kind_of,
    structure_for,
)

__all__ = [
    "AFFORDABLE_ON_DEVICE",
    "Contradiction",
    "Field",
    "GaussianTree",
    "JunctionDrawsStructure",
    "JunctionStructure",
    "KnownCounts",
    "MatrixFreeStructure",
    "Moments",
    "NotPositiveDefinite",
    "Recall",
    "Sampling",
    "Solver",
    "Structure",
    "TreeStructure",
    "kind_of",
    "structure_for",
]
