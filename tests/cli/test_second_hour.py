"""What people who stay ask for: features by a formula, recoveries between count days, renamed sites, matrices of trips."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.cli.test_commands import run
from tests.io.small_tables import COUNTS, TRANSITIONS, write

import headcount as hc
from headcount.cli import _show
from headcount.cli._run import _with_room
from headcount.cli._show import as_options
from headcount.io import TableError, _many, load_result, read_problem
from headcount.io import write as write_module

SITES = "Ort;Rechtswert;Hochwert;habitat;Höhe ü. M.\npond;0,5;0;wet;3,5\nhill;3,5;4;dry;120\n"


def test_a_formula_makes_the_features_of_a_table_of_moves(tmp_path: Path) -> None:
    """``--features`` takes the formula of `headcount.features`: the same arrays, with the reader's decimals, spellings and notes."""
    paths = write(tmp_path, counts=COUNTS, sites=SITES)
    formula = "stay + log(distance) + habitat_to + Höheü.M._to"
    case = read_problem(paths["counts"], population=60, cells=paths["sites"], features=formula)
    table = pd.DataFrame(
        {
            "cell": ["pond", "hill"],
            "x": [0.5, 3.5],
            "y": [0, 4],
            "habitat": ["wet", "dry"],
            "Höhe ü. M.": [3.5, 120],
        }
    )
    same = hc.features(table, formula)
    np.testing.assert_array_equal(case.features, same.values)
    assert case.feature_names == tuple(same.coords["feature"].values)
    assert any("habitat: with 'wet'" in note for note in case.notes)
    words = [paths["counts"], "--cells", paths["sites"], "--features", formula, "--population", 60]
    code, said = run("infer", *words, "--weights", "2,-1,0,0", "--out", tmp_path / "out")
    assert code == 0, said


def test_wrong_formulas_are_said_in_words(tmp_path: Path) -> None:
    """Every misspelt term is named with the nearest known one; without --cells the formula says what it needs; a file is no formula."""
    paths = write(tmp_path, counts=COUNTS, sites=SITES)
    words = ["check", paths["counts"], "--population", 60]
    code, said = run(*words, "--cells", paths["sites"], "--features", "stay + distnce + habitt_to")
    assert code == 2
    assert "(did you mean 'distance'?)" in said
    assert "(did you mean 'habitat_to'?)" in said
    code, said = run(*words, "--features", "stay + distance")
    assert code == 2
    assert "--cells FILE" in said
    assert "no such file" in run(*words, "--features", tmp_path / "moves.csv")[1]
    holes = write(tmp_path, holes=SITES.replace("dry;120", ";"))["holes"]
    code, said = run(*words, "--cells", holes, "--features", "habitat_to + Höheü.M._to")
    assert "habitat of the cells is empty" in said
    assert "Höhe ü. M. of the cells is empty" in said


DATED = (
    COUNTS.replace("\n0,", "\n2024-03-03,").replace("\n1,", "\n2024-03-10,").replace("\n2,", "\n2024-03-17,")
)
RINGS = "Ring,ringed,from_cell,recovered,to_cell\nA,2024-03-03,pond,2024-03-12,hill\nB,2024-03-08,hill,2024-03-18,hill\n"


def test_recoveries_snap_to_the_times_of_the_counts(tmp_path: Path) -> None:
    """Recoveries are read as tracks of two positions; dates between count days move to the nearest within --snap, said with numbers."""
    paths = write(tmp_path, counts=DATED, transitions=TRANSITIONS, rings=RINGS)
    words = ["check", paths["counts"], "--transitions", paths["transitions"], "--population", 60]
    words += ["--tracks", paths["rings"]]
    code, said = run(*words)
    assert code == 2
    assert "unknown time: 3 of 4 are none of the counts'" in said
    assert "at most 2 days from the nearest: have these moved to it (--snap 2d)" in said
    other = write(tmp_path, other="Ring,am,in,dann,dort\n" + RINGS.partition("\n")[2])
    code, said = run(*words[:-1], other["other"])
    assert code == 2
    assert "from_time, from_cell, to_time, to_cell (a row per recovery)" in said
    assert "--column from_time=Ring …" in said
    code, said = run(*words, "--snap", "1d")
    assert code == 2
    assert "further than 1d from every time of the counts" in said
    code, said = run(*words, "--snap", "soon")
    assert "give a length of time (3d or 12h), got 'soon'" in said
    code, said = run(*words, "--snap", "2d")
    assert code == 0, said
    assert (
        "3 of 4 times lie between the times of the counts and are moved to the nearest, by 2 days in the"
        in said
    )
    common = {"population": 60, "transitions": paths["transitions"], "initial": "uniform"}
    known = read_problem(paths["counts"], tracks=paths["rings"], snap="2d", **common).problem.records[True][
        None
    ]
    assert known.ids == ("A", "B")
    assert {t: [rows.tolist(), p.toarray().tolist()] for t, (rows, p) in known.seen.items()} == {
        0: [[0], [[1.0, 0.0]]],
        1: [[0, 1], [[0.0, 1.0], [0.0, 1.0]]],
        2: [[1], [[0.0, 1.0]]],
    }


