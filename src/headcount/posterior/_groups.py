"""Beliefs about groups: their sum, as it was counted, and each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headcount.labels import shown
from headcount.observe._groups import View
from headcount.posterior._derived import GroupBeliefs, MixtureBeliefs
from headcount.posterior._sizes import NobodyBeliefs

if TYPE_CHECKING:
    from collections.abc import Hashable

    import pandas as pd

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
