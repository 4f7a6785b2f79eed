"""Reading a finished run back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headcount._atomic import OutputError, check_manifest
from headcount._netcdf import DamagedFileError, read_tree
from headcount.io._source import TableError
from headcount.posterior import Posterior
from headcount.posterior._dataset import result_of
from headcount.posterior._result import Result

if TYPE_CHECKING:
    import os

POSTERIOR_FILE = "posterior.nc"
_REMEDY = "write one with headcount infer or Posterior.save"
_PROVENANCE: dict[str, type | tuple[type, ...]] = {
    "status": str,
    "good": bool,
    "engine": str,
    "iterations": int,
    "population": int,
    "interval_level": (int, float),
    "observations": list,
}
"""What every reader of a result relies on, and its type."""

__all__ = ["POSTERIOR_FILE", "Result", "load_result"]


def as_result(given: Result | Posterior | str | os.PathLike[str]) -> Result:
    """A result in memory as it is, that of a posterior, or the one that a path holds."""
    if isinstance(given, Result):
        return given
    return Result.of(given) if isinstance(given, Posterior) else load_result(given)


def load_result(path: str | os.PathLike[str]) -> Result:
    """Read a folder written by ``headcount infer`` or ``fit``, or a file written by ``Posterior.save``.

    Raises
    ------
    TableError
        No such file, one that holds something else, a damaged one, or a folder that may mix two runs.
    """
    place = Path(path)
    file = place / POSTERIOR_FILE if place.is_dir() else place
    if not file.exists():
        remedy = (
            f"give a folder that holds {POSTERIOR_FILE}, as headcount infer --out writes it, or a .nc file"
        )
        raise TableError(f"{file}: there is no such file: {remedy}")
    try:
        if place.is_dir():
            check_manifest(place, POSTERIOR_FILE)
        tree = read_tree(file)
    except OutputError as error:
        raise TableError(str(error)) from None
    except (DamagedFileError, OSError) as error:
        raise TableError(f"{file}: this is not a result of headcount ({error}): {_REMEDY}") from error
    try:
        result = result_of(tree, path=file)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        text = f"{file}: this is not a result of headcount (there is no {error}): {_REMEDY}"
        raise TableError(text) from error
    wrong = [
        f"{file}: {name} in its provenance is {result.attributes.get(name)!r}: {_REMEDY}"
        for name, kinds in _PROVENANCE.items()
        if not isinstance(result.attributes.get(name), kinds)
    ]
    if wrong:
        raise TableError(wrong)
    return result
