"""Train a model until it is proved right on every sequence, on the sequences that it answers worst."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ihlab.certify.attack import attack
from ihlab.certify.certify import certify
from ihlab.certify.sequences import automata_of
from ihlab.model.transformer import Transformer
from ihlab.runtime.modes import evaluating
from ihlab.training.config import Lessons, RunConfig, TaughtConfig, taught
from ihlab.training.lessons import Found
from ihlab.training.progress import Report
from ihlab.training.run import Run
from ihlab.training.run_writer import Callback
from ihlab.training.train import train
from tasks.config import require, shown

QUESTIONS, DRAWN = 48, 5
"""Questions of each length that an attack searches, or that random lessons ask; sequences drawn for
each of these.
"""


def train_until_proved(
    config: RunConfig,
    lengths: Sequence[int] | None = None,
    *,
    rows: str = "proof",
    start: int = 100,
    every: int = 50,
    root: str | Path = "runs",
    device: str = "auto",
    report: Report | None = None,
    callback: Callback | None = None,
) -> Run:
    """Train a run until its model is proved right on every sequence of the task's set, or its steps
    are over.

    From step `start` on, two thirds of each batch are the sequences that the model answers
    worst. They are searched anew every `every` steps, or at the next evaluation. The metrics
    of the run have the column `proved_length`: at the last search, every sequence up to this
    length was answered rightly. Training ends once it is the largest of the `lengths`.

    - `config`: the run, for instance with a learning rate that falls (`schedule`). Or a
      `TaughtConfig`, which has the lengths and the other options of the lessons itself;
    - `lengths`: numbers of tokens of the sequences, by default the task's length. A model whose
      n_ctx is larger than the task's length can be taught longer ones;
    - `rows`: "proof": a certificate gives the sequences (`certify`). "attack": a search finds them
      (`attack`), for models that a proof does not cover. The metrics then have `attacked_accuracy`
      instead. Training ends once the search finds no wrong answer, which proves nothing. "random":
      sequences are drawn from the set of the proof, and training takes all its steps;
    - `root`, `device`, `report`, `callback`: as in `train`.

    A finished run is returned unchanged. An interrupted one is resumed, on the CPU bit for bit.
    Raises `ConfigError` as `train`, `certify` and `attack` do.
    """
    require(
        type(config) in (RunConfig, TaughtConfig),
        f"The config is {shown(config)}, but must be a RunConfig.",
    )
    if not isinstance(config, TaughtConfig):
        wanted = tuple(lengths or [config.task.length])
        config = taught(config, Lessons(lengths=wanted, rows=rows, start=start, every=every))  # type: ignore[arg-type]
    find = {"proof": _from_proof, "attack": _from_attack, "random": _from_set}[config.lessons.rows]
    return train(config, root, device, report, callback=callback, find=partial(find, config))


def _from_proof(config: TaughtConfig, model: Transformer, step: int) -> Found:
    """Return the worst sequences of a certificate, and the length up to which all are proved."""
    longest = config.lessons.lengths[-1]
    with evaluating(model):
        certificate = certify(model, config.task, range(2, longest + 1), margins=False)
    table = certificate.table
    worst = table[table["length"].isin(config.lessons.lengths) & (table["worst"].map(len) > 0)]
    return _lessons(worst), {"proved_length": float(certificate.longest)}


def _from_attack(config: TaughtConfig, model: Transformer, step: int) -> Found:
    """Return the worst sequences of a search, and the fraction of them that are answered rightly."""
    lessons, accuracies = [], []
    for length in config.lessons.lengths:
        attacked = attack(
            model, config.task, questions=QUESTIONS, length=length, restarts=1, sweeps=4, seed=step
        )
        lessons += _lessons(attacked.table)
        accuracies.append(attacked.accuracy)
    return lessons, {"attacked_accuracy": float(np.mean(accuracies))}


def _from_set(config: TaughtConfig, model: Transformer, step: int) -> Found:
    """Return sequences of some questions, drawn from the set of the proof."""
    rng, lessons = np.random.default_rng([config.seed, step]), []
    questions = automata_of(config.task)
    for number in rng.permutation(len(questions))[:QUESTIONS]:
        question = questions[number]
        counts = question.counts(config.lessons.lengths[-1])
        for length in config.lessons.lengths:
            if counts[length]:
                rows = question.drawn(length, DRAWN, rng)
                lessons += [[*row, question.answer] for row in rows.tolist()]
    return lessons, {}


def _lessons(table: Any) -> list[list[int]]:
    return [
        [*tokens, answer] for tokens, answer in zip(table["worst"], table["answer"], strict=True)
    ]
