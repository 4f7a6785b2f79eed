"""Files without pickle: arrays in an npz, everything else as JSON beside them in the same file, written atomically."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from headcount._atomic import replacing
from headcount.individual import Model
from headcount.observe import Observation, Problem


def write(path: str | Path, meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """One file, whole or not at all."""
    with replacing(path) as temporary, open(temporary, "wb") as handle:
        np.savez(handle, __meta__=np.array(json.dumps(meta)), **arrays)


def read(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `write` wrote."""
    with np.load(path, allow_pickle=False) as held:
        arrays = {name: held[name] for name in held.files}
    return json.loads(str(arrays.pop("__meta__"))), arrays


def encode(label: Any) -> Any:
    """A label as JSON: numbers and text as they are, tuples and dates marked."""
    if isinstance(label, np.generic) and not isinstance(label, np.datetime64):
        label = label.item()
    if isinstance(label, tuple):
        return {"tuple": [encode(part) for part in label]}
    if isinstance(label, np.datetime64):
        return {"datetime64": str(label), "unit": np.datetime_data(label.dtype)[0]}
    if isinstance(label, (bool, int, float, str)) or label is None:
        return label
    if type(label).__module__.startswith("pandas") or type(label).__module__ == "datetime":
        return {"datetime64": str(np.datetime64(label, "us")), "unit": "us"}
    raise ValueError(f"the label {label!r} cannot be written: use numbers, text, dates or tuples of them")


def decode(value: Any) -> Any:
    """The label that `encode` wrote."""
    if isinstance(value, dict) and "tuple" in value:
        return tuple(decode(part) for part in value["tuple"])
    if isinstance(value, dict) and "datetime64" in value:
        return np.datetime64(value["datetime64"], value["unit"])
    return value


def fingerprint(*parts: Any) -> str:
    """A hash of settings and data: two fits with the same one are the same fit."""
    digest = hashlib.sha256()
    _feed(digest, parts)
    return digest.hexdigest()


def _feed(digest: Any, part: Any) -> None:
    digest.update(type(part).__name__.encode())
    if isinstance(part, np.ndarray) and part.dtype != object:
        digest.update(repr((part.shape, part.dtype.str)).encode())
        digest.update(np.ascontiguousarray(part).tobytes())
    elif sparse.issparse(part):
        for piece in (part.data, part.indices, part.indptr):
            _feed(digest, np.asarray(piece))
    elif isinstance(part, Model):  # its numbers are either learned or part of the parametrisation's
        _feed(digest, tuple(part.variables))
        _feed(digest, {repr(k): tuple(v) for k, v in part.states.items()})
        _feed(digest, np.asarray(part.marginal((part.variables[0],))))
    elif isinstance(part, Observation):
        _feed(digest, {"counts": part.counts, **part.entry_parameters(), **part.pair_parameters()})
    elif isinstance(part, Problem):
        _feed(digest, (part.model, part.population))
        _feed(digest, [(s.scope, s.index, s.weights, s.noise) for s in part.sites])
    elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        for item in dataclasses.fields(part):
            digest.update(item.name.encode())
            _feed(digest, getattr(part, item.name))
    elif isinstance(part, Mapping):
        for key, value in part.items():
            digest.update(repr(key).encode())
            _feed(digest, value)
    elif isinstance(part, (tuple, list)):
        for value in part:
            _feed(digest, value)
    elif isinstance(part, np.ndarray):
        _feed(digest, part.ravel().tolist())
    elif type(part).__module__.partition(".")[0] in {"xarray", "pandas"}:
        _feed(digest, np.asarray(part))
    else:
        digest.update(repr(part).encode())
