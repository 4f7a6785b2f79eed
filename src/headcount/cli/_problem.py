"""From options to a problem, an engine and a plan: what every command that infers does first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.cli._guard import TooLargeError
from headcount.cli._memory import SHARE, free_memory, parse_size, readable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headcount.engines import Engine
    from headcount.engines._plan import Plan
    from headcount.io import Case
    from headcount.observe import Problem

_PARAMETERS = ("rate", "background", "detection", "sd", "scale", "dispersion")


def read_case(counts: Sequence[Path], options: Mapping[str, Any]) -> Case:
    """The problem that the tables speak of."""
    from headcount.io import TableError, read_network, read_problem

    columns = dict(_pair(text, "--column") for text in options["column"] or ())
    shared = {
        "population": options["population"],
        "noise": options["noise"],
        "parameters": {name: options[name] for name in _PARAMETERS},
        "columns": columns or None,
        "encoding": options["encoding"],
    }
    if options["network"] is not None:
        return read_network(options["network"], counts, **shared)
    if len(counts) != 1:
        raise TableError(
            f"a chain takes one table of counts, got {len(counts)}: put them into one, with a row a time and cell"
        )
    return read_problem(
        counts[0],
        **shared,
        **{
            name: options[name]
            for name in ("transitions", "features", "cells", "flows", "uneven", "normalise")
        },
        initial=options["initial"],
        weights=parse_weights(options["weights"]),
        flow_noise=options["flow_noise"],
        flow_parameters={name: options[f"flow_{name}"] for name in ("rate", "detection", "sd")},
    )


def named_engine(options: Mapping[str, Any]) -> Engine | None:
    """The engine of a name, with its settings; None for "auto"."""
    import headcount.engines as engines

    wanted = options["engine"].replace("-", "").replace("_", "").casefold()
    settings = dict(_pair(text, "--set") for text in options["setting"] or ())
    if wanted == "auto":
        if settings:
            raise ValueError("--set needs an engine to set: name it with --engine")
        return None
    known = {
        name.casefold(): getattr(engines, name)
        for name in engines.__all__
        if isinstance(getattr(engines, name), type)
        and issubclass(getattr(engines, name), engines.Engine)
        and "name" in vars(getattr(engines, name))
        and name != "Auto"
    }
    if wanted not in known:
        names = ", ".join(sorted(cls.name for cls in known.values()))
        raise ValueError(f"there is no engine {options['engine']!r}: use auto, {names}")
    made = known[wanted]
    fields = list(getattr(made, "__dataclass_fields__", {}))
    unknown = [name for name in settings if name not in fields]
    if unknown:
        raise ValueError(f"{made.name} has no setting {unknown[0]!r}: it has {', '.join(fields) or 'none'}")
    try:
        return made(**{name: _literal(value) for name, value in settings.items()})
    except TypeError as error:
        raise ValueError(f"{made.name}: {error}") from None


def planned(problem: Problem, engine: Engine | None, options: Mapping[str, Any]) -> tuple[Plan, int | None]:
    """What the run will take, and what it may take (None when the system does not say)."""
    from headcount.engines._plan import plan

    free = free_memory()
    given = options["memory_limit"]
    limit = parse_size(given) if given is not None else None if free is None else int(SHARE * free)
    return plan(problem, engine), limit


def refuse_too_large(plan: Plan, limit: int | None) -> None:
    """Raise with both numbers when the plan is above the limit."""
    if limit is not None and plan.peak > limit:
        raise TooLargeError(
            f"{plan.engine} would take about {readable(plan.peak)}, and {readable(limit)} is the limit. Merge cells, take fewer times, "
            "use --engine MAP (no uncertainty), or raise --memory-limit."
        )


def _pair(text: str, option: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name.strip() or not value.strip():
        raise ValueError(f"{option} takes NAME=VALUE, got {text!r}")
    return name.strip(), value.strip()


def _literal(text: str) -> Any:
    """A setting's value: a number, true, false, null, or a word."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return {"True": True, "False": False, "None": None}.get(text, text)


def parse_weights(text: str | None) -> Any:
    """Numbers with commas between them, or the path of a table."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        return Path(text)
