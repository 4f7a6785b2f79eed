"""The same problem comes out of every form of the same tables."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from tests.io.small_tables import COUNTS, TRANSITIONS, write

import headcount as hc
from headcount.io import Case, TableError, read_counts, read_network, read_problem


def case(folder: Path, counts: str = COUNTS, transitions: str = TRANSITIONS, **options: object) -> Case:
    paths = write(folder, counts=counts, transitions=transitions)
    return read_problem(
        paths["counts"], **({"population": 60, "transitions": paths["transitions"]} | options)
    )


def seen(made: Case) -> np.ndarray:
    return np.array([site.noise.counts for site in made.problem.sites])


def test_labels_come_back(tmp_path: Path) -> None:
    """Cells and times keep the user's labels: numbers as numbers, texts as texts, codes with zeros in front as texts."""
    model = case(tmp_path).problem.model
    assert model.variables == (0, 1, 2)
    assert model.cells == ("pond", "hill")
    coded = case(
        tmp_path,
        COUNTS.replace("pond", "01").replace("hill", "02"),
        TRANSITIONS.replace("pond", "01").replace("hill", "02"),
    )
    assert coded.problem.model.cells == ("01", "02")
    numbered = case(
        tmp_path,
        COUNTS.replace("pond", "10").replace("hill", "9"),
        TRANSITIONS.replace("pond", "10").replace("hill", "9"),
    )
    assert numbered.problem.model.cells == (9, 10)


def test_moves_may_go_on_after_the_last_count(tmp_path: Path) -> None:
    """A year's moves beside one week's counts: the times are those up to the last count, the moves those between them, with a note."""
    moves = TRANSITIONS.splitlines()[1:]
    year = "time,from,to,probability\n" + "".join(f"{t},{m}\n" for t in range(9) for m in moves)
    week = "time,from,to,probability\n" + "".join(f"{t},{m}\n" for t in range(2) for m in moves)
    longer, plain = case(tmp_path, transitions=year), case(tmp_path, transitions=week)
    assert longer.problem.model.variables == plain.problem.model.variables == (0, 1, 2)
    assert np.array_equal(longer.problem.model.transitions, plain.problem.model.transitions)
    (note,) = [text for text in longer.notes if "not used" in text]
    assert f"{7 * len(moves)} moves leave at 2, the last time with counts, or later" in note
    assert not any("not used" in text for text in plain.notes)


def test_order_of_rows_does_not_matter(tmp_path: Path, rng: np.random.Generator) -> None:
    """Shuffled rows give the same problem."""
    head, *rows = COUNTS.splitlines()
    shuffled = "\n".join([head, *(rows[k] for k in rng.permutation(len(rows)))]) + "\n"
    assert np.array_equal(seen(case(tmp_path)), seen(case(tmp_path, shuffled)))


@pytest.mark.parametrize(
    "form", ["frame", "series", "cube", "parquet", "nc", "tsv", "semicolon", "utf-16", "bom", "gz", "comment"]
)
def test_every_form_of_a_table(form: str, tmp_path: Path) -> None:
    """CSV with any separator and encoding, Parquet, NetCDF, pandas and xarray say the same."""
    paths = write(tmp_path, counts=COUNTS, transitions=TRANSITIONS)
    frame = pd.read_csv(paths["counts"])
    given: object = tmp_path / f"counts.{form}"
    file = tmp_path / f"counts.{form}"
    match form:
        case "frame":
            given = frame
        case "series":
            given = frame.set_index(["time", "cell"])["count"]
        case "cube":
            given = frame.set_index(["time", "cell"])["count"].to_xarray()
        case "parquet":
            frame.to_parquet(file)
        case "nc":
            frame.set_index(["time", "cell"])["count"].to_xarray().to_netcdf(file, engine="h5netcdf")
        case "tsv":
            file.write_text(COUNTS.replace(",", "\t"))
        case "semicolon":
            file.write_text(COUNTS.replace(",", "; "))
        case "utf-16":
            file.write_text(COUNTS, encoding="utf-16")
        case "bom":
            file.write_text(COUNTS, encoding="utf-8-sig")
        case "gz":
            frame.to_csv(file, index=False, compression="gzip")
        case "comment":
            file.write_text("# counted by hand\n" + COUNTS + "\n\n")
    made = read_problem(given, population=60, transitions=paths["transitions"])
    assert np.array_equal(seen(made), seen(case(tmp_path)))


