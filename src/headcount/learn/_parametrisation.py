"""Parametrisations: which models are compared with the data, and which of their numbers are learned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headcount.checks import attempt, finite_number, instance
from headcount.individual import Model
from headcount.learn._family import Component, Family
from headcount.observe import Problem, ProblemError


class Parametrisation(ABC):
    """Settings of a family of models; `bind` makes the family for one problem's variables and states."""

    @property
    def takes_groups(self) -> bool:
        """Whether it learns from a problem with groups."""
        return False

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
    def takes_groups(self) -> bool:
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