def test_two_positions_at_one_time_leave_the_nearer(tmp_path: Path) -> None:
    """Where snapping brings two positions of an individual to one time, the one nearer to it is kept, with a note."""
    rings = RINGS.replace("2024-03-12", "2024-03-04").replace("Ring,", "").replace("A,", "").replace("B,", "")
    paths = write(tmp_path, counts=DATED, transitions=TRANSITIONS, rings=rings)
    case = read_problem(
        paths["counts"],
        population=60,
        transitions=paths["transitions"],
        initial="uniform",
        tracks=paths["rings"],
        snap="2d",
    )
    assert case.problem.records[True][None].seen[0][1].toarray().tolist() == [[1.0, 0.0]]
    assert any("1 positions come to a time" in note for note in case.notes)
    lacking = pd.read_csv(paths["rings"]).drop(columns="to_cell")
    with pytest.raises(TableError, match="no column for to_cell"):
        read_problem(paths["counts"], population=60, transitions=paths["transitions"], tracks=lacking)


MARGINS = "zone,entries,exits\na,30,20\nb,20,25\nc,10,15\n"
OLD = "zone,a,b,c\na,0,12,0\nb,8,0,6\nc,4,0,0\n"
LINE = "screenline,origin,dest\neast,a,c\neast,b,a\n"


def trips(tmp_path: Path, **more: str) -> tuple[dict[str, Path], list[object]]:
    """The files of a small matrix of trips, and the words that read them."""
    paths = write(
        tmp_path,
        **{"margins": MARGINS, "old": OLD, "line": LINE, "counted": "screenline,count\neast,21\n"} | more,
    )
    return paths, [paths["margins"], "--old-matrix", paths["old"], "--noise", "exact"]


def surveyed(seed: int) -> tuple[dict[str, str], np.ndarray]:
    """Totals of today's trips between 12 zones and a survey of 2 % of other years' as tables, and today's trips."""
    rng = np.random.default_rng(seed)
    zones = [f"z{k}" for k in range(12)]
    places, sizes = rng.uniform(0.0, 20.0, (12, 2)), rng.lognormal(0.0, 1.0, (2, 12))
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    usual = np.outer(*sizes) * np.exp(-apart / 5.0) * ~np.eye(12, dtype=bool)
    old = rng.binomial(rng.poisson(60_000 * usual / usual.sum()), 0.02) * 50
    now = usual * np.exp(0.3 * rng.standard_normal((12, 12)))
    trips = rng.poisson(66_000 * now / now.sum())
    totals = zip(zones, trips.sum(axis=1), trips.sum(axis=0), strict=True)
    rows = (f"{z},{','.join(map(str, row))}\n" for z, row in zip(zones, old, strict=True))
    tables = {
        "margins": "zone,entries,exits\n" + "".join(f"{z},{out},{into}\n" for z, out, into in totals),
        "old": f"zone,{','.join(zones)}\n{''.join(rows)}",
    }
    return tables, trips


def test_how_far_an_old_matrix_is_off_is_learned(tmp_path: Path) -> None:
    """Unasked the data agree and most intervals hold the truth; taken as true the old matrix is said to disagree, and they do not."""

    def covered(problem: hc.Problem, trips: np.ndarray) -> tuple[bool | None, float]:
        posterior = hc.infer(problem)
        flows = posterior.to_frame("flows")
        true = trips[flows["origin"].str[1:].astype(int), flows["dest"].str[1:].astype(int)]
        inside = (flows["lower"] <= true) & (true <= flows["upper"])
        return posterior.fit_check.agrees, float(inside.mean())

    found = []
    for seed in (1, 2, 3):
        tables, trips = surveyed(seed)
        paths = write(tmp_path, **tables)
        case = read_problem(paths["margins"], population=None, old_matrix=paths["old"], noise="exact")
        assert "how far today's shares are from those of the old matrix is learned" in " ".join(case.notes)
        agrees, share = covered(case.problem, trips)
        alone, held = covered(case.problem.with_dispersion("alone"), trips)
        assert agrees is not False
        assert alone is False
        found.append((share, held))
    learned, taken = np.mean(found, axis=0)
    assert learned > 0.7  # asked .9: one number stands for errors that differ from pair to pair
    assert taken < 0.4
    words = (paths["margins"], "--old-matrix", paths["old"], "--noise", "exact", "--dispersion", "alone")
    said = run("infer", *words, "--out", tmp_path / "out")[1]
    assert "times more than the model allows" in said
    assert "e+0" not in said


