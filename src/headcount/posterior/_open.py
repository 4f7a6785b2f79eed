"""Arrivals, departures and survivors of an open population, with their uncertainty."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from headcount.errors import ModelError
from headcount.individual import OpenChain
from headcount.observe._open import OpenView
from headcount.posterior._derived import GroupBeliefs, MixtureBeliefs
from headcount.posterior._interval import tails
from headcount.posterior._sizes import NobodyBeliefs

if TYPE_CHECKING:
    import pandas as pd

    from headcount.posterior._beliefs import Beliefs
    from headcount.posterior._posterior import Posterior

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
        lower, median, upper = posterior.entry_quantiles(mean, variance, (low, 0.5, high))
        sd = np.full(mean.shape, np.nan) if variance is None else np.sqrt(np.maximum(variance, 0.0))
        columns = {"mean": mean, "median": median, "sd": sd, "lower": lower, "upper": upper}
        time = after if what == "arrivals" else before
        named = {"time": [time] * len(mean), "cell": list(chain.cells)}
        parts.append(pd.DataFrame({**named, **columns}))
    frame = pd.concat(parts, ignore_index=True)
    frame.attrs["level"] = level
    return frame


def stored_open_frame(posterior: Posterior, what: Going, *, level: float) -> pd.DataFrame | None:
    """The same with labels as a file can hold them; None of a closed population."""
    from headcount.posterior._frames import label_array

    if not isinstance(posterior.problem.model, OpenChain):
        return None
    frame = open_frame(posterior, what, level=level)
    return frame.assign(**{name: label_array(frame[name].tolist()) for name in ("time", "cell")})


def _seen_as(beliefs: Beliefs, chain: OpenChain, what: Going) -> Beliefs:
    """The same beliefs about the full chain, seen otherwise."""
    if isinstance(beliefs, MixtureBeliefs):
        return replace(beliefs, parts=[_seen_as(part, chain, what) for part in beliefs.parts])
    if isinstance(beliefs, NobodyBeliefs):
        return GroupBeliefs(replace(beliefs, model=chain.full), OpenView(chain, what), None, {})
    assert isinstance(beliefs, GroupBeliefs)
    assert isinstance(beliefs.view, OpenView)
    return replace(beliefs, view=replace(beliefs.view, what=what))
