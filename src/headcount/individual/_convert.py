"""Other people's models as states and factors: conditional tables, networkx graphs, pgmpy models, files in BIF.

The Bayesian Interchange Format has networks, variables and probability blocks. ``probability ( child | parent, ... )`` holds rows
``(states of the parents) p, p, ...;``, one ``table p, p, ...;`` in which the child's state varies slowest and the last parent's
fastest, and ``default p, ...;`` for the rows not given. Commas and bars count as blanks, names may be quoted, ``//`` and ``/* */``
are comments, properties are skipped.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headcount import memory
from headcount._types import Array, Variable
from headcount.checks import attempt, brief, finite_number, instance, is_sequence, numbers
from headcount.errors import ModelError, raise_all, repeated, shown
from headcount.individual._model import FILE_ROUNDING, ROW_TOLERANCE, law_problems, unit_rows
from headcount.labels import label_tuple

States = dict[Hashable, tuple[Hashable, ...]]
Factors = list[tuple[tuple[Hashable, ...], Any]]
Cpts = dict[str, tuple[tuple[str, ...], Array]]

_PART = 2**22
"""Bytes unpacked at a time: 4 MiB."""
_BYTES_PER_LETTER = 24
"""Bytes of memory that one byte of text takes when it is cut into words: short words of a few letters, each a Python string."""
_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"[^"]*"|[^\s,|;{}()\[\]"]+|[;{}()\[\]]', re.DOTALL)


def factors_from_cpts(
    states: Mapping[Variable, Sequence[Hashable]],
    cpts: Mapping[Variable, tuple[Sequence[Variable], Any]],
    *,
    rounding: float = ROW_TOLERANCE,
) -> Factors:
    """Theta = log P(x_child | x_parents) for every ``cpts[child] = (parents, P[parents..., child])``."""
    rounding = finite_number(
        rounding, "rounding", least=0.0, expected="how far rows may be from one, 0 or more"
    )
    problems: list[str] = []
    given = instance(cpts, Mapping, "cpts", expected="{child: (parents, table)}")
    made = [
        attempt(problems, _conditional_factor, states, child, entry, rounding)
        for child, entry in given.items()
    ]
    problems += [
        f"{v!r} has no conditional table: give cpts[{v!r}] = ((), law)" for v in states if v not in given
    ]
    raise_all(problems)
    return [factor for factor in made if factor is not None]


def _conditional_factor(
    states: Mapping[Variable, Sequence[Hashable]], child: Variable, entry: Any, rounding: float
) -> tuple[tuple[Variable, ...], Any]:
    """log P(x_child | x_parents) over (parents..., child), from ``(parents, P)``."""
    if not isinstance(entry, (tuple, list)) or len(entry) != 2 or not is_sequence(entry[0]):
        raise ModelError(
            f"cpts[{child!r}] is {brief(entry)}: give (parents, table), ((), law) without parents"
        )
    parents = label_tuple(entry[0], f"the parents of {child!r}")
    scope = (*parents, child)
    what = f"P({child!r} | {parents!r})"
    table = numbers(entry[1], what)
    raise_all(
        f"the table of {child!r} names {v!r}, which has no states: add it to states"
        for v in scope
        if v not in states
    )
    axes, remedy = "one axis per parent in order, the child's last", "divide the row by its sum"
    raise_all(
        law_problems(table, [states[v] for v in scope], what, axes=axes, remedy=remedy, tolerance=rounding)
    )
    with np.errstate(divide="ignore"):
        return scope, np.log(unit_rows(table))


def from_networkx(graph: Any) -> tuple[States, Factors]:
    """States and factors of a networkx graph.

    A node with ``states`` is a variable; anything with ``log_potential`` is a factor: a variable's node (over
    itself), another node or an edge (over its ``scope``; an edge of a directed graph is over (from, to)
    unless it says otherwise).
    """
    if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
        raise ModelError(f"graph is {brief(graph)}: give a networkx graph")
    states = {v: data["states"] for v, data in graph.nodes(data=True) if "states" in data}
    factors: Factors = []
    problems: list[str] = []
    for v, data in graph.nodes(data=True):
        _add_node(graph, v, data, states, factors, problems)
    for u, v, data in graph.edges(data=True):
        _add_edge(graph, (u, v), data, states, factors, problems)
    raise_all(problems)
    return states, factors


def _add_node(
    graph: Any, v: Hashable, data: Mapping[str, Any], states: States, factors: Factors, problems: list[str]
) -> None:
    """Add a node's factor, or say what is wrong with the node."""
    if "log_potential" not in data:
        if v not in states:
            problems.append(
                f"node {v!r} is neither a variable nor a factor: give it states, or scope and log_potential"
            )
        return
    if v not in states and "scope" not in data:
        problems.append(f"factor {v!r} has no scope: say which variables its table is over, in order")
        return
    scope = tuple(data.get("scope", (v,)))
    factors.append((scope, data["log_potential"]))
    joined = set(graph.neighbors(v)) - set(scope) if v not in states else set()
    if joined:
        problems.append(f"factor {v!r} is joined to {joined!r}, not in its scope {scope!r}: make them agree")


