"""Parametrisations of Markov chains: weights of features of moves, the transition matrices themselves, initial distributions."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from scipy import sparse

from headcount._types import Array, Index, Mask, Texts
from headcount.checks import attempt, brief, finite_number, instance, is_sequence, numbers
from headcount.errors import raise_all
from headcount.individual import LogLinearTransitions, MarkovChain, Model, ModelError
from headcount.learn._components import (
    FIRST_RIDGE,
    BetweenTables,
    Initial,
    MatrixMoves,
    Moves,
    Pooling,
    Weights,
    with_transitions,
)
from headcount.learn._family import Family, Parametrisation, fixed_problems, required, unknown_features
from headcount.learn._steps import Smooth, basis_values, class_index, classes_of
from headcount.observe import Problem

FIRST_STRENGTH = 1.0
"""Individuals per row that a prior is worth before its strength is learned: it only keeps the first matrices inside."""
FLAT = 2.0
"""The exponent α of `Rows` that stands for Dirichlet(1): in log-odds coordinates its density is Π π, one count more per cell."""


@runtime_checkable
class NamedFeatures(Protocol):
    """An array of features that names them, as the bird simulator's."""

    @property
    def names(self) -> Sequence[str]:
        """One per feature."""


class _Function(NamedTuple):
    """A function of time: how the names of its weights end, whether these have the prior's centre, and `_Weight.deviation`."""

    text: str
    centred: bool
    deviation: bool


