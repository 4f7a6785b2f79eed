"""Simulated worlds from anything: they are made, or refused in our words."""

from hypothesis import given, settings
from tests.constructors import Call, misfits, one_broken, outcome

from headcount.individual import MarkovChain
from headcount.simulate import binomial, birds, exact, gaussian, poisson, population

CHAIN = MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], length=3)

CALLS: dict[str, Call] = {
    "birds": (
        birds,
        {
            "side": 2,
            "weights": (1.0, 2.0, 2.0, 2.0),
            "population": 10,
            "steps": 3,
            "rate": 1.0,
            "winds": [[0.0, 1.0], [1.0, 0.0]],
            "max_distance": 2.0,
            "sparse": False,
            "memory_limit": 10**9,
            "rng": 1,
        },
    ),
    "drawn winds": (birds, {"side": 2, "population": 10, "steps": 3, "rng": 1}),
    "population": (population, {"model": CHAIN, "size": 10, "observe": {(0,): exact()}, "rng": 1}),
    **{
        name: (lambda make=make, **given: population(CHAIN, 10, observe=make(**given), rng=1), arguments)
        for name, make, arguments in (
            ("poisson", poisson, {"rate": 1.0, "background": 0.5}),
            ("binomial", binomial, {"probability": 0.5}),
            ("gaussian", gaussian, {"sd": 1.0}),
        )
    },
}


def test_every_argument_takes_or_refuses_anything() -> None:
    """One wrong argument of any simulator works, or is refused with a message of ours: never a raw error."""
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
