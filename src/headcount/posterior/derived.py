r"""Beliefs made from other beliefs: about what is seen from those about the cloud, over learned parameters, mixtures; one group alone.

With x ~ N(x̂, V) the parameters, V = S Sᵀ, and every column s of S one standard deviation of x, the law of total variance is

.. math::

    \operatorname{cov}(n | y) = \operatorname{cov}(n | y, \hat x) + \sum_s r_s r_s^\top,
    \qquad r_s = \tfrac12\left(E[n | y, \hat x + s] - E[n | y, \hat x - s]\right) .

The means are those at the estimate: they are ≥ 0, agree with each other and sum to N.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from string import ascii_letters
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from headcount._types import Array, Scope
from headcount.errors import ModelError
from headcount.individual import RootedTree, Tree
from headcount.observe.cloud import SIZES, Candidates, Seen, View, law_of_moves
from headcount.population import Exactly
from headcount.posterior._beliefs import Beliefs, GaussianBeliefs, Promises, Sizes
from headcount.posterior._draws import whole_draws
from headcount.posterior.interval import law_of_count
from headcount.tables import dense

if TYPE_CHECKING:
    from headcount.individual import Model
    from headcount.observe import ClosedProblem, Problem

LARGEST_COVARIANCE = 3000
"""Entries of a stacked table up to which the variance of a sum is read off its whole covariance (72 MB); above, off draws."""
CROSS_DRAWS = 400
"""Draws from which covariances between groups are found in larger tables: the sd of a sum is then known to about 3 %."""


class DerivedBeliefs(Beliefs):
    """Beliefs made from one other; what is not said anew is as there."""

    base: Beliefs

    @property
    def has_spread(self) -> bool:  # type: ignore[override]
        """As the base."""
        return self.base.has_spread

    @property
    def has_draws(self) -> bool:
        """As the base."""
        return self.base.has_draws

    @property
    def promises(self) -> Promises:
        """As the base: sums and multiples of means that are ≥ 0 and agree are so too."""
        return self.base.promises

    def mc_error(self, scope: Scope) -> Array | None:
        """As the base."""
        return self.base.mc_error(scope)


@dataclass(frozen=True)
class ViewBeliefs(DerivedBeliefs):
    """Beliefs about a cloud seen through a linear map: sums over members, one group, cells without hidden states, flocks."""

    base: Beliefs
    """About the larger graph; so is the evidence, to which the posterior adds `Problem.log_offset`."""
    view: View
    log_evidence: float | None
    diagnostics: Mapping[str, Any]
    candidates: Candidates | None = None
    """Where the engine had a known number of candidates, who they are."""

    @cached_property
    def sizes(self) -> Sizes | None:  # type: ignore[override]
        """The law of the number of individuals that are seen; None where it is known."""
        cloud = self.view.cloud if self.candidates is None else self.candidates.original
        mine = self.view.members
        shown = range(len(cloud.members)) if mine is None else mine
        members = [cloud.members[k] for k in shown]
        if all(member.law.variance == 0 for member in members):
            return None
        weights = {k: cloud.members[k].weight for k in shown}
        scope, row = self._size_row(weights)
        exact = self.base.law_of_sum(scope, row)
        if exact is not None:
            return exact
        mean = float(row @ np.ravel(dense(self.base.mean(scope))))
        if not self.base.has_spread:
            return Sizes(np.array([mean]), np.ones(1))
        variance = float(row @ np.asarray(self.base.covariance(scope, scope)) @ row)
        low = sum(w * cloud.members[k].law.least for k, w in weights.items())
        high = sum(w * float(cloud.members[k].law.most) for k, w in weights.items())
        step = min(weights.values()) if len(set(weights.values())) == 1 else 1.0
        values, chances = law_of_count((mean - low) / step, variance / step**2, (high - low) / step)
        return Sizes(low + step * values, chances)

    def _size_row(self, weights: Mapping[int, float]) -> tuple[Scope, Array]:
        """The table in which sizes of members stand, and their weights in it."""
        if self.candidates is None:
            row = np.zeros(len(self.view.cloud.members))
            row[list(weights)] = list(weights.values())
            return (SIZES,), row
        parts = [(weight, *self.candidates.there(k)) for k, weight in weights.items()]
        total = sum(weight * part.toarray()[0] for weight, _, part in parts)
        return (parts[0][1],), np.asarray(total)

    def mean(self, scope: Scope) -> Array:
        """M E[n]."""
        return self._seen(scope, dense(self.base.mean(scope)).ravel())

    def variance(self, scope: Scope) -> Array | None:
        """diag(M cov Mᵀ)."""
        alone = self.base.variance(scope)
        if alone is None:
            return None
        each, matrix = np.asarray(dense(alone), dtype=float).ravel(), self.view.matrix(scope)
        found = matrix.power(2) @ each
        several = abs(matrix).sign() @ (each > 0) > 1
        if several.any():
            found[several] += self._between(scope, matrix[several], each)
        return found.reshape(self.view.shape(scope))

    def _between(self, scope: Scope, matrix: csr_array, each: Array) -> Array:
        """What covariances between entries of the larger table add to the variances of their sums."""
        if matrix.shape[1] <= LARGEST_COVARIANCE:
            sums = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
            live = each[matrix.indices] > 0
            sums, entries, weights = sums[live], matrix.indices[live], matrix.data[live]
            one, two = np.nonzero(np.triu(sums[:, None] == sums, 1))
            try:
                found = self.base.pair_covariance(scope, entries[one], entries[two])
            except ModelError:  # the base's structure gives no covariances of flows
                pass
            else:
                between = 2.0 * weights[one] * weights[two] * found
                # Of no pairs there are whole numbers.
                return np.bincount(sums[one], between, matrix.shape[0]).astype(float)
        draws = self._draws[scope].reshape(CROSS_DRAWS, -1)
        return np.asarray((matrix @ draws.T).var(axis=1) - matrix.power(2) @ draws.var(axis=0))

    @cached_property
    def _draws(self) -> Mapping[Scope, Array]:
        return self.base.sample(CROSS_DRAWS, rng=np.random.default_rng(0), integer=False)

    def covariance(self, a: Scope, b: Scope) -> Array:
        """M_a cov M_bᵀ."""
        first, second = self.view.matrix(a), self.view.matrix(b)
        return np.asarray(first @ np.asarray(self.base.covariance(a, b)) @ second.T)

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool) -> dict[Scope, Array]:
        """Sums of draws."""
        drawn = self.base.sample(size, rng=rng, integer=integer)
        made = {}
        for scope, table in drawn.items():
            if SIZES in scope:  # a node that is not seen
                if len(drawn) > 1 or len(scope) == 1:
                    continue
                scope, table = scope[1:], table.sum(axis=1)
            flat = (self.view.matrix(scope) @ table.reshape(size, -1).T).T
            made[scope] = flat.reshape(size, *self.view.shape(scope))
        return made

    def quantile(self, scope: Scope, level: float) -> Array | None:
        """That of the base where every number seen is one entry; None for sums."""
        matrix = self.view.matrix(scope)
        if np.diff(matrix.indptr).max(initial=0) > 1:
            return None
        found = self.base.quantile(scope, level)
        return None if found is None else self._seen(scope, np.asarray(found).ravel())

    def mc_error(self, scope: Scope) -> Array | None:
        """Monte-Carlo standard error of every sd, where they come from draws."""
        matrix = self.view.matrix(scope)
        if np.diff(matrix.indptr).max(initial=0) <= 1:
            own = self.base.mc_error(scope)
            return None if own is None else self._seen(scope, np.ravel(dense(own)))
        if matrix.shape[1] <= LARGEST_COVARIANCE:
            return None
        variance = self.variance(scope)
        return None if variance is None else np.sqrt(np.maximum(variance, 0.0) / (2.0 * CROSS_DRAWS))

    def _seen(self, scope: Scope, flat: Array) -> Array:
        return np.asarray(self.view.matrix(scope) @ flat).reshape(self.view.shape(scope))


@dataclass(frozen=True)
class OneIndividual(Beliefs):
    r"""One individual whose path x has a known law p.

    Its counts are indicators e with E[e] = p and

    .. math:: \operatorname{cov}(e_a, e_b) = P(x_a, x_b) - p_a p_b^\top .
    """

    model: Model
    """p."""
    diagnostics: Mapping[str, Any]
    has_spread: bool = True  # type: ignore[misc]
    log_evidence: float | None = None
    population: ClassVar[float] = 1.0

    @property
    def any_table(self) -> bool:
        """The law of a path has them all."""
        return True

    @property
    def promises(self) -> Promises:
        """Probabilities."""
        return Promises(non_negative=True, consistent=True)

    def mean(self, scope: Scope) -> Array:
        """p."""
        return self.model.marginal(scope)

    def variance(self, scope: Scope) -> Array | None:
        """p (1 − p)."""
        mean = self.mean(scope)
        return mean * (1.0 - mean) if self.has_spread else None

    def covariance(self, a: Scope, b: Scope) -> Array:
        """P(x_a, x_b) − p_a p_bᵀ; a variable that stands in both has one state."""
        names = tuple(dict.fromkeys((*a, *b)))
        joint = np.zeros([*self.mean(a).shape, *self.mean(b).shape])
        axes = "".join(ascii_letters[names.index(v)] for v in (*a, *b))
        np.einsum(f"{axes}->{ascii_letters[: len(names)]}", joint)[...] = self.mean(
            names
        )  # a view of equal states
        return joint.reshape(self.mean(a).size, -1) - np.outer(self.mean(a), self.mean(b))

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool) -> dict[Scope, Array]:
        """Paths, as tables with a single one."""
        del integer
        paths = self.model.sample(size, rng=rng)
        place = {v: k for k, v in enumerate(self.model.variables)}
        drawn = {}
        for clique in self.model.junction_tree.cliques:
            table = np.zeros((size, *self.mean(tuple(clique)).shape))
            table[(np.arange(size), *(paths[:, place[v]] for v in clique))] = 1.0
            drawn[tuple(clique)] = table
        return drawn


@dataclass(frozen=True)
class IntegratedBeliefs(DerivedBeliefs):
    """Beliefs at estimated parameters, with the uncertainty of the estimate."""

    base: Beliefs
    """At the estimate."""
    asked: Problem
    """With the model at the estimate."""
    response: Callable[[Scope], Array]
    """r: change of a table's mean per standard deviation of the estimate, shape (entries, columns of S)."""
    log_evidence: float | None
    diagnostics: Mapping[str, Any]

    @property
    def model(self) -> Model:
        """The model at the estimate."""
        return self.asked.model

    @property
    def problem(self) -> ClosedProblem:
        """The counts as ones of individuals in cells."""
        return self.asked.on_cells

    @cached_property
    def population(self) -> float:
        """The expected number of individuals."""
        return float(np.sum(dense(self.base.mean(self.model.variables[:1]))))

    def mean(self, scope: Scope) -> Array:
        """As at the estimate: exact to first order."""
        return self.base.mean(scope)

    def variance(self, scope: Scope) -> Array | None:
        """That at the estimate, and that of the estimate."""
        known = self.base.variance(scope)
        if known is None:
            return None
        extra = np.einsum("ak,ak->a", *[self.response(scope)] * 2)
        return np.asarray(dense(known), dtype=float) + extra.reshape(np.shape(known))

    def covariance(self, a: Scope, b: Scope) -> Array:
        """That at the estimate, and that of the estimate."""
        return np.asarray(self.base.covariance(a, b)) + self.response(a) @ self.response(b).T

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool) -> dict[Scope, Array]:
        """Draws at the estimate, moved by draws of the estimate; as integers, rounded so that tables still agree."""
        if integer and self.asked.model.has_hidden_states:
            # Tables of cells alone do not say who came and left, so that only draws at the estimate can be whole and agree.
            return self.base.sample(size, rng=rng, integer=True)
        if integer:
            like_gaussian: Any = self  # it has all that rounding asks of Gaussian beliefs
            return whole_draws(like_gaussian, size, rng=rng, sweep=False)
        draws = self.base.sample(size, rng=rng, integer=False)
        first = next(iter(draws))
        moves = rng.normal(size=(size, self.response(first).shape[1]))
        return {s: t + (moves @ self.response(s).T).reshape(t.shape) for s, t in draws.items()}

    @property
    def sizes(self) -> Sizes | None:  # type: ignore[override]
        """As at the estimate, widened by what the estimate adds to the spread of the total."""
        found = self.base.sizes
        if found is None:
            return None
        first = self.model.variables[:1]
        return found.widened(float(np.square(self.response(first).sum(axis=0)).sum()))


