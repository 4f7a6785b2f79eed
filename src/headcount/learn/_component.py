"""A component: some parameters x, the tables n they are learned from, and the log-likelihood of complete counts.

    l(x; n) = E log p(n; x) + constant        concave in x; gradient ∂l, information −∂²l
    l(x; n₁) + l(x; n₂) + … + log prior(x)    what an M-step maximises, over all problems that share x

The gradient at expected counts n = E[n | y] is the gradient of the evidence (Fisher's identity).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Natural:
    """Parameters as people name them: values, how they move with x, and the scale on which they are Gaussian.

    Attributes
    ----------
    names
        One a value.
    values
        Shape (M,).
    jacobian
        ∂values/∂x, shape (M, K).
    link
        ``"identity"`` (weights), ``"logit"`` (probabilities) or ``"log"`` (rates): intervals are symmetric
        there.
    """

    names: tuple[str, ...]
    values: Array
    jacobian: Array
    link: tuple[str, ...]


class Component(ABC):
    """Parameters that are learned together from one kind of table."""

    names: tuple[str, ...]
    """One a parameter."""

    @abstractmethod
    def start(self) -> Array:
        """The neutral start: no effect, equal probabilities, the rate as given."""

    @abstractmethod
    def value(self, x: Array, n: Any) -> float:
        """l(x; n), up to a constant in x."""

    @abstractmethod
    def gradient(self, x: Array, n: Any) -> Array:
        """∂l/∂x, shape (K,)."""

    @abstractmethod
    def information(self, x: Array, n: Any) -> Array:
        """−∂²l/∂x², shape (K, K), positive semi-definite."""

    def scale(self, x: Array, n: Any) -> Array:
        """What the information's diagonal would be without centring, shape (K,): below rounding of it, it is zero."""
        return np.diagonal(self.information(x, n))

    @abstractmethod
    def natural(self, x: Array) -> Natural:
        """The parameters as people name them."""

    def log_prior(self, x: Array) -> float:
        """log prior(x), up to a constant; zero without one."""
        del x
        return 0.0

    def prior_gradient(self, x: Array) -> Array:
        """∂ log prior/∂x."""
        return np.zeros_like(x)

    def prior_information(self, x: Array) -> Array:
        """−∂² log prior/∂x²."""
        return np.zeros((len(x), len(x)))

    def closed_form(self, x: Array, n: Sequence[Any]) -> Array | None:
        """The maximum of l summed over tables n, plus the prior; None where it takes Newton."""
        return None

    def closed_solve(self, x: Array, n: Sequence[Any], v: Array) -> Array | None:
        """(information + prior information)⁻¹ v; None where it takes a dense solve."""
        return None

    def alike(self, other: Component) -> bool:
        """Whether tables of the other component can be added to this one's."""
        return other is self


@dataclass(frozen=True)
class Rate(Component):
    """The observation rate λ = e^x: y ~ Poisson(λ r n), r the rates given with the data.

    l(x) = Y x − e^x B,  Y the total of all counts, B = Σ r E[n]: λ̂ = Y/B.  n is the pair (Y, B).
    """

    names: tuple[str, ...] = ("log rate",)

    def start(self) -> Array:
        """λ = 1: the rates as given."""
        return np.zeros(1)

    def value(self, x: Array, n: Array) -> float:
        """Y x − e^x B."""
        return float(n[0] * x[0] - np.exp(x[0]) * n[1])

    def gradient(self, x: Array, n: Array) -> Array:
        """Y − e^x B."""
        return np.array([n[0] - np.exp(x[0]) * n[1]])

    def information(self, x: Array, n: Array) -> Array:
        """e^x B."""
        return np.array([[np.exp(x[0]) * n[1]]])

    def closed_form(self, x: Array, n: Sequence[Array]) -> Array:
        """log(Y/B)."""
        del x
        total = np.sum(n, axis=0)
        return np.log(total[:1] / total[1:])

    def natural(self, x: Array) -> Natural:
        """λ itself."""
        rate = np.exp(x)
        return Natural(("rate",), rate, rate[:, None], ("log",))

    def alike(self, other: Component) -> bool:
        """Any two rates are the same parameter."""
        return isinstance(other, Rate)
