"""NUTS with NumPyro on the continuous posterior: the Gaussian model of the node counts under Poisson noise.

z_t = Nμ_t + δ_t,  δ_t = Pᵀ δ_{t−1} + R_t ε_t,  y_t ~ Poisson(z_t) where z_t > 0

The coordinates are the white ε; below zero the rate is continued by a small positive tail, since the Gaussian has mass there.
"""

from __future__ import annotations

from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import numpyro  # noqa: E402
import numpyro.distributions as dist  # noqa: E402
from numpyro.infer import MCMC, NUTS  # noqa: E402

from benchmarks.peers._peer import Arrays, tell  # noqa: E402

SMALL = 0.1


def solve(problem: Arrays) -> tuple[Arrays, dict[str, Any]]:
    """Means and standard deviations of the node counts, after warm-up and draws of one chain."""
    means, gains, factors, seen = (
        jnp.asarray(problem[name]) for name in ("means", "transitions", "factors", "observed")
    )

    def counts(white: Any) -> Any:
        def step(before: Any, now: Any) -> Any:
            gain, factor, noise = now
            delta = gain.T @ before + factor @ noise
            return delta, delta

        start = jnp.zeros(means.shape[1])
        _, deltas = jax.lax.scan(step, start, (gains, factors, white))
        return means + jnp.vstack([start[None], deltas])

    def model() -> None:
        white = numpyro.sample("white", dist.Normal(0, 1).expand(factors.shape[:2]).to_event(2))
        z = counts(white)
        rate = jnp.where(z > SMALL, z, SMALL * jnp.exp(jnp.minimum(z / SMALL - 1, 0.0)))
        numpyro.sample("seen", dist.Poisson(rate[1:]).to_event(2), obs=seen[1:])

    draws = int(problem["draws"])
    sampler = MCMC(NUTS(model), num_warmup=draws, num_samples=draws, progress_bar=False)
    sampler.run(jax.random.PRNGKey(0), extra_fields=("num_steps",))
    found = np.asarray(jax.vmap(counts)(sampler.get_samples()["white"]))
    leaps = int(np.asarray(sampler.get_extra_fields()["num_steps"]).sum())
    return {"nodes": found.mean(axis=0), "sds": found.std(axis=0)}, {"leapfrog_steps": leaps}


if __name__ == "__main__":
    tell("numpyro", solve)
