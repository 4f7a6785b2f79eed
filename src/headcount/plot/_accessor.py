"""Pictures from a Posterior, a Result or frames alike, and ``post.plot``: the same pictures by short names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any

from headcount.labels import meant
from headcount.posterior import Posterior
from headcount.posterior._result import Result
from headcount.posterior._stored import StoredPosterior

if TYPE_CHECKING:
    import pandas as pd

    from headcount.plot._picture import Picture

Drawn = Callable[..., "Picture"]


def result_of(source: Any) -> Result | None:
    """The tables behind a posterior or a result; None for a frame."""
    if isinstance(source, Posterior):
        return Result.of(source)
    if isinstance(source, StoredPosterior):
        return source.result
    return source if isinstance(source, Result) else None


def takes_results(*parts: str) -> Callable[[Drawn], Drawn]:
    """Let the first argument of a picture also be a Posterior or a Result, in place of the frames named by ``parts``."""

    def decorate(draw: Drawn) -> Drawn:
        options = inspect.signature(draw).parameters

        @wraps(draw)
        def drawn(*frames: Any, **given: Any) -> Picture:
            result = result_of(frames[0]) if frames else None
            if result is None:
                return draw(*frames, **given)
            if "geographic" in options and given.get("geographic") is None:
                given["geographic"] = result.geographic
            if given.get("time") is not None:
                given["time"] = meant(given["time"], result.times)
            return draw(*(getattr(result, part) for part in parts), *frames[1:], **given)

        return drawn

    return decorate


class Pictures:
    """Pictures of one result, by short names; each is a `Picture`, which a notebook shows and `Picture.save` writes."""

    def __init__(self, result: Result) -> None:
        self.result = result

    def __repr__(self) -> str:
        names = [name for name in dir(self) if not name.startswith("_") and name != "result"]
        return f"<pictures: {', '.join(names)}>"

    def counts(self, times: Iterable[Hashable] | None = None, **options: Any) -> Picture:
        """Counts on the map, one panel per time."""
        from headcount import plot

        asked = None if times is None else [meant(t, self.result.times) for t in times]
        return plot.count_map(self.result, times=asked, **options)

    def flows(self, time: Hashable, **options: Any) -> Picture:
        """The largest moves that start at a time, as arrows on the map."""
        from headcount import plot

        return plot.flow_map(self.result, time=time, **options)

    def net(self, time: Hashable | None = None, **options: Any) -> Picture:
        """What every cell gains, and the largest net exchanges."""
        from headcount import plot

        return plot.net_flux_map(self.result, time=time, **options)

    def series(self, cells: Iterable[Hashable] | None = None, **options: Any) -> Picture:
        """Mean and interval over time, one panel per cell, with what was observed."""
        from headcount import plot

        return plot.observed_against_inferred(self.result, cells=cells, **options)

    def convergence(self, **options: Any) -> Picture:
        """Residual by iteration."""
        from headcount import plot

        return plot.convergence(self.result, **options)

    def pit(self, **options: Any) -> Picture:
        """Histogram of the check of every count: flat where the model is right."""
        from headcount import plot

        return plot.pit_histogram(self._checked(), **options)

    def residuals(self, **options: Any) -> Picture:
        """Every count's residual by time."""
        from headcount import plot

        return plot.residuals_over_time(self._checked(), **options)

    def residual_map(self, **options: Any) -> Picture:
        """Residuals by cell on the map: where the model does not fit."""
        from headcount import plot

        return plot.residual_map(self._checked(), self.result.coordinates, **options)

    def _checked(self) -> pd.DataFrame:
        if self.result.check is None:
            raise ValueError("this result holds no check of its counts: ask post.fit_check, or infer again")
        return self.result.check