def test_zeros_of_an_old_matrix_are_rare_unless_they_are_forbidden(tmp_path: Path) -> None:
    """Pairs without trips get half the smallest entry, with a note; an empty diagonal stays impossible; ``impossible`` keeps all zeros."""
    paths, words = trips(tmp_path)
    case = read_problem(paths["margins"], population=None, old_matrix=paths["old"], noise="exact")
    shares = np.array([[0, 12, 2], [8, 0, 6], [4, 2, 0]])
    np.testing.assert_allclose(case.problem.model.transitions[0], shares / shares.sum(axis=1, keepdims=True))
    assert case.problem.population == 60
    (note,) = [note for note in case.notes if "taken as rare" in note]
    assert (
        "2 of 9 pairs have no trips in it and are taken as rare, 2 each, half the smallest entry (11.8% of"
        in note
    )
    assert "trips inside a cell are impossible" in note
    shut = read_problem(
        write(tmp_path, fair="zone,entries,exits\na,30,24\nb,20,30\nc,10,6\n")["fair"],
        population=60,
        old_matrix=paths["old"],
        noise="exact",
        zeros="impossible",
    )
    assert (shut.problem.model.transitions[0] == 0).sum() == 5
    assert any("2 of 9 pairs have no trips in it and are taken as impossible" in note for note in shut.notes)
    assert "give small or impossible, got 'none'" in run("check", *words, "--zeros", "none")[1]
    _, said = run("check", paths["margins"], "--transitions", paths["old"], "--normalise", "--population", 60)
    assert "5 of 9 moves are 0 and are taken as impossible" in said


@pytest.mark.parametrize("asked", [(), ("entries", "exits")])
def test_totals_are_known_in_other_languages_and_by_name(tmp_path: Path, asked: tuple[str, ...]) -> None:
    """Entrées and sorties are entries and exits, and so are columns that the caller says; the words are the times' and the cells'."""
    words = ("Générés", "Reçus") if asked else ("Entrées", "Sorties")
    margins = ";".join(("Zone", "Nom", *words)) + "\na;Nord;1 030;1 020\nb;Ost;20;25\nc;West;10;15\n"
    paths = write(tmp_path, margins=margins, zones="Zone;Nom\na;Nord\nb;Ost\nc;West\n", old=OLD)
    case = read_problem(
        paths["margins"],
        old_matrix=paths["old"],
        noise="exact",
        cells=paths["zones"],
        population=None,
        columns=dict(zip(asked, words, strict=False)),
    )
    assert case.problem.model.variables == (asked or words)
    assert case.problem.population == 1060
    assert case.names == {"a": "Nord", "b": "Ost", "c": "West"}
    if asked:
        with pytest.raises(TableError, match="have the columns entries and exits"):
            read_problem(paths["margins"], population=None, old_matrix=paths["old"], noise="exact")


def test_sums_of_flows_are_observed(tmp_path: Path) -> None:
    """Flows agree with both margins and with the count of a screenline, beside its pairs or apart; changes hold the old matrix beside."""
    paths, words = trips(tmp_path)
    told = ["--sums", paths["line"], "--sum-counts", paths["counted"], "--flow-noise", "exact"]
    told += ["--cells", write(tmp_path, zones="cell,name\na,Nord\nb,Ost\nc,West\n")["zones"]]
    code, said = run("infer", *words, *told, "--out", tmp_path / "out")
    assert code == 0, said
    flows = load_result(tmp_path / "out").flows.set_index(["origin", "dest"])["mean"]
    assert flows["a", "c"] + flows["b", "a"] == pytest.approx(21)
    assert flows.groupby("origin").sum().tolist() == pytest.approx([30, 20, 10])
    table = pd.read_csv(tmp_path / "out" / "changes.csv").set_index(["origin", "dest"])
    assert table.loc[("a", "b"), "before"] == 12
    assert table.loc[("a", "b"), ["origin_name", "dest_name"]].tolist() == ["Nord", "Ost"]
    np.testing.assert_allclose(table["change"], table["mean"] - table["before"])
    beside = pd.read_csv(paths["line"]).assign(count=[21, np.nan])
    case = read_problem(
        paths["margins"],
        population=60,
        old_matrix=paths["old"],
        noise="exact",
        sums=beside,
        flow_noise="exact",
    )
    assert [len(site) for site in case.problem.sites if len(site.scope) == 2] == [1]


