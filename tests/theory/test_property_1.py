"""Property 1 of section 2.1: no path of two attention patterns goes through a token before the one
it ends at.
"""

import numpy as np


def causal(rng, n):
    """A random causal pattern whose rows sum to 1."""
    weights = np.tril(rng.exponential(size=(n, n)))
    return weights / weights.sum(axis=1, keepdims=True)


def test_a_path_to_a_token_goes_only_through_it_and_later_ones():
    """(A2 A1)[j, i + 1] is a sum over k >= i + 1 alone, so that no row of A1 up to i can change it."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        first, second = causal(rng, 24), causal(rng, 24)
        i = int(rng.integers(23))
        j = int(rng.integers(i + 1, 24))
        through_later = second[j, i + 1 :] @ first[i + 1 :, i + 1]
        assert abs((second @ first)[j, i + 1] - through_later) < 1e-14
