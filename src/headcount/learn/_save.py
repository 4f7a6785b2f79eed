"""Fits on disk: one npz of arrays with a JSON description, no pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headcount.engines import Status
from headcount.individual import DiscreteModel, MarkovChain, Model
from headcount.learn._forecast import Last
from headcount.learn._information import Direction, Information
from headcount.learn._log_linear import LogLinear
from headcount.learn._parametrisation import LearnRate, LogisticChain, Parametrisation, TabularChain
from headcount.learn._result import Fit
from headcount.learn._store import decode, encode, read, write

_FORMAT = "headcount fit 2"
_PLAIN = ("evidence", "log_prior", "method", "engine", "start", "e_steps", "seconds", "data")


def save(fit: Fit, path: str | Path) -> None:
    """Write a fit, atomically; posteriors are left out."""
    arrays: dict[str, Any] = {"working": fit.working}
    for name in sorted({k for row in fit.rows for k in row}):
        arrays[f"trace_{name}"] = np.array([row[name] for row in fit.rows])
    for k, last in enumerate(fit.last):
        if last is not None:
            arrays |= {f"last_{k}_mean": last.mean, f"last_{k}_covariance": last.covariance}
    meta = {
        "format": _FORMAT,
        "plain": {name: _kept(getattr(fit, name)) for name in _PLAIN},
        "status": fit.status.value,
        "notes": list(fit.notes),
        "parametrisations": [_put(p, arrays, f"p{k}_") for k, p in enumerate(fit.parametrisations)],
        "templates": [_template(t, arrays, f"t{k}_") for k, t in enumerate(fit.templates)],
        "last": [None if last is None else last.population for last in fit.last],
        "information": _information(fit.information, arrays),
    }
    write(path, meta, arrays)


def load(path: str | Path) -> Fit:
    """Read a fit."""
    meta, arrays = read(path)
    if meta.get("format") != _FORMAT:
        raise ValueError(
            f"{str(path)!r} is no saved fit of this version: its format is {meta.get('format')!r}"
        )
    traced = {k.removeprefix("trace_"): v.tolist() for k, v in arrays.items() if k.startswith("trace_")}
    rows = [dict(zip(traced, values, strict=True)) for values in zip(*traced.values(), strict=True)]
    last = tuple(
        None if size is None else Last(arrays[f"last_{k}_mean"], arrays[f"last_{k}_covariance"], size)
        for k, size in enumerate(meta["last"])
    )
    return Fit(
        parametrisations=tuple(_get(p, arrays, f"p{k}_") for k, p in enumerate(meta["parametrisations"])),
        templates=tuple(_model(t, arrays, f"t{k}_") for k, t in enumerate(meta["templates"])),
        working=arrays["working"],
        status=Status(meta["status"]),
        notes=tuple(meta["notes"]),
        rows=tuple(rows),
        information=_known(meta["information"], arrays),
        last=last,
        **{name: _freed(value) for name, value in meta["plain"].items()},
    )


def _kept(value: Any) -> Any:
    return {"float": value.hex()} if isinstance(value, float) else value


def _freed(value: Any) -> Any:
    return float.fromhex(value["float"]) if isinstance(value, dict) else value


def _put(setting: Parametrisation, arrays: dict[str, Any], key: str) -> dict[str, Any]:
    """A parametrisation as JSON, its arrays put among `arrays`."""
    if isinstance(setting, LearnRate):
        return {"kind": "LearnRate", "inner": _put(setting.parametrisation, arrays, key)}
    if isinstance(setting, LogisticChain):
        arrays[f"{key}features"], arrays[f"{key}ridge"] = setting.features, setting.ridge
        held = {"mask": _held(setting.mask, arrays, f"{key}mask")}
        held["initial"] = _held(setting.initial, arrays, f"{key}initial")
        return {
            "kind": "LogisticChain",
            "names": list(setting.names or ()),
            "fixed": dict(setting.fixed),
            **held,
        }
    if isinstance(setting, TabularChain):
        held = {n: _held(getattr(setting, n), arrays, f"{key}{n}") for n in ("mask", "fixed", "initial")}
        plain = {"homogeneous": setting.homogeneous, "dirichlet": setting.dirichlet}
        return {"kind": "TabularChain", **plain, **held}
    if isinstance(setting, LogLinear):
        features = [
            [
                name,
                [
                    [encode(_scope(s)), _held(t, arrays, f"{key}f{k}_{j}")]
                    for j, (s, t) in enumerate(parts.items())
                ],
            ]
            for k, (name, parts) in enumerate(setting.features.items())
        ]
        offset = [
            [encode(_scope(s)), _held(t, arrays, f"{key}o{k}")]
            for k, (s, t) in enumerate(setting.offset.items())
        ]
        return {
            "kind": "LogLinear",
            "features": features,
            "offset": offset,
            "fixed": dict(setting.fixed),
            "ridge": float(setting.ridge),
        }
    raise ValueError(f"a {type(setting).__name__} cannot be written: save the numbers you need from the fit")


def _get(meta: Mapping[str, Any], arrays: Mapping[str, Any], key: str) -> Parametrisation:
    """The parametrisation that `_put` wrote."""
    if meta["kind"] == "LearnRate":
        return LearnRate(_get(meta["inner"], arrays, key))
    if meta["kind"] == "LogisticChain":
        return LogisticChain(
            arrays[f"{key}features"],
            names=meta["names"],
            fixed=meta["fixed"],
            ridge=arrays[f"{key}ridge"],
            mask=_found(meta["mask"], arrays),
            initial=_found(meta["initial"], arrays),
        )
    if meta["kind"] == "TabularChain":
        return TabularChain(
            _found(meta["mask"], arrays),
            homogeneous=meta["homogeneous"],
            fixed=_found(meta["fixed"], arrays),
            dirichlet=meta["dirichlet"],
            initial=_found(meta["initial"], arrays),
        )
    return LogLinear(
        {name: {decode(s): _found(t, arrays) for s, t in parts} for name, parts in meta["features"]},
        offset={decode(s): _found(t, arrays) for s, t in meta["offset"]},
        fixed=meta["fixed"],
        ridge=meta["ridge"],
    )


def _scope(scope: Any) -> tuple[Any, ...]:
    return scope if isinstance(scope, tuple) else (scope,)


def _held(value: Any, arrays: dict[str, Any], key: str) -> Any:
    """None and text as they are; an array under its key."""
    if value is None or isinstance(value, str):
        return {"plain": value}
    arrays[key] = np.asarray(value)
    return {"array": key}


def _found(held: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    return arrays[held["array"]] if "array" in held else held["plain"]


def _template(model: Model, arrays: dict[str, Any], key: str) -> dict[str, Any]:
    """The names and states of a model, and a chain's initial law: all that binding a parametrisation needs."""
    states = [[encode(v), [encode(s) for s in labels]] for v, labels in model.states.items()]
    chain = isinstance(model, MarkovChain)
    if isinstance(model, MarkovChain):
        arrays[f"{key}initial"] = model.initial
    return {"chain": chain, "states": states}


