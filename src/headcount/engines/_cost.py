r"""Memory and time of each engine, from the sizes of a problem's tables; nothing large is allocated.

With one table of :math:`L_u \times L_v` entries per edge, :math:`W = \max(L_u, L_v)`, N individuals and V variables:

* Gaussian engines hold a number of :math:`W \times W` matrices per edge, and a grid of likelihoods per observed count; a sweep takes
  about :math:`16 (L_u L_v W + 150 W^2)` operations per edge: products, and passes over matrices. On other graphs they hold the columns
  of conditional expectations that pass between cliques, whose widths are followed through the junction tree
  (`structure._clique_passes.passes_cost`), and matrices as wide as the observed counts are many.
* MAP passes over every possible move a few times per iteration.
* The path sampler holds N·V states per chain and per kept configuration, weighs L states to draw one, and keeps about fourteen sums per
  flow.
* Writing holds a number of columns as long as the tables, or the joint draws that go into the file.

The constants come from ``benchmarks/plan.py``, which holds predictions against runs.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from headcount import memory
from headcount.engines._table_bp import (
    CHEAP_STEPS,
    MOST_MORE,
    MOST_REMOVED,
    REMOVAL_SWEEPS,
    largest_count,
    table_work,
)
from headcount.engines._tilting import kind_on_device
from headcount.engines.sampling._path_gibbs import exact_paths, pairs_at_once
from headcount.engines.tilted._centre import MOST_AT_ONCE
from headcount.engines.tilted._tilted_ep import MOST_WITH_GRIDS
from headcount.individual._rooted_tree import LARGEST_PACKED
from headcount.observe import Poisson
from headcount.structure import kind_of
from headcount.structure._clique_passes import DOWN_BYTES, PassesCost, passes_cost
from headcount.structure._variance_draws import NOISE_AT_ONCE, WIDEST, block_width

if TYPE_CHECKING:
    from headcount.engines._engine import Engine
    from headcount.observe import Problem

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
SWEEPS = {"TiltedEP": 12, "Laplace": 9, "EdgeEP": 20, "ClosedForm": 1}
"""Sweeps that a Gaussian engine usually needs. EdgeEP makes 3, whose searches for modes take as long as about 20 (measured: L = 16, 36,
100); ClosedForm solves once."""
HELD_MATRICES = {"TiltedEP": 15, "Laplace": 8, "EdgeEP": 15, "ClosedForm": 8}
"""Matrices per edge held at once. Measured: TiltedEP 14 to 18, Laplace 6 to 8.2, at L = 36 … 324; the others as their likes."""
GRID = {"TiltedEP": 350}
"""Numbers per observed count in all grids together. Measured: 160 to 400."""
PRODUCTS, PASSES = 16, 150
"""Operations per edge and sweep: PRODUCTS (L³ + PASSES L²). Fitted at L = 36, 100, 196, 324 to 25 %."""
CENTRES = {"TiltedEP": 6, "Laplace": 1, "ClosedForm": 1}
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
ITERATIONS = {"MAP": 20}
"""Iterations that a point estimate usually needs (measured: 13 to 15 on maps, up to 35 elsewhere)."""
DENSE_MOVE, SPARSE_MOVE = 1e-9, 2.9e-9
"""Seconds per iteration and possible move of belief propagation. Measured: L = 225, 576 dense; L = 1600 and 3600 sparse."""
HELD_TABLES, HELD_PER_CELL = 1.3, 30
"""Tables, and numbers per cell, held by a point estimate; one table more where nodes are so narrow that the compiled passes pack them.
Fitted to seven runs, dense and sparse, to 40 %."""
STATE_DRAWN, STATE_WEIGHED = 1.3e-7, 1e-9
"""Seconds per individual, variable and sweep of the path sampler: fixed, and per state of the variable. Fitted at L = 36 and 100."""
FLOW_SUMMED, FLOW_REDRAWN = 2.2e-9, 0.6e-9
"""Seconds per flow and sweep of the path sampler: to add it to the sums, and per path redrawn exactly. Measured at L = 120, T = 10."""
PAIR_REDRAWN, PAIR_WEIGHED, STRETCHES = 6e-4, 5e-8, 65
"""Seconds per pair of individuals redrawn together: fixed, and per pair of states; and stretches of sweeps between them. Measured at
L = 30 and 60."""
SUMS_PER_FLOW, SUMS_PER_CELL = 24, 20
"""Numbers per flow and per cell that a chain holds: batch moments, sums, squares, proposals."""
SAMPLER_BYTES = 20_000_000
"""What R-hat and effective size take beside that: about twelve arrays of 200 000 numbers (``sampling/_statistics.py``)."""
KEPT_BYTES, KEPT_DRAWS = 256_000_000, 1000
"""The sampler's own limits on kept configurations (bytes) and node tables per chain."""
RATIO_ENTRIES = 8_000_000
"""Up to here the samplers tabulate Poisson's likelihood ratios too."""
STORED_SPARSE, FLOW_TABLES, NOISE_COPIES, ON_DEVICE = 3, 8, 4, 21
"""On a device: numbers per move of a sparse matrix (value, position, origin), tables of one step beside the sums of all flows, arrays of
noise at once, and matrices per edge with matrices. Set so that peaks on an H200 are not above them (``benchmarks/gpu.py``; the
stored run planned with 5 tables and 15 matrices, and took 1.06 and 1.34 of that)."""
TABLE_ARRAYS = 4
"""Arrays of belief propagation on whole-number tables (weights, messages, laws), with one number per entry and count, and a copy."""
TABLE_SWEEPS, TABLE_PRODUCT, TABLE_EXCHANGE = 14, 2e-9, 6e-8
"""Sweeps that it usually needs, seconds per unit of work (`table_work`) in a sweep, and per individual, step and sweep of exchanges.
Measured on 6 to 36 cells, 300 to 1 200 individuals."""
OTHER_TABLES = 3
"""Tables that any other engine holds at once; not measured."""
WRITING_BYTES = 20_000_000
"""What the writer takes whatever the size. Measured: what is left at sizes where tables take little."""
SPREAD_COLUMNS, POINT_COLUMNS, SPARSE_COLUMNS = 32, 22, 2
"""While results are written, numbers per table entry: with spreads, without, and per move of a sparse table. Fitted to 40 %."""
COPIES = {"TiltedEP": 2.7}
OTHER_COPIES = 1.4
"""Copies of the joint draws that go into the file; tilted EP's are rounded to whole numbers. Measured: 2 to 3.4, and 1 to 1.7."""
WRITTEN_ONCE, WRITTEN_ROW, LEARNED_ROW, DRAWN_ENTRY = 1.0, 1.2e-5, 3.5e-5, 1.2e-6
"""Seconds to check the fit and write results: whatever the size, per row of flows (intervals, CSV, NetCDF), the same where the initial law
was learned, and per table entry of a joint draw. Measured on 36 to 196 cells: 1.1e-5 to 4e-5 per row, 0.8e-6 to 1.6e-6 per entry."""
INITIAL_RUNS = 4
"""Inferences that learning an unknown initial law usually takes, in those of a known one. Measured at L = 36 and 100: 6 and 3."""
FILE_DRAWS, FEWEST_FILE_DRAWS, FILE_ENTRIES = 100, 10, 4_000_000
"""Joint draws that go into a file: at most, at least, and table entries in all (``posterior/_dataset.py``)."""


