"""What an engine is, what its settings may be, and the one loop that drives every iterative engine, with its progress bar.

An engine declares one :class:`Rule` per setting in its class variable ``rules``; all are checked when it is made, and everything that is
wrong is reported at once.
"""

from __future__ import annotations

import math
import sys
import time
from abc import ABC, abstractmethod
from contextlib import nullcontext, suppress
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from headcount._linalg import threads_for
from headcount.engines._cost import other_memory
from headcount.observe import ClosedProblem
from headcount.posterior import Outcome, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headcount.posterior import Beliefs

    Start = Mapping[str, Any] | None


class Rule(NamedTuple):
    """What a setting may be."""

    expected: str
    """In words, after "must be"."""
    holds: Callable[[Any], bool]


def number(*, above: float = 0.0, most: float = math.inf) -> Rule:
    """A finite real number in (above, most]."""
    words = f"a number above {above:g}" + ("" if math.isinf(most) else f" and at most {most:g}")

    def holds(value: Any) -> bool:
        real = isinstance(value, Real) and not isinstance(value, bool)
        return real and math.isfinite(value) and above < value <= most

    return Rule(words, holds)


def whole(*, least: int = 1) -> Rule:
    """A whole number, at least ``least``."""
    return Rule(
        f"a whole number, at least {least}",
        lambda value: (
            isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= least
        ),
    )


def flag() -> Rule:
    """True or False."""
    return Rule("True or False", lambda value: isinstance(value, bool))


def one_of(*choices: str) -> Rule:
    """One of some words."""
    return Rule(
        f"one of {', '.join(map(repr, choices))}",
        lambda value: isinstance(value, str) and value in choices,
    )


def or_none(rule: Rule) -> Rule:
    """The same, or None."""
    return Rule(f"{rule.expected}, or None", lambda value: value is None or rule.holds(value))


class Engine(ABC):
    """Settings of one way to infer. Engines hold no data and no results.

    An engine is a frozen dataclass; what its settings may be is in ``rules`` and checked when it is made.
    """

    name: ClassVar[str]
    random: ClassVar[bool] = False
    rules: ClassVar[Mapping[str, Rule]] = {}
    """One rule per setting; settings without a rule are not checked."""
    takes_dispersion: ClassVar[bool] = False
    """Whether it can be asked about individuals that move together."""
    draws_rows: ClassVar[bool] = False
    """Whether it knows the law of rows of transitions that vary with rho, and needs no phi."""
    takes_numbers: ClassVar[bool] = False
    """Whether it knows groups of individuals whose sizes have laws (`ClosedProblem.numbers`)."""
    sums_numbers: ClassVar[bool] = False
    """Whether it sums over such laws exactly, so that a size which exact counts tell need not be taken as known before."""
    sums_one_cell: ClassVar[bool] = False
    """Whether problems of one cell are answered by the sum over N in its place: exact, and faster."""
    takes_candidates: ClassVar[bool] = False
    """Whether it can be asked about groups of unknown size as candidates, of whom some are absent."""
    point: ClassVar[bool] = False
    """Whether it gives the most probable counts only: there are no draws to write."""
    draw_copies: ClassVar[float] = 1.4
    """Copies of the joint draws that writing holds at once. Measured: 1 to 1.7."""

    def memory(self, problem: ClosedProblem) -> int:
        """Predict the bytes at the peak of inference; nothing large is allocated."""
        return other_memory(problem)

    def device_memory(self, problem: ClosedProblem) -> int:
        """Predict the bytes of a device's memory; zero of an engine that takes none."""
        del problem
        return 0

    def seconds(self, problem: ClosedProblem, speed: float) -> float:
        """Predict the seconds of inference at so many floating-point operations per second; NaN where there is no formula."""
        del problem, speed
        return float("nan")

    def __post_init__(self) -> None:
        wrong = [
            f"{name} must be {rule.expected}, got {getattr(self, name)!r}"
            for name, rule in self.rules.items()
            if not rule.holds(getattr(self, name))
        ]
        if wrong:
            raise ValueError(f"{type(self).__name__}: {'; '.join(wrong)}")

    def run(
        self,
        problem: ClosedProblem,
        *,
        rng: np.random.Generator,
        progress: bool | None,
        start: Mapping[str, Any] | None = None,
    ) -> Outcome:
        """Infer; never raises for want of convergence, but says so in the outcome.

        ``problem`` is the core of what the user says (`Problem.core`), in a form that the engine takes: ``_reduce.answer`` brings every
        problem to it. ``start``, the diagnostics of a run on a similar problem (the same data under another model), saves sweeps.
        """
        require_taken(self, problem)
        # Beside a card the computer's own products are small, and BLAS threads that wait for them slow the rest down (16 cores and an
        # H200: 0.9 s for 1.3 s at 1024 cells).
        beside_a_card = getattr(self, "device", "cpu") != "cpu"
        with threads_for(0) if beside_a_card else nullcontext():
            return self._run(problem, rng, progress, start)

    @abstractmethod
    def _run(
        self, problem: ClosedProblem, rng: np.random.Generator, progress: bool | None, start: Start
    ) -> Outcome:
        """The same, of a problem that the engine is known to take."""


