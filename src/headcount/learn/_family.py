"""Families of models: parameters x, cut into components, and what they make of a model, its counts and its data.

A component is one kind of learned parameter. It says which table n of counts it is learned from, where its values go (into the model or
into the problem), and its complete-data log-likelihood

    l(x; n) = E log p(n; x) + constant        concave in x; gradient ∂l, information −∂²l
    l(x; n₁ + n₂ + …) + log prior(x)          what an M-step maximises, n summed over the problems that share x

The gradient at expected counts n = E[n | y] is the gradient of the evidence (Fisher's identity). A family is a template and its
components; everything else (E-steps, climbs, standard errors, files, forecasts) asks no more of it than this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from scipy.linalg import block_diag
from scipy.special import expit, logit, ndtri

from headcount._types import Array, Index, Scope
from headcount.checks import attempt, finite_number, instance
from headcount.individual import Model, ModelError
from headcount.learn._files import Saved
from headcount.observe import Problem, ProblemError

Tables = Callable[[Scope], Any]
"""Count tables, observed or expected, by scope. Those of an E-step are `Counted`."""


@dataclass(frozen=True)
class Counted:
    """Expected counts of one problem."""

    mean: Tables
    full: Tables | None = None
    """Of an open population: its tables with the hidden states."""
    group: Callable[[Any], Counted] | None = None
    """Of a problem with groups: the tables of one of them, by its name."""
    model: Model | None = None
    """Of individuals with hidden states: the model under which they were counted."""

    def __call__(self, scope: Scope) -> Any:
        return self.mean(scope)


@dataclass(frozen=True)
class Natural:
    """Parameters as people name them: values, derivative with respect to x, and the scale on which they are nearly Gaussian.

    Attributes
    ----------
    names
        One per value.
    values
        Shape (M,).
    slopes
        Makes ∂values/∂x, shape (M, K): with many parameters, only where it is asked for.
    link
        ``"identity"`` (weights), ``"logit"`` (probabilities) or ``"log"`` (rates): intervals are symmetric on that scale.
    """

    names: tuple[str, ...]
    values: Array
    slopes: Callable[[], Array]
    link: tuple[str, ...]

    @cached_property
    def jacobian(self) -> Array:
        """∂values/∂x, shape (M, K)."""
        return self.slopes()


class Component(ABC):
    """Parameters x, shape (K,), of one kind, that are learned together from one table n."""

    names: tuple[str, ...]
    """One per parameter."""

    @abstractmethod
    def statistic(self, tables: Tables, units: Tables, problem: Problem | None) -> Any:
        """n, from the count tables of a problem.

        ``units`` are the tables in independent units (`headcount.population.unit_tables`), from which a model is learned where
        individuals move together; ``problem`` tells what concerns the data, None where all counts are known.
        """

    def in_model(self, x: Array, model: Model) -> Model:
        """The model with these parameters; as it is where they are not the model's."""
        del x
        return model

    def in_problem(self, x: Array, problem: Problem) -> Problem:
        """The problem with these parameters; as it is where they are not the data's."""
        del x
        return problem

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
        """The information's diagonal without centring, shape (K,): information below rounding error of it is zero."""
        return np.diagonal(self.information(x, n))

    @abstractmethod
    def natural(self, x: Array) -> Natural:
        """The parameters as people name them."""

    def working(self, values: Mapping[str, float], x: Array) -> Array:
        """x changed so that the natural parameters in ``values`` have the given values."""
        names = self.natural(x).names
        made = x.copy()
        for name, value in values.items():
            k = names.index(name)
            made[k] = self.from_natural(k, name, value)
        return made

    def from_natural(self, k: int, name: str, value: float) -> float:
        """The k-th parameter whose natural value, of that name, is ``value``; itself where it is its own natural parameter."""
        del k, name
        return value

    def natural_from(self, table: Array) -> Array | None:
        """The natural parameters in a table of all entries, free or not; None where it is no such table."""
        del table
        return None

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

    def shrunk(self, x: Array, n: Any) -> tuple[Any, dict[str, float]] | None:
        """The same component with its prior learned from n, and the prior's strengths by name; None where the prior is given."""
        return None

    def prior_numbers(self) -> dict[str, Any]:
        """The fields that hold a learned prior; empty where it is given."""
        return {}

    def closed_form(self, x: Array, n: Any) -> Array | None:
        """argmax of l(·; n) + log prior; None where it takes Newton's method."""
        return None

    def closed_solve(self, x: Array, n: Any, v: Array) -> Array | None:
        """(information + prior information)⁻¹ v; None where it takes a dense solve."""
        return None

    def reach(self, x: Array) -> Array:
        """The largest log-odds that each parameter makes, shape (K,); zero where an infinite one is a proper maximum."""
        return np.zeros_like(x)

    def vanishing(self, x: Array, n: Any, least: float) -> list[tuple[str, Array]]:
        """Probabilities under which fewer than ``least`` individuals are expected, with the direction of x that moves each alone."""
        del x, n, least
        return []

    def alike(self, other: Component) -> bool:
        """Whether l is the same function, so that tables of the other component can be added to this one's."""
        return other is self


