"""The base of every noise model, and what a user's own noise needs to say."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from headcount._types import Array
from headcount.checks import brief, numbers
from headcount.errors import ModelError, ProblemError
from headcount.labels import is_dataarray, is_frame, is_series

Numbers = Any
"""What holds one number per entry, or one for all: numbers, arrays, pandas and xarray objects, mappings from variables to these."""
_NUMERIC = {"Numbers", "float", "int"}
"""Annotations of fields that must hold numbers."""
SHARED = ("counts", "on", "sums")
MOMENT_DRAWS = 4000
"""Draws from which a noise's mean and variance are found where it does not give them: the variance is then known to about 2 %."""


class Fault(NamedTuple):
    """Entries that cannot be right: which ones, what is wrong and the remedy, the values met."""

    where: NDArray[np.bool_]
    text: str
    values: Array


TAIL_UNDERFLOWS = 1e-290
"""Probability of a tail below which its closed form loses digits: the smallest normal number is 2e-308."""
SUMMED_BELOW = 0.999
"""Probability of the smaller counts up to which a tail is 1 − that: three digits of sixteen are lost there at most."""
LOG_NEGLIGIBLE = -40.0
"""Logarithm of the share of a sum below which its next, smaller term is left out: e⁻⁴⁰ = 4e-18."""
MOST_TERMS = 100_000
"""Terms of such a sum, at most. Of Poisson counts their ratio is at most 1 − 36/√y where the tail underflows: y = 1e6 needs 1 000."""
LARGEST_PARAMETER = 1e75
"""Largest sd, scale, rate or dispersion of a noise, and one over the smallest: their fourth powers are still numbers."""


