"""What the kernels read and write: plain arrays, gathered in named tuples (numba passes those without boxing).

Nodes are numbered in preorder, so the subtree below node v is the range v … end[v] − 1. The cells of all nodes lie one
after the other (node v starts at `node_start[v]`), and so do the entries of all edge tables (edge parent(v) → v, row by
row, starts at `edge_start[v]`; the root has none). An observed total is a *slot*; a cell or entry may feed several slots,
and a slot may be fed by several cells of one table. One individual feeds a slot at most once.
"""

from typing import NamedTuple

import numpy as np


class TreeArrays(NamedTuple):
    """The individual's tree: shape and probabilities."""

    sizes: np.ndarray  # (V,) states of each node
    parent: np.ndarray  # (V,) −1 for the root
    end: np.ndarray  # (V,) one past the last node of the subtree
    child_start: np.ndarray  # (V + 1,)
    children: np.ndarray  # (V − 1,)
    node_start: np.ndarray  # (V + 1,)
    edge_start: np.ndarray  # (V + 1,)
    law_start: np.ndarray  # (V,) where the transition of v lies in `law`; nodes may share one
    law: np.ndarray  # transitions, row by row: law[law_start[v] + i * L_v + j] = P(x_v = j | x_parent = i)
    law_turned: np.ndarray  # the same, column by column: law_turned[law_start[v] + j * L_parent + i]
    initial: np.ndarray  # (L_root,)


class SlotArrays(NamedTuple):
    """The observed totals: which cells feed them and the likelihood ratio l(y | k + 1) / l(y | k) of each."""

    node_mode: np.ndarray  # (V,) 0: not observed; 1: at most one slot a cell, one cell a slot; 2: sums
    node_first: np.ndarray  # (cells + 1,) CSR over cells
    node_slot: np.ndarray
    edge_mode: np.ndarray  # (V,) 0 or 2
    edge_first: np.ndarray  # (entries + 1,) CSR over entries; (1,) when no edge is observed
    edge_slot: np.ndarray
    law: (
        np.ndarray
    )  # (slots, 5): 1 when the ratio is Poisson's closed form (else 0), y, lambda, lambda_0, table start
    table: np.ndarray  # the other slots' ratios for k = 0 … N, one slot after the other


class PathState(NamedTuple):
    """Where one chain of the path sampler stands."""

    path: np.ndarray  # (V, N) int16: the state of every individual at every node
    node_count: np.ndarray  # (cells,)
    node_ratio: np.ndarray  # (cells,) l(y | n + 1) / l(y | n) of what each cell feeds; 1 where nothing
    slot_count: np.ndarray  # (slots,)
    slot_ratio: np.ndarray  # (slots,)
    random: np.ndarray  # (4,) uint64


class Proposal(NamedTuple):
    """A Markov tree that whole paths are proposed from, and its ratio to the model."""

    accept: np.ndarray  # alias tables, rows as in the edge tables (root's row first)
    alias: np.ndarray
    start: np.ndarray  # (V,)
    weight: np.ndarray  # P / q, same layout


class Sums(NamedTuple):
    """Sums over the sweeps of one batch."""

    node: np.ndarray  # of n
    node_square: np.ndarray  # of n²
    edge: np.ndarray
    edge_square: np.ndarray
    node_smooth: np.ndarray  # of one individual's exact marginals given the others
    edge_smooth: np.ndarray
    tally: np.ndarray  # (4,) sweeps, exact individuals, whole-path proposals made, accepted


class TableState(NamedTuple):
    """Where one chain of the table sampler stands, and its sums over moves.

    An entry's sums are brought up to date only when the entry changes: `*_since` is the move up to which they count.
    """

    edge: np.ndarray  # (entries,) flows
    node: np.ndarray  # (cells,) counts
    slot_count: np.ndarray  # (slots,)
    random: np.ndarray  # (4,) uint64
    edge_sum: np.ndarray
    edge_square: np.ndarray
    edge_since: np.ndarray
    node_sum: np.ndarray
    node_square: np.ndarray
    node_since: np.ndarray


class Hop(NamedTuple):
    """One individual's worth of a Markov-basis move: which entries lose one and which gain one."""

    lose: np.ndarray  # edge entries
    gain: np.ndarray
    law: np.ndarray  # (2, k): their places in the transition tables, and the same for `gain`
    size: (
        np.ndarray
    )  # (5,) number of entries k, node (−1: none), cell that loses, cell that gains, power of its factorial
    up: np.ndarray  # log-weights of 1, 2, … hops forwards
    down: np.ndarray  # and backwards
