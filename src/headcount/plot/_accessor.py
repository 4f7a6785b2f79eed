"""``post.plot``: the pictures of one result by short names."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

from headcount.labels import meant
from headcount.plot._charts import (
    convergence,
    observed_against_inferred,
    pit_histogram,
    residuals_over_time,
)
from headcount.plot._maps import count_map, flow_map, net_flux_map, residual_map

if TYPE_CHECKING:
    from headcount.plot.picture import Picture
    from headcount.posterior.result import Result


class Pictures:
    """Pictures of one result, by short names; each is a `Picture`, which a notebook shows and `Picture.save` writes."""

    def __init__(self, result: Result) -> None:
        self.result = result

    def __repr__(self) -> str:
        names = [name for name in dir(self) if not name.startswith("_") and name != "result"]
        return f"<pictures: {', '.join(names)}>"

    def counts(self, times: Iterable[Hashable] | None = None, **options: Any) -> Picture:
        """Counts on the map, one panel per time."""
        asked = None if times is None else [meant(t, self.result.times) for t in times]
        return count_map(self.result, times=asked, **options)

    def flows(self, time: Hashable, **options: Any) -> Picture:
        """The largest moves that start at a time, as arrows on the map."""
        return flow_map(self.result, time=time, **options)

    def net(self, time: Hashable | None = None, **options: Any) -> Picture:
        """What every cell gains, and the largest net exchanges."""
        return net_flux_map(self.result, time=time, **options)

    def series(self, cells: Iterable[Hashable] | None = None, **options: Any) -> Picture:
        """Mean and interval over time, one panel per cell, with what was observed."""
        return observed_against_inferred(self.result, cells=cells, **options)

    def convergence(self, **options: Any) -> Picture:
        """Residual by iteration."""
        return convergence(self.result, **options)

    def pit(self, **options: Any) -> Picture:
        """Histogram of the check of every count: flat where the model is right."""
        return pit_histogram(self._checked(), **options)

    def residuals(self, **options: Any) -> Picture:
        """Every count's residual by time."""
        return residuals_over_time(self._checked(), **options)

    def residual_map(self, **options: Any) -> Picture:
        """Residuals by cell on the map: where the model does not fit."""
        return residual_map(self._checked(), self.result.coordinates, **options)

    def _checked(self) -> pd.DataFrame:
        if self.result.check is None:
            raise ValueError("this result holds no check of its counts: ask post.fit_check, or infer again")
        return self.result.check