def _add_edge(
    graph: Any,
    edge: tuple[Hashable, Hashable],
    data: Mapping[str, Any],
    states: States,
    factors: Factors,
    problems: list[str],
) -> None:
    """Add an edge's factor, or say what is wrong with the edge."""
    if "log_potential" in data:
        if "scope" not in data and not graph.is_directed():
            problems.append(f"edge {edge!r} has no scope: say which variable is axis 0, scope={edge!r}")
        factors.append((tuple(data.get("scope", edge)), data["log_potential"]))
    elif edge[0] in states and edge[1] in states:
        problems.append(
            f"edge {edge!r} between variables has no log_potential: give one, or leave the edge out"
        )


def from_pgmpy(model: Any) -> tuple[States, Factors]:
    """States and factors of a pgmpy Bayesian network (conditional tables) or Markov network (factors)."""
    conditional = hasattr(model, "get_cpds")
    if not hasattr(model, "nodes") or not (conditional or hasattr(model, "get_factors")):
        raise ModelError(f"model is {brief(model)}: give a pgmpy Bayesian or Markov network")
    tables = model.get_cpds() if conditional else model.get_factors()
    states = _states_of_tables(model.nodes, tables)
    arrays = [(tuple(table.variables), np.asarray(table.values, dtype=np.float64)) for table in tables]
    if conditional:
        raise_all(f"variable {v!r} has no conditional table: add one" for v in model.nodes if v not in states)
        return states, factors_from_cpts(states, _child_last(arrays), rounding=FILE_ROUNDING)
    with np.errstate(divide="ignore"):
        return states, [(scope, np.log(values)) for scope, values in arrays]


def _child_last(
    arrays: Iterable[tuple[tuple[Hashable, ...], Array]],
) -> dict[Hashable, tuple[tuple[Hashable, ...], Array]]:
    """Conditional tables by child: pgmpy keeps the child's axis first, a conditional table here has it last."""
    return {scope[0]: (scope[1:], np.moveaxis(values, 0, -1)) for scope, values in arrays}


def _states_of_tables(order: Iterable[Hashable], tables: Any) -> States:
    """The labels of every variable of the tables, which must agree on them; those of `order` first."""
    states: States = {}
    problems: list[str] = []
    for table in tables:
        for v in table.variables:
            labels = tuple(table.state_names[v])
            if states.setdefault(v, labels) != labels:
                problems.append(
                    f"{v!r} has the states {states[v]!r} in one table, {labels!r} in another: make them agree"
                )
    raise_all(problems)
    return {v: states[v] for v in dict.fromkeys((*order, *states)) if v in states}


class _Block(NamedTuple):
    """A probability block: the line it starts on, the child and its parents, and its statements, each with its line."""

    line: int
    names: list[str]
    statements: list[tuple[int, list[str]]]


_ORDER = {"table": 0, "default": 1, "(": 2}
"""Rows are written over the default, and both over the table, in whichever order a block has them."""


def read_bif(path: str | Path) -> tuple[dict[str, tuple[str, ...]], Cpts]:
    """``{variable: labels}`` and ``{child: (parents, P[parents..., child])}`` of a .bif or .bif.gz file."""
    if not isinstance(path, (str, os.PathLike)):
        raise ModelError(f"path is {brief(path)}: give the path of a .bif or .bif.gz file")
    try:
        return parse_bif(_text(Path(path)))
    except ModelError as error:
        raise ModelError(f"{Path(path).name}: {problem}" for problem in error.problems) from None


