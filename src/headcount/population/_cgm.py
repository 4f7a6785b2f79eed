"""The exact law of a population's counts, CGM(N, θ).

    log p(n) = log h(n) + Σ_C θ_C·n_C − N A(θ)
             = log h(n) + Σ_C n_C·log μ_C − Σ_S ν(S) n_S·log μ_S
    log h(n) = log N! + Σ_S ν(S) Σ_i log n_S(i)! − Σ_C Σ_i log n_C(i)!

on integer tables that agree on every separator and sum to N; −∞ elsewhere. h(n) is the number of ordered
samples with those counts. Liu, Sheldon and Dietterich (2014), Proposition 1; Lauritzen (1996),
hyper-multinomial law. Its moments are

    E n_A = N μ_A,        cov(n_A, n_B) = N (⟨μ_{A,B}⟩ − μ_A μ_Bᵀ)

exact for every N. ⟨μ_{A,B}⟩ has entries P(x_A = i_A, x_B = i_B); A and B may be the same, overlap, or lie far apart. Counts are drawn
by one multinomial per separator entry, without a loop over individuals:

    n_root ~ Multinomial(N, μ_root),      n_C(s, ·) | n_S(s) ~ Multinomial(n_S(s), μ_C(s, ·)/μ_S(s))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import gammaln

from headcount import memory
from headcount._device import row_of_entries
from headcount._types import Array, Counts, Mask, Scope
from headcount.checks import finite_number, generator, instance, whole_number
from headcount.errors import raise_all
from headcount.individual import Model, ModelError
from headcount.individual._model import checked_model
from headcount.numerics import poisson_log_pmf
from headcount.population._dispersion import Dispersion
from headcount.population._size import SizeLaw, as_law
from headcount.population._tables import CountTables, Table
from headcount.tables import Domain, dense


@final
@dataclass(frozen=True, eq=False)
class CGM:
    """The exact law of the clique and separator counts: of a `Model` and N, or of a law of N such as ``About(1000, sd=100)``.

    Examples
    --------
    >>> from headcount.individual import MarkovChain
    >>> from headcount.population import CGM
    >>> chain = MarkovChain([1.0, 0.0], [[0.5, 0.5], [0.0, 1.0]], times=(0, 1, 2))
    >>> law = CGM(chain, 4)
    >>> law.mean((2,))
    array([1., 3.])
    >>> n = law.sample(rng=1)
    >>> n.population
    4
    """

    model: Model
    """The law of one individual."""
    population: Any
    """N, from 1 to 2⁵³, or a law of it."""

    def __post_init__(self) -> None:
        checked_model(self.model)
        if not isinstance(self.population, SizeLaw):
            # Up to 2⁵³, floating point counts one by one.
            object.__setattr__(self, "population", whole_number(self.population, "population", least=1))

    @property
    def size_known(self) -> bool:
        """Whether N is a number."""
        return isinstance(self.population, int)

    @cached_property
    def means(self) -> dict[Scope, Table]:
        """N μ_A of every clique and separator."""
        return table_means(self.model, self.population)

    @cached_property
    def signed_scopes(self) -> tuple[tuple[Scope, int], ...]:
        """Every clique with +1 and every separator with −ν(S)."""
        tree = self.model.junction_tree
        return (*((c, 1) for c in tree.cliques), *((s, -nu) for s, nu in tree.separators.items()))

    def mean(self, scope: Sequence[Hashable]) -> Array:
        """E n_A = E[N] μ_A, one axis per variable; any scope A."""
        return as_law(self.population).mean * self.model.marginal(scope)

    def covariance(
        self,
        a: Sequence[Hashable],
        b: Sequence[Hashable] | None = None,
        *,
        memory_limit: int | None = None,
    ) -> Array:
        """cov(n_A, n_B) = E[N] (⟨μ_{A,B}⟩ − μ_A μ_Bᵀ) + Var[N] μ_A μ_Bᵀ, exact for every N; entries in C order of the tables."""
        law = as_law(self.population)
        given = covariance(self.model, law.mean, a, b, memory_limit=memory_limit)
        if law.is_known:
            return given
        mu = [self.model.marginal(scope).reshape(-1) for scope in (a, a if b is None else b)]
        return given + law.variance * np.outer(*mu)

    def at(self, number: int) -> CGM:
        """The law given N = number."""
        return CGM(self.model, number)

    def log_pmf(self, tables: CountTables) -> float:
        """Log p(n); −∞ for tables that disagree, do not sum to N, or hold what cannot happen.

        Written as Σ_C log Poisson(n_C; Nμ_C) − Σ_S ν(S) log Poisson(n_S; Nμ_S) − log Poisson(N; N), term by term, which
        stays accurate when N is huge: differences of log-factorials lose about 1e-16 · N log N nats.
        """
        instance(tables, CountTables, "tables", expected="CountTables")
        if not self.size_known:
            return float(self.population.log_pmf(tables.population)) + self.at(tables.population).log_pmf(
                tables
            )
        if tables.population != self.population or tables.disagreements():
            return -np.inf
        held = [tables.table(scope) for scope, _ in self.signed_scopes]
        pairs = [on_support(n, self.means[s]) for n, (s, _) in zip(held, self.signed_scopes, strict=True)]
        if any(possible.sum() != n.sum() for n, (possible, _) in zip(held, pairs, strict=True)):
            return -np.inf
        counts, means = map(np.concatenate, zip(*pairs, strict=True))
        signs = np.repeat([sign for _, sign in self.signed_scopes], [n.size for n, _ in pairs])
        terms = poisson_log_pmf(counts, means)
        return float(signs @ terms - poisson_log_pmf(self.population, self.population))

    def support(self, *, limit: float = 1e6) -> Iterator[CountTables]:
        """Yield every table of positive probability, once each.

        Raises
        ------
        ModelError
            If there may be more than `limit`, with both numbers.
        """
        if not self.size_known:
            raise ModelError(
                "tables of every number of individuals cannot be listed: list law.at(N).support()"
            )
        limit = finite_number(
            limit, "limit", least=0.0, most=np.inf, expected="how many tables may be listed"
        )
        bound = support_bound(self.model, self.means, self.population)
        if bound > limit:
            raise ModelError(
                f"the support may hold up to {bound:.3g} tables and the limit is {limit:.3g}; "
                f"take a smaller population or model, or raise limit"
            )
        tree = self.model.junction_tree
        possible = {clique: dense(self.means[clique]) > 0 for clique in tree.cliques}

        def extended(tables: dict[Scope, Counts]) -> Iterator[CountTables]:
            """Every completion of tables that are given for the first cliques of the junction tree's steps."""
            if len(tables) == len(tree.steps):
                yield CountTables(self.model, tables)
                return
            clique, parent, separator = tree.steps[len(tables)]
            domain, above = tree.domains[clique], np.array(self.population)
            if parent >= 0:
                over = tree.domains[tree.steps[parent][0]]
                above = over.project(tables[over.scope], separator)
            for table in _splits(above, possible[domain.scope], domain, separator):
                yield from extended({**tables, domain.scope: table})

        yield from extended({})

    def sample(self, *, rng: np.random.Generator | int) -> CountTables:
        """Draw one set of tables by multinomials down the junction tree; the cost does not depend on N."""
        if not self.size_known:
            source = generator(rng)
            number = 0
            while number < 1:  # tables have at least one individual
                number = int(self.population.sample(1, rng=source)[0])
            return self.at(number).sample(rng=source)
        drawn = sample_tables(self.model, self.means, self.population, rng=generator(rng))
        return CountTables(self.model, drawn)


