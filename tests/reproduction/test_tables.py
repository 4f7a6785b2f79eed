"""Tables and the comparison: arithmetic, and the same numbers in every format."""

import csv
import io
import itertools
import math
import re

import numpy as np
import pandas as pd
import pytest
from reproduction.page import difference, implied_noise, remark, table_section
from reproduction.tables import OURS, PRINTED, Cell, build, cell, to_csv, to_latex, to_markdown
from reproduction.tasks import relative_error

from reproduction import printed, table1, table2, table3


def made_up(module) -> pd.DataFrame:
    """Results with a different number in every cell, three data sets each."""
    rng = np.random.default_rng(1)
    records = []
    engines = {
        "errors": ("MAP", "Laplace", "NLBP", "TiltedEP"),
        "reference": ("PathGibbs",),
        "gibbs noise": ("",),
    }
    names = {"errors": ("error", "gibbs_error"), "reference": ("floor",), "gibbs noise": ("apart", "off")}
    for kind, setting, data_set, table in itertools.product(
        engines, module.LAYOUT.settings, range(3), ("node", "edge")
    ):
        for engine, name in itertools.product(engines[kind], names[kind]):
            records.append(
                {
                    "kind": kind,
                    "cells": setting.cells,
                    "population": setting.population,
                    "weight": setting.weight,
                    "data_set": data_set,
                    "engine": engine,
                    "quantity": f"{name}_{table}",
                    "value": rng.uniform(0.01, 0.5),
                }
            )
    return pd.DataFrame(records)


def test_printed_tables_share_their_column() -> None:
    """L = 36, N = 1080, w₁ is one column of each table, printed three times with the same numbers."""
    for row in printed.TABLE1:
        assert printed.TABLE1[row][2] == printed.TABLE2[row][1] == printed.TABLE3[row][2]
    assert table1.LAYOUT.settings[2] == table2.LAYOUT.settings[1] == table3.LAYOUT.settings[2]


@pytest.mark.parametrize("module", [table1, table2, table3])
def test_every_format_holds_the_same_numbers(module) -> None:
    """Markdown, LaTeX and CSV agree on every cell, and every cell is filled."""
    table = build(module.LAYOUT, made_up(module))
    count = len(table.lines) * len(table.columns)
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert len(rows) == count
    number = re.compile(r"(\d*\.\d+)(?: ± |\$\\pm\$)(\d*\.\d+)")
    markdown, latex = number.findall(to_markdown(table)), number.findall(to_latex(table))
    assert markdown == latex
    assert len(markdown) == count
    for row, (mean, sd) in zip(rows, markdown, strict=True):
        assert float(row["mean"]) == pytest.approx(float(mean), abs=6e-4)
        assert float(row["sd"]) == pytest.approx(float(sd), abs=6e-4)


def test_a_cell_is_mean_and_sample_deviation() -> None:
    """Mean and sd (n − 1) over the data sets of one setting, engine and quantity, of no other; None without any."""
    frame = made_up(table1)
    setting = table1.LAYOUT.settings[1]
    found = cell(frame, "errors", setting, "MAP", "error_node")
    values = frame[
        (frame.kind == "errors")
        & (frame.population == 360)
        & (frame.engine == "MAP")
        & (frame.quantity == "error_node")
    ].value
    assert len(values) == 3
    assert found == Cell(pytest.approx(values.mean()), pytest.approx(np.std(values, ddof=1)), 3)
    assert cell(frame, "errors", setting, "Nobody", "error_node") is None


def test_differences_are_in_standard_errors() -> None:
    """(a − b)/√(s²/n + t²/m)."""
    assert difference(Cell(0.5, 0.3, 9), Cell(0.2, 0.4, 16)) == pytest.approx(0.3 / math.hypot(0.1, 0.1))
    assert implied_noise(Cell(0.3, 0.1, 10), Cell(0.5, 0.1, 10)) == pytest.approx(0.4)
    assert implied_noise(Cell(0.5, 0.1, 10), Cell(0.3, 0.1, 10)) == 0


@pytest.mark.parametrize(
    ("method", "ours", "printed_mean", "noise", "said"),
    [
        ("MAP", 0.100, 0.101, 0.0, ""),
        ("GCGM", 0.300, 0.100, 0.0, "Ours is higher"),
        ("GCGM", 0.030, 0.050, 0.0, "noise of about .04"),
        ("MAP", 0.030, 0.050, 0.04, "no more than the GCGM row implies"),
        ("MAP", 0.010, 0.100, 0.04, "10 times less"),
    ],
)
def test_a_disagreement_gets_the_sentence_that_fits(method, ours, printed_mean, noise, said) -> None:
    """Agreement within two standard errors needs no sentence; otherwise noise, optimum or features are named."""
    text = remark(method, Cell(ours, 0.003, 10), Cell(printed_mean, 0.003, 10), noise=noise, off=None)
    assert said in text
    assert (text == "") == (said == "")


@pytest.mark.parametrize("module", [table1, table2, table3])
def test_the_page_names_every_printed_number(module) -> None:
    """One line for every printed number, in the section of its table."""
    frame = made_up(module)
    table = build(module.LAYOUT, frame)
    text = table_section(table, frame, quick=False)
    lines = [line for line in text.splitlines() if re.search(r"\| [+-]\d+\.\d \|", line)]
    assert len(lines) == 4 * len(table.columns)
    for line in (x for x in table.lines if x.group == PRINTED):
        for column, c in zip(table.columns, line.cells, strict=True):
            assert sum(f"| {column} | {line.label} | {c.text()} |" in found for found in lines) == 1
    assert table.line(OURS, "GCGM", "edge").cells[0].text() in text


def test_relative_error() -> None:
    """‖a − b‖₁/‖b‖₁: 0 for equal tables, 2 for disjoint ones of the same total."""
    a, b = np.array([[3.0, 0.0], [1.0, 2.0]]), np.array([[2.0, 1.0], [1.0, 2.0]])
    assert relative_error(a, a) == 0
    assert relative_error(a, b) == pytest.approx(2 / 6)
    assert relative_error(np.array([4.0, 0.0]), np.array([0.0, 4.0])) == 2
