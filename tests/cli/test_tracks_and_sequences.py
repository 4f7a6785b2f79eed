"""Tags and several years on the command line: what is read, learned, written and refused."""

from pathlib import Path

import pandas as pd
import pytest
from tests.cli.test_commands import run
from tests.io.small_tables import COUNTS, TRANSITIONS, write

import headcount as hc
from headcount.io import Case, TableError, load_result, read_problem, read_sequences


def world(folder: Path, seed: int) -> pd.DataFrame:
    """The counts of a small world of birds, whose tables are in the folder."""
    words = [
        "simulate",
        "birds",
        "--side",
        2,
        "--population",
        80,
        "--steps",
        4,
        "--seed",
        seed,
        "--out",
        folder,
    ]
    assert run(*words)[0] == 0
    return pd.read_csv(folder / "counts.csv")


def test_tracks_are_read_under_the_labels_of_the_counts(tmp_path: Path) -> None:
    """A table of tags in any spelling becomes Tracks with the chain's times and cells; an sd uses the places of the cells."""
    paths = write(tmp_path, counts=COUNTS, transitions=TRANSITIONS)
    tags = pd.DataFrame({"Tag": ["a", "a", "b"], "Date": [0, 2, 1], "site": ["pond", "hill", "hill"]})
    common = {"population": 60, "transitions": paths["transitions"], "initial": "uniform"}
    for counted in (True, False):
        problem = read_problem(paths["counts"], tracks=tags, tracks_counted=counted, **common).problem
        known = problem.records[counted][None]
        assert known is not None
        assert known.ids == ("a", "b")
        assert known.seen[2][1].toarray().tolist() == [[0.0, 1.0]]
    cells = pd.DataFrame({"cell": ["pond", "hill"], "x": [0.0, 1.0], "y": [0.0, 0.0]})
    vague = tags.assign(sd=[0.5, None, None])
    problem = read_problem(paths["counts"], tracks=vague, cells=cells, **common).problem
    assert problem.records[True][None].seen[0][1].toarray()[0].min() > 0


def test_wrong_tracks_are_reported_together(tmp_path: Path) -> None:
    """Unknown times and cells are reported with their rows, at once; no id column is said so."""
    paths = write(tmp_path, counts=COUNTS, transitions=TRANSITIONS)
    common = {"population": 60, "transitions": paths["transitions"]}
    bad = pd.DataFrame({"id": ["a", "a"], "time": [0, 9], "cell": ["moon", "hill"]})
    with pytest.raises(TableError) as caught:
        read_problem(paths["counts"], tracks=bad, **common)
    assert {"unknown cell", "unknown time"} <= {text.split(": ")[1] for text in caught.value.problems}
    with pytest.raises(TableError, match="no column for id"):
        read_problem(paths["counts"], tracks=bad.drop(columns="id"), **common)


def test_infer_and_fit_with_tracks(tmp_path: Path) -> None:
    """--tracks and --tracks-apart change the answer, and the result names them."""
    world(tmp_path, 3)
    pd.DataFrame({"id": 7, "time": [0, 1, 2], "cell": [0, 3, 3]}).to_csv(tmp_path / "tags.csv", index=False)
    common = [
        tmp_path / "counts.csv", "--features", tmp_path / "features.csv.gz", "--population", 80,
        "--initial", tmp_path / "initial.csv", "--tracks", tmp_path / "tags.csv",
    ]  # fmt: skip
    code, said = run("infer", *common, "--weights", "1,2,2,2", "--out", tmp_path / "in")
    assert code == 0, said
    assert "Tracks" in load_result(tmp_path / "in").attributes["observations"]
    flows = load_result(tmp_path / "in").flows
    seen = flows[(flows["time"] == 0) & (flows["origin"] == 0) & (flows["dest"] == 3)]
    assert float(seen["lower"].iloc[0]) >= 1
    code, said = run("fit", *common, "--tracks-apart", "--out", tmp_path / "fit")
    assert code == 0, said


