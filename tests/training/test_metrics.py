"""The recorded numbers against hand-made models and patterns."""

import pytest
import torch

from ihlab import ModelConfig, Transformer
from ihlab.training.metrics import Evaluator, held_out, prefix_matching_score, repeated_tokens
from ihlab.training.stream import draw, graded
from tasks import IGNORE, InductionTask


def test_prefix_matching_is_one_for_a_head_that_looks_right_after_earlier_occurrences():
    period, repeats = 5, 4
    tokens = torch.arange(period).repeat(repeats)[None]
    size = period * repeats
    induction, previous, uniform = (torch.zeros(size, size) for _ in range(3))
    for q in range(size):
        earlier = [k + 1 for k in range(q) if tokens[0, k] == tokens[0, q]]
        for k in earlier:
            induction[q, k] = 1 / len(earlier)
        previous[q, max(q - 1, 0)] = 1
        uniform[q, : q + 1] = 1 / (q + 1)
    scores = prefix_matching_score(torch.stack([induction, previous, uniform])[None], tokens, repeats)
    expected_uniform = sum(3 / (q + 1) for q in range(3 * period, size)) / period
    torch.testing.assert_close(scores, torch.tensor([1.0, 0.0, expected_uniform]))


def test_probe_repeats_distinct_known_tokens():
    task = InductionTask(vocab_size=64, length=18)
    rows = repeated_tokens(task, rows=3, repeats=4)
    assert rows.shape == (3, 16)
    for row in rows:
        assert len(set(row[:4].tolist())) == 4
        assert torch.equal(row.view(4, 4), row[:4].expand(4, 4))
    assert rows.min() >= task.min_token


def test_held_out_counts_by_hand():
    """Loss and accuracies of a model, recomputed one position at a time from its logits."""
    task = InductionTask(vocab_size=48, length=12, score="first")
    model = Transformer(ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=48, n_ctx=12))
    batches = [draw(task, 5, "eval", i, 20) for i in range(2)]
    measured = held_out(model, [graded(batch) for batch in batches], torch.device("cpu"))
    losses, right, first_right = [], [], []
    for batch in batches:
        logits = model(torch.from_numpy(batch.inputs.copy())).detach()
        for row in range(20):
            answered = [t for t in range(12) if batch.answers[row, t] != IGNORE]
            hits = [int(logits[row, t].argmax() == batch.answers[row, t]) for t in answered]
            right += hits
            first_right.append(hits[0])
            losses += [-logits[row, t].log_softmax(0)[batch.targets[row, t]].item() for t in answered[:1]]
    assert measured["eval_loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert measured["accuracy"] == pytest.approx(sum(right) / len(right))
    assert measured["accuracy_first"] == pytest.approx(sum(first_right) / len(first_right))


def test_evaluator_names_every_head_and_shift(small):
    row = Evaluator(small, torch.device("cpu"))(model := Transformer(small.model))
    assert {"prefix_0.0", "prefix_0.1"} <= row.keys()
    assert row["alpha1_0.1"] == pytest.approx(model.blocks[0].attn.alpha[1, 0].item())
    assert row["beta2_0.0"] == pytest.approx(model.blocks[0].attn.beta[0, 1].item())
    assert Evaluator(small, torch.device("cpu"))(model) == row


def test_the_held_out_set_does_not_depend_on_how_it_is_cut(small, monkeypatch):
    model = Transformer(small.model)
    whole = Evaluator(small, torch.device("cpu"))(model)
    monkeypatch.setattr("ihlab.training.metrics.CHUNK_POSITIONS", 7 * small.task.length)
    assert Evaluator(small, torch.device("cpu"))(model) == pytest.approx(whole)