@dataclass(frozen=True, eq=False)
class Observation(ABC):
    """Noise bound to data: log l(y | n) for every observed count y of a true count n.

    A noise of your own is a frozen dataclass with its parameters as fields and a `log_prob`; derivatives
    follow by finite differences unless you supply `slope` and `curvature`:

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> @dataclass(frozen=True, eq=False, kw_only=True)
    ... class Cauchy(Observation):
    ...     scale: float = 1.0
    ...
    ...     def log_prob(self, n):
    ...         return -np.log(np.pi * self.scale * (1 + ((self.counts - n) / self.scale) ** 2))
    >>> noise = Cauchy([3.0, 5.0], scale=2.0)
    >>> noise.slope(np.array([1.0, 4.0])).round(6)
    array([0.5, 0.4])

    Parameters
    ----------
    counts
        y: an array, an `xarray.DataArray`, a pandas Series or DataFrame, or a mapping from a variable (or a
        tuple of variables) to such a table. NaN or an absent row is "not observed"; zero is data.
    on
        Which table was seen: None (every variable; for arrays one row per variable), a variable, or a tuple
        of variables.
    sums
        A 0/1 matrix, one row per count and one column per table entry (or ``{name: [states]}``): each count is
        then the total of several entries.

    Notes
    -----
    A `Problem` binds an observation to its model: after that `counts` and every per-entry parameter are 1-D
    arrays over what was observed. The functions of n take arrays of shape (..., K), the last axis aligned
    with the K counts.

    A field holds one number per entry (it is broadcast to the table's shape) unless its metadata say
    ``{"per": "pair"}`` (a K × K matrix) or ``{"per": "all"}`` (carried along untouched). Text, True and False, and functions are
    settings, refused where the field is annotated ``float`` or ``int``.
    """

    counts: Numbers
    on: Any = field(default=None, kw_only=True)
    sums: Numbers = field(default=None, kw_only=True)

    gaussian: ClassVar[bool] = False
    """Conditioning on it is closed-form: Gaussian and exact noise."""
    exact: ClassVar[bool] = False
    """The true count is seen."""
    log_concave: ClassVar[bool] = False
    """log l(y | n) is concave in n for every y."""
    smooth: ClassVar[bool] = True
    """log l(y | n) is twice differentiable in n inside its domain."""
    whole: ClassVar[bool] = False
    """Counts must be whole numbers ≥ 0."""
    any_real: ClassVar[bool] = False
    """`log_prob` is finite at every real n, also below zero."""
    poisson_shaped: ClassVar[bool] = False
    """`concave_part` is available."""
    of_size: ClassVar[bool] = False
    """Whether it stands for the law of a group's size, which engines know by themselves."""
    bound: ClassVar[bool] = False
    """Whether counts are bounds and no readings."""
    positive: ClassVar[Mapping[str, str]] = {}
    """Parameters that must be above zero, and what to do where they are not."""
    keyword: ClassVar[str] = ""
    """Its name in tables and on the command line; empty where it has none there."""
    words: ClassVar[str] = ""
    """The counts it gives, as pages call them; by the name of its class where this is empty."""
    learned: ClassVar[str] = ""
    """The parameter, common to all entries, that a fit can learn; empty where there is none."""

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.name == "on" or (value is None and item.default is None):
                continue
            setting = isinstance(value, (str, bool)) or callable(value)
            if not setting or _is_numeric(item.type):
                object.__setattr__(self, item.name, as_data(value, f"{type(self).__name__}({item.name}=...)"))

    @property
    def name(self) -> str:
        """What results call this noise."""
        return type(self).__name__

    @abstractmethod
    def log_prob(self, n: ArrayLike) -> Array:
        """The log-likelihood log l(y | n), constants included, for real n; −inf where impossible."""

    def slope(self, n: ArrayLike) -> Array:
        """d/dn log l(y | n); by finite differences here."""
        return derivative(self.log_prob, np.asarray(n, dtype=float), self.domain_low, order=1)

    def curvature(self, n: ArrayLike) -> Array:
        """d²/dn² log l(y | n); by finite differences here."""
        return derivative(self.log_prob, np.asarray(n, dtype=float), self.domain_low, order=2)

    def sample(self, n: ArrayLike, *, rng: np.random.Generator) -> Array:
        """Draw y given n."""
        raise NotImplementedError(
            f"{type(self).__name__} has no sample(n, *, rng): write one to simulate with this noise"
        )

    def moments(self, n: ArrayLike) -> tuple[Array, Array]:
        """Mean and variance of y given n, for the check of fit; from draws of `sample` here, NaN where there is no `sample`.

        Draws are made with a fixed seed, so that the same n gives the same answer.
        """
        n = np.asarray(n, dtype=float)
        shape = np.broadcast_shapes(n.shape, np.shape(self.counts))
        try:
            rng = np.random.default_rng(0)
            draws = self.sample(np.broadcast_to(np.rint(n), (MOMENT_DRAWS, *shape)), rng=rng)
        except NotImplementedError:
            return np.full(shape, np.nan), np.full(shape, np.nan)
        return draws.mean(axis=0), draws.var(axis=0)

    def log_tail(self, n: ArrayLike, up: NDArray[np.bool_]) -> Array:
        """log P(y ≥ counts | n) where `up`, log P(y ≤ counts | n) elsewhere: what `Censored` asks.

        Here the sum over whole counts, one by one; a noise whose counts are not whole, or large, writes its own.
        """
        if not self.whole:
            raise NotImplementedError(
                f"{self.name} has no log_tail(n, up): write one to read bounds with this noise"
            )
        below = np.exp(
            self._summed(n, self.counts - up, -1)
        )  # one count less where counts from y on are asked for
        outward = self._summed(n, self.counts, np.where(up, 1, -1))
        near = up & (below < SUMMED_BELOW)
        return np.where(near, np.log1p(-np.where(near, below, 0.0)), outward)

    def _log_of_tail(self, tail: Array, n: ArrayLike, up: NDArray[np.bool_]) -> Array:
        """The logarithm of a tail's probability, summed one by one where that underflows: there its terms fall quickly."""
        tail, n, up = np.broadcast_arrays(tail, np.asarray(n, dtype=float), up)
        far = tail < TAIL_UNDERFLOWS
        value = np.log(np.where(far, 1.0, tail))
        if far.any():
            step = np.where(up[far], 1, -1)
            part = self.take(np.nonzero(far)[-1])
            value[far] = part._summed(n[far], part.counts, step)
        return value

    def _summed(self, n: ArrayLike, first: Array, step: Any) -> Array:
        """log of the sum of l(y | n) over y = first, first + step, … ≥ 0, until the terms are negligible."""

        def term(y: Array) -> Array:
            return np.where(y >= 0, self.replaced({"counts": np.maximum(y, 0.0)}).log_prob(n), -np.inf)

        total = last = term(first)
        for k in range(1, MOST_TERMS):
            y = first + k * step
            before, last = last, term(y)
            total = np.logaddexp(total, last)
            over = (y <= 0) | ((step > 0) & np.isneginf(total))
            if (over | ((last < before) & (last < total + LOG_NEGLIGIBLE))).all():
                return np.asarray(total)
        raise ValueError(
            f"{self.name}: more than {MOST_TERMS} counts lie within a bound; write log_tail(n, up) for this noise"
        )

    def steadier(self) -> Mapping[str, Observation]:
        """Noises with the same mean and less scatter, by the call to write: what counts that scatter too little may have had."""
        return {}

    def implied(self) -> Array:
        """The n whose expected reading is the count, shape (K,): the count itself, unless the noise says otherwise."""
        return np.asarray(self.counts, dtype=float)

    @classmethod
    def parameters(cls) -> dict[str, bool]:
        """Its parameters that hold a number per entry, and whether each must be given."""
        default = {f.name: f.default for f in dataclasses.fields(cls)}
        return {
            name: default[name] in (None, dataclasses.MISSING)
            for name, held in _declared(cls)
            if held == "entry"
        }

    @property
    def domain_low(self) -> Array:
        """The lower end of the n for which `log_prob` is finite (itself included or not), shape (K,)."""
        return np.full(np.shape(self.counts), -np.inf if self.any_real else 0.0)

    @property
    def correlated(self) -> bool:
        """Whether errors depend on each other; only the sum of `log_prob` is then meant."""
        return False

    @property
    def gaussian_variance(self) -> Array | None:
        """Of a Gaussian in n with errors: variances (K,), or a covariance (K, K); None of every other noise."""
        return None

    @property
    def corner_slopes(self) -> tuple[Array, Array] | None:
        """Lowest and highest slope, each of shape (K,), of a log l that is linear on both sides of n = y; None of every other noise."""
        return None

    def linear(self) -> NDArray[np.bool_]:
        """At which entries log l(y | n) is exactly linear in n, shape (K,)."""
        return np.zeros(np.shape(self.counts), dtype=bool)

    def concave_part(self, n0: ArrayLike) -> tuple[Array, Array, Array]:
        """(a, b, s) of a log(n + s) − b n.

        Up to a constant it lies below log l(y | n) everywhere and touches it at n0.
        """
        raise NotImplementedError(
            f"{type(self).__name__} is not Poisson-shaped: ask `poisson_shaped` before `concave_part`"
        )

    def in_units(self, size: Array) -> tuple[Observation, float]:
        """The noise on m where n = size · m, size of shape (K,), and the log of what densities of y lose by it."""
        return UnitNoise(self.counts, inner=self, size=size), 0.0

    def faults(self, population: int) -> Iterator[Fault]:
        """What cannot be right about the bound data and parameters, for N = `population`."""
        counts = self.counts
        yield Fault(np.isinf(counts), "a count must be finite (NaN means not observed)", counts)
        if self.whole:
            yield Fault(counts < 0, "a count must be ≥ 0 (NaN means not observed)", counts)
            fractional = np.isfinite(counts) & (counts != np.rint(counts))
            yield Fault(
                fractional,
                "a count must be a whole number; rates and averages are Gaussian, shares and relative abundances Exact.of_shares",
                counts,
            )
        for name, value in self.entry_parameters().items():
            finite = f"{name} must be a finite number wherever there is a count"
            yield Fault(~np.isfinite(value), finite, np.asarray(value))
            if name in self.positive:
                above = f"{name} must be > 0; {self.positive[name]}"
                yield Fault(np.asarray(value) <= 0, above, np.asarray(value))
                far = (value > 0) & ((value < 1 / LARGEST_PARAMETER) | (value > LARGEST_PARAMETER))
                within = f"{name} must lie between {1 / LARGEST_PARAMETER:g} and {LARGEST_PARAMETER:g}"
                yield Fault(far & np.isfinite(value), f"{within}; {self.positive[name]}", np.asarray(value))

    def take(self, index: ArrayLike) -> Self:
        """The same noise on some of its entries (flat index or mask)."""
        if not isinstance(self.counts, np.ndarray):
            raise TypeError(f"{type(self).__name__}.take needs plain counts; a Problem's sites have them")
        index = np.asarray(index)
        size, values = self.counts.size, {"counts": self.counts.ravel()[index]}
        for name, value in self.entry_parameters().items():
            values[name] = (
                value if np.ndim(value) == 0 else np.broadcast_to(value, self.counts.shape).ravel()[index]
            )
        for name, value in self._parameters("pair").items():
            values[name] = value[np.ix_(np.arange(size)[index], np.arange(size)[index])]
        return self.replaced(values)

    def replaced(self, values: Mapping[str, Any]) -> Self:
        """A copy with some fields replaced, as they are."""
        twin = copy.copy(self)
        for name, value in values.items():
            object.__setattr__(twin, name, value)
        return twin

    def entry_parameters(self) -> dict[str, Any]:
        """The parameters that hold one number per entry (or one for all), by name."""
        return self._parameters("entry")

    @property
    def family(self) -> tuple[Hashable, ...]:
        """Equal for noises that differ only in counts and per-entry parameters: only these can be concatenated."""
        entry = self.entry_parameters()
        rest = [(name, getattr(self, name)) for name, _ in _declared(type(self)) if name not in entry]
        same = [(k, v if isinstance(v, (str, bool, type(None))) else id(v)) for k, v in rest]
        return (type(self), *entry, *same)

    def pair_parameters(self) -> dict[str, Any]:
        """The parameters that hold one number for every two entries, by name."""
        return self._parameters("pair")

    def _parameters(self, per: str) -> dict[str, Any]:
        found = {}
        for name, held in _declared(type(self)):
            if held == per:
                value = getattr(self, name)
                if value is not None and not isinstance(value, (str, bool)) and not callable(value):
                    found[name] = value
        return found