C = TypeVar("C", bound=Component)
M = TypeVar("M", bound=Model)


def required(kind: type[M], model: Model, what: str, hint: str = "") -> M:
    """`model`, if it is of the kind of which ``what`` is learned."""
    if not isinstance(model, kind):
        end = f": {hint}" if hint else ""
        raise ModelError(
            f"{what} is learned of a {kind.__name__}, the problem's model is a {type(model).__name__}{end}"
        )
    return model


@dataclass(frozen=True)
class Part(Generic[C]):
    """One component of a family, and the positions of its parameters among all."""

    component: C
    where: Index


@dataclass(frozen=True, eq=False)
class InGroup:
    """The group whose model a component belongs to, in a problem with groups."""

    name: Hashable
    start: Callable[[], Array]
    """Makes the parameters at which a search begins: those nearest to the group's model as it was given. Groups that begin alike
    would stay alike."""

    def model(self, component: Component, x: Array, problem: Problem) -> Problem:
        """The problem with this group's model changed."""
        groups = dict(problem.groups or {})
        model: Any = component.in_model(x, groups[self.name].model)
        return problem.with_groups(groups | {self.name: replace(groups[self.name], model=model)})


@dataclass(frozen=True, eq=False)
class Family:
    """Models by parameters: x ↦ p_x, one slice of x per component; what is not learned is the template's."""

    template: Model
    components: tuple[Component, ...]
    groups: Mapping[int, InGroup] = field(default_factory=dict)
    """By position among the components: whose they are. The others belong to the template or to the problem."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parameters' names."""
        return tuple(name for k, c in enumerate(self.components) for name in self.named(k, c.names))

    def named(self, k: int, names: Iterable[str]) -> tuple[str, ...]:
        """Names within the k-th component as the whole family has them: after that of its group."""
        return tuple(f"{self.groups[k].name}: {name}" if k in self.groups else name for name in names)

    def split(self, x: Array) -> list[Array]:
        """x by component."""
        ends = np.cumsum([len(c.names) for c in self.components])
        return np.split(np.asarray(x, dtype=float), ends[:-1]) if len(ends) else []

    def find(self, kind: type[C]) -> Part[C] | None:
        """The component of a kind, if there is one; those of groups are not looked at."""
        start = 0
        for k, component in enumerate(self.components):
            stop = start + len(component.names)
            if k not in self.groups and isinstance(component, kind):
                return Part(component, np.arange(start, stop))
            start = stop
        return None

    def start(self) -> Array:
        """The neutral start."""
        starts = [
            self.groups[k].start() if k in self.groups else c.start() for k, c in enumerate(self.components)
        ]
        return np.concatenate([np.zeros(0), *starts])

    def model(self, x: Array) -> Model:
        """p_x."""
        made = self.template
        for k, part in enumerate(self.split(x)):
            if k not in self.groups:
                made = self.components[k].in_model(part, made)
        return made

    def apply(self, x: Array, problem: Problem) -> Problem:
        """The same data under p_x."""
        made = problem.with_model(self.model(x))
        for k, part in enumerate(self.split(x)):
            component, owner = self.components[k], self.groups.get(k)
            made = component.in_problem(part, made) if owner is None else owner.model(component, part, made)
        return made

    def statistics(
        self, tables: Tables, problem: Problem | None, units: Tables | None = None
    ) -> tuple[Array, ...]:
        """The table that each component learns from, in their order."""
        made = []
        for k, component in enumerate(self.components):
            both: list[Any] = [tables, units or tables]
            if k in self.groups:
                both = [part.group(self.groups[k].name) for part in both]
            made.append(component.statistic(both[0], both[1], problem))
        return tuple(made)

    def shrunk(self, x: Array, statistics: tuple[Any, ...]) -> tuple[Family, dict[str, float]] | None:
        """The same family with priors learned from the statistics, and their strengths; None where all priors are given."""
        made = list(self.components)
        strengths: dict[str, float] = {}
        for k, (part, n) in enumerate(zip(self.split(x), statistics, strict=True)):
            found = made[k].shrunk(part, n)
            if found is not None:
                made[k] = found[0]
                strengths |= zip(self.named(k, found[1]), found[1].values(), strict=True)
        return (replace(self, components=tuple(made)), strengths) if strengths else None

    def with_priors(self, priors: Sequence[Mapping[str, Any]]) -> Family:
        """The same family with learned priors as `Component.prior_numbers` gave them, one set per component."""
        pairs = zip(self.components, priors, strict=True)
        return replace(self, components=tuple(replace(c, **p) if p else c for c, p in pairs))  # type: ignore[type-var]

    def alike(self, other: Family) -> bool:
        """Whether the other family's statistics can be added to this one's."""
        return self.names == other.names and all(
            a.alike(b) for a, b in zip(self.components, other.components, strict=True)
        )

    def natural(self, x: Array) -> Natural:
        """All components' natural parameters side by side."""
        parts = [c.natural(piece) for c, piece in zip(self.components, self.split(x), strict=True)]
        return Natural(
            tuple(n for k, p in enumerate(parts) for n in self.named(k, p.names)),
            np.concatenate([p.values for p in parts]),
            lambda: block_diag(*(p.jacobian for p in parts)),
            tuple(k for p in parts for k in p.link),
        )

    def working(self, values: Mapping[str, Any]) -> Array:
        """The neutral start with some parameters as given, by working or natural name."""
        x = self.start()
        _known_names(values, dict.fromkeys([*self.natural(x).names, *self.names]), "start")
        made = []
        for k, part in enumerate(self.split(x)):
            component = self.components[k]
            own = component.natural(part).names
            named = {
                n: float(values[full])
                for n, full in zip(own, self.named(k, own), strict=True)
                if full in values
            }
            piece = component.working(named, part)
            for i, name in enumerate(self.named(k, component.names)):
                piece[i] = float(values.get(name, piece[i]))
            made.append(piece)
        return np.concatenate([np.zeros(0), *made])


