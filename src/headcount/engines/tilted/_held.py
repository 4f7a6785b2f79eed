r"""Tilts under which exactly seen counts are expected exactly.

With the tilts of all other entries given, those of the exact ones minimise
:math:`N\,[A(\theta+g) - A(\theta)] - \sum_{k\,\mathrm{exact}} g_k y_k`, the dual of MAP with nothing else in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headcount.engines.map._dual import Dual, Quadratic
from headcount.engines.map._lbfgs import Search, advance
from headcount.engines.map._map import Objective

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headcount.engines.tilted._centre import Roles

    Array = NDArray[np.float64]

CLOSE = 1e-13
"""Σ|Nμ − y| / N, averaged over the observed tables, that is exact: rounding."""
NEAR, MORE = 1e-9, 3
"""From here on a minimum is reached in so many steps. Where margins leave a flow no choice but zero there is none: tilts would run on,
a nat a step, until the law has no Gaussian any more."""
MOST = 500
"""Steps after which the tilts are taken as they are."""


def held(roles: Roles, g: Array) -> Array:
    """The tilts g with those of exact entries renewed, starting from what they were."""
    if not roles.exact.any():
        return g
    seen = np.flatnonzero(roles.exact & np.isfinite(g))  # an exact zero keeps its −inf
    y = np.concatenate([s.noise.counts for s in roles.tilts.problem.sites])[seen]
    objective = Objective(roles.tilts, Dual((Quadratic(seen, y, np.zeros(len(seen)), 0.0),), g, 0.0, False))
    search, near = Search.at(objective(g[seen])), 0
    for _ in range(MOST):
        miss = objective.miss(search.point)
        near += miss <= NEAR
        if miss <= CLOSE or near > MORE or search.failed:
            break
        search = advance(search, objective)
    return objective.g(search.point)
