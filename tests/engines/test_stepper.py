"""Step control of TiltedEP: damping, mixing, and the trust radius."""

from types import SimpleNamespace

import numpy as np
import pytest

import headcount as hc
from headcount.engines import Status, TiltedEP
from headcount.engines.tilted import _tilted_ep
from headcount.engines.tilted._stepper import SETTINGS, Iterate, StepControl, mixed, next_state


def test_mixing_stays_within_the_trust_radius():
    """A contraction by .99: the differences lead to its root at once, 99 plain steps away; the radius cuts that short."""
    past = tuple(Iterate(np.array([x]), np.array([-0.01 * x])) for x in (1.0, 0.99))
    plain = np.ones(1)
    assert mixed(past, plain, lambda r: r, 1e3) == pytest.approx(0.0, abs=1e-12)
    step = 0.99 * 0.01
    assert mixed(past, plain, lambda r: r, 3.0) == pytest.approx(0.99 - step - 3 * step)


def test_the_trust_radius_shrinks_and_recovers():
    """Refused mixed steps end mixing; a plain step that gets nearer lets it begin again, one that does not changes nothing."""
    history = tuple(Iterate(np.zeros(1), np.zeros(1)) for _ in range(3))
    control = StepControl(0.9, 0.9, history=history)
    assert control.after_mixed(better=True).radius == SETTINGS.largest_radius
    assert control.after_mixed(better=False).radius == SETTINGS.radius_shrink * SETTINGS.largest_radius
    assert control.mixes
    for _ in range(20):
        control = control.after_refused()
    assert control.history == ()
    assert control.radius == 1.0
    assert control.after_plain(2.0, before=1.0).radius == 1.0
    assert control.after_plain(0.5, before=1.0).radius == SETTINGS.radius_recover


def test_far_from_the_answer_nothing_is_extrapolated():
    """The history is emptied as soon as the residual is above the threshold, and never longer than it should be."""
    here = Iterate(np.zeros(1), np.zeros(1))
    control = StepControl(0.9, 0.9)
    for _ in range(20):
        control = control.seen(here, 0.1)
    assert len(control.history) == SETTINGS.history + 1
    assert control.seen(here, 2 * SETTINGS.mixing_starts_below).history == ()


def test_a_residual_that_grows_shortens_the_next_sweep():
    """… and lowers the ceiling; one that falls lets the step size grow back, to the ceiling and no further."""
    control = StepControl(0.9, 0.9).after_plain(2.0, before=1.0)
    assert control.step_size == pytest.approx(0.63)
    assert control.ceiling == pytest.approx(0.81)
    assert control.after_plain(1.0, before=2.0).step_size == pytest.approx(0.81)


def test_sweeps_in_circles_lower_the_ceiling():
    """Six sweeps without a tenth gained count as circling; near the answer, or with progress, they do not."""
    control = StepControl(0.9, 0.9, best=1.0)
    for _ in range(SETTINGS.circling_sweeps - 1):
        control = control.after_plain(1.0, before=1.0)
        assert control.ceiling == 0.9
    assert control.after_plain(0.5, before=1.0).ceiling == 0.9  # progress
    circled = control.after_plain(1.0, before=1.0)
    assert circled.ceiling == circled.step_size == pytest.approx(SETTINGS.circling_shrink * 0.9)
    near = StepControl(0.9, 0.9, best=0.1)
    for _ in range(20):
        near = near.after_plain(0.2, before=0.2)
    assert near.ceiling == 0.9


def test_the_step_size_has_a_floor():
    """However often it goes badly."""
    control = StepControl(0.9, 0.9)
    for _ in range(200):
        control = control.after_plain(2.0, before=1.0)
    assert control.step_size == control.ceiling == SETTINGS.smallest


def test_tilts_change_by_at_most_one_nat_per_step():
    """A mixed step that would lead to the root ten nats away is cut to one nat, in all coordinates alike."""
    x = np.array([[10.0, 20.0], [9.9, 19.8]])
    past, here = (Iterate(row, -0.01 * row) for row in x)
    control = StepControl(1.0, 1.0, history=(past,), radius=1e3)
    state = SimpleNamespace(change=0.05, residual=0.05)

    def evaluate(new):
        return SimpleNamespace(x=new, change=0.01, residual=0.01)

    new, _ = next_state(control, state, here, slice(0, 1), lambda r: r, evaluate)
    assert new.x - here.x == pytest.approx([-1.0, -2.0])


@pytest.mark.parametrize("shift", [0.5, 20.0, np.nan])
def test_a_start_that_misleads_is_left(shift):
    """Whatever a run is started from, it ends where it ends from its own start."""
    rng = np.random.default_rng(2)
    model = hc.MarkovChain([0.5, 0.3, 0.2], rng.dirichlet(np.ones(3), 3), length=5)
    problem = hc.Problem(model, 300, hc.Poisson(rng.poisson(60.0, (5, 3))))
    own = TiltedEP().run(problem.core, rng=rng, progress=False)
    given = {name: np.asarray(own.beliefs.diagnostics[name]) for name in ("g", "tau", "eta")}
    start = given | {"g": given["g"] + shift * rng.normal(size=given["g"].shape)}
    found = TiltedEP().run(problem.core, rng=rng, progress=False, start=start)
    assert found.status.good
    np.testing.assert_allclose(found.beliefs.mean((4,)), own.beliefs.mean((4,)), atol=1e-3)


@pytest.mark.parametrize("broken", [hc.Poisson, hc.Binomial])
def test_a_noise_that_is_not_a_number_is_no_convergence(broken, monkeypatch):
    """Of two noises, whichever of them is NaN: the other's small change does not hide it."""
    model = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], length=2)
    seen = [hc.Poisson([30.0, 12.0], on=0), hc.Binomial([15.0, 9.0], detection=0.6, on=1)]
    projected = _tilted_ep.summed_site

    def breaking(noise, *args, **settings):
        made = projected(noise, *args, **settings)
        return made._replace(change=np.nan) if isinstance(noise, broken) else made

    monkeypatch.setattr(_tilted_ep, "summed_site", breaking)
    found = hc.infer(hc.Problem(model, 40, seen), TiltedEP(), strict=False)
    assert found.outcome.status is Status.NOT_FINITE
