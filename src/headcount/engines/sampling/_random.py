"""xoshiro256++ on an explicit state array: reproducible, thread-safe, and invisible to NumPy's global generator.

A state is four `uint64` words, filled by `numpy.random.SeedSequence`; each chain has its own.
"""

import numpy as np

from headcount._compile import bare


@bare
def _rotate(word, by):
    """Rotate a 64-bit word to the left."""
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))


@bare
def uniform(random):
    """A double in [0, 1) with 53 random bits (Blackman and Vigna 2021, xoshiro256++ 1.0)."""
    s0, s1, s2, s3 = random[0], random[1], random[2], random[3]
    word = _rotate(s0 + s3, 23) + s0
    shifted = s1 << np.uint64(17)
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    s3 = _rotate(s3, 45)
    random[0], random[1], random[2], random[3] = s0, s1, s2, s3
    return (word >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@bare
def below(random, bound):
    """An integer in {0, …, bound − 1}; the bias of the multiplication is below bound / 2^53."""
    return int(uniform(random) * bound)


@bare
def draw(random, weights, size):
    """An index with probability proportional to `weights[:size]`; −1 when they sum to zero."""
    total = 0.0
    for j in range(size):
        total += weights[j]
    if not total > 0.0:
        return -1
    left = uniform(random) * total
    last = -1
    for j in range(size):
        if weights[j] > 0.0:
            last = j
            left -= weights[j]
            if left < 0.0:
                return j
    return last  # rounding left a crumb: the last possible index takes it
