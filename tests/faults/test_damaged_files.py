"""Damaged files of every format end in the usual report: never a raw error, never another number."""

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.faults.trouble import cases, damaged, flipped
from tests.io.small_tables import COUNTS, TRANSITIONS, write

import headcount as hc
from headcount import memory
from headcount.errors import FaultsError
from headcount.io import load_result, read_network, read_omx, read_problem, write_omx, write_results
from headcount.posterior import Posterior

BIF = """network pets { }
variable season { type discrete [ 2 ] { dry, wet }; }
variable animal { type discrete [ 3 ] { cat, dog, none }; }
probability ( season ) { table 0.4, 0.6; }
probability ( animal | season ) { (dry) 0.2, 0.3, 0.5; (wet) 0.5, 0.25, 0.25; }
"""


def as_counts(path: Path) -> object:
    """Read a damaged table of counts beside sound transitions."""
    moves = write(path.parent, transitions=TRANSITIONS)["transitions"]
    return read_problem(path, population=60, transitions=moves)


def as_transitions(path: Path) -> object:
    """Read damaged transitions beside sound counts."""
    return read_problem(write(path.parent, counts=COUNTS)["counts"], population=60, transitions=path)


def as_network(path: Path) -> object:
    """Read a damaged network beside a sound table."""
    return read_network(path, [pd.DataFrame({"animal": ["cat", "dog"], "count": [3, 4]})], population=20)


def sound(name: str, folder: Path) -> bytes:
    """The bytes of a small sound file of the format that the name ends in."""
    table = pd.read_csv(io.StringIO(COUNTS))
    path = folder / name
    match "".join(Path(name).suffixes):
        case ".csv":
            return COUNTS.encode()
        case ".csv.gz":
            return gzip.compress(COUNTS.encode(), mtime=0)
        case ".parquet":
            table.to_parquet(path)
        case ".nc":
            table.set_index(["time", "cell"])["count"].to_xarray().to_netcdf(path, engine="h5netcdf")
        case ".omx":
            write_omx(path, {"share": [[0.9, 0.1], [0.5, 0.5]]}, zones=["pond", "hill"])
        case ".bif":
            return BIF.encode()
        case _:
            return gzip.compress(BIF.encode(), mtime=0)
    return path.read_bytes()


READERS: dict[str, Callable[[Path], object]] = {
    "counts.csv": as_counts,
    "counts.csv.gz": as_counts,
    "counts.parquet": as_counts,
    "counts.nc": as_counts,
    "moves.omx": as_transitions,
    "matrices.omx": read_omx,
    "network.bif": as_network,
    "network.bif.gz": as_network,
}


@pytest.mark.parametrize("name", READERS)
def test_damaged_inputs_are_reported(name: str, tmp_path: Path) -> None:
    """Whatever happens to the bytes of an input, reading succeeds or says what is wrong."""
    content = sound(name, tmp_path)
    rng = np.random.default_rng(7)
    for k in range(cases(10, 2000)):
        (tmp_path / name).write_bytes(damaged(content, rng))
        try:
            READERS[name](tmp_path / name)
        except FaultsError:
            pass
        except Exception as error:
            pytest.fail(f"case {k}: raw {type(error).__name__}: {error}")


def test_bit_flips_in_a_result_are_found(posterior: Posterior, tmp_path: Path) -> None:
    """A result with one flipped bit is refused, or is the same to the last bit; a folder's manifest finds every flip."""
    _, files = write_results(posterior, tmp_path / "out")
    content = files[0].read_bytes()
    alone = tmp_path / "alone.nc"
    alone.write_bytes(content)
    first = load_result(alone)
    rng = np.random.default_rng(3)
    refused = 0
    for k in range(cases(20, 1000)):
        spoiled = flipped(content, rng)
        alone.write_bytes(spoiled)
        try:
            again = load_result(alone)
        except FaultsError:
            refused += 1
        except Exception as error:
            pytest.fail(f"flip {k}: raw {type(error).__name__}: {error}")
        else:
            for table in ("nodes", "flows", "trace"):
                pd.testing.assert_frame_equal(getattr(again, table), getattr(first, table), check_exact=True)
            assert again.attributes == first.attributes
        files[0].write_bytes(spoiled)
        if k < 5:
            with pytest.raises(hc.io.TableError, match="damaged, or was changed"):
                load_result(tmp_path / "out")
    assert refused > 0


def test_damaged_results_are_reported(posterior: Posterior, tmp_path: Path) -> None:
    """Cut, overwritten or repeated bytes in a result are refused in words."""
    posterior.save(tmp_path / "p.nc")
    content = (tmp_path / "p.nc").read_bytes()
    rng = np.random.default_rng(5)
    for k in range(cases(8, 1000)):
        (tmp_path / "q.nc").write_bytes(damaged(content, rng))
        try:
            load_result(tmp_path / "q.nc")
        except FaultsError:
            pass
        except Exception as error:
            pytest.fail(f"case {k}: raw {type(error).__name__}: {error}")


@pytest.mark.parametrize("value", ["[]", "3", '"text"', "{}", '{"interval_level": "wide"}', "not JSON"])
def test_a_provenance_of_another_type_is_refused(value: str, posterior: Posterior, tmp_path: Path) -> None:
    """A sound NetCDF file whose provenance is something else is no result, and that is said."""
    from headcount._disk import write_tree

    tree = posterior.to_xarray()
    tree.attrs["provenance"] = value
    write_tree(tree, tmp_path / "p.nc")
    with pytest.raises(hc.io.TableError, match=r"p\.nc"):
        load_result(tmp_path / "p.nc")


def test_a_file_without_checksums_is_refused(posterior: Posterior, tmp_path: Path) -> None:
    """What cannot be verified is not believed."""
    posterior.to_xarray().to_netcdf(tmp_path / "p.nc", engine="h5netcdf")
    with pytest.raises(hc.io.TableError, match="no checksums"):
        load_result(tmp_path / "p.nc")


def test_a_small_file_that_unpacks_to_a_large_one_is_refused(tmp_path: Path) -> None:
    """A gzip bomb is refused with both numbers before it is unpacked, also where it states a small size."""
    table = gzip.compress(b"time,cell,count\n" + b"0,pond,1\n" * 2_000_000, mtime=0)
    path = tmp_path / "counts.csv.gz"
    network = tmp_path / "large.bif.gz"
    network.write_bytes(table)
    with memory.limited("64MB"), pytest.raises(FaultsError, match=r"large\.bif\.gz.*limit is 64 MB"):
        as_network(network)
    for content in (table, table[:-4] + b"\x10\x00\x00\x00"):
        path.write_bytes(content)
        with (
            memory.limited("64MB"),
            pytest.raises(memory.TooLargeError, match=r"counts\.csv\.gz.*limit is 64 MB"),
        ):
            as_counts(path)


@pytest.mark.parametrize("name", ["counts.csv", "counts.parquet", "counts.nc"])
def test_large_tables_are_refused_before_they_are_read(name: str, tmp_path: Path) -> None:
    """Every format is measured against the memory limit before it is taken in."""
    (tmp_path / name).write_bytes(sound(name, tmp_path))
    with memory.limited("100B"), pytest.raises(memory.TooLargeError, match=r"counts.*limit is 100 B"):
        as_counts(tmp_path / name)
