"""Sequences of repeated random tokens, on which induction heads can be recognised."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.measure.heads import prefix_matches
from ihlab.model.transformer import Transformer
from tasks import IGNORE, Batch, StoredTask, Task
from tasks.config import require, require_integer

PREFIX_REPEATS, STRIPE_REPEATS = 4, 2
LEAST_PERIOD = 3
"""Minimum number of repeated tokens. If 2 alternate, the token after an earlier occurrence is also
the previous one.
"""
TASK_ROWS = 16

LONGEST_PROBE = 128
"""Default length of a probe if a model's training is unknown. At 128, GPT-2's patterns on 16
sequences take 150 MB. Memory grows with the square of the length, and the contexts of such models
are long."""


class Probe(NamedTuple):
    """Repeated random tokens, and the attention that counts as prefix matching in them."""

    tokens: Int[Tensor, "rows pos"]
    matches: Bool[Tensor, "rows query key"]


@dataclass(frozen=True)
class ProbeTokens:
    """The ids and the length of a model's probes.

    - `content`: the ids that are drawn; `begin`: the ids at the start of every sequence;
    - `length`: the default number of positions;
    - `padding`: the padding id, if there is one.
    """

    content: Sequence[int]
    begin: tuple[int, ...]
    length: int
    padding: int | None = None


def task_tokens(task: Task) -> ProbeTokens:
    """Return the tokens of a task's probes: the content ids that the task draws.

    A model has learned no other ids. Its probes are as long as the task's sequences and begin with
    the same tokens. The task defines which ids are not content (`tasks.Task`).
    """
    rows = draw(task, EVAL_SEED, "probe", 0, 256, packed=True).inputs
    begin = getattr(task, "begins_with", None)
    if begin is None:
        first = rows == rows[0, 0]
        only_first = first.sum() == first[:, 0].sum() == len(rows)
        begin = rows[0, :1].tolist() if only_first else ()
    content = np.setdiff1d(rows, getattr(task, "special_ids", begin)).tolist()
    return ProbeTokens(content, tuple(begin), task.length, getattr(task, "padding_id", None))


def beginning(tokens: ProbeTokens, prepend_bos: bool | None, bos: int | None) -> ProbeTokens:
    """Return `tokens` with `begin` empty (`prepend_bos` False), `bos` unless it has ids (True), or
    unchanged (None).

    Raises `ConfigError` for `prepend_bos` True if no `bos` id is known.
    """
    if prepend_bos is None or (prepend_bos and tokens.begin):
        return tokens
    require(
        not prepend_bos or bos is not None,
        "bos is True, but the model names no beginning-of-sequence token (bos_token_id): leave it out.",
    )
    return replace(tokens, begin=(bos,) if prepend_bos and bos is not None else ())


def padding_id(model: Transformer) -> int | None:
    """Return the padding id of the task that a model was trained on, if there is one."""
    return getattr(model.trained_on, "padding_id", None)


def model_tokens(model: Transformer) -> ProbeTokens:
    """Return the tokens of the task that a model was trained on. If it is unknown, return the
    model's vocabulary.

    A converted model's known special tokens are left out of the vocabulary.

    The default length is the task's, or `LONGEST_PROBE` if the task is unknown, and at most n_ctx.
    """
    task = model.trained_on
    most = min(model.cfg.n_ctx, LONGEST_PROBE if task is None else task.length)
    if task is None or isinstance(task, StoredTask):
        special = set(model.special_tokens.values())
        return ProbeTokens([i for i in range(model.cfg.d_vocab) if i not in special], (), most)
    return replace(task_tokens(task), length=most)


def task_period(task: Task) -> int:
    """Return the number of tokens that a task's probe repeats."""
    of_task = task_tokens(task)
    return min((task.length - len(of_task.begin)) // PREFIX_REPEATS, len(of_task.content))


def task_probe(task: Task, device: torch.device | None = None) -> Probe | None:
    """Return a task's ids, repeated to fill its length: the probe of evaluations. None if the
    length is too short.
    """
    of_task = task_tokens(task)
    if task_period(task) < LEAST_PERIOD:
        return None
    tokens = probe_rows(of_task, PREFIX_REPEATS, TASK_ROWS, seed=EVAL_SEED).to(device)
    return Probe(tokens, prefix_matches(tokens))


def probe_rows(
    of: ProbeTokens,
    repeats: int,
    rows: int,
    length: int | None = None,
    ids: Sequence[int] | None = None,
    seed: int = 0,
) -> Int[Tensor, "rows pos"]:
    """Return sequences of at most `length` positions: the beginning, then random tokens, repeated
    `repeats` times.

    `of`: the tokens of a model, which give the defaults of `length` and `ids`.
    """
    if length is None:
        length = of.length
    require_integer("length", length, 1)
    period = (length - len(of.begin)) // repeats
    return repeated_rows(of.content if ids is None else ids, rows, period, repeats, seed, of.begin)


def repeated_rows(
    ids: Sequence[int],
    rows: int,
    period: int,
    repeats: int,
    seed: int = 0,
    begin: Sequence[int] = (),
) -> Int[Tensor, "rows pos"]:
    """Return sequences of `period` distinct random ids (or all, if there are fewer), each repeated
    `repeats` times.

    The ids of `begin` come first in every sequence. Raises `ConfigError` if a sequence would hold
    fewer than 3 distinct ids.
    """
    period = min(period, len(ids))
    require(
        period >= LEAST_PERIOD,
        f"{period} distinct tokens would be repeated {repeats} times, but at least {LEAST_PERIOD} are needed: "
        "give more ids, or a longer length.",
    )
    for name, value, least in (("rows", rows, 1), ("seed", seed, 0)):
        require_integer(name, value, least)
    rng = np.random.default_rng(seed)
    first = np.asarray(begin, dtype=np.int64)
    tokens = [
        np.r_[first, np.tile(rng.permutation(np.asarray(ids))[:period], repeats)]
        for _ in range(rows)
    ]
    return torch.from_numpy(np.stack(tokens))


def repeated_batch(rows: Int[Tensor, "rows pos"], repeats: int, begin: int = 0) -> Batch:
    """Return sequences of `repeated_rows` as a task: predict each next token from the second repeat
    on.

    `begin` is the number of tokens before the first repeat.
    """
    inputs = rows.cpu().numpy()
    targets = np.full_like(inputs, IGNORE)
    first = begin + (inputs.shape[1] - begin) // repeats
    targets[:, first - 1 : -1] = inputs[:, first:]
    return Batch(inputs, targets)


def rolled(rows: Int[Tensor, "rows pos"], last: int, seed: int = 0) -> Int[Tensor, "rows pos"]:
    """Return sequences whose last `last` tokens are rolled, each by its own number of positions,
    never by 0.
    """
    by = np.random.default_rng(seed).integers(1, last, size=(len(rows), 1))
    order = torch.from_numpy((np.arange(last) + by) % last).to(rows.device)
    return torch.cat([rows[:, :-last], rows[:, -last:].gather(1, order)], dim=1)
