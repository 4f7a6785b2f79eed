r"""Sizes of a problem's tables, and the memory each engine takes for them.

A Gaussian engine on a chain or tree holds about a dozen :math:`L_u \times L_v` matrices per edge; on a junction tree the same per clique's
features, and the map from the clique's table to them. MAP holds a few tables of possible moves. A path sampler holds N·V states per
chain. The constants were measured at L = 100 … 400; expect a factor of two.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from headcount.engines._engine import Engine
    from headcount.observe import Problem

BYTES = 8
GAUSSIAN = frozenset({"TiltedEP", "Laplace", "EdgeEP", "ClosedForm"})
"""Engines that hold a Gaussian's matrices."""
POINT = frozenset({"MAP", "NLBP"})
"""Engines that hold tables of possible moves only."""
HELD_MATRICES = 12
"""Matrices per edge that a Gaussian engine holds at once."""
HELD_TABLES = 4
"""Tables of possible moves that a point estimate holds at once."""
OTHER_TABLES = 3
"""Tables that any other engine holds at once."""


class Sizes(NamedTuple):
    """What a problem's tables add up to."""

    tables: int
    """Entries of all clique tables (possible moves, where sparse)."""
    squares: int
    """Entries of one Gaussian matrix per clique."""
    cubes: int
    """Operations of one Gaussian elimination per clique."""


def sizes(problem: Problem) -> Sizes:
    """The sizes of a problem's tables; nothing large is allocated."""
    tree = problem.model.rooted()
    if tree is None:
        return _junction_sizes(problem)
    steps = [m for m in tree.transitions if m is not None]
    if not steps:
        width = len(tree.initial)
        return Sizes(width, width**2, width**3)
    return Sizes(
        sum(int(getattr(m, "nnz", prod(m.shape))) for m in steps),
        sum(max(m.shape) ** 2 for m in steps),
        sum(prod(m.shape) * max(m.shape) for m in steps),
    )


def _junction_sizes(problem: Problem) -> Sizes:
    """A clique's features are the margins that matter: its separators, and what is seen of it."""
    model, junction = problem.model, problem.model.junction_tree
    tables = squares = cubes = 0
    for k, clique in enumerate(junction.cliques):
        size = prod(model.size(tuple(clique)))
        separators = [tuple(s) for a, b, s in junction.edges if k in (a, b)]
        seen = [site.scope for site in problem.sites if set(site.scope) <= set(clique)]
        width = sum(prod(model.size(scope)) for scope in {*separators, *seen})
        tables += size
        squares += width**2 + width * size // 4
        cubes += width**3 + width**2 * size
    return Sizes(tables, squares, cubes)


def memory_of(problem: Problem, engine: Engine) -> int:
    """Bytes an engine takes at the peak of inference, about."""
    found, run = sizes(problem), _as_any(engine)
    if run.name in GAUSSIAN:
        return BYTES * HELD_MATRICES * found.squares
    if run.name in POINT:
        return BYTES * HELD_TABLES * found.tables
    entries = OTHER_TABLES * found.tables
    if run.name == "PathGibbs":
        entries += run.chains * (problem.population * len(problem.model.variables) // 2 + 2 * found.tables)
    elif run.name == "Gibbs":
        entries += run.chains * 2 * found.tables
    return BYTES * entries


def _as_any(engine: Engine) -> Any:
    return engine
