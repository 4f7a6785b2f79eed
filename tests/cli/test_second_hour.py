"""What people who stay ask for: features by a formula, recoveries between count days, renamed sites, matrices of trips."""

from pathlib import Path

import numpy as np
import pandas as pd
from tests.cli.test_commands import run
from tests.io.small_tables import COUNTS, write

import headcount as hc
from headcount.io import read_problem

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
