"""Every variant of equation 5: how it starts, and what reads its mixing weights."""

import math

import pytest
import torch

from ihlab import Transformer
from ihlab.model.registry import RULES
from ihlab.model.shift import SHIFT_RULES

# Starts


def test_variants_of_one_seed_start_alike(make_config):
    """Alpha, beta and all other weights: what two variants have in common is the same."""
    made = {
        name: Transformer(make_config(attention=name), seed=5)
        for name in ("kv_shift", "k_shift", "v_shift", "qkv_shift", "kv_sum1", "kv_gate")
    }
    for layer in range(2):
        one, *others = (model.layers[layer].attn for model in made.values())
        for name, other in zip(list(made)[1:], others, strict=True):
            if name != "v_shift":
                torch.testing.assert_close(other.alpha, one.alpha, atol=1e-6, rtol=0)
            if name != "k_shift":
                torch.testing.assert_close(other.beta, one.beta, atol=1e-6, rtol=0)
            assert torch.equal(other.W_Q, one.W_Q)


def test_the_papers_start_draws_all_columns_but_the_last():
    shift = SHIFT_RULES["free"](2000, 4, torch.Generator().manual_seed(0), uniform=True)
    rows = shift.weights().detach()
    torch.testing.assert_close(rows.sum(dim=1), torch.ones(2000))
    assert (rows[:, :-1].std(dim=0) - 12**-0.5).abs().max() < 0.02
    assert abs(torch.corrcoef(rows[:, :-1].T)[0, 1]) < 0.05
    assert rows[:, -1].min() < 0  # 1 - sum of the others may be negative


def test_a_gates_start_stays_off_the_ends():
    shift = SHIFT_RULES["gate"](20_000, 2, torch.Generator().manual_seed(0))
    own = shift.weights()[:, 0]
    assert own.min() >= 0.001 - 1e-6
    assert own.max() <= 0.999 + 1e-6
    assert shift.weight.abs().max() < 7


@pytest.mark.parametrize("kind", SHIFT_RULES)
def test_a_rule_says_what_its_weights_can_be(kind):
    shift, rule = SHIFT_RULES[kind], RULES[kind]
    far = torch.tensor([[-5.0, 6.0], [6.0, -5.0]])
    reached = shift.weights_from(shift.stored(far))
    if kind != "project":  # training keeps its bounds
        torch.testing.assert_close(reached, far.clamp(rule.low, rule.high), atol=1e-6, rtol=0)
    assert rule.tied == (shift(1, 2).weight.numel() == 1)
    restarted = shift(3, 2)
    restarted.restart(0.25)
    torch.testing.assert_close(restarted.weights(), torch.tensor([[0.25, 0.75]] * 3))
    for value in filter(math.isfinite, (rule.low, rule.high)):
        held = shift(1, 2)
        held.hold(0, 0, value)
        assert held.weights()[0, 0].item() == pytest.approx(value, abs=1e-6)