class _Weight(NamedTuple):
    """One weight of a logistic chain: which function of time it multiplies, which feature, its name and its prior's centre."""

    column: int
    feature: int
    name: str
    centre: float
    deviation: bool = False
    """Whether it is a class's deviation from the common weight, or a difference between two steps, whose spread is learned."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ChainParametrisation(Parametrisation):
    """What the parametrisations of chains share: the initial distribution, and which steps are alike."""

    initial: Any = None
    by: Any = None
    pool: bool = True
    classes: tuple[Hashable, ...] | None = field(default=None, repr=False)
    """The classes of steps, which a fit finds from all its problems."""

    def settled(self, models: Sequence[Model]) -> Parametrisation:
        """See `Parametrisation`."""
        if self.by is None or self.classes is not None:
            return self
        return replace(self, classes=classes_of(self.by, [self._chain(m).times for m in models]))

    def _chain(self, model: Model) -> MarkovChain:
        return required(MarkovChain, model, type(self).__name__, "use LogLinear")

    def _classes(self, times: Sequence[Hashable]) -> tuple[tuple[Hashable, ...], Index]:
        """The classes of steps, and that of every step of these times, by its position."""
        classes = classes_of(self.by, [times]) if self.classes is None else self.classes
        return classes, class_index(self.by, times, classes)

    def _family(self, chain: MarkovChain, moves: Moves) -> Family:
        """The chain with these transitions; its initial distribution is its own, as given, or learned."""
        if isinstance(self.initial, str):
            if self.initial != "learned":
                raise ModelError(f'initial is {self.initial!r}: give None, probabilities, or "learned"')
            return Family(chain, (moves, Initial.of(chain)))
        if self.initial is not None:
            return Family(with_transitions(chain, self.initial), (moves,))
        return Family(chain, (moves,) if chain.initial_known else (moves, Initial.of(chain, dirichlet=FLAT)))


@dataclass(frozen=True, eq=False)
class LogisticChain(ChainParametrisation):
    """P_t(i, j) = exp(w_t·f_t(i, j)) / Z_t(i): a chain whose transitions follow features by weights.

    Parameters
    ----------
    features
        f, shape ``(K, L, L)`` when every step is the same, ``(T − 1, K, L, L)`` when features change with
        time; an `xarray.DataArray` with dims ``feature, origin, dest`` (and ``step``) brings names. For sparse maps a list of K
        ``scipy.sparse`` matrices: moves that no feature (or, if there is one, the mask) stores are impossible.
    names
        One per feature; taken from the features, or ``w1, w2, …``.
    mask
        Log offset, ``(L, L)`` or one per step: −inf forbids a move.
    fixed
        ``{name: weight}`` of weights that are not learned.
    ridge
        Strength of the prior −½ ridge (w − centre)² on every weight, one number or one per feature; ``"learned"``: one for all
        weights, from the data (features should then be of one scale).
    prior
        ``{name: centre}`` of that prior; zero where not given.
    initial
        The distribution of the first cell: None (the problem's model has it; where that is unknown it is learned under a
        flat prior), an array, or ``"learned"`` (without prior, over the cells to which the problem's model gives some
        probability).
    by
        Classes of steps with weights of their own: ``"hour"``, ``"weekday"``, ``"weekend"``, ``"week"``, ``"month"`` or
        ``"season"`` of the time at which a step begins, a list of these (their combinations), a whole number (the period of a
        cycle: with 52, week 53 is week 1), or one label per step.
    pool
        With ``by``: whether the classes' weights are drawn towards common ones, w_c = w + δ_c with δ_c ~ N(0, sd²), one sd per
        feature, learned (`Fit.shrinkage`).
    basis
        b(t) of weights that vary with time, w_t = Σ_m b_m(t) W_m: `headcount.learn.Periodic`, `headcount.learn.Smooth` (weights that
        drift, with a ridge on their differences), or an array ``(T − 1, M)``.
    varying
        Names of the features whose weights vary ``by`` class or with the ``basis``; None: all.

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
    prior: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    basis: Any = field(default=None, kw_only=True)
    varying: Sequence[str] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        values, found, labels = _features(self.features)
        count = len(values) if isinstance(values, list) else values.shape[-3]
        names = _feature_names(self.names if self.names is not None else found, count)
        problems = [
            *fixed_problems(self.fixed, names),
            *fixed_problems(self.prior, names, what="prior"),
            *_varying_problems(self, names),
        ]
        ridge = _ridge(self.ridge, len(names), problems)
        raise_all(problems)
        object.__setattr__(self, "features", values)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "ridge", ridge)
        object.__setattr__(self, "fixed", {k: float(v) for k, v in self.fixed.items()})
        object.__setattr__(self, "prior", {k: float(v) for k, v in self.prior.items()})
        object.__setattr__(self, "_labels", labels)
        object.__setattr__(self, "_free", [n for n in names if n not in self.fixed])
        object.__setattr__(self, "_linear", self._transitions(values, names))

    def _transitions(self, values: Any, names: Sequence[str]) -> LogLinearTransitions:
        """The features of the free weights; the fixed ones are part of the offset."""
        free = [k for k, name in enumerate(names) if name not in self.fixed]
        if not free:
            raise ModelError(f"all {len(names)} weights are fixed: leave one to be learned")
        if isinstance(values, list):
            if self.fixed:
                raise ModelError("fixed weights beside sparse features: add weight × feature to the mask")
            return LogLinearTransitions(values, self.mask)
        mask = self.mask
        if self.fixed:
            mask = self._with_fixed(values, names)
        return LogLinearTransitions(values[..., free, :, :], mask)

    def _with_fixed(self, values: Array, names: Sequence[str]) -> Array:
        """The mask with the fixed weights' part added; what is forbidden stays so, whatever its features are."""
        held = [k for k, name in enumerate(names) if name in self.fixed]
        weights = np.array([self.fixed[names[k]] for k in held])
        mask = np.asarray(0.0 if self.mask is None else self.mask, dtype=float)
        with np.errstate(invalid="ignore"):
            offset = np.tensordot(weights, values[..., held, :, :], axes=(0, values.ndim - 3))
            offset = np.where(np.isneginf(mask), -np.inf, offset + mask)
        if np.isnan(offset).any() or np.isposinf(offset).any():
            raise ModelError(
                f"the features of the fixed weights ({', '.join(names[k] for k in held)}) or the mask hold NaN or infinity at allowed "
                "moves: give numbers, and −inf in the mask for forbidden moves"
            )
        return offset

    def bind(self, model: Model) -> Family:
        """See `Parametrisation`."""
        chain = self._chain(model)
        linear: LogLinearTransitions = self._linear  # type: ignore[attr-defined]
        cells, steps = linear.cell_count, linear.steps
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
        raise_all(problems)
        return self._family(chain, self._weights(linear, chain.times))

    def _weights(self, linear: LogLinearTransitions, times: Sequence[Hashable]) -> Weights:
        """The weights on these times: one per feature, or one per feature that varies and function of time."""
        free: list[str] = self._free  # type: ignore[attr-defined]
        layout = [_Weight(0, k, name, self.prior.get(name, 0.0)) for k, name in enumerate(free)]
        if self.by is not None or self.basis is not None:
            rows, kinds, functions = self._functions(times)
            layout = self._layout(free, functions)
            basis = np.hstack([rows, np.ones((len(rows), 1))])
            linear = linear.varying(basis, kinds, [w.column for w in layout], [w.feature for w in layout])
        ridge, groups = self._ridges(free, layout)
        centre = np.array([w.centre for w in layout])
        return Weights(tuple(w.name for w in layout), ridge, centre, groups, linear, tuple(times))

    def _ridges(self, free: Sequence[str], layout: Sequence[_Weight]) -> tuple[Array, dict[str, Index]]:
        """The ridge of every weight, and the groups of weights that share a learned one."""
        place = np.array([w.feature for w in layout])
        apart = np.array([w.deviation for w in layout])
        given = self.basis.ridge if isinstance(self.basis, Smooth) else "learned"
        apart_ridge = FIRST_RIDGE if isinstance(given, str) else float(given)
        ridge = np.where(apart, apart_ridge, _of_features(self.ridge, self.names, free)[place])
        learned = apart & isinstance(given, str)
        groups = {name: np.flatnonzero(learned & (place == k)) for k, name in enumerate(free)}
        if isinstance(self.ridge, str):
            groups["all weights"] = np.flatnonzero(~apart)
        return ridge, {name: part for name, part in groups.items() if len(part)}

    def _layout(self, free: Sequence[str], functions: Sequence[_Function]) -> list[_Weight]:
        """The weights of features that vary: one per function of time, and, with pooled classes, a common one first."""
        pooled = self.by is not None and self.pool
        made = []
        for k, name in enumerate(free):
            centre = self.prior.get(name, 0.0)
            moves = self.varying is None or name in self.varying
            if pooled or not moves:
                made.append(_Weight(len(functions), k, name, centre))
            for m, one in enumerate(functions if moves else ()):
                made.append(_Weight(m, k, name + one.text, centre if one.centred else 0.0, one.deviation))
        return made

    def _functions(self, times: Sequence[Hashable]) -> tuple[Array, Index, list[_Function]]:
        """Values of the functions of time by kind of step, the kind of every step, and the functions."""
        if self.by is not None:
            classes, kinds = self._classes(times)
            functions = [_Function(f"@{label}", not self.pool, self.pool) for label in classes]
            return np.eye(len(classes)), kinds, functions
        values, names = basis_values(self.basis, times)
        rows, kinds = np.unique(values, axis=0, return_inverse=True)
        smooth = isinstance(self.basis, Smooth)
        texts = ["" if name == "1" else f"·{name}" for name in names]
        functions = [_Function(text, smooth and m == 0, smooth and m > 0) for m, text in enumerate(texts)]
        return rows, kinds.reshape(-1), functions


