"""Parametrisations: which models are compared with the data, and which of their numbers are learned."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from headcount.individual import LogLinearTransitions, MarkovChain, Model, ModelError
from headcount.learn._component import Array
from headcount.learn._family import ChainFamily, Family, RateFamily
from headcount.learn._rows import Rows
from headcount.learn._weights import Weights
from headcount.observe import Poisson, Problem


class Parametrisation(ABC):
    """Settings of a family of models; `bind` makes the family for one problem's variables and states."""

    @abstractmethod
    def bind(self, model: Model) -> Family:
        """The family on this model's variables and states; what is not learned is taken from the model."""

    def check(self, problem: Problem) -> list[str]:
        """What about a problem this parametrisation cannot use."""
        del problem
        return []


@runtime_checkable
class Named(Protocol):
    """An array of features that names them, as the bird simulator's."""

    @property
    def names(self) -> Sequence[str]:
        """One a feature."""


@dataclass(frozen=True, eq=False)
class LogisticChain(Parametrisation):
    """P_t(i, j) = exp(w·f_t(i, j)) / Z_t(i): a chain whose transitions follow features by weights.

    Parameters
    ----------
    features
        f, shape ``(K, L, L)`` when every step is the same, ``(T − 1, K, L, L)`` when features change with
        time; an `xarray.DataArray` with dims ``feature, origin, dest`` (and ``step``) brings names.
    names
        One a feature; taken from the features, or ``w1, w2, …``.
    mask
        Log offset, ``(L, L)`` or one a step: −inf forbids a move.
    fixed
        ``{name: weight}`` of weights that are not learned.
    ridge
        Strength of the prior −½ ridge w² on every weight, one number or one a feature.
    initial
        The law of the first cell: None (the problem's model has it), an array, or ``"learned"`` (over the
        cells to which the problem's model gives some probability).

    Examples
    --------
    >>> import numpy as np
    >>> stay = LogisticChain(np.eye(3)[None], names=["stay"])
    >>> family = stay.bind(MarkovChain([1, 0, 0], np.full((3, 3), 1 / 3), length=4))
    >>> family.model(np.array([1.0])).transitions[0][0].round(3)
    array([0.576, 0.212, 0.212])
    """

    features: Any
    names: Sequence[str] | None = field(default=None, kw_only=True)
    mask: Any = field(default=None, kw_only=True)
    fixed: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    ridge: Any = field(default=0.0, kw_only=True)
    initial: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        values, names, labels = _features(self.features, self.names)
        problems = [
            f"fixed names {name!r}: the features are {', '.join(names)}"
            for name in self.fixed
            if name not in names
        ]
        problems += [
            f"fixed[{name!r}] is {value!r}: give a finite number"
            for name, value in self.fixed.items()
            if not np.isfinite(value)
        ]
        ridge = np.asarray(self.ridge, dtype=float)
        if (
            ridge.ndim > 1
            or ridge.size not in (1, len(names))
            or not (np.isfinite(ridge) & (ridge >= 0)).all()
        ):
            problems.append(f"ridge is {self.ridge!r}: give a number ≥ 0, or one a feature")
        if problems:
            raise ModelError(problems)
        object.__setattr__(self, "features", values)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "ridge", np.broadcast_to(ridge, len(names)).copy())
        object.__setattr__(self, "fixed", {k: float(v) for k, v in self.fixed.items()})
        object.__setattr__(self, "_labels", labels)
        object.__setattr__(self, "_weights", self._component(values, names))

    def _component(self, values: Array, names: Sequence[str]) -> Weights:
        free = [k for k, name in enumerate(names) if name not in self.fixed]
        mask = self.mask
        if self.fixed:
            held = np.array([self.fixed.get(name, 0.0) for name in names])
            offset = np.tensordot(held, values, axes=(0, values.ndim - 3))
            mask = offset if mask is None else offset + np.asarray(mask, dtype=float)
        free_features = values[..., free, :, :]
        if not free:
            raise ModelError(f"all {len(names)} weights are fixed: leave one to be learned")
        ridge = np.asarray(self.ridge)[free]
        made = LogLinearTransitions(free_features, mask)
        return Weights(tuple(names[k] for k in free), made, ridge, np.zeros(len(free)))

    def bind(self, model: Model) -> ChainFamily:
        """See `Parametrisation`."""
        chain = _chain(model, "LogisticChain")
        weights: Weights = self._weights  # type: ignore[attr-defined]
        cells, steps = weights.transitions.cell_count, weights.transitions.steps
        problems = []
        if cells != len(chain.cells):
            problems.append(f"the features are for {cells} cells, the model has {len(chain.cells)}")
        if steps is not None and steps != len(chain.times) - 1:
            problems.append(f"the features are for {steps} steps, the model has {len(chain.times) - 1}")
        labels: tuple[Hashable, ...] | None = self._labels  # type: ignore[attr-defined]
        if labels is not None and not problems and labels != tuple(chain.cells):
            problems.append(
                f"the features' origins and destinations are {labels[:4]}…, the model's cells "
                f"{tuple(chain.cells)[:4]}…: put the features in the order of the cells (reindex)"
            )
        if problems:
            raise ModelError(problems)
        template, initial = _initial(chain, self.initial)
        return ChainFamily(template, weights, weights.transitions.homogeneous, initial)


