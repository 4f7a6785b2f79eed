"""An export to start from: one row per move, for a program that wants `from;to;trips`. Replace the table, then run this file."""

import tempfile
from pathlib import Path

import headcount as hc
from headcount.io import load_result, write_table


def my_table(result: hc.io.Result, min_flow: float):
    """Expected moves between different cells, summed over time, at least `min_flow` of them."""
    if not result.is_chain:
        raise ValueError("only a result with times and cells has moves to export; this one has variables")
    flows = result.flows  # time, origin, dest, mean, median, sd, lower, upper, reliable
    moved = flows[flows["origin"] != flows["dest"]]
    total = moved.groupby(["origin", "dest"], sort=False, as_index=False)["mean"].sum()  # REPLACE
    return total[total["mean"] >= min_flow].rename(columns={"origin": "from", "dest": "to", "mean": "trips"})


def my_export(source, path, *, min_flow: float = 0.5) -> Path:
    """Write a finished run, given as a folder or a .nc file, whole or not at all."""
    write_table(my_table(load_result(source), min_flow), path)
    return Path(path)


def check() -> None:
    """What is written adds up to what was inferred."""
    import pandas as pd

    chain = hc.MarkovChain([0.9, 0.1], [[0.7, 0.3], [0.2, 0.8]], length=3)
    post = hc.infer(hc.Problem(chain, 60, hc.Poisson([[52, 8], [40, 22], [33, 25]])))
    with tempfile.TemporaryDirectory() as folder:
        post.save(f"{folder}/run.nc", draws=0)
        written = pd.read_csv(my_export(f"{folder}/run.nc", f"{folder}/trips.csv", min_flow=0.0))
    flows = post.to_frame("flows")
    expected = flows.loc[flows["origin"] != flows["dest"], "mean"].sum()
    assert abs(written["trips"].sum() - expected) < 1e-6 * expected


if __name__ == "__main__":
    check()
    print("my_export adds up")
