"""The last counts of a chain as a later run takes them: `last_counts` makes the `Start` of a posterior."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from headcount.errors import ModelError
from headcount.individual import MarkovChain
from headcount.observe._cloud import Cloud
from headcount.observe._start import Start
from headcount.posterior._derived import IntegratedBeliefs, MixtureBeliefs, ViewBeliefs
from headcount.tables import dense

if TYPE_CHECKING:
    from collections.abc import Hashable

    from headcount._types import Array, Scope
    from headcount.posterior._beliefs import Beliefs
    from headcount.posterior._posterior import Posterior

MOST_STATES = 1000
"""States of all groups at the last time whose covariance is kept: 8 MB, and a second or two to solve for without matrices."""


def last_counts(posterior: Posterior, number: int = -1) -> Start:
    """Mean and covariance of the counts at the last time, on all states that are cells of the graph that individuals follow.

    Raises
    ------
    ModelError
        Where there is no last time, no spread, or too many states.
    """
    problem, beliefs = posterior.problem, posterior.beliefs
    model = problem.model
    if not isinstance(model, MarkovChain):
        raise ModelError(f"a {type(model).__name__} has no last time to go on from: only chains have one")
    if not beliefs.has_spread:
        raise ModelError(
            f"{posterior.engine} gives no spread, and the next run needs it: use TiltedEP (the default)"
        )
    time = model.variables[number]
    kinds = problem.kinds
    states = _count(problem.cloud, time)
    if states > MOST_STATES:
        raise ModelError(
            f"the last time has {states} states, and a covariance is kept up to {MOST_STATES}: infer the series at once"
        )
    units = {member.weight for member in problem.cloud.members}
    if len(units) > 1:
        raise ModelError(
            "units of different sizes stand side by side (flocks beside tagged individuals): infer the series at once"
        )
    parts = [(name, own, _known(own, size, units)) for name, (own, size) in kinds.items()]
    mean, covariance = _moments(beliefs, problem.cloud, (time,))
    return Start.of_counts(time, parts, mean, covariance, max(units))


def _known(model: Any, size: Any, units: set[float]) -> float | None:
    """How many units a group has; NaN where individuals come and go, None where it is not known."""
    if model.opens:
        return math.nan
    return size / max(units) if isinstance(size, int) else None


def _count(cloud: Cloud, time: Hashable) -> int:
    node = cloud.index[time]
    return sum(int((cloud.all_codes(k, node) >= 0).sum()) for k in range(len(cloud.members)))


def _moments(beliefs: Beliefs, cloud: Cloud, scope: Scope) -> tuple[Array, Array]:
    """Mean and covariance by group and state, summed over tagged individuals and the others of their group."""
    if isinstance(beliefs, MixtureBeliefs):
        parts = [_moments(part, cloud, scope) for part in beliefs.parts]
        mean = np.einsum("p,pk->k", beliefs.weights, [m for m, _ in parts])
        covariances = [c + np.outer(m - mean, m - mean) for m, c in parts]
        return mean, np.einsum("p,pkl->kl", beliefs.weights, covariances)
    if isinstance(beliefs, IntegratedBeliefs) and isinstance(beliefs.base, ViewBeliefs):
        mean, covariance = _moments(beliefs.base, cloud, scope)
        response = beliefs.response(scope)
        if len(response) != len(mean):
            raise ModelError(
                "learned parameters of individuals with hidden states or groups: how the last counts of every state depend on them is not "
                "kept; infer with the learned model (hc.infer(fit.posterior.problem)) and go on from that"
            )
        return mean, covariance + response @ response.T
    if not isinstance(beliefs, ViewBeliefs):
        return np.ravel(dense(beliefs.mean(scope))), np.asarray(beliefs.covariance(scope, scope))
    matrix = _by_group(beliefs, scope[0])
    base = beliefs.base
    mean = matrix @ np.ravel(dense(base.mean(scope)))
    return np.asarray(mean), np.asarray(matrix @ np.asarray(base.covariance(scope, scope)) @ matrix.T)


def _by_group(beliefs: ViewBeliefs, time: Hashable) -> csr_array:
    """Which counts of the larger graph each count by group and state is the sum of."""
    cloud = beliefs.view.cloud if beliefs.candidates is None else beliefs.candidates.original
    wide = beliefs.view.cloud
    node = cloud.index[time]
    names = list(dict.fromkeys(member.group for member in cloud.members))
    firsts = {name: next(k for k, m in enumerate(cloud.members) if m.group == name) for name in names}
    sizes = {name: int((cloud.all_codes(k, node) >= 0).sum()) for name, k in firsts.items()}
    begins = dict(zip(names, np.cumsum([0, *sizes.values()])[:-1], strict=True))
    rows, columns = [], []
    for k, member in enumerate(cloud.members):
        codes = cloud.all_codes(k, node)
        place = np.cumsum(codes >= 0) - 1
        kept = cloud.kept_states(k, time)
        seen = codes[kept] >= 0
        rows.append(begins[member.group] + place[kept[seen]])
        columns.append(wide.starts[node][k] + np.flatnonzero(seen))
    at = np.concatenate(rows), np.concatenate(columns)
    shape = (sum(sizes.values()), int(wide.starts[node][-1]))
    return csr_array((np.ones(len(at[0])), at), shape=shape)