def on_support(table: Table, means: Table) -> tuple[Array, Array]:
    """The entries of a table and of its expected values where these are positive, flat."""
    if not sparse.issparse(means):
        held = means > 0
        return np.asarray(dense(table), dtype=float)[held], means[held]
    held = means.data > 0
    rows, columns = row_of_entries(means)[held], means.indices[held]
    return np.asarray(sparse.csr_array(table)[rows, columns], dtype=float), means.data[held]


def compositions(total: int, parts: int) -> NDArray[np.signedinteger]:
    """Every way to write `total` as an ordered sum of `parts` integers ≥ 0, one per row, in the smallest type that holds them."""
    kind = np.result_type(np.int16, np.min_scalar_type(-total - 1))
    if parts == 0:
        return np.zeros((1 if total == 0 else 0, 0), dtype=kind)
    rows = np.zeros((1, 0), dtype=kind)
    left = np.array([total], dtype=np.int64)
    for _ in range(parts - 1):
        choices = left + 1
        parent = np.repeat(np.arange(len(left)), choices)
        value = np.arange(len(parent)) - np.repeat(np.cumsum(choices) - choices, choices)
        rows = np.concatenate([rows[parent], value[:, None].astype(kind)], axis=1)
        left = left[parent] - value
    return np.concatenate([rows, left[:, None].astype(kind)], axis=1)


