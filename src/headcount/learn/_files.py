"""Fits and checkpoints on disk, and fingerprints: one codec from dataclasses to JSON and arrays, without pickle.

A value becomes JSON in which arrays are references, ``{"array": "a3"}``, and everything JSON does not know is marked with its
type: ``{"tuple": [...]}``, ``{"date": "2024-03-01"}``, ``{"LogisticChain": {field: value}}``. A file is an npz with these arrays,
the JSON text and a checksum of both, written atomically. A fingerprint is the checksum alone.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import fractions
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from headcount._disk import replacing
from headcount.engines import Status
from headcount.individual import (
    DiscreteModel,
    HiddenStateChain,
    HomeChain,
    MarkovChain,
    MemoryChain,
    Model,
    OpenChain,
    SemiMarkovChain,
)
from headcount.observe import Observation, Problem
from headcount.population import DispersionEstimate, Flocks, Overdispersion

VERSION = 3
"""Of the files: 1 and 2 were written by earlier versions of headcount, with one layout for fits and one for checkpoints."""

Pack = Callable[[Any], Any]
Coder = tuple[Pack, Pack]
"""(to what JSON can hold, back again); the parts of a list are packed in turn."""


def _timestamp(parts: Sequence[Any]) -> Any:
    import pandas as pd

    text, zone, unit = parts
    made = pd.Timestamp(text)
    return (made if zone is None else made.tz_convert(zone)).as_unit(unit)


def _pandas(name: str, parts: Sequence[Any]) -> Any:
    import pandas as pd

    return getattr(pd, name)(*parts)


def _numpy_time(parts: Sequence[Any]) -> Any:
    number, kind = parts
    return np.array(number, dtype=np.int64).view(kind)[()]


_CODERS: dict[str, Coder] = {
    "pandas.Timestamp": (
        lambda t: [t.isoformat(), None if t.tz is None else str(t.tz), t.unit],
        _timestamp,
    ),
    "pandas.Timedelta": (lambda t: [t.isoformat()], partial(_pandas, "Timedelta")),
    "pandas.Period": (lambda t: [str(t), t.freqstr], partial(_pandas, "Period")),
    "pandas.Interval": (lambda t: [t.left, t.right, t.closed], partial(_pandas, "Interval")),
    "numpy.datetime64": (lambda t: [int(t.astype(np.int64)), t.dtype.str], _numpy_time),
    "numpy.timedelta64": (lambda t: [int(t.astype(np.int64)), t.dtype.str], _numpy_time),
    "datetime.datetime": (lambda t: [t.isoformat()], lambda p: dt.datetime.fromisoformat(p[0])),
    "datetime.date": (lambda t: [t.isoformat()], lambda p: dt.date.fromisoformat(p[0])),
    "datetime.time": (lambda t: [t.isoformat()], lambda p: dt.time.fromisoformat(p[0])),
    "datetime.timedelta": (
        lambda t: [t.days, t.seconds, t.microseconds],
        lambda p: dt.timedelta(*p),
    ),
    "fractions.Fraction": (lambda t: [str(t)], lambda p: fractions.Fraction(p[0])),
    "decimal.Decimal": (lambda t: [str(t)], lambda p: decimal.Decimal(p[0])),
    "builtins.float": (lambda t: [repr(float(t))], lambda p: float(p[0])),
    "builtins.tuple": (list, tuple),
    "builtins.frozenset": (lambda t: sorted(t, key=repr), frozenset),
}


class Saved:
    """Base of dataclasses that can be written to files and read again, but for fields with the metadata ``{"saved": False}``."""


_SAVED = (Saved, Overdispersion, DispersionEstimate, Flocks)
"""The dataclasses that are written field by field."""


def _readable(kinds: Sequence[type]) -> dict[str, type]:
    """These dataclasses and all that are derived from them, by name."""
    found = {kind.__name__: kind for kind in kinds}
    for kind in kinds:
        found |= _readable(kind.__subclasses__())
    return found


def _template(initial: Any, states: Mapping[Any, tuple[Any, ...]]) -> MarkovChain:
    """A chain with these times, cells and initial distribution; its transitions are placeholders."""
    cells = list(states.values())
    uniform = [np.full((len(a), len(b)), 1 / len(b)) for a, b in itertools.pairwise(cells)]
    same = all(names == cells[0] for names in cells)
    matrices = np.full((len(cells[0]), len(cells[0])), 1 / len(cells[0])) if same else uniform
    return MarkovChain(initial, matrices, times=tuple(states), cells=states)


def _open_chain(first: Any, transitions: Any, arrivals: Any, survival: Any, states: Any) -> OpenChain:
    return OpenChain(
        first, transitions, arrivals=arrivals, survival=survival, times=tuple(states), cells=states
    )


def _object_array(shape: Sequence[int], values: Sequence[Any]) -> Any:
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made.reshape(shape)


def data_of(problem: Problem) -> tuple[Any, ...]:
    """The data of a problem without its model, for comparing fits of different models."""
    counts = [[s.scope, s.index, s.weights, s.noise] for s in problem.sites]
    if not problem.tracks:
        return problem.population, counts
    tracks = [
        [counted, name, r.ids, [[k, *seen] for k, seen in r.seen.items()]]
        for counted, by_group in problem.records.items()
        for name, r in by_group.items()
    ]
    return problem.population, counts, tracks


def _noise(pack: Pack, noise: Any) -> Any:
    return [type(noise).__name__, {f.name: pack(getattr(noise, f.name)) for f in dataclasses.fields(noise)}]


def _problem(pack: Pack, problem: Problem) -> Any:
    together = [] if problem.dispersion is None else [repr(problem.dispersion)]
    return [pack(problem.model), pack(data_of(problem)), *together]


def _chain(pack: Pack, chain: MarkovChain) -> Any:
    """Its transitions are learned, or part of the parametrisation."""
    return [pack(chain.initial if chain.initial_known else None), pack(dict(chain.states))]


def _for_fingerprints(unpack: Pack, held: Any) -> Any:
    raise ValueError(f"{held!r} is in no file")


_HIDDEN: dict[str, Any] = {kind.__name__: kind for kind in (SemiMarkovChain, MemoryChain, HomeChain)}
"""Chains that are written by the arguments that make them again."""
_KINDS: dict[str, tuple[type, Callable[[Pack, Any], Any], Callable[[Pack, Any], Any]]] = {
    "status": (Status, lambda pack, v: v.value, lambda unpack, held: Status(held)),
    "map": (
        Mapping,
        lambda pack, v: [[pack(k), pack(part)] for k, part in v.items()],
        lambda unpack, held: {unpack(k): unpack(part) for k, part in held},
    ),
    "open chain": (
        OpenChain,
        lambda pack, c: [
            pack(part) for part in (c.first, list(c.transitions), c.arrivals, c.survival, dict(c.states))
        ],
        lambda unpack, held: _open_chain(*(unpack(part) for part in held)),
    ),
    "hidden states": (
        HiddenStateChain,
        lambda pack, c: [type(c).__name__, pack(c.arguments)],
        lambda unpack, held: _HIDDEN[held[0]](**unpack(held[1])),
    ),
    "chain": (MarkovChain, _chain, lambda unpack, held: _template(*(unpack(part) for part in held))),
    "model": (
        Model,
        lambda pack, v: pack(dict(v.states)),
        lambda unpack, held: DiscreteModel(unpack(held)),
    ),
    "problem": (Problem, _problem, _for_fingerprints),
    "noise": (Observation, _noise, _for_fingerprints),
}
"""By tag: objects that are written in a way of their own, how, and how they are read; the first that fits serves."""


def _is_json(value: Any) -> bool:
    return (
        value is None
        or isinstance(value, (bool, int, str))
        or (isinstance(value, float) and math.isfinite(value))
    )


def _coder_name(kind: type) -> str | None:
    """Under which name a type, or the first of its bases that is known, is coded."""
    names = (f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in kind.__mro__)
    return next((name for name in names if name in _CODERS), None)


class _Packer:
    """Turns values into JSON and arrays.

    Parameters
    ----------
    known
        Objects that are not written: only their position is, and the reader must bring them.
    strict
        Whether only classes that can be read again are allowed; a fingerprint takes any dataclass.
    """

    def __init__(self, known: Sequence[Any] = (), *, strict: bool = True) -> None:
        self.arrays: dict[str, Any] = {}
        self.known, self.strict = {id(item): k for k, item in enumerate(known)}, strict

    def pack(self, value: Any) -> Any:
        if id(value) in self.known:
            return {"known": self.known[id(value)]}
        if isinstance(value, np.generic) and not isinstance(value, (np.datetime64, np.timedelta64)):
            value = value.item()
        if _is_json(value):
            return value
        if isinstance(value, list):
            return [self.pack(part) for part in value]
        tag = next((tag for tag, (kind, *_) in _KINDS.items() if isinstance(value, kind)), None)
        if tag is not None:
            return {tag: _KINDS[tag][1](self.pack, value)}
        return self._tagged(value)

    def _tagged(self, value: Any) -> Any:
        """A value marked with the name of its type, or a reference to an array."""
        name = _coder_name(type(value))
        if name is not None:
            return {name: [self.pack(part) for part in _CODERS[name][0](value)]}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._dataclass(value)
        return self._array(value)

    def _dataclass(self, value: Any) -> Any:
        name = type(value).__name__
        if self.strict and not isinstance(value, _SAVED):
            raise ValueError(f"a {name} cannot be written: save the numbers you need from the fit")
        fields = [f for f in dataclasses.fields(value) if f.init and f.metadata.get("saved", True)]
        return {name: {f.name: self.pack(getattr(value, f.name)) for f in fields}}

    def _array(self, value: Any) -> Any:
        made = np.asarray(value.toarray() if sparse.issparse(value) else value)
        if made.dtype == object:
            if made.ndim == 0:  # nothing that numpy or this codec knows
                if self.strict:
                    raise ValueError(
                        f"{value!r} ({type(value).__name__}) cannot be written: use numbers, text, dates or tuples of them"
                    )
                return {"repr": repr(value)}
            return {"objects": [list(made.shape), [self.pack(part) for part in made.ravel().tolist()]]}
        key = f"a{len(self.arrays)}"
        self.arrays[key] = made
        return {"array": key}


def _unpack(packed: Any, arrays: Mapping[str, Any], known: Sequence[Any]) -> Any:
    """The value that `_Packer` packed."""

    def unpack(value: Any) -> Any:
        if isinstance(value, list):
            return [unpack(part) for part in value]
        if not isinstance(value, dict):
            return value
        ((tag, held),) = value.items()
        if tag in own:
            return own[tag](held)
        if tag in _KINDS:
            return _KINDS[tag][2](unpack, held)
        if tag in _CODERS:
            return _CODERS[tag][1](unpack(held))
        if tag not in kinds:
            raise ValueError(
                f"the file holds a {tag}, which is not known here: import the module that defines it first"
            )
        return kinds[tag](**{name: unpack(part) for name, part in held.items()})

    kinds = _readable(_SAVED)
    own: dict[str, Pack] = {
        "array": arrays.__getitem__,
        "known": known.__getitem__,
        "objects": lambda held: _object_array(held[0], unpack(held[1])),
    }
    return unpack(packed)


def fingerprint(*parts: Any) -> str:
    """A hash of settings and data: two fits with the same one are the same fit."""
    packer = _Packer(strict=False)
    return _checksum(json.dumps(packer.pack(list(parts))), packer.arrays)


def _checksum(text: str, arrays: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(text.encode())
    for name, value in arrays.items():
        digest.update(repr((name, value.shape, value.dtype.str)).encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()


def write(path: str | Path, what: str, content: Any, *, known: Sequence[Any] = ()) -> None:
    """Write ``content`` as a file of the kind ``what``, whole or not at all."""
    packer = _Packer(known)
    packed = packer.pack(content)
    text = json.dumps({"format": what, "version": VERSION, "content": packed})
    check = _checksum(text, packer.arrays)
    with replacing(path) as temporary, open(temporary, "wb") as handle:
        np.savez(handle, __meta__=np.array(text), __checksum__=np.array(check), **packer.arrays)


def read(path: str | Path, what: str, *, known: Sequence[Any] = (), remedy: str) -> Any:
    """The content of a file of the kind ``what``.

    Raises
    ------
    ValueError
        Where the file is damaged, of another kind, or of another version; the message ends with ``remedy``.
    """
    try:
        with open(path, "rb") as handle, np.load(handle, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
        text = str(arrays.pop("__meta__"))
        meta = json.loads(text)
        kind, version = str(meta["format"]), meta.get("version")
    except FileNotFoundError:
        raise
    except Exception as error:  # zipfile, zlib, numpy and json each have their own errors for damaged files
        raise ValueError(f"{str(path)!r} is no {what}, or it is damaged ({error}): {remedy}") from error
    if not kind.startswith(what):
        raise ValueError(f"{str(path)!r} is a {kind}, not a {what}: {remedy}")
    if version != VERSION:
        written = kind.removeprefix(what).strip() if version is None else version
        raise ValueError(
            f"{str(path)!r} has version {written} of the format, this headcount reads version {VERSION}: {remedy}"
        )
    check = str(arrays.pop("__checksum__", ""))
    if check != _checksum(text, arrays):
        raise ValueError(f"{str(path)!r} is damaged (its checksum is wrong): {remedy}")
    return _unpack(meta["content"], arrays, known)
