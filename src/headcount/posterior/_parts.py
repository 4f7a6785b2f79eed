"""Parts of a population: each of several groups; those who arrive, leave and stay."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from headcount.errors import ModelError, shown
from headcount.individual import OpenChain
from headcount.observe._groups import OpenView, View
from headcount.posterior._beliefs import NobodyBeliefs
from headcount.posterior._derived import GroupBeliefs, IntegratedBeliefs, MixtureBeliefs, UnitBeliefs
from headcount.posterior._interval import sd_of, tails
from headcount.tables import dense

if TYPE_CHECKING:
    from collections.abc import Hashable

    import pandas as pd

    from headcount._types import Array, Scope
    from headcount.individual import Model
    from headcount.observe import Problem
    from headcount.posterior._beliefs import Beliefs
    from headcount.posterior._posterior import Posterior


def one_group(problem: Problem, beliefs: Beliefs, name: Hashable) -> tuple[Problem, Beliefs]:
    """The problem of one group, and beliefs about it."""
    stack = problem.stack
    names = [] if stack is None else [member.name for member in stack.members]
    if stack is None or name not in names:
        message = f"there is no group {name!r}: " + (
            f"the groups are {shown(names)}" if names else "the problem has none"
        )
        raise ValueError(message)
    k = names.index(name)
    group = problem.of_group(k)
    return group, _narrowed(beliefs, k, group.model)


def _narrowed(beliefs: Beliefs, member: int, model: Model) -> Beliefs:
    """Beliefs about one group."""
    sizes = beliefs.group_sizes.get(member)
    if isinstance(beliefs, MixtureBeliefs):
        parts = tuple(_narrowed(part, member, model) for part in beliefs.parts)
        return replace(beliefs, parts=parts, sizes=sizes, log_evidence=None)
    if isinstance(beliefs, UnitBeliefs):
        return replace(beliefs, base=_narrowed(beliefs.base, member, model), log_evidence=None)
    if isinstance(beliefs, NobodyBeliefs):
        return replace(beliefs, model=model)
    if not isinstance(beliefs, GroupBeliefs) or not isinstance(beliefs.view, View):
        raise ValueError(
            "this posterior has the sum of the groups only (its parameters were learned): infer again with the learned model"
        )
    return GroupBeliefs(beliefs.base, View(beliefs.view.stack, member), None, beliefs.diagnostics, sizes)


def group_frame(posterior: Posterior, what: str, *, level: float) -> pd.DataFrame:
    """The table of every group, one below the other, with a column ``group``."""
    import pandas as pd

    assert posterior.problem.groups is not None
    parts = []
    for name in posterior.problem.groups:
        part = posterior.group(name).to_frame(what, level=level)
        part.insert(1, "group", [name] * len(part))
        parts.append(part.drop(columns="observed", errors="ignore"))
    whole = pd.concat(parts, ignore_index=True)
    whole.attrs = parts[0].attrs
    return whole


Going = Literal["arrivals", "departures", "survivors"]


def open_frame(posterior: Posterior, what: Going, *, level: float) -> pd.DataFrame:
    """One row per step and cell; arrivals are named by the time they are first there, the others by that of their last."""
    import pandas as pd

    chain = posterior.problem.model
    if not isinstance(chain, OpenChain):
        raise ModelError(f"a population without arrivals and departures has no {what}: give an OpenChain")
    beliefs = _seen_as(posterior.beliefs, chain, what)
    low, high = tails(level)
    parts = []
    for before, after in zip(chain.times[:-1], chain.times[1:], strict=True):
        mean, variance = beliefs.mean((before, after)), beliefs.variance((before, after))
        lower, median, upper = posterior.quantiles_of(mean, variance, (low, 0.5, high))
        sd = sd_of(variance, mean.shape)
        columns = {"mean": mean, "median": median, "sd": sd, "lower": lower, "upper": upper}
        time = after if what == "arrivals" else before
        named = {"time": [time] * len(mean), "cell": list(chain.cells)}
        parts.append(pd.DataFrame({**named, **columns}))
    frame = pd.concat(parts, ignore_index=True)
    frame.attrs["level"] = level
    return frame


def stored_open_frames(posterior: Posterior, *, level: float) -> dict[str, pd.DataFrame]:
    """Arrivals and departures with labels as a file can hold them."""
    from headcount.posterior._frames import label_array

    names: tuple[Going, ...] = ("arrivals", "departures")
    frames = {what: open_frame(posterior, what, level=level) for what in names}
    return {
        what: frame.assign(**{name: label_array(frame[name].tolist()) for name in ("time", "cell")})
        for what, frame in frames.items()
    }


def _seen_as(beliefs: Beliefs, chain: OpenChain, what: Going) -> Beliefs:
    """The same beliefs about the full chain, seen otherwise."""
    if isinstance(beliefs, MixtureBeliefs):
        return replace(beliefs, parts=[_seen_as(part, chain, what) for part in beliefs.parts])
    if isinstance(beliefs, UnitBeliefs):
        return replace(beliefs, base=_seen_as(beliefs.base, chain, what))
    if isinstance(beliefs, IntegratedBeliefs):  # at the estimate
        return _seen_as(beliefs.base, chain, what)
    if isinstance(beliefs, NobodyBeliefs):
        return GroupBeliefs(replace(beliefs, model=chain.full), OpenView(chain, what), None, {})
    assert isinstance(beliefs, GroupBeliefs)
    assert isinstance(beliefs.view, OpenView)
    return replace(beliefs, view=replace(beliefs.view, what=what))


def full_mean(beliefs: Beliefs, scope: Scope) -> Array:
    """Expected counts of an open population's table with its hidden states; a zero that fits any table of nobody."""
    if isinstance(beliefs, MixtureBeliefs):
        parts = zip(beliefs.weights, beliefs.parts, strict=True)
        return np.asarray(sum(weight * full_mean(part, scope) for weight, part in parts))
    if isinstance(beliefs, UnitBeliefs):
        return np.asarray(beliefs.size * full_mean(beliefs.base, scope))
    if isinstance(beliefs, NobodyBeliefs):
        return np.zeros((1,) * len(scope))
    assert isinstance(beliefs, GroupBeliefs)
    table = np.asarray(dense(beliefs.base.mean(scope)))
    assert isinstance(beliefs.view, OpenView)
    return table[
        tuple(slice(n + 2) for n in beliefs.view.model.size(scope))
    ]  # without candidates that are absent
