"""Sites of one family of noise as one, so that a call serves them all."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from headcount.observe._base import Observation
from headcount.observe._site import Site

Part = tuple[NDArray[np.intp], Observation]
"""Positions among all observed entries, site after site, and the noise on them."""


def by_family(sites: Sequence[Site]) -> tuple[Part, ...]:
    """Every observed entry, under its noise; noises whose errors are correlated stay alone."""
    found: dict[Hashable, list[Part]] = {}
    start = 0
    for k, site in enumerate(sites):
        entries = np.arange(start, start + len(site))
        found.setdefault(k if site.noise.correlated else site.noise.family, []).append((entries, site.noise))
        start += len(site)
    return tuple(map(_joined, found.values()))


def _joined(parts: list[Part]) -> Part:
    """One noise for all, its parameters laid end to end."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0][1]
    values = {"counts": np.concatenate([noise.counts for _, noise in parts])}
    for name in first.entry_parameters():
        values[name] = np.concatenate(
            [np.broadcast_to(getattr(noise, name), entries.shape) for entries, noise in parts]
        )
    return np.concatenate([entries for entries, _ in parts]), first.replaced(values)