@dataclass(frozen=True, eq=False)
class UnitNoise(Observation):
    """log l(y | c m) as a function of m, for units of c individuals each."""

    inner: Any = field(default=None, kw_only=True, metadata={"per": "all"})
    size: Any = field(default=1.0, kw_only=True, metadata={"per": "all"})

    def __post_init__(self) -> None:
        """Nothing is left to read, since the inner noise is bound to its data; what is true of it is true in units."""
        for name in ("log_concave", "smooth", "whole", "any_real"):
            object.__setattr__(self, name, getattr(self.inner, name))

    @property
    def domain_low(self) -> Array:
        """That of n over c."""
        return np.asarray(self.inner.domain_low) / self.size

    def log_prob(self, n: ArrayLike) -> Array:
        """That of c n."""
        return np.asarray(self.inner.log_prob(self.size * np.asarray(n, dtype=float)))

    def slope(self, n: ArrayLike) -> Array:
        """By the chain rule."""
        return np.asarray(self.size * self.inner.slope(self.size * np.asarray(n, dtype=float)))

    def curvature(self, n: ArrayLike) -> Array:
        """By the chain rule."""
        return np.asarray(self.size**2 * self.inner.curvature(self.size * np.asarray(n, dtype=float)))

    def linear(self) -> NDArray[np.bool_]:
        """As the inner noise."""
        return np.asarray(self.inner.linear())

    def sample(self, n: ArrayLike, *, rng: np.random.Generator) -> Array:
        """Given c n."""
        return np.asarray(self.inner.sample(self.size * np.asarray(n, dtype=float), rng=rng))

    def moments(self, n: ArrayLike) -> tuple[Array, Array]:
        """Given c n."""
        moments: tuple[Array, Array] = self.inner.moments(self.size * np.asarray(n, dtype=float))
        return moments

    def implied(self) -> Array:
        """That of n over c."""
        return np.asarray(self.inner.implied()) / self.size

    def take(self, index: ArrayLike) -> UnitNoise:
        """The same on some entries."""
        part = self.inner.take(index)
        sizes = np.broadcast_to(np.asarray(self.size, dtype=float), self.counts.shape)
        return UnitNoise(part.counts, inner=part, size=sizes.ravel()[np.asarray(index)])


