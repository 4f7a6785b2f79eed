"""What is written can be read back, by us and by others; whole or not at all."""

import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import sparse

import headcount as hc
from headcount import memory
from headcount.engines import Posterior
from headcount.io import (
    TableError,
    load_result,
    read_chain,
    read_omx,
    read_problem,
    write_omx,
    write_results,
    write_world,
)
from headcount.posterior.result import to_frame

BIRDS = Path(__file__).parents[2] / "examples" / "birds"


@pytest.fixture(scope="module")
def world() -> hc.simulate.World:
    return hc.simulate.birds(side=3, population=200, steps=4, rng=1)


@pytest.fixture(scope="module")
def posterior(world: hc.simulate.World) -> Posterior:
    return hc.infer(hc.Problem(world.model, 200, [hc.Poisson(world.observed)]))


def test_a_results_folder(posterior: Posterior, tmp_path: Path) -> None:
    """The folder holds everything in the forms promised, and each agrees with the posterior."""
    result, files = write_results(
        posterior, tmp_path / "out", attributes={"command": "headcount infer"}, omx=True
    )
    assert [f.name for f in files] == [
        "posterior.nc",
        "nodes.csv",
        "flows.csv",
        "summary.json",
        "flows.geojson",
        "flows.omx",
        "manifest.json",
    ]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(f.name for f in files)
    nodes = pd.read_csv(tmp_path / "out" / "nodes.csv")
    assert list(nodes.columns) == [
        "time",
        "cell",
        "observed",
        "mean",
        "median",
        "sd",
        "lower",
        "upper",
        "reliable",
        "level",
    ]
    assert np.allclose(nodes["mean"], result.nodes["mean"], rtol=1e-9)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["status"], summary["command"], summary["times"], summary["cells"]) == (
        "converged",
        "headcount infer",
        4,
        9,
    )
    assert load_result(tmp_path / "out").attributes["command"] == "headcount infer"