def test_known_spellings_and_mapped_columns(tmp_path: Path) -> None:
    """Other people's names for the columns are read, and any name can be mapped."""
    spelled = case(
        tmp_path,
        COUNTS.replace("time,cell,count", "Date,Zone,Total"),
        TRANSITIONS.replace("from,to,probability", "origin,destination,prob"),
    )
    mapped = case(tmp_path, COUNTS.replace("count", "birds"), columns={"count": "birds"})
    for made in (spelled, mapped):
        assert np.array_equal(seen(made), seen(case(tmp_path)))


def test_empty_is_not_observed_and_zero_is(tmp_path: Path) -> None:
    """An empty count or an absent row is a missing observation; zero is data."""
    counts = (
        COUNTS.replace("1,pond,33", "1,pond,").replace("1,hill,25", "1,hill,0").replace("2,hill,28\n", "")
    )
    made = case(tmp_path, counts)
    assert [site.noise.counts.tolist() for site in made.problem.sites] == [[40.0, 20.0], [0.0], [30.0]]


def test_dates_are_times(tmp_path: Path) -> None:
    """Dates become time stamps in their order; weeks and months are even steps, a missing week is refused."""
    days = ["2024-01-01", "2024-01-08", "2024-01-15"]
    text = COUNTS
    for k, day in enumerate(days):
        text = text.replace(f"\n{k},", f"\n{day},")
    made = case(tmp_path, text)
    assert made.problem.model.variables == tuple(pd.Timestamp(d) for d in days)
    months = text.replace("01-08", "02-01").replace("01-15", "03-01")
    assert case(tmp_path, months).problem.model.variables[2] == pd.Timestamp("2024-03-01")
    with pytest.raises(TableError, match="not evenly spaced: 2024-01-08 is followed by 2024-01-22"):
        case(tmp_path, text.replace("01-15", "01-22"))
    assert len(case(tmp_path, text.replace("01-15", "01-22"), uneven=True).problem.model.variables) == 3


def test_decimal_times_are_times(tmp_path: Path) -> None:
    """0.5, 1.0, 1.5 are numbers in their order, one time however its zeros are written; a gap is refused."""
    text = COUNTS
    for k, time in enumerate(("1.50", "0.5", "1.0")):
        text = text.replace(f"\n{k},", f"\n{time},")
    moves = "time,from,to,probability\n" + "".join(
        f"{t},{row}\n" for t in ("0.50", "1") for row in TRANSITIONS.splitlines()[1:]
    )
    made = case(tmp_path, text, moves)
    assert made.problem.model.variables == (0.5, 1.0, 1.5)
    assert seen(made).tolist() == [[33, 25], [30, 28], [40, 20]]
    assert not any("neither numbers nor dates" in note for note in made.notes)
    with pytest.raises(TableError, match=r"step by 0\.5, but 1 is followed by 2\.25"):
        case(tmp_path, text.replace("1.50", "2.25"))
    thirds = text.replace("0.5", "0.333333").replace("1.0", "0.666667").replace("1.50", "1")
    assert case(tmp_path, thirds).problem.model.variables == (0.333333, 0.666667, 1.0)


def test_a_misspelt_keyword_is_named(tmp_path: Path) -> None:
    """A keyword that read_problem does not have is refused by its name, not passed on."""
    with pytest.raises(TypeError, match="encding"):
        case(tmp_path, encding="latin-1")


