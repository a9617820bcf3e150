"""The induction task's generator against the paper's rule as one would write it in Python."""

import random

import numpy as np
from paired import ratio, take_turns

from tasks import IGNORE, Batch, InductionTask

TASK = InductionTask(vocab_size=8000, length=512)
ROWS, PYTHON_ROWS = 512, 8
BAR = 15.0  # M tokens a second on one core


def python_batch(task: InductionTask, rows: int, rng: random.Random) -> Batch:
    """The rule row by row with a dict of followers; None marks a token with two of them."""
    inputs = np.zeros((rows, task.length), np.int64)
    targets = np.full((rows, task.length), IGNORE, np.int64)
    for row in range(rows):
        while (targets[row] == IGNORE).all():
            pool = rng.sample(range(task.min_token, task.vocab_size), task.length)
            tokens: list[int] = []
            follower: dict[int, int | None] = {}

            def append(token: int, tokens: list[int] = tokens, follower: dict[int, int | None] = follower) -> None:
                if tokens:
                    last = tokens[-1]
                    follower[last] = token if follower.get(last, token) == token else None
                tokens.append(token)

            while len(tokens) <= task.length:
                token = rng.choice(pool)
                repeat = token in tokens
                append(token)
                if repeat and follower[token] is not None and len(tokens) <= task.length:
                    targets[row, len(tokens) - 1] = follower[token]
                    append(follower[token])
            inputs[row] = tokens[: task.length]
    return Batch(inputs=inputs, targets=targets)


def measure(rounds: int) -> tuple[list[dict[str, str]], list[str]]:
    """A table, and a sentence for each bar that was missed."""
    rng, python_rng = np.random.default_rng(0), random.Random(0)
    seconds = take_turns(
        {
            "numba kernel": lambda: TASK.batch(ROWS, rng),
            "plain Python": lambda: python_batch(TASK, PYTHON_ROWS, python_rng),
        },
        rounds,
    )
    per_row = {
        "numba kernel": [s / ROWS for s in seconds["numba kernel"]],
        "plain Python": [s / PYTHON_ROWS for s in seconds["plain Python"]],
    }
    speed = {name: TASK.length / float(np.median(s)) / 1e6 for name, s in per_row.items()}
    faster = ratio(per_row["plain Python"], per_row["numba kernel"])
    table = [
        {"generator": "numba kernel", "M tokens/s": f"{speed['numba kernel']:.1f}", "times plain Python": str(faster)},
        {"generator": "plain Python", "M tokens/s": f"{speed['plain Python']:.3f}", "times plain Python": "1"},
    ]
    met = speed["numba kernel"] >= BAR
    return table, [] if met else [f"The kernel makes {speed['numba kernel']:.1f} M tokens/s, not {BAR}."]
