"""What others build on stays: public names and arguments, and files that were written before."""

import re
import tarfile
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from scipy import sparse

import headcount as hc
from headcount._disk import FORMAT, FORMAT_VERSION
from headcount.io import TableError, load_result
from headcount.observe.cloud import _block_diagonal
from tools import public_api

HERE = Path(__file__).parent
LIST = HERE / "public_api.txt"


def test_public_names_and_arguments_are_those_of_the_list() -> None:
    """Names, arguments, defaults and options change only with ``python -m tools.public_api > tests/public_api.txt``.

    Commit the new list with a line in the changelog; after 0.2 a name or argument that goes away warns for one minor version first.
    """
    known, found = LIST.read_text(encoding="utf-8").splitlines(), list(public_api.lines())
    gone = [f"- {line}" for line in known if line not in set(found)]
    new = [f"+ {line}" for line in found if line not in set(known)]
    assert not gone + new, "\n".join([*gone, *new])
    assert known == found


def test_sparse_matrices_are_arrays() -> None:
    """SciPy's sparse matrices go (1.18 deprecates them): nothing here makes one by its name; CuPy has no other kind."""
    old = re.compile(
        r"\b(?:bsr|coo|csc|csr|dia|dok|lil)_matrix\b|\bsparse\.(?:diags|eye|identity|rand|random|spdiags)\("
    )
    source = HERE.parent / "src" / "headcount"
    found = [path.name for path in sorted(source.rglob("*.py")) if old.search(path.read_text("utf-8"))]
    assert found == ["_device.py"]


def test_joined_sparse_blocks_are_arrays() -> None:
    """Blocks of two groups, dense or sparse, are joined to an array that multiplies as one."""
    dense, csr = np.ones((2, 3)), sparse.csr_array(np.eye(2))
    for blocks in ([dense, csr], [csr, csr]):
        joined = _block_diagonal(blocks)
        assert isinstance(joined, sparse.sparray)
        assert joined.shape == tuple(np.sum([b.shape for b in blocks], axis=0))


def test_every_name_is_listed_once() -> None:
    """The list has no two lines alike, and no address of an object."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(set(lines))
    assert not [line for line in lines if " at 0x" in line]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results that 0.2 wrote: a folder, a file with groups, a fit."""
    place = tmp_path_factory.mktemp("old")
    with tarfile.open(HERE / "fixtures" / "results-0.2.tar.xz") as held:
        held.extractall(place, filter="data")
    return place / "results-0.2"


def test_results_of_0_2_are_read(old: Path) -> None:
    """A results folder of 0.2 gives the numbers it was written with, and its page can be made."""
    post = hc.Posterior.load(old / "chain")
    assert np.allclose(post.node("wed").mean, [18.703695, 16.500246, 15.35285], atol=1e-6)
    assert np.isclose(post.log_evidence, -29.43854314332819)
    assert np.isclose(post.population.mean, 50.55679079855649)
    assert list(load_result(old / "chain").coordinates["y"]) == [2.0, 1.0, 0.0]
    hc.report.write(old / "chain", old / "report.html")
    assert (old / "report.html").stat().st_size > 10_000


def test_groups_of_0_2_are_read(old: Path) -> None:
    """A file of 0.2 with two groups gives each of them."""
    post = hc.Posterior.load(old / "groups.nc")
    assert np.allclose(post.group("residents").node("thu").mean, [9.937383, 9.694858, 10.36776], atol=1e-6)


def test_a_fit_of_0_2_is_read(old: Path) -> None:
    """A fit of 0.2 gives its estimates."""
    table = hc.Fit.load(old / "fit.npz").table()
    assert list(table["parameter"]) == ["distance", "direction", "wind", "stay"]
    assert np.allclose(table["estimate"], [-9.501367, 1.334961, 2.005472, -3.288649], atol=1e-6)


def stored_version(path: Path) -> int:
    with xr.open_datatree(path, engine="h5netcdf") as tree:
        return int(tree.attrs[FORMAT])


def test_a_newer_format_is_refused_in_words(old: Path, tmp_path: Path) -> None:
    """Files carry the version of their format; one that this headcount does not know is refused, and the remedy said."""
    import h5py

    assert stored_version(old / "groups.nc") == FORMAT_VERSION
    newer = tmp_path / "newer.nc"
    newer.write_bytes((old / "groups.nc").read_bytes())
    with h5py.File(newer, "r+") as file:
        file.attrs[FORMAT] = FORMAT_VERSION + 1
    with pytest.raises(ValueError, match=r"newer\.nc: this file has version 2 .* install a newer headcount"):
        hc.Posterior.load(newer)
    with pytest.raises(TableError, match="install a newer headcount"):
        load_result(newer)
