"""The codec: what is written comes back, and what is no file of ours is refused in words."""

import datetime as dt
import json
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import headcount as hc
from headcount import simulate
from headcount.engines import MAP
from headcount.individual import MarkovChain
from headcount.learn import Fit, LogisticChain, TabularChain, fit
from headcount.learn._files import fingerprint, read, write
from learn.cases import birds

LABELS = [
    3,
    "pond",
    2.5,
    float("inf"),
    True,
    None,
    ("north", 1, (2, dt.date(2024, 3, 1))),
    dt.date(2024, 3, 1),
    dt.datetime(2024, 3, 1, 12, 30, tzinfo=dt.UTC),
    dt.timedelta(days=2, microseconds=5),
    np.datetime64("2024-03-01T12", "h"),
    np.timedelta64(7, "D"),
    pd.Timestamp("2024-03-01 12:00:00.123456789"),
    pd.Timestamp("2024-03-01 12:00", tz="Europe/Zurich"),
    pd.Timedelta("1 days 02:00:00"),
    pd.Period("2024-03", freq="M"),
    pd.Interval(0, 5, closed="left"),
    Fraction(1, 3),
]


@pytest.mark.parametrize("label", LABELS, ids=repr)
def test_every_label_comes_back_as_it_was(label, tmp_path) -> None:
    """Same type, same value, same hash: a label read from a file finds what the written one found."""
    write(tmp_path / "f.npz", "test file", {label: [label]})
    (found,) = read(tmp_path / "f.npz", "test file", remedy="")
    assert type(found) is type(label)
    assert found == label
    assert hash(found) == hash(label)
    assert fingerprint(label) == fingerprint(found) != fingerprint("another")


def test_what_cannot_be_written_is_named(tmp_path) -> None:
    """An object that could not be read again is refused before a file exists."""
    with pytest.raises(ValueError, match=r"object .*cannot be written: use numbers, text, dates or tuples"):
        write(tmp_path / "f.npz", "test file", [object()])
    assert not list(tmp_path.iterdir())


def test_a_chain_over_timestamps_is_fitted_with_a_checkpoint_and_saved(tmp_path) -> None:
    """Times and cells of any label type pass through fingerprint, checkpoint, file and forecast."""
    days = pd.date_range("2024-03-01", periods=4, freq="W")
    model = MarkovChain(
        [0.5, 0.5],
        [[0.7, 0.3], [0.4, 0.6]],
        times=list(days),
        cells=[dt.date(2024, 1, 1), dt.date(2025, 1, 1)],
    )
    world = simulate.population(model, 300, rng=1)
    problem = hc.Problem(model, 300, [hc.Poisson(world.observations[(t,)], on=t) for t in model.times])
    found = fit(TabularChain(), problem, MAP(), start="zero", checkpoint=tmp_path / "c")
    again = fit(TabularChain(), problem, MAP(), start="zero", checkpoint=tmp_path / "c")
    assert np.array_equal(found.working, again.working)
    found.save(tmp_path / "fit.npz")
    kept = Fit.load(tmp_path / "fit.npz")
    assert kept.model.states == found.model.states
    assert all(type(a) is type(b) for a, b in zip(kept.model.times, model.times, strict=True))
    assert np.array_equal(kept.forecast(2).values, found.forecast(2).values)


@pytest.mark.parametrize(
    "damage", ["text", "empty", "another npz", "flipped", "cut", "other kind", "older", "npy"]
)
def test_a_file_that_is_no_fit_is_refused_in_words(damage: str, tmp_path) -> None:
    """Damaged, foreign or older files, as checkpoints and as fits: a ValueError that says what to do."""
    path = tmp_path / "fit.checkpoint"
    world, problem = birds(side=2, steps=5, population=60)
    setting = LogisticChain(world.features)
    found = fit(setting, problem, MAP(), checkpoint=path, standard_errors=False)
    whole = path.read_bytes()
    if damage == "text":
        path.write_text("weights, 1, 2")
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "another npz":
        np.savez(path.with_suffix(".npz"), a=np.zeros(3))
        path.with_suffix(".npz").rename(path)
    elif damage == "npy":
        np.save(path.with_suffix(".npy"), np.zeros(3))
        path.with_suffix(".npy").rename(path)
    elif damage == "flipped":
        at = whole.index(b'"version"') if b'"version"' in whole else len(whole) // 3
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    elif damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "other kind":
        found.save(path)
    else:
        old = json.dumps({"format": "headcount fit checkpoint 2", "fingerprint": ""})
        with path.open("wb") as handle:
            np.savez(handle, __meta__=np.array(old))
    with pytest.raises(ValueError, match="delete it to begin anew"):
        fit(setting, problem, MAP(), checkpoint=path, standard_errors=False)
    if damage != "other kind":
        with pytest.raises(ValueError, match="fit again and save"):
            Fit.load(path)


def test_no_flipped_bit_passes(tmp_path) -> None:
    """One bit flipped anywhere in a saved fit: the same numbers, or a ValueError."""
    world, problem = birds(side=2, steps=5, population=60)
    found = fit(LogisticChain(world.features), problem, MAP(), standard_errors=False)
    found.save(tmp_path / "fit.npz")
    whole = (tmp_path / "fit.npz").read_bytes()
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(300):
        at, bit = int(rng.integers(len(whole))), int(rng.integers(8))
        (tmp_path / "bad.npz").write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :])
        try:
            kept = Fit.load(tmp_path / "bad.npz")
        except ValueError:
            refused += 1
        else:
            assert np.array_equal(kept.working, found.working)
            assert kept.rows == found.rows
    assert refused > 200


def test_fits_of_the_second_version_say_so(tmp_path) -> None:
    """A fit saved by an earlier headcount names its version and the remedy."""
    with (tmp_path / "old.npz").open("wb") as handle:
        np.savez(handle, __meta__=np.array(json.dumps({"format": "headcount fit 2"})), working=np.zeros(2))
    with pytest.raises(
        ValueError, match=r"has version 2 of the format, this headcount reads version 3: fit again"
    ):
        Fit.load(tmp_path / "old.npz")


def test_the_last_e_step_is_not_run_again() -> None:
    """The posterior of a fit is that of the E-step at the estimate: as many inferences as E-steps."""
    from headcount.learn import _expect

    world, problem = birds(side=2, steps=5, population=60)
    runs = []
    infer = _expect.EStep.infer

    def counted(task):
        runs.append(task.parameters)
        return infer(task)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_expect.EStep, "infer", counted)
        found = fit(LogisticChain(world.features), problem, MAP())
    assert len(runs) == found.e_steps + found.searched
    assert found.posterior.log_evidence == found.evidence
