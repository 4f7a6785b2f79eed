"""Spread of sums of a chain's flows (moves per step, into and out of a cell, between two cells over all times), from joint draws.

Also that of where those of the first time are at the last, through all steps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from headcount.posterior._draws import margin

if TYPE_CHECKING:
    import xarray as xr

    from headcount._types import Array, Scope
    from headcount.individual import Model

FOLLOWED = 100_000_000
"""Individuals times steps times draws that are followed from the first time to the last: three seconds (30 ns each, measured)."""
FEWEST_FOLLOWED = 30
"""Draws from which their sd is taken: its Monte-Carlo error is then 13 %. Of fewer there is none."""


@dataclass(frozen=True, eq=False)
class ChainSums:
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
    through
        Individuals who are in i at the first time and in j at the last, shape (L, L), if each step depends on the cell alone; None of two
        times, of individuals that come and go, and of so many that following them would take long.
    """

    present: Array
    moved: Array
    into: Array
    out: Array
    net: Array
    pairs: Array
    whole: Array
    through: Array | None = None

    @classmethod
    def of(cls, tables: dict[Scope, Array], model: Model) -> ChainSums:
        """From joint draws of all clique tables of a chain, (draws, …)."""
        times, steps = model.variables, list(pairwise(model.variables))

        def spread(drawn: Array) -> Array:
            return np.asarray(drawn.std(axis=0, ddof=1))

        drawn = [margin(tables, step) for step in steps]
        flows = np.stack(drawn, axis=1, dtype=float)
        stay = np.diagonal(flows, axis1=2, axis2=3)
        into, out = flows.sum(axis=2) - stay, flows.sum(axis=3) - stay
        moved, through = out.sum(axis=2), _followed(drawn)
        return cls(
            present=spread(np.stack([margin(tables, (t,)).sum(axis=1) for t in times], axis=1)),
            moved=spread(moved),
            into=spread(into),
            out=spread(out),
            net=spread(into - out),
            pairs=spread(flows.sum(axis=1)),
            whole=spread(moved.sum(axis=1)),
            through=None if through is None else spread(through),
        )

    def group(self) -> xr.Dataset:
        """As a group of a file."""
        import xarray as xr

        pair = ("origin", "dest")
        dims = {"present": ("time",), "moved": ("departure",), "pairs": pair, "whole": (), "through": pair}
        arrays = {name: sd for name, sd in asdict(self).items() if sd is not None}
        return xr.Dataset({name: (dims.get(name, ("departure", "cell")), sd) for name, sd in arrays.items()})

    @classmethod
    def of_group(cls, group: xr.Dataset) -> ChainSums:
        """The inverse of `group`."""
        return cls(**{str(name): group[name].to_numpy() for name in group.data_vars})


def _affordable(flows: list[Array]) -> int:
    """In how many draws individuals can be followed; 0 where they are too few, or flows are not whole or do not go on from each other."""
    if len(flows) < 2 or len({step.shape for step in flows}) > 1:
        return 0
    draws = min(len(flows[0]), FOLLOWED // max(int(flows[0][0].sum()) * len(flows), 1))
    agree = all(np.array_equal(a.sum(axis=1), b.sum(axis=2)) for a, b in pairwise(flows))
    whole = all(np.array_equal(step, np.rint(step)) for step in flows)
    return draws if draws >= FEWEST_FOLLOWED and agree and whole else 0


def _followed(flows: list[Array]) -> Array | None:
    """Who of each cell of the first time is where at the last, (draws, L, L), given drawn flows (draws, L, L) of every step.

    Given the flows, those who leave a cell are a random choice of those who came to it: individuals are put into random order in every
    cell, and handed to the flows out of it. None where there is nothing to follow (see `ChainSums.through`).
    """
    draws = _affordable(flows)
    if not draws:
        return None
    rng, size = np.random.default_rng(0), flows[0].shape[1]
    start, dest = np.divmod(np.arange(size * size), size)
    made = np.empty((draws, size, size))
    for d in range(draws):
        first = flows[0][d].ravel().astype(np.intp)
        began, cell = np.repeat(start, first), np.repeat(dest, first)
        for step in flows[1:]:
            order = rng.permutation(len(cell))
            order = order[np.argsort(cell[order], kind="stable")]
            began, cell = began[order], np.repeat(dest, step[d].ravel().astype(np.intp))
        made[d] = np.bincount(began * size + cell, minlength=size * size).reshape(size, size)
    return made
