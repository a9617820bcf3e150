"""Prove or refute that a model with one attention layer answers every sequence of a set rightly."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ihlab.certify.certificate import (
    LONGEST,
    PROVED,
    REFUTED,
    UNKNOWN,
    Certificate,
    automata_of,
    dtype_of,
    in_order,
    model_digest,
    ranges,
    rows_of,
)
from ihlab.certify.judges import Judgement, judge_of
from ihlab.certify.parts import left_out
from ihlab.certify.plain import longer, on_one_thread, plain_copy
from ihlab.certify.search import last_logits
from ihlab.certify.sequences import Sequences
from ihlab.interp.sources import opened_model
from ihlab.model.transformer import Transformer
from ihlab.runtime.progress import tracked
from ihlab.runtime.settings import own_settings
from tasks.config import require, require_integer, shown

MARGINS_UP_TO = 32
"""Number of tokens of the alphabet up to which every margin is computed by default."""
SEQUENCES = 4096
"""Sequences that the model reads at a time."""


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
    sequences is found, up to rounding (`ihlab.certify.walks`). With several heads or an MLP, a
    lower bound is computed (`ihlab.certify.judges`). With several heads a search also looks for a
    sequence that is answered wrongly.

    - `source`: a `Run`, a `Transformer`, or the Hugging Face model that `to_hf` made of one, or its
      folder;
    - `task`: an `InductionTask` or `MQARTask`; by default the task that the model was trained on;
    - `lengths`: numbers of tokens, by default 2 up to the task's. Above n_ctx the model must have
      no learned positions;
    - `questions`: pairs (query, answer), by default all of the task's; or your own automata
      (`Sequences`);
    - `margins`: True: compute the bound and the worst sequence of every row. False: of proved rows
      only at the longest length (with several heads or an MLP, of every row). By default True for
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
    require(
        path is None or isinstance(path, str | Path),
        f"path is {shown(path)}, but must be the path of a file.",
    )
    if path is not None:
        require(
            planned.task is not None,
            "A certificate of your own automata is not stored: leave path out.",
        )
        _require_same_call(Path(path), planned)
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
        _require_same_call(Path(path), planned)  # another process may have written it since
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
    wanted = _lengths(lengths, task)
    alphabet = chosen[0].alphabet
    require_fits(model, chosen, wanted)
    own = questions is not None and isinstance(next(iter(questions)), Sequences)
    certificate = Certificate(
        table=pd.DataFrame(),
        model=model_digest(model),
        dtype=dtype_of(model),
        task=None if own else task,
        lengths=wanted,
        questions=None if questions is None else [(each.query, each.answer) for each in chosen],
        margins=len(alphabet) <= MARGINS_UP_TO if margins is None else margins,
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
    asked: list[Any] = [] if questions is None else list(questions)
    require(
        questions is None or len(asked) > 0,
        "questions is [], but must have at least one question (query, answer).",
    )
    if asked and all(isinstance(question, Sequences) for question in asked):
        for question in asked:
            same = np.array_equal(question.alphabet, asked[0].alphabet)
            require(
                same,
                "The automata have different alphabets: call certify once for each alphabet.",
            )
        return sorted(asked, key=lambda question: (question.query, question.answer))
    require(task is not None, "The task of the model is not known: give one.")
    if questions is None:
        return automata_of(task, None)
    for question in asked:
        pair = isinstance(question, tuple | list) and len(question) == 2
        whole = pair and all(
            isinstance(token, Integral) and not isinstance(token, bool) for token in question
        )
        require(
            whole, f"A question is {shown(question)}, but must be a pair (query, answer) of ids."
        )
    return automata_of(task, [(int(query), int(answer)) for query, answer in asked])


def _lengths(lengths: Iterable[int] | None, task: Any) -> list[int]:
    require(lengths is not None or task is not None, "The task is not known: give lengths=[...].")
    require(
        lengths is None or isinstance(lengths, Iterable),
        f"lengths is {shown(lengths)}, but must be several numbers.",
    )
    wanted = list(range(2, task.length + 1) if lengths is None else lengths)
    for length in wanted:
        require_integer("A length", length, 2)
    wanted = sorted({int(length) for length in wanted})
    require(
        len(wanted) > 0 and wanted[-1] <= LONGEST,
        f"lengths is {shown(wanted)}, but must be numbers of tokens from 2 to {LONGEST}.",
    )
    return wanted


def _require_same_call(path: Path, planned: Certificate) -> None:
    """Raise `ConfigError` if a path has the certificate of another model or call."""
    if path.exists():
        stored = Certificate.open(path)
        for name in ("model", "task", "lengths", "questions", "margins"):
            require(
                getattr(stored, name) == getattr(planned, name),
                f"{path} is the certificate of another model or call ({name} differs): give another path.",
            )


def _rows(
    model: Transformer, questions: Sequence[Sequences], lengths: list[int], with_margin: set[int]
) -> list[dict[str, Any]]:
    """Return what is known of each question at each length that has sequences."""
    judge = judge_of(model, questions[0].alphabet, lengths[-1])
    # With learned positions, every length is a problem of its own. Otherwise tables of the longest
    # serve all.
    groups = [lengths] if model.pos_embed is None else [[length] for length in lengths]
    by_query = [list(group) for _, group in groupby(questions, key=lambda question: question.query)]
    rows = []
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for some in groups:
            for group in tracked(by_query, "certifying query tokens"):
                judge.prepare(group[0].query, some[-1])
                work = partial(judge.judge, lengths=some, with_margin=with_margin)
                for question, judgements in zip(group, pool.map(work, group), strict=True):
                    rows += [_row(question, judgement) for judgement in judgements]
    return rows


def _row(question: Sequences, judgement: Judgement) -> dict[str, Any]:
    return {
        "length": judgement.length,
        "query": question.query,
        "answer": question.answer,
        "verdict": PROVED if judgement.proved else UNKNOWN,
        "margin": judgement.margin,
        "bound": judgement.bound,
        "worst": question.alphabet[judgement.walk].tolist(),
    }


def _settled(rows: list[dict[str, Any]], model: Transformer) -> pd.DataFrame:
    """Run the model on the sequences, and return the rows with their verdicts.

    A row is refuted if its sequence has a margin of 0 or less and the model answers it wrongly. A
    row stays proved only if the model, in its own arithmetic, answers its sequence rightly.
    """
    table = pd.DataFrame(rows)
    known = table[table["worst"].map(len) > 0]
    for _, same_length in known.groupby("length"):
        for start in range(0, len(same_length), SEQUENCES):
            some = same_length.iloc[start : start + SEQUENCES]
            right = answered_rightly(
                model, np.array(some["worst"].tolist()), some["answer"].to_numpy()
            )
            wrong = ~right & (some["margin"] <= 0)
            doubted = ~right & (some["verdict"] == PROVED)
            table.loc[some.index[doubted], "verdict"] = UNKNOWN
            table.loc[some.index[wrong], "verdict"] = REFUTED
    return table


@on_one_thread()
@torch.no_grad()
def answered_rightly(model: Transformer, tokens: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Return for which sequences [row, pos] the model gives the answer a larger logit than any
    other token.
    """
    logits = last_logits(opened_model(model), tokens).cpu()
    answer = torch.tensor(answers)[:, None]
    others = logits.scatter(1, answer, -torch.inf).amax(dim=1)
    return (logits.gather(1, answer)[:, 0] > others).numpy()
