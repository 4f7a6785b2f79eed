"""Models from anything: they are made, or refused in our words."""

import networkx as nx
import numpy as np
from hypothesis import given, settings
from tests.constructors import Call, misfits, one_broken, outcome

from headcount.individual import (
    DiscreteModel,
    JunctionTree,
    LogLinearTransitions,
    MarkovChain,
    Tree,
)

HALF = [0.5, 0.5]
MOVES = [[0.9, 0.1], [0.2, 0.8]]
CHAIN = MarkovChain(HALF, MOVES, length=3)
TREE = Tree(HALF, {"b": ("a", MOVES), "c": ("a", MOVES)})
RING = DiscreteModel(
    dict.fromkeys("abcd", 2),
    {pair: [[0.0, 1.0], [1.0, 0.0]] for pair in (("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"))},
)
FEATURES = [[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]]
LOGISTIC = LogLinearTransitions(FEATURES)


def graph() -> nx.DiGraph:
    made = nx.DiGraph()
    made.add_node("a", states=["x", "y"], log_potential=[0.0, 1.0])
    made.add_node("b", states=["x", "y"])
    made.add_edge("a", "b", log_potential=[[0.0, 1.0], [1.0, 0.0]])
    return made


CALLS: dict[str, Call] = {
    "one matrix": (
        MarkovChain,
        {"initial": HALF, "transitions": MOVES, "length": 3, "times": ["s", "t", "u"], "cells": ["p", "q"]},
    ),
    "length alone": (MarkovChain, {"initial": HALF, "transitions": MOVES, "length": 3}),
    "matrices": (
        MarkovChain,
        {
            "initial": HALF,
            "transitions": [MOVES, MOVES],
            "times": [1, 2, 3],
            "cells": [["p", "q"], ["r", "s"], ["t", "u"]],
        },
    ),
    "cells by time": (
        MarkovChain,
        {"initial": HALF, "transitions": [MOVES], "cells": {0: ["p", "q"], 1: ["r", "s"]}},
    ),
    "Tree": (
        Tree,
        {
            "initial": HALF,
            "edges": {"b": ("a", MOVES)},
            "root": "a",
            "states": {"a": ["x", "y"], "b": ["u", "v"]},
        },
    ),
    "DiscreteModel": (
        DiscreteModel,
        {
            "states": {"a": ["x", "y"], "b": 2},
            "factors": {("a", "b"): MOVES},
            "junction_tree": None,
            "memory_limit": 10**9,
        },
    ),
    "pairs": (DiscreteModel, {"states": {"a": 2, "b": 2}, "factors": [(("a", "b"), MOVES), (("a",), HALF)]}),
    "from_cpts": (
        DiscreteModel.from_cpts,
        {
            "states": {"a": 2, "b": 2},
            "cpts": {"a": ((), HALF), "b": (("a",), MOVES)},
            "rounding": 1e-8,
            "memory_limit": 10**9,
        },
    ),
    "from_networkx": (DiscreteModel.from_networkx, {"graph": graph(), "memory_limit": 10**9}),
    "from_bif": (DiscreteModel.from_bif, {"path": "none.bif", "rounding": 1e-6, "memory_limit": 10**9}),
    "from_model": (DiscreteModel.from_model, {"model": CHAIN, "memory_limit": 10**9}),
    "JunctionTree": (
        JunctionTree,
        {"sizes": {"a": 2, "b": 2, "c": 2}, "cliques": (("a", "b"), ("b", "c")), "edges": ((0, 1, ("b",)),)},
    ),
    "LogLinearTransitions": (LogLinearTransitions, {"features": FEATURES, "mask": [[0.0, 0.0], [0.0, 0.0]]}),
    "log-linear chain": (
        LOGISTIC.chain,
        {"weights": [1.0, 2.0], "initial": HALF, "length": 3, "times": ["s", "t", "u"], "cells": ["p", "q"]},
    ),
    "value": (LOGISTIC.value, {"weights": [1.0, 2.0], "flows": MOVES}),
    "gradient": (LOGISTIC.gradient, {"weights": [1.0, 2.0], "flows": MOVES}),
    "hessian": (LOGISTIC.hessian, {"weights": [1.0, 2.0], "flows": MOVES}),
    **{
        f"{name} of {model!r}": call
        for model, (u, v) in ((CHAIN, (0, 1)), (TREE, ("a", "b")), (RING, ("a", "b")))
        for name, call in {
            "marginal": (model.marginal, {"scope": (u, v)}),
            "joint marginal": (model.joint_marginal, {"a": (u,), "b": (v,)}),
            "tilt": (model.tilt, {"potentials": {(u,): [0.0, 1.0], (u, v): MOVES}}),
            "sample": (model.sample, {"size": 3, "rng": 1}),
            "domain": (model.domain, {"scope": (u, v)}),
        }.items()
    },
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
    """Every call of the table works as it is (but the file, which does not exist)."""
    for name, (function, arguments) in CALLS.items():
        if name != "from_bif":
            function(**arguments)
    assert np.isfinite(LOGISTIC.value([1.0, 2.0], MOVES))
