"""`Group`: some of the individuals, with a model of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headcount.checks import LARGEST_COUNT, instance
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
        How many they are: a number, or for one of the groups what is known of it, as for a population (``Unknown()``,
        ``About(500, sd=100)``).
    """

    model: MarkovChain
    size: Any

    def __post_init__(self) -> None:
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
class WithOthers(SizeLaw):
    """The law of a population of which ``others`` individuals are known to be there, and the rest has a law."""

    law: SizeLaw
    others: int

    @property
    def mean(self) -> float:
        """The law's, and the others."""
        return self.law.mean + self.others

    @property
    def variance(self) -> float:
        """The law's."""
        return self.law.variance

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.law.text} and {self.others} more"

    @property
    def least(self) -> int:
        """See `SizeLaw`."""
        return self.law.least + self.others

    @property
    def most(self) -> int:
        """See `SizeLaw`."""
        return min(self.law.most + self.others, LARGEST_COUNT)

    @property
    def window(self) -> tuple[int, int]:
        """See `SizeLaw`."""
        low, high = self.law.window
        return low + self.others, high + self.others

    def log_pmf(self, n: ArrayLike) -> NDArray[np.float64]:
        """See `SizeLaw`."""
        return self.law.log_pmf(np.asarray(n, dtype=float) - self.others)

    def sample(self, size: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
        """See `SizeLaw`."""
        return self.law.sample(size, rng=rng) + self.others