@dataclass(frozen=True, eq=False)
class TabularChain(Parametrisation):
    """P(i, j) itself, every entry free but for zeros and fixed ones.

    Parameters
    ----------
    mask
        Which moves are possible, ``(L, L)`` of bool; all if None.
    homogeneous
        One matrix for all steps, or one a step (which totals alone rarely determine: give a prior).
    fixed
        ``(L, L)`` of probabilities that are known, NaN where P is learned; a row that is all known must sum
        to one.
    dirichlet
        α ≥ 1 of the prior Π P^(α−1); 1 is none.
    initial
        As for `LogisticChain`.
    """

    mask: Any = None
    homogeneous: bool = field(default=True, kw_only=True)
    fixed: Any = field(default=None, kw_only=True)
    dirichlet: float = field(default=1.0, kw_only=True)
    initial: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not (np.isfinite(self.dirichlet) and self.dirichlet >= 1):
            raise ModelError(f"dirichlet is {self.dirichlet!r}: give a number ≥ 1 (1 is no prior)")

    def bind(self, model: Model) -> ChainFamily:
        """See `Parametrisation`."""
        chain = _chain(model, "TabularChain")
        free, fixed = self._tables(len(chain.cells), chain.cells)
        labels = np.empty(free.shape, dtype=object)
        for i, a in enumerate(chain.cells):
            for j, b in enumerate(chain.cells):
                labels[i, j] = f"P[{a}→{b}]"
        if not self.homogeneous:
            steps = len(chain.times) - 1
            labels = np.concatenate([_prefixed(labels, t) for t in list(chain.times)[:-1]] or [labels[:0]])
            free, fixed = np.tile(free, (steps, 1)), np.tile(fixed, (steps, 1))
        template, initial = _initial(chain, self.initial)
        return ChainFamily(template, Rows(labels, free, fixed, self.dirichlet), self.homogeneous, initial)

    def _tables(self, size: int, cells: Sequence[Hashable]) -> tuple[NDArray[np.bool_], Array]:
        possible = np.ones((size, size), bool) if self.mask is None else np.asarray(self.mask)
        known = np.full((size, size), np.nan) if self.fixed is None else np.asarray(self.fixed, dtype=float)
        if possible.shape != (size, size) or possible.dtype != bool or known.shape != (size, size):
            raise ModelError(
                f"mask ({possible.dtype}, {possible.shape}) must be bool and fixed {known.shape} a number an "
                f"entry, both of the shape {(size, size)}: origin by destination"
            )
        free = possible & np.isnan(known)
        fixed = np.where(possible & ~np.isnan(known), known, 0.0)
        sums = fixed.sum(axis=1)
        problems = [
            f"row {cells[i]!r} of fixed sums to {sums[i]:.10g}: known entries are ≥ 0 and leave something "
            "for the free ones, or sum to 1 when none is free"
            for i in range(size)
            if (fixed[i] < 0).any() or not (sums[i] < 1 if free[i].any() else abs(sums[i] - 1) < 1e-8)
        ]
        if problems:
            raise ModelError(problems)
        return free, fixed


