"""Laws and tables of counts from anything: they are made, or refused in our words."""

import numpy as np
from hypothesis import given, settings
from tests.constructors import Call, misfits, one_broken, outcome

from headcount.individual import MarkovChain
from headcount.population import CGM, CountTables

MOVES = [[0.9, 0.1], [0.2, 0.8]]
CHAIN = MarkovChain([0.5, 0.5], MOVES, length=3)
FLOWS = [[2, 1], [0, 3]]
NEXT = [[1, 1], [2, 2]]
TABLES = {(0, 1): FLOWS, (1, 2): NEXT}
LAW = CGM(CHAIN, 6)

CALLS: dict[str, Call] = {
    "CGM": (CGM, {"model": CHAIN, "population": 6}),
    "CountTables": (CountTables, {"model": CHAIN, "tables": TABLES}),
    "from_samples": (CountTables.from_samples, {"model": CHAIN, "samples": [[0, 0, 1], [1, 1, 0]]}),
    "table": (CountTables(CHAIN, TABLES).table, {"scope": (0, 1)}),
    "check": (CountTables(CHAIN, TABLES).check, {"tolerance": 0.0}),
    "mean": (LAW.mean, {"scope": (0,)}),
    "covariance": (LAW.covariance, {"a": (0,), "b": (1, 2), "memory_limit": 10**9}),
    "log_pmf": (LAW.log_pmf, {"tables": CountTables(CHAIN, TABLES)}),
    "support": (lambda limit: next(LAW.support(limit=limit)), {"limit": 1e6}),
    "sample": (LAW.sample, {"rng": 1}),
}


def test_every_argument_takes_or_refuses_anything() -> None:
    """One wrong argument of any constructor or question works, or is refused with a message of ours: never a raw error."""
    found = misfits(CALLS)
    assert not found, f"{len(found)} calls:\n" + "\n".join(found)


@settings(max_examples=200)
@given(one_broken(CALLS))
def test_every_part_of_an_argument_too(case: tuple[str, str, object]) -> None:
    """The same with one part broken inside a list, a tuple or a mapping."""
    name, argument, value = case
    function, arguments = CALLS[name]
    assert outcome(function, {**arguments, argument: value}) is None


def test_the_calls_work_unbroken() -> None:
    """Every call of the table works as it is."""
    for function, arguments in CALLS.values():
        function(**arguments)
    assert np.isfinite(LAW.log_pmf(CountTables(CHAIN, TABLES)))
