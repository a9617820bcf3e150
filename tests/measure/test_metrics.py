"""The recorded numbers against hand-made models and patterns."""

from collections import defaultdict
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.func import stack_module_state

from ihlab import ModelConfig, RunConfig, Transformer
from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.measure.gathered import evaluation_batch
from ihlab.measure.heads import mean_attention
from ihlab.measure.metrics import (
    ANSWER_ROWS,
    Evaluator,
    answer_places,
    held_out,
)
from ihlab.measure.probe import task_probe
from ihlab.training.ensemble import of_each_member, over_members
from tasks import IGNORE, Batch, InductionTask, MQARTask, MultiHopTask, NGramTask


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_half_precision_is_not_summed_in_half_precision(dtype):
    """6000 rows of a perfect head: their sum is beyond float16, and bfloat16 counts to 256."""
    patterns = torch.full((6000, 1, 16, 16), 0.498046875, dtype=dtype)
    places = torch.eye(16, dtype=torch.bool).expand(6000, -1, -1)
    found = mean_attention(patterns, places)
    assert found.item() == pytest.approx(0.498046875, abs=1e-6)
    assert found.dtype == torch.promote_types(dtype, torch.float32)


def test_held_out_counts_by_hand():
    """Loss and accuracies of a model, from all of its logits."""
    task = InductionTask(vocab_size=48, length=12, score="first")
    model = Transformer(ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=48, n_ctx=12))
    batch = draw(task, 5, "eval", 0, 40)
    halves = [evaluation_batch(batch.rows(0, 20)), evaluation_batch(batch.rows(20, 40))]
    logs = model(torch.from_numpy(batch.inputs.copy())).log_softmax(dim=-1).detach().numpy()
    asked, scored = batch.answers != IGNORE, batch.targets != IGNORE
    right = logs.argmax(axis=-1) == batch.answers
    loss = -np.take_along_axis(logs[scored], batch.targets[scored][:, None], axis=1).mean()
    numbers = loss, right[asked].mean(), right[range(40), asked.argmax(axis=1)].mean()
    assert list(held_out(model, halves).values()) == pytest.approx(numbers, rel=1e-5)


@pytest.fixture
def three_hops():
    """Two layers, grouped queries, a window of three, and accuracies by hops."""
    sizes: dict[str, Any] = {"n_layers": 2, "d_model": 16, "n_heads": 4, "n_key_value_heads": 2}
    sizes |= {"d_vocab": 23, "n_ctx": 23}
    model = ModelConfig(**sizes, attention="kv_shift", shift_window=3)
    return RunConfig(task=MultiHopTask(length=23, max_hops=3), model=model, eval_rows=32, steps=1)


def test_every_number_has_its_name(three_hops):
    row = Evaluator(three_hops, torch.device("cpu"))(model := Transformer(three_hops.model))
    for layer, block in enumerate(model.layers):
        for name, weight in (("alpha", block.attn.alpha), ("beta", block.attn.beta)):
            for head, column in np.ndindex(2, 3):
                assert row[f"{name}{column + 1}_{layer}.{head}"] == weight[head, column].item()
    probe = task_probe(three_hops.task)
    assert probe is not None
    _, cache = model.run_with_cache(probe.tokens)
    for layer in range(2):
        scores = mean_attention(cache["pattern", layer], probe.matches)
        for head in range(4):
            assert row[f"prefix_{layer}.{head}"] == pytest.approx(scores[head].item())


@pytest.mark.parametrize("at_once", [None, 2])
def test_members_measured_together_are_measured_as_alone(three_hops, at_once):
    models = [Transformer(three_hops.model, seed) for seed in range(3)]
    together = Evaluator(three_hops, torch.device("cpu"), members=3)
    with torch.no_grad():
        every = of_each_member(models[0], together.numbers, partial(over_members, at_once=at_once))
        numbers = every(stack_module_state(models)[0])
    alone = Evaluator(three_hops, torch.device("cpu"))
    for model, own in zip(models, numbers.tolist(), strict=True):
        assert together.row(own) == pytest.approx(alone(model), abs=1e-5)


class AnswersByRule(Transformer):
    """At each position it says (token + offset) mod 5."""

    def __init__(self, offset):
        super().__init__(ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=5, n_ctx=3))
        self.offset = offset
        self.unembed = torch.nn.Identity()  # type: ignore[assignment]

    def residual_at(self, tokens, index, queries=None, document_starts=None):
        return torch.nn.functional.one_hot((tokens.flatten()[index] + self.offset) % 5, 5).float()


ROWS = np.array([[0, 1, 2], [3, 4, 0], [1, 1, 4], [2, 0, 3]])
ASKED = np.where(
    [[1, 0, 1], [1, 1, 1], [0, 1, 1], [0, 0, 1]],
    [[0, 9, 3], [4, 0, 0], [9, 1, 0], [9, 9, 4]],
    IGNORE,
)
TRAINED = np.where(
    [[1, 1, 1], [1, 1, 1], [1, 1, 0], [0, 1, 1]], 2, IGNORE
)  # on other positions than are asked
HOPS = np.array([7, 2, 2, 7])
GAPS = np.array([[1, 4, 2], [1, 3, 6], [8, 1, 2], [4, 4, 3]])
POWERS = {1: 1, 2: 2, 3: 2, 6: 4}  # 8 is only where nothing is asked


