"""Metrics of a run's model: loss, accuracy, induction-head scores, alpha and beta."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor
from torch.nn import functional as F

from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.measure.gathered import EvaluationBatch, each_tensor, evaluation_batch
from ihlab.measure.guess import guess_of
from ihlab.measure.heads import mean_attention, scored_patterns
from ihlab.measure.probe import task_probe
from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer
from ihlab.runtime.modes import in_eval_mode
from ihlab.runtime.settings import own_settings
from tasks import IGNORE, Batch

CHUNK_POSITIONS = 8192  # tokens per evaluation forward pass
# The same on a CPU: twice as many exceed its cache and take 1.1 to 1.25 times as long.
CPU_POSITIONS = 4096
# The same for all members of a stack together, which share each PyTorch call.
STACKED_POSITIONS = 32768
ANSWER_ROWS = 64  # held-out sequences used to measure the heads' attention to the answer


class Evaluator:
    """Measure a model on a fixed held-out set and on repeated random tokens.

    `run` is a `RunConfig`. Its `task`, `model` and `eval_rows` decide what is drawn and how heads
    are named. `numbers` returns all measurements of a model in one tensor, so that a device is
    synchronised once; `row` names them. If `members` of an ensemble are measured together on a CPU,
    they share `STACKED_POSITIONS` tokens per forward pass.
    """

    @own_settings()
    def __init__(self, run: Any, device: torch.device, members: int = 1) -> None:
        batch = draw(run.task, EVAL_SEED, "eval", 0, run.eval_rows, packed=True)
        on_cpu = device.type == "cpu"
        positions = min(CPU_POSITIONS, STACKED_POSITIONS // members) if on_cpu else CHUNK_POSITIONS
        rows = max(1, positions // run.task.length)
        self.slices = slices(batch)
        self.guess = guess_of(batch)
        self.batches: list[EvaluationBatch] = []
        self.masks: list[Bool[Tensor, "slice gathered"]] = []
        for start in range(0, run.eval_rows, rows):
            chunk = batch.rows(start, start + rows)
            self.batches.append(evaluation_batch(chunk, device))
            self.masks.append(membership(chunk, self.slices).to(device))
        self.n_in_slices = torch.cat(self.masks, dim=1).sum(dim=1).tolist()
        self.probe = task_probe(run.task, device)
        self.answers = answer_places(batch.rows(0, ANSWER_ROWS), device)
        self.names: list[str] = []
        if self.probe is not None:
            self.names += _head_names("prefix", run.model)
        if self.answers is not None:
            self.names += _head_names("answer", run.model)
        self.names += _shift_names(run.model)

    @own_settings()
    @torch.no_grad()
    def __call__(self, model: Transformer) -> dict[str, float]:
        """Return one row of metrics: eval_loss, accuracy, accuracy_hops_3, prefix_L.H, answer_L.H,
        alpha1_L.G, ...
        """
        return self.row(self.numbers(model).tolist())

    def numbers(self, model: Transformer) -> Float[Tensor, " numbers"]:
        """Return the counts on the held-out set, the head scores, and alpha and beta, in float64."""
        parts = [_counts(model, self.batches, self.masks)]
        if self.probe is not None:
            tokens, matches = self.probe
            parts.append(scored_patterns(model, tokens, lambda x: mean_attention(x, matches)))
        if (answers := self.answers) is not None:
            attention = partial(answer_attention, answers=answers)
            parts.append(scored_patterns(model, answers.tokens, attention))
        parts += _shift_weights(model)
        return torch.cat([each.double() for each in parts])

    def row(self, numbers: Sequence[float]) -> dict[str, float]:
        """Return the numbers of one model as a row of metrics."""
        n_counts = len(numbers) - len(self.names)
        counted = _fractions(numbers[:n_counts], self.batches, self.slices, self.n_in_slices)
        return counted | dict(zip(self.names, numbers[n_counts:], strict=True))


@in_eval_mode
def held_out(model: Transformer, batches: list[EvaluationBatch]) -> dict[str, float]:
    """Return the loss over targets, and the accuracy over all answers and over first answers; NaN
    without answers.
    """
    return _fractions(_counts(model, batches, ()).tolist(), batches, (), ())


def _counts(
    model: Transformer, batches: list[EvaluationBatch], masks: Sequence[Bool[Tensor, "slice _"]]
) -> Float[Tensor, " counts"]:
    """Return the summed loss, and the number of correct answers: all, first answers, and per slice."""
    by_batch = []
    for i, batch in enumerate(batches):
        residual = model.residual_at(batch.tokens, batch.index, batch.queries, batch.starts)
        logits = model.unembed(residual).float()
        loss = F.cross_entropy(logits, batch.targets, ignore_index=IGNORE, reduction="sum")
        hit = logits.argmax(dim=-1) == batch.answers
        right = torch.stack([hit.sum(), (hit & batch.first).sum()])
        in_slices = [(masks[i] & hit).sum(dim=1).double()] if masks else []
        by_batch.append(torch.cat([loss.double()[None], right.double(), *in_slices]))
    return torch.stack(by_batch).sum(dim=0)


def _fractions(
    counts: Sequence[float],
    batches: list[EvaluationBatch],
    slices: Sequence[tuple[str, int]],
    n_in_slices: Sequence[int],
) -> dict[str, float]:
    totals = np.array([batch.counts for batch in batches])
    names = ["eval_loss", "accuracy", "accuracy_first"]
    names += [f"accuracy_{group}_{value}" for group, value in slices]
    row = {}
    for name, n, of in zip(names, counts, [*totals.sum(axis=0), *n_in_slices], strict=True):
        row[name] = float(n / of) if of else math.nan
    return row


def slices(batch: Batch) -> list[tuple[str, int]]:
    """Return every (group, value) that some answer of the batch belongs to, values in order.

    Gaps take many values, so they are grouped by powers of two: ("gap", 4) covers the gaps 4 to 7.
    """
    answered = batch.answers != IGNORE
    found = []
    for group in batch.groups:
        values = np.unique(by_position(group, batch)[answered]).tolist()
        found += [(group, value) for value in values]
    return found


def membership(batch: Batch, slices: Sequence[tuple[str, int]]) -> Bool[Tensor, "slice gathered"]:
    """Mark the positions of `EvaluationBatch.index` whose answers belong to each slice."""
    answered = batch.answers != IGNORE
    of_group = {group: by_position(group, batch) for group in batch.groups}
    members = np.zeros((len(slices), *answered.shape), dtype=bool)
    for member, (group, value) in zip(members, slices, strict=True):
        member[:] = answered & (of_group[group] == value)
    return torch.from_numpy(members[:, answered | (batch.targets != IGNORE)])


def by_position(group: str, batch: Batch) -> Int[np.ndarray, "batch pos"]:
    """Return a group's value at each position, as in metrics: a gap counts as the largest power of
    2 up to it.
    """
    values = batch.groups[group]
    if group == "gap":
        # The largest power of two that is not larger.
        values = np.left_shift(1, np.frexp(values)[1]) // 2
    if values.ndim == 1:
        values = values[:, None]
    return np.broadcast_to(values, batch.inputs.shape)


@dataclass(frozen=True)
class AnswerPlaces:
    """Sequences of a task, the position at which each first answer is due, and that answer's
    earlier places in the sequence.

    The places are the positions that hold the answer and directly follow an occurrence of the
    query's token at least two positions before the query.
    """

    tokens: Int64[Tensor, "batch pos"]
    query: Int64[Tensor, " batch"]
    places: Bool[Tensor, "batch pos"]


def answer_places(batch: Batch, device: torch.device | None = None) -> AnswerPlaces | None:
    """Return the places of each sequence's first answer; None if a sequence has none, and for
    packed documents.
    """
    tokens, answered = batch.inputs, batch.answers != IGNORE
    if batch.document_starts is not None:
        return None
    rows, query = np.arange(len(tokens)), answered.argmax(axis=1)
    followed = tokens[:, :-1] == tokens[rows, query][:, None]
    right = tokens[:, 1:] == batch.answers[rows, query][:, None]
    earlier = np.arange(tokens.shape[1] - 1) <= query[:, None] - 2
    places = np.pad(followed & right & earlier, ((0, 0), (1, 0)))
    if not (answered.any(axis=1) & places.any(axis=1)).all():
        return None
    answers = AnswerPlaces(*map(torch.from_numpy, (tokens.copy(), query, places)))
    return each_tensor(answers, lambda x: x.to(device))


def answer_attention(
    pattern: Float[Tensor, "batch head query key"], answers: AnswerPlaces
) -> Float[Tensor, " head"]:
    """Return the mean attention from the query to the answer's places: an induction score on the
    task.
    """
    rows = torch.arange(len(pattern), device=pattern.device)
    return (pattern[rows, :, answers.query] * answers.places[:, None]).sum(dim=2).mean(dim=0)


def _head_names(score: str, cfg: ModelConfig) -> list[str]:
    return [f"{score}_{layer}.{head}" for layer, head in np.ndindex(cfg.n_layers, cfg.n_heads)]


def _shift_weights(model: Transformer) -> list[Float[Tensor, " weights"]]:
    """Return each layer's alpha, beta and gamma, in the order of `_shift_names`."""
    weights = []
    for block, name in itertools.product(model.layers, model.cfg.learned_shifts):
        weights.append(getattr(block.attn, name).flatten())
    return weights


def _shift_names(cfg: ModelConfig) -> list[str]:
    n_heads = {"alpha": cfg.kv_heads, "beta": cfg.kv_heads, "gamma": cfg.n_heads}
    names = []
    for layer, name in itertools.product(range(cfg.n_layers), cfg.learned_shifts):
        shape = n_heads[name], cfg.shift_window
        names += [f"{name}{column + 1}_{layer}.{head}" for head, column in np.ndindex(shape)]
    return names
