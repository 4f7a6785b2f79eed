"""A site: one noise on some entries, or sums of entries, of one table; the names of its counts, and sites grouped by noise."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from headcount._types import Index
from headcount.observe._base import Array, Observation


@dataclass(frozen=True, eq=False)
class Site:
    """What one observation says about one table: y_k ~ l(· | n_k), n_k an entry or a sum of entries.

    Attributes
    ----------
    scope
        The table's variables, in the model's order.
    size
        The number of entries of the table.
    index
        Flat entries (C order, increasing), shape (K,); None when sums are seen.
    weights
        0/1 matrix, shape (K, size), one row per sum; None when entries are seen.
    noise
        The observation on these K counts, 1-D, with one parameter per entry.
    names
        One readable name per count, for messages.
    source
        Which of the problem's observations this is.
    """

    scope: tuple[Hashable, ...]
    size: int
    index: Index | None
    weights: csr_array | None
    noise: Observation
    names: Sequence[str]
    source: int = 0

    def __len__(self) -> int:
        return int(self.noise.counts.size)

    @property
    def label(self) -> str:
        """The name of the observation that the site comes from, for messages."""
        return f"observations[{self.source}] ({type(self.noise).__name__})"

    def margin(self, table: ArrayLike) -> Array:
        """n_k from a flat table: entries or sums, shape (..., size) to (..., K)."""
        flat = np.asarray(table)
        if self.index is not None:
            return flat[..., self.index]
        return self._applied(self.weights, flat)

    def spread(self, values: ArrayLike) -> Array:
        """The adjoint of `margin`, (..., K) to (..., size): every entry adds up the counts it is part of."""
        values = np.asarray(values)
        if self.index is None:
            return self._applied(self.weights.T, values)  # type: ignore[union-attr]
        flat = np.zeros((*values.shape[:-1], self.size), dtype=values.dtype)
        flat[..., self.index] = values
        return flat

    @staticmethod
    def _applied(matrix: Any, values: Array) -> Array:
        columns = values.reshape(-1, values.shape[-1]).T
        return np.asarray((matrix @ columns).T.reshape(*values.shape[:-1], matrix.shape[0]))


@dataclass(frozen=True, eq=False)
class EntryNames(Sequence[str]):
    """``"time 3, cell 'A'"`` for entry k of a table.

    A map of 10 000 cells over a year has half a million entries, so names are made when a message needs one.

    Attributes
    ----------
    scope
        The table's variables.
    states
        The labels of each variable's states.
    entries
        Flat entries of the table; for sums, which of `sums`.
    chain
        Whether names say "time" and "cell" rather than the variable's name.
    sums
        The names of the sums, when these are sums and not entries.
    """

    scope: tuple[Hashable, ...]
    states: tuple[tuple[Hashable, ...], ...]
    entries: Index
    chain: bool
    sums: tuple[Hashable, ...] | None = None

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, k: int) -> str: ...

    @overload
    def __getitem__(self, k: slice) -> list[str]: ...

    def __getitem__(self, k: int | slice) -> str | list[str]:
        if isinstance(k, slice):
            return [self[j] for j in range(*k.indices(len(self)))]
        entry = int(self.entries[k])
        if self.sums is not None:
            where = ", ".join(f"time {v!s}" if self.chain else f"{v!s}" for v in self.scope)
            return f"sum {self.sums[entry]!r} of {where}"
        return entry_name(self.scope, self.states, entry, chain=self.chain)


def entry_name(
    scope: tuple[Hashable, ...], states: Sequence[tuple[Hashable, ...]], entry: int, *, chain: bool
) -> str:
    """The name of one flat entry of a table."""
    place = np.unravel_index(entry, [len(s) for s in states])
    parts = [(v, labels[i]) for v, labels, i in zip(scope, states, place, strict=True)]
    if chain:
        return " to ".join(f"time {v!s}, cell {label!r}" for v, label in parts)
    return ", ".join(f"{v!s} = {label!r}" for v, label in parts)


Part = tuple[Index, Observation]
"""Positions among all observed entries (concatenated over sites), and the noise on them."""


def by_family(sites: Sequence[Site]) -> tuple[Part, ...]:
    """Every observed entry with its noise: noises of one family are joined into one, so that one call serves them all.

    Noises with correlated errors are not joined.
    """
    found: dict[Hashable, list[Part]] = {}
    start = 0
    for k, site in enumerate(sites):
        entries = np.arange(start, start + len(site))
        found.setdefault(k if site.noise.correlated else site.noise.family, []).append((entries, site.noise))
        start += len(site)
    return tuple(map(_joined, found.values()))


def _joined(parts: list[Part]) -> Part:
    """One noise for all parts, with their parameters concatenated."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0][1]
    values = {"counts": np.concatenate([noise.counts for _, noise in parts])}
    for name in first.entry_parameters():
        values[name] = np.concatenate(
            [np.broadcast_to(getattr(noise, name), entries.shape) for entries, noise in parts]
        )
    return np.concatenate([entries for entries, _ in parts]), first.replaced(values)
