"""Dates as people write them: what a text means among labels, and how short a label can be."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest

import headcount as hc
from headcount.dates import find_date, month_of, parse_date, readable, short_labels
from headcount.errors import shown

WEEKS = [pd.Timestamp("2023-03-05") + pd.Timedelta(days=7 * k) for k in range(6)]


def days(*texts: str) -> list[pd.Timestamp]:
    return [pd.Timestamp(t) for t in texts]


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        (days("2023-03-05", "2023-03-12"), ["5 Mar", "12 Mar"]),
        (days("2023-12-31", "2024-01-07"), ["31 Dec 2023", "7 Jan 2024"]),
        (days("2023-03-01", "2023-04-01"), ["Mar", "Apr"]),
        (days("2023-12-01", "2024-01-01"), ["Dec 2023", "Jan 2024"]),
        (days("2023-01-01", "2024-01-01"), ["2023", "2024"]),
        (days("2023-03-05T06:00", "2023-03-05T07:00"), ["06:00", "07:00"]),
        (days("2023-03-05T23:00", "2023-03-06T00:00"), ["5 Mar 23:00", "6 Mar 00:00"]),
        (days("2023-03-05"), ["5 Mar"]),
        ([dt.date(2023, 3, 5), np.datetime64("2023-03-12")], ["5 Mar", "12 Mar"]),
        ([1, "b"], ["1", "b"]),
        ([], []),
    ],
)
def test_short_labels_leave_out_what_all_share(labels: list[object], shown: list[str]) -> None:
    """Dates are written without the year, day or clock that says nothing; other labels as they are."""
    assert short_labels(labels) == shown


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2023-03-12", [1]),
        ("12.3.2023", [1]),
        ("12 March 2023", [1]),
        ("12 mars 2023", [1]),
        ("2023-W10", [1]),
        ("April", [4, 5]),
        ("2023-04", [4, 5]),
        ("2023-03-13", []),
        ("nonsense", []),
        ("2023-03-12T00:00", [1]),
        ("2023-03-12T10:00", []),
    ],
)
def test_a_text_finds_the_dates_it_means(text: str, found: list[int]) -> None:
    """A day finds its label, a month or a week all labels within."""
    assert find_date(text, WEEKS) == [WEEKS[k] for k in found]


def test_moments_with_time_zones_are_compared_as_moments() -> None:
    """An offset in the text finds the same moment under another offset; without one the label's own clock counts."""
    label = pd.Timestamp("2023-03-05T10:00", tz="Europe/Berlin")
    assert find_date("2023-03-05T09:00Z", [label]) == [label]
    assert find_date("2023-03-05 10:00", [label]) == [label]
    assert find_date("2023-03-05 09:00", [label]) == []


def test_names_of_months() -> None:
    """Names in seven languages and their beginnings; what could be two months is none."""
    assert [month_of(name) for name in ("Sept.", "août", "März", "gennaio", "jui", "mo", "monday")] == [
        9,
        8,
        3,
        1,
        None,
        None,
        None,
    ]


@pytest.mark.parametrize("text", ["2023.5", "12", "1/2", "31", "A3", "2023-13-01x", "25:00", "week 3"])
def test_what_is_no_date(text: str) -> None:
    """Numbers and words are not read as dates."""
    assert parse_date(text) is None


def test_labels_are_readable() -> None:
    """Dates of every kind without an empty clock, other moments with theirs, anything else as its text; messages quote other texts."""
    day, moment = pd.Timestamp("2024-05-31"), dt.datetime(2024, 5, 31, 14)
    for label in (day, np.datetime64("2024-05-31"), day.to_pydatetime(), dt.date(2024, 5, 31)):
        assert readable(label) == "2024-05-31"
    assert readable(moment) == "2024-05-31 14:00:00"
    assert [readable(label) for label in (7, "a", ("a", 1))] == ["7", "a", "('a', 1)"]
    assert shown([day, "a", 7]) == "2024-05-31, 'a', 7"


def test_times_with_a_zone_are_written_with_their_offset_and_found_again(tmp_path):
    """Aware times are ISO 8601 with offset in files; a stored posterior finds them by moment, the repeated hour apart."""
    hours = pd.date_range("2024-10-27 01:00", periods=4, freq="h", tz="Europe/Berlin")  # 02:00 comes twice
    chain = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], times=list(hours), cells=["a", "b"])
    counts = pd.DataFrame(np.array([[30, 30], [34, 26], [26, 34], [20, 40]]), index=hours, columns=["a", "b"])
    post = hc.infer(hc.Problem(chain, 60, hc.Poisson(counts)))
    hc.io.write_results(post, tmp_path / "out", draws=0)
    written = pd.read_csv(tmp_path / "out" / "nodes.csv")["time"].unique().tolist()
    assert written == [hour.isoformat() for hour in hours]
    assert [pd.Timestamp(text) == hour for text, hour in zip(written, hours, strict=True)] == [True] * 4
    back = hc.Posterior.load(tmp_path / "out")
    for one in (post, back):
        for asked in (hours[2], hours[2].tz_convert("UTC"), "2024-10-27T02:00:00+01:00"):
            np.testing.assert_allclose(one.node(asked).mean, post.node(hours[2]).mean)
    for one in (post, back):
        np.testing.assert_allclose(one.node("2024-10-27 01:00").mean, post.node(hours[0]).mean)
        with pytest.raises(
            hc.ModelError, match=r"could be any of .*02:00:00\+02:00'?, '?2024-10-27T02:00:00\+01:00"
        ):
            one.node("2024-10-27 02:00")
