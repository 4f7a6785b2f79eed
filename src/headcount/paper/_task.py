"""What is to be computed: a task is plain values, and its name is the hash of them.

A task is (kind, setting, data set, engine, options), with the tasks whose arrays it reads. The hash covers these and the version of
the kind (raised by hand when its meaning changes), not the package: an interrupted run resumes, and a task shared by two tables
is computed once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

SEED = 20140621
"""The first word of every seed."""


@dataclass(frozen=True)
class Setting:
    """One configuration of the birds: ℓ, the scale s of w = s·(1, 2, 2, 2), N and T."""

    side: int
    weight: float
    population: int
    steps: int = 20

    @property
    def cells(self) -> int:
        """L = ℓ²."""
        return self.side**2

    @property
    def weights(self) -> tuple[float, float, float, float]:
        """w."""
        return (self.weight, 2 * self.weight, 2 * self.weight, 2 * self.weight)

    def plain(self) -> dict[str, Any]:
        """As a dict that JSON can hold."""
        return {
            "side": self.side,
            "weight": self.weight,
            "population": self.population,
            "steps": self.steps,
        }

    def seed(self, data_set: int, stream: int) -> list[int]:
        """Words for a generator: stream 0 makes the world, others drive random engines."""
        return [
            SEED,
            self.side,
            round(1000 * self.weight),
            self.population,
            self.steps,
            data_set,
            stream,
        ]


@dataclass(frozen=True, eq=False)
class Task:
    """One thing to compute.

    Attributes
    ----------
    kind
        Which computation; a key of ``headcount.paper._kinds.KINDS``.
    setting, data_set, engine, options
        What to compute it on and with.
    needs
        Tasks whose arrays it reads, by the role they play.
    seconds
        A guess of its CPU time, for the time left.
    exclusive
        Whether it must run alone, because it measures time.
    """

    kind: str
    setting: Setting
    data_set: int = 0
    engine: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: Mapping[str, Task] = field(default_factory=dict)
    version: int = 1
    seconds: float = 1.0
    exclusive: bool = False

    def plain(self) -> dict[str, Any]:
        """Everything that decides the result, as plain values."""
        return {
            "kind": self.kind,
            "version": self.version,
            "setting": self.setting.plain(),
            "data_set": self.data_set,
            "engine": self.engine,
            "options": dict(self.options),
            "needs": {role: task.key for role, task in self.needs.items()},
        }

    @cached_property
    def key(self) -> str:
        """The hash of :meth:`plain`."""
        text = json.dumps(self.plain(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @property
    def title(self) -> str:
        """A few words for people."""
        s = self.setting
        where = f"L={s.cells} N={s.population} w={s.weight:g}"
        return " ".join(part for part in (self.kind, self.engine, where, f"#{self.data_set}") if part)


@dataclass(frozen=True)
class Row:
    """One number: what it is, at which step of a curve (−1: none), and its value."""

    quantity: str
    value: float
    step: int = -1


@dataclass(frozen=True, eq=False)
class Result:
    """What a task leaves: numbers to keep, and arrays that other tasks read."""

    rows: tuple[Row, ...]
    arrays: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)


def touched(tasks: Iterable[Task], names: Collection[str]) -> list[Task]:
    """Tasks of these engines or kinds, and every task that reads what they leave."""
    found: dict[str, Task] = {}
    for task in unique(list(tasks)).values():  # needs come first
        if {task.engine, task.kind} & set(names) or any(n.key in found for n in task.needs.values()):
            found[task.key] = task
    return list(found.values())


def unique(tasks: list[Task]) -> dict[str, Task]:
    """Tasks and everything they need, each once, needs first."""
    found: dict[str, Task] = {}

    def add(task: Task) -> None:
        if task.key in found:
            return
        for need in task.needs.values():
            add(need)
        found[task.key] = task

    for task in tasks:
        add(task)
    return found
