"""Decay falls on matrices only; the rate follows its schedule."""

import math

import pytest
import torch

from ihlab import Transformer
from ihlab.training.optim import learning_rate, make_optimizer


def test_a_step_without_gradient_shrinks_matrices_and_nothing_else(small):
    model = Transformer(small.model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = make_optimizer(model, small.but(lr=0.1, weight_decay=0.5))
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for name, p in model.named_parameters():
        shrunk = 1.0 if "shift" in name or "ln" in name else 1 - 0.1 * 0.5
        torch.testing.assert_close(p.detach(), before[name] * shrunk)
    assert optimizer.defaults["betas"] == (0.9, 0.95)


@pytest.mark.parametrize(
    ("schedule", "halfway", "end"), [("constant", 1.0, 1.0), ("linear", 0.5, 0.0), ("cosine", 0.5, 0.0)]
)
def test_schedule(small, schedule, halfway, end):
    run = small.but(schedule=schedule, warmup=10, steps=110, lr=2.0)
    assert [learning_rate(run, s) for s in (0, 4, 9)] == pytest.approx([0.2, 1.0, 2.0])
    assert learning_rate(run, 60) == pytest.approx(2.0 * halfway)
    assert learning_rate(run, 110) == pytest.approx(2.0 * end, abs=1e-12)


def test_cosine_is_a_cosine(small):
    run = small.but(schedule="cosine", warmup=0, steps=100, lr=1.0)
    assert learning_rate(run, 25) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
