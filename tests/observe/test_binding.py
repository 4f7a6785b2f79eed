"""How data reach the tables they speak of: shapes, labels, NaN, sums, scopes."""

import datetime as dt
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.sparse import csr_array
from tests.graphs import awkward_models

import headcount as hc

TIMES, CELLS = ("mon", "tue", "wed", "thu"), ("a", "b", "c")
Y = np.array([[3.0, 0, 2], [np.nan, 4, 1], [np.nan, np.nan, np.nan], [5, np.nan, 0]])


def chain():
    step = [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]]
    return hc.MarkovChain([0.2, 0.3, 0.5], step, times=TIMES, cells=CELLS)


def unequal():
    return awkward_models()["tree with unequal domains"]


def cube(y=Y):
    return xr.DataArray(y, dims=("time", "cell"), coords={"time": list(TIMES), "cell": list(CELLS)})


def sites(observation, model=None):
    return hc.Problem(model if model is not None else chain(), 20, [observation]).sites


def same_sites(one, other):
    assert [s.scope for s in one] == [s.scope for s in other]
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a.noise.counts, b.noise.counts)
        assert list(a.names) == list(b.names)
        for name, value in a.noise.entry_parameters().items():
            np.testing.assert_array_equal(value, getattr(b.noise, name))
        if a.index is not None:
            np.testing.assert_array_equal(a.index, b.index)
        else:
            np.testing.assert_array_equal(a.weights.toarray(), b.weights.toarray())


def test_nan_is_not_observed_and_zero_is():
    """A NaN leaves no trace, a zero is a count, a row of NaN has no site."""
    found = sites(hc.Poisson(Y))
    assert [s.scope for s in found] == [("mon",), ("tue",), ("thu",)]
    assert [s.index.tolist() for s in found] == [[0, 1, 2], [1, 2], [0, 2]]
    assert [s.noise.counts.tolist() for s in found] == [[3, 0, 2], [4, 1], [5, 0]]
    assert found[1].names[0] == "time tue, cell 'b'"
    assert all(s.source == 0 for s in found)