def _is_numeric(annotation: Any) -> bool:
    """Whether a field's annotation says that it holds numbers."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return bool(_NUMERIC & set(text.replace(" ", "").split("|")))


@cache
def _declared(noise: type[Observation]) -> tuple[tuple[str, str], ...]:
    """The names of a noise's parameters, and what each holds one number per."""
    return tuple(
        (item.name, item.metadata.get("per", "entry"))
        for item in dataclasses.fields(noise)
        if item.name not in SHARED
    )


def is_labelled(data: Any) -> bool:
    """Whether `data` carries labels of its own."""
    return is_dataarray(data) or is_series(data) or is_frame(data)


def _is_truth(value: Any) -> bool:
    """Whether an array, a cube, a series or a frame holds True and False."""
    kinds = (
        [t.kind for t in value.dtypes]
        if is_frame(value)
        else [getattr(getattr(value, "dtype", None), "kind", "")]
    )
    return set(kinds) == {"b"}


def as_data(value: Any, what: str) -> Any:
    """Plain numbers as a read-only float array, masked entries NaN; labelled data, mappings and sparse matrices untouched."""
    if what.endswith("(counts=...)") and _is_truth(value):
        raise ProblemError(f"{what} is True and False: give numbers, counts.astype(int) if 0 and 1 are meant")
    if is_labelled(value) or issparse(value) or isinstance(value, Mapping):
        return value
    if value is None or isinstance(value, (bool, np.bool_)):
        raise ProblemError(f"{what} is {brief(value)}: give numbers, or labelled data; NaN is not observed")
    try:
        if isinstance(value, np.ma.MaskedArray):
            array = np.ma.filled(np.ma.array(numbers(value.data, what), mask=value.mask), np.nan)
        else:
            array = np.array(numbers(value, what))
    except ModelError as error:
        raise ProblemError(error.problems) from None
    array.setflags(write=False)
    return array


