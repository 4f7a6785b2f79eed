r"""Exponential tilts on what is observed.

For potentials g on the observed entries,
:math:`\mathrm{CGM}(N,\theta)\,e^{g\cdot n} = \mathrm{CGM}(N,\theta+g)\,e^{N(A(\theta+g)-A(\theta))}` exactly.
One belief propagation gives the gain :math:`N(A(\theta+g)-A(\theta))` and the expected entries :math:`N\mu(\theta+g)`. Groups whose
sizes have laws have :math:`\sum_g\kappa_g(A_g(\theta+g)-A_g(\theta))` and :math:`\sum_g\kappa'_g\mu_g(\theta+g)` instead.
Individuals that move together (``problem.dispersion``) have another gain per individual (``population._dispersion``),
written :math:`A(\theta+g)-A(\theta)` here too: its gradient is still :math:`\mu(\theta+g)`, the law of one individual when tilted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array

from headcount._device import Device, host
from headcount.errors import ProblemError
from headcount.individual import FactoredTree, ModelError, RootedTree
from headcount.individual.rooted_tree import factored, node_beliefs, node_marginals, tilted
from headcount.structure import AFFORDABLE_ON_DEVICE, kind_of
from headcount.structure.base import Kind
from headcount.tables import dense

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headcount._types import Array, Scope
    from headcount.individual import Model
    from headcount.individual.possible import PassPlan
    from headcount.observe import ClosedProblem, Observation, Site
    from headcount.population import Numbers


def kind_on_device(problem: ClosedProblem, wanted: str) -> Kind:
    """What an engine's ``structure`` comes to on a device: matrices only where single cells are seen, none of them exactly.

    Raises
    ------
    ModelError
        When "tree" is wanted and cannot serve.
    """
    plain = all(
        len(s.scope) == 1 and s.index is not None and not s.noise.exact and not s.noise.correlated
        for s in problem.sites
    )
    if plain:
        return kind_of(problem.model.rooted(), wanted, affordable=AFFORDABLE_ON_DEVICE)
    if wanted == "tree":
        raise ModelError(
            'structure="tree" on a device takes counts of single cells with independent errors; flows, sums, exact counts and correlated '
            'readings need structure="matrix-free", or the CPU (leave device out)'
        )
    return "matrix-free"


class TiltedLaw(NamedTuple):
    """What tilts lead to."""

    law: RootedTree | FactoredTree | Model
    """Of one individual (and of the groups' numbers)."""
    gain: float
    """N (A(θ+g) − A(θ)), or Σ κ_g."""
    population: float
    """Expected number of all individuals."""
    numbers: Numbers | None
    """The sizes of groups, where one known number is not all."""


@dataclass(frozen=True)
class Tilts:
    """The tilts of one problem's model, addressed by its sites."""

    problem: ClosedProblem
    device: Device | None = None
    """Where a chain's or tree's law is; None for NumPy's arrays."""

    @cached_property
    def tree(self) -> RootedTree | None:
        """The model as a rooted tree, where it is one, with the dispersion of its steps; rho is read at the prior's counts."""
        problem, tree = self.problem, self.problem.model.rooted()
        if tree is not None and problem.numbers is not None:
            tree = replace(tree, numbers=problem.numbers)
        if self.device is not None:
            if tree is None or problem.disperses:
                raise ModelError(
                    "a device solves chains and trees of independent individuals, and this problem is another: leave device out (the CPU)"
                )
            return tree.on(self.device)
        if tree is None or not problem.disperses:
            return tree
        phi = problem.together.phi_of(
            tree, problem.scale, lambda v: problem.scale * problem.model.marginal((v,))
        )
        return replace(tree, phi=phi)

    @cached_property
    def flock(self) -> float | None:
        """The one factor on all covariances (1 for independent individuals); None where steps have factors of their own."""
        if self.tree is not None:
            return self.tree.common_phi
        return self.problem.root_phi  # without steps, only flocks are known: one factor for all

    @cached_property
    def offsets(self) -> NDArray[np.intp]:
        """Where every site's entries start in the flat vector of all observed entries."""
        return np.concatenate([[0], np.cumsum([len(s) for s in self.problem.sites])]).astype(np.intp)

    def split(self, flat: Array) -> list[Array]:
        """A flat vector, by site."""
        return [flat[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]

    @cached_property
    def grid(self) -> NDArray[np.intp] | None:
        """Positions of all entries in one (T, L) array of node potentials; None unless sites see entries of equal nodes, each its own."""
        tree = self.tree
        sites = self.problem.sites
        if (
            tree is None
            or len(set(tree.sizes)) != 1
            or any(len(s.scope) != 1 or s.index is None for s in sites)
            or len({s.scope for s in sites}) < len(sites)
        ):
            return None
        places = [tree.index[s.scope[0]] * tree.sizes[0] + np.asarray(s.index) for s in sites]
        return np.concatenate([np.zeros(0, np.intp), *places])

    def evaluate(self, g: Array) -> tuple[float, Array]:
        """N (A(θ+g) − A(θ)), and the expected counts N μ(θ+g) of all observed entries, flat."""
        tree = self.tree
        if tree is None:
            gain, mu = self._on_cliques(g)
            gain, size, _ = self._sized(gain)
            return gain, size * mu
        nodes, edges = self._potentials(tree, g)
        if edges is None and tree.numbers is None:
            gain, beliefs = node_beliefs(tree, nodes)  # type: ignore[arg-type]
            gain, size, _ = self._sized(gain)
            if self.grid is not None:
                flat = beliefs.ravel() if isinstance(beliefs, np.ndarray) else host(np.concatenate(beliefs))
                return gain, size * flat[self.grid]
            found = [s.margin(host(beliefs[tree.index[s.scope[0]]])) for s in self.problem.sites]
            return gain, size * _join(found)
        law = self.law(g)
        return law.gain, law.population * self.margins(law.law)

    def _sized(self, gain: float, numbers: Numbers | None = None) -> tuple[float, float, Numbers | None]:
        """Gain, expected number and sizes of all individuals, from the gain of one of them, or of all with these numbers."""
        if numbers is not None:  # the groups of a tree: their gains are in it
            return gain, float(numbers.mean.sum()), numbers
        numbers = self.problem.numbers
        if numbers is None:
            return self.problem.scale * gain, self.problem.scale, None
        one = numbers.tilted(np.array([gain]))
        if not np.isfinite(one.gain):
            raise FloatingPointError("the tilts have no law: the number of individuals would be infinite")
        return one.gain, float(one.mean[0]), one

    @cached_property
    def _passes(self) -> tuple[PassPlan, list[Array], float] | None:
        """Belief propagation on the cliques of a model that is no tree: its plan, the model's own potentials, and A(θ)."""
        found = self.problem.model.passes([site.scope for site in self.problem.sites])
        return None if found is None else (*found, found[0].beliefs(found[1]).log_partition)

    @cached_property
    def _shapes(self) -> list[tuple[int, ...]]:
        """Of the sites' tables."""
        return [self.problem.model.domain(s.scope).shape for s in self.problem.sites]

    def _on_cliques(self, g: Array) -> tuple[float, Array]:
        """`evaluate` of a model that is no tree."""
        if self._passes is None or self.flock is None:
            law, gain = self.model(g)
            return gain, self.margins(law)
        plan, own, before = self._passes
        c, sites = self.flock, self.problem.sites
        tilts = zip(sites, self.split(g if c == 1.0 else c * g), self._shapes, strict=True)
        more = plan.spread([s.spread(values).reshape(shape) for s, values, shape in tilts])
        found = plan.beliefs([a + b for a, b in zip(own, more, strict=True)])
        mu = plan.margins(found.cliques)
        return (found.log_partition - before) / c, _join(
            [s.margin(m.ravel()) for s, m in zip(sites, mu, strict=True)]
        )

    def model(self, g: Array) -> tuple[Model, float]:
        """The tilted model of one individual, and its gain A(θ+g) − A(θ) (of a tree with numbers: that of all individuals)."""
        model, c = self.problem.model, self.flock
        if self.device is not None:
            law = self.law(g, in_factors=True)
            assert isinstance(law.law, FactoredTree)
            return type(model).from_rooted(law.law.at_home().rooted(), model.states), law.gain  # type: ignore[attr-defined]
        if self.tree is not None and model.steps_are_directed:
            nodes, edges = self._potentials(self.tree, g)
            gain, tree = tilted(self.tree, nodes, edge_potentials=edges)  # type: ignore[arg-type]
            return type(model).from_rooted(tree.undispersed, model.states), gain  # type: ignore[attr-defined]
        assert c is not None
        potentials: dict[tuple, Array] = {}
        for site, values in zip(self.problem.sites, self.split(g if c == 1.0 else c * g), strict=True):
            table = model.domain(site.scope).table(site.spread(values))
            potentials[site.scope] = potentials[site.scope] + table if site.scope in potentials else table
        made, gain = model.tilt(potentials)
        return made, gain / c

    def law(self, g: Array, *, in_factors: bool = False) -> TiltedLaw:
        """The tilted law, as a rooted tree (``in_factors`` if so wanted) where it is one."""
        if self.tree is None:
            model, gain = self.model(g)
            return TiltedLaw(model, *self._sized(gain))
        nodes, edges = self._potentials(self.tree, g)
        tilt = factored if in_factors else tilted
        gain, made = tilt(self.tree, nodes, edge_potentials=edges)  # type: ignore[arg-type]
        return TiltedLaw(made, *self._sized(gain, made.numbers))

    def margins(self, law: RootedTree | FactoredTree | Model) -> Array:
        """Probabilities of all observed entries under a tilted law, flat."""
        sites = self.problem.sites
        if isinstance(law, FactoredTree):
            if self.grid is not None:
                return np.asarray(host(np.concatenate(law.marginals))[self.grid])
            law = law if self.device is None else law.at_home()
            return _join([_factored_margin(law, s) for s in sites])
        if not isinstance(law, RootedTree):
            return _join([s.margin(law.marginal(s.scope).ravel()) for s in sites])
        beliefs = node_marginals(law)
        if self.grid is not None:
            return np.asarray(host(np.concatenate(beliefs))[self.grid])
        return _join([s.margin(host(_table(law, beliefs, s)).ravel()) for s in sites])

    def _potentials(self, tree: RootedTree, g: Array) -> tuple[object, list[Array | None] | None]:
        if self.grid is not None:
            nodes = np.zeros(len(tree.sizes) * tree.sizes[0])
            nodes[self.grid] = g
            return nodes.reshape(len(tree.sizes), tree.sizes[0]), None
        by_node: list[Array | None] = [None] * len(tree.sizes)
        by_edge: list[Array | None] = [None] * len(tree.sizes)
        for site, values in zip(self.problem.sites, self.split(g), strict=True):
            place = tree.place(site.scope)
            table = place.to_tree(site.spread(values)).reshape(place.shape)
            tables = by_edge if place.edge else by_node
            old = tables[place.node]
            tables[place.node] = table if old is None else old + table
        return by_node, (by_edge if any(e is not None for e in by_edge) else None)


def _join(parts: list[Array]) -> Array:
    return np.concatenate(parts) if parts else np.zeros(0)


def _factored_margin(law: FactoredTree, site: Site) -> Array:
    """Probabilities of a site's entries; of an edge's, from its moves and not from a table of all pairs."""
    place = law.tree.place(site.scope)
    if not place.edge:
        return site.margin(law.marginals[place.node])
    v, above = place.node, law.marginals[law.tree.parents[place.node]] * law.rows[place.node]
    kernel = coo_array(law.kernels[v])
    flat = np.ravel_multi_index((kernel.row, kernel.col), place.shape)
    mu = above[kernel.row] * kernel.data * law.columns[v][kernel.col]
    table = csr_array((mu, (np.zeros(len(mu), np.int64), flat)), shape=(1, place.shape[0] * place.shape[1]))
    if place.turned:
        table = csr_array(coo_array(table.reshape(place.shape)).T.reshape(1, -1))
    if site.index is not None:
        return np.asarray(table[:, np.asarray(site.index)].toarray()).ravel()
    assert site.weights is not None
    return np.asarray((site.weights @ table.T).toarray()).ravel()


def _table(tree: RootedTree, beliefs: Sequence[Array], site: Site) -> Array:
    """The marginal table of a site's scope, in the scope's order."""
    place = tree.place(site.scope)
    if not place.edge:
        return beliefs[place.node]
    above = beliefs[tree.parents[place.node]]
    return place.turn(above[:, None] * dense(tree.transitions[place.node]))


def require_numbers(noise: Observation, n: Array, slope: Array, curvature: Array) -> None:
    """Refuse a noise whose slope or curvature, or what was made of them, is NaN at counts n.

    Raises
    ------
    ProblemError
        It names the noise and a count.
    """
    wrong = np.flatnonzero(np.isnan(slope) | np.isnan(curvature))
    if len(wrong):
        raise ProblemError(
            f"{type(noise).__name__}: slope or curvature is NaN at n = {n[wrong[0]]:g}, where finite numbers were expected: correct the "
            "noise (or use PathGibbs or Enumerate, which take log_prob alone)"
        )


def read_twice(problem: ClosedProblem) -> Array:
    """Of every observed entry that is not exact itself, the number that exact counts of the same table's entries give it; NaN elsewhere.

    A table of which all entries but one are exact is known completely. Correlated readings are left as they are.
    """
    tables: dict[Scope, Array] = {}
    for site in problem.sites:
        if site.noise.exact and site.index is not None:
            table = tables.setdefault(tuple(site.scope), np.full(site.size, np.nan))
            table[np.asarray(site.index)] = site.noise.counts
    for table in tables.values():
        if np.isnan(table).sum() == 1 and problem.numbers is None:
            table[np.isnan(table)] = problem.population - np.nansum(table)
    found = []
    for site in problem.sites:
        value = np.full(len(site), np.nan)
        if tuple(site.scope) in tables and not site.noise.exact and not site.noise.correlated:
            table = tables[tuple(site.scope)]
            missing = site.margin(np.isnan(table).astype(float)) > 0
            value = np.where(missing, np.nan, site.margin(np.nan_to_num(table)))
        found.append(value)
    return np.concatenate([np.zeros(0), *found])