@dataclass(frozen=True)
class MixtureBeliefs(Beliefs):
    """Several answers, each right with some probability: one per maximum of the evidence."""

    parts: Sequence[Beliefs]
    weights: Array
    """Probabilities of the parts; they sum to 1."""
    log_evidence: float | None
    diagnostics: Mapping[str, Any]

    @cached_property
    def sizes(self) -> Sizes | None:  # type: ignore[override]
        """Of all parts together."""
        laws = [part.sizes for part in self.parts]
        if any(law is None for law in laws):
            return None
        values = np.concatenate([law.values for law in laws if law is not None])
        chances = [
            w * law.probabilities for w, law in zip(self.weights, laws, strict=True) if law is not None
        ]
        whole, which = np.unique(values, return_inverse=True)
        return Sizes(whole, np.asarray(np.bincount(which, np.concatenate(chances)), dtype=float))

    @property
    def has_draws(self) -> bool:
        """Whether all parts can be drawn from."""
        return all(part.has_draws for part in self.parts)

    def mean(self, scope: Scope) -> Array:
        """Weighted mean."""
        return np.asarray(
            sum(w * np.asarray(dense(p.mean(scope))) for w, p in zip(self.weights, self.parts, strict=True))
        )

    def variance(self, scope: Scope) -> Array | None:
        """Weighted mean of the variances, and the variance of the means."""
        middle, total = self.mean(scope), np.zeros(1)
        for weight, part in zip(self.weights, self.parts, strict=True):
            known = part.variance(scope)
            if known is None:
                return None
            total = total + weight * (np.asarray(dense(known)) + (dense(part.mean(scope)) - middle) ** 2)
        return np.asarray(total)

    def covariance(self, a: Scope, b: Scope) -> Array:
        """Weighted mean of the covariances, and the covariance of the means."""
        ends = [[np.ravel(dense(p.mean(s))) for p in self.parts] for s in (a, b)]
        middle = [np.ravel(self.mean(s)) for s in (a, b)]
        return np.asarray(
            sum(
                w * (np.asarray(part.covariance(a, b)) + np.outer(one - middle[0], other - middle[1]))
                for w, part, one, other in zip(self.weights, self.parts, *ends, strict=True)
            )
        )

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool) -> dict[Scope, Array]:
        """Draws of the parts, as many of each as their weights say, in random order."""
        sizes = rng.multinomial(size, self.weights)
        drawn = [
            part.sample(int(k), rng=rng, integer=integer)
            for part, k in zip(self.parts, sizes, strict=True)
            if k
        ]
        order = rng.permutation(size)
        return {s: np.concatenate([np.asarray(one[s]) for one in drawn])[order] for s in drawn[0]}

    @cached_property
    def promises(self) -> Promises:
        """What holds of all parts: averages keep it."""
        every = [part.promises for part in self.parts]
        return Promises(
            all(p.non_negative for p in every),
            all(p.consistent for p in every),
            all(p.sums_to_population for p in every),
        )

    def mc_error(self, scope: Scope) -> Array | None:
        """That of the most probable part."""
        return self.parts[int(np.argmax(self.weights))].mc_error(scope)