LAYOUTS = {
    "cube": lambda y: cube(y),
    "cube-shuffled": lambda y: cube(y).isel(time=[2, 0, 3, 1], cell=[1, 2, 0]).transpose("cell", "time"),
    "cube-without-labels": lambda y: xr.DataArray(y, dims=("time", "cell")),
    "cube-absent-row": lambda y: cube(y).isel(time=[3, 0, 1]),
    "series": lambda y: cube(y).to_series().sample(frac=1, random_state=3),
    "series-absent-rows": lambda y: cube(y).to_series().dropna(),
    "series-levels-swapped": lambda y: cube(y).to_series().swaplevel(),
    "tidy": lambda y: cube(y).to_series().rename("count").reset_index().sample(frac=1, random_state=1),
    "wide": lambda y: pd.DataFrame(y, index=list(TIMES), columns=list(CELLS)).iloc[::-1, [2, 0, 1]],
    "masked": lambda y: np.ma.masked_invalid(y),
    "list": lambda y: y.tolist(),
    "mapping": lambda y: {t: y[k] for k, t in enumerate(TIMES)},
    "mapping-of-series": lambda y: {t: pd.Series(y[k], index=list(CELLS))[::-1] for k, t in enumerate(TIMES)},
    "nullable": lambda y: pd.DataFrame(y, index=list(TIMES), columns=list(CELLS)).astype("Float64"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_sites(layout):
    """Labels permuted, axes transposed, rows absent, tidy or wide: one and the same problem."""
    same_sites(sites(hc.Poisson(LAYOUTS[layout](Y))), sites(hc.Poisson(Y)))


def test_parameters_follow_their_labels():
    """A labelled rate is matched by label, one along fewer axes is broadcast along the others."""
    rate = cube(np.arange(1, 13.0).reshape(4, 3))
    plain = sites(hc.Poisson(Y, rate=rate.values))
    same_sites(sites(hc.Poisson(cube(), rate=rate.isel(time=[1, 0, 3, 2], cell=[2, 1, 0]))), plain)
    same_sites(sites(hc.Poisson(Y, rate=rate)), plain)
    by_cell = xr.DataArray([3.0, 1, 2], dims="cell", coords={"cell": ["c", "a", "b"]})
    same_sites(sites(hc.Poisson(Y, rate=by_cell)), sites(hc.Poisson(Y, rate=np.array([1.0, 2, 3]))))
    by_time = pd.Series([1.0, 2, 3, 4], index=pd.Index(TIMES, name="time"))
    same_sites(sites(hc.Poisson(Y, rate=by_time)), sites(hc.Poisson(Y, rate=np.arange(1, 5.0)[:, None])))


def test_scalar_parameters_become_one_an_entry():
    """After binding, counts and parameters are read-only 1-D float arrays of one length."""
    site = sites(hc.NegativeBinomial(Y, dispersion=2))[1]
    assert site.noise.rate.shape == site.noise.dispersion.shape == site.noise.counts.shape == (2,)
    assert not site.noise.counts.flags.writeable
    assert len(site) == 2


EDGE = np.arange(9.0).reshape(3, 3)


def test_scopes_come_in_the_models_order():
    """on=(v, u) with the transposed table is on=(u, v): one site, axes in the model's order."""
    straight = sites(hc.Poisson(EDGE, on=("mon", "tue")))
    assert straight[0].scope == ("mon", "tue")
    same_sites(sites(hc.Poisson(EDGE.T, on=("tue", "mon"))), straight)
    same_sites(
        sites(hc.Poisson(EDGE.T, on=("tue", "mon"), rate=(EDGE + 1).T)),
        sites(hc.Poisson(EDGE, on=("mon", "tue"), rate=EDGE + 1)),
    )
    assert straight[0].names[5] == "time mon, cell 'b' to time tue, cell 'c'"


def test_flows_are_read_by_any_of_their_names():
    """Edges labelled by the variables or as origin and dest, in either order."""
    straight = sites(hc.Poisson(EDGE, on=("mon", "tue")))
    coords = {"mon": list(CELLS), "tue": list(CELLS)}
    table = xr.DataArray(EDGE, dims=("mon", "tue"), coords=coords)
    flows = table.rename(mon="origin", tue="dest")
    tidy = flows.to_series().rename("count").reset_index()
    for data in (
        table,
        table.T,
        flows,
        flows.T[::-1],
        tidy,
        tidy.rename(columns={"origin": "from", "dest": "to"}),
    ):
        same_sites(sites(hc.Poisson(data, on=("mon", "tue"))), straight)
    same_sites(sites(hc.Poisson(table.T)), straight)  # its dimensions say which variables
    same_sites(sites(hc.Poisson({("mon", "tue"): EDGE})), straight)
    same_sites(sites(hc.Poisson({("tue", "mon"): EDGE.T})), straight)


def test_covariance_follows_a_transposed_table_and_missing_entries():
    """The covariance is permuted with the table, and left out where the count is NaN."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(9, 9))
    covariance = root @ root.T + np.eye(9)
    table = EDGE.copy()
    table[1, 2] = np.nan
    turn = np.arange(9).reshape(3, 3).T.ravel()
    one = sites(hc.Gaussian(table, covariance=covariance, on=("mon", "tue")))[0]
    other = sites(hc.Gaussian(table.T, covariance=covariance[np.ix_(turn, turn)], on=("tue", "mon")))[0]
    seen = np.flatnonzero(~np.isnan(table.ravel()))
    np.testing.assert_array_equal(one.noise.covariance, covariance[np.ix_(seen, seen)])
    np.testing.assert_array_equal(one.noise.covariance, other.noise.covariance)
    np.testing.assert_array_equal(one.noise.counts, other.noise.counts)


def test_one_covariance_a_variable():
    """With on=None a (K, K) covariance serves every variable, a (T, K, K) one each."""
    each = np.stack([np.eye(3) * (k + 1) for k in range(4)])
    assert sites(hc.Gaussian(Y, covariance=np.eye(3)))[2].noise.covariance.tolist() == [[1, 0], [0, 1]]
    assert sites(hc.Gaussian(Y, covariance=each))[2].noise.covariance.tolist() == [[4, 0], [0, 4]]


REGIONS = np.array([[1.0, 1, 0], [0, 0, 1]])
SUMS = {
    "array": REGIONS,
    "sparse": csr_array(REGIONS),
    "lists": {"west": ["b", "a"], "east": ["c"]},
    "frame": pd.DataFrame(REGIONS, index=["west", "east"], columns=list(CELLS))[["c", "a", "b"]],
    "cube": xr.DataArray(
        REGIONS, dims=("area", "cell"), coords={"area": ["west", "east"], "cell": list(CELLS)}
    ).isel(cell=[2, 0, 1]),
}


@pytest.mark.parametrize("form", SUMS)
def test_sums_of_every_variable(form):
    """Counts of regions: one row of the matrix a sum, every variable alike; NaN sums are left out."""
    counts = np.array([[5.0, 2], [np.nan, 3], [1, 1], [0, 4]])
    found = sites(hc.Poisson(counts, sums=SUMS[form]))
    assert [s.weights.toarray().tolist() for s in found[:2]] == [REGIONS.tolist(), [[0, 0, 1]]]
    assert found[0].index is None
    np.testing.assert_array_equal(found[0].margin([3.0, 4, 9]), [7, 9])
    assert found[1].names[0] in {"sum 1 of time tue", "sum 'east' of time tue"}


def test_sums_with_labelled_counts():
    """Counts labelled by region are matched with the sums' names."""
    sums = SUMS["lists"]
    counts = xr.DataArray(
        [[2.0, 5], [3, 1]],
        dims=("time", "region"),
        coords={"time": ["tue", "mon"], "region": ["east", "west"]},
    )
    found = sites(hc.Poisson(counts, sums=sums))
    assert [(s.scope, s.noise.counts.tolist()) for s in found] == [(("mon",), [1, 3]), (("tue",), [5, 2])]
    one = sites(hc.Poisson(pd.Series({"east": 2.0, "west": 5.0}), on="tue", sums=sums))[0]
    assert one.noise.counts.tolist() == [5, 2]


def test_sums_of_a_flow_table():
    """A cordon: sums over pairs, by matrix, by table-shaped matrix and by tuples; transposed scopes agree."""
    cordon = np.array([[[0.0, 1, 1], [0, 0, 1], [0, 0, 0]]])
    pairs = {"out": [("a", "b"), ("b", "c"), ("a", "c")]}
    straight = sites(hc.Poisson([4], on=("mon", "tue"), sums=cordon))
    np.testing.assert_array_equal(straight[0].weights.toarray(), cordon.reshape(1, 9))
    turned = sites(hc.Poisson([4], on=("tue", "mon"), sums=np.swapaxes(cordon, 1, 2)))
    for other in (
        sites(hc.Poisson([4], on=("mon", "tue"), sums=cordon.reshape(1, 9))),
        sites(hc.Poisson([4], on=("mon", "tue"), sums=pairs)),
        turned,
    ):
        np.testing.assert_array_equal(other[0].weights.toarray(), straight[0].weights.toarray())
        assert other[0].scope == ("mon", "tue")


@pytest.mark.parametrize("kind", ["entries", "sums"])
def test_spread_is_the_adjoint_of_margin(kind):
    """<margin(n), v> = <n, spread(v)>, over leading axes as well."""
    rng = np.random.default_rng(1)
    if kind == "entries":
        table = EDGE.copy()
        table[0, 1] = np.nan
        site = sites(hc.Poisson(table, on=("mon", "tue")))[0]
    else:
        sums = rng.integers(0, 2, (4, 9))
        sums[:, 0] = 1
        site = sites(hc.Poisson([1, 2, 3, 4], on=("mon", "tue"), sums=sums))[0]
    n, v = rng.normal(size=(2, 5, 9)), rng.normal(size=(2, 5, len(site)))
    left = (site.margin(n) * v).sum(-1)
    right = (n * site.spread(v)).sum(-1)
    assert site.margin(n).shape == v.shape
    np.testing.assert_allclose(left, right, rtol=1e-12)


def test_variables_with_different_states():
    """Labelled counts find their own states; plain ones come in a mapping; both give the same sites."""
    model = unequal()
    mapping = hc.Poisson({"a": [1, 2], "b": [3, np.nan, 5], "d": [0, 7]})
    rows = [("a", 0, 1), ("a", 1, 2), ("b", 0, 3), ("b", 2, 5), ("d", 0, 0), ("d", 1, 7)]
    tidy = pd.DataFrame(rows, columns=["variable", "state", "count"])
    same_sites(sites(hc.Poisson(tidy), model), sites(mapping, model))
    assert sites(mapping, model)[1].names[1] == "b = 2"
    rates = hc.Poisson({"a": [1, 2], "b": [3, 4, 5]}, rate={"a": 2.0, "b": [1.0, 2, 3]})
    assert sites(rates, model)[1].noise.rate.tolist() == [1, 2, 3]


def test_dates_of_every_kind_are_one_label():
    """datetime, Timestamp and datetime64 labels of one day match."""
    days = [dt.date(2024, 5, 1), dt.date(2024, 5, 2)]
    model = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], times=days)
    y = np.array([[1.0, 2], [3, 4]])
    by_stamp = xr.DataArray(y, dims=("time", "cell"), coords={"time": pd.to_datetime(days), "cell": [0, 1]})
    same_sites(sites(hc.Poisson(by_stamp), model), sites(hc.Poisson(y), model))
    stamped = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], times=list(pd.to_datetime(days)))
    assert len(sites(hc.Poisson(by_stamp), stamped)) == 2


