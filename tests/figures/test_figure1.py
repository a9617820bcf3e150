"""Figures 1a and 1b: the paper's runs, and two measures counted slowly. (`test_rederived.py` has
the verdicts.)
"""

import numpy as np
import pytest
import torch

from figures.figure1.study import (
    FIGURE1B,
    PAPER,
    guessing_accuracy,
    in_row,
)
from ihlab import ModelConfig, RunConfig, train
from ihlab.measure.batches import EVAL_SEED, draw
from tasks import IGNORE, InductionTask

pytestmark = pytest.mark.slow


def test_paper_scale_is_the_papers():
    """Section 3.2, Appendices K and N."""
    run = PAPER
    assert (run.task.vocab_size, run.task.length, run.batch_size) == (8000, 512, 8 * 512)
    assert (run.lr, run.warmup, run.schedule, run.betas) == (2e-4, 1000, "constant", (0.9, 0.95))
    model = run.model
    per_layer = 4 * model.d_model**2 + 3 * model.d_model * model.d_mlp
    assert model.d_model == 1024
    assert per_layer == pytest.approx(20e6, rel=0.1)
    assert {plan.config.lr for plan in FIGURE1B.runs("paper")} == {2e-4}


def test_guessing_accuracy_counted_one_by_one():
    """One of the other tokens so far, at the first repeat of each sequence."""
    task, shares = InductionTask(vocab_size=24, length=12), []
    batch = task.batch(4096, np.random.default_rng(0))
    for inputs, answers in zip(batch.inputs, batch.answers, strict=True):
        first = next(t for t in range(12) if answers[t] != IGNORE)
        shares.append(1 / (len(set(inputs[: first + 1])) - 1))
    assert guessing_accuracy(task) == pytest.approx(np.mean(shares), abs=1e-4)


def test_answers_that_are_tokens_of_the_row_counted_one_by_one(tmp_path):
    task = InductionTask(vocab_size=24, length=12)
    model = ModelConfig(
        n_layers=1, d_model=8, n_heads=1, d_vocab=24, n_ctx=12, attention="kv_shift"
    )
    run = train(
        RunConfig(task=task, model=model, steps=40, batch_size=16, lr=1e-2, warmup=0, eval_rows=60),
        tmp_path,
    )
    batch = draw(task, EVAL_SEED, "eval", 0, 60)
    logits = run.model()(torch.from_numpy(batch.inputs.copy())).detach()
    inside = 0
    for row in range(60):
        first = next(t for t in range(12) if batch.answers[row, t] != IGNORE)
        inside += int(logits[row, first].argmax()) in batch.inputs[row, : first + 1].tolist()
    assert in_row(run) == pytest.approx(inside / 60, abs=1e-6)
    assert 0 < inside < 60