def test_words_as_times_are_said(tmp_path: Path) -> None:
    """Times that are neither numbers nor dates are taken as they appear, and that is noted."""
    text = COUNTS.replace("\n0,", "\nmon,").replace("\n1,", "\ntue,").replace("\n2,", "\nwed,")
    made = case(tmp_path, text)
    assert made.problem.model.variables == ("mon", "tue", "wed")
    assert any("order in which they appear: mon, tue, wed" in note for note in made.notes)


def test_noise_takes_columns_and_options(tmp_path: Path) -> None:
    """A column of rates and an option of it give the same noise; both together are refused."""
    lines = COUNTS.splitlines()
    text = "\n".join([lines[0] + ",rate", *(line + ",0.5" for line in lines[1:])]) + "\n"
    by_column, by_option = case(tmp_path, text), case(tmp_path, parameters={"rate": 0.5})
    for made in (by_column, by_option):
        assert all((site.noise.rate == 0.5).all() for site in made.problem.sites)
    with pytest.raises(TableError, match="rate is given by an option and by a column"):
        case(tmp_path, text, parameters={"rate": 0.5})


def test_the_initial_law(tmp_path: Path) -> None:
    """Shares of the first counts, smoothed, uniform, a table, or unknown; the choice made for the user is noted."""
    unknown = case(tmp_path)
    assert unknown.learns_initial
    assert not unknown.problem.model.initial_known
    assert any("learned from all counts under a flat prior" in note for note in unknown.notes)
    counted = case(tmp_path, initial="counts")
    assert not counted.learns_initial
    assert counted.problem.model.initial.tolist() == pytest.approx([2 / 3, 1 / 3])
    assert any("shares of the counts at 0" in note for note in counted.notes)
    assert case(tmp_path, initial="smoothed").problem.model.initial[0] == pytest.approx(40.5 / 61)
    assert case(tmp_path, initial="uniform").problem.model.initial.tolist() == [0.5, 0.5]
    paths = write(tmp_path, start="cell,probability\nhill,0.25\npond,0.75\n")
    assert case(tmp_path, initial=paths["start"]).problem.model.initial.tolist() == [0.75, 0.25]
    with pytest.raises(TableError, match=r"1 of 2 cells have none.*--initial learned"):
        case(tmp_path, COUNTS.replace("0,hill,20", "0,hill,"), initial="counts")


def test_a_start_that_forbids_what_was_seen(tmp_path: Path) -> None:
    """Zeros of the first counts can make later counts impossible: that is said, with the way out."""
    counts = COUNTS.replace("0,hill,20", "0,hill,0")
    moves = TRANSITIONS.replace("pond,pond,0.9", "pond,pond,1").replace("pond,hill,0.1", "pond,hill,0")
    with pytest.raises(hc.ProblemError, match=r"(?s)probability 0.*--initial smoothed"):
        case(tmp_path, counts, moves, initial="counts")
    assert case(tmp_path, counts, moves, initial="smoothed").problem.model.initial[1] > 0


def test_transitions_by_time_and_rounded(tmp_path: Path) -> None:
    """Steps with equal tables share a matrix; decimals rounded in print are divided by their sum, with a note."""
    rows = TRANSITIONS.splitlines()[1:]
    text = "time,from,to,probability\n" + "".join(f"{t},{row}\n" for t in range(2) for row in rows)
    made = case(tmp_path, transitions=text).problem.model.transitions
    assert made[0] is made[1]
    rounded = case(tmp_path, transitions=TRANSITIONS.replace("0.9", "0.90009"))
    assert any("read as rounded" in note for note in rounded.notes)
    assert rounded.problem.model.transitions[0].sum(axis=1) == pytest.approx([1, 1], abs=1e-15)
    assert rounded.problem.model.transitions[0][0, 1] == pytest.approx(0.1 / 1.00009, rel=1e-14)
    with pytest.raises(TableError, match="do not sum to 1"):  # further off than four decimals round
        case(tmp_path, transitions=TRANSITIONS.replace("0.9", "0.90011"))
    written_in_full = case(tmp_path, transitions=TRANSITIONS.replace("0.9", "0.900000001"))
    assert not any("read as rounded" in note for note in written_in_full.notes)


