"""Spread of sums of a chain's flows (moves per step, into and out of a cell, between two cells over all times), from joint draws."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.posterior._draws import margin

if TYPE_CHECKING:
    from collections.abc import Mapping

    import xarray as xr

    from headcount._types import Array, Scope
    from headcount.individual import Model


@dataclass(frozen=True, eq=False)
class Sums:
    """Standard deviations of sums over a chain of T times and L cells; those who stay are in none but `present`.

    With d joint draws each has a Monte-Carlo error of about 1/√(2d) of itself (7 % of 100).

    Attributes
    ----------
    present
        Σ_c n_t(c), shape (T,): zero where the number of individuals is known.
    moved
        Σ_{i≠j} f_t(i, j), shape (T − 1,).
    into, out, net
        Σ_{i≠c} f_t(i, c), Σ_{j≠c} f_t(c, j) and their difference, shape (T − 1, L).
    pairs
        Σ_t f_t(i, j), shape (L, L).
    whole
        Σ_t Σ_{i≠j} f_t(i, j), a number.
    """

    present: Array
    moved: Array
    into: Array
    out: Array
    net: Array
    pairs: Array
    whole: Array

    @classmethod
    def of(cls, tables: Mapping[Scope, Array], model: Model) -> Sums:
        """From joint draws of all clique tables of a chain, (draws, …)."""
        times = model.variables

        def spread(drawn: Array) -> Array:
            return np.asarray(drawn.std(axis=0, ddof=1))

        present = np.stack([spread(margin(dict(tables), (t,)).sum(axis=1)) for t in times])
        pairs: Any = 0.0
        steps: dict[str, list[Array]] = {name: [] for name in ("moved", "into", "out", "net")}
        whole: Any = 0.0
        for t in range(len(times) - 1):
            flows = margin(dict(tables), (times[t], times[t + 1])).astype(float)
            pairs = pairs + flows
            stay = np.diagonal(flows, axis1=1, axis2=2)
            into, out = flows.sum(axis=1) - stay, flows.sum(axis=2) - stay
            moved = out.sum(axis=1)
            whole = whole + moved
            for name, drawn in (("moved", moved), ("into", into), ("out", out), ("net", into - out)):
                steps[name].append(spread(drawn))
        made = {name: np.stack(parts) for name, parts in steps.items()}
        return cls(present=present, pairs=spread(pairs), whole=spread(whole), **made)

    def group(self) -> xr.Dataset:
        """As a group of a file."""
        import xarray as xr

        dims = {"present": ("time",), "moved": ("departure",), "pairs": ("origin", "dest"), "whole": ()}
        arrays = asdict(self).items()
        return xr.Dataset({name: (dims.get(name, ("departure", "cell")), sd) for name, sd in arrays})

    @classmethod
    def of_group(cls, group: xr.Dataset) -> Sums:
        """The inverse of `group`."""
        return cls(**{str(name): group[name].to_numpy() for name in group.data_vars})