def support_bound(model: Model, means: Mapping[Scope, Any], population: int) -> float:
    """Bound from above how many tables the support has, cheaply.

    Given its separator, a clique's table splits each n_S(s) into R_s possible parts: Π_s C(n_S(s) + R_s −
    1, R_s − 1) ways. That is log-concave in n_S, so with R = max R_s over k possible s it is at most C(N/k
    + R − 1, R − 1)^k.
    """
    tree = model.junction_tree
    log_bound = _log_compositions(population, int(np.count_nonzero(dense(means[tree.cliques[0]]))))
    for _, b, separator in tree.edges:
        possible = dense(means[tree.cliques[b]]) > 0
        parts = tree.domains[b].project(possible.astype(int), separator).reshape(-1)
        rows = np.count_nonzero(parts)
        log_bound += rows * _log_compositions(population / rows, int(parts.max()))
    return math.exp(log_bound) if log_bound < 700 else math.inf


def _log_compositions(total: float, parts: int) -> float:
    return float(gammaln(total + parts) - gammaln(parts) - gammaln(total + 1))


def _splits(counts: Counts, possible: Mask, clique: Domain, separator: Scope) -> Iterator[Counts]:
    """Every table of a clique whose margin on the separator is `counts`."""
    mask, back = clique.by_rows(possible, separator)
    for rows in _each_row(np.reshape(counts, -1), mask.sum(axis=1)):
        table = np.zeros(mask.shape, dtype=np.int64)
        table[mask] = rows
        yield back(table)


def _each_row(counts: Counts, parts: Counts) -> Iterator[tuple[int, ...]]:
    if counts.size == 0:
        yield ()
        return
    for first in compositions(int(counts[0]), int(parts[0])).tolist():
        for others in _each_row(counts[1:], parts[1:]):
            yield (*first, *others)


def covariance(
    model: Model,
    population: float,
    a: Sequence[Hashable],
    b: Sequence[Hashable] | None = None,
    *,
    memory_limit: int | None = None,
) -> Array:
    """N (⟨μ_{A,B}⟩ − μ_A μ_Bᵀ), rows and columns in C order of the tables; b = a if left out.

    Raises
    ------
    ModelError
        If the matrix would take more than `memory_limit` bytes, with both numbers.
    """
    b = a if b is None else b
    rows, columns = model.domain(a).size, model.domain(b).size
    memory.require(
        8 * rows * columns,
        f"the covariance of {tuple(a)!r} and {tuple(b)!r}",
        limit=memory_limit,
        remedy="ask for smaller margins",
    )
    mu_a, mu_b = model.marginal(a).reshape(-1), model.marginal(b).reshape(-1)
    return population * (model.joint_marginal(a, b) - np.outer(mu_a, mu_b))


