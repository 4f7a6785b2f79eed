"""What engines solve: a closed population of individuals on one graph, and scalar sites on counts of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from headcount.individual import Model
from headcount.observe.binding import Part, Site, by_family
from headcount.population import Dispersion, Exactly, Numbers, SizeLaw, as_dispersion


@dataclass(frozen=True, eq=False)
class ClosedProblem:
    """Individuals x ~ p on one graph, each there from the first time to the last; of their count tables n, noisy counts are seen.

    `Problem.core` makes it of every population: groups, tracked individuals, arrivals and hidden states are states of ``model``,
    and what is known of their numbers is in ``numbers``. Engines, structures and samplers see nothing else.

    Attributes
    ----------
    model
        The law of one individual.
    population
        N; where ``numbers`` has laws of it, a number that is large enough to plan with.
    sites
        What is seen.
    dispersion
        How individuals move together; None: independently.
    numbers
        The laws of the sizes of the root's states; None where one known number is all.
    """

    model: Model
    population: int
    sites: tuple[Site, ...] = ()
    dispersion: Dispersion | None = None
    numbers: Numbers | None = None

    @property
    def scale(self) -> float:
        """The number of individuals that tolerances are relative to."""
        return float(max(1, self.population))

    @property
    def most(self) -> float:
        """The most individuals that any count may have."""
        return float(self.population) if self.numbers is None else self.numbers.most(self.scale)

    @property
    def together(self) -> Dispersion:
        """How individuals move together: `dispersion`, or alone where none was given."""
        return as_dispersion(self.dispersion)

    @property
    def disperses(self) -> bool:
        """Whether individuals move together at all."""
        return not self.together.is_none

    @property
    def root_phi(self) -> float:
        """Factor on the covariance of the first counts: 1 for independent individuals."""
        return self.together.root_phi(self.population)

    @cached_property
    def noises(self) -> tuple[Part, ...]:
        """All observed entries (concatenated over sites) by their noise; see `by_family`."""
        return by_family(self.sites)

    @cached_property
    def traits(self) -> Traits:
        """What an engine needs to know before it starts."""
        shape, sparse, largest = _shape(self.model)
        noises = [site.noise for site in self.sites]
        widths = {len(site.scope) for site in self.sites}
        all_gaussian = all(noise.gaussian for noise in noises)
        return Traits(
            shape=shape,
            sparse=sparse,
            population=self.population,
            variables=len(self.model.variables),
            entries=sum(map(len, self.sites)),
            largest_table=largest,
            all_gaussian=all_gaussian,
            any_exact=any(noise.exact for noise in noises),
            count_noise=not all_gaussian,
            log_concave=all(noise.log_concave for noise in noises),
            poisson_shaped=all(noise.poisson_shaped or noise.exact for noise in noises),
            correlated=any(noise.correlated for noise in noises),
            nodes=1 in widths,
            edges=2 in widths,
            cliques=max(widths, default=0) > 2,
            sums=any(site.weights is not None for site in self.sites),
        )

    def with_sites(self, sites: tuple[Site, ...]) -> ClosedProblem:
        """The same individuals with other sites."""
        return replace(self, sites=sites)

    def with_dispersion(self, dispersion: Dispersion | None) -> ClosedProblem:
        """The same counts of individuals that move together in another way."""
        return replace(self, dispersion=dispersion)

    def with_laws(self, laws: Sequence[SizeLaw]) -> ClosedProblem:
        """The same counts of groups whose sizes have these laws."""
        return replace(self, numbers=Numbers.of(laws, None if self.numbers is None else self.numbers.weights))

    def with_numbers(self, sizes: ArrayLike) -> ClosedProblem:
        """The same counts of groups of known sizes, rounded."""
        return self.with_laws([Exactly(max(0, round(float(n)))) for n in np.asarray(sizes)])


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


def _shape(model: Model) -> tuple[Literal["chain", "tree", "junction"], bool, int]:
    tree = model.rooted()
    if tree is None:
        return "junction", False, max(model.junction_tree.table_sizes)
    sizes, parents = tree.sizes, tree.parents
    largest = max(sizes[k] * (sizes[p] if p >= 0 else 1) for k, p in enumerate(parents))
    return ("chain" if tree.is_chain else "tree"), any(map(issparse, tree.transitions)), largest