def test_wrong_trips_are_reported_together(tmp_path: Path) -> None:
    """Totals that disagree, unknown sums, two counts of one sum and unknown zones are said at once, in the options of the command line."""
    paths, words = trips(tmp_path, margins=MARGINS.replace("15", "16"), line=LINE.replace("b,a", "b,moon"))
    write(tmp_path, counted="sum,count\neast,14\neast,15\nwest,3\n")
    code, said = run("check", *words, "--sums", paths["line"], "--sum-counts", paths["counted"])
    assert code == 2
    for part in (
        "the totals disagree, 60 entries and 61 exits",
        "unknown sum",
        "unknown destination",
        "has 2 rows",
    ):
        assert part in said
    assert "--sums FILE" in run("check", *words, "--sum-counts", paths["counted"])[1]
    assert "--sum-counts FILE" in run("check", *words, "--sums", paths["line"])[1]
    assert "give one" in run("check", *words, "--features", "stay")[1]


def test_wide_is_for_the_files_that_are_wide(tmp_path: Path) -> None:
    """With --wide a long table of counts is read as it is, and a square matrix of moves needs no option."""
    matrix = "from,pond,hill\npond,0.9,0.1\nhill,0.25,0.75\n"
    paths = write(tmp_path, counts=COUNTS, matrix=matrix)
    words = ["check", paths["counts"], "--transitions", paths["matrix"], "--population", 60]
    for more in ([], ["--wide"]):
        code, said = run(*words, *more)
        assert code == 0, said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("say so (thousands='.', --thousands .)", "say so (--thousands .)"),
        (
            'learns how much: dispersion="estimate" (--dispersion estimate).',
            "learns how much: --dispersion estimate.",
        ),
        ("say which (columns={'count': 'n'}, --column count=n)", "say which (--column count=n)"),
        (
            "no longer falls; try TiltedEP(damping=0.3), MAP or PathGibbs",
            "no longer falls; try --engine TiltedEP --set damping=0.3, --engine MAP or --engine PathGibbs --seed 1",
        ),
        ("raise max_iterations, or loosen", "raise --set max_iterations=…, or loosen"),
    ],
)
def test_messages_speak_the_language_of_the_command_line(text: str, said: str) -> None:
    """Where a message names an argument of Python beside the option, the command line says the option alone."""
    assert as_options(text) == said


def test_renamed_cells_are_asked_about_and_given_new_names(tmp_path: Path) -> None:
    """An unknown cell comes with the nearest known one and the option that renames it; names are changed in every table, with a note."""
    paths = write(
        tmp_path,
        counts=COUNTS.replace("1,pond", "1,Pond-"),
        transitions=TRANSITIONS,
        names="old,new\nPond-,pond\nBerg,hill\n",
        rings="id,time,cell\nA,0,Berg\n",
    )
    words = ["check", paths["counts"], "--transitions", paths["transitions"], "--population", 60]
    code, said = run(*words)
    assert code == 2
    assert "did you mean 'pond' for 'Pond-' (--alias Pond-=pond)?" in said
    code, said = run(*words, "--alias", "Pond-=pond")
    assert code == 0, said
    assert "counts.csv: 'Pond-' is read as 'pond'" in said
    code, said = run(*words, "--alias", paths["names"], "--tracks", paths["rings"])
    assert code == 0, said
    assert "rings.csv: 'Berg' is read as 'hill'" in said
    assert "--alias takes NAME=VALUE" in run(*words, "--alias", "a=b", "--alias", "c")[1]


