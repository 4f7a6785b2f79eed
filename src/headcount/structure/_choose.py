"""The one place that chooses a structure."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Literal

from headcount.checks import instance
from headcount.individual import FactoredTree, Model, ModelError, RootedTree
from headcount.structure._base import Solver, Structure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headcount.structure._base import Known, SiteLike

Kind = Literal["tree", "matrix-free"]
AFFORDABLE = 2e10
"""Σ L³ over the edges up to which matrices are formed by default: 1000 cells and 20 times, which took about a minute."""
AFFORDABLE_ON_DEVICE = 1.5e12
"""The same on a graphics card: 4096 cells and 20 times, a few seconds on an H200."""
WORTH = 130
"""Products of L × L matrices that cost as much as the matrix-free solver's passes: it forms 12 sweeps of 33 columns and 192 at the end,
about 20 iterations of two passes each, 4 operations per entry, where the tree takes 12 sweeps of 30 operations per L³."""


def kind_of(tree: RootedTree | None, wanted: str, *, affordable: float | None = None) -> Kind:
    """What a solver's ``structure`` comes to: "auto" is matrix-free where matrices cost more than is affordable and it can serve.

    Raises
    ------
    ModelError
        When "matrix-free" is wanted and cannot serve, with the reason.
    """
    if wanted == "tree":
        return "tree"
    why = Structure.kinds["matrix-free"].refusal(tree)
    if wanted == "matrix-free":
        if why is not None:
            raise ModelError(
                f'the matrix-free structure cannot serve this problem: {why}; use structure="tree" or "auto"'
            )
        return "matrix-free"
    return (
        "matrix-free"
        if why is None
        and tree is not None
        and _too_dear(tree, AFFORDABLE if affordable is None else affordable)
        else "tree"
    )


def _too_dear(tree: RootedTree, affordable: float) -> bool:
    """Whether matrices of a tree cost more than is affordable, and more than passes over its moves."""
    steps = tree.transitions[1:]
    cubes = sum(prod(m.shape) * max(m.shape) for m in steps)
    moves = sum(int(getattr(m, "nnz", prod(m.shape))) for m in steps)
    return cubes > affordable and cubes > WORTH * moves


def structure_for(
    law: RootedTree | FactoredTree | Model,
    population: float,
    sites: Sequence[SiteLike],
    known: Known | None = None,
    *,
    solver: Solver | None = None,
    flock: float = 1.0,
) -> Structure:
    """The structure for a law's graph: chains and trees have their own, everything else is a junction tree.

    Parameters
    ----------
    law
        One individual, tilts included; in factors only for a structure without matrices.
    population
        N.
    sites
        Where something is observed.
    known
        Exact counts and correlated Gaussian readings among the sites.
    solver
        Whether a chain or tree is solved with matrices (the default) or without.
    flock
        Factor on all covariances, for laws that are no RootedTree; that has its own.
    """
    instance(law, (RootedTree, FactoredTree, Model), "law", expected="a Model or a RootedTree")
    wanted = Solver() if solver is None else solver
    if isinstance(law, FactoredTree):
        return Structure.kinds["matrix-free"].chosen(
            law, population, sites, known, solver=wanted, flock=flock
        )
    tree = law if isinstance(law, RootedTree) else law.rooted()
    kind = kind_of(tree, wanted.structure)
    chosen = Structure.kinds["junction tree" if tree is None else kind].chosen
    return chosen(law if tree is None else tree, population, sites, known, solver=wanted, flock=flock)