def test_numbers_in_the_tables_have_ten_digits(tmp_path: Path) -> None:
    """CSV holds ten significant digits, lines on a map six decimals; neither more nor less."""
    from headcount.io import write_table

    write_table(pd.DataFrame({"a": [1 / 3, 2e6 / 3, 12.0]}), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text().split() == ["a", "0.3333333333", "666666.6667", "12"]


def test_lines_for_a_map(posterior: Posterior, tmp_path: Path) -> None:
    """GeoJSON lines go from origin to destination, one for every move of half an individual or more."""
    result, _ = write_results(posterior, tmp_path)
    lines = json.loads((tmp_path / "flows.geojson").read_text())
    moved = result.flows[(result.flows["mean"] >= 0.5) & (result.flows["origin"] != result.flows["dest"])]
    assert len(lines["features"]) == len(moved) > 0
    first = lines["features"][0]
    places = result.coordinates.set_index("cell")
    ends = [places.loc[first["properties"][end]].tolist() for end in ("origin", "dest")]
    assert first["geometry"] == {"type": "LineString", "coordinates": ends}
    assert lines["interval_level"] == 0.9
    assert first["properties"]["mean"] == round(float(moved["mean"].iloc[0]), 6)
    assert first["properties"]["lower"] == round(float(moved["lower"].iloc[0]), 6)
    share = json.loads((tmp_path / "summary.json").read_text())["reliable_flows"]
    assert share == round(float(result.flows["reliable"].mean()), 4)


def test_matrices_for_transport_tools(posterior: Posterior, tmp_path: Path) -> None:
    """OMX matrices hold the expected flows under the zones' labels, and such a file is read back as transitions."""
    result, _ = write_results(posterior, tmp_path, omx=True)
    read = read_omx(tmp_path / "flows.omx")
    assert read.zones == tuple(result.cells)
    assert np.allclose(read.data["flow_1"], posterior.edge(1, 2).mean.to_numpy(), atol=1e-12)
    write_omx(tmp_path / "moves.omx", {"share": [[0.9, 0.1], [0.5, 0.5]]}, zones=["pond", "hill"])
    chain, _ = read_chain(tmp_path / "moves.omx", length=3)
    assert chain.cells == ("pond", "hill")
    assert np.allclose(chain.transitions[0], [[0.9, 0.1], [0.5, 0.5]])
    with pytest.raises(TableError, match="matrices of one shape"):
        write_omx(tmp_path / "no.omx", {"a": np.eye(2), "b": np.eye(3)})


def test_parquet_tables(posterior: Posterior, tmp_path: Path) -> None:
    """Parquet holds the same tables, to the last bit."""
    result, _ = write_results(posterior, tmp_path, format="parquet")
    read = pd.read_parquet(tmp_path / "flows.parquet")
    pd.testing.assert_frame_equal(read.drop(columns="level"), result.flows)


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("victim", ["posterior.nc", "flows.csv", "summary.json"])
def test_a_failure_leaves_the_old_files_whole(
    victim: str, fault: BaseException, posterior: Posterior, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever file a full disk or an interruption strikes, every old file stays as it was and nothing is left over."""
    from headcount.io import write as write_module

    names = ("posterior.nc", "nodes.csv", "flows.csv", "summary.json", "flows.geojson")
    for name in names:
        (tmp_path / name).write_text(f"old {name}")

    def spoil(write: Any) -> Any:
        def half(thing: Any, path: Path, *rest: Any, **options: Any) -> None:
            write(thing, path, *rest, **options)
            if path.name == victim:
                raise fault

        return half

    for name in ("write_tree", "put_table", "_write_json"):
        monkeypatch.setattr(write_module, name, spoil(getattr(write_module, name)))
    with pytest.raises(type(fault)):
        write_results(posterior, tmp_path, force=True)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {name: f"old {name}" for name in names}


@pytest.mark.parametrize("content", [None, b"", b"not a file of ours"])
def test_what_is_no_result_is_refused(content: bytes | None, tmp_path: Path) -> None:
    """A missing or foreign file is named, with the command that writes one."""
    if content is not None:
        (tmp_path / "posterior.nc").write_bytes(content)
    with pytest.raises(TableError, match=r"posterior\.nc: .*headcount infer"):
        load_result(tmp_path)


def test_a_world_comes_back_from_its_tables(world: hc.simulate.World, tmp_path: Path) -> None:
    """What simulate writes, read_problem reads: the same counts, transitions, features and start."""
    write_world(world, tmp_path)
    made = read_problem(
        tmp_path / "counts.csv",
        population=200,
        transitions=tmp_path / "transitions.csv",
        initial=tmp_path / "initial.csv",
    )
    assert np.array_equal([s.noise.counts for s in made.problem.sites], world.observed)
    for read, true in zip(made.problem.model.transitions, world.model.transitions, strict=True):
        assert np.allclose(read, true, rtol=1e-8)
    featured = read_problem(
        tmp_path / "counts.csv", population=200, features=tmp_path / "features.csv.gz", weights=[1, 2, 2, 2]
    )
    assert np.allclose(featured.features, np.asarray(world.features), atol=1e-9)
    assert np.allclose(featured.problem.model.transitions[1], world.model.transitions[1], rtol=1e-7)


def test_the_shipped_birds_are_what_the_simulator_makes(tmp_path: Path) -> None:
    """examples/birds is the output of the command in its README."""
    write_world(hc.simulate.birds(side=6, weights=(1, 2, 2, 2), population=1080, rng=1), tmp_path)
    for made in sorted(path for path in tmp_path.iterdir() if path.name != "manifest.json"):
        shipped, fresh = pd.read_csv(BIRDS / made.name), pd.read_csv(made)
        pd.testing.assert_frame_equal(shipped, fresh, rtol=1e-9)


@pytest.fixture(scope="module")
def walk():
    """A sparse walk whose sds come from draws."""
    cells = 30
    near = sparse.diags_array([0.2, 0.6, 0.2], offsets=[-1, 0, 1], shape=(cells, cells), format="lil")
    near[0, 0] = near[-1, -1] = 0.8
    model = hc.MarkovChain(np.full(cells, 1 / cells), sparse.csr_array(near), length=5)
    counts = np.random.default_rng(1).poisson(20.0, size=(5, cells)).astype(float)
    return hc.infer(
        hc.Problem(model, 20 * cells, hc.Poisson(counts)), hc.engines.TiltedEP(structure="matrix-free")
    )


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_what_does_not_fit_in_memory_is_written_in_parts(walk, tmp_path, monkeypatch, format):
    """With little memory, flows are written step by step and draws part by part, all of them; the NetCDF has the largest flows."""
    from headcount.posterior import result as result_module

    whole = walk.to_frame("flows")
    monkeypatch.setattr("headcount.io.write.LARGEST_KEPT", 50)
    taken = []
    monkeypatch.setattr(
        result_module,
        "to_frame",
        lambda post, what, **rest: taken.append(what) or to_frame(post, what, **rest),
    )
    with memory.limited("100KB"):
        with pytest.raises(memory.TooLargeError):
            walk.sample(40, rng=0)
        _, files = write_results(walk, tmp_path / "r", format=format, draws=40)
    assert taken == ["nodes"], "the table of flows was made whole"
    read = pd.read_csv if format == "csv" else pd.read_parquet
    written = read(tmp_path / "r" / f"flows.{format}")
    for name in ("time", "origin", "dest", "mean", "sd", "mc_error", "lower"):
        np.testing.assert_allclose(written[name], whole[name], rtol=1e-9)
    if format == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        assert parquet.ParquetFile(tmp_path / "r" / "flows.parquet").num_row_groups == 4
    again = load_result(tmp_path / "r")
    assert again.attributes["flows_in_all"] == len(whole)
    assert sorted(again.flows["mean"]) == pytest.approx(sorted(whole["mean"].nlargest(50)))
    assert (tmp_path / "r" / "draws.nc") in files
    with xr.open_dataset(tmp_path / "r" / "draws.nc", group="posterior", engine="h5netcdf") as drawn:
        assert drawn["count"].dims == ("chain", "draw", "time", "cell")
        assert drawn.sizes["draw"] == 40 > drawn.attrs["draws_per_part"]
        assert len(np.unique(drawn["count"].values[0, :, 0, 0])) == 40
        assert drawn["draw"].values.tolist() == list(range(40))
        assert (drawn["count"].sum("cell") - 600 < 1e-3).all()


def test_draws_in_parts_of_other_engines(tmp_path, walk):
    """Engines with tables draw whole numbers; a part's draws depend on the seed and its number only; wrong numbers are refused."""
    model = hc.MarkovChain([0.5, 0.5], np.full((2, 2), 0.5), length=3)
    post = hc.infer(hc.Problem(model, 50, hc.Poisson([[20.0, 31], [25, 25], [24, 27]])), "TiltedEP")
    for name, count in (("a", 25), ("b", 20)):
        post.save_draws(tmp_path / name, count, seed=3, chunk=10)
    a, b = (xr.load_dataset(tmp_path / n, group="posterior", engine="h5netcdf")["count"] for n in "ab")
    assert (a[:, :20].values == b.values).all()
    assert (a == a.round()).all()
    assert (a.sum("cell") == 50).all()
    with pytest.raises(ValueError, match="whole number"):
        walk.save_draws(tmp_path / "c", 0)
    with pytest.raises(ValueError, match="gives no draws"):
        hc.infer(walk.problem, "MAP").save_draws(tmp_path / "c", 5)
