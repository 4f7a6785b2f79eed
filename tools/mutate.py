"""Break the library on purpose, one change at a time, and see whether its own tests notice.

``python -m tools.mutate`` makes every hand-written change of `MUTATIONS`, each in a copy of the repository, runs the tests beside it
and writes which were noticed to ``tools/mutations.json``; words after it choose changes by name. ``python -m tools.mutate
--module src/headcount/tables.py --tests tests/test_tables.py --most 20`` makes random changes of operators and numbers in a module.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCORE = ROOT / "tools" / "mutations.json"
NEEDED = ("src", "tests", "benchmarks", "examples", "reproduction", "pyproject.toml", "README.md", "tools")
"""What the tests of a package read."""
LIMIT = 600.0
"""Seconds after which a run counts as noticed: an endless loop is not a pass."""
FAILED = 1
"""pytest's exit code when tests ran and some failed; any other one is a mistake of ours."""


@dataclass(frozen=True)
class Mutation:
    """One change: in `file`, `old` (which occurs once) becomes `new`; `tests` must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "reliable from a variance of 1 instead of 10",
        "src/headcount/posterior/_posterior.py",
        "RELIABLE_VARIANCE = 10.0",
        "RELIABLE_VARIANCE = 1.0",
        ("tests/posterior",),
    ),
    Mutation(
        "Beta quantiles become clipped Gaussian ones",
        "src/headcount/posterior/interval.py",
        "out[near] = population * betaincinv(a[near], b[near], level)",
        "out[near] = np.clip(gaussian, 0.0, population)[near]",
        ("tests/posterior/test_interval.py",),
    ),
    Mutation(
        "draws are rounded at a fixed point instead of a random one",
        "src/headcount/posterior/_draws.py",
        "step = up if _uniform(random) * (up + down) < down else -down",
        "step = up if 0.5 * (up + down) < down else -down",
        ("tests/posterior/test_draws.py::test_rounding_is_random_and_unbiased",),
    ),
    Mutation(
        "tilts may change by any amount in one sweep",
        "src/headcount/engines/tilted/_stepper.py",
        "longest_pull: float = 1.0",
        "longest_pull: float = 1e9",
        ("tests/engines/test_stepper.py",),
    ),
    Mutation(
        "sweeps that go round in circles are not shortened",
        "src/headcount/engines/tilted/_stepper.py",
        "elif idle >= s.circling_sweeps:",
        "elif idle >= 10**9:",
        ("tests/engines/test_stepper.py",),
    ),
    Mutation(
        "probabilities that miss 1 by a hundredth are read as rounded",
        "src/headcount/io/tables.py",
        "ROUNDING = 1e-4",
        "ROUNDING = 1e-2",
        ("tests/io/test_read_problem.py",),
    ),
    Mutation(
        "means of flows are written without decimals",
        "src/headcount/io/write.py",
        "None if v != v else round(v, 6)",
        "None if v != v else round(v, 0)",
        ("tests/io/test_results.py",),
    ),
    Mutation(
        "positions of entries are off by one",
        "src/headcount/tables.py",
        "np.arange(part.size, dtype=np.intp)",
        "np.arange(1, part.size + 1, dtype=np.intp)",
        ("tests/test_tables.py",),
    ),
    Mutation(
        "a table is summed without turning its axes",
        "src/headcount/tables.py",
        "return summed.transpose([*range(lead), *(lead + kept.index(v) for v in onto)])",
        "return summed",
        ("tests/test_tables.py",),
    ),
    Mutation(
        "N − 1 instead of N in the covariance",
        "src/headcount/population/_cgm.py",
        "return population * (model.joint_marginal(a, b)",
        "return (population - 1) * (model.joint_marginal(a, b)",
        ("tests/reproduction/test_gaussian_law.py", "tests/population/test_cgm.py"),
    ),
    Mutation(
        "separators count once whatever their multiplicity",
        "src/headcount/population/_cgm.py",
        "*((s, -nu) for s, nu in tree.separators.items())",
        "*((s, -1) for s, nu in tree.separators.items())",
        ("tests/population/test_cgm.py",),
    ),
    Mutation(
        "log N! is left out of the law of counts",
        "src/headcount/population/_cgm.py",
        "float(signs @ terms - poisson_log_pmf(self.population, self.population))",
        "float(signs @ terms)",
        ("tests/population/test_cgm.py",),
    ),
    Mutation(
        "wrong sign in Stirling's series",
        "src/headcount/numerics.py",
        "_STIRLING = (1 / 12, -1 / 360,",
        "_STIRLING = (1 / 12, 1 / 360,",
        ("tests/test_numerics.py",),
    ),
    Mutation(
        "messages are not divided out on the way back",
        "src/headcount/individual/possible.py",
        "top[s] = 1.0 / total if total > 0 else 0.0",
        "top[s] = 1.0 if total > 0 else 0.0",
        ("tests/individual/test_marginals.py",),
    ),
    Mutation(
        "wrong sign in the slope of Poisson noise",
        "src/headcount/observe/_noises.py",
        "self.rate * ((self.counts - mean) / mean)",
        "self.rate * ((mean - self.counts) / mean)",
        ("tests/observe/test_noise_laws.py",),
    ),
    Mutation(
        "missing square in the curvature of negative binomial noise",
        "src/headcount/observe/_noises.py",
        "((y + r) / (r + m) ** 2 -",
        "((y + r) / (r + m) -",
        ("tests/observe/test_noise_laws.py",),
    ),
    Mutation(
        "p instead of 1 − p where a binomial count is zero",
        "src/headcount/observe/_noises.py",
        "np.where(y == 0, n * np.log1p(-p),",
        "np.where(y == 0, n * np.log(p),",
        ("tests/observe/test_noise_laws.py",),
    ),
    Mutation(
        "counts that need exactly N individuals are refused",
        "src/headcount/observe/_checks.py",
        "if needed > population:",
        "if needed >= population:",
        ("tests/observe/test_refusals.py",),
    ),
    Mutation(
        "half of log det is left out of log Z",
        "src/headcount/structure/_gaussian_tree.py",
        "float(np.log(np.diagonal(c)).sum())",
        "0.0",
        ("tests/structure/test_dense.py",),
    ),
    Mutation(
        "wrong sign of the sites in the evidence",
        "src/headcount/engines/tilted/_tilted_ep.py",
        "log_sites, narrowest = state.log_sites, _narrowest_size(state)",
        "log_sites, narrowest = -state.log_sites, _narrowest_size(state)",
        ("tests/engines/test_two_cells.py",),
    ),
    Mutation(
        "the tolerance is not applied",
        "src/headcount/engines/engine.py",
        "return self.residual(state) <= self.target(state)",
        "return self.residual(state) <= 0.1",
        ("tests/engines/test_engine.py",),
    ),
    Mutation(
        "NLBP's objective forgets the tilts",
        "reproduction/rivals/nlbp.py",
        "state.gain + value - float(state.g @ state.n)",
        "state.gain + value",
        ("tests/reproduction/test_edge_ep.py",),
    ),
    Mutation(
        "a path's weight forgets the next state",
        "src/headcount/engines/sampling/_path_moves.py",
        "weight = forth[j] * back[j] * ratios[j]",
        "weight = forth[j] * ratios[j]",
        ("tests/engines/sampling/test_sampler.py::test_paths_agree_with_enumeration",),
    ),
    Mutation(
        "R-hat without the variance between chains",
        "src/headcount/engines/sampling/_statistics.py",
        "np.sqrt((length - 1) / length + between[moving] / within[moving])",
        "np.sqrt((length - 1) / length + 0 * between[moving] / within[moving])",
        ("tests/engines/sampling/test_statistics.py",),
    ),
    Mutation(
        "wrong sign in the gradient of a learned rate",
        "src/headcount/learn/_populations.py",
        "np.asarray(y - b * slope)",
        "np.asarray(y + b * slope)",
        ("tests/learn/test_components.py",),
    ),
    Mutation(
        "the first day of the year is the second",
        "src/headcount/learn/_steps.py",
        "_day_of_year(d) // 7",
        "(_day_of_year(d) + 1) // 7",
        ("tests/learn/test_steps.py",),
    ),
    Mutation(
        "a forecast's spread has the parameters' variance four times",
        "src/headcount/learn/_result.py",
        'variances += np.einsum("khl,kj,jhl->hl", slopes, known, slopes)',
        'variances += 4 * np.einsum("khl,kj,jhl->hl", slopes, known, slopes)',
        ("tests/learn/test_result.py",),
    ),
    Mutation(
        "half of the third cumulant of a quadratic form",
        "src/headcount/posterior/fit_check.py",
        "_skewness(8.0 * float(",
        "_skewness(4.0 * float(",
        (
            "tests/posterior/test_fit_check.py::test_the_skewness_of_a_quadratic_form_is_that_of_gaussian_draws",
        ),
    ),
    Mutation(
        "the variance within chains is not corrected for their length",
        "src/headcount/engines/sampling/_statistics.py",
        "within = covariance[0] * length / (length - 1)",
        "within = covariance[0]",
        ("tests/engines/sampling/test_statistics.py",),
    ),
    Mutation(
        "individuals behind counts include the background",
        "src/headcount/io/tables.py",
        'return (counts - np.asarray(parameters.get("background", 0.0))) / rate',
        "return counts / rate",
        ("tests/io/test_read_problem.py::test_individuals_behind_counts_are_without_the_background",),
    ),
    Mutation(
        "one of several tags has the spread of all",
        "src/headcount/posterior/derived.py",
        "return mean * (1.0 - mean) if self.has_spread else None",
        "return 0.5 * mean * (1.0 - mean) if self.has_spread else None",
        ("tests/observe/test_tracks.py::test_one_of_several_tags_is_one_individual",),
    ),
    Mutation(
        "numbers beyond the first window are left out of the sum",
        "src/headcount/engines/exact/_enumerate.py",
        "sizes.values >= self.high",
        "sizes.values > self.high",
        ("tests/engines/exact/test_count_states.py::test_windows_grow_until_nothing_is_left",),
    ),
    Mutation(
        "two individuals that make one move are counted as independent",
        "src/headcount/engines/exact/_count_states.py",
        "return here.without(one * here.counts[:, k], k)",
        "return here.without(one * (here.counts[:, k] + 1), k)",
        ("tests/engines/exact/test_count_states.py",),
    ),
    Mutation(
        "readings of one cell bound the number of all individuals",
        "src/headcount/engines/choice.py",
        "total + likely / share * above**-2",
        "total + likely * above**-2",
        ("tests/engines/test_auto.py",),
    ),
    Mutation(
        "simulated counts forget the background",
        "src/headcount/simulate/_world.py",
        "mean = rate * counts + background",
        "mean = rate * counts",
        ("tests/simulate/test_population.py",),
    ),
    Mutation(
        "the spread of an overdispersed number grows with its mean, not its square",
        "src/headcount/population/_size.py",
        "Cumulants(-r * math.log(left), mean, mean + mean**2 / r)",
        "Cumulants(-r * math.log(left), mean, mean + mean / r)",
        ("tests/population/test_size.py",),
    ),
    Mutation(
        "a tilt of a Gaussian number forgets a half",
        "src/headcount/population/_size.py",
        "+ 0.5 * (a * self.sd) ** 2",
        "+ (a * self.sd) ** 2",
        ("tests/population/test_size.py",),
    ),
    Mutation(
        "phi of rho counts an individual with itself",
        "src/headcount/population/_dispersion.py",
        "1.0 + np.maximum(counts - 1.0, 0.0) * rows",
        "1.0 + np.maximum(counts, 0.0) * rows",
        ("tests/population/test_dispersion.py",),
    ),
    Mutation(
        "whole quantiles are rounded up instead of to the nearest",
        "src/headcount/posterior/interval.py",
        "np.ceil(quantile - 0.5) + 0.0",
        "np.ceil(quantile) + 0.0",
        ("tests/posterior/test_interval.py",),
    ),
    Mutation(
        "the weight of a Beta law is too large by two",
        "src/headcount/posterior/interval.py",
        "weight = p * (1 - p) * population**2 / variance - 1.0",
        "weight = p * (1 - p) * population**2 / variance + 1.0",
        ("tests/posterior/test_interval.py",),
    ),
    Mutation(
        "an interval leaves its whole error on either side",
        "src/headcount/posterior/interval.py",
        "return (1 - share) / 2, (1 + share) / 2",
        "return 1 - share, share",
        ("tests/posterior/test_interval.py",),
    ),
    Mutation(
        "candidates are weighed with their own law once more",
        "src/headcount/observe/cloud.py",
        "law.log_pmf(n) - binomial",
        "law.log_pmf(n) + binomial",
        ("tests/engines/test_sizes.py::test_candidates_that_may_be_absent_have_the_exact_posterior",),
    ),
    Mutation(
        "the chance of the groups' sizes is not taken out",
        "src/headcount/observe/cloud.py",
        "+ xlogy(sizes, sizes / n).sum())",
        "- xlogy(sizes, sizes / n).sum())",
        ("tests/engines/test_exact_evidence.py::test_the_size_of_one_group_that_totals_tell_is_known",),
    ),
    Mutation(
        "the probability of a number that is counted is left out",
        "src/headcount/engines/_reduce.py",
        "evidence += candidates.log_prior - candidates.log_sizes",
        "evidence -= candidates.log_sizes",
        ("tests/engines/test_exact_evidence.py::test_a_number_that_is_counted_is_known",),
    ),
    Mutation(
        "those who wait never arrive late",
        "src/headcount/individual/_open_chain.py",
        "waiting[size] = later / ahead if ahead > 0 else 0.0",
        "waiting[size] = 0.0",
        ("tests/engines/test_open.py::test_arrivals_and_survivors_are_those_of_the_exact_sum",),
    ),
    Mutation(
        "those who stay do not grow older",
        "src/headcount/individual/_semi_markov.py",
        "np.minimum(np.arange(ages) + 1, ages - 1)",
        "np.minimum(np.arange(ages), ages - 1)",
        ("tests/engines/test_kinds.py::test_a_cohort_that_comes_and_goes_is_a_sum_over_its_stays",),
    ),
    Mutation(
        "those who stay are those who leave",
        "src/headcount/individual/_semi_markov.py",
        "((1.0 - hazard).ravel(), (np.arange(size)",
        "((hazard).ravel(), (np.arange(size)",
        ("tests/engines/test_kinds.py::test_a_cohort_that_comes_and_goes_is_a_sum_over_its_stays",),
    ),
    Mutation(
        "rows that vary have one pseudo-individual more",
        "src/headcount/engines/exact/_count_states.py",
        "total = (1.0 - rho) / rho",
        "total = 1.0 / rho",
        ("tests/engines/exact/test_count_states.py",),
    ),
    Mutation(
        "worms forget who went where before, with rho",
        "src/headcount/engines/sampling/_worms.py",
        "left -= tilt[column + j] * (table[at + j] + slope * p[at + j])",
        "left -= tilt[column + j] * slope * p[at + j]",
        ("tests/engines/test_exact_maps.py::test_rows_that_vary_have_their_law_on_a_ring",),
    ),
    Mutation(
        "a plan forgets that there are many steps",
        "src/headcount/engines/exact/__init__.py",
        "wider * ONCE.products / len(problem.model.variables)",
        "wider * ONCE.products",
        ("tests/engines/test_exact_evidence.py::test_long_series_are_not_summed_over",),
    ),
    Mutation(
        "the spread of unknown sizes lowers variances",
        "src/headcount/structure/_clique_passes.py",
        "self.individuals * (squares - self.mean**2) + self.spread * self.mean**2",
        "self.individuals * (squares - self.mean**2) - self.spread * self.mean**2",
        ("tests/structure/test_junction.py::test_random_networks_have_the_covariance_of_all_configurations",),
    ),
    Mutation(
        "prior draws have the variance of the square root of N",
        "src/headcount/structure/_clique_passes.py",
        "noise *= np.sqrt(self.individuals * weight)[:, None]",
        "noise *= np.sqrt(np.sqrt(self.individuals) * weight)[:, None]",
        ("tests/structure/test_junction.py::test_draws_have_the_posterior_moments",),
    ),
    Mutation(
        "birds prefer the shortest flight",
        "src/headcount/simulate/_birds.py",
        "np.exp(-0.5 * (np.log(safe) - 1.0) ** 2)",
        "np.exp(-0.5 * np.log(safe) ** 2)",
        ("tests/simulate/test_birds.py",),
    ),
    Mutation(
        "the CRPS of a sure forecast is not zero",
        "src/headcount/check.py",
        "- math.pi**-0.5",
        "- 0.5 * math.pi**-0.5",
        ("tests/test_check.py::test_the_crps_of_a_gaussian_is_its_integral",),
    ),
    Mutation(
        "an alarm of the whole and one of single counts are not counted twice",
        "src/headcount/check.py",
        "probability = min(1.0, 2.0 * min(whole, single))",
        "probability = min(whole, single)",
        ("tests/learn/test_series.py::test_an_alarm_pays_for_looking_twice",),
    ),
    Mutation(
        "evidence that goes on forgets how far the weights moved",
        "src/headcount/learn/_going.py",
        "evidence += -0.5 * float(moved @ moved) - 0.5",
        "evidence += 0.5 * float(moved @ moved) - 0.5",
        ("tests/learn/test_series.py::test_a_fit_goes_on_with_its_parameters",),
    ),
    Mutation(
        "weights that go on have the square of their spread",
        "src/headcount/learn/_going.py",
        "root = (vectors / np.sqrt(values)) @ vectors.T",
        "root = (vectors / values) @ vectors.T",
        ("tests/learn/test_series.py::test_a_fit_goes_on_with_its_parameters",),
    ),
    Mutation(
        "a table that Excel would run is written as it is",
        "src/headcount/io/write.py",
        '_FORMULA = ("=", "+", "-", "@", "\\t", "\\r")',
        '_FORMULA = ("=", "+", "-")',
        ("tests/faults/test_terminal.py::test_formulas_are_shielded_on_request",),
    ),
    Mutation(
        "an alarm ends like a run without one",
        "src/headcount/cli/_show.py",
        "BAD_INPUT, TOO_LARGE, NOT_CONVERGED, ALARM, INTERRUPTED = 2, 3, 4, 5, 130",
        "BAD_INPUT, TOO_LARGE, NOT_CONVERGED, ALARM, INTERRUPTED = 2, 3, 4, 0, 130",
        ("tests/cli/test_series.py::test_an_alarm_has_an_exit_code_and_says_why",),
    ),
    Mutation(
        "churn below one in a hundred is impossible",
        "src/headcount/learn/_neutral.py",
        "levels = np.linspace(np.log(LEAST_CHURN), 0.0, LEVELS)",
        "levels = np.linspace(np.log(10 * LEAST_CHURN), 0.0, LEVELS)",
        ("tests/learn/test_neutral.py::test_a_neutral_prior_is_flat_in_log_churn_from_one_in_a_thousand",),
    ),
    Mutation(
        "the several priors are added up instead of averaged",
        "src/headcount/learn/_neutral.py",
        "return np.asarray(logsumexp(self._each(x), axis=1)) - np.log(len(self.parts))",
        "return np.asarray(logsumexp(self._each(x), axis=1))",
        ("tests/learn/test_neutral.py::test_a_neutral_prior_is_a_probability_and_draws_follow_it",),
    ),
    Mutation(
        "importance weights of an integral are not averaged",
        "src/headcount/learn/_neutral.py",
        "total - float(np.log(len(evidence)))",
        "total",
        ("tests/learn/test_neutral.py::test_an_integral_by_draws_is_that_of_a_grid",),
    ),
    Mutation(
        "the sum over N of one cell has no weight of its counts",
        "src/headcount/posterior/one_cell.py",
        "return n, weight / total, shift + np.log(total)",
        "return n, weight / total, shift",
        ("tests/learn/test_one_cell.py::test_one_site_is_the_sum_over_n",),
    ),
    Mutation(
        "the baseline of tags ignores where they began",
        "src/headcount/posterior/_routes.py",
        "found = found - (_memoryless(chain, first) if null else record_log_prob(tree, first))",
        "found = found - (0.0 if null else record_log_prob(tree, first))",
        (
            "tests/posterior/test_routes.py::test_the_score_of_a_track_is_the_probability_of_its_later_positions",
        ),
    ),
    Mutation(
        "the evidence of many margins forgets the weight of its rows",
        "src/headcount/learn/_margins.py",
        "gain = (top + np.log(total))[:, :, 0]",
        "gain = top[:, :, 0]",
        ("tests/learn/test_margins.py::test_steps_between_exact_counts_are_tables",),
    ),
    Mutation(
        "the variance of a settled edge has no square",
        "src/headcount/learn/_uncertainty.py",
        "return mean, float(np.sqrt(square - mean**2))",
        "return mean, float(square - mean**2)",
        ("tests/learn/test_uncertainty.py::test_moments_at_an_edge_are_those_of_the_evidence",),
    ),
    Mutation(
        "a Gamma law has twice its skewness",
        "src/headcount/posterior/fit_check.py",
        "return 4.0 / skewness**2, max(",
        "return 2.0 / skewness**2, max(",
        ("tests/posterior/test_fit_check.py",),
    ),
)
"""What the tests of a package must notice: constants that decide, signs and powers in formulas, rules of the iteration."""


class StaleError(ValueError):
    """The text that a mutation replaces is not in its file exactly once."""


def mutated(mutation: Mutation, text: str) -> str:
    """The file's text after the change."""
    count = text.count(mutation.old)
    if count != 1:
        raise StaleError(f"{mutation.name}: {mutation.old!r} occurs {count} times in {mutation.file}")
    return text.replace(mutation.old, mutation.new)


