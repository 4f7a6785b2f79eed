"""Reading a finished run back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headcount.io._source import TableError
from headcount.posterior._dataset import result_of
from headcount.posterior._result import Result

if TYPE_CHECKING:
    import os

POSTERIOR_FILE = "posterior.nc"

__all__ = ["POSTERIOR_FILE", "Result", "load_result"]


def load_result(path: str | os.PathLike[str]) -> Result:
    """Read a folder written by ``headcount infer`` or ``fit``, or a file written by ``Posterior.save``.

    Raises
    ------
    TableError
        No such file, or one that holds something else.
    """
    import xarray as xr

    place = Path(path)
    file = place / POSTERIOR_FILE if place.is_dir() else place
    if not file.exists():
        remedy = (
            f"give a folder that holds {POSTERIOR_FILE}, as headcount infer --out writes it, or a .nc file"
        )
        raise TableError(f"{file}: there is no such file: {remedy}")
    try:
        with xr.open_datatree(file, engine="h5netcdf") as tree:
            return result_of(tree.load(), path=file)
    except (OSError, KeyError, ValueError) as error:
        text = f"{file}: this is not a result of headcount ({error}): write one with headcount infer or Posterior.save"
        raise TableError(text) from error
