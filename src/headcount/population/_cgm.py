"""The exact law of a population's counts, CGM(N, θ).

    log p(n) = log h(n) + Σ_C θ_C·n_C − N A(θ)
             = log h(n) + Σ_C n_C·log μ_C − Σ_S ν(S) n_S·log μ_S
    log h(n) = log N! + Σ_S ν(S) Σ_i log n_S(i)! − Σ_C Σ_i log n_C(i)!

on integer tables that agree on every separator and sum to N; −∞ elsewhere. h(n) is the number of ordered
samples with those counts. Liu, Sheldon and Dietterich (2014), Proposition 1; Lauritzen (1996),
hyper-multinomial law.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import gammaln

from headcount._types import Array, Counts, Mask, Scope
from headcount.checks import brief, finite_number, generator, instance
from headcount.individual import Model, ModelError
from headcount.numerics import log_factorial, poisson_log_pmf
from headcount.population._law import PopulationLaw, Table, sample_tables
from headcount.population._size import SizeLaw
from headcount.population._tables import CountTables
from headcount.tables import Domain, dense


@final
@dataclass(frozen=True, eq=False)
class CGM(PopulationLaw):
    """The law of the clique and separator counts of N independent individuals.

    Parameters
    ----------
    model : Model
        The law of one individual.
    population : int or SizeLaw
        N, from 1 to 2⁵³; or its law, such as ``About(1000, sd=100)``.

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

    takes_laws: ClassVar[bool] = True

    def at(self, number: int) -> CGM:
        """The law given N = number."""
        return CGM(self.model, number)

    def log_pmf(
        self, tables: CountTables, *, form: Literal["marginals", "potentials"] = "marginals"
    ) -> float:
        """Log p(n); −∞ for tables that disagree, do not sum to N, or hold what cannot happen.

        Parameters
        ----------
        tables : CountTables
        form : {"marginals", "potentials"}
            Which of the two expressions is computed. They are equal; "marginals" is written as
            Σ_C log Poisson(n_C; Nμ_C) − Σ_S ν(S) log Poisson(n_S; Nμ_S) − log Poisson(N; N), term by term,
            and stays accurate when N is huge; "potentials" subtracts log-factorials and loses about 1e-16 ·
            N log N nats.
        """
        if not isinstance(form, str) or form not in ("marginals", "potentials"):
            raise ModelError(f"form is {brief(form)}; choose 'marginals' or 'potentials'")
        if isinstance(self.population, SizeLaw):
            instance(tables, CountTables, "tables", expected="CountTables")
            of_size = float(self.population.log_pmf(tables.population))
            return of_size + self.at(tables.population).log_pmf(tables, form=form)
        if self._impossible(tables):
            return -np.inf
        if form == "potentials":
            return self.log_base_measure(tables) + self._log_potentials(tables)
        return self._log_marginals(tables)

    def _log_marginals(self, tables: CountTables) -> float:
        """Σ_C n_C·log μ_C − Σ_S ν(S) n_S·log μ_S + log h(n), as a signed sum of Poisson log probabilities."""
        pairs = [_aligned(tables.table(scope), self._means[scope]) for scope, _ in self._signed_scopes]
        counts = [n for n, _ in pairs if n is not None]
        if len(counts) < len(pairs):
            return -np.inf
        signs = np.repeat([sign for _, sign in self._signed_scopes], [n.size for n in counts])
        terms = poisson_log_pmf(np.concatenate(counts), np.concatenate([m for _, m in pairs]))
        if np.isneginf(terms).any():
            return -np.inf
        return float(signs @ terms - poisson_log_pmf(self.population, self.population))

    def log_base_measure(self, tables: CountTables) -> float:
        """Log h(n), the log of the number of ordered samples with these counts; −∞ if there is none."""
        if self._impossible(tables):
            return -np.inf
        entries = [(sign, _entries(tables.table(s))) for s, sign in self._signed_scopes]
        signs = np.repeat([sign for sign, _ in entries], [n.size for _, n in entries])
        factorials = log_factorial(np.concatenate([n for _, n in entries]))
        return float(log_factorial(self.population) - signs @ factorials)

    def support(self, *, limit: float = 1e6) -> Iterator[CountTables]:
        """Yield every table of positive probability, once each.

        Raises
        ------
        ModelError
            If there may be more than `limit`, with both numbers.
        """
        if isinstance(self.population, SizeLaw):
            raise ModelError(
                "tables of every number of individuals cannot be listed: list law.at(N).support()"
            )
        limit = finite_number(
            limit, "limit", least=0.0, most=np.inf, expected="how many tables may be listed"
        )
        for tables in enumerate_support(self.model, self._means, self.population, limit=limit):
            yield CountTables(self.model, tables)

    def sample(self, *, rng: np.random.Generator | int) -> CountTables:
        """Draw one set of tables by multinomials down the junction tree; the cost does not depend on N."""
        if isinstance(self.population, SizeLaw):
            source = generator(rng)
            number = 0
            while number < 1:  # tables have at least one individual
                number = int(self.population.sample(1, rng=source)[0])
            return self.at(number).sample(rng=source)
        drawn = sample_tables(self.model, self._means, self.population, rng=generator(rng))
        return CountTables(self.model, drawn)

    def _impossible(self, tables: CountTables) -> bool:
        if not isinstance(tables, CountTables):
            raise ModelError(f"tables is {brief(tables)}: give CountTables")
        return tables.population != self.population or bool(tables.disagreements())

    def _log_potentials(self, tables: CountTables) -> float:
        """Σ_C θ_C·n_C − N A(θ), where 0·(−∞) = 0."""
        value = -self.population * self.model.log_partition
        for scope, theta in self.model.factors:
            counts = dense(tables.table(scope))
            held = counts > 0
            value += float((counts[held] * np.asarray(theta)[held]).sum())
        return value