def table_means(model: Model, population: float) -> dict[Scope, Table]:
    """N μ_A of every clique and separator.

    An edge of a rooted tree is diag(N μ_u) P, read off its transition matrix: a sparse one stays sparse,
    and a long chain costs no more per step than a short one.
    """
    tree = model.junction_tree
    rooted = model.rooted()
    if rooted is None or not any(rooted.is_sparse):
        memory.require(
            8 * sum(tree.table_sizes),
            "the expected tables of all cliques",
            remedy="give sparse transitions or merge states",
        )
    means: dict[Scope, Table] = {}
    for scope in dict.fromkeys([*tree.cliques, *tree.separators]):
        place = rooted.find(scope) if rooted is not None else None
        if rooted is None or place is None or not place.edge:
            means[scope] = population * model.marginal(scope)
            continue
        above = population * model.marginal(scope[1:] if place.turned else scope[:1])
        p = rooted.transitions[place.node]
        if sparse.issparse(p):
            means[scope] = sparse.csr_array(place.turn(sparse.diags_array(above) @ p))
        else:
            means[scope] = np.ascontiguousarray(place.turn(above[:, None] * p))
    return means


def multinomial(counts: Counts, weights: Array, *, rng: np.random.Generator) -> Counts:
    """Share out each row's count among its columns: row r is Multinomial(counts[r], weights[r]/Σ weights[r]).

    Parameters
    ----------
    counts : array, shape (R,)
        How many to share out, up to 2⁵³.
    weights : array, shape (R, K)
        Finite and ≥ 0; a row with something to share out has a positive one.
    rng : numpy.random.Generator

    Notes
    -----
    Not ``Generator.multinomial``: it subtracts probabilities from 1 as it goes, and what rounding leaves
    over ends up in the last category even if that is impossible. Here column k takes Binomial(rest,
    w_k/Σ_{j≥k} w_j), the tail summed from the right, so an impossible entry gets nothing and the last
    possible one all that is left, at any size.
    """
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ModelError(f"probabilities must be finite and 0 or more; the smallest is {weights.min()}")
    tail = np.cumsum(weights[:, ::-1], axis=1)[:, ::-1]
    if weights.shape[1] == 0 or ((tail[:, 0] <= 0) & (counts > 0)).any():
        raise ModelError("there are individuals to share out in a row without a possible entry")
    drawn = np.zeros(weights.shape, dtype=np.int64)
    rest = counts.astype(np.int64)
    for k in range(weights.shape[1]):
        rows = np.flatnonzero((rest > 0) & (weights[:, k] > 0))
        if rows.size:
            drawn[rows, k] = rng.binomial(rest[rows], weights[rows, k] / tail[rows, k])
            rest[rows] -= drawn[rows, k]
    return drawn


def sample_tables(
    model: Model, means: Mapping[Scope, Any], population: int, *, rng: np.random.Generator
) -> dict[Scope, Any]:
    """One draw of every clique's table, root first; `means` are the expected tables (any scale)."""
    return descend(
        model, np.array(population), lambda counts, c, s: _share_out(counts, means[c.scope], c, s, rng)
    )


