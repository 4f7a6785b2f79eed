"""Noise models by name, and their parameters: from options, or from columns beside the counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.observe import (
    Binomial,
    Exact,
    Gaussian,
    LaplaceNoise,
    NegativeBinomial,
    Observation,
    Poisson,
)

if TYPE_CHECKING:
    from headcount._types import Array
    from headcount.io._source import Findings
    from headcount.io._tables import CountTable
    from headcount.population import SizeLaw


@dataclass(frozen=True)
class NoiseKind:
    """A noise model and the parameters it takes; those in ``needed`` have no default."""

    name: str
    model: type[Observation]
    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def takes(self) -> tuple[str, ...]:
        """All parameters."""
        return (*self.needed, *self.optional)


NOISES: Mapping[str, NoiseKind] = {
    kind.name: kind
    for kind in (
        NoiseKind("poisson", Poisson, (), ("rate", "background")),
        NoiseKind("binomial", Binomial, ("detection",)),
        NoiseKind("negative-binomial", NegativeBinomial, ("dispersion",), ("rate", "background")),
        NoiseKind("gaussian", Gaussian, ("sd",)),
        NoiseKind("laplace", LaplaceNoise, ("scale",)),
        NoiseKind("exact", Exact),
    )
}


def noise_kind(name: Any, findings: Findings) -> NoiseKind | None:
    """The noise of a name; the findings list the known ones otherwise."""
    kind = NOISES.get(str(name).strip().casefold().replace("_", "-"))
    if kind is None:
        findings.problem("noise", f"there is no noise {name!r}: use one of {', '.join(NOISES)}")
    return kind


def counts_whole(kind: NoiseKind | None) -> bool:
    """Whether the noise is one of whole counts."""
    return kind is not None and kind.model.whole


def noise_parameters(
    kind: NoiseKind,
    given: Mapping[str, float | None] | None,
    columns: Mapping[str, Array],
    file: str,
    findings: Findings,
) -> dict[str, Any]:
    """``{parameter: number, or the column of it}``, from options or from the columns of a file, never both."""
    options = {k: v for k, v in (given or {}).items() if v is not None}
    chosen, unused = {**columns, **options}, sorted(set(columns) - set(kind.takes))
    if unused:
        findings.note(f"{file}: the column {unused[0]!r} is not used by {kind.name} noise")
    for parameter in dict.fromkeys((*options, *kind.takes)):
        if parameter not in kind.takes:
            takes = ", ".join(kind.takes) or "nothing"
            text = f"{kind.name} noise takes no {parameter} (it takes {takes}): leave it out"
        elif parameter in options and parameter in columns:
            text = f"{parameter} is given by an option and by a column of {file}: keep one"
        elif parameter not in chosen and parameter in kind.needed:
            text = (
                f"{kind.name} noise needs {parameter}: give it ({parameter}=…, --{parameter} …) or a column {parameter} beside the "
                "counts"
            )
        else:
            continue
        findings.problem("noise", text)
    used = {parameter: chosen[parameter] for parameter in kind.takes if parameter in chosen}
    for parameter, value in used.items():
        _check_size(parameter, value, findings)
    return used


def table_parameters(
    kind: NoiseKind | None,
    given: Mapping[str, float | None] | None,
    table: CountTable | None,
    findings: Findings,
) -> dict[str, Any]:
    """The parameters of the noise of counts, as far as noise and table could be read."""
    if kind is None:
        return {}
    columns, file = ({}, "") if table is None else (table.parameters, table.source.name)
    return noise_parameters(kind, given, columns, file, findings)


def _check_size(parameter: str, value: Any, findings: Findings) -> None:
    """A background is ≥ 0, every other parameter of a noise above 0; an empty entry of a column is read elsewhere."""
    numbers = np.atleast_1d(np.asarray(value, dtype=float))
    low = numbers < 0 if parameter == "background" else numbers <= 0
    wrong = low | np.isinf(numbers) | (np.isnan(numbers) & (np.ndim(value) == 0))
    if wrong.any():
        least = "≥ 0" if parameter == "background" else "above 0"
        findings.problem(
            "noise", f"{parameter} must be a finite number {least}", values=numbers[wrong].tolist()
        )


def expected(counts: Any, parameters: Mapping[str, Any]) -> Any:
    """Expected individuals behind the counts, (y − background)/(rate · detection), entry by entry."""
    rate = np.asarray(parameters.get("rate", 1.0)) * np.asarray(parameters.get("detection", 1.0))
    with np.errstate(divide="ignore", invalid="ignore"):  # a rate of 0 is reported where it is read
        return (counts - np.asarray(parameters.get("background", 0.0))) / rate


def total_hint(table: CountTable | None, parameters: Mapping[str, Any]) -> str:
    """What the counts say about the population, where there are any."""
    if table is None or not np.isfinite(table.count).any():
        return ""
    import pandas as pd

    behind = expected(table.count, parameters)
    total = float(pd.Series(behind).groupby(pd.Series(table.time)).sum().median())
    return f"; the counts of a time come to about {total:.0f}"


def note_totals(
    values: Array, parameters: Mapping[str, Any], population: int | SizeLaw, findings: Findings
) -> None:
    """Say so when the totals of fully counted times are far from N."""
    full = ~np.isnan(values).any(axis=1)
    if not full.any() or not isinstance(population, int):
        return
    total = float(np.median(np.nansum(expected(values, parameters)[full], axis=1)))
    if not 0.5 < total / population < 2:
        findings.note(
            f"the counts of a time come to about {total:.0f} individuals, the population is {population}: check the population, "
            "and the rate at which individuals are counted"
        )