class Sizes(NamedTuple):
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


def sizes(problem: Problem) -> Sizes:
    """The sizes of a problem's tables; nothing large is allocated."""
    model = problem.model
    found = _table_sizes(problem)
    return Sizes(
        *found,
        cells=sum(len(states) for states in model.states.values()),
        seen=sum(len(site) for site in problem.sites),
        edges=max(len(model.junction_tree.cliques), 1),
        sparse=is_sparse(problem),
        people=problem.typical_population,
    )


def _table_sizes(problem: Problem) -> tuple[int, int, int]:
    """The first three of `Sizes`."""
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


def _listable(problem: Problem) -> bool:
    """Whether the clique tables of a network fit into memory, so that its possible entries can be listed."""
    return problem.model.junction_tree.total_bytes <= memory.limit()


def passes_of(problem: Problem) -> tuple[PassesCost, PassesCost] | None:
    """Cost of passes between the cliques of a model that is no tree: up, and down. None of trees, and of tables that do not fit."""
    if problem.model.rooted() is not None or not _listable(problem):
        return None
    return passes_cost(problem.model.possible, tuple((site.scope, len(site)) for site in problem.sites))


def is_sparse(problem: Problem) -> bool:
    """Whether some transition is a sparse matrix."""
    tree = problem.model.rooted()
    return tree is not None and any(hasattr(m, "nnz") for m in tree.transitions)


def without_matrices(problem: Problem, engine: Engine) -> bool:
    """Whether an engine will solve this problem by the matrix-free structure."""
    counts = sum(map(len, problem.sites))
    return (
        kind_of(problem.model.rooted(), getattr(engine, "structure", "tree"), counts=counts) == "matrix-free"
    )


