"""The induction task's generator in NumPy: all sequences of a batch at once, position by position."""

import numpy as np

from tasks import IGNORE, Batch, InductionTask

UNSEEN, LAST, AMBIGUOUS = -3, -2, -1  # states of a pool member without exactly one follower


def induction_batch(task: InductionTask, rows: int, rng: np.random.Generator) -> Batch:
    """Draw `rows` sequences. A sequence without an answer is drawn again."""
    tokens, answers = _draw(task, rows, rng)
    while len(empty := np.flatnonzero((answers == IGNORE).all(axis=1))):
        tokens[empty], answers[empty] = _draw(task, len(empty), rng)
    return Batch(inputs=tokens[:, :-1], targets=answers)


def _draw(task: InductionTask, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens int64 [row, length + 1] and answers int64 [row, length]."""
    length, ids = task.length, task.vocab_size - task.min_token
    # Members are drawn uniformly, so the order of a pool does not matter.
    pools = np.stack([rng.choice(ids, length, replace=False, shuffle=False) for _ in range(rows)]) + task.min_token
    pools = pools.reshape(-1)
    drawn = rng.integers(length, size=(length + 1, rows))
    start = length * np.arange(rows)  # index of each sequence's pool in the flat arrays
    follower = np.full(rows * length, UNSEEN)
    tokens = np.empty((length + 1, rows), np.int64)
    answers = np.full((length, rows), IGNORE)
    forced = np.full(rows, UNSEEN)  # the member that must come next; UNSEEN: none

    before = start
    for t in range(length + 1):
        is_forced = forced != UNSEEN
        member = np.where(is_forced, forced, start + drawn[t])
        is_repeat = follower[member] != UNSEEN
        follower[member[~is_repeat]] = LAST
        tokens[t] = pools[member]
        if t > 0:
            _follow(follower, before, member)
        if t < length:
            following = follower[member]
            asked = is_repeat & ~is_forced & (following >= 0) & (member != before)
            answers[t, asked] = pools[following[asked]]
            forced = np.where(asked, following, UNSEEN)
        before = member
    return tokens.T, answers.T


def _follow(follower: np.ndarray, before: np.ndarray, member: np.ndarray) -> None:
    """Record that `member` came after `before` in each sequence."""
    known = follower[before]
    follower[before] = np.where((known == LAST) | (known == member), member, AMBIGUOUS)
