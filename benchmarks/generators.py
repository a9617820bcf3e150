"""Generation of every task's sequences: the compiled generators against the same rules in plain Python and NumPy."""

import random
import runpy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy_rows import induction_batch
from paired import Bar, figure, ratio, take_turns, timed

from tasks import (
    IGNORE,
    Batch,
    BrevoTask,
    DepoTask,
    IGSMTask,
    InductionTask,
    ManoTask,
    MQARTask,
    MultiHopTask,
    NGramTask,
    Task,
)

TESTS = Path(__file__).parents[1] / "tests" / "tasks"
DEEP = runpy.run_path(str(TESTS / "deep.py"))


@dataclass(frozen=True)
class Side:
    """A task at its paper's scale, its rule in plain Python (one sequence), and a check of sequences from either.

    `numpy_batch`: the rule in NumPy for all sequences at once, if there is one.
    """

    title: str
    task: Task
    rows: int
    python_row: Callable[..., tuple[list[int], list[int]]]
    check: Callable[..., None]
    bar: Bar | None = None
    numpy_batch: Callable[..., Batch] | None = None


def measure(quick: bool = False) -> pd.DataFrame:
    """Return tokens per second of both and their ratio, for each task, and problems and tokens per second of iGSM."""
    return pd.DataFrame([row for side in SIDES for row in _figures(side, quick)] + _igsm_figures(quick))