# --- parts of a population: one of several groups; those who arrive, leave and stay


def seen_beliefs(beliefs: Beliefs) -> list[ViewBeliefs]:
    """The beliefs about a cloud that others are made from: one, or one per part of a mixture.

    Raises
    ------
    ValueError
        Where they are about a plain population.
    """
    if isinstance(beliefs, MixtureBeliefs):
        return [one for part in beliefs.parts for one in seen_beliefs(part)]
    if isinstance(beliefs, IntegratedBeliefs):  # at the estimate
        return seen_beliefs(beliefs.base)
    if not isinstance(beliefs, ViewBeliefs):
        raise ValueError("this posterior has one kind of individuals, all of whom are in its cells")
    return [beliefs]


def seen_otherwise(beliefs: Beliefs, view: Callable[[View], View]) -> Beliefs:
    """Beliefs about the same cloud, at the estimate where parameters were learned, through another view."""
    if isinstance(beliefs, MixtureBeliefs):
        return replace(
            beliefs, parts=[seen_otherwise(part, view) for part in beliefs.parts], log_evidence=None
        )
    (own,) = seen_beliefs(beliefs)
    return replace(own, view=view(own.view), log_evidence=None)


def one_group(problem: Problem, beliefs: Beliefs, name: Hashable) -> tuple[Problem, Beliefs]:
    """The problem of one group, or of one tagged individual, and beliefs about it."""
    own, cloud = problem.of(name), problem.cloud
    if problem.groups is not None and name in problem.groups:
        members = cloud.of_group(name)
        found = partial(seen_otherwise, view=lambda view: replace(view, members=members))
    else:
        tag = cloud.of_tag(name)
        assert tag is not None  # `of` knows it
        found = partial(_tagged, tag=tag)
    if problem.groups is not None and isinstance(beliefs, IntegratedBeliefs):
        raise ValueError(
            "this posterior has the sum of the groups only (its parameters were learned): infer again with the learned model"
        )
    return own, found(beliefs)