def sample_together(
    model: Model, dispersion: Dispersion, population: int, *, rng: np.random.Generator
) -> dict[Scope, Any]:
    """One draw of every clique's table, of individuals that move together.

    Flocks of c: N // c flocks, and one of those left over. Overdispersion with phi: of those in a state, parties of phi and one of those
    left over. Overdispersion with rho: each row's probabilities are Dirichlet(p (1 − rho)/rho), anew at every step.

    Raises
    ------
    ModelError
        For sizes and phi that are no whole numbers, and for overdispersion on a model without steps.
    """
    if not dispersion.of_steps:
        size = _whole_size(dispersion.flock_size, "the size of a flock")
        means = table_means(model, 1.0)
        drawn = sample_tables(model, means, population // size, rng=rng)
        rest = sample_tables(model, means, 1, rng=rng)
        return {c: size * drawn[c] + population % size * rest[c] for c in drawn}
    raise_all(f"dispersion is {dispersion}: {text}" for text in dispersion.misfits(model, population))
    tree = model.rooted()
    assert tree is not None
    factor = dispersion.initial or 0.0
    counts = [overdispersed_moves(np.array([population]), tree.initial[None, :], dispersion, factor, rng)[0]]
    found: dict[Scope, Any] = {}
    phi = dispersion.phi_of(tree, population, lambda v: np.zeros(len(model.states[v])))
    for v in range(1, len(tree.parents)):
        u = tree.parents[v]
        factors = phi[v] if dispersion.rho is None else dispersion.rows(tree.variables[v], tree.sizes[u])
        table = overdispersed_moves(counts[u], dense(tree.transitions[v]), dispersion, factors, rng)
        counts.append(table.sum(axis=0))
        found[(tree.variables[u], tree.variables[v])] = table
    return found or {tree.variables: counts[0]}


def overdispersed_moves(
    counts: NDArray[np.int64],
    p: NDArray[np.float64],
    overdispersion: Dispersion,
    factors: Any,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Share out each row's count overdispersed: `factors` is rho or phi of every row (or one for all); 0 is no overdispersion."""
    if np.all(np.equal(factors, 0.0)):
        return multinomial(counts, p, rng=rng)
    if overdispersion.rho is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            rho = np.reshape(factors, (-1, 1))
            shape = np.where(p > 0, p * (1.0 - rho) / rho, 0.0)
        # A row without overdispersion has infinite shapes: its own probabilities.
        weights = np.where(np.isinf(shape), p, rng.standard_gamma(np.where(np.isinf(shape), 1.0, shape)))
        # Tiny shapes may all underflow to zero; then everyone goes one way.
        lost = np.flatnonzero(weights.sum(axis=1) <= 0)
        weights[lost] = multinomial(np.ones(len(lost), dtype=np.int64), p[lost], rng=rng)
        return multinomial(counts, weights, rng=rng)
    size = np.array([_whole_size(f, "phi") for f in np.broadcast_to(factors, counts.shape)])
    parties = size[:, None] * multinomial(counts // size, p, rng=rng)
    return parties + (counts % size)[:, None] * multinomial(np.ones_like(counts), p, rng=rng)


def _whole_size(size: float, what: str) -> int:
    if size < 1 or size != round(size):
        raise ModelError(
            f"{what} is {size:g}: only whole numbers, 1 or more, can be simulated; Overdispersion(rho=…) takes any correlation"
        )
    return int(size)


def descend(model: Model, total: NDArray[Any], draw: Callable[[Any, Domain, Scope], Any]) -> dict[Scope, Any]:
    """Every clique's table from the root down, by ``draw(the parent's table on the separator, clique, separator)``."""
    tree = model.junction_tree
    tables: list[Any] = []
    for clique, parent, separator in tree.steps:
        above = (
            total if parent < 0 else tree.domains[tree.steps[parent][0]].project(tables[parent], separator)
        )
        tables.append(draw(above, tree.domains[clique], separator))
    return {tree.cliques[clique]: table for (clique, _, _), table in zip(tree.steps, tables, strict=True)}


def _share_out(
    counts: Counts, weights: Any, clique: Domain, separator: Scope, rng: np.random.Generator
) -> Any:
    """One draw of a clique's table given its separator's."""
    if sparse.issparse(weights):
        return _share_out_sparse(counts, weights, clique.scope, separator, rng)
    rows, back = clique.by_rows(weights, separator)
    return back(multinomial(np.reshape(counts, -1), rows, rng=rng))


def _share_out_sparse(
    counts: Counts,
    weights: Any,
    clique: Scope,
    separator: Scope,
    rng: np.random.Generator,
) -> Any:
    """The same for a sparse edge: rows padded with zeros to the longest one."""
    if separator == ():
        flat = multinomial(np.reshape(counts, -1), weights.data[None, :], rng=rng)[0]
        return sparse.csr_array((flat, weights.indices.copy(), weights.indptr.copy()), shape=weights.shape)
    if separator == (clique[1],):
        return sparse.csr_array(_share_out_sparse(counts, weights.T.tocsr(), clique[::-1], separator, rng).T)
    lengths = np.diff(weights.indptr)
    place = np.arange(lengths.max(initial=0)) < lengths[:, None]
    padded = np.zeros(place.shape)
    padded[place] = weights.data
    drawn = multinomial(counts, padded, rng=rng)[place]
    table = sparse.csr_array((drawn, weights.indices.copy(), weights.indptr.copy()), shape=weights.shape)
    table.eliminate_zeros()
    return table
