r"""Formulas by which engines predict their memory and time, from the sizes of a problem's tables; nothing large is allocated.

With one table of :math:`L_u \times L_v` entries per edge, :math:`W = \max(L_u, L_v)`, N individuals and V variables:

* Gaussian engines hold a number of :math:`W \times W` matrices per edge, and a grid of likelihoods per observed count; a sweep takes
  about :math:`16 (L_u L_v W + 150 W^2)` operations per edge: products, and passes over matrices. On other graphs they hold the columns
  of conditional expectations that pass between cliques, whose widths are followed through the junction tree
  (`structure._clique_passes.passes_cost`), and matrices as wide as the observed counts are many.
* Point estimates pass over every possible move a few times per iteration.
* Writing holds a number of columns as long as the tables, or the joint draws that go into the file.

The constants come from ``benchmarks/plan.py``, which holds predictions against runs.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headcount import memory
from headcount.individual.rooted_tree import LARGEST_PACKED
from headcount.structure import kind_of
from headcount.structure._clique_passes import DOWN_BYTES, PassesCost, passes_cost
from headcount.structure._variance_draws import NOISE_AT_ONCE, WIDEST, block_width

if TYPE_CHECKING:
    from headcount.observe import ClosedProblem

BYTES = 8
"""Per number."""
COLUMNS, MOVES_HELD, COUNT_HELD = 16, 6, 120
"""Without matrices: arrays of a block of draws, numbers per possible move (transitions of two centres, sums of flows) and per count
(sites, history of the mixing), held at once. Measured: peaks are 1.0 to 1.3 of the sum at 75 000, 520 000 and 2.4 million counts."""
USUAL_DRAWS, USUAL_FINAL = 16, 40
"""Draws per sweep and at the end, where the error decides."""
SWEPT = 0.6
"""Share of the matrix-free structure's time that sweeps take, with the usual draws."""
FREE_DENSE_MOVE, FREE_SPARSE_MOVE, FREE_COUNT = 4.5e-7, 1.1e-6, 7.7e-5
"""Seconds of a whole run without matrices, per possible move and per count. Fitted to grids of 900 to 10 000 cells with 9 and 49
neighbours, and a dense map of 512 cells."""
FREE_ENTRY, FREE_CLIQUE = 4e-5, 0.025
"""The same on graphs that are no tree: seconds per possible entry of a clique, and per clique. Fitted to alarm, pigs and a loop of four
variables with 50 states: within a factor 2."""
ENTRY_COLUMNS, ENTRY_HELD = 5, 12
"""There, arrays of a block of draws over all possible entries, and numbers per entry (laws, margins, sparse sums)."""
GRID_AGAIN = 5e-5
"""Seconds per count, where grids of likelihoods are made again in every sweep."""
PRODUCTS, PASSES = 16, 150
"""Operations per edge and sweep: PRODUCTS (L³ + PASSES L²). Fitted at L = 36, 100, 196, 324 to 25 %."""
MOST_WITH_GRIDS, MOST_AT_ONCE = 1_000_000, 2**17
"""Observed counts up to which grids of likelihoods are kept from sweep to sweep (2.8 GB), beyond which they are made again; and counts that
are projected together: their grids are as wide as the widest of them, about 350 numbers per count."""
GAUSSIAN_CENTRES, GAUSSIAN_ITERATIONS, COUNTS_PER_ITERATION, OTHER_ITERATIONS = 3, 50, 10, 15
"""On other graphs than trees: laws whose covariances are formed (of TiltedEP, with Gaussian noise alone, fewer), and iterations of MAP with
Gaussian noise (these, and one per ten counts) and with any other; before TiltedEP half as many. Measured on 7 networks with 6 to 1 770
counts: 2 to 3, 5 to 8 (28 once), 48 to 216, 11 to 18."""
LISTED_FIRST, LISTED, POSSIBLE_PAIR, PASS_STEP = 8e-8, 8e-9, 1.7e-9, 8e-5
"""Seconds of passes between cliques: per possible entry and joint margin, for the first law and for each; per possible pair of states and
column; per product. Fitted to processor time of networks with 34 to 17 million entries (``benchmarks/networks.py`` holds plan and time)."""
DENSE_OPERATIONS, COUNT_CUBES = 3, 4
"""Operations per entry of a product of dense matrices, as it runs, and products of matrices as wide as the observed counts per law."""
ENTRY_PASSED, CLIQUE_PASSED = 2.3e-8, 1.5e-5
"""Seconds of belief propagation per possible entry and per clique. Measured on 8 networks: 1.5e-8 to 3e-8 per entry in all."""
NETWORK_RUN = 0.012
"""Seconds of a run on the smallest networks, whatever their tables."""
VARIABLE_ASKED = 6e-4
"""Seconds per variable for the quantiles of its counts."""
LAW_COPIES, MAP_BYTES, COUNT_MATRICES = 3, 12, 8
"""Laws held at once, bytes per possible entry of one joint margin (its values and where entries belong), matrices of counts."""
SWEEP_OVERHEAD, ITERATION_OVERHEAD = 8e-5, 2e-5
"""Seconds per edge and sweep (Gaussian) or iteration (MAP) that small tables cost all the same."""
ITERATIONS, LONG_ITERATIONS, SHORT_CHAIN = 20, 11, 8
"""Iterations that a point estimate usually needs (measured: 13 to 15 on maps, up to 35 elsewhere), and those that each further root of the
number of steps adds beyond so many: what is known at one time travels along the chain step by step (400 cells: 169 at 250 times, 370 at
1 000)."""
COUNT_ITERATION, COUNT_VECTORS, MANY_COUNTS = 1e-7, 75, 100_000
"""Of a point estimate, from so many counts on: seconds per count and iteration, and vectors of all counts held at once (pairs of L-BFGS and
their copies). Measured on 100 000 and 400 000 counts: 0.9e-7 to 1.1e-7 seconds; on 400 000 and 8 million about 110 vectors, on 13 000 the
30 numbers per cell of `HELD_PER_CELL`."""
DENSE_MOVE, SPARSE_MOVE = 1e-9, 2.9e-9
"""Seconds per iteration and possible move of belief propagation. Measured: L = 225, 576 dense; L = 1600 and 3600 sparse."""
HELD_TABLES, HELD_PER_CELL = 1.3, 30
"""Tables, and numbers per cell, held by a point estimate; one table more where nodes are so narrow that the compiled passes pack them.
Fitted to seven runs, dense and sparse, to 40 %."""
STORED_SPARSE, FLOW_TABLES, NOISE_COPIES, ON_DEVICE = 3, 8, 4, 21
"""On a device: numbers per move of a sparse matrix (value, position, origin), tables of one step beside the sums of all flows, arrays of
noise at once, and matrices per edge with matrices. Set so that peaks on an H200 are not above them (``benchmarks/gpu.py``; the
stored run planned with 5 tables and 15 matrices, and took 1.06 and 1.34 of that)."""
OTHER_TABLES = 3
"""Tables that any other engine holds at once; not measured."""
WRITING_BYTES = 20_000_000
"""What the writer takes whatever the size. Measured: what is left at sizes where tables take little."""
SPREAD_COLUMNS, POINT_COLUMNS, SPARSE_COLUMNS = 32, 22, 2
"""While results are written, numbers per table entry: with spreads, without, and per move of a sparse table. Fitted to 40 %."""
WRITTEN_ONCE, WRITTEN_ROW, LEARNED_ROW, DRAWN_ENTRY = 1.0, 1.2e-5, 3.5e-5, 1.2e-6
"""Seconds to check the fit and write results: whatever the size, per row of flows (intervals, CSV, NetCDF), the same where the initial law
was learned, and per table entry of a joint draw. Measured on 36 to 196 cells: 1.1e-5 to 4e-5 per row, 0.8e-6 to 1.6e-6 per entry."""
INITIAL_RUNS = 4
"""Inferences that learning an unknown initial law usually takes, in those of a known one. Measured at L = 36 and 100: 6 and 3."""
FIT_ONCE, FIT_RUNS, FIT_RUNS_EACH, SIZE_RUNS = 0.4, 10, 4, 3
"""Seconds of a fit whatever its size, inferences from the last answer that it takes, those more per parameter (differences for standard
errors, ends of the posterior), and how many times longer they are beside an unknown number. Measured with four weights on 16 to 196 cells,
6 to 30 times: plans were 0.42 to 2.4 of the time taken."""
FILE_DRAWS, FEWEST_FILE_DRAWS, FILE_ENTRIES = 100, 10, 4_000_000
"""Joint draws that go into a file: at most, at least, and table entries in all (``posterior/dataset.py``)."""


