"""Prove or refute that a model with one attention layer answers every sequence of a set rightly."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ihlab.certify.certificate import (
    PROVED,
    REFUTED,
    UNKNOWN,
    Certificate,
    dtype_of,
    in_order,
    model_digest,
    ranges,
    require_lengths,
    rows_of,
)
from ihlab.certify.judges import problems
from ihlab.certify.parts import left_out
from ihlab.certify.plain import longer, on_one_thread, plain_copy
from ihlab.certify.search import margins_after
from ihlab.certify.sequences import Sequences, automata_of
from ihlab.certify.with_mlp import judge_of
from ihlab.interp.sources import opened_model
from ihlab.model.transformer import Transformer
from ihlab.runtime.progress import tracked
from ihlab.runtime.settings import own_settings
from tasks.config import require, shown

MARGINS_UP_TO = 32
"""Number of tokens of the alphabet up to which every margin is computed by default."""


@own_settings()
def certify(
    source: Any,
    task: Any = None,
    lengths: Iterable[int] | None = None,
    *,
    questions: Sequence[tuple[int, int] | Sequences] | None = None,
    margins: bool | None = None,
    without: Sequence[str] = (),
    path: str | Path | None = None,
) -> Certificate:
    """Prove or refute that a model answers every sequence of a task rightly
    (`ihlab.certify.sequences`).

    The proof is about the stored weights in real arithmetic: every number from the weights to the
    verdict is enclosed (`ihlab.certify.enclosures`). With one head, the smallest margin of all
    sequences is found, up to rounding (`ihlab.certify.walks`). With several heads, a lower bound is
    computed (`ihlab.certify.judges`), and a search looks for a sequence that is answered wrongly.

    - `source`: a `Run` or a `Transformer`;
    - `task`: an `InductionTask`; by default the task that the model was trained on;
    - `lengths`: numbers of tokens, by default 2 up to the task's. Above n_ctx the model must have
      no learned positions;
    - `questions`: pairs (query, answer), by default all of the task's; or your own automata
      (`Sequences`);
    - `margins`: True: compute the bound and the worst sequence of every row. False: of proved rows
      only at the longest length (with several heads, of every row). By default True for
      at most 32 tokens in the alphabet;
    - `without`: parts of the model to leave out (`ihlab.certify.parts`): what is proved is about
      the rest;
    - `path`: the file in which to store the finished certificate. It may exist only if it is of the
      same model, task, lengths, questions and options. It is then replaced when the new one is
      finished.

    A progress bar counts the query tokens in a terminal or a notebook. Raises `ConfigError`, with
    the reason, for a model that is not one layer or does more than its weights say (hooks, changed
    buffers), for weights that are not finite or too large to be enclosed, and for tasks, lengths
    and questions that the proof does not cover.
    """
    model, chosen, planned = plan(source, task, lengths, questions, margins, without)
    if path is not None:
        require(
            planned.task is not None,
            "A certificate of your own automata is not stored: leave path out.",
        )
        require_same_call(Path(path), planned)
    plain = plain_copy(model, planned.lengths[-1])
    with_margin = {*planned.lengths} if planned.margins else {planned.lengths[-1]}
    rows = _rows(plain, chosen, planned.lengths, with_margin)
    require(
        bool(rows),
        f"No question has a sequence of {ranges(planned.lengths)} tokens: give larger lengths.",
    )
    table = in_order(_settled(rows, longer(model, planned.lengths[-1])))
    named = list(table[["length", "query", "answer"]].itertuples(index=False, name=None))
    assert planned.task is None or named == rows_of(chosen, planned.lengths), (
        "a question of the set was not judged"
    )
    certificate = planned.finished(table, chosen, plain)
    if path is not None:
        require_same_call(Path(path), planned)  # another process may have written it since
        certificate.save(path)
    return certificate


def plan(
    source: Any,
    task: Any,
    lengths: Iterable[int] | None,
    questions: Sequence[tuple[int, int] | Sequences] | None,
    margins: bool | None,
    without: Sequence[str] = (),
) -> tuple[Transformer, list[Sequences], Certificate]:
    """Return the model, the questions, and a certificate without rows, whose `key` is that of the
    finished one.
    """
    model = left_out(source, without)
    task = getattr(model, "trained_on", None) if task is None else task
    chosen = _questions(task, questions)
    if lengths is None:
        require(task is not None, "The task is not known: give lengths=[...].")
        lengths = range(2, task.length + 1)
    wanted = require_lengths(lengths)
    require_fits(model, chosen, wanted)
    pairs = None
    if questions is not None:
        pairs = list(map(attrgetter("query", "answer"), chosen))
        if isinstance(questions[0], Sequences):
            task = None
    certificate = Certificate(
        table=pd.DataFrame(),
        model=model_digest(model),
        dtype=dtype_of(model),
        task=task,
        lengths=wanted,
        questions=pairs,
        margins=len(chosen[0].alphabet) <= MARGINS_UP_TO if margins is None else margins,
        without=tuple(without),
    )
    return model, chosen, certificate


def require_fits(
    model: Transformer, questions: Sequence[Sequences], lengths: Sequence[int]
) -> None:
    """Raise `ConfigError` unless the model reads the ids and the lengths."""
    largest, longest = int(questions[0].alphabet[-1]), lengths[-1]
    require(
        largest < model.cfg.d_vocab,
        f"The set has ids up to {largest}, but the model's d_vocab is {model.cfg.d_vocab}.",
    )
    require(
        model.pos_embed is None or longest <= model.cfg.n_ctx,
        f"The length is {longest}, but the model has learned positions for n_ctx={model.cfg.n_ctx} tokens.",
    )


def _questions(
    task: Any, questions: Sequence[tuple[int, int] | Sequences] | None
) -> list[Sequences]:
    """Return the automata of all questions, sorted by query and answer."""
    if questions is not None:
        require(
            len(questions) > 0,
            "questions is [], but must have at least one question (query, answer).",
        )
        if isinstance(questions[0], Sequences):
            alphabets = {automaton.alphabet.tobytes() for automaton in questions}  # type: ignore[union-attr]
            require(
                len(alphabets) == 1,
                "The automata have different alphabets: call certify once for each alphabet.",
            )
            return sorted(questions, key=attrgetter("query", "answer"))  # type: ignore[arg-type]
    require(task is not None, "The task of the model is not known: give one.")
    if questions is None:
        return automata_of(task)
    for question in questions:
        require(
            isinstance(question, tuple | list),
            f"A question is {shown(question)}, but must be a pair (query, answer) of ids.",
        )
    return automata_of(task, map(tuple, questions))  # type: ignore[arg-type]


def require_same_call(path: Path, planned: Certificate) -> None:
    """Raise `ConfigError` if a path has the certificate of another model or call."""
    if path.exists():
        stored = Certificate.open(path)
        for name in ("without", "model", "task", "lengths", "questions", "margins"):
            require(
                getattr(stored, name) == getattr(planned, name),
                f"{path} is the certificate of another model or call ({name} differs): give another path.",
            )


def _rows(
    model: Transformer, questions: Sequence[Sequences], lengths: list[int], with_margin: set[int]
) -> list[dict[str, Any]]:
    """Return a row with the verdict for each question at each length that has sequences."""
    judge = judge_of(model, questions[0].alphabet, lengths[-1])
    by_query = [list(group) for _, group in groupby(questions, key=attrgetter("query"))]
    rows = []
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for some in problems(model, lengths):
            for group in tracked(by_query, "certifying query tokens"):
                judge.tables(group[0].question.query, some[-1])  # before the threads use them
                work = partial(judge.judge, lengths=some, with_margin=with_margin)
                for of_question in pool.map(work, group):
                    rows += of_question
    return rows


def _settled(rows: list[dict[str, Any]], model: Transformer) -> pd.DataFrame:
    """Run the model on the sequences, and return the rows with their verdicts.

    A row is refuted if its sequence has a margin of 0 or less and the model answers it wrongly. A
    proved row that names a sequence stays so only if the model, in its own arithmetic, answers it
    rightly.
    """
    table = pd.DataFrame(rows)
    known = table[table["worst"].map(len) > 0]
    for _, some in known.groupby("length"):
        wrong = ~answered_rightly(model, some)
        refuted = wrong & (some["margin"] <= 0)
        doubted = wrong & (some["verdict"] == PROVED)
        table.loc[some.index[doubted], "verdict"] = UNKNOWN
        table.loc[some.index[refuted], "verdict"] = REFUTED
    return table


@on_one_thread()
def answered_rightly(model: Transformer, rows: pd.DataFrame) -> np.ndarray:
    """Return for which rows, all of one length, the model gives the answer a larger logit than any
    other token after the sequence `worst`.
    """
    tokens, answers = np.array(rows["worst"].tolist()), rows["answer"].to_numpy()
    return margins_after(opened_model(model), tokens, answers) > 0
