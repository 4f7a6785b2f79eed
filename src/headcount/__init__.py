"""Recover how many were where, and how they moved, from noisy totals.

A population of N independent individuals follows one discrete graphical model; only noisy counts of it
are seen. Three nouns and a verb: a `Problem` (model, population, observations) goes to an engine, by
`infer`, which returns a `Posterior`; `fit` learns the model's parameters as well.

Names are resolved when first used (PEP 562), so that ``import headcount`` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headcount._version import __version__

if TYPE_CHECKING:
    from headcount import (
        check,
        engines,
        individual,
        io,
        learn,
        observe,
        plot,
        population,
        posterior,
        report,
        simulate,
        structure,
    )
    from headcount.individual import (
        DiscreteModel,
        HomeChain,
        MarkovChain,
        MemoryChain,
        Model,
        ModelError,
        OpenChain,
        SemiMarkovChain,
        Tree,
    )
    from headcount.io import infer_many
    from headcount.learn import Fit, LogisticChain, LogLinear, TabularChain, features, fit, infer
    from headcount.observe import (
        Binomial,
        Censored,
        Exact,
        Gaussian,
        LaplaceNoise,
        NegativeBinomial,
        Observation,
        Poisson,
        Problem,
        ProblemError,
        Tracks,
    )
    from headcount.population import About, Between, Flocks, Group, Overdispersion, Unknown
    from headcount.posterior import Posterior

__all__ = [
    "About",
    "Between",
    "Binomial",
    "Censored",
    "DiscreteModel",
    "Exact",
    "Fit",
    "Flocks",
    "Gaussian",
    "Group",
    "HomeChain",
    "LaplaceNoise",
    "LogLinear",
    "LogisticChain",
    "MarkovChain",
    "MemoryChain",
    "Model",
    "ModelError",
    "NegativeBinomial",
    "Observation",
    "OpenChain",
    "Overdispersion",
    "Poisson",
    "Posterior",
    "Problem",
    "ProblemError",
    "SemiMarkovChain",
    "TabularChain",
    "Tracks",
    "Tree",
    "Unknown",
    "__version__",
    "check",
    "engines",
    "features",
    "fit",
    "individual",
    "infer",
    "infer_many",
    "io",
    "learn",
    "observe",
    "plot",
    "population",
    "posterior",
    "report",
    "simulate",
    "structure",
]

_NAMES = {
    "individual": "DiscreteModel HomeChain MarkovChain MemoryChain Model ModelError OpenChain SemiMarkovChain Tree",
    "observe": "Binomial Censored Exact Gaussian LaplaceNoise NegativeBinomial Observation Poisson Problem ProblemError Tracks",
    "population": "About Between Overdispersion Flocks Group Unknown",
    "posterior": "Posterior",
    "io": "infer_many",
    "learn": "Fit LogLinear LogisticChain TabularChain features fit infer",
}
"""The names that come from each package; what is not here is a package itself. The type checker reads the block above instead, and a
test keeps the two alike."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(
            f"module 'headcount' has no attribute {name!r}; dir(headcount) lists what it has"
        )
    home = next((package for package, names in _NAMES.items() if name in names.split()), None)
    value = (
        import_module(f"headcount.{name}")
        if home is None
        else getattr(import_module(f"headcount.{home}"), name)
    )
    globals()[name] = value  # found once, then an ordinary attribute
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