class TableSizes(NamedTuple):
    """What a problem's tables add up to."""

    tables: int
    """Entries of all clique tables (possible ones of a network, possible moves of a sparse chain)."""
    squares: int
    """Entries of one Gaussian matrix per edge of a tree; 0 of other graphs."""
    cubes: int
    """Operations of one Gaussian elimination per edge of a tree; 0 of other graphs."""
    cells: int
    """States of all variables."""
    seen: int
    """Observed counts."""
    edges: int
    """Cliques."""
    sparse: bool
    """Whether some transition is a sparse matrix."""
    people: int


def sizes(problem: ClosedProblem) -> TableSizes:
    """The sizes of a problem's tables; nothing large is allocated."""
    model = problem.model
    found = _table_sizes(problem)
    return TableSizes(
        *found,
        cells=sum(len(states) for states in model.states.values()),
        seen=sum(len(site) for site in problem.sites),
        edges=max(len(model.junction_tree.cliques), 1),
        sparse=is_sparse(problem),
        people=max(1, problem.population),
    )


def _table_sizes(problem: ClosedProblem) -> tuple[int, int, int]:
    """The first three of `TableSizes`."""
    tree, model = problem.model.rooted(), problem.model
    if tree is None:
        entries = model.possible.counts if _listable(problem) else model.junction_tree.table_sizes
        return sum(entries), 0, 0
    steps = [m for m in tree.transitions if m is not None]
    if not steps:
        width = len(tree.initial)
        return width, width**2, width**3
    return (
        sum(int(getattr(m, "nnz", prod(m.shape))) for m in steps),
        sum(max(m.shape) ** 2 for m in steps),
        sum(prod(m.shape) * max(m.shape) for m in steps),
    )