def _model(meta: Mapping[str, Any], arrays: Mapping[str, Any], key: str) -> Model:
    states = {decode(v): tuple(decode(s) for s in labels) for v, labels in meta["states"]}
    if not meta["chain"]:
        return DiscreteModel(states)
    cells = next(iter(states.values()))
    law = arrays[f"{key}initial"]
    return MarkovChain(law, np.eye(len(cells)), times=tuple(states), cells=cells)


def _information(known: Information | None, arrays: dict[str, Any]) -> Any:
    if known is None:
        return None
    for name in ("observed", "complete", "covariance", "inverse", "lean"):
        arrays[f"information_{name}"] = getattr(known, name)
    directions = [[d.coefficients, d.reason] for d in known.unidentified]
    return {
        "asymmetry": known.asymmetry,
        "saddle": known.saddle,
        "discrepancy": _kept(known.discrepancy),
        "unidentified": directions,
    }


def _known(meta: Any, arrays: Mapping[str, Any]) -> Information | None:
    if meta is None:
        return None
    return Information(
        arrays["information_observed"],
        arrays["information_complete"],
        arrays["information_covariance"],
        meta["asymmetry"],
        tuple(Direction(c, r) for c, r in meta["unidentified"]),
        meta["saddle"],
        _freed(meta["discrepancy"]),
        arrays["information_inverse"],
        arrays["information_lean"],
    )
