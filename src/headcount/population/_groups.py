"""`Group`: some of the individuals, with a model of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headcount.checks import instance
from headcount.individual import MarkovChain


@dataclass(frozen=True, eq=False)
class Group:
    """Individuals of one kind: residents or migrants, a sex, a species, those of one home region.

    Parameters
    ----------
    model
        The law of one of them, a `MarkovChain`. All groups of a problem have the same times; their cells may differ.
    size
        How many they are.
    """

    model: MarkovChain
    size: Any

    def __post_init__(self) -> None:
        instance(self.model, MarkovChain, "the model of a Group", expected="a MarkovChain")
