"""`Group`: some of the individuals, with a model of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headcount.checks import LARGEST_COUNT, instance, whole_number
from headcount.individual import MarkovChain, ModelError, OpenChain
from headcount.population._size import SizeLaw


@dataclass(frozen=True, eq=False)
class Group:
    """Individuals of one kind: residents or migrants, a sex, a species, those of one home region.

    Parameters
    ----------
    model
        The law of one of them, a `MarkovChain`. All groups of a problem have the same times; their cells may differ.
    size
        How many they are: a number, or what is known of it, as for a population (``Unknown()``, ``About(500, sd=100)``).
    weight
        How many individuals each of them stands for: families or flocks of one size that move as one. Counts of the group are those
        of individuals, ``weight`` times as many as units.
    """

    model: MarkovChain
    size: Any
    weight: int = 1

    def __post_init__(self) -> None:
        weight = whole_number(self.weight, "the weight of a Group", least=1)
        object.__setattr__(self, "weight", weight)
        if weight != 1 and isinstance(self.size, SizeLaw):
            raise ModelError(
                f"the weight of a Group is {weight} and its size {self.size!r}: give a number of units, or a weight of 1"
            )
        instance(self.model, MarkovChain, "the model of a Group", expected="a MarkovChain")
        if isinstance(self.model, OpenChain):
            raise ModelError(
                "the model of a Group is an OpenChain: groups are closed; give a MarkovChain, or one open population"
            )
        if self.model.concentration is not None:
            raise ModelError(
                "the model of a Group has a concentration, and groups move alone with known transitions: leave it out"
            )


@dataclass(frozen=True)
class TotalSize(SizeLaw):
    """The law of the number of all individuals: ``others`` who are known to be there, and groups whose sizes have laws."""

    laws: tuple[SizeLaw, ...]
    others: int

    @property
    def mean(self) -> float:
        """The laws', and the others."""
        return sum(law.mean for law in self.laws) + self.others

    @property
    def variance(self) -> float:
        """The laws'."""
        return sum(law.variance for law in self.laws)

    @property
    def text(self) -> str:
        """In words."""
        return " and ".join([*(law.text for law in self.laws), f"{self.others} more"])

    @property
    def least(self) -> int:
        """See `SizeLaw`."""
        return sum(law.least for law in self.laws) + self.others

    @property
    def most(self) -> int:
        """See `SizeLaw`."""
        return min(sum(law.most for law in self.laws) + self.others, LARGEST_COUNT)

    @property
    def window(self) -> tuple[int, int]:
        """See `SizeLaw`."""
        low, high = (self.others + sum(law.window[end] for law in self.laws) for end in (0, 1))
        return low, high

    def log_pmf(self, n: ArrayLike) -> NDArray[np.float64]:
        """See `SizeLaw`.

        Raises
        ------
        ModelError
            For the sum of several laws, which is asked one law at a time.
        """
        if len(self.laws) > 1:
            raise ModelError(
                "the sum of several groups of unknown size has no closed law: ask each group's own"
            )
        return self.laws[0].log_pmf(np.asarray(n, dtype=float) - self.others)

    def sample(self, size: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
        """See `SizeLaw`."""
        drawn = [law.sample(size, rng=rng) for law in self.laws]
        return np.asarray(np.sum(drawn, axis=0) + self.others)