def _entries(table: Table) -> Counts:
    """The entries, flat; those a sparse table does not hold are 0, and 0! = 1."""
    return table.data if sparse.issparse(table) else table.reshape(-1)


def _aligned(counts: Table, means: Table) -> tuple[Counts | None, Array]:
    """Counts and means entry by entry, flat; no counts if some lie where a sparse mean holds nothing."""
    if not sparse.issparse(means):
        return dense(counts).reshape(-1), means.reshape(-1)
    counts = sparse.csr_array(counts)
    rows = np.repeat(np.arange(means.shape[0]), np.diff(means.indptr))
    held = np.asarray(counts[rows, means.indices])
    return (held if held.sum() == counts.sum() else None), means.data


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


def enumerate_support(
    model: Model, means: Mapping[Scope, Any], population: int, *, limit: float
) -> Iterator[dict[Scope, Counts]]:
    """Yield the clique tables of every point of the support once.

    Raises
    ------
    ModelError
        If there may be more than `limit` of them, with both numbers.
    """
    bound = support_bound(model, means, population)
    if bound > limit:
        raise ModelError(
            f"the support may hold up to {bound:.3g} tables and the limit is {limit:.3g}; "
            f"take a smaller population or model, or raise limit"
        )
    tree = model.junction_tree
    possible = {clique: dense(means[clique]) > 0 for clique in tree.cliques}
    for table in _splits(np.array(population), possible[tree.cliques[0]], tree.domains[0], ()):
        yield from _extend(model, possible, {tree.cliques[0]: table}, 0)


def _extend(
    model: Model,
    possible: Mapping[Scope, Mask],
    tables: dict[Scope, Counts],
    depth: int,
) -> Iterator[dict[Scope, Counts]]:
    tree = model.junction_tree
    if depth == len(tree.edges):
        yield dict(tables)
        return
    a, b, separator = tree.edges[depth]
    clique = tree.cliques[b]
    above = tree.domains[a].project(tables[tree.cliques[a]], separator)
    for table in _splits(above, possible[clique], tree.domains[b], separator):
        yield from _extend(model, possible, {**tables, clique: table}, depth + 1)


def _splits(counts: Counts, possible: Mask, clique: Domain, separator: Scope) -> Iterator[Counts]:
    """Every table of a clique whose margin on the separator is `counts`."""
    front, back = clique.rows(separator)
    turned = possible.transpose(front)
    mask = turned.reshape(np.size(counts), -1)
    for rows in _each_row(np.reshape(counts, -1), mask.sum(axis=1)):
        table = np.zeros(mask.shape, dtype=np.int64)
        table[mask] = rows
        yield table.reshape(turned.shape).transpose(back)


def _each_row(counts: Counts, parts: Counts) -> Iterator[tuple[int, ...]]:
    if counts.size == 0:
        yield ()
        return
    for first in compositions(int(counts[0]), int(parts[0])).tolist():
        for others in _each_row(counts[1:], parts[1:]):
            yield (*first, *others)