def device_memory_of(problem: Problem, engine: Engine) -> int:
    """Bytes of a device's memory that an engine takes at the peak of inference, about; zero of one that takes none."""
    run, tree = _as_any(engine), problem.model.rooted()
    if getattr(run, "device", "cpu") == "cpu" or tree is None:
        return 0
    size = sizes(problem)
    steps = {id(m): m for m in tree.transitions[1:]}.values()
    moves = [int(m.size) for m in steps]
    largest = max(moves, default=0)
    held = sum(n * (STORED_SPARSE if hasattr(m, "nnz") else 1) for n, m in zip(moves, steps, strict=True))
    if run.name not in SWEEPS:
        return int(BYTES * (held + largest + HELD_PER_CELL * size.cells))  # transposed products copy a matrix
    held += GRID.get(run.name, 0) * size.seen
    if kind_on_device(problem, run.structure) == "tree":
        return BYTES * (held + ON_DEVICE * size.squares)
    noise = NOISE_COPIES * WIDEST * largest
    noise = noise if size.sparse else min(NOISE_COPIES * NOISE_AT_ONCE, noise)
    drawn = COLUMNS * size.cells * block_width(size.cells)
    return int(BYTES * (held + size.tables + FLOW_TABLES * largest + noise + drawn))


def memory_of(problem: Problem, engine: Engine) -> int:
    """Bytes an engine takes at the peak of inference, about; of the computer's own memory, where it runs on a device."""
    run, size = _as_any(engine), sizes(problem)
    grids = GRID.get(run.name, 0) * (size.seen if size.seen <= MOST_WITH_GRIDS else MOST_AT_ONCE)
    counts = COUNT_HELD * size.seen + grids
    if getattr(run, "device", "cpu") != "cpu":
        return BYTES * (counts + HELD_PER_CELL * size.cells)
    if without_matrices(problem, engine) and problem.model.rooted() is None:
        entries = ENTRY_COLUMNS * block_width(size.tables) + ENTRY_HELD
        return int(BYTES * (entries * size.tables + (COUNT_HELD + USUAL_FINAL * COLUMNS) * size.seen))
    if without_matrices(problem, engine):
        width = min(block_width(size.cells), max(run.draws or 0, run.final_draws or USUAL_FINAL))
        return BYTES * (COLUMNS * size.cells * width + MOVES_HELD * size.tables + counts)
    if run.name in CENTRES and problem.model.rooted() is None:
        return int(_held_on_cliques(problem, run, size))
    return int(_held_with_matrices(problem, run, size))


def _held_on_cliques(problem: Problem, run: Any, size: Sizes) -> float:
    """Bytes of columns between cliques, laws, joint margins and matrices of counts."""
    passes, counts = passes_of(problem), COUNT_MATRICES * size.seen**2 + GRID.get(run.name, 0) * size.seen
    if passes is None:
        return BYTES * (LAW_COPIES * size.tables + counts)
    up, down = passes
    kept = 1.5 * min(BYTES * down.numbers, DOWN_BYTES)
    return BYTES * (up.numbers + LAW_COPIES * up.entries + counts) + kept + MAP_BYTES * down.listed


def _held_with_matrices(problem: Problem, run: Any, size: Sizes) -> float:
    """Bytes of an engine's arrays."""
    if run.name in SWEEPS:
        return BYTES * (HELD_MATRICES[run.name] * size.squares + GRID.get(run.name, 0) * size.seen)
    if run.name in ITERATIONS:
        widest = max(len(states) for states in problem.model.states.values())
        packed = widest <= LARGEST_PACKED and not size.sparse
        return BYTES * ((HELD_TABLES + packed) * size.tables + HELD_PER_CELL * size.cells)
    if run.name == "TableBP":
        return BYTES * TABLE_ARRAYS * size.tables * (1 + largest_count(problem))
    if run.name == "PathGibbs":
        states = 2 * run.chains * size.people * len(problem.model.variables)
        kept = min(states * min(run.draws, run.sweeps), KEPT_BYTES)
        return _sampler_memory(problem, run, size, min(KEPT_DRAWS, run.sweeps)) + states + kept
    return BYTES * OTHER_TABLES * size.tables


def _sampler_memory(problem: Problem, run: Any, size: Sizes, drawn: int) -> int:
    """What the sampler holds: likelihood ratios, sums, and so many node tables per chain (4 bytes per count, and one copy)."""
    rows, tabulated = size.people + 1, size.seen
    if tabulated * rows > RATIO_ENTRIES:
        tabulated = sum(len(s) for s in problem.sites if not isinstance(s.noise, Poisson))
    sums = SUMS_PER_FLOW * size.tables + SUMS_PER_CELL * size.cells
    return BYTES * (tabulated * rows + run.chains * (sums + drawn * size.cells)) + SAMPLER_BYTES


def writing_memory(problem: Problem, engine: Engine) -> int:
    """Bytes that writing the results takes beside what inference holds, about."""
    tables = sizes(problem).tables
    drawn = _drawn(tables, engine)
    columns = POINT_COLUMNS if engine.name in ITERATIONS else SPREAD_COLUMNS
    columns = SPARSE_COLUMNS if is_sparse(problem) else columns
    drawn_numbers = COPIES.get(engine.name, OTHER_COPIES) * drawn
    return WRITING_BYTES + int(BYTES * max(columns * tables, drawn_numbers))


