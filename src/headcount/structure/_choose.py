"""The one place that chooses a structure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.checks import instance
from headcount.individual import Model, RootedTree
from headcount.structure._junction import JunctionStructure
from headcount.structure._tree import TreeStructure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headcount.structure._base import Known, SiteLike, Structure


def structure_for(
    law: RootedTree | Model, population: float, sites: Sequence[SiteLike], known: Known | None = None
) -> Structure:
    """The structure for a law's graph: chains and trees have their own, everything else is a junction tree.

    Parameters
    ----------
    law
        One individual, tilts included.
    population
        N.
    sites
        Where something is observed.
    known
        Exact counts and correlated Gaussian readings among the sites.
    """
    instance(law, (RootedTree, Model), "law", expected="a Model or a RootedTree")
    tree = law if isinstance(law, RootedTree) else law.rooted()
    if tree is not None:
        return TreeStructure(tree, population, sites, known)
    assert not isinstance(law, RootedTree)
    return JunctionStructure(law, population, sites, known)