def _tagged(beliefs: Beliefs, tag: int) -> Beliefs:
    """Beliefs about one tagged individual: it moves as all do who have its record, and is in one cell."""
    if isinstance(beliefs, MixtureBeliefs):
        parts = [_tagged(part, tag) for part in beliefs.parts]
        return MixtureBeliefs(parts, beliefs.weights, None, beliefs.diagnostics)
    (own,) = seen_beliefs(beliefs)
    plain = own.view.cloud if own.candidates is None else own.candidates.original
    if len(plain.members[tag].tags) == 1 and not isinstance(own.base, GaussianBeliefs):
        return replace(own, view=replace(own.view, members=(tag,)), log_evidence=None)
    member = replace(plain.members[tag], law=Exactly(1), tags=plain.members[tag].tags[:1])
    tree = member.tree

    def law_of(*nodes: int, nobody: Any) -> Array:
        expected = member_mean(own, tag, tuple(tree.variables[v] for v in nodes))
        return law_of_moves(np.maximum(expected, 0.0), nobody=nobody)  # a Gaussian's mean may be below 0

    steps = [law_of(tree.parents[v], v, nobody=tree.transitions[v]) for v in range(1, len(tree.parents))]
    law = RootedTree(tree.variables, tree.parent, law_of(0, nobody=tree.initial), (None, *steps))
    one = OneIndividual(Tree.from_rooted(law), own.diagnostics, own.has_spread)
    cloud = replace(plain, members=(member,), sites=())
    return ViewBeliefs(one, cloud.view((0,)), None, own.diagnostics)