@dataclass(frozen=True, eq=False)
class TabularChain(ChainParametrisation):
    """P(i, j) itself, every entry free but for zeros and fixed ones.

    Parameters
    ----------
    mask
        Which moves are possible, ``(L, L)`` of bool; all if None. A list of such tables, one per step (or class), where they differ.
    homogeneous
        One matrix for all steps, or one per step (which totals alone rarely determine: give a prior). The cells may change
        from time to time when there is one matrix per step.
    fixed
        ``(L, L)`` of probabilities that are known, NaN where P is learned (or a list, one table per step or class); a row that is
        all known must sum to one.
    dirichlet
        α ≥ 1 of the prior Π P^(α−1); 1 is none.
    initial
        As for `LogisticChain`.
    by
        One matrix per class of steps; as for `LogisticChain`.
    pool
        With ``by``: whether the classes are drawn towards what they have in common: how much is left, and where to, by cell and by
        class. How strongly is learned (`Fit.shrinkage`); see `headcount.learn._components.Pooling`.
    prior
        A matrix ``(L, L)``, such as an old table of moves with rows summing to one, that P (of every class) is drawn towards.
    strength
        How many individuals' moves, per row, the prior is worth; ``"learned"`` from the data.
    context
        For many tables of two exact margins, what the log-odds of their rows depend on: ``"composition"``, the shares of the rows in each
        table, or numbers that describe the problem (one parametrisation per problem then). How strongly is learned, and integrated over.
    shared
        For many such tables: whether the rows of one deviate together from what they have in common, by an amount that is learned.
    """

    mask: Any = None
    homogeneous: bool = field(default=True, kw_only=True)
    fixed: Any = field(default=None, kw_only=True)
    dirichlet: float = field(default=1.0, kw_only=True)
    prior: Any = field(default=None, kw_only=True)
    strength: Any = field(default="learned", kw_only=True)
    context: Any = field(default=None, kw_only=True)
    shared: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        problems: list[str] = []
        expected = "a number ≥ 1 (1 is no prior)"
        attempt(problems, finite_number, self.dirichlet, "dirichlet", least=1.0, expected=expected)
        if not (isinstance(self.strength, str) and self.strength == "learned"):
            expected = 'individuals, a number ≥ 0, or "learned"'
            attempt(problems, finite_number, self.strength, "strength", least=0.0, expected=expected)
        if self.by is not None and not self.homogeneous:
            problems.append("by and homogeneous=False are both given: by says which steps share a matrix")
        attempt(problems, instance, self.pool, bool, "pool", expected="True or False")
        attempt(problems, instance, self.shared, bool, "shared", expected="True or False")
        if isinstance(self.context, str) and self.context != "composition":
            problems.append(
                f'context is {self.context!r}: give "composition", or numbers that describe the problem'
            )
        if self.between is not None and any(
            one is not None for one in (self.by, self.prior, self.mask, self.fixed)
        ):
            problems.append(
                "context and shared stand for how whole tables differ: leave out by, prior, mask and fixed"
            )
        if self.prior is not None:
            attempt(problems, _stochastic, self.prior)
        raise_all(problems)

    @property
    def between(self) -> BetweenTables | None:
        """What differs from table to table."""
        if self.context is None and not self.shared:
            return None
        given = self.context
        if given is not None and not isinstance(given, str):
            given = np.atleast_1d(numbers(given, "context", expected="numbers that describe the problem"))
        return BetweenTables(given, self.shared)

    def check(self, problem: Problem) -> list[str]:
        """See `Parametrisation`."""
        found = super().check(problem)
        if self.between is not None:
            sites, model = problem.sites, problem.model
            exact = {s.scope for s in sites if s.whole and s.noise.exact} == {(v,) for v in model.variables}
            if len(model.variables) != 2 or len(sites) != 2 or not exact or not problem.plain:
                found.append(
                    "context and shared are learned from tables of which both margins are known exactly"
                )
        return found

    def bind(self, model: Model) -> Family:
        """See `Parametrisation`."""
        chain = self._chain(model)
        cells = list(chain.states.values())
        steps = list(itertools.pairwise(cells)) or [(cells[0], cells[0])]
        if (self.homogeneous or self.prior is not None) and any(step != steps[0] for step in steps):
            raise ModelError(
                "the cells differ between times, so no matrix serves all steps: use TabularChain(homogeneous=False), without prior"
            )
        kinds = np.zeros(0, np.intp)
        names: tuple[Hashable, ...] = ()
        if self.by is not None:
            names, kinds = self._classes(chain.times)
            steps = steps[:1] * len(names)
        elif self.homogeneous:
            steps = steps[:1]
        else:
            kinds, names = np.arange(len(steps)), chain.times
        return self._family(chain, self._matrices(chain, steps, kinds, names))

    def _matrices(
        self,
        chain: MarkovChain,
        steps: Sequence[tuple[Sequence[Hashable], ...]],
        kinds: Index,
        times: Sequence[Hashable],
    ) -> MatrixMoves:
        """The matrices of all kinds of steps, padded to one width and stacked; entries are named by time where there are ``times``."""
        tables = [self._step(k, len(steps), before, after) for k, (before, after) in enumerate(steps)]
        at = times or [None] * len(steps)
        names = [_move_names(before, after, t) for (before, after), t in zip(steps, at, strict=False)]
        width = max(len(after) for _, after in steps)
        free = _stacked([free for free, _ in tables], width, False)
        pseudo, pooling = self._prior(len(steps), free)
        return MatrixMoves(
            _stacked(names, width, ""),
            free,
            _stacked([fixed for _, fixed in tables], width, 0.0),
            pseudo,
            np.concatenate([np.minimum(np.arange(len(before)), len(after) - 1) for before, after in steps]),
            pooling=pooling,
            times=chain.times,
            sizes=tuple(len(s) for s in chain.states.values()),
            kinds=kinds,
            between=self.between,
        )

    def _prior(self, classes: int, free: Mask) -> tuple[Array | float, Pooling | None]:
        """The prior's counts, and how they are learned if they are."""
        if self.prior is not None:
            centre = _stochastic(self.prior)
            if centre.shape != (len(free) // classes, free.shape[1]):
                raise ModelError(f"prior has the shape {centre.shape}, the model has {free.shape[1]} cells")
            learned = isinstance(self.strength, str)
            strength = FIRST_STRENGTH if learned else float(self.strength)
            counts = strength * np.tile(centre, (classes, 1)) + self.dirichlet - 1
            return counts, Pooling(classes, centre) if learned else None
        if self.by is None or not self.pool:
            return self.dirichlet - 1, None
        return FIRST_STRENGTH / free.shape[1] + self.dirichlet - 1, Pooling(classes)

    def _step(
        self, step: int, steps: int, before: Sequence[Hashable], after: Sequence[Hashable]
    ) -> tuple[Mask, Array]:
        """Free entries, and the probabilities of the others, of one step's matrix."""
        shape = (len(before), len(after))
        mask, known = _of_step(self.mask, step, steps), _of_step(self.fixed, step, steps)
        possible = np.ones(shape, bool) if mask is None else np.asarray(mask)
        fixed = np.full(shape, np.nan) if known is None else np.asarray(known, dtype=float)
        if possible.shape != shape or possible.dtype != bool or fixed.shape != shape:
            raise ModelError(
                f"mask ({possible.dtype}, {possible.shape}) must be bool and fixed {fixed.shape} one number per "
                f"entry, both of the shape {shape}: origin by destination"
            )
        free = possible & np.isnan(fixed)
        fixed = np.where(possible & ~np.isnan(fixed), fixed, 0.0)
        sums = fixed.sum(axis=1)
        complete = np.where(free.any(axis=1), sums < 1, np.abs(sums - 1) < 1e-8)
        problems = [
            f"row {before[i]!r} of fixed sums to {sums[i]:.10g}: known entries are ≥ 0 and leave something "
            "for the free ones, or sum to 1 when none is free"
            for i in np.flatnonzero(~complete | (fixed < 0).any(axis=1)).tolist()
        ]
        raise_all(problems)
        return free, fixed


@dataclass(frozen=True)
class LearnInitial(Parametrisation):
    """The initial distribution of a chain whose transitions are known; flat prior."""

    def bind(self, model: Model) -> Family:
        """See `Parametrisation`."""
        chain = required(MarkovChain, model, "an initial distribution")
        return Family(chain, (Initial.of(chain, dirichlet=FLAT),))


def _varying_problems(chain: LogisticChain, names: Sequence[str]) -> list[str]:
    """What is wrong with by, basis, varying and pool."""
    problems: list[str] = []
    ways = sum(way is not None for way in (chain.by, chain.basis))
    varying = () if chain.varying is None else chain.varying
    if ways == 2:
        problems.append("by and basis are both given: give one, or the classes as columns of the basis")
    if isinstance(varying, str) or not is_sequence(varying):
        problems.append(f"varying is {brief(varying)}: give a list of feature names")
    else:
        problems += unknown_features(varying, names, "varying")
    if chain.varying is not None and not ways:
        problems.append("varying is given without by or basis: say how weights vary")
    attempt(problems, instance, chain.pool, bool, "pool", expected="True or False")
    return problems


def _ridge(given: Any, count: int, problems: list[str]) -> Any:
    """The ridge as one number per feature, or ``"learned"``."""
    if isinstance(given, str) and given == "learned":
        return given
    ridge = numbers(given, "ridge", expected='a number ≥ 0, one per feature, or "learned"')
    if ridge.ndim > 1 or ridge.size not in (1, count) or not (np.isfinite(ridge) & (ridge >= 0)).all():
        problems.append(f'ridge is {given!r}: give a number ≥ 0, one per feature, or "learned"')
        return np.zeros(count)
    return np.broadcast_to(ridge, count).copy()


def _of_features(ridge: Any, names: Sequence[str] | None, free: Sequence[str]) -> Array:
    """The ridge of every free feature; where it is learned, what to begin with."""
    if isinstance(ridge, str):
        return np.full(len(free), FIRST_RIDGE)
    return np.array([float(r) for r, n in zip(ridge, names or (), strict=True) if n in free])


def _stochastic(prior: Any) -> Array:
    """A given matrix of probabilities, checked."""
    matrix = numbers(prior, "prior", expected="a matrix, origin by destination, rows summing to one")
    if matrix.ndim != 2 or not (matrix >= 0).all() or np.abs(matrix.sum(axis=1) - 1).max(initial=0.0) > 1e-6:
        raise ModelError("prior is no transition matrix: give (L, L) numbers ≥ 0 whose rows sum to one")
    return matrix


def _of_step(given: Any, step: int, steps: int) -> Any:
    """A setting of one step: the same for all, or one of a sequence of tables."""
    tables = given if isinstance(given, (list, tuple)) else np.asarray(given)
    if given is None or len(tables) == 0 or np.ndim(tables[0]) < 2:
        return given
    if len(given) != steps:
        raise ModelError(f"{len(given)} tables are given for {steps} steps: give one, or one per step")
    return given[step]


def _move_names(before: Sequence[Hashable], after: Sequence[Hashable], time: Hashable | None) -> Texts:
    """Names of a matrix's entries, with the time where there is one."""
    end = "" if time is None else f"@{time}"
    return np.array([[f"P[{a}→{b}]{end}" for b in after] for a in before], dtype=object)


def _stacked(tables: Sequence[Any], width: int, blank: Any) -> Any:
    """Tables one below the other, with further columns of ``blank`` where they are narrower than ``width``."""
    padded = [np.pad(t, ((0, 0), (0, width - t.shape[1])), constant_values=blank) for t in tables]
    return np.concatenate(padded)


def _features(given: Any) -> tuple[Any, Sequence[Any] | None, tuple[Hashable, ...] | None]:
    """Features as an array (or a list of sparse maps), and the names and the cells' labels that they brought."""
    if isinstance(given, (list, tuple)) and len(given) and all(map(sparse.issparse, given)):
        return list(given), None, None
    xarray = sys.modules.get("xarray")
    if xarray is not None and isinstance(given, xarray.DataArray):
        return _labelled_features(given)
    values = numbers(given, "features", expected="(K, L, L) numbers, or (T − 1, K, L, L)")
    if values.ndim not in (3, 4):
        raise ModelError(f"features have the shape {values.shape}: give (K, L, L), or (T − 1, K, L, L)")
    return values, given.names if isinstance(given, NamedFeatures) else None, None


def _labelled_features(given: Any) -> tuple[Array, Sequence[Any] | None, tuple[Hashable, ...] | None]:
    wanted = [d for d in ("step", "feature", "origin", "dest") if d in given.dims]
    if len(wanted) != given.ndim or wanted[-3:] != ["feature", "origin", "dest"]:
        raise ModelError(
            f"features have the dims {given.dims}: use feature, origin, dest, and step if they change"
        )
    given = given.transpose(*wanted)
    names = given.coords["feature"].values.tolist() if "feature" in given.coords else None
    ends = [tuple(given.coords[d].values.tolist()) for d in ("origin", "dest") if d in given.coords]
    if len(set(ends)) > 1:
        raise ModelError("the features' origins and destinations differ: they are the same cells")
    return np.asarray(given.values, dtype=float), names, ends[0] if ends else None


def _feature_names(given: Sequence[Any] | None, count: int) -> tuple[str, ...]:
    if given is not None and not is_sequence(given):
        raise ModelError(f"names is {brief(given)}: give a sequence of {count} names")
    names = tuple(f"w{k + 1}" for k in range(count)) if given is None else tuple(str(n) for n in given)
    if len(names) != count or len(set(names)) != count:
        raise ModelError(f"{count} features have the names {names}: give one name each, all different")
    return names
