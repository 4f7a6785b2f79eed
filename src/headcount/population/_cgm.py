"""The exact law of a population's counts, CGM(N, θ).

    log p(n) = log h(n) + Σ_C θ_C·n_C − N A(θ)
             = log h(n) + Σ_C n_C·log μ_C − Σ_S ν(S) n_S·log μ_S
    log h(n) = log N! + Σ_S ν(S) Σ_i log n_S(i)! − Σ_C Σ_i log n_C(i)!

on integer tables that agree on every separator and sum to N; −∞ elsewhere. h(n) is the number of ordered
samples with those counts. Liu, Sheldon and Dietterich (2014), Proposition 1; Lauritzen (1996),
hyper-multinomial law.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import numpy as np
from scipy import sparse

from headcount._types import Array, Counts
from headcount.checks import brief, finite_number, generator
from headcount.individual import Model, ModelError
from headcount.individual._model import checked_model
from headcount.numerics import log_factorial, poisson_log_pmf
from headcount.population import _moments, _sampling, _support
from headcount.population._tables import CountTables, Table
from headcount.tables import Scope, dense


@final
@dataclass(frozen=True, eq=False)
class CGM:
    """The law of the clique and separator counts of N independent individuals.

    Parameters
    ----------
    model : Model
        The law of one individual.
    population : int
        N, from 1 to 2⁵³.

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
    population: int

    def __post_init__(self) -> None:
        checked_model(self.model)
        object.__setattr__(self, "population", _moments.checked_population(self.population))

    @cached_property
    def _means(self) -> dict[Scope, Table]:
        return _moments.table_means(self.model, self.population)

    def mean(self, scope: Sequence[Hashable]) -> Array:
        """E n_A = N μ_A, one axis per variable; any scope A."""
        return _moments.mean(self.model, self.population, scope)

    def covariance(
        self,
        a: Sequence[Hashable],
        b: Sequence[Hashable] | None = None,
        *,
        memory_limit: int | None = None,
    ) -> Array:
        """cov(n_A, n_B) = N (⟨μ_{A,B}⟩ − μ_A μ_Bᵀ), exact for every N; entries in C order of the tables."""
        return _moments.covariance(self.model, self.population, a, b, memory_limit=memory_limit)

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

    @cached_property
    def _signed_scopes(self) -> tuple[tuple[Scope, int], ...]:
        """Every clique with +1 and every separator with −ν(S)."""
        tree = self.model.junction_tree
        return (*((c, 1) for c in tree.cliques), *((s, -nu) for s, nu in tree.separators.items()))

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
        limit = finite_number(
            limit, "limit", least=0.0, most=np.inf, expected="how many tables may be listed"
        )
        for tables in _support.enumerate_support(self.model, self._means, self.population, limit=limit):
            yield CountTables(self.model, tables)

    def sample(self, *, rng: np.random.Generator | int) -> CountTables:
        """Draw one set of tables by multinomials down the junction tree; the cost does not depend on N."""
        drawn = _sampling.sample_tables(self.model, self._means, self.population, rng=generator(rng))
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