def _text(path: Path) -> str:
    """The text of a file, unpacked if it is packed; refused before it takes more memory than there may be."""
    content = bytearray()
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            with gzip.open(raw) if packed else raw as source:
                while part := source.read(_PART):
                    content += part
                    memory.require(
                        _BYTES_PER_LETTER * len(content), "reading its text", remedy="give a smaller file"
                    )
        return content.decode("utf-8")
    except FileNotFoundError:
        problem = "there is no such file: check the path"
    except UnicodeDecodeError:
        problem = "the network is not UTF-8 text: save it as UTF-8"
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        problem = f"the compressed file is damaged ({error}): compress it again"
    except OSError as error:
        problem = f"it cannot be read ({error.strerror or error}): check the path"
    raise ModelError(problem)


def parse_bif(text: str) -> tuple[dict[str, tuple[str, ...]], Cpts]:
    """What `read_bif` returns, from the text itself.

    Raises
    ------
    ModelError
        Naming the line and what was expected there; problems of meaning (unknown states, missing rows) all at
        once.
    """
    states, blocks = _network(_Words(text))
    problems = _name_problems(states, blocks)
    cpts: Cpts = {}
    for block in blocks:
        unknown = [v for v in block.names if v not in states]
        problems += [
            f"line {block.line}: unknown variable {v!r}: the file has {shown(states)}" for v in unknown
        ]
        if not unknown:
            cpts[block.names[0]] = (tuple(block.names[1:]), _table(block, states, problems))
    raise_all(problems)
    return states, cpts


def _name_problems(states: dict[str, tuple[str, ...]], blocks: list[_Block]) -> list[str]:
    """States that are given twice, and variables without exactly one probability block."""
    count = Counter(block.names[0] for block in blocks)
    problems = [] if states else ["no variable block was found: this is not a network in BIF"]
    problems += [
        f"variable {v!r} has the state {s!r} twice" for v, labels in states.items() for s in repeated(labels)
    ]
    problems += [f"variable {v!r} has {n} probability blocks: keep one" for v, n in count.items() if n != 1]
    problems += [f"variable {v!r} has no probability block: add one" for v in states if v not in count]
    return problems


def _table(block: _Block, states: dict[str, tuple[str, ...]], problems: list[str]) -> Array:
    """P[parents..., child] of one block; what is wrong with it is added to `problems`."""
    child, *parents = block.names
    above = {p: states[p] for p in parents}
    shape, width = tuple(map(len, above.values())), len(states[child])
    table = np.full((*shape, width), np.nan)
    before, seen = len(problems), set()
    for line, (word, *words) in sorted(block.statements, key=lambda s: _ORDER.get(s[1][0], 3)):
        if word == "table":
            values = _numbers(words, child, width * prod(shape), line, problems)
            table[...] = np.moveaxis(values.reshape(width, *shape), 0, -1)  # the child's state varies slowest
        elif word == "default":
            table[...] = _numbers(words, child, width, line, problems)
        elif word == "(" and ")" in words:
            end = words.index(")")
            index = _row_index(line, words[:end], child, above, problems)
            if index in seen:
                problems.append(f"line {line}: the row {tuple(words[:end])!r} of {child!r} is given twice")
            if index is not None:
                seen.add(index)
                table[index] = _numbers(words[end + 1 :], child, width, line, problems)
        else:
            problems.append(f"line {line}: expected a row, table or default, found {word!r}")
    if len(problems) == before:
        problems += _missing_rows(block, table, list(above.values()))
    return table


def _missing_rows(block: _Block, table: Array, parents: Sequence[Sequence[str]]) -> list[str]:
    """One problem if rows were never given."""
    missing = np.argwhere(np.isnan(table).any(axis=-1))
    if not len(missing):
        return []
    first = tuple(labels[k] for labels, k in zip(parents, missing[0], strict=True))
    return [
        f"line {block.line}: {len(missing)} rows of {block.names[0]!r} are missing, the first for {first!r}: "
        "add them, or a default"
    ]