@pytest.mark.parametrize("name", awkward_models())
def test_every_graph_takes_every_clique(name):
    """A table over each clique, each separator and each variable binds, with names for all entries."""
    model = awkward_models()[name]
    scopes = {*model.junction_tree.cliques, *((v,) for v in model.variables)}
    scopes |= {s for s in model.junction_tree.separators if s}
    for scope in scopes:
        problem = hc.Problem(
            model, 50, hc.Poisson(50 * model.marginal(scope).round(1), background=1, on=scope)
        )
        (site,) = problem.sites
        assert site.size == len(site) == len(set(site.names)) == np.prod(model.size(scope))


def test_a_variable_named_by_a_tuple_is_one_variable():
    """on=(0, 1) is the variable (0, 1) where the model has one."""
    model = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], times=[(0, 1), (0, 2)])
    assert sites(hc.Poisson([1, 2], on=(0, 1)), model)[0].scope == ((0, 1),)


def test_binding_needs_neither_pandas_nor_xarray():
    """Plain arrays bind without either being imported."""
    script = (
        "import sys, headcount as hc; m = hc.MarkovChain([.5, .5], [[.8, .2], [.3, .7]], length=2);"
        "hc.Problem(m, 5, hc.Poisson([[1, 2], [2, 2]], sums=None)).core.traits;"
        "assert not {'pandas', 'xarray', 'scipy.stats', 'scipy.optimize'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
