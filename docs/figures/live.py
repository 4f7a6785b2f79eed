"""The live report of the home page: bikes of San Francisco over one working day. Run: python docs/figures/live.py.

``examples/bikes`` says where 347 bikes of Bay Area Bike Share were at every hour of two weeks of September 2014 (public trip records,
CC0). The first week's moves give the law of a step, by hour of day; of the second Wednesday only counts at stations are used, half of
the bikes being seen. The result is stored without its smallest flows, so that the site stays small.
"""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

import headcount as hc
from headcount._disk import write_tree
from headcount.io import Result
from headcount.posterior.dataset import tree_of

BIKES = Path(__file__).parents[2] / "examples" / "bikes"
STORED = Path(__file__).parents[1] / "live" / "bikes.nc"
HOURS = pd.date_range("2014-09-17 05:00", periods=19, freq="h")
PRIOR = 0.5
"""Pseudo-counts per origin, spread over the week's destinations: a matrix of one hour rests on five mornings."""
SEEN = 0.5
"""Share of the bikes that a count sees."""
TOGETHER = 1.7
"""How many times more the counts scatter than independent bikes would: `fit_check` of the same run with independent bikes. Trucks move
several bikes at once."""
SMALLEST = 0.3
"""Flows with a smaller mean are not stored."""


def learned_steps(cells: list[str]) -> list[np.ndarray]:
    """One matrix per hour of the day from the moves of the first week's working days, shrunk to the week's."""
    moves = pd.read_csv(BIKES / "moves.csv.gz", parse_dates=["time"], dtype={"origin": str, "dest": str})
    first = moves[(moves["time"] < "2014-09-15") & (moves["time"].dt.day_of_week < 5)]

    def table(rows: pd.DataFrame) -> np.ndarray:
        wide = rows.pivot_table(index="origin", columns="dest", values="count", aggfunc="sum", fill_value=0)
        return wide.reindex(index=cells, columns=cells, fill_value=0).to_numpy(dtype=float)

    week = table(first) + PRIOR * (np.eye(len(cells)) + 1 / len(cells))
    week /= week.sum(axis=1, keepdims=True)
    made = [table(first[first["time"].dt.hour == hour]) + 5 * PRIOR * week for hour in HOURS[:-1].hour]
    return [step / step.sum(axis=1, keepdims=True) for step in made]


def main() -> None:
    """Infer and store."""
    stations = pd.read_csv(BIKES / "cells.csv", dtype={"cell": str})
    cells = stations["cell"].tolist()
    counts = pd.read_csv(BIKES / "counts.csv.gz", parse_dates=["time"], dtype={"cell": str})
    truth = (
        counts.pivot_table(index="time", columns="cell", values="count")
        .loc[HOURS, cells]
        .to_numpy()
        .astype(int)
    )
    # Bikes under way are nowhere; they are drawn beside the map.
    lon = stations["lon"].fillna(stations["lon"].max() + 0.004).to_numpy()
    lat = stations["lat"].fillna(stations["lat"].min()).to_numpy()
    names = stations["name"].tolist()
    start = truth[0] + PRIOR
    chain = hc.MarkovChain(start / start.sum(), learned_steps(cells), times=list(HOURS), cells=names)
    places = {"time": HOURS, "cell": names, "lon": ("cell", lon), "lat": ("cell", lat)}
    seen = np.random.default_rng(1).binomial(truth, SEEN).astype(float)
    problem = hc.Problem(
        chain,
        population=int(truth[0].sum()),
        observations=hc.Binomial(xr.DataArray(seen, dims=("time", "cell"), coords=places), detection=SEEN),
        dispersion=hc.Overdispersion(phi=TOGETHER),
    )
    posterior = hc.infer(problem)
    result = Result.of(posterior)
    inside = (truth.ravel() >= result.nodes["lower"]) & (truth.ravel() <= result.nodes["upper"])
    print(posterior, f"{inside.mean():.1%} of the true counts lie inside their 90 % intervals")
    flows = result.flows[result.flows["mean"] >= SMALLEST].reset_index(drop=True)
    flows.attrs = {"level": result.level, "listed": True}
    STORED.parent.mkdir(exist_ok=True)
    write_tree(tree_of(dataclasses.replace(result, flows=flows), draws={}), STORED)
    print(STORED, STORED.stat().st_size)


if __name__ == "__main__":
    main()