def _listable(problem: ClosedProblem) -> bool:
    """Whether the clique tables of a network fit into memory, so that its possible entries can be listed."""
    return problem.model.junction_tree.total_bytes <= memory.limit()


def passes_of(problem: ClosedProblem) -> tuple[PassesCost, PassesCost] | None:
    """Cost of passes between the cliques of a model that is no tree: up, and down. None of trees, and of tables that do not fit."""
    if problem.model.rooted() is not None or not _listable(problem):
        return None
    return passes_cost(problem.model.possible, tuple((site.scope, len(site)) for site in problem.sites))


def is_sparse(problem: ClosedProblem) -> bool:
    """Whether some transition is a sparse matrix."""
    tree = problem.model.rooted()
    return tree is not None and any(hasattr(m, "nnz") for m in tree.transitions)


def without_matrices(problem: ClosedProblem, structure: str = "auto") -> bool:
    """Whether a Gaussian engine will solve this problem by the matrix-free structure."""
    counts = sum(map(len, problem.sites))
    return kind_of(problem.model.rooted(), structure, counts=counts) == "matrix-free"


class GaussianUse(NamedTuple):
    """What a Gaussian engine takes.

    Attributes
    ----------
    sweeps
        Sweeps that it usually needs.
    matrices
        Matrices per edge that it holds at once.
    grid
        Numbers per observed count in all grids together.
    laws
        Laws whose covariances it forms on graphs that are no tree.
    """

    sweeps: int
    matrices: int
    grid: int = 0
    laws: int = 1


class Solving(NamedTuple):
    """How a Gaussian engine is set: see `GaussianEngine`."""

    structure: str
    draws: int | None
    final_draws: int | None


def gaussian_memory(problem: ClosedProblem, use: GaussianUse, how: Solving, *, on_device: bool) -> int:
    """Bytes of a Gaussian engine at the peak of inference, about; of the computer's own memory, where it runs on a device."""
    size, tree = sizes(problem), problem.model.rooted()
    grids = use.grid * (size.seen if size.seen <= MOST_WITH_GRIDS else MOST_AT_ONCE)
    counts = COUNT_HELD * size.seen + grids
    if on_device:
        return BYTES * (counts + HELD_PER_CELL * size.cells)
    if not without_matrices(problem, how.structure):
        return int(_held_on_cliques(problem, use, size) if tree is None else matrices_memory(size, use))
    if tree is None:
        entries = ENTRY_COLUMNS * block_width(size.tables) + ENTRY_HELD
        return int(BYTES * (entries * size.tables + (COUNT_HELD + USUAL_FINAL * COLUMNS) * size.seen))
    width = min(block_width(size.cells), max(how.draws or 0, how.final_draws or USUAL_FINAL))
    return BYTES * (COLUMNS * size.cells * width + MOVES_HELD * size.tables + counts)