# Offsets in steps, weights of the first derivative (per step), weights of the second (per step squared);
# times 1/12.
_Stencil = tuple[tuple[int, ...], ...]
_CENTRED: _Stencil = ((-2, -1, 0, 1, 2), (1, -8, 0, 8, -1), (-1, 16, -30, 16, -1))
_FORWARD: _Stencil = ((0, 1, 2, 3, 4), (-25, 48, -36, 16, -3), (35, -104, 114, -56, 11))
_STEPS = 7
"""Number of step sizes, from the widest down to 5⁻⁶ = 6e-5 of it. The best one is eps^(1/5) = 7e-4 (slope) or eps^(1/6) = 2e-3
(curvature) of the scale on which log l bends; that scale may so be a thirtieth of the widest step."""
_SHRINK = 5.0
"""Factor between two step sizes: one is within √5 of the best, which costs at most a factor of 25 in an error of about 1e-12."""
_AT_ONCE = 10_000
"""Entries up to which all step sizes are asked for in one call: calls cost more than places where there are few."""
_WIDEST = 0.2
"""The widest step in units of sqrt(n), the standard deviation of a Poisson count: its density varies little over a fifth of that."""


def derivative(log_prob: Callable[[Array], Array], n: Array, low: Array, *, order: int) -> Array:
    """d^order/dn^order log l(y | n) by finite differences, never looking below `low`.

    Five-point stencils with a decreasing series of step sizes; the result is the estimate that differs least from the one with the
    next larger step. One fixed step size cannot serve: a Poisson varies over sqrt(n), a sensor of fixed precision over its own width,
    and n runs from 0 to 1e12.

    Parameters
    ----------
    log_prob
        Elementwise function of n, shape (..., K).
    n
        Where, shape (..., K).
    low
        Lower end of the domain, shape (K,); at ``n == low`` the stencil looks forwards only.
    order
        1 or 2.
    """
    n = np.asarray(n, dtype=float)
    distance = n - low
    widest = _WIDEST * np.sqrt(np.maximum(np.abs(n), 1.0))
    # A quarter of the distance to the end keeps the centred stencil inside the open domain, at whose end the function may be
    # infinite. At the end itself the distance is 0: the centred estimate is computed elsewhere and not used.
    step = np.where(distance > 0, np.minimum(widest, distance / 4), widest)
    centre = np.where(distance > 0, n, n + 2 * widest)
    best, gap = _finest(log_prob, centre, step, _CENTRED, order)
    close = distance < 4 * widest
    if not close.any():
        return best
    # Near the end of the domain the one-sided stencil may be better: its steps need not shrink.
    ahead, gap_ahead = _finest(log_prob, n, widest, _FORWARD, order)
    with np.errstate(divide="ignore", invalid="ignore"):
        better = ~(gap / np.abs(best) <= gap_ahead / np.abs(ahead))
    return np.where((distance <= 0) | (close & better), ahead, best)


def _finest(
    log_prob: Callable[[Array], Array], n: Array, widest: Array, stencil: _Stencil, order: int
) -> tuple[Array, Array]:
    """The estimate that differs least from the one with the next larger step, and the difference."""
    weights = np.array(stencil[order], dtype=float)
    offsets, weights = np.array(stencil[0])[weights != 0], weights[weights != 0]
    at_once = min(max(_AT_ONCE // max(n.size, 1), 1), _STEPS)
    estimates: list[Array] = []
    with np.errstate(invalid="ignore"):  # infinite where a value is −inf
        for k in range(0, _STEPS, at_once):
            steps = np.multiply.outer(_SHRINK ** -np.arange(k, min(k + at_once, _STEPS), dtype=float), widest)
            values = np.asarray(log_prob(n + np.multiply.outer(offsets, steps)))
            # One by one: products of matrices add in an order that depends on the shape.
            total = sum(w * v for w, v in zip(weights, values, strict=True))
            estimates.extend(total / (12 * steps**order))
        best, least = estimates[0], np.full(n.shape, np.inf)
        for wide, narrow in pairwise(estimates):
            gap = np.abs(wide - narrow)
            closer = gap < least
            best, least = np.where(closer, narrow, best), np.where(closer, gap, least)
    return best, least
