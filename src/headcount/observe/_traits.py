"""What an engine needs to know about a problem before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.sparse import issparse

from headcount.individual import Model
from headcount.observe._site import Site


@dataclass(frozen=True)
class Traits:
    """The facts by which an engine is chosen.

    Attributes
    ----------
    shape
        ``"chain"``, ``"tree"`` or ``"junction"``.
    sparse
        Whether any transition matrix is sparse.
    population
        N.
    variables, entries
        How many variables, and how many counts are observed.
    largest_table
        Entries of the largest clique table.
    all_gaussian
        Every site conditions in closed form (Gaussian or exact; true of no site at all).
    any_exact
        Some site is exact.
    count_noise
        Some site is neither Gaussian nor exact.
    log_concave
        Every site is log-concave in n.
    poisson_shaped
        Every site that is not exact has a `concave_part`.
    correlated
        Some site's errors depend on each other.
    nodes, edges, cliques, sums
        What is observed: single variables, pairs, larger tables; sums of entries of any of them.
    """

    shape: Literal["chain", "tree", "junction"]
    sparse: bool
    population: int
    variables: int
    entries: int
    largest_table: int
    all_gaussian: bool
    any_exact: bool
    count_noise: bool
    log_concave: bool
    poisson_shaped: bool
    correlated: bool
    nodes: bool
    edges: bool
    cliques: bool
    sums: bool


def traits_of(model: Model, population: int, sites: Sequence[Site]) -> Traits:
    """The traits of a bound problem."""
    shape, sparse, largest = _shape(model)
    noises = [site.noise for site in sites]
    widths = {len(site.scope) for site in sites}
    return Traits(
        shape=shape,
        sparse=sparse,
        population=population,
        variables=len(model.variables),
        entries=sum(len(site) for site in sites),
        largest_table=largest,
        all_gaussian=all(noise.gaussian for noise in noises),
        any_exact=any(noise.exact for noise in noises),
        count_noise=any(not noise.gaussian for noise in noises),
        log_concave=all(noise.log_concave for noise in noises),
        poisson_shaped=all(noise.poisson_shaped or noise.exact for noise in noises),
        correlated=any(noise.correlated for noise in noises),
        nodes=1 in widths,
        edges=2 in widths,
        cliques=any(width > 2 for width in widths),
        sums=any(site.weights is not None for site in sites),
    )


def _shape(model: Model) -> tuple[Literal["chain", "tree", "junction"], bool, int]:
    tree = model.rooted()
    if tree is None:
        return "junction", False, max(model.junction_tree.table_sizes)
    sizes, parents = tree.sizes, tree.parents
    largest = max(sizes[k] * (sizes[p] if p >= 0 else 1) for k, p in enumerate(parents))
    return ("chain" if tree.is_chain else "tree"), any(map(issparse, tree.transitions)), largest