def matrices_memory(size: TableSizes, use: GaussianUse) -> float:
    """Bytes of the matrices of all edges, and of grids."""
    return BYTES * (use.matrices * size.squares + use.grid * size.seen)


def _held_on_cliques(problem: ClosedProblem, use: GaussianUse, size: TableSizes) -> float:
    """Bytes of columns between cliques, laws, joint margins and matrices of counts."""
    passes, counts = passes_of(problem), COUNT_MATRICES * size.seen**2 + use.grid * size.seen
    if passes is None:
        return BYTES * (LAW_COPIES * size.tables + counts)
    up, down = passes
    kept = 1.5 * min(BYTES * down.numbers, DOWN_BYTES)
    return BYTES * (up.numbers + LAW_COPIES * up.entries + counts) + kept + MAP_BYTES * down.listed


def gaussian_device_memory(problem: ClosedProblem, use: GaussianUse, kind: str) -> int:
    """Bytes of a device's memory that a Gaussian engine takes at the peak of inference, about."""
    size, held, largest = _on_device(problem)
    held += use.grid * size.seen
    if kind == "tree":
        return BYTES * (held + ON_DEVICE * size.squares)
    noise = NOISE_COPIES * WIDEST * largest
    noise = noise if size.sparse else min(NOISE_COPIES * NOISE_AT_ONCE, noise)
    drawn = COLUMNS * size.cells * block_width(size.cells)
    return int(BYTES * (held + size.tables + FLOW_TABLES * largest + noise + drawn))


def point_device_memory(problem: ClosedProblem) -> int:
    """The same of a point estimate: transposed products copy a matrix."""
    size, held, largest = _on_device(problem)
    return int(BYTES * (held + largest + HELD_PER_CELL * size.cells))


def _on_device(problem: ClosedProblem) -> tuple[TableSizes, int, int]:
    """Sizes, numbers that the distinct transitions take, and entries of the largest."""
    tree = problem.model.rooted()
    assert tree is not None
    steps = {id(m): m for m in tree.transitions[1:]}.values()
    moves = [int(m.size) for m in steps]
    held = sum(n * (STORED_SPARSE if hasattr(m, "nnz") else 1) for n, m in zip(moves, steps, strict=True))
    return sizes(problem), held, max(moves, default=0)


def point_memory(problem: ClosedProblem, *, on_device: bool) -> int:
    """Bytes of a point estimate; of the computer's own memory, where it runs on a device."""
    size = sizes(problem)
    if on_device:
        return BYTES * (COUNT_HELD * size.seen + HELD_PER_CELL * size.cells)
    widest = max(len(states) for states in problem.model.states.values())
    packed = widest <= LARGEST_PACKED and not size.sparse
    many = COUNT_VECTORS * size.seen if size.seen >= MANY_COUNTS else 0
    per_cell = max(HELD_PER_CELL * size.cells, many)
    return int(BYTES * ((HELD_TABLES + packed) * size.tables + per_cell))


def point_seconds(problem: ClosedProblem) -> float:
    """Seconds of a point estimate."""
    size = sizes(problem)
    if problem.model.rooted() is None:
        iterations, once = _network_iterations(problem, size)
        return float(NETWORK_RUN + iterations * once)
    each = SPARSE_MOVE if size.sparse else DENSE_MOVE
    iterations = ITERATIONS + LONG_ITERATIONS * max(size.edges**0.5 - SHORT_CHAIN**0.5, 0.0)
    counts = size.seen if size.seen >= MANY_COUNTS else 0  # fewer stay in the cache
    once = each * size.tables + ITERATION_OVERHEAD * size.edges + COUNT_ITERATION * counts
    return float(iterations * once)


