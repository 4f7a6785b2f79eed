"""dynamax on the same Gaussian model: its Kalman smoother under Gaussian noise, its conditional-moments smoother under Poisson noise.

It needs full-rank noise, so the problem comes in minimal coordinates (one cell left out, which balances the others).
"""

from __future__ import annotations

from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from dynamax.generalized_gaussian_ssm.inference import (  # noqa: E402
    EKFIntegrals,
    conditional_moments_gaussian_smoother,
)
from dynamax.generalized_gaussian_ssm.models import ParamsGGSSM  # noqa: E402
from dynamax.linear_gaussian_ssm.inference import (  # noqa: E402
    ParamsLGSSM,
    ParamsLGSSMDynamics,
    ParamsLGSSMEmissions,
    ParamsLGSSMInitial,
    lgssm_smoother,
)

from benchmarks.peers._peer import Arrays, tell, twice  # noqa: E402


def solve(problem: Arrays) -> tuple[Arrays, dict[str, Any]]:
    """Means and standard deviations of the node counts."""
    p = {name: jnp.asarray(value) for name, value in problem.items() if name != "task"}
    smoother = _kalman if int(problem["gaussian"]) else _moments
    run = jax.jit(lambda y: smoother(p, y))

    def work() -> Any:
        return jax.block_until_ready(run(p["observed"]))

    (mean, covariance, log_z), times = twice(work)
    mean, covariance = np.asarray(mean), np.asarray(covariance)
    weights = problem["weights"]  # (L, K): cells from coordinates
    sd = np.sqrt(np.maximum(np.einsum("ik,tkl,il->ti", weights, covariance, weights), 0.0))
    return {"nodes": mean @ weights.T + problem["offset"], "sds": sd}, {**times, "log_evidence": float(log_z)}


def _kalman(p: dict[str, Any], seen: Any) -> Any:
    """y = offset + W x + noise, noise of given sd; x_t = F x_{t−1} + b + noise."""
    cells = p["weights"].shape[0]
    params = ParamsLGSSM(
        initial=ParamsLGSSMInitial(mean=p["mean"], cov=p["covariance"]),
        dynamics=ParamsLGSSMDynamics(
            weights=p["gains"], bias=p["biases"], input_weights=None, cov=p["noises"]
        ),
        emissions=ParamsLGSSMEmissions(
            weights=p["weights"],
            bias=p["offset"],
            input_weights=None,
            cov=p["sd"] ** 2 * jnp.eye(cells),
        ),
    )
    found = lgssm_smoother(params, seen)
    return found.smoothed_means, found.smoothed_covariances, found.marginal_loglik


def _moments(p: dict[str, Any], seen: Any) -> Any:
    """Y has mean and variance offset + W x: Poisson by its first two moments."""
    low = 1e-2

    def rate(x: Any, _: Any) -> Any:
        return p["offset"] + p["weights"] @ x

    params = ParamsGGSSM(
        initial_mean=p["mean"],
        initial_covariance=p["covariance"],
        dynamics_function=lambda x, u: p["gains"][u[0].astype(int)] @ x + p["biases"][u[0].astype(int)],
        dynamics_covariance=p["noises"],
        emission_mean_function=rate,
        emission_cov_function=lambda x, u: jnp.diag(jnp.maximum(rate(x, u), low)),
    )
    times = jnp.arange(seen.shape[0], dtype=float)[:, None]
    found = conditional_moments_gaussian_smoother(params, EKFIntegrals(), seen, inputs=times)
    return found.smoothed_means, found.smoothed_covariances, found.marginal_loglik


if __name__ == "__main__":
    tell("dynamax", solve)
