"""Noise by name, with its numbers from options or from columns beside the counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.observe import Binomial, Exact, Gaussian, LaplaceNoise, NegativeBinomial, Observation, Poisson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headcount.io._counts import CountTable
    from headcount.io._errors import Findings


@dataclass(frozen=True)
class NoiseKind:
    """A noise model and the parameters it takes; those in ``needed`` have no default."""

    model: type[Observation]
    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def takes(self) -> tuple[str, ...]:
        """All parameters."""
        return (*self.needed, *self.optional)


NOISES: Mapping[str, NoiseKind] = {
    "poisson": NoiseKind(Poisson, (), ("rate", "background")),
    "binomial": NoiseKind(Binomial, ("detection",)),
    "negative-binomial": NoiseKind(NegativeBinomial, ("dispersion",), ("rate", "background")),
    "gaussian": NoiseKind(Gaussian, ("sd",)),
    "laplace": NoiseKind(LaplaceNoise, ("scale",)),
    "exact": NoiseKind(Exact),
}


def noise_kind(name: str, findings: Findings) -> NoiseKind | None:
    """The noise of a name; the findings list the known ones otherwise."""
    kind = NOISES.get(name.strip().casefold().replace("_", "-"))
    if kind is None:
        findings.problem("noise", f"there is no noise {name!r}: use one of {', '.join(NOISES)}")
    return kind


def noise_parameters(
    kind: NoiseKind,
    given: Mapping[str, float | None],
    table: CountTable | None,
    *,
    name: str,
    findings: Findings,
) -> dict[str, Any]:
    """``{parameter: number, or the column of it}``, from options or from the table, never both."""
    chosen: dict[str, Any] = {}
    options = {k: v for k, v in given.items() if v is not None}
    columns = {} if table is None else table.parameters
    for parameter in options:
        if parameter not in kind.takes:
            text = f"{name} noise takes no {parameter} (it takes {', '.join(kind.takes) or 'nothing'}): leave it out"
            findings.problem("noise", text)
    for parameter in kind.takes:
        if parameter in options and parameter in columns:
            assert table is not None
            text = f"{parameter} is given by an option and by a column of {table.source.name}: keep one"
            findings.problem("noise", text)
        elif parameter in options or parameter in columns:
            chosen[parameter] = options.get(parameter, columns.get(parameter))
        elif parameter in kind.needed:
            text = f"{name} noise needs {parameter}: give it ({parameter}=…, --{parameter} …) or a column {parameter} beside the counts"
            findings.problem("noise", text)
    unused = [c for c in columns if c not in kind.takes]
    if unused and table is not None:
        findings.note(f"{table.source.name}: the column {unused[0]!r} is not used by {name} noise")
    return chosen


def shares(counts: Any, parameters: Mapping[str, Any]) -> Any:
    """Expected individuals behind the counts, (y − background)/(rate · detection), entry by entry."""
    rate = np.asarray(parameters.get("rate", 1.0)) * np.asarray(parameters.get("detection", 1.0))
    return (counts - np.asarray(parameters.get("background", 0.0))) / rate
