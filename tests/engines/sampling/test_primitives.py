"""Random numbers of the compiled samplers."""

import numpy as np

from headcount.engines.sampling._primitives import uniform


def test_random_numbers_are_xoshiro256_plus_plus_and_uniform():
    """The first words from state (1, 2, 3, 4) are the published ones; 10^5 doubles pass a 20-bin chi-square at 1e-6."""
    state = np.array([1, 2, 3, 4], dtype=np.uint64)
    words = [41943041, 58720359, 3588806011781223, 3591011842654386]
    for word in words:
        assert uniform(state) == (word >> 11) * 2.0**-53
    state = np.random.SeedSequence(5).generate_state(4, np.uint64)
    counts = np.bincount([int(20 * uniform(state)) for _ in range(100_000)], minlength=20)
    assert ((counts - 5000) ** 2 / 5000).sum() < 65.4
