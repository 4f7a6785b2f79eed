"""The last counts of a chain as a later run takes them: `last_counts` makes the `Start` of a posterior."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from headcount.errors import ModelError
from headcount.observe import Start
from headcount.observe.cloud import Cloud
from headcount.posterior.derived import IntegratedBeliefs, MixtureBeliefs, ViewBeliefs
from headcount.tables import dense

if TYPE_CHECKING:
    from collections.abc import Hashable

    from headcount._types import Array, Scope
    from headcount.population import SizeLaw
    from headcount.posterior._beliefs import Beliefs
    from headcount.posterior._posterior import Posterior

MOST_STATES = 1000
"""States of all groups at the last time whose covariance is kept: 8 MB, and a second or two to solve for without matrices."""

FAR_FROM_PAST = 2.0
"""Standard deviations of the past by which new counts may move one of its last counts before its Gaussian is said not to be enough. Of
590 random problems (6 to 2000 individuals, worlds that go on and worlds that change where the past ends) those below it differ from one
run of everything by at most .31 sd and .40 nats (99 % by .23 sd), those above it by up to 17 sd; of the 200 of
``benchmarks/series.py`` by .38 sd and 1.2 nats, and 15 sd. In worlds that go on the largest is 1.3, with 36 cells 1.8."""
LEAST_SD = 0.5
"""Individuals; a smaller standard deviation of a last count is taken as this, so that no whole number is many of them."""


def past_moved(posterior: Posterior) -> float:
    """Largest distance of a last count of the past, given the new counts too, from what the past said, in its standard deviations.

    NaN where a run does not go on from another, or has no spread to say.
    """
    start = posterior.problem.start
    if start is None or not posterior.beliefs.has_spread:
        return math.nan
    try:
        now = last_counts(posterior, 0)
    except ModelError:
        return math.nan
    sd = np.sqrt(np.maximum(np.diagonal(start.covariance), LEAST_SD**2))
    return float(np.abs((now.mean - start.mean) / sd).max(initial=0.0))


def far_from_past(posterior: Posterior) -> str:
    """What to say where the new counts and the past disagree so much that a Gaussian does not stand for the past; empty elsewhere."""
    moved = past_moved(posterior)
    if not moved >= FAR_FROM_PAST:
        return ""
    start = posterior.problem.start
    assert start is not None
    return (
        f"the new counts move those of {start.time}, where the past ends, by {moved:.1f} of its standard deviations, so that the Gaussian "
        "that stands for the past is not enough"
    )


def last_counts(posterior: Posterior, number: int = -1) -> Start:
    """Mean and covariance of the counts at the last time, on all states that are cells of the graph that individuals follow.

    Raises
    ------
    ModelError
        Where there is no last time, no spread, or too many states.
    """
    problem, beliefs = posterior.problem, posterior.beliefs
    model = problem.model
    if model.as_chain() is None:
        raise ModelError(f"a {type(model).__name__} has no last time to go on from: only chains have one")
    if not beliefs.has_spread:
        raise ModelError(
            f"{posterior.engine} gives no spread, and the next run needs it: use TiltedEP (the default)"
        )
    time = model.variables[number]
    kinds = problem.kinds
    cloud = problem.cloud
    states = sum(int((cloud.all_codes(k, cloud.index[time]) >= 0).sum()) for k in range(len(cloud.members)))
    if states > MOST_STATES:
        raise ModelError(
            f"the last time has {states} states, and a covariance is kept up to {MOST_STATES}: infer the series at once"
        )
    units = {member.weight for member in cloud.members}
    if len(units) > 1:
        raise ModelError(
            "units of different sizes stand side by side (flocks beside tagged individuals): infer the series at once"
        )
    parts = [(name, own, _known(own, size, units)) for name, (own, size) in kinds.items()]
    mean, covariance = _moments(beliefs, cloud, (time,))
    return Start.of_counts(time, parts, mean, covariance, max(units))


def _known(model: Any, law: SizeLaw, units: set[float]) -> float | None:
    """How many units a group has; NaN where individuals come and go, None where it is not known."""
    if model.opens:
        return math.nan
    return law.most / max(units) if law.is_known else None


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