def seen_as(beliefs: Beliefs, what: Seen) -> Beliefs:
    """Beliefs about who came, left or stayed."""
    return seen_otherwise(beliefs, lambda view: replace(view, what=what))


def member_mean(beliefs: Beliefs, member: int, scope: Scope) -> Array:
    """Expected counts of units of one member, on all its own states."""
    if isinstance(beliefs, MixtureBeliefs):
        parts = zip(beliefs.weights, beliefs.parts, strict=True)
        return np.asarray(sum(weight * member_mean(part, member, scope) for weight, part in parts))
    (own,) = seen_beliefs(beliefs)
    cloud = own.view.cloud
    table = np.asarray(dense(own.base.mean(scope)))
    ends = [cloud.starts[cloud.index[v]] for v in scope]
    # Candidates have one more state, absence.
    plain = cloud if own.candidates is None else own.candidates.original
    sizes = [plain.members[member].tree.sizes[cloud.index[v]] for v in scope]
    return table[tuple(slice(int(e[member]), int(e[member]) + n) for e, n in zip(ends, sizes, strict=True))]


def member_sizes(beliefs: Beliefs) -> Array:
    """Expected numbers of units of every member."""
    own = seen_beliefs(beliefs)[0]
    if own.candidates is None:
        return np.asarray(dense(own.base.mean((SIZES,))), dtype=float)
    rows = [own.candidates.there(k) for k in range(len(own.view.cloud.members))]
    return np.array([float(row.toarray()[0] @ np.ravel(dense(own.base.mean((v,))))) for v, row in rows])


def total_law(beliefs: Beliefs, scope: Scope, law: Any) -> Sizes:
    """The law of the total of a table, for a population whose size has a law and whose tables are all seen."""
    mean = float(np.sum(dense(beliefs.mean(scope))))
    exact = beliefs.law_of_sum(scope, np.ones(np.size(dense(beliefs.mean(scope)))))
    if exact is not None:
        return exact
    if not beliefs.has_spread:
        return Sizes(np.array([mean]), np.ones(1))
    variance = float(np.sum(np.asarray(beliefs.covariance(scope, scope))))
    values, chances = law_of_count(mean - law.least, variance, float(law.most - law.least))
    return Sizes(law.least + values, chances)