@pytest.mark.parametrize(
    ("written", "number", "bound"),
    [
        *(("ca. 33", 33, None), ("~33", 33, None), ("etwa 33", 33, None)),
        *(
            (">33", None, (34, 1)),
            ("33+", None, (33, 1)),
            ("≤ 33", None, (33, -1)),
            ("unter 33", None, (32, -1)),
        ),
    ],
)
def test_approximate_numbers_and_bounds_are_read_as_what_they_are(
    written: str, number: float | None, bound: tuple[int, int] | None, tmp_path: Path
) -> None:
    """``ca. 33`` is 33; ``>33`` is a bound of whatever noise, or what --bounds says; each is noted."""
    paths = write(tmp_path, counts=COUNTS.replace("33", written), transitions=TRANSITIONS)

    def read(**how: object) -> tuple[float, str, hc.Problem]:
        case = read_problem(paths["counts"], population=60, transitions=paths["transitions"], **how)
        return (
            float(case.problem.observations[0].counts.values[1, 0]),
            " ".join(case.notes),
            case.problem,
        )

    found, said, problem = read()
    if number is not None:
        assert found == number
        assert f"{written!r} in count (1 rows) is read as the number" in said
        return
    assert np.isnan(found)
    assert f"{written!r} in count (1 rows) is read as a bound" in said
    sites = [site for site in problem.sites if isinstance(site.noise, hc.Censored)]
    assert [(site.noise.counts.tolist(), site.noise.side.tolist()) for site in sites] == [
        ([bound[0]], [bound[1]])
    ]
    _, _, problem = read(noise="gaussian", parameters={"sd": 2.0})  # a reading above 60 need not be 61
    (site,) = [site for site in problem.sites if site.noise.bound]
    assert (site.noise.counts.tolist(), site.noise.side.tolist()) == ([33.0], [bound[1]])
    assert site.noise.name == "Censored Gaussian"
    assert read(bounds="number")[0] == 33
    found, said, _ = read(bounds="missing")
    assert np.isnan(found)
    assert f"{written!r} in count (1 rows) is read as missing" in said


def years(tmp_path: Path, bad: str = "") -> list[object]:
    """Three years of counts as words of a command line, one of which may be spoilt; each has a population of its own."""
    rows = COUNTS.splitlines()
    text = "sequence," + rows[0] + "\n"
    for year in (2022, 2023, 2024):
        own = "\n".join(f"{year},{row}" for row in rows[1:]) + "\n"
        text += own.replace("33", "-3") if str(year) == bad else own
    paths = write(
        tmp_path,
        years=text,
        transitions=TRANSITIONS,
        sizes="sequence,population\n2022,60\n2023,unknown\n2024,55..65\n",
    )
    return [
        paths["years"],
        "--transitions",
        paths["transitions"],
        "--population",
        paths["sizes"],
        "--initial",
        "uniform",
    ]


def test_a_fault_of_many_sequences_is_said_once(tmp_path: Path) -> None:
    """What is wrong with all sequences alike is one line with their number; what is wrong with one of them names it."""
    words = years(tmp_path, bad="2023")
    table = Path(str(words[0]))
    table.write_text(table.read_text(encoding="utf-8").replace(",1,", ",1.5,"), encoding="utf-8")
    said = run("check", *words)[1]
    assert said.count("3 sequences (2022, 2023, 2024): ") == 1
    assert said.count("sequence 2023: ") == 1
    assert "sequence 2022: " not in said


def test_every_sequence_has_its_population_and_a_bad_one_does_not_stop_the_others(tmp_path: Path) -> None:
    """``--population`` takes a table by sequence; a sequence that cannot be read is named at the end, and the others are written."""
    code, said = run("check", *years(tmp_path))
    assert code == 0, said
    assert "population 60;" in said
    assert "from 55 to 65" in said or "55..65" in said or "between 55 and 65" in said
    words = [*years(tmp_path, bad="2023"), "--out", tmp_path / "out"]
    code, said = run("infer", *words)
    assert code == 2
    assert "2 of 2 sequences written" in said
    assert "1 of 3 sequences cannot be read: • sequence 2023:" in said
    assert sorted(p.name for p in (tmp_path / "out").iterdir() if p.is_dir()) == ["2022", "2024"]
    assert set(pd.read_csv(tmp_path / "out" / "all_flows.csv")["sequence"]) == {2022, 2024}
    found = pd.read_csv(tmp_path / "out" / "sequences.csv").set_index("sequence")
    assert {year for year, status in found["status"].items() if status == "failed"} == {2023}
    assert "a count" in found["failure"][2023]
    for command in ("check", "plan"):
        assert run(command, *words[:-2])[0] == 2
    lacking = write(tmp_path, lacking="sequence,population\n2022,60\n2021,60\n")["lacking"]
    code, said = run("check", *[lacking if str(w).endswith("sizes.csv") else w for w in words[:-2]])
    assert code == 2
    assert "the counts have no sequence '2021'" in said


