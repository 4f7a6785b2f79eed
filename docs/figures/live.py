"""The live report of the home page: bikes of San Francisco over one working day. Run: python docs/figures/live.py HOURLY.nc.

The file holds where 347 bikes of Bay Area Bike Share were at every hour of two weeks of September 2014 (public trip records, CC0).
The first week's moves give the law of a step, by hour of day; of the second Wednesday only counts at stations are used, half of the
bikes being seen. The result is stored without its smallest flows, so that the site stays small.
"""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

import headcount as hc
from headcount._netcdf import write_tree
from headcount.io import Result
from headcount.posterior._dataset import draw_group, tree_of

STORED = Path(__file__).parents[1] / "live" / "bikes.nc"
DAY = "2014-09-17"
PRIOR = 0.5
"""Pseudo-counts per origin, spread over the week's destinations: a matrix of one hour rests on five mornings."""
SEEN = 0.5
"""Share of the bikes that a count sees."""
TOGETHER = 1.7
"""How many times more the counts scatter than independent bikes would: `fit_check` of the same run with independent bikes. Trucks move
several bikes at once."""
SMALLEST = 0.3
"""Flows with a smaller mean are not stored."""


def learned_steps(data: xr.Dataset, hours: pd.DatetimeIndex) -> list[np.ndarray]:
    """One matrix per hour of the day from the moves of the first week's working days, shrunk to the week's."""
    step = pd.DatetimeIndex(data["step"].to_numpy())
    first = (step < step[0] + pd.Timedelta("7D")) & (step.day_of_week < 5)
    flows = data["flow"].to_numpy().astype(float)
    size = flows.shape[1]
    week = flows[first].sum(axis=0) + PRIOR * (np.eye(size) + 1 / size)
    week /= week.sum(axis=1, keepdims=True)
    made = []
    for hour in hours[:-1].hour:
        table = flows[first & (step.hour == hour)].sum(axis=0) + 5 * PRIOR * week
        made.append(table / table.sum(axis=1, keepdims=True))
    return made


def main() -> None:
    """Infer and store."""
    data = xr.load_dataset(sys.argv[1])
    hours = pd.date_range(f"{DAY} 05:00", periods=19, freq="h")
    day = data.sel(time=hours)
    names = [
        str(n).replace("in_transit", "in transit") or str(c)
        for n, c in zip(data["name"].values, data["cell"].values, strict=True)
    ]
    lon, lat = (data[axis].to_numpy().copy() for axis in ("lon", "lat"))
    lost = ~np.isfinite(lon)
    lon[lost], lat[lost] = np.nanmax(lon) + 0.004, np.nanmin(lat)
    truth = day["n"].to_numpy()
    seen = np.random.default_rng(1).binomial(truth, SEEN).astype(float)
    start = truth[0] + PRIOR
    chain = hc.MarkovChain(start / start.sum(), learned_steps(data, hours), times=list(hours), cells=names)
    places = {"time": hours, "cell": names, "lon": ("cell", lon), "lat": ("cell", lat)}
    counts = xr.DataArray(seen, dims=("time", "cell"), coords=places)
    problem = hc.Problem(
        chain,
        population=int(truth[0].sum()),
        observations=hc.Binomial(counts, detection=SEEN),
        dispersion=hc.Company(phi=TOGETHER),
    )
    posterior = hc.infer(problem, strict=False)
    print(posterior, posterior.fit_check.verdict)
    result = Result.of(posterior)
    inside = (truth.ravel() >= result.nodes["lower"]) & (truth.ravel() <= result.nodes["upper"])
    print(f"true counts inside: {inside.mean():.3f}")
    flows = result.flows[result.flows["mean"] >= SMALLEST].reset_index(drop=True)
    flows.attrs = {"level": result.level, "listed": True}
    result = dataclasses.replace(result, flows=flows)
    STORED.parent.mkdir(exist_ok=True)
    tree = tree_of(result, draws=draw_group(posterior).isel(draw=slice(0, 1)))
    write_tree(tree, STORED)
    print(STORED, STORED.stat().st_size)


if __name__ == "__main__":
    main()
