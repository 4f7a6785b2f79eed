"""Tables of counts that belong to one sample: one per clique and separator, agreeing where they overlap.

n_A(i_A) = Σ_m 1[x_A^m = i_A],     n_S(i_S) = Σ_{i_{C∖S}} n_C(i_S, i_{C∖S}),     Σ_i n_C(i) = N
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from headcount.checks import LARGEST_COUNT, brief, finite_number
from headcount.errors import ModelError, raise_all
from headcount.individual import MarkovChain, Model
from headcount.individual._model import checked_model
from headcount.labels import coordinate
from headcount.tables import Scope, dense

if TYPE_CHECKING:
    import xarray

Table = Any
"""A dense array with one axis per variable or, for an edge, a ``scipy.sparse`` matrix."""


@final
@dataclass(frozen=True, eq=False)
class CountTables:
    """Integer tables n, one for every clique and separator of a model.

    Parameters
    ----------
    model : Model
        Whose variables, states and junction tree the tables follow.
    tables : mapping of scope to array
        One table of integers ≥ 0 for every clique, one axis per variable in the scope's order. Edges may be
        ``scipy.sparse`` matrices. Separators may be given or left out; what is left out is summed from a
        clique.

    Notes
    -----
    The constructor checks shapes and entries; `check` whether the tables agree with one another. Tables that
    disagree are legal objects of probability zero.

    Examples
    --------
    >>> import numpy as np
    >>> from headcount.individual import MarkovChain
    >>> from headcount.population import CountTables
    >>> chain = MarkovChain([1.0, 0.0], [[0.5, 0.5], [0.0, 1.0]], length=3)
    >>> n = CountTables.from_samples(chain, np.array([[0, 0, 1], [0, 1, 1], [0, 0, 0]]))
    >>> n.table((1, 2))
    array([[1, 1],
           [0, 1]])
    """

    model: Model
    tables: Mapping[Scope, Table]

    def __post_init__(self) -> None:
        given, problems = self._accepted()
        known = {frozenset(scope): scope for scope in scopes_of(self.model)}
        raise_all([*problems, *self._scope_problems(given, known)])
        complete: dict[Scope, Table] = {}
        for scope, table in given.items():
            held = known[frozenset(scope)]
            complete[held] = self.model.domain(scope).project(table, held)
        for a, _, separator in self.model.junction_tree.edges:
            if separator not in complete:
                complete[separator] = self._margin(complete, a, separator)
        object.__setattr__(self, "tables", complete)

    def _scope_problems(
        self, given: Mapping[Scope, Table], known: Mapping[frozenset[Hashable], Scope]
    ) -> Iterator[str]:
        """Tables that belong to no clique or separator, and cliques without a table."""
        for scope in given:
            if frozenset(scope) not in known:
                yield (
                    f"a table for {scope!r}, which is neither a clique nor a separator of the model; "
                    f"leave it out: .table() sums out any scope inside a clique"
                )
        named = {frozenset(scope) for scope in self.tables if isinstance(scope, (tuple, list))}
        for clique in self.model.junction_tree.cliques:
            if frozenset(clique) not in named:
                yield (
                    f"no table for the clique {clique!r}, of shape {self.model.size(clique)}; every clique of "
                    f"model.junction_tree.cliques needs one"
                )

    def _accepted(self) -> tuple[dict[Scope, Table], list[str]]:
        """The tables given, in their own number type, and what is wrong with them."""
        if not isinstance(self.model, Model) or not isinstance(self.tables, Mapping):
            raise ModelError(
                f"tables are {brief(self.tables)} for the model {brief(self.model)}: give a Model and {{scope: table}}"
            )
        given: dict[Scope, Table] = {}
        problems: list[str] = []
        for scope, table in self.tables.items():
            try:
                key = self.model.scope(scope)
                given[key] = self._accept(key, table)
            except ModelError as error:
                problems.extend(error.problems)
        return given, problems

    def _margin(self, tables: Mapping[Scope, Table], clique: int, onto: Scope) -> Table:
        tree = self.model.junction_tree
        return tree.domains[clique].project(tables[tree.cliques[clique]], onto)

    def _accept(self, scope: Scope, table: Any) -> Table:
        counts = _shaped(self.model, scope, table)
        entries = counts.data if sparse.issparse(counts) else counts
        # Integers too: uint64 above 2**63 would turn negative, and sums of larger int64 would overflow.
        real = np.asarray(entries, dtype=float)
        wrong = ~np.isfinite(real) | (real != np.round(real)) | (np.abs(real) >= LARGEST_COUNT)
        if wrong.any():
            raise ModelError(
                f"table {scope!r} holds {float(real[wrong][0])!r}, which is no whole number below 2**53; counts are integers"
            )
        if real.sum() > LARGEST_COUNT:
            raise ModelError(f"table {scope!r} sums to {real.sum():.6g}; a population is at most 2**53")
        if entries.size and entries.min() < 0:
            raise ModelError(f"table {scope!r} holds the count {entries.min()}; counts are 0 or more")
        return counts.astype(np.int64)

    @classmethod
    def from_samples(cls, model: Model, samples: ArrayLike) -> CountTables:
        """Count individuals: n_A(i) = Σ_m 1[x_A^m = i].

        Parameters
        ----------
        model : Model
            Whose variables the columns are.
        samples : array_like, shape (N, number of variables)
            State indices, as `Model.sample` returns them.
        """
        model = checked_model(model)
        model.junction_tree.require_memory()
        try:
            x = np.asarray(samples)
        except ValueError:
            raise ModelError(f"samples is {brief(samples)}: give a rectangular array of integers") from None
        if x.ndim != 2 or x.shape[1] != len(model.variables) or x.dtype.kind not in "iu":
            raise ModelError(
                f"samples must be integers of shape (N, {len(model.variables)}), one column per variable; "
                f"these are {x.dtype} of shape {x.shape}"
            )
        sizes = np.array(model.size(model.variables))
        problems = [
            f"sample {m}: state {x[m, v]} of variable {model.variables[v]!r} does not exist (it has "
            f"{sizes[v]})"
            for m, v in np.argwhere((x < 0) | (x >= sizes))
        ]
        raise_all(problems)
        column = {v: k for k, v in enumerate(model.variables)}
        tables = {}
        for domain in model.junction_tree.domains:
            flat = np.ravel_multi_index(tuple(x[:, column[v]] for v in domain.scope), domain.shape)
            tables[domain.scope] = domain.table(np.bincount(flat, minlength=domain.size))
        return cls(model, tables)

    @property
    def population(self) -> Any:
        """N, the sum of the first clique's table."""
        return self.tables[self.model.junction_tree.cliques[0]].sum().item()

    def table(self, scope: Sequence[Hashable]) -> Table:
        """Give n_A of any scope A inside a clique, one axis per variable in the order given."""
        wanted = self.model.scope(scope)
        if wanted in self.tables:
            return self.tables[wanted]
        clique = self.model.junction_tree.covering(wanted)
        if clique is None:
            raise ModelError(
                f"no clique holds all of {wanted!r}, so the clique tables do not determine its counts; "
                f"ask for a scope inside one of model.junction_tree.cliques, or count the samples themselves"
            )
        return self._margin(self.tables, clique, wanted)

    def disagreements(self, *, tolerance: float = 0.0) -> tuple[str, ...]:
        """Say where the tables contradict one another, one sentence each; nothing if they agree.

        Every separator's table must be the margin of both its cliques (the empty separator's is the total),
        and every clique's table must sum to the same N. Differences up to `tolerance` are let pass.
        """
        tolerance = finite_number(tolerance, "tolerance", least=0.0, expected="a finite number of 0 or more")
        tree = self.model.junction_tree
        first = tree.cliques[0]
        population = self.tables[first].sum()
        found = [
            f"table {clique!r} sums to {self.tables[clique].sum()}, table {first!r} to {population}"
            for clique in tree.cliques
            if abs(self.tables[clique].sum() - population) > tolerance
        ]
        for a, b, separator in tree.edges:
            held = dense(self.tables[separator])
            for clique in (a, b):
                summed = dense(self._margin(self.tables, clique, separator))
                found += [
                    f"{entry_name(self.model, separator, i)} is {held[tuple(i)]} in table {separator!r}, "
                    f"but table {tree.cliques[clique]!r} sums to {summed[tuple(i)]} there"
                    for i in np.argwhere(np.abs(held - summed) > tolerance)
                ]
        return tuple(dict.fromkeys(found))

    def check(self, *, tolerance: float = 0.0) -> Self:
        """Return the tables themselves, or raise `ModelError` listing every disagreement."""
        raise_all(self.disagreements(tolerance=tolerance))
        return self

    def to_xarray(self) -> xarray.Dataset:
        """Give every clique's and separator's table, labelled with the model's variables and states.

        A chain's tables come as `counts` (time, cell) and `flows` (time, origin, dest), where the time of a
        flow is when it leaves; other models' as one array per table, named by its variables.
        """
        chain = self.model.as_chain()
        if chain is not None and len(set(chain.states.values())) == 1:
            return self._chain_dataset(chain)
        return self._general_dataset()

    def _chain_dataset(self, chain: MarkovChain) -> xarray.Dataset:
        import xarray

        times = chain.times
        counts = np.stack([dense(self.table((t,))) for t in times])
        coords: dict[str, Any] = {"time": coordinate(times), "cell": coordinate(chain.cells)}
        arrays: dict[str, Any] = {"counts": (("time", "cell"), counts)}
        if len(times) > 1:
            flows = np.stack([dense(self.table(step)) for step in pairwise(times)])
            arrays["flows"] = (("departure", "origin", "dest"), flows)
            coords |= {"departure": coordinate(times[:-1]), "arrival": ("departure", coordinate(times[1:]))}
            coords |= {"origin": coordinate(chain.cells), "dest": coordinate(chain.cells)}
        return xarray.Dataset(arrays, coords, attrs={"population": self.population})

    def _general_dataset(self) -> xarray.Dataset:
        import xarray

        model = self.model
        name = {v: str(v) for v in model.variables}
        if len(set(name.values())) < len(name):
            raise ModelError(
                "two variables are spelled alike, so their axes cannot be told apart; rename one"
            )
        scopes: list[Scope] = [*scopes_of(model), *((v,) for v in model.variables)]
        # A table's name joins its variables'; a single variable's name is its axis, so its counts are called
        # counts[…].
        arrays = {
            " & ".join(name[v] for v in scope) if len(scope) > 1 else f"counts[{name[scope[0]]}]": (
                tuple(name[v] for v in scope),
                dense(self.table(scope)),
            )
            for scope in dict.fromkeys(scopes)
            if scope
        }
        coords = {name[v]: coordinate(model.states[v]) for v in model.variables}
        return xarray.Dataset(arrays, coords, attrs={"population": self.population})


def scopes_of(model: Model) -> tuple[Scope, ...]:
    """Every clique and every separator once."""
    return tuple(dict.fromkeys([*model.junction_tree.cliques, *model.junction_tree.separators]))


def entry_name(model: Model, scope: Scope, index: Iterable[int]) -> str:
    """One entry of a table for people: 'n(rain=yes, sky=grey)'."""
    named = (f"{v}={model.states[v][int(i)]}" for v, i in zip(scope, index, strict=True))
    return f"n({', '.join(named)})"


def _shaped(model: Model, scope: Scope, table: Any) -> Table:
    """The table as an array or csr matrix of the scope's shape."""
    try:
        given = sparse.csr_array(table) if sparse.issparse(table) else np.asarray(table)
    except ValueError:
        raise ModelError(f"table {scope!r} is {brief(table)}: give numbers in a rectangular array") from None
    if given.dtype.kind not in "iuf":
        raise ModelError(f"table {scope!r} holds {given.dtype}; give numbers")
    if given.shape != model.size(scope):
        raise ModelError(
            f"table {scope!r} has shape {given.shape}; its variables' states make it {model.size(scope)}"
        )
    return given