def _drawn(tables: int, engine: Engine) -> int:
    """Table entries of all joint draws that go into the file."""
    drawn = 0 if engine.name in ITERATIONS else min(FILE_DRAWS * tables, FILE_ENTRIES)
    return drawn if drawn >= FEWEST_FILE_DRAWS * tables else 0


def writing_seconds(problem: Problem, engine: Engine, *, initial_known: bool) -> float:
    """Seconds to check the fit and write the results with all flows, about."""
    tables = sizes(problem).tables
    row = WRITTEN_ROW if initial_known else LEARNED_ROW
    return WRITTEN_ONCE + row * tables + DRAWN_ENTRY * _drawn(tables, engine)


def seconds_of(problem: Problem, engine: Engine, speed: float) -> float:
    """Seconds of inference at so many floating-point operations per second; NaN for an engine without a formula."""
    run, size = _as_any(engine), sizes(problem)
    if without_matrices(problem, engine):
        return _seconds_without_matrices(run, size, tree=problem.model.rooted() is not None)
    if problem.model.rooted() is None and run.name in {*CENTRES, "MAP"}:
        return _seconds_on_cliques(problem, run.name, size, speed)
    if run.name in SWEEPS:
        operations = PRODUCTS * (size.cubes + PASSES * size.squares)
        return float(SWEEPS[run.name] * (operations / speed + SWEEP_OVERHEAD * size.edges))
    if run.name in ITERATIONS:
        each = SPARSE_MOVE if size.sparse else DENSE_MOVE
        return float(ITERATIONS[run.name] * (each * size.tables + ITERATION_OVERHEAD * size.edges))
    if run.name == "TableBP":
        steps = run.exchanges * size.people * size.edges
        steps = max(steps, min(MOST_MORE * steps, CHEAP_STEPS))
        if run.exchanges and size.people <= MOST_REMOVED:
            steps += REMOVAL_SWEEPS * size.people**2 * size.edges / 2
        return float(TABLE_SWEEPS * TABLE_PRODUCT * table_work(problem) + TABLE_EXCHANGE * steps)
    if run.name == "PathGibbs":
        return _path_seconds(problem, run, size)
    return float("nan")


def _seconds_on_cliques(problem: Problem, name: str, size: Sizes, speed: float) -> float:
    """Belief propagation for the centre, covariances of the observed counts at every law, and at the end those of every variable."""
    gaussian = problem.traits.all_gaussian
    once = ENTRY_PASSED * size.tables + CLIQUE_PASSED * size.edges
    iterations = GAUSSIAN_ITERATIONS + size.seen // COUNTS_PER_ITERATION if gaussian else OTHER_ITERATIONS
    if name == "MAP":
        return float(NETWORK_RUN + iterations * once)
    passes = passes_of(problem)
    if passes is None:
        return float("nan")
    up, down = passes
    laws = GAUSSIAN_CENTRES if gaussian and name == "TiltedEP" else CENTRES[name]

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
    return float(found + (0.5 * iterations * once if name == "TiltedEP" else 0.0))


def _path_seconds(problem: Problem, run: Any, size: Sizes) -> float:
    widths = [len(s) for s in problem.model.states.values()]
    redrawn = run.exact or exact_paths(size.people)
    drawn = size.people * len(widths) * (STATE_DRAWN + STATE_WEIGHED * max(widths))
    drawn += size.tables * (FLOW_SUMMED + FLOW_REDRAWN * redrawn)
    alone = problem.dispersion is None and all(len(site.scope) == 1 for site in problem.sites)
    pairs = run.pairs or pairs_at_once(size.people, widths, possible=alone)
    paired = STRETCHES * pairs * (PAIR_REDRAWN + PAIR_WEIGHED * sum(width**2 for width in widths))
    return float(run.chains * ((run.burn_in + run.sweeps) * drawn + paired) / min(run.workers, run.chains))


def _seconds_without_matrices(run: Any, size: Sizes, *, tree: bool) -> float:
    """By possible moves and counts, for the draws asked for; more than `MOST_WITH_GRIDS` counts have their grids made again."""
    drawn = (run.final_draws or USUAL_FINAL) / USUAL_FINAL
    drawn = (1 - SWEPT) * drawn + SWEPT * (run.draws or USUAL_DRAWS) / USUAL_DRAWS
    if not tree:
        return float(drawn * (FREE_ENTRY * size.tables + FREE_CLIQUE * size.edges))
    each = FREE_SPARSE_MOVE if size.sparse else FREE_DENSE_MOVE
    again = GRID_AGAIN * size.seen if size.seen > MOST_WITH_GRIDS else 0.0
    return float(drawn * (each * size.tables + FREE_COUNT * size.seen) + again)


def _as_any(engine: Engine) -> Any:
    return engine