def copy_repository(folder: Path) -> None:
    """A copy of what the tests need, without caches."""
    for name in NEEDED:
        source = ROOT / name
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc", "cache")
            shutil.copytree(source, folder / name, ignore=ignore)
        elif source.exists():
            shutil.copy(source, folder / name)


def passes(folder: Path, tests: Sequence[str]) -> bool:
    """Whether these tests pass in a copy of the repository.

    Compiled code is not kept: Python takes it for current when the source has the same second and length, as a next change may have.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, FAILED):
        raise RuntimeError(
            f"pytest could not run {' '.join(tests)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.returncode == 0


def noticed(mutation: Mutation, folder: Path) -> bool:
    """Whether the tests fail with the change; the copy in `folder` is left as it was."""
    path = folder / mutation.file
    before = path.read_text(encoding="utf-8")
    path.write_text(mutated(mutation, before), encoding="utf-8")
    try:
        return not passes(folder, mutation.tests)
    finally:
        path.write_text(before, encoding="utf-8")


def run(mutations: Sequence[Mutation]) -> dict[str, bool]:
    """For every mutation, whether it was noticed; the tests must pass without any."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_repository(folder)
        for tests in dict.fromkeys(m.tests for m in mutations):
            if not passes(folder, tests):
                raise RuntimeError(f"these tests fail without any mutation: {' '.join(tests)}")
        for mutation in mutations:
            start = time.monotonic()
            found[mutation.name] = noticed(mutation, folder)
            said = "noticed" if found[mutation.name] else "SURVIVED"
            print(f"{said:9} {mutation.name} ({time.monotonic() - start:.0f} s)", flush=True)
    print(f"{sum(found.values())} of {len(found)} noticed")
    return found


