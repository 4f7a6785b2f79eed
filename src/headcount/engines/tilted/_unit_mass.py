r"""The probability of exactly seen counts, where a density is none.

Conditioning on :math:`\delta_E = 0` multiplies the evidence by the Gaussian's density there, :math:`\det(2\pi\Sigma_E)^{-1/2}`. Of
counts with little spread that is not a probability: it exceeds one, and grows without bound where other counts leave these no choice.
Whole numbers have unit bins, so :math:`e^{-\pi\delta^2}`, whose integral is one, takes the place of the constraint,

.. math:: \int N(\delta; 0, \Sigma_E)\,e^{-\pi\delta^\top\delta}\,d\delta = \det(I + 2\pi\Sigma_E)^{-1/2},

which is the density where counts are wide, and one where they are certain. Over independent counts only: of a table that is seen whole,
the largest entry is what the others leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headcount.structure import Known, NotPositiveDefinite

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headcount.engines.tilted._centre import Centre

    Array = NDArray[np.float64]

PRECISION = 2 * np.pi
"""Of the Gaussian with integral one and height one."""


def log_z(centre: Centre, tau: Array, nu: Array) -> float | None:
    """log Z of the structure with exact counts as unit masses.

    None where exact counts are not single entries of single variables, or where without their constraint there is no Gaussian.
    """
    sites = centre.roles.tilts.problem.sites
    exact = [k for k, site in enumerate(sites) if site.noise.exact]
    if not exact or any(len(sites[k].scope) > 1 or sites[k].index is None for k in exact):
        return None
    picked = _independent(centre, exact)
    tau, nu = np.where(picked, PRECISION, tau), np.where(picked, 0.0, nu)
    split = centre.roles.tilts.split
    try:
        return centre.structure_given(Known({}, centre.readings)).solve(split(tau), split(nu)).log_z
    except (NotPositiveDefinite, FloatingPointError):
        return None


def _independent(centre: Centre, exact: list[int]) -> NDArray[np.bool_]:
    """Exact entries, each once, and without one of every table that is seen whole."""
    tilts = centre.roles.tilts
    picked = np.zeros(len(centre.g), dtype=bool)
    found: dict[object, dict[int, int]] = {}
    for k in exact:
        site = tilts.problem.sites[k]
        for place, entry in enumerate(np.asarray(site.index)):
            found.setdefault(site.scope, {}).setdefault(int(entry), int(tilts.offsets[k]) + place)
    for scope, entries in found.items():
        places = np.array(list(entries.values()))
        picked[places] = True
        if len(places) == np.prod(tilts.problem.model.size(scope)):  # type: ignore[arg-type]
            picked[places[np.argmax(centre.expected[places])]] = False
    return picked