def test_fit_learns_from_several_sequences(tmp_path: Path) -> None:
    """A column sequence makes one fit of several years; each has a folder, and the weights are those of the Python fit."""
    years = {"2019": world(tmp_path / "a", 1), "2020 b": world(tmp_path / "b", 2)}
    counts = pd.concat([table.assign(sequence=key) for key, table in years.items()])
    features = [
        pd.read_csv(tmp_path / k / "features.csv.gz").assign(sequence=key)
        for k, key in zip("ab", years, strict=True)
    ]
    counts.to_csv(tmp_path / "counts.csv", index=False)
    pd.concat(features).to_csv(tmp_path / "features.csv", index=False)
    initial = tmp_path / "a" / "initial.csv"
    words = [
        tmp_path / "counts.csv",
        "--features",
        tmp_path / "features.csv",
        "--population",
        80,
        "--initial",
        initial,
    ]
    code, said = run("fit", *words, "--out", tmp_path / "out")
    assert code == 0, said
    results = [load_result(tmp_path / "out" / name) for name in ("2019", "2020 b")]
    assert [r.attributes["sequence"] for r in results] == list(years)
    pd.testing.assert_frame_equal(results[0].weights, results[1].weights)
    cases = read_sequences(counts, features=pd.concat(features), population=80, initial=initial)
    assert list(cases) == list(years)
    made = hc.fit(
        [hc.LogisticChain(c.features, names=c.feature_names, mask=c.mask) for c in cases.values()],
        [c.problem for c in cases.values()],
    )
    assert results[0].weights["weight"].tolist() == pytest.approx(made.weights.values.tolist(), rel=1e-6)
    _infer_each(words, cases, tmp_path / "each")
    with pytest.raises(TableError, match="no sequence '2021'"):
        read_sequences(counts, features=features[0].assign(sequence=2021), population=80)


def _infer_each(words: list[object], cases: dict[str, Case], out: Path) -> None:
    """Infer makes one folder per sequence, here or in processes, with the answers of Python; what is finished is not repeated."""
    words = ["infer", *words, "--weights", "1,2,2,2", "--out", out]
    code, said = run(*words, "--workers", 2)
    assert code == 0, said
    assert "2 of 2 sequences written" in said
    written = {key: (out / key / "posterior.nc").stat().st_mtime_ns for key in cases}
    code, said = run(*words)
    assert code == 0, said
    assert written == {key: (out / key / "posterior.nc").stat().st_mtime_ns for key in cases}
    for key in cases:
        result = load_result(out / key)
        assert result.attributes["sequence"] == key
        assert result.attributes["good"]
    for command in ("plan", "check"):
        code, said = run(command, *words[1:-2])
        assert code == 0, said
        assert "2 sequences" in said or said.count("nothing is wrong") == 2
    together = pd.read_csv(out / "all_nodes.csv", dtype={"sequence": str})
    assert together.groupby("sequence").size().tolist() == [
        len(load_result(out / key).nodes) for key in sorted(cases)
    ]
    assert pd.read_csv(out / "sequences.csv")["status"].tolist() == ["converged"] * len(cases)
    code, said = run(*words, "--report")
    assert code == 2
    assert "--report are for one sequence" in said


@pytest.mark.parametrize("option", [("--workers", 2), ("--cluster", "tcp://127.0.0.1:1")])
def test_one_sequence_is_not_shared_out(option: tuple[object, ...], tmp_path: Path) -> None:
    """Workers and a cluster are for several sequences; with one they are refused, not ignored."""
    paths = write(tmp_path, counts=COUNTS, transitions=TRANSITIONS)
    words = ["infer", paths["counts"], "--transitions", paths["transitions"], "--population", 60]
    code, said = run(*words, "--out", tmp_path / "out", *option)
    assert code == 2
    assert "these counts are one" in said
    assert not (tmp_path / "out").exists()