def test_an_interrupt_says_how_far_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C among several sequences says how many are done; the same command goes on with the others."""
    words = [*years(tmp_path), "--out", tmp_path / "out"]
    task = _many.Task.run

    def run_two(self: _many.Task) -> _many.Answer:
        if (tmp_path / "out" / "2023" / "manifest.json").exists():
            raise KeyboardInterrupt
        return task(self)

    monkeypatch.setattr(_many.Task, "run", run_two)
    code, said = run("infer", *words)
    assert code == 130
    assert "Interrupted: 2 of 3 done; run the same command again to go on." in said
    monkeypatch.undo()
    code, said = run("infer", *words)
    assert code == 0, said
    assert "3 of 3 sequences written" in said


def test_tracked_individuals_that_do_not_fit_in_memory_are_taken_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few tracked individuals are kept among the counted where their tables fit, and by themselves, with a note, where they do not."""
    paths = write(tmp_path, counts=COUNTS, transitions=TRANSITIONS, tags="id,time,cell\nA,0,pond\nA,2,hill\n")
    case = read_problem(
        paths["counts"],
        population=60,
        transitions=paths["transitions"],
        tracks=paths["tags"],
        initial="uniform",
    )
    assert _with_room(case).problem.records[True]
    monkeypatch.setattr("headcount.memory.limit", lambda: 1000)
    alone = _with_room(case)
    assert not alone.problem.records[True]
    assert "the limit is 1 kB" in alone.notes[-1]
    many = replace(case, problem=case.problem.with_population(49))  # one of 49 is more than 2 %
    assert _with_room(many).problem.records[True]


def test_a_plan_without_weights_is_that_of_a_fit(tmp_path: Path) -> None:
    """``plan`` with features and no weights predicts learning; with weights it predicts an inference, which is quicker."""
    paths = write(tmp_path, counts=COUNTS, sites=SITES)
    words = [
        "plan",
        paths["counts"],
        "--population",
        60,
        "--cells",
        paths["sites"],
        "--features",
        "stay + distance",
    ]
    code, said = run(*words)
    assert code == 0
    assert "the plan of headcount fit" in said
    assert "to learn" in " ".join(said.split())
    code, said = run(*words, "--weights", "1,1")
    assert code == 0
    assert "to learn" not in " ".join(said.split())


def test_the_memory_limit_holds_while_results_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that holds more than --memory-limit while it writes is stopped, says so with both numbers, and leaves no folder."""
    paths = write(tmp_path, counts=COUNTS, transitions=TRANSITIONS)
    words = ["infer", paths["counts"], "--transitions", paths["transitions"], "--population", 60]
    monkeypatch.setattr(
        _show, "held_memory", lambda: (3 * 10**9 if _show._now.phase == "writing" else 10**8, 0)
    )
    monkeypatch.setattr(_show, "WATCH_EVERY", 0.001)
    put = write_module.put_frames

    def put_slowly(*given: Any, **options: Any) -> None:
        """As long as a large table takes: until the watch has looked, which it does every millisecond here."""
        until = time.monotonic() + 10
        while not _show._now.stopped_at and time.monotonic() < until:
            time.sleep(0.001)
        put(*given, **options)

    with monkeypatch.context() as slow:
        slow.setattr(write_module, "put_frames", put_slowly)
        code, said = run(*words, "--out", tmp_path / "out", "--memory-limit", "1GB")
    assert code == 3
    assert "Stopped while writing: the command held 3 GB, and the limit is 1 GB" in said
    assert "nothing was written" in said
    assert not (tmp_path / "out").exists()
    code, said = run(*words, "--out", tmp_path / "out")
    assert code == 0, said


def test_what_a_process_held_before_is_not_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that held 2 GB when the command began, and holds no more, is not stopped for a limit of 2 kB."""
    looks: list[int] = []
    monkeypatch.setattr(_show, "held_memory", lambda: (2 * 10**9, looks.append(0) or 0))
    monkeypatch.setattr(_show, "WATCH_EVERY", 0.001)
    until = time.monotonic() + 10
    with _show._watching("2kB"):
        while len(looks) < 5 and time.monotonic() < until:
            time.sleep(0.001)
    assert len(looks) >= 5
    assert _show._now.stopped_at == 0
