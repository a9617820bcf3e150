"""The inner loop of the induction task, compiled: about 30 ns per token."""

import numba
import numpy as np

from tasks.batch import IGNORE
from tasks.compiled import kernel
from tasks.random64 import GOLDEN, below, put_back

UNSEEN = -3  # the pool member has not been appended yet
LAST = -2  # it has, but nothing has followed it yet
AMBIGUOUS = -1  # two different tokens have followed it


@kernel
def draw_rows(
    seeds: np.ndarray, low: int, high: int, length: int, score_immediate: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw sequences of the induction task (rows), one per uint64 seed.

    Returns tokens int64 [row, length + 1] (the last one is only ever a target), answers
    int64 [row, length]: the token that must follow at each scored repeat, -100 elsewhere, and gaps
    int64 [row, length]: the distance from a scored repeat to the latest earlier occurrence, 0 elsewhere.
    With `score_immediate`, a token drawn right after itself is a scored repeat too.
    """
    n_rows = len(seeds)
    tokens = np.empty((n_rows, length + 1), np.int64)
    answers = np.empty((n_rows, length), np.int64)
    gaps = np.empty((n_rows, length), np.int64)

    ids = np.arange(low, high).astype(
        np.int32
    )  # a row moves its tokens to the front, and puts them back afterwards
    swapped = np.empty(length, np.int32)
    name = np.empty(length, np.int32)  # pool member -> its token id, given when first drawn
    follower = np.empty(length, np.int32)  # pool member -> the member that always followed it
    latest = np.empty(length, np.int64)  # pool member -> the position of its latest occurrence

    for row in range(n_rows):
        state = seeds[row]
        scored = 0
        while scored == 0:
            follower[:] = UNSEEN
            answers[row, :] = IGNORE
            gaps[row, :] = 0
            n_fresh = 0
            previous = -1
            t = 0
            while t <= length:
                state += GOLDEN
                member = below(state, length)
                repeat = follower[member] != UNSEEN
                if not repeat:
                    # Naming members as they appear is a Fisher-Yates draw of the pool, done lazily.
                    state += GOLDEN
                    j = n_fresh + below(state, high - low - n_fresh)
                    ids[n_fresh], ids[j] = ids[j], ids[n_fresh]
                    swapped[n_fresh] = j
                    name[member] = ids[n_fresh]
                    n_fresh += 1
                    follower[member] = LAST
                tokens[row, t] = name[member]
                earlier, latest[member] = latest[member], t
                # The answer to a token drawn right after itself is itself: it needs no induction.
                skipped = previous == member and not score_immediate
                _follow(follower, previous, member)
                previous = member
                t += 1
                if repeat and not skipped and follower[member] >= 0 and t <= length:
                    forced = follower[member]
                    answers[row, t - 1] = name[forced]
                    gaps[row, t - 1] = t - 1 - earlier
                    scored += 1
                    tokens[row, t] = name[forced]
                    latest[forced] = t
                    previous = forced  # following its own follower leaves `member` unambiguous
                    t += 1
            put_back(ids, swapped[:n_fresh])
    return tokens, answers, gaps


@numba.njit(inline="always")
def _follow(follower: np.ndarray, previous: int, member: int) -> None:
    """Record that `member` came after `previous`."""
    if previous >= 0:
        if follower[previous] == LAST:
            follower[previous] = member
        elif follower[previous] != member:
            follower[previous] = AMBIGUOUS
