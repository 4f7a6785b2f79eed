"""Readable names of entries and sums, made only when a message needs one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class EntryNames(Sequence[str]):
    """``"time 3, cell 'A'"`` for entry k of a table.

    A map of 10 000 cells over a year has half a million of them: none is stored.

    Attributes
    ----------
    scope
        The table's variables.
    states
        The labels of each variable's states.
    entries
        Flat entries of the table; for sums, which of `sums`.
    chain
        Whether to speak of times and cells rather than of variables and states.
    sums
        The names of the sums, when these are sums and not entries.
    """

    scope: tuple[Hashable, ...]
    states: tuple[tuple[Hashable, ...], ...]
    entries: NDArray[np.intp]
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
