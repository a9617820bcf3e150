"""The inner loop of the multi-hop task, compiled. It takes one step per position, for any number of hops."""

import numpy as np

from tasks.batch import IGNORE
from tasks.compiled import kernel
from tasks.random64 import GOLDEN, below

ABSENT = -1  # the letter has not occurred yet


@kernel
def draw_rows(
    seeds: np.ndarray,
    least_hops: int,
    most_hops: int,
    first_letter: int,
    alphabet: int,
    length: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Draw sequences of the multi-hop task (rows), one per uint64 seed, with least_hops .. most_hops hops.

    Letters are the ids from `first_letter` up, then come "none" and "blank". Returns inputs, targets and
    answers int64 [row, length], and the number of hops int64 [row]. A row's letters do not depend on its hops.
    """
    n_rows = len(seeds)
    inputs = np.empty((n_rows, length), np.int64)
    targets = np.empty((n_rows, length), np.int64)
    answers = np.empty((n_rows, length), np.int64)
    hops = np.empty(n_rows, np.int64)
    none, blank = first_letter + alphabet, first_letter + alphabet + 1

    # No two positions have the same latest earlier occurrence, so find_1 is one-to-one: positions lie on
    # chains, one for each letter, and find_k is k links down the position's own chain.
    latest = np.empty(alphabet, np.int64)  # letter -> the position of its latest occurrence
    chain = np.empty(
        length, np.int64
    )  # position -> its chain, named by the letter the chain starts with
    depth = np.empty(length, np.int64)  # position -> how many hops it allows
    on_chain = np.empty((alphabet, length), np.int64)  # chain, depth -> the letter there

    for row in range(n_rows):
        state = seeds[row] + GOLDEN
        k = least_hops + below(state, most_hops - least_hops + 1)
        hops[row] = k
        inputs[row, 0], targets[row, 0], answers[row, 0] = k, blank, IGNORE
        latest[:] = ABSENT
        state += GOLDEN
        letter = below(state, alphabet)
        for t in range(1, length):
            if latest[letter] == ABSENT:
                chain[t], depth[t] = letter, 0
            else:
                source = latest[letter] + 1
                chain[t], depth[t] = chain[source], depth[source] + 1
            latest[letter] = t
            on_chain[chain[t], depth[t]] = first_letter + letter
            inputs[row, t] = first_letter + letter
            if depth[t] >= k:
                targets[row, t] = answers[row, t] = on_chain[chain[t], depth[t] - k]
            else:
                targets[row, t], answers[row, t] = none, IGNORE
            state += GOLDEN
            letter += 1 + below(state, alphabet - 1)
            if letter >= alphabet:
                letter -= alphabet
    return inputs, targets, answers, hops