SWAPPED: dict[type[ast.AST], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.Lt: ">=",
    ast.LtE: ">",
    ast.Gt: "<=",
    ast.GtE: "<",
    ast.Eq: "!=",
    ast.NotEq: "==",
}


def changes(file: str, text: str, tests: tuple[str, ...]) -> Iterator[Mutation]:
    """Every change of one operator or number in a module: + and −, × and /, comparisons turned round, numbers plus one."""
    lines = text.splitlines(keepends=True)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line.encode()))
    raw = text.encode()

    def at(line: int, column: int) -> int:
        return offsets[line - 1] + column

    def number(node: ast.Constant, value: int | float) -> Mutation:
        start, end = at(node.lineno, node.col_offset), at(node.end_lineno or 0, node.end_col_offset or 0)
        new = raw[:start] + repr(value + 1).encode() + raw[end:]
        return Mutation(f"{file}:{node.lineno} {value!r} + 1", file, text, new.decode(), tests)

    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, int | float) and not isinstance(node.value, bool):
                yield number(node, node.value)
            continue
        if isinstance(node, ast.BinOp):
            left, operator, right = node.left, SWAPPED.get(type(node.op)), node.right
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, operator, right = node.left, SWAPPED.get(type(node.ops[0])), node.comparators[0]
        else:
            continue
        start, end = at(left.end_lineno or 0, left.end_col_offset or 0), at(right.lineno, right.col_offset)
        between = raw[start:end].decode()
        symbol = between.strip("() \n\\")
        if operator is None or "#" in between:
            continue
        new = raw[:start] + between.replace(symbol, operator, 1).encode() + raw[end:]
        yield Mutation(f"{file}:{left.lineno} {symbol} to {operator}", file, text, new.decode(), tests)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen mutations; the exit code is 1 when one survived."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutate", description="Do the tests notice a broken library?"
    )
    parser.add_argument(
        "names", nargs="*", help="words of the names of hand-written changes; all unless given"
    )
    parser.add_argument("--module", help="make random changes in this file instead")
    parser.add_argument("--tests", nargs="+", default=["tests"], help="with --module: the tests to run")
    parser.add_argument("--most", type=int, default=20, help="with --module: how many changes")
    parser.add_argument("--seed", type=int, default=1, help="with --module: which ones")
    chosen = parser.parse_args(arguments)
    if chosen.module:
        text = (ROOT / chosen.module).read_text(encoding="utf-8")
        every = list(changes(chosen.module, text, tuple(chosen.tests)))
        some = random.Random(chosen.seed).sample(every, min(chosen.most, len(every)))
        return 0 if all(run(some).values()) else 1
    mutations = [m for m in MUTATIONS if not chosen.names or any(word in m.name for word in chosen.names)]
    found = run(mutations)
    stored = json.loads(SCORE.read_text(encoding="utf-8")) if SCORE.exists() else {}
    names = [m.name for m in MUTATIONS]
    merged = {name: found.get(name, stored.get(name)) for name in names}
    SCORE.write_text(json.dumps(merged, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
