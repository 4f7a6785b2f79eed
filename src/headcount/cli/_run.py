"""What the commands do: read the tables, choose and plan the engine, infer or learn, write, print."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import headcount.learn
from headcount import memory
from headcount._device import find_device
from headcount._disk import MANIFEST, check_folder
from headcount.cli._show import (
    BAD_INPUT,
    INTERRUPTED,
    NOT_CONVERGED,
    as_options,
    phase,
    say,
    show_files,
    show_notes,
    show_plan,
    show_posterior,
    show_sequences,
    show_weights,
    tell,
    wrote,
)
from headcount.engines import Engine, Plan, plan
from headcount.engines.choice import ENGINES, chosen
from headcount.individual import MarkovChain
from headcount.io import (
    Case,
    Many,
    Result,
    TableError,
    folder_name,
    formula_note,
    infer_long,
    infer_many,
    no_counts,
    opened,
    put_results,
    read_network,
    read_problem,
    read_sequences,
    read_weights,
    write_results,
    write_table,
)
from headcount.io.columns import Reader
from headcount.io.long import INDEX, WINDOW, plan_long, wants_windows, windows_in
from headcount.io.source import Findings, by_sequences
from headcount.io.write import named
from headcount.learn import Fit, LogisticChain, fit
from headcount.learn._fit import records_apart
from headcount.observe import LearnedStart, Problem
from headcount.population import as_law, parse_population
from headcount.posterior import Posterior, Status
from headcount.posterior.derived import CROSS_DRAWS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from headcount.cli._app import LearningOptions, OutputOptions, ProblemOptions

    Facts = Callable[[Sequence[Path], ProblemOptions], Mapping[str, Any]]
    """What a run was made of."""

_CONTENT = ("level", "draws", "draw_flows")
"""Options of the output that say what a result holds."""
_FILES = ("format", "omx", "min_flow", "safe_csv")
"""Options of the output that say how its files are written."""


def infer_tables(
    counts: Sequence[Path],
    options: ProblemOptions,
    output: OutputOptions,
    window: int | None,
    facts: Facts,
) -> None:
    """Infer tables that go on from nothing: several sequences, a long series in windows, or one run.

    ``facts`` says what the run was made of, once the tables are known to be right.
    """
    output.check()
    engine = ready_engine(options)
    wrong: dict[str, tuple[str, ...]] = {}
    cases = read_cases(counts, options, failures=wrong)
    said = facts(counts, options)
    if list(cases) != [""]:
        if window is not None:
            raise ValueError("--window is for one long series, and these counts are several: leave it out")
        _infer_sequences(cases, options, output, said, wrong)
        return
    if options.cluster is not None or options.workers is not None:
        raise ValueError(
            "--workers and --cluster share out several sequences, and these counts are one: leave them out"
        )
    case = cases[""]
    if window is not None or _in_windows(case.problem, options):
        _infer_windows(case, options, output, window, said)
        return
    output.check_files(case, fitted=False)
    refuse_too_large(planned(case.problem, options)[1])
    posterior = headcount.learn.infer(case.problem, engine, rng=options.seed, strict=False)
    found = posterior.dispersion_estimate
    _write_and_show(
        posterior,
        case,
        output,
        [] if found is None else [str(found)],
        attributes=said,
        remedy="",
        before=case.before,
    )


def _in_windows(problem: Problem, options: ProblemOptions) -> bool:
    """Whether a series is inferred window by window without being asked."""
    if options.engine != "auto" or options.device is not None:
        return False
    engine, made = planned(problem, options)
    if not engine.point and made.peak <= memory.limit():
        return False

    return wants_windows(problem)


def _infer_windows(
    case: Case, options: ProblemOptions, output: OutputOptions, window: int | None, made_of: Mapping[str, Any]
) -> None:
    """Infer a long series window by window; what is finished stays, and a run that was stopped goes on."""
    _refuse_beside_windows(options, output, asked=window is not None)
    size = WINDOW if window is None else window
    made = plan_long(case.problem, named_engine(options), window=size)
    refuse_too_large(made)
    try:
        infer_long(
            case.problem,
            output.out,
            named_engine(options),
            window=size,
            level=output.level,
            tables=output.format,
            min_flow=output.min_flow,
            strict=False,
        )
    except (KeyboardInterrupt, SystemExit) as stopped:
        done = len(windows_in(output.out))
        of = max(1, -(-(len(case.problem.model.variables) - 1) // size))
        stopped.add_note(f"{done} of {of} windows are written; run the same command again to go on")
        raise
    finally:  # also where a window failed or the command was told to stop: windows before it are there
        if windows_in(output.out):
            wrote(output.out)
    phase("writing")
    notes = [*case.notes, *([] if window is not None else [_ABOUT_WINDOWS])]
    if output.min_flow:
        notes.append(
            f"moves expected to take fewer than {output.min_flow:g} have no row (--min-flow 0 writes all)"
        )
    _show_windows(windows_in(output.out), made.engine, output, notes, {"window": size, **made_of})


def _refuse_beside_windows(options: ProblemOptions, output: OutputOptions, *, asked: bool) -> None:
    """Refuse options that windows cannot answer, and a folder that holds something else."""
    given = {
        "--report": output.report,
        "--omx": output.omx,
        "--draws": output.draws is not None,
        "--draw-flows": output.draw_flows,
        "--keep": output.keep,
        "--safe-csv": output.safe_csv,
        "--seed": options.seed is not None,
    }
    named = [name for name, value in given.items() if value]
    if named:
        why = "" if asked else " (one run of this series would not fit into memory with spreads)"
        raise ValueError(f"a series is inferred window by window{why}: leave out {', '.join(named)}")
    if (output.out / "posterior.nc").exists():
        raise ValueError(f"{output.out} holds the answer of one run: give another folder for windows (--out)")
    if not (output.out / INDEX).exists():
        check_folder(output.out, [INDEX, "summary.json", f"nodes.{output.format}"], force=output.force)


def _show_windows(
    windows: Sequence[Mapping[str, Any]],
    engine: str,
    output: OutputOptions,
    notes: list[str],
    facts: Mapping[str, Any],
) -> None:
    """Write the summary of a run in windows, and say how it went: a window that did not converge makes a run that did not."""
    bad = [part for part in windows if not Status(part["status"]).good]
    status = bad[0]["status"] if bad else "converged"
    if bad:
        notes.append(
            f"{len(bad)} of {len(windows)} windows did not converge, the first from {bad[0]['from']} to {bad[0]['to']} "
            f"({status}): they are written, and later windows go on from them (exit code 4)"
        )
    said = {
        "command": shlex.join(["headcount", *sys.argv[1:]]),
        "status": status,
        "engine": engine,
        "windows": len(windows),
        "windows_not_converged": len(bad),
        "times": windows[-1]["end"] + 1,
        "interval_level": output.level,
        "notes": notes,
        **facts,
    }
    summary = output.out / "summary.json"
    summary.write_text(json.dumps(said, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
    wrote(output.out)
    tell(**said)
    say(
        (status, f"bold {'red' if bad else 'green'}"),
        f"  {engine}, {len(windows)} windows of {facts['window']} steps",
    )
    show_notes(notes)
    parts = sorted(output.out.glob("part-*"))
    show_files([output.out / f"nodes.{output.format}", summary, *parts[:2]], good=False)
    if len(parts) > 2:
        say(f"  … and {len(parts) - 2} more files of windows: headcount.io.read_long reads times of them")
    if bad:
        raise typer.Exit(NOT_CONVERGED)


_ABOUT_WINDOWS = (
    "one run of so long a series would not fit into memory with spreads, so that it is inferred window by window: an answer knows all "
    "counts before it, and those of 24 steps after its window (--window)"
)


def _infer_sequences(
    cases: Mapping[str, Case],
    options: ProblemOptions,
    output: OutputOptions,
    made_of: Mapping[str, Any],
    wrong: Mapping[str, tuple[str, ...]],
) -> None:
    """Infer every sequence, here, in processes or on a cluster; each has a folder of its name, and finished ones are not repeated.

    Tables of all of them are written beside the folders. Sequences that could not be read, ``wrong``, are said at the end.
    """
    if output.keep or output.report:
        raise ValueError(
            "--keep and --report are for one sequence: give its rows, or run headcount report on its folder"
        )
    for case in cases.values():
        refuse_too_large(planned(case.problem, options)[1])
    by_folder = {output.out / folder_name(key): key for key in cases}
    command = shlex.join(["headcount", *sys.argv[1:]])

    def write(result: Result, folder: Path, **given: Any) -> tuple[Result, list[Path]]:
        case, key = cases[by_folder[folder]], by_folder[folder]
        said = {
            **result.attributes,
            "command": command,
            "notes": list(case.notes),
            "sequence": key,
            **made_of,
            **named(case.names),
        }
        told = replace(result, attributes=said, shapes=case.shapes)
        made = put_results(told, folder, **given, **{name: getattr(output, name) for name in _FILES})
        wrote(folder)
        return made

    try:
        found = infer_many(
            {key: case.problem for key, case in cases.items()},
            named_engine(options),
            rng=options.seed,
            client=options.cluster,
            workers=options.workers,
            out=output.out,
            write=write,
            **{name: getattr(output, name) for name in (*_CONTENT, "force")},
        )
    except KeyboardInterrupt:
        done = sum((folder / MANIFEST).exists() for folder in by_folder)
        say(
            (f"Interrupted: {done} of {len(cases)} done; run the same command again to go on.", "bold red"),
            error=True,
        )
        raise typer.Exit(INTERRUPTED) from None
    unread: dict[Hashable, str] = {key: "; ".join(texts) for key, texts in wrong.items()}
    joined = _write_joined(replace(found, failures={**found.failures, **unread}), output)
    show_sequences(found, output.out)
    say(f"all of them together: {', '.join(joined)}")
    show_notes(list(dict.fromkeys(note for case in cases.values() for note in case.notes)))
    _say_wrong(wrong, len(cases) + len(wrong))
    if found.failures:
        raise typer.Exit(NOT_CONVERGED)


def _write_joined(found: Many, output: OutputOptions) -> list[str]:
    """Write the tables of all sequences, one below the other, and name the files."""
    files = []
    for name, what in {"sequences": "summary", "all_nodes": "nodes", "all_flows": "flows"}.items():
        files.append(f"{name}.{output.format}")
        table = found.to_frame(what).rename(columns={"problem": "sequence"})
        write_table(table, output.out / files[-1], safe_csv=output.safe_csv)
    return files


def _say_wrong(wrong: Mapping[str, tuple[str, ...]], count: int) -> None:
    """Say what is wrong with some of the sequences, and end with the exit code of bad input where there are any."""
    if not wrong:
        return

    say((f"{len(wrong)} of {count} sequences cannot be read:", "bold red"), error=True)
    texts = [as_options(text) for text in by_sequences(wrong)]
    tell(problems=texts)
    for text in texts:
        say((" • ", "red"), text, error=True)
    raise typer.Exit(BAD_INPUT)


def run_fit(
    counts: Sequence[Path],
    options: ProblemOptions,
    output: OutputOptions,
    learning: LearningOptions,
    facts: Facts,
) -> None:
    """Read, plan, learn, say how it went, write; ``facts`` as for `infer_tables`."""
    output.check()
    engine = ready_engine(options)
    if learning.method not in {"ascent", "em"}:
        raise ValueError(f"--method is ascent or em, got {learning.method!r}")
    if learning.prior not in {"neutral", "none"}:
        raise ValueError(
            f"--prior is neutral or none, got {learning.prior!r} (an old matrix of trips is --old-matrix)"
        )
    if options.features is None:
        raise TableError(
            "features: what the moves depend on is missing: give --features FILE with from, to and one column per feature[, time], or a "
            'formula of --cells FILE: --features "stay + log(distance)"'
        )
    cases = read_cases(counts, options, learning=True)
    case = next(iter(cases.values()))
    folders = {key: replace(output, out=output.out / folder_name(key)) if key else output for key in cases}
    for key, one in cases.items():
        folders[key].check_files(one, fitted=True)
    plans = [planned(one.problem, options, len(one.feature_names))[1] for one in cases.values()]
    refuse_too_large(max(plans, key=lambda made: made.peak))
    begin, said = _fit_start(learning.start, options, case)
    phase("learning", sum(made.seconds for made in plans))
    made = fit(
        [
            LogisticChain(c.features, names=c.feature_names, mask=c.mask, ridge=learning.ridge)
            for c in cases.values()
        ],
        [c.problem for c in cases.values()],
        engine,
        method=learning.method,  # type: ignore[arg-type]
        start=begin,
        prior=None if learning.prior == "none" else "neutral",
        rng=options.seed,
        strict=False,
        client=options.cluster,
        workers=options.workers,
    )
    _write_fit(made, cases, folders, said, output.level, learning.prior, facts(counts, options))


def _with_room(case: Case, *, learning: bool = False) -> Case:
    """The case with few tracked individuals by themselves, which is noted: as `fit` takes it, or where the tables of each do not fit."""
    problem, said = records_apart(case.problem) if case.problem.tracks else (case.problem, "")
    if not said:
        return case
    if learning:
        return replace(case, problem=problem, notes=(*case.notes, said))
    states = [len(cells) for cells in case.problem.core.model.states.values()]
    # Normal draws of all moves, and two copies: what the spread of sums over tracked individuals and others is found from.
    needed = 3 * 8 * CROSS_DRAWS * sum(a * b for a, b in pairwise(states))
    if needed <= memory.limit():
        return case
    text = (
        f"every tracked individual by itself would take {memory.readable_bytes(needed)} (the limit is "
        f"{memory.readable_bytes(memory.limit())}): {said}. Moves that are given do not change by them; headcount fit learns from them"
    )
    return replace(case, problem=problem, notes=(*case.notes, text))


def _write_fit(
    made: Fit,
    cases: Mapping[str, Case],
    folders: Mapping[str, OutputOptions],
    said: Sequence[str],
    level: float,
    prior: str,
    made_of: Mapping[str, Any],
) -> None:
    """Show the weights; write and show the posterior of every sequence."""
    table = made.table(level=level).rename(columns={"parameter": "feature", "estimate": "weight"})
    names = next(iter(cases.values())).feature_names
    table = table[table["feature"].isin(names)].assign(level=level)
    facts = {
        "status": made.status.value,
        "method": made.method,
        "prior": prior,
        "e_steps": made.e_steps,
        "seconds": round(made.seconds, 3),
        "evidence": None if made.evidence != made.evidence else float(made.evidence),
    }
    show_weights(made, table, level)
    for k, (posterior, (key, one)) in enumerate(zip(made.posteriors, cases.items(), strict=True)):
        if key:
            say((f"sequence {key}", "bold"))
        learned, why_not = _parameters_to_go_on(made, k)
        _write_and_show(
            posterior,
            one,
            folders[key],
            [*said, *made.notes, *why_not],
            good=made.status.good and posterior.status.good,
            remedy=_fit_remedy(made),
            attributes={"fit": facts} | ({"sequence": key} if key else {}) | dict(made_of),
            weights=table,
            ascent=made.trace.select_dtypes("number"),
            learned=learned,
            before=one.before,
        )


def _parameters_to_go_on(made: Fit, sequence: int) -> tuple[LearnedStart | None, list[str]]:
    """Parameters and last counts from which a later run goes on; None with a note that says why it takes the weights as known."""
    if not made.status.good:
        return None, []
    try:
        return made.going(sequence).past, []
    except (ValueError, RuntimeError) as error:
        return None, [f"a run that goes on from this one (--after) takes the weights as known: {error}"]


def _fit_remedy(made: Fit) -> str:
    """What to do about a fit that did not reach its maximum, in options of the command line; "" where it did."""
    if made.status.good:
        return ""
    return (
        f"the fit ended before its maximum ({made.status.value} after {made.e_steps} E-steps): standard errors may be wrong. Begin where "
        "it ended (--start FOLDER/weights.csv), hold weights back that run off (--ridge 0.1), or leave out a feature that "
        "tells little"
    )


def _fit_start(start: str | None, options: ProblemOptions, case: Case) -> tuple[Any, list[str]]:
    """Where a fit starts: the name of a start, weights by feature, or None for several; and what to say about it."""
    if start is not None and options.weights is not None:
        raise ValueError(
            "--start and --weights are both given: fit learns the weights, so give --start alone"
        )
    given = start if start is not None else options.weights
    if given is None:
        return None, []
    found = parse_weights(given)
    if start is not None and isinstance(found, Path) and "," not in given and not found.exists():
        return given, []
    values = read_weights(found, case.feature_names, encoding=_by_file(options.encoding, "--encoding"))
    said = (
        []
        if start is not None
        else ["the fit starts at --weights and searches from no other start; --start says so"]
    )
    return dict(zip(case.feature_names, values.tolist(), strict=True)), said


def _write_and_show(
    posterior: Posterior,
    case: Case,
    output: OutputOptions,
    notes: Sequence[str],
    *,
    good: bool | None = None,
    remedy: str | None = None,
    attributes: Mapping[str, Any] | None = None,
    **fitted: Any,
) -> None:
    """Write the results folder and say how it went; an answer that did not converge is marked, and says what to do.

    Without a ``remedy`` such an answer is written only where that was asked for, as the next run would go on from it; numbers that are
    not finite are never written unasked. ``good`` is that of the posterior unless given; ``fitted`` is what a fit adds and an old
    matrix, as `write_results` takes them.
    """
    notes, status = [*case.notes, *notes], posterior.status
    if output.format == "csv" and not output.safe_csv:
        states = posterior.problem.model.states
        notes += formula_note(dict.fromkeys([*states, *(c for cells in states.values() for c in cells)]))
    phase("writing")
    good = status.good if good is None else good
    if not good:
        notes = [*notes, *filter(None, (remedy, "" if status.good else status.causes))]
        written = "this answer did not converge: it is written, and marked so in every file (exit code 4)"
    if good or output.keep or (remedy is not None and status is not Status.NOT_FINITE):
        notes = notes if good else [*notes, written]
        # What only the command line knows.
        said = {"command": shlex.join(["headcount", *sys.argv[1:]]), "notes": list(notes)}
        result, files = write_results(
            posterior,
            output.out,
            attributes=said | dict(attributes or {}),
            shapes=case.shapes,
            names=case.names,
            **{name: getattr(output, name) for name in (*_FILES, *_CONTENT, "force")},
            **fitted,
        )
        wrote(output.out)
        show_posterior(result)
        show_notes(notes)
        if output.report:
            phase("drawing the page")
            from headcount.report import write

            files = [*files, write(output.out)]
        show_files(files, good=good)
    else:
        show_posterior(Result.of(posterior, level=output.level))
        show_notes([*notes, "nothing was written; --keep writes the answer all the same"])
    if not good:
        raise typer.Exit(NOT_CONVERGED)


def run_plan(counts: Sequence[Path], options: ProblemOptions, window: int | None) -> None:
    """Say which engine, how much memory and how long; run nothing."""
    wrong: dict[str, tuple[str, ...]] = {}
    learning = options.features is not None and options.weights is None
    cases = read_cases(counts, options, failures=wrong, learning=learning)
    if learning:
        say("without --weights this is the plan of headcount fit, which learns them")
    plans = [_plan_of(case, options, window, learning=learning) for case in cases.values()]
    largest = max(plans, key=lambda plan: plan.peak)
    if len(plans) > 1:
        say(f"{len(plans)} sequences, one after the other; memory is that of the largest, time that of all")
        largest = replace(largest, seconds=sum(plan.seconds for plan in plans))
    show_plan(largest, memory.limit(), memory.free_memory(), learning=learning)
    show_notes(list(dict.fromkeys(note for case in cases.values() for note in case.notes)))
    refuse_too_large(largest)
    _say_wrong(wrong, len(cases) + len(wrong))


def _plan_of(case: Case, options: ProblemOptions, window: int | None, *, learning: bool) -> Plan:
    """What a fit of a case, its inference, or its inference window by window will take."""
    if not learning and (window is not None or _in_windows(case.problem, options)):
        return plan_long(case.problem, named_engine(options), window=window or WINDOW)
    return planned(case.problem, options, len(case.feature_names) if learning else 0)[1]


def run_check(counts: Sequence[Path], options: ProblemOptions) -> None:
    """Read everything, then say what was found: what there is, what was decided."""
    wrong: dict[str, tuple[str, ...]] = {}
    cases = read_cases(counts, options, failures=wrong)
    good: dict[str, list[str]] = {}
    for key, case in cases.items():
        problem = case.problem
        choice, _ = planned(problem, replace(options, seed=0))
        seen = sum(map(len, problem.sites))
        size = problem.population
        number = f"{size:,}" if problem.size_known else as_law(size).text
        what = f"{len(problem.model.variables)} times or variables, {seen} counts, population {number}"
        good[key] = [f"nothing is wrong  {what}; {choice.name} would infer it"]
        tell(status="nothing is wrong", counts=seen, population=number, engine=choice.name)
    for text in good.get("") or by_sequences(good):
        say((text, "bold green"))
    show_notes(list(dict.fromkeys(note for case in cases.values() for note in case.notes)))
    _say_wrong(wrong, len(cases) + len(wrong))


def read_cases(
    counts: Sequence[Path],
    options: ProblemOptions,
    *,
    after: str | None = None,
    ahead: Sequence[str] = (),
    failures: dict[str, tuple[str, ...]] | None = None,
    learning: bool = False,
) -> dict[str, Case]:
    """The problems that the tables describe, by sequence ("" where there is one), and how individuals move together.

    What is wrong with single sequences is put into ``failures``, where that is given. ``after`` is the last time of an
    earlier run, with which they begin, and ``ahead`` times without counts. ``learning`` takes them as `fit` does.
    """
    written = _written(options)
    cases = _read_tables(counts, options, written, after, ahead, failures)
    if options.arrivals is not None or options.survival is not None:
        how = {name: written[name] for name in ("columns", "encoding")} | {
            "alias": parse_alias(options.alias)
        }
        cases = {
            key: opened(
                case, arrivals=options.arrivals, survival=options.survival, part=after is not None, **how
            )
            for key, case in cases.items()
        }
    return {key: _with_room(_moving(case, options), learning=learning) for key, case in cases.items()}


def _moving(case: Case, options: ProblemOptions) -> Case:
    """The case with individuals that move together as the options say."""
    together = options.dispersion
    if options.concentration is not None:
        alone = case.problem.with_dispersion("alone")
        case = replace(case, problem=_uncertain(alone, options.concentration, together))
    if together is None:
        return case
    return replace(case, problem=case.problem.with_dispersion(together))


def _uncertain(problem: Problem, concentration: float, together: str | None) -> Problem:
    """The problem with rows of transitions that are known up to a Dirichlet distribution."""
    model = problem.model.as_chain()
    if model is None:
        raise ValueError("--concentration is for the rows of --transitions: a network has none")
    if together is not None:
        raise ValueError("--concentration and --dispersion both say how moves scatter: give one of them")
    initial = model.initial if model.initial_known else None
    first, *others = model.transitions
    matrices = first if all(m is first for m in others) else model.transitions
    made = MarkovChain(initial, matrices, times=model.times, cells=model.states, concentration=concentration)
    return problem.with_model(made)


_COUNT_NOISE = ("rate", "background", "detection", "sd", "scale")
_FLOW_NOISE = ("rate", "detection", "sd")
_CHAIN = (
    *(
        "transitions",
        "old_matrix",
        "zeros",
        "features",
        "initial",
        "cells",
        "flows",
        "sums",
        "sum_counts",
        "tracks",
    ),
    *("snap", "flow_noise", "uneven", "normalise", "dates", "wide", "bounds"),
)
"""Options that are arguments of `read_problem` under the same name and that networks do not take."""


def _written(options: ProblemOptions) -> dict[str, Any]:
    """How the files are written, as the readers take it."""
    by_file = {
        name: _by_file(getattr(options, name), f"--{name}") for name in ("encoding", "decimal", "thousands")
    }
    columns = dict(_pair(text, "--column") for text in options.column or ()) or None
    return {"columns": columns, "missing": tuple(options.missing or ()), **by_file}


def _read_tables(
    counts: Sequence[Path],
    options: ProblemOptions,
    written: Mapping[str, Any],
    after: str | None,
    ahead: Sequence[str],
    failures: dict[str, tuple[str, ...]] | None,
) -> dict[str, Case]:

    parameters = {name: getattr(options, name) for name in _COUNT_NOISE}
    parameters["dispersion"] = options.noise_dispersion
    common = {
        "population": _population(options.population),
        "noise": options.noise,
        "parameters": parameters,
        **written,
    }
    if options.network is not None:
        if options.tracks is not None:
            raise TableError("--tracks needs times, which a network has not: leave one of them out")
        return {"": read_network(options.network, counts, **common)}
    if after is not None and options.network is not None:
        raise TableError("a network has no last time: --after is for chains")
    told = {
        "weights": parse_weights(options.weights),
        "alias": parse_alias(options.alias),
        "tracks_counted": not options.tracks_apart,
        "flow_parameters": {name: getattr(options, f"flow_{name}") for name in _FLOW_NOISE},
        "after": after,
        "ahead": ahead,
        **{name: getattr(options, name) for name in _CHAIN},
        **common,
    }
    if len(counts) == 1:
        return read_sequences(counts[0], failures=failures, **told)
    return {"": read_problem(list(counts) or no_counts(), **told)}


def _population(text: str | None) -> Any:
    """The number of individuals, or that of every sequence from a table ``sequence, population``; None where it is not given."""
    if text is None or not Path(text).is_file():
        return None if text is None else parse_population(text)
    findings = Findings()
    table = Reader(findings).read(text, ["sequence", "population"])
    findings.raise_any()
    assert table is not None
    pairs = zip(table["sequence"].tolist(), table["population"].tolist(), strict=True)
    return {key: parse_population(number) for key, number in pairs}


def named_engine(options: ProblemOptions) -> Engine | None:
    """The engine of a name, with its settings; None for "auto"."""
    wanted = options.engine.replace("-", "").replace("_", "").casefold()
    settings = {} if options.device is None else {"device": options.device}
    settings |= dict(_pair(text, "--set") for text in options.setting or ())
    if wanted == "auto" and options.device is not None:
        wanted = "tiltedep"  # what auto picks among the engines that take a device
    if wanted == "auto":
        if settings:
            raise ValueError("--set needs an engine to set: name it with --engine")
        return None
    known = {name.casefold(): kind for name, kind in ENGINES.items()}
    if wanted not in known:
        names = ", ".join(sorted(ENGINES.keys() - {"Auto"}))
        raise ValueError(f"there is no engine {options.engine!r}: use auto, {names}")
    return _with_settings(known[wanted], settings)


def ready_engine(options: ProblemOptions) -> Engine | None:
    """The same, its device looked for before anything is read."""
    engine = named_engine(options)
    find_device(getattr(engine, "device", "cpu"))
    return engine


def _with_settings(kind: type[Engine], settings: Mapping[str, str]) -> Engine:
    """The engine with settings as texts; unknown ones are named."""
    takes: list[str] = [field.name for field in fields(kind) if field.init] if is_dataclass(kind) else []
    if "device" in settings and "device" not in takes:
        raise ValueError(
            f"{kind.name} takes no device: TiltedEP, MAP, Laplace and ClosedForm do; leave out --device (the CPU)"
        )
    unknown = [name for name in settings if name not in takes]
    if unknown:
        raise ValueError(f"{kind.name} has no setting {unknown[0]!r}: it has {', '.join(takes) or 'none'}")
    try:
        return kind(**{name: _literal(value) for name, value in settings.items()})
    except TypeError as error:
        raise ValueError(f"{kind.name}: {error}") from None


def planned(problem: Problem, options: ProblemOptions, parameters: int = 0) -> tuple[Engine, Plan]:
    """The engine, named or selected (once), and what its run will take: an inference, or a fit of so many weights."""
    named = named_engine(options)
    choice = chosen(problem, named)
    if named is not None and named.random and options.seed is None:
        raise ValueError(
            f"{choice.engine.name} is random: give --seed and a whole number, so that the answer can be got again"
        )
    made = replace(plan(problem, choice.engine, parameters=parameters), reason=choice.reason)
    return choice.engine, made


def refuse_too_large(plan: Plan) -> None:
    """Raise with both numbers when the plan is above the limit; what comes next is the run."""
    remedy = "merge cells, take fewer times, use --engine MAP (no uncertainty)"
    memory.require(plan.peak, plan.engine, remedy=remedy)
    phase(f"inferring with {plan.engine}", plan.seconds)


def parse_weights(text: str | None) -> Any:
    """Numbers with commas between them, or the path of a table."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        return Path(text)


def parse_alias(given: Sequence[str] | None) -> Any:
    """Other names of cells: old=new, each, or the path of one table."""
    if given and len(given) == 1 and ("=" not in given[0] or Path(given[0]).is_file()):
        return Path(given[0])
    return dict(_pair(text, "--alias") for text in given or ())


def _pair(text: str, option: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name.strip() or not value.strip():
        raise ValueError(f"{option} takes NAME=VALUE, got {text!r}")
    return name.strip(), value.strip()


def _by_file(given: Sequence[str] | None, option: str) -> str | dict[str, str] | None:
    """What an option says about the files: the same for all, or ``{file: value}`` from FILE=VALUE ("" for all others)."""
    if not given:
        return None
    pairs = [text.rpartition("=") for text in given]
    made = {name: value for name, _, value in pairs}
    if len(made) < len(pairs) or not all(made.values()):
        raise ValueError(
            f"{option} is one value for all files, or FILE=VALUE for one; got {', '.join(given)}"
        )
    return made


def _literal(text: str) -> Any:
    """A setting's value: a number, true, false, null, or a word."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return {"True": True, "False": False, "None": None}.get(text, text)