def _figures(side: Side, quick: bool) -> list[dict[str, object]]:
    table, name = f"{side.title}, one core", f"{type(side.task).__name__}.batch"
    rng, python_rng = np.random.default_rng(0), random.Random(0)
    python_rows = max(1, 8192 // side.task.length)
    _check_same_task(side)
    sides = {
        name: (side.rows, lambda: side.task.batch(side.rows, rng)),
        "plain Python": (python_rows, lambda: python_batch(side, python_rows, python_rng)),
    }
    numpy_batch = side.numpy_batch
    if numpy_batch is not None:
        sides["vectorised NumPy"] = (side.rows, lambda: numpy_batch(side.task, side.rows, rng))
    seconds = take_turns({key: timed(run) for key, (_, run) in sides.items()}, rounds=5 if quick else 41)
    speeds = {key: rows * side.task.length / seconds[key] / 1e6 for key, (rows, _) in sides.items()}
    figures = [
        figure(table, key, speed, "M tokens/s", side.bar if key == name else None) for key, speed in speeds.items()
    ]
    return figures + [ratio(table, f"{name} / {key}", speeds[name], speeds[key]) for key in speeds if key != name]


def _igsm_figures(quick: bool) -> list[dict[str, object]]:
    """Return problems per second, and tokens per second without padding."""
    figures, rng = [], np.random.default_rng(0)
    for title, task, bar in (
        ("iGSM problems, med, natural, op = 15", IGSMTask(ops="15", length=1024), Bar(30, at_least=True)),
        ("iGSM problems, toy, compact, op = 4", IGSMTask(ops="4", **IGSM_TOY), None),
    ):
        tokens_each = (task.batch(2000, rng).inputs != 0).sum() / 2000
        seconds = take_turns({"ours": timed(partial(task.batch, 2000, rng))}, rounds=5 if quick else 41)["ours"]
        table = f"{title}, one core"
        figures.append(figure(table, "IGSMTask.batch", 2 / seconds, "thousand problems/s", bar))
        figures.append(figure(table, "IGSMTask.batch", 2 / seconds * tokens_each / 1e3, "M tokens/s"))
    return figures


def python_batch(side: Side, rows: int, rng: random.Random) -> Batch:
    """Draw a batch by a task's rule in plain Python, one sequence at a time."""
    drawn = [side.python_row(side.task, rng) for _ in range(rows)]
    tokens, targets = (np.array(part, np.int64) for part in zip(*drawn, strict=True))
    return Batch(inputs=tokens[:, : side.task.length], targets=targets)


def induction_row(task: InductionTask, rng: random.Random) -> tuple[list[int], list[int]]:
    """Return tokens (one more than positions, since the last is only a target) and the answer at each position."""
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
    """Append a token, and record that it followed the previous one."""
    if tokens and follower.setdefault(tokens[-1], token) != token:
        ambiguous.add(tokens[-1])
    tokens.append(token)
    seen.add(token)


def multihop_row(task: MultiHopTask, rng: random.Random) -> tuple[list[int], list[int]]:
    """Return the hop token and letters, and as answer at each letter find_1 applied that many times."""
    hops = int(rng.random() * (task.max_hops + 1))
    tokens = [hops]
    find_1: list[int | None] = [None]
    latest: dict[int, int] = {}
    for t in range(1, task.length):
        letter = task.first_letter + int(rng.random() * task.alphabet)
        while letter == tokens[-1]:
            letter = task.first_letter + int(rng.random() * task.alphabet)
        find_1.append(latest[letter] + 1 if letter in latest else None)
        latest[letter] = t
        tokens.append(letter)

    targets = [task.blank]
    for t in range(1, task.length):
        found: int | None = t
        for _ in range(hops):
            found = find_1[found]
            if found is None:
                break
        targets.append(task.none if found is None else tokens[found])
    return tokens, targets


def ngram_row(task: NGramTask, rng: random.Random) -> tuple[list[int], list[int]]:
    """Return n-grams of the table, one after another, with the last token of each as the answer before it."""
    table = _entries(task)
    tokens: list[int] = []
    targets: list[int] = []
    while len(tokens) < task.length:
        entry = table[int(rng.random() * len(table))]
        tokens += entry
        targets += [IGNORE] * (task.order - 2) + [entry[-1], IGNORE]
    return tokens[: task.length], targets[: task.length]


@cache
def _entries(task: NGramTask) -> list[list[int]]:
    return task.table.tolist()


def mqar_row(task: MQARTask, rng: random.Random) -> tuple[list[int], list[int]]:
    """Return pairs, then random tokens in which each key occurs once more."""
    half = task.vocab_size // 2
    keys = rng.sample(range(1, half), task.pairs)
    values = rng.sample(range(half, task.vocab_size), task.pairs)
    tokens = [token for pair in zip(keys, values, strict=True) for token in pair]
    tokens += [int(rng.random() * task.vocab_size) for _ in range(task.length - len(tokens))]
    targets = [IGNORE] * task.length
    slots = list(range(2 * task.pairs, task.length - 1, 2))
    weights = [(g + 1) ** (task.power_a - 1) for g in range(len(slots))]
    for key, value in zip(keys, values, strict=True):
        (slot,) = rng.choices(range(len(slots)), weights)
        tokens[slots[slot]], targets[slots[slot]] = key, value
        del slots[slot], weights[slot]
    return tokens, targets


def _check_same_task(side: Side) -> None:
    """Check that both obey the rule and have about equally many answers: otherwise their times do not compare."""
    batches = {
        "ours": side.task.batch(64, np.random.default_rng(1)),
        "plain Python": python_batch(side, 64, random.Random(1)),
    }
    if side.numpy_batch is not None:
        batches["NumPy"] = side.numpy_batch(side.task, 64, np.random.default_rng(1))
    for batch in batches.values():
        assert batch.inputs.shape == batch.targets.shape == (64, side.task.length)
        assert batch.inputs.dtype == batch.targets.dtype == np.int64
        for row, targets in zip(batch.inputs, batch.targets, strict=True):
            side.check(side.task, row, targets)
    shares = {name: (batch.targets != IGNORE).mean() for name, batch in batches.items()}
    for name, share in shares.items():
        assert abs(shares["ours"] / share - 1) < 0.1, (
            f"ours scores {shares['ours']:.4f} of positions, {name} {share:.4f}"
        )


def check_induction(task: InductionTask, row: np.ndarray, targets: np.ndarray) -> None:
    for t in np.flatnonzero(targets != IGNORE):
        earlier = np.flatnonzero(row[:t] == row[t])
        assert len(earlier), "an answer at a token not seen before"
        assert (row[earlier + 1] == targets[t]).all(), "an answer that an earlier occurrence contradicts"


def check_multihop(task: MultiHopTask, row: np.ndarray, targets: np.ndarray) -> None:
    for t in range(1, task.length):
        found = t
        for _ in range(row[0]):
            earlier = np.flatnonzero(row[:found] == row[found])
            found = earlier[-1] + 1 if len(earlier) else 0
            if not found:
                break
        assert targets[t] == (row[found] if found else task.none), "a target that is not k hops back"


def check_ngram(task: NGramTask, row: np.ndarray, targets: np.ndarray) -> None:
    table = {tuple(entry[:-1]): entry[-1] for entry in task.table}
    for t in np.flatnonzero(targets != IGNORE):
        assert targets[t] == table[tuple(row[t - task.order + 2 : t + 1])], "a target that is not the table's"


def check_mqar(task: MQARTask, row: np.ndarray, targets: np.ndarray) -> None:
    known = dict(zip(row[: 2 * task.pairs : 2], row[1 : 2 * task.pairs : 2], strict=True))
    asked = np.flatnonzero(targets != IGNORE)
    assert sorted(row[asked]) == sorted(known), "a key that is not asked for once"
    assert all(targets[t] == known[row[t]] for t in asked), "a target that is not the key's value"


def check_brevo(task: BrevoTask, row: np.ndarray, targets: np.ndarray) -> None:
    assert task.accepts(row.tolist(), targets[targets != IGNORE].tolist()), "an answer that is no topological order"


def check_answers(name: str, task: Task, row: np.ndarray, targets: np.ndarray) -> None:
    right = {t: target for t, target, _ in DEEP[name](task, row.tolist())}
    assert {t: targets[t] for t in np.flatnonzero(targets != IGNORE)} == right, "a target that is not the rule's"


SIDES = (
    Side(
        title="Induction rows, vocabulary 8000, length 512",
        task=InductionTask(vocab_size=8000, length=512),  # the paper's scale
        rows=512,
        python_row=induction_row,
        check=check_induction,
        bar=Bar(15, at_least=True),
        numpy_batch=induction_batch,
    ),
    Side(
        title="Multi-hop rows, up to 16 hops, length 99",
        task=MultiHopTask(),
        rows=2048,
        python_row=multihop_row,
        check=check_multihop,
        bar=Bar(15, at_least=True),
    ),
    Side(
        title="3-gram rows, 200 pairs, length 63",
        task=NGramTask(),
        rows=4096,
        python_row=ngram_row,
        check=check_ngram,
        bar=Bar(15, at_least=True),
    ),
    Side(
        title="MQAR rows, vocabulary 8192, length 512, 64 pairs",
        task=MQARTask(length=512, pairs=64),  # Zoology's largest
        rows=512,
        python_row=mqar_row,
        check=check_mqar,
    ),
    Side(
        title="Depo rows, 75 names of 5 to 7 tokens, up to 16 hops, length 2048",
        task=DepoTask(vocab_size=24, length=2048, names=75, max_hops=16, name_length=(5, 7)),
        rows=128,
        python_row=DEEP["depo_row"],
        check=partial(check_answers, "depo_answers"),
    ),
    Side(
        title="Brevo rows, 30 vertices, length 256",
        task=BrevoTask(vocab_size=64, length=256, vertices=30),
        rows=1024,
        python_row=DEEP["brevo_row"],
        check=check_brevo,
    ),
    Side(
        title="Mano rows, modulus 23, up to 10 operations, length 512",
        task=ManoTask(vocab_size=64, length=512, modulus=23, max_operations=10),
        rows=512,
        python_row=DEEP["mano_row"],
        check=partial(check_answers, "mano_answers"),
    ),
)

IGSM_TOY = {"difficulty": "toy", "format": "compact", "length": 128}