def _known_names(given: Iterable[str], names: Iterable[str], what: str) -> None:
    """Refuse names that no parameter has."""
    unknown = [n for n in given if n not in names]
    if unknown:
        raise ValueError(f"{what} names {unknown}: the parameters are {', '.join(names)}")


def standard_errors(natural: Natural, covariance: Array) -> Array:
    """√diag(J C Jᵀ); infinite where a parameter is not identified."""
    variance = np.diagonal(covariance)
    lost = ~np.isfinite(variance)
    known = np.where(lost[:, None] | lost[None, :], 0.0, covariance)
    found = np.sqrt(np.maximum(np.einsum("mk,kl,ml->m", natural.jacobian, known, natural.jacobian), 0.0))
    moved = (np.abs(natural.jacobian[:, lost]) > 1e-12).any(axis=1)
    return np.where(moved, np.inf, found)


_LINKS: dict[str, tuple[Callable[[Array], Array], ...]] = {
    "identity": (np.asarray, np.ones_like, np.asarray),
    "log": (np.log, np.asarray, np.exp),
    "logit": (logit, lambda v: v * (1 - v), expit),
}
"""The scales on which estimates are nearly Gaussian: to it, the slope of the way back, and back."""


def interval(natural: Natural, errors: Array, level: float) -> tuple[Array, Array]:
    """Symmetric on the link's scale, so that probabilities stay within (0, 1) and rates above 0."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    z = float(ndtri(0.5 + level / 2))
    lower, upper = np.empty_like(natural.values), np.empty_like(natural.values)
    for name, (forward, slope, back) in _LINKS.items():
        own = np.array([link == name for link in natural.link], dtype=bool)
        v = natural.values[own]
        with np.errstate(divide="ignore", invalid="ignore"):
            at, wide = forward(v), np.where(slope(v) > 0, z * errors[own] / slope(v), np.inf)
            lower[own], upper[own] = back(at - wide), back(at + wide)
    return lower, upper


def true_values(family: Family, given: Any) -> Array:
    """True natural parameters, NaN where not given: by name, as a vector, or as a chain's transition table."""
    natural = family.natural(family.start())
    if isinstance(given, Mapping):
        _known_names(given, natural.names, "truth")
        return np.array([float(given.get(n, np.nan)) for n in natural.names])
    values = np.asarray(given, dtype=float)
    if values.size == len(natural.names):
        return values.ravel()
    parts = [] if family.groups else [c.natural_from(values) for c in family.components[:1]]
    if parts and parts[0] is not None:
        return np.concatenate([parts[0], np.full(len(natural.names) - len(parts[0]), np.nan)])
    raise ValueError(
        f"truth has {values.size} values for {len(natural.names)} parameters: give one each, or a mapping by name"
    )


def relative_error(family: Family, x: Array, truth: Array) -> float:
    """|estimate − truth|₁/|truth|₁ over the natural parameters whose truth is given."""
    known = np.isfinite(truth)
    return float(np.abs(family.natural(x).values - truth)[known].sum() / np.abs(truth[known]).sum())