def _numbers(words: list[str], child: str, count: int, line: int, problems: list[str]) -> Array:
    """`count` numbers; NaN, and a problem, where the words are not that."""
    try:
        values = np.array(words, dtype=np.float64)
    except ValueError:
        problems.append(f"line {line}: {shown(words)} are not all numbers")
        return np.full(count, np.nan)
    if len(values) != count:
        problems.append(f"line {line}: {len(values)} probabilities for {child!r}, expected {count}")
        return np.full(count, np.nan)
    return values


def _row_index(
    line: int, labels: list[str], child: str, parents: dict[str, tuple[str, ...]], problems: list[str]
) -> tuple[int, ...] | None:
    """The place of a row, from the states of the parents; None, and a problem, where they are not theirs."""
    if len(labels) != len(parents):
        problems.append(
            f"line {line}: {len(labels)} parent states for the {len(parents)} parents of {child!r}"
        )
        return None
    wrong = [(p, s) for (p, known), s in zip(parents.items(), labels, strict=True) if s not in known]
    problems += [f"line {line}: {p!r} has no state {s!r}: it has {shown(parents[p])}" for p, s in wrong]
    return None if wrong else tuple(k.index(s) for k, s in zip(parents.values(), labels, strict=True))


class _Words:
    """The words of a file, one at a time; every complaint names the line."""

    def __init__(self, text: str) -> None:
        self._words: list[tuple[str, int]] = []
        line, before = 1, 0
        for found in _TOKEN.finditer(text):
            line += text.count("\n", before, found.start())
            before = found.start()
            if not found.group().startswith(("//", "/*")):
                self._words.append((found.group(), line))
        self._words.append(("", line + text.count("\n", before)))
        self._next = 0

    @property
    def line(self) -> int:
        """Of the next word."""
        return self._words[self._next][1]

    def peek(self) -> str:
        """The next word; none at the end."""
        return self._words[self._next][0]

    def take(self, expected: str | None = None) -> str:
        """The next word, if it is the one expected."""
        word = self.peek()
        if not word or (expected is not None and word != expected):
            raise ModelError(
                f"line {self.line}: expected {expected or 'a word'}, found {word or 'the end of the file'!r}"
            )
        self._next += 1
        return word.strip('"')

    def until(self, stop: str) -> list[str]:
        """The words before ``stop``, which is passed."""
        words = []
        while self.peek() != stop:
            words.append(self.take())
        self.take(stop)
        return words

    def body(self) -> list[tuple[int, list[str]]]:
        """The statements up to the closing brace, each with its line; without properties."""
        made = []
        while self.peek() != "}":
            made.append((self.line, self.until(";") or [";"]))
        self.take("}")
        return [(line, words) for line, words in made if words[0] != "property"]


def _network(words: _Words) -> tuple[dict[str, tuple[str, ...]], list[_Block]]:
    """All variables with their states, and all probability blocks."""
    states: dict[str, tuple[str, ...]] = {}
    blocks: list[_Block] = []
    while words.peek():
        line, kind = words.line, words.take()
        if kind == "network":
            words.until("{")
            words.body()
        elif kind == "variable":
            name = words.take()
            if name in states:
                raise ModelError(f"line {line}: variable {name!r} is declared twice")
            words.take("{")
            states[name] = _declared_states(name, line, words.body())
        elif kind == "probability":
            words.take("(")
            names = words.until(")")
            if not names:
                raise ModelError(f"line {line}: a probability block names no variable")
            words.take("{")
            blocks.append(_Block(line, names, words.body()))
        else:
            raise ModelError(f"line {line}: expected network, variable or probability, found {kind!r}")
    return states, blocks


def _declared_states(name: str, line: int, statements: list[tuple[int, list[str]]]) -> tuple[str, ...]:
    """The states of a variable, from ``type discrete [ number ] { states };``."""
    states: tuple[str, ...] = ()
    for at, words in statements:
        kind, count, states = words[:3] + words[4:6] + words[-1:], words[3:4], tuple(words[6:-1])
        if kind != ["type", "discrete", "[", "]", "{", "}"]:
            raise ModelError(
                f"line {at}: expected type discrete [ number ] {{ states }}, found {' '.join(words)!r}"
            )
        if count != [str(len(states))]:
            raise ModelError(
                f"line {at}: variable {name!r} says it has {count[0]} states and names {len(states)}"
            )
    if not states:
        raise ModelError(f"line {line}: variable {name!r} has no states: add a type discrete line")
    return states
