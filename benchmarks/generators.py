"""Rows of the induction task: the compiled generator against the same rule in plain Python."""

import random

import numpy as np
import pandas as pd
from paired import Bar, figure, ratio, take_turns, timed

from tasks import IGNORE, Batch, InductionTask

TASK = InductionTask(vocab_size=8000, length=512)  # the paper's scale
TABLE = "Induction rows, vocabulary 8000, length 512, one core"
ROWS, PYTHON_ROWS = 512, 16


def measure(quick: bool = False) -> pd.DataFrame:
    """Tokens a second of both, and their ratio."""
    rng, python_rng = np.random.default_rng(0), random.Random(0)
    _check_same_task()
    seconds = take_turns(
        {
            "ours": timed(lambda: TASK.batch(ROWS, rng)),
            "python": timed(lambda: python_batch(TASK, PYTHON_ROWS, python_rng)),
        },
        rounds=5 if quick else 41,
    )
    ours = ROWS * TASK.length / seconds["ours"] / 1e6
    python = PYTHON_ROWS * TASK.length / seconds["python"] / 1e6
    return pd.DataFrame(
        [
            figure(TABLE, "InductionTask.batch", ours, "M tokens/s", Bar(15, at_least=True)),
            figure(TABLE, "plain Python", python, "M tokens/s"),
            ratio(TABLE, "InductionTask.batch / plain Python", ours, python),
        ]
    )


def python_batch(task: InductionTask, rows: int, rng: random.Random) -> Batch:
    """The rule of `InductionTask` as one would first write it."""
    drawn = [python_row(task, rng) for _ in range(rows)]
    tokens, answers = (np.array(part, np.int64) for part in zip(*drawn, strict=True))
    return Batch(inputs=tokens[:, :-1], targets=answers)


def python_row(task: InductionTask, rng: random.Random) -> tuple[list[int], list[int]]:
    """Tokens (one more than positions: the last is only ever a target) and the answer at each position."""
    while True:
        pool = rng.sample(range(task.min_token, task.vocab_size), task.length)
        tokens: list[int] = []
        answers = [IGNORE] * task.length
        follower: dict[int, int] = {}
        ambiguous: set[int] = set()
        seen: set[int] = set()

        while len(tokens) <= task.length:
            token = pool[int(rng.random() * task.length)]
            repeat = token in seen
            _append(token, tokens, follower, ambiguous, seen)
            if repeat and token not in ambiguous and token in follower and len(tokens) <= task.length:
                answers[len(tokens) - 1] = follower[token]
                _append(follower[token], tokens, follower, ambiguous, seen)
        if any(answer != IGNORE for answer in answers):
            return tokens, answers


def _append(token: int, tokens: list[int], follower: dict[int, int], ambiguous: set[int], seen: set[int]) -> None:
    """Append a token, and record that it followed the one before."""
    if tokens and follower.setdefault(tokens[-1], token) != token:
        ambiguous.add(tokens[-1])
    tokens.append(token)
    seen.add(token)


def _check_same_task() -> None:
    """Both obey the rule and ask for about as many answers: a ratio between different tasks is worth nothing."""
    batches = {
        "ours": TASK.batch(64, np.random.default_rng(1)),
        "python": python_batch(TASK, 64, random.Random(1)),
    }
    for batch in batches.values():
        assert batch.inputs.shape == batch.targets.shape == (64, TASK.length)
        assert batch.inputs.dtype == batch.targets.dtype == np.int64
        for row, targets in zip(batch.inputs, batch.targets, strict=True):
            for t in np.flatnonzero(targets != IGNORE):
                earlier = np.flatnonzero(row[:t] == row[t])
                assert len(earlier), "an answer at a token not seen before"
                assert (row[earlier + 1] == targets[t]).all(), "an answer that an earlier occurrence contradicts"
    ours, python = ((batch.targets != IGNORE).mean() for batch in batches.values())
    assert abs(ours / python - 1) < 0.1, f"ours scores {ours:.4f} of all positions, plain Python {python:.4f}"