def test_flows_as_transitions_on_request(tmp_path: Path) -> None:
    """Flows become transition probabilities only when the caller asks for it."""
    flows = "origin,dest,flow\npond,pond,90\npond,hill,10\nhill,pond,1\nhill,hill,3\n"
    made = case(tmp_path, transitions=flows, normalise=True).problem.model.transitions[0]
    assert np.allclose(made, [[0.9, 0.1], [0.25, 0.75]])
    with pytest.raises(TableError, match="no column for probability"):
        case(tmp_path, transitions=flows)


def test_features_and_weights(tmp_path: Path) -> None:
    """P(i, j) ∝ exp(w·f(i, j)) over the moves that have a row."""
    paths = write(tmp_path, counts=COUNTS, features="from,to,stay\npond,pond,1\npond,hill,0\nhill,hill,1\n")
    made = read_problem(paths["counts"], population=60, features=paths["features"], weights=[2.0])
    odds = np.exp(2.0)
    assert np.allclose(made.problem.model.transitions[0], [[odds / (1 + odds), 1 / (1 + odds)], [0, 1]])
    assert made.feature_names == ("stay",)
    assert any("1 of 4 moves have no row" in note for note in made.notes)
    with pytest.raises(TableError, match="2 weights for the 1 features stay"):
        read_problem(paths["counts"], population=60, features=paths["features"], weights=[2.0, 1.0])


def test_observed_flows(tmp_path: Path) -> None:
    """A table of flows is a second observation, on the edges it speaks of."""
    paths = write(tmp_path, flows="time,origin,destination,flow\n1,pond,hill,2\n")
    made = case(tmp_path, flows=paths["flows"], flow_parameters={"rate": 0.5})
    site = made.problem.sites[-1]
    assert site.scope == (1, 2)
    assert (site.index.tolist(), site.noise.counts.tolist(), site.noise.rate.tolist()) == ([1], [2.0], [0.5])


def test_a_population_far_from_the_counts_is_noted(tmp_path: Path) -> None:
    """Totals that do not fit the population are said, not mended."""
    assert any("the population is 900" in note for note in case(tmp_path, population=900).notes)
    assert not any("the population is" in note for note in case(tmp_path).notes)


def test_maps_with_two_axes(tmp_path: Path) -> None:
    """A cube over time, y and x becomes cells with places."""
    cube = xr.DataArray(
        np.arange(12.0).reshape(2, 2, 3),
        dims=("time", "y", "x"),
        coords={"time": [0, 1], "y": [0, 1], "x": [0, 1, 2]},
        name="count",
    )
    read = read_counts(cube)
    assert read.sel(time=1, cell="2,1").item() == 11
    assert read["x"].sel(cell="2,1").item() == 2


def test_places_travel_to_the_result(tmp_path: Path) -> None:
    """Coordinates beside the counts, or in a table of cells, come out with the posterior."""
    paths = write(tmp_path, cells="cell,lon,lat\nhill,7.5,47\npond,8,46.5\n")
    made = case(tmp_path, cells=paths["cells"])
    assert made.problem.model.cells == ("hill", "pond")
    result = hc.io.Result.of(hc.infer(made.problem))
    assert result.geographic
    assert result.coordinates is not None
    assert result.coordinates.values.tolist() == [["hill", 7.5, 47.0], ["pond", 8.0, 46.5]]


