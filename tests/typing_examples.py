"""What users write, for the type checker: nothing here is run, `tests/test_typing.py` asks mypy about it."""

import numpy as np

import headcount as hc


def problems(model: hc.Model, counts: np.ndarray) -> list[hc.Problem]:
    """One observation, a list, a tuple, a generator, or none at all."""
    return [
        hc.Problem(model, population=10, observations=hc.Poisson(counts)),
        hc.Problem(model, population=10, observations=[hc.Poisson(counts), hc.Exact(counts, on=3)]),
        hc.Problem(model, 10, (hc.Gaussian(counts, sd=2.0),)),
        hc.Problem(model, 10, (hc.Binomial(y, detection=0.3) for y in counts)),
        hc.Problem(model, 10),
    ]


def answers(problem: hc.Problem) -> float:
    """Engines by object or by default, labelled tables, totals."""
    posterior = hc.infer(problem)
    hc.infer(problem, engine=hc.engines.Laplace())
    hc.infer(problem, hc.engines.PathGibbs(), rng=1)
    posterior.node(5).interval(0.9)
    print(posterior.edge(5, 6).mean)
    return float(posterior.status.good)