def _network_iterations(problem: ClosedProblem, size: TableSizes) -> tuple[int, float]:
    """Iterations of a point estimate on a network, and the seconds of one."""
    once = ENTRY_PASSED * size.tables + CLIQUE_PASSED * size.edges
    gaussian = problem.traits.all_gaussian
    return (GAUSSIAN_ITERATIONS + size.seen // COUNTS_PER_ITERATION if gaussian else OTHER_ITERATIONS), once


def gaussian_seconds(problem: ClosedProblem, use: GaussianUse, how: Solving, speed: float) -> float:
    """Seconds of a Gaussian engine at so many floating-point operations per second."""
    size, tree = sizes(problem), problem.model.rooted()
    if without_matrices(problem, how.structure):
        return _seconds_without_matrices(how, size, tree=tree is not None)
    return (
        matrices_seconds(size, use, speed)
        if tree is not None
        else _seconds_on_cliques(problem, use, size, speed)
    )


def matrices_seconds(size: TableSizes, use: GaussianUse, speed: float) -> float:
    """Seconds of sweeps with matrices over the edges of a tree."""
    operations = PRODUCTS * (size.cubes + PASSES * size.squares)
    return float(use.sweeps * (operations / speed + SWEEP_OVERHEAD * size.edges))


def _seconds_on_cliques(problem: ClosedProblem, use: GaussianUse, size: TableSizes, speed: float) -> float:
    """Belief propagation for the centre, covariances of the observed counts at every law, and at the end those of every variable."""
    passes = passes_of(problem)
    if passes is None:
        return float("nan")
    up, down = passes
    iterations, once = _network_iterations(problem, size)
    laws = min(use.laws, GAUSSIAN_CENTRES) if problem.traits.all_gaussian else use.laws

    def seconds(cost: PassesCost) -> float:
        dense = DENSE_OPERATIONS * (cost.dense + COUNT_CUBES * size.seen**3) / speed
        return LISTED * cost.listed + POSSIBLE_PAIR * cost.sparse + PASS_STEP * cost.steps + dense

    found = (
        NETWORK_RUN
        + VARIABLE_ASKED * len(problem.model.variables)
        + LISTED_FIRST * up.listed
        + (laws + 1) * (seconds(up) + once)
        + seconds(down)
    )
    return float(found + (0.5 * iterations * once if use.laws > 1 else 0.0))


def _seconds_without_matrices(how: Solving, size: TableSizes, *, tree: bool) -> float:
    """By possible moves and counts, for the draws asked for; more than `MOST_WITH_GRIDS` counts have their grids made again."""
    drawn = (how.final_draws or USUAL_FINAL) / USUAL_FINAL
    drawn = (1 - SWEPT) * drawn + SWEPT * (how.draws or USUAL_DRAWS) / USUAL_DRAWS
    if not tree:
        return float(drawn * (FREE_ENTRY * size.tables + FREE_CLIQUE * size.edges))
    each = FREE_SPARSE_MOVE if size.sparse else FREE_DENSE_MOVE
    again = GRID_AGAIN * size.seen if size.seen > MOST_WITH_GRIDS else 0.0
    return float(drawn * (each * size.tables + FREE_COUNT * size.seen) + again)


def other_memory(problem: ClosedProblem) -> int:
    """Bytes of an engine that says nothing of its own."""
    return BYTES * OTHER_TABLES * sizes(problem).tables


def writing_memory(problem: ClosedProblem, *, point: bool, copies: float) -> int:
    """Bytes that writing the results takes beside what inference holds, about; ``copies`` of the joint draws at once."""
    tables = sizes(problem).tables
    columns = POINT_COLUMNS if point else SPREAD_COLUMNS
    columns = SPARSE_COLUMNS if is_sparse(problem) else columns
    return WRITING_BYTES + int(BYTES * max(columns * tables, copies * _drawn(tables, point=point)))


def _drawn(tables: int, *, point: bool) -> int:
    """Table entries of all joint draws that go into the file."""
    drawn = 0 if point else min(FILE_DRAWS * tables, FILE_ENTRIES)
    return drawn if drawn >= FEWEST_FILE_DRAWS * tables else 0


def writing_seconds(problem: ClosedProblem, *, point: bool, initial_known: bool) -> float:
    """Seconds to check the fit and write the results with all flows, about."""
    tables = sizes(problem).tables
    row = WRITTEN_ROW if initial_known else LEARNED_ROW
    return WRITTEN_ONCE + row * _moves(problem) + DRAWN_ENTRY * _drawn(tables, point=point)


def _moves(problem: ClosedProblem) -> int:
    """Rows of flows: possible moves of a chain or tree, also of dense matrices; all entries of other models' tables."""
    tree = problem.model.rooted()
    steps = [] if tree is None else [m for m in tree.transitions if m is not None]
    possible = {id(m): int(getattr(m, "nnz", None) or np.count_nonzero(m)) for m in steps}
    return sum(possible[id(m)] for m in steps) or sizes(problem).tables