class DirectEngine(Engine):
    """An engine without iterations."""

    @abstractmethod
    def solve(self, problem: ClosedProblem, rng: np.random.Generator) -> Beliefs:
        """The answer."""

    def _run(
        self, problem: ClosedProblem, rng: np.random.Generator, progress: bool | None, start: Start
    ) -> Outcome:
        """See :class:`Engine`."""
        del progress, start
        began = time.perf_counter()
        return Outcome(self.solve(problem, rng), Status.EXACT, seconds=time.perf_counter() - began)


class Iteration(ABC):
    """Something that is stepped to a tolerance by :func:`iterate`.

    ``step`` returns a new state. ``residual`` is what must fall below :attr:`tolerance`; a sampler, whose length is fixed
    beforehand, says when it is done by ``done`` instead.
    """

    name: ClassVar[str]
    max_iterations: int
    tolerance: float
    patience: ClassVar[int] = 60
    """Iterations without a new best residual before a run counts as stalled."""
    falls_back: ClassVar[bool] = False
    """Whether a run that ends badly answers with its state of smallest residual: its last may be anywhere."""

    @abstractmethod
    def step(self, state: Any) -> Any:
        """The next state."""

    @abstractmethod
    def residual(self, state: Any) -> float:
        """Distance from the answer, relative; ``inf`` before the first step."""

    def target(self, state: Any) -> float:
        """What the residual must fall below; the tolerance by default."""
        del state
        return self.tolerance

    def done(self, state: Any) -> bool:
        """Whether the answer is reached."""
        return self.residual(state) <= self.target(state)

    def stuck(self, state: Any) -> bool:
        """Whether no further step can get nearer to the answer."""
        del state
        return False

    def report(self, state: Any) -> dict[str, float]:
        """Further numbers for the trace."""
        del state
        return {}

    def good_status(self) -> Status:
        """The status of a run that is done."""
        return Status.CONVERGED

    def shown(self, state: Any) -> str | None:
        """What the progress bar says beside its count; the residual by default."""
        del state
        return None


class IterativeEngine(Engine, Iteration):
    """An engine as four functions: ``init``, ``step``, ``residual`` and ``finish``. The loop is :func:`iterate`."""

    @abstractmethod
    def init(self, problem: ClosedProblem, rng: np.random.Generator) -> Any:
        """The first state."""

    def resume(
        self, problem: ClosedProblem, rng: np.random.Generator, start: Mapping[str, Any]
    ) -> Any | None:
        """The first state, near the answer to a similar problem that left ``start`` as its diagnostics; None to begin afresh."""
        del problem, rng, start
        return None

    @abstractmethod
    def finish(self, state: Any) -> Beliefs:
        """The answer a state stands for."""

    def _run(
        self, problem: ClosedProblem, rng: np.random.Generator, progress: bool | None, start: Start
    ) -> Outcome:
        """See :class:`Engine`."""
        began = time.perf_counter()
        near = None
        if start is not None:
            with suppress(ArithmeticError):  # tilts of another model may leave this one no law
                near = self.resume(problem, rng, start)
        first = self.init(problem, rng) if near is None else near
        state, status, trace = iterate(self, first, progress=progress, began=began)
        if near is not None and not status.good:  # the start misled
            state, status, trace = iterate(self, self.init(problem, rng), progress=progress, began=began)
        beliefs = self.finish(state)
        residual = self.residual(state) if trace else 0.0
        seconds = time.perf_counter() - began
        return Outcome(beliefs, status, len(trace), residual, self.target(state), seconds, trace)


def independent_only(engine: Engine, problem: ClosedProblem) -> ValueError:
    """The refusal of a problem of individuals that move together."""
    return ValueError(
        f"{engine.name} takes independent individuals only, and dispersion is {problem.dispersion}: use TiltedEP (the "
        "default), MAP, Laplace or ClosedForm, or leave the dispersion out"
    )


def require_taken(engine: Engine, problem: ClosedProblem) -> None:
    """Refuse a problem that an engine could only misread."""
    if not isinstance(problem, ClosedProblem):
        raise ValueError(
            f"{engine.name}.run takes what engines solve, problem.core: call headcount.infer(problem, {engine.name}())"
        )
    if problem.disperses and not (engine.takes_dispersion or engine.draws_rows):
        raise independent_only(engine, problem)
    if problem.numbers is not None and not engine.takes_numbers:
        raise ValueError(
            f"{engine.name}.run takes a known number of individuals: call headcount.infer(problem, {engine.name}()), which brings "
            "other problems to this form"
        )