BIF = """network pets { }
variable season { type discrete [ 2 ] { dry, wet }; }
variable animal { type discrete [ 3 ] { cat, dog, none }; }
probability ( season ) { table 0.4, 0.6; }
probability ( animal | season ) { (dry) 0.2, 0.3, 0.5; (wet) 0.5, 0.25, 0.25; }
"""


def test_networks_with_tables(tmp_path: Path) -> None:
    """A network in BIF takes tables over whichever variables their headers name."""
    (tmp_path / "pets.bif").write_text(BIF)
    paths = write(tmp_path, one="animal,count\ncat,30\ndog,25\n", two="season,animal,count\nwet,none,12\n")
    made = read_network(tmp_path / "pets.bif", [paths["one"], paths["two"]], population=100)
    assert [site.scope for site in made.problem.sites] == [("animal",), ("season", "animal")]
    assert made.problem.sites[1].index.tolist() == [5]
    bad = write(tmp_path, one="animal,count\ncow,30\ndog,-1\n", two="season,price\nwet,12\n")
    with pytest.raises(TableError) as caught:
        read_network(tmp_path / "pets.bif", [bad["one"], bad["two"]], population=100)
    text = "\n".join(caught.value.problems)
    assert "one.csv, row 2: unknown state of 'animal'" in text
    assert "one.csv, row 3: a count cannot be negative" in text
    assert "two.csv, row 1: there is no column for count" in text


def test_moves_between_neighbours_stay_sparse(tmp_path):
    """Three hundred cells with two moves each are read as a sparse matrix, planned in megabytes, and solved with intervals."""
    from scipy.sparse import issparse

    from headcount.engines import plan

    cells, times = 300, 3
    counts, moves = tmp_path / "counts.csv", tmp_path / "moves.csv"
    seen = [f"{t},{c},{20 + (c + t) % 3}" for t in range(times) for c in range(cells)]
    counts.write_text("\n".join(["time,cell,count", *seen]) + "\n")
    steps = [line for c in range(cells) for line in (f"{c},{c},0.7", f"{c},{(c + 1) % cells},0.3")]
    moves.write_text("\n".join(["origin,dest,probability", *steps]) + "\n")
    problem = read_problem(
        counts, transitions=moves, population=21 * cells, noise="poisson", initial="counts"
    ).problem
    assert issparse(problem.model.transitions[0])
    assert problem.model.transitions[0].nnz == 2 * cells
    engine = hc.engines.TiltedEP(structure="matrix-free")
    assert plan(problem, engine, rate=1e10).memory < 1e8
    post = hc.infer(problem, engine)
    flows = post.to_frame("flows")
    assert len(flows) == 2 * cells * (times - 1)
    assert (flows["sd"] > 0).all()


def test_individuals_behind_counts_are_without_the_background():
    """(y − background)/(rate · detection)."""
    from headcount.io.tables import expected

    found = expected(
        np.array([10.0, 4.0]), {"rate": 0.5, "detection": 0.8, "background": np.array([2.0, 0.0])}
    )
    np.testing.assert_allclose(found, [20.0, 10.0])


@pytest.mark.parametrize("counts", [{0: 5, 1: 4}, {"a": 5, "b": 7}])
def test_where_nobody_can_move_no_moves_are_asked_for(counts):
    """One cell, or one time: there is nothing to say of moves, and it is noted; with several of both it is asked for."""
    one_cell = 0 in counts
    table = pd.DataFrame(
        {
            "time": list(counts) if one_cell else 0,
            "cell": "a" if one_cell else list(counts),
            "count": counts.values(),
        }
    )
    made = read_problem(table, population=12)
    assert any(f"one {'cell' if one_cell else 'time'}: nobody moves" in note for note in made.notes)
    assert made.problem.model.cells == (("a",) if one_cell else ("a", "b"))
    assert hc.infer(made.problem).status.good
    more = pd.concat([table, table.assign(time=9, cell="c")])
    with pytest.raises(TableError, match="how individuals move is missing"):
        read_problem(more, population=12)