@pytest.fixture
def with_groups():
    return Batch(inputs=ROWS, targets=TRAINED, answers=ASKED, groups={"hops": HOPS, "gap": GAPS})


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("cut", [4, 3])
def test_accuracy_of_each_slice_by_hand(with_groups, offset, cut, monkeypatch):
    """However the rows are cut into batches, against a walk through all positions."""

    class Stored(NGramTask):
        def batch(self, size, rng):
            return with_groups if size == 4 else super().batch(size, rng)

    monkeypatch.setattr("ihlab.measure.metrics.CPU_POSITIONS", 3 * cut)
    model = AnswersByRule(offset)
    run = SimpleNamespace(task=Stored(vocab_size=40, length=3), model=model.cfg, eval_rows=4)
    evaluator = Evaluator(run, torch.device("cpu"))
    assert len(evaluator.batches) == -(-4 // cut)
    measured = evaluator(model)
    hits = defaultdict(list)
    for row, t in np.argwhere(ASKED != IGNORE):
        gap = POWERS[int(GAPS[row, t])]
        for column in ("", f"_hops_{HOPS[row]}", f"_gap_{gap}"):
            hits[f"accuracy{column}"].append((ROWS[row, t] + offset) % 5 == ASKED[row, t])
    assert measured.keys() == hits.keys() | {"eval_loss", "accuracy_first"}
    for column, right in hits.items():
        assert measured[column] == pytest.approx(np.mean(right))


def test_an_accuracy_over_nothing_is_not_a_number():
    batch = evaluation_batch(
        Batch(inputs=ROWS, targets=TRAINED, answers=np.full_like(ROWS, IGNORE))
    )
    measured = held_out(AnswersByRule(0), [batch])
    assert np.isfinite(measured["eval_loss"])
    assert np.isnan([measured["accuracy"], measured["accuracy_first"]]).all()


# Attention to the answer

PLACED = ([5, 7, 9, 5, 1, 1], 3, 7)
"""A sequence, the position where its answer is asked, and the answer: it follows the first 5."""
NO_PLACE = {
    "never seen before": ([5, 7, 9, 8, 1, 1], 3, 7),
    "followed by something else": ([5, 6, 9, 5, 7, 7], 3, 7),
    "right before, so that it stands at the query itself": ([9, 5, 5, 1, 1, 1], 2, 5),
}


def answered_at(*asked) -> Batch:
    """Sequences that are each asked at one position."""
    rows, at, answers = zip(*asked, strict=True)
    targets = np.full_like(rows, IGNORE)
    targets[np.arange(len(rows)), at] = answers
    return Batch(inputs=np.array(rows), targets=targets, answers=targets)


@pytest.mark.parametrize("name", NO_PLACE)
def test_a_task_with_a_row_whose_answer_has_no_place_has_none(name):
    assert answer_places(answered_at(PLACED)) is not None
    assert answer_places(answered_at(NO_PLACE[name])) is None
    assert answer_places(answered_at(PLACED, NO_PLACE[name])) is None


@pytest.mark.parametrize(
    "task",
    [InductionTask(vocab_size=64, length=32), MQARTask(vocab_size=64, length=64, pairs=4)],
)
def test_attention_to_the_answer_is_recorded_on_the_tasks_own_rows(task):
    """Of every head, against a walk through the first rows of the held-out set."""
    model = Transformer(ModelConfig(n_layers=2, d_model=16, n_heads=2, d_vocab=64, n_ctx=64))
    run = RunConfig(task=task, model=model.cfg, eval_rows=ANSWER_ROWS + 8, steps=1)
    row = Evaluator(run, torch.device("cpu"))(model)
    batch = draw(task, EVAL_SEED, "eval", 0, ANSWER_ROWS + 8)
    _, cache = model.run_with_cache(torch.from_numpy(batch.inputs[:ANSWER_ROWS].copy()))
    patterns, seen = torch.stack([cache["pattern", layer] for layer in range(2)]), []
    for r in range(ANSWER_ROWS):
        x, t = batch.inputs[r].tolist(), np.flatnonzero(batch.answers[r] != IGNORE)[0]
        answer = batch.answers[r, t]
        after = [i + 1 for i in range(t - 1) if x[i] == x[t] and x[i + 1] == answer]
        seen.append(patterns[:, r, :, t, after].sum(dim=-1))
    for (layer, head), mean in np.ndenumerate(torch.stack(seen).mean(dim=0).numpy()):
        assert row[f"answer_{layer}.{head}"] == pytest.approx(mean, abs=1e-6)