PROGRESS = 0.999
"""A residual below this share of the best so far is a new best: linear convergence at 0.999 per iteration is slow, not stalled."""


class Iterated(NamedTuple):
    """Where an iteration ended, and how."""

    state: Any
    status: Status
    trace: tuple[dict[str, float], ...]


def iterate(
    engine: Iteration,
    state: Any,
    *,
    patience: int | None = None,
    gain: float = PROGRESS,
    look_first: bool = False,
    progress: bool | None = False,
    title: str | None = None,
    began: float | None = None,
) -> Iterated:
    """Step ``engine`` from ``state`` until it is done, stuck, stalled or out of budget: the one loop of every iterative method.

    Parameters
    ----------
    patience
        Iterations without a residual below ``gain`` times the best so far before a run counts as stalled; the engine's own by default.
    look_first
        Whether a state that is done already is left as it is. ``infer`` always takes a step, so that its residual is that of a step.
    title
        Of the progress bar; the engine's name by default.
    began
        When the clock of the trace's ``seconds`` started, by ``time.perf_counter``; now by default.
    """
    began = time.perf_counter() if began is None else began
    nearest, best, waited = state, math.inf, 0
    if look_first:
        best = engine.residual(state)
        if (ended := _ended(engine, state)) is not None:
            return Iterated(state, ended, ())
    trace: list[dict[str, float]] = []
    with Progress(title or engine.name, engine.max_iterations, show=progress) as bar:
        while True:
            iteration = len(trace) + 1
            state = engine.step(state)
            residual = engine.residual(state)
            seconds = time.perf_counter() - began
            trace.append(
                {"iteration": iteration, "residual": residual, "seconds": seconds, **engine.report(state)}
            )
            bar.advance(residual, text=engine.shown(state))
            waited += 1
            if residual < gain * best:
                nearest, best, waited = state, residual, 0
            ended = _ended(engine, state, residual, waited, patience, iteration)
            if ended is not None:
                kept = state if ended.good or not engine.falls_back else nearest
                return Iterated(kept, ended, tuple(trace))


def _ended(
    engine: Iteration,
    state: Any,
    residual: float = 0.0,
    waited: int = 0,
    patience: int | None = None,
    iteration: int = 0,
) -> Status | None:
    """How the iteration ended; None if it goes on."""
    if engine.done(state):
        return engine.good_status()
    if math.isnan(residual):
        return Status.NOT_FINITE
    if waited >= (engine.patience if patience is None else patience) or engine.stuck(state):
        return Status.STALLED
    return Status.BUDGET if iteration >= engine.max_iterations else None


_BAR = 30
"""Characters of the bar in a notebook."""


def in_notebook() -> bool:
    """Whether this runs in a notebook's kernel, whose output takes a line that is written over; rich would need ipywidgets there."""
    shell = sys.modules.get("IPython")
    found = shell.get_ipython() if shell is not None else None
    return type(found).__name__ == "ZMQInteractiveShell"


class Progress:
    """Counts steps; shows a bar after ``patience`` seconds on a terminal or in a notebook (or with ``show=True``)."""

    running: ClassVar[list[Progress]] = []
    """Loops that run now, the innermost last: what a log without a terminal reads."""

    def __init__(self, title: str, total: int, *, show: bool | None = None, patience: float = 1.5) -> None:
        self.title, self.total = title, total
        self.notebook = in_notebook()
        self.wanted = (sys.stderr.isatty() or self.notebook) if show is None else show
        self.patience = 0.0 if show else patience
        self._start = time.monotonic()
        self._steps = 0
        self._bar: Any = None
        self._task: Any = None
        self._note = ""

    def __str__(self) -> str:
        note = f", {self._note}" if self._note else ""
        return f"{self.title}, {self._steps} of at most {self.total}{note}"

    def __enter__(self) -> Self:
        self.running.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        self.running.remove(self)
        if self._bar is not None and self.notebook:
            print("\r" + " " * len(self._bar), end="\r", file=sys.stderr, flush=True)
        elif self._bar is not None:
            self._bar.stop()

    def advance(self, residual: float | None = None, *, text: str | None = None) -> None:
        """One step done."""
        self._steps += 1
        self._note = text if text is not None else ("" if residual is None else f"residual {residual:.2e}")
        if not self.wanted or (self._bar is None and time.monotonic() - self._start < self.patience):
            return
        note = self._note
        if self.notebook:
            done = round(_BAR * min(self._steps / max(self.total, 1), 1.0))
            line = f"{self.title} {'█' * done}{'░' * (_BAR - done)} {self._steps}/{self.total}  {note}"
            print("\r" + line.ljust(len(self._bar or "")), end="", file=sys.stderr, flush=True)
            self._bar = line
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as Rich

            self._bar = Rich(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total}  {task.fields[note]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(self.title, total=self.total, note="")
            self._bar.start()
        self._bar.update(self._task, completed=self._steps, note=note)