class Parametrisation(Saved, ABC):
    """Settings of a family of models; `bind` makes the family for one problem's variables and states."""

    takes_groups: ClassVar[bool] = False
    """Whether it learns from a problem with groups."""

    @abstractmethod
    def bind(self, model: Model) -> Family:
        """The family on this model's variables and states; what is not learned is taken from the model."""

    def settled(self, models: Sequence[Model]) -> Parametrisation:
        """The same with everything decided that depends on all problems together: which classes of steps there are."""
        del models
        return self

    def for_problem(self, problem: Problem) -> Parametrisation:
        """The same with what it needs of one problem beside its model: laws of sizes, the models of groups."""
        del problem
        return self

    def check(self, problem: Problem) -> list[str]:
        """What about a problem this parametrisation cannot use."""
        if problem.groups is None or self.takes_groups:
            return []
        return [
            "one model for all individuals is not learned from a problem with groups: name a parametrisation per group, "
            "ByGroup({name: ...}), or learn what is not the moves (LearnSizes, LearnDetection)"
        ]


@dataclass(frozen=True, eq=False)
class Also(Parametrisation):
    """Another parametrisation, and one more component: a base for what is learned beside the model's own parameters."""

    parametrisation: Parametrisation

    @property
    def takes_groups(self) -> bool:  # type: ignore[override]
        """As the other."""
        return self.parametrisation.takes_groups

    @abstractmethod
    def component(self, model: Model) -> Component:
        """What is learned in addition."""

    def bind(self, model: Model) -> Family:
        """See `Parametrisation`."""
        inner = self.parametrisation.bind(model)
        return replace(inner, components=(*inner.components, self.component(model)))

    def settled(self, models: Sequence[Model]) -> Parametrisation:
        """See `Parametrisation`."""
        return replace(self, parametrisation=self.parametrisation.settled(models))

    def for_problem(self, problem: Problem) -> Parametrisation:
        """See `Parametrisation`."""
        return replace(self, parametrisation=self.parametrisation.for_problem(problem))

    def check(self, problem: Problem) -> list[str]:
        """See `Parametrisation`."""
        return self.parametrisation.check(problem)


def innermost(parametrisation: Parametrisation) -> Parametrisation:
    """The parametrisation of the model itself, without what is learned in addition."""
    return (
        innermost(parametrisation.parametrisation) if isinstance(parametrisation, Also) else parametrisation
    )


def with_innermost(parametrisation: Parametrisation, inner: Parametrisation) -> Parametrisation:
    """The same with another parametrisation of the model itself."""
    if not isinstance(parametrisation, Also):
        return inner
    return replace(parametrisation, parametrisation=with_innermost(parametrisation.parametrisation, inner))


def settle(settings: Sequence[Parametrisation], models: Sequence[Model]) -> tuple[Parametrisation, ...]:
    """The parametrisations with their classes of steps found; one that is given several times stays one object."""
    made: dict[int, Parametrisation] = {}
    for one in settings:
        if id(one) not in made:
            made[id(one)] = one.settled(models)
    return tuple(made[id(one)] for one in settings)


def bind(settings: Sequence[Parametrisation], problems: Sequence[Problem]) -> tuple[Family, ...]:
    """The families; everything that does not fit is said at once."""
    if not problems:
        raise ProblemError("there is no problem to learn from: give one or more")
    if len(settings) != len(problems):
        raise ProblemError(
            f"{len(settings)} parametrisations for {len(problems)} problems: give one, or one per problem"
        )
    families: list[Family] = []
    wrong: list[str] = []
    for k, (one, problem) in enumerate(zip(settings, problems, strict=True)):
        found = one.check(problem)
        try:
            families.append(one.bind(problem.model))
            if problem.model.has_hidden_states:  # which not every component can be put into
                families[-1].model(families[-1].start())
        except ValueError as error:
            found.append(str(error))
        wrong += [f"problem {k}: {text}" for text in found]
    wrong += _not_shared([f.names for f in families])
    if not wrong and not families[0].names:
        wrong.append("nothing is free to be learned: every parameter is fixed")
    if wrong:
        raise ProblemError(wrong)
    return tuple(families)


def _not_shared(names: Sequence[tuple[str, ...]]) -> list[str]:
    """Which families have other parameters than the first."""
    return [
        f"problem {k} has the parameters {n}, problem 0 has {names[0]}: they must share all of them"
        for k, n in enumerate(names)
        if n != names[0]
    ]


def unknown_features(given: Iterable[str], names: Sequence[str], what: str) -> list[str]:
    """Names in a setting that no feature has."""
    shown = ", ".join(map(str, names))
    return [f"{what} names {n!r}: the features are {shown}" for n in given if n not in names]


def fixed_problems(fixed: Mapping[str, float], names: Sequence[str], *, what: str = "fixed") -> list[str]:
    """What is wrong with weights given by name."""
    instance(fixed, Mapping, what, expected="a mapping of feature names to numbers")
    problems = unknown_features(fixed, names, what)
    for n, value in fixed.items():
        attempt(problems, finite_number, value, f"{what}[{n!r}]")
    return problems