@dataclass(frozen=True, eq=False)
class LearnRate(Parametrisation):
    """Another parametrisation, and the rate λ of its Poisson observations: y ~ Poisson(λ r n).

    One λ multiplies all rates r that the observations were given.
    """

    parametrisation: Parametrisation

    def bind(self, model: Model) -> RateFamily:
        """See `Parametrisation`."""
        return RateFamily(self.parametrisation.bind(model))

    def check(self, problem: Problem) -> list[str]:
        """A rate needs Poisson counts without background."""
        found = [s for s in problem.sites if isinstance(s.noise, Poisson)]
        problems = self.parametrisation.check(problem)
        if not found:
            problems.append("there is no Poisson observation to learn a rate from")
        if any(np.any(np.asarray(s.noise.background) > 0) for s in found):  # type: ignore[attr-defined]
            problems.append("a rate is learned only where background = 0; give the rate, or leave it out")
        return problems


def _prefixed(labels: NDArray[np.object_], time: Hashable) -> NDArray[np.object_]:
    made = np.empty_like(labels)
    for index, text in np.ndenumerate(labels):
        made[index] = f"{text}@{time}"
    return made


def _chain(model: Model, what: str) -> MarkovChain:
    if not isinstance(model, MarkovChain):
        raise ModelError(
            f"{what} is for Markov chains, the problem's model is a {type(model).__name__}: use LogLinear"
        )
    return model


def _initial(chain: MarkovChain, initial: Any) -> tuple[MarkovChain, Rows | None]:
    """The chain with the fixed initial law, or the component that learns it."""
    if initial is None:
        return chain, None
    if isinstance(initial, str):
        if initial != "learned":
            raise ModelError(f'initial is {initial!r}: give None, probabilities, or "learned"')
        labels = np.array([[f"initial[{cell}]" for cell in chain.cells]], dtype=object)
        free = (np.asarray(chain.initial) > 0)[None]
        return chain, Rows(labels, free, np.zeros(free.shape))
    return MarkovChain(initial, chain.transitions, times=chain.times, cells=chain.cells), None


def _features(given: Any, names: Sequence[str] | None) -> tuple[Array, tuple[str, ...], Any]:
    """Features as an array, their names, and the cells' labels if the array brought them."""
    xarray = sys.modules.get("xarray")
    cells = None
    found: Sequence[Any] | None = None
    if xarray is not None and isinstance(given, xarray.DataArray):
        wanted = [d for d in ("step", "feature", "origin", "dest") if d in given.dims]
        if len(wanted) != given.ndim or wanted[-3:] != ["feature", "origin", "dest"]:
            raise ModelError(
                f"features have the dims {given.dims}: use feature, origin, dest, and step if they change"
            )
        given = given.transpose(*wanted)
        found = given.coords["feature"].values.tolist() if "feature" in given.coords else None
        ends = [tuple(given.coords[d].values.tolist()) for d in ("origin", "dest") if d in given.coords]
        if len(set(ends)) > 1:
            raise ModelError("the features' origins and destinations differ: they are the same cells")
        cells = ends[0] if ends else None
        values = np.asarray(given.values, dtype=float)
    else:
        found = given.names if isinstance(given, Named) else None
        values = np.asarray(given, dtype=float)
    if values.ndim not in (3, 4):
        raise ModelError(f"features have the shape {values.shape}: give (K, L, L), or (T − 1, K, L, L)")
    count = values.shape[-3]
    chosen = names if names is not None else found
    chosen = tuple(f"w{k + 1}" for k in range(count)) if chosen is None else tuple(str(n) for n in chosen)
    if len(chosen) != count or len(set(chosen)) != count:
        raise ModelError(f"{count} features have the names {chosen}: give one name each, all different")
    return values, chosen, cells
