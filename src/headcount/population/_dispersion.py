r"""How much more (or less) counts scatter than those of independent individuals: moving in company.

*Flocks for life* of size c move as one: n = c m with N/c units, so that the log of :math:`E\,e^{g\cdot n}` is
:math:`(N/c)\,[A(\theta + c g) - A(\theta)]`: means as before, covariances c times larger.

*Company for a step*: of those in state i, parties of size :math:`\phi_i` move together and mix again before the next step. Per
individual the cgf of the step is :math:`\phi_i^{-1}\log\sum_j p_{ij}e^{\phi_i m_j}`, its covariance
:math:`\phi_i\,E[n_i]\,(\mathrm{diag}\,p_i - p_i p_i^\top)`. Less than 1 (timetables) is under-dispersion. With

.. math:: \phi_i = 1 + (\hat n_i - 1)\,\rho

that is the covariance of a Dirichlet–multinomial row with intra-class correlation :math:`\rho`, whose probabilities vary from step to
step: relative errors then stop shrinking with N. :math:`\hat n_i` is the count expected given the data.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.checks import brief, finite_number
from headcount.errors import ModelError, raise_all

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headcount.individual import RootedTree

    Array = NDArray[np.float64]

Phi = tuple["NDArray[np.float64]", ...]
"""phi of a rooted tree: see `RootedTree.phi`."""


@dataclass(frozen=True)
class Flocks:
    """Individuals live in flocks of ``size`` that move as one, all the time.

    Parameters
    ----------
    size
        c ≥ 1; a mean size need not be whole. Covariances of counts are c times those of independent individuals.

    Examples
    --------
    >>> Flocks(5)
    Flocks(size=5.0)
    """

    size: float

    def __post_init__(self) -> None:
        size = finite_number(self.size, "size", least=1.0, expected="the size of a flock, 1 or more")
        object.__setattr__(self, "size", size)

    @property
    def is_none(self) -> bool:
        """Whether individuals are independent after all."""
        return self.size == 1.0

    @property
    def text(self) -> str:
        """As the command line takes it."""
        return f"flocks:{self.size:g}"

    def phi_of(self, tree: RootedTree, population: float, expected: Callable[[Hashable], Array]) -> Phi:
        """The size, at the root and at every step."""
        del population, expected
        above = [1, *(tree.sizes[u] for u in tree.parents[1:])]
        return tuple(np.full(size, self.size) for size in above)


@dataclass(frozen=True)
class Company:
    """Individuals move in company for a step, and mix again before the next.

    Parameters
    ----------
    phi
        Factor on the covariance of every step's moves: one number; one per state a move starts from; or a mapping from
        the variable a move leads to (for a chain: the time of arrival) to either. Above 0; below 1 is under-dispersion.
    rho
        Intra-class correlation of those who start from one state, 0 ≤ rho < 1, instead of phi.
    initial
        The same factor for the first counts (the root), in the terms of phi or rho. Left out, the initial law is known
        exactly and individuals are independent draws from it.

    Examples
    --------
    >>> Company(rho=0.01)
    Company(rho=0.01)
    """

    phi: Any = field(default=None, kw_only=True, repr=False)
    rho: float | None = field(default=None, kw_only=True, repr=False)
    initial: float | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if (self.phi is None) == (self.rho is None):
            raise ModelError("give either phi or rho: Company(phi=3) or Company(rho=0.01)")
        if self.rho is not None:
            for name in ("rho", "initial"):
                value = getattr(self, name)
                if value is not None:
                    value = finite_number(value, name, least=0.0, expected="a correlation, 0 ≤ rho < 1")
                    raise_all([f"{name} is {value:g}: give a correlation, 0 ≤ rho < 1"] if value >= 1 else [])
                    object.__setattr__(self, name, value)
            return
        if self.initial is not None:
            initial = finite_number(self.initial, "initial", expected="a positive number")
            object.__setattr__(self, "initial", _positive(initial, "initial"))
        phi = self.phi
        made: Any = (
            {name: _positive(value, f"phi[{name!r}]") for name, value in phi.items()}
            if isinstance(phi, Mapping)
            else _positive(phi, "phi")
        )
        object.__setattr__(self, "phi", made)

    def __repr__(self) -> str:
        return f"Company({', '.join(self._parts)})"

    @property
    def text(self) -> str:
        """As the command line takes it."""
        return f"company:{','.join(self._parts)}"

    @property
    def _parts(self) -> list[str]:
        single = isinstance(self.phi, float)
        parts = [f"phi={self.phi:g}" if single else f"phi={brief(self.phi)}"]
        parts = parts if self.rho is None else [f"rho={self.rho:g}"]
        return parts if self.initial is None else [*parts, f"initial={self.initial:g}"]

    @property
    def is_none(self) -> bool:
        """Whether individuals are independent after all."""
        if self.rho is not None:
            return self.rho == 0 and not self.initial
        given = self.phi.values() if isinstance(self.phi, Mapping) else [self.phi]
        return self.initial in (None, 1.0) and all(np.all(np.equal(value, 1.0)) for value in given)

    def phi_of(self, tree: RootedTree, population: float, expected: Callable[[Hashable], Array]) -> Phi:
        """phi of every step of a tree, given the expected counts of a variable (read for rho only)."""
        parts: list[Array] = [np.ones(1)]
        if self.initial is not None:
            first = self.initial if self.rho is None else 1.0 + (population - 1.0) * self.initial
            parts = [np.array([first])]
        for v in range(1, len(tree.parents)):
            size = tree.sizes[tree.parents[v]]
            if self.rho is not None:
                counts = np.asarray(expected(tree.variables[tree.parents[v]]), dtype=float)
                parts.append(1.0 + np.maximum(counts - 1.0, 0.0) * self.rho)
            else:
                phi = self.phi.get(tree.variables[v], 1.0) if isinstance(self.phi, Mapping) else self.phi
                parts.append(np.broadcast_to(np.asarray(phi, dtype=float), (size,)).copy())
        return tuple(parts)

    def faults(self, tree: RootedTree) -> list[str]:
        """What of phi does not fit a tree."""
        if self.rho is not None:
            return []
        named = self.phi if isinstance(self.phi, Mapping) else dict.fromkeys(tree.variables[1:], self.phi)
        found = [
            f"phi names {name!r}, which no move leads to: name a variable other than the first"
            for name in named
            if tree.index.get(name, 0) == 0
        ]
        for v in range(1, len(tree.parents)):
            size, shape = tree.sizes[tree.parents[v]], np.shape(named.get(tree.variables[v], 1.0))
            if shape not in {(), (size,)}:
                found.append(
                    f"phi of the step into {tree.variables[v]!r} has shape {shape}: give one number, or one "
                    f"per state of {tree.variables[tree.parents[v]]!r} ({size})"
                )
        return found


Dispersion = Flocks | Company


def _positive(value: Any, name: str) -> float | tuple[float, ...]:
    """A positive number or several, as plain values."""
    try:
        made = np.array(value, dtype=float)
    except (TypeError, ValueError):
        made = np.array(np.nan)
    if made.ndim > 1 or not (np.isfinite(made) & (made > 0)).all():
        raise ModelError(f"{name} is {brief(value)}: give a positive number, or one per state")
    return float(made) if made.ndim == 0 else tuple(made.tolist())


def parse_dispersion(text: str) -> Dispersion:
    """``flocks:5``, ``company:phi=3``, ``company:rho=0.01`` or ``company:rho=0.01,initial=0.001``.

    Raises
    ------
    ModelError
        For anything else.
    """
    kind, _, rest = text.partition(":")
    wanted = f"{text!r} is not a dispersion: give flocks:5, company:rho=0.01 or company:phi=3"
    try:
        if kind == "flocks":
            return Flocks(float(rest))
        if kind == "company":
            named = dict(part.split("=", 1) for part in rest.split(","))
            if set(named) <= {"phi", "rho", "initial"}:
                return Company(**{name: float(value) for name, value in named.items()})
    except ValueError as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(wanted) from None
    raise ModelError(wanted)
