"""Arms of upcycling on a small random Llama: they start as the model, have equally many numbers, and learn."""

import copy

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ihlab.interp.upcycling import (
    ARMS,
    BOTH,
    KEYS,
    SCALES,
    VALUES,
    held_out_losses,
    losses,
    shares,
    train_arm,
    with_arm,
)
from tasks import ConfigError

CONFIG = LlamaConfig(
    vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=None, pad_token_id=None,
)  # fmt: skip
ROWS = torch.randint(40, (6, 17), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def model():
    torch.manual_seed(1)
    return LlamaForCausalLM(CONFIG).eval()


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_starts_as_the_model_and_only_its_numbers_get_gradients(model, arm):
    changed, numbers = with_arm(model, arm)
    assert torch.equal(losses(changed, ROWS), losses(model, ROWS))
    losses(changed, ROWS).mean().backward()
    assert {id(p) for p in changed.parameters() if p.grad is not None} <= set(map(id, numbers))
    assert all(bool(number.grad.abs().sum()) for number in numbers)
    per_side = 3 * 2 * 2  # layers, key/value heads, taps
    assert sum(number.numel() for number in numbers) == (per_side if arm in (KEYS, VALUES) else 2 * per_side)


def test_scales_are_rows_of_the_projections_scaled(model):
    changed, numbers = with_arm(model, SCALES)
    by_hand = copy.deepcopy(model)
    factors = torch.linspace(0.5, 1.5, 4).view(2, 2, 1)
    with torch.no_grad():
        numbers[2].copy_(factors)  # keys of layer 1
        rows = factors.expand(2, 2, 4).reshape(-1, 1)  # head, half, channel
        by_hand.model.layers[1].self_attn.k_proj.weight.mul_(rows)
    torch.testing.assert_close(losses(changed, ROWS), losses(by_hand, ROWS))


@pytest.mark.parametrize("arm", [BOTH, SCALES])
def test_training_lowers_the_loss_and_takes_the_best_rate(model, arm):
    rows = ROWS[:1].repeat(30, 1)
    trained = train_arm(model, arm, rows, ROWS[:1], (1e-3, 5e-2), 4, 30)
    assert trained.lr == min(trained.tried, key=trained.tried.get) == 5e-2
    [before], [after] = held_out_losses(model, ROWS[:1]), held_out_losses(trained.model, ROWS[:1])
    assert after < trained.tried[5e-2] < before


def test_the_chosen_rate_goes_on_as_if_it_had_been_the_only_one(model):
    alone, chosen = (train_arm(model, BOTH, ROWS, ROWS[:2], rates, 3, 6) for rates in ((1e-2,), (1e-2, 1e-9)))
    assert chosen.lr == 1e-2
    assert held_out_losses(alone.model, ROWS) == held_out_losses(chosen.model, ROWS)


def test_shares_are_fractions_from_the_previous_token(model):
    changed, numbers = with_arm(model, KEYS)
    assert not shares(changed, "alpha").any()
    with torch.no_grad():
        numbers[1].copy_(torch.tensor([[3.0, -1.0], [0.0, 2.0]]))
    assert shares(changed, "alpha")[1].tolist() == [0.25, 1.0]


def test_an_unknown_arm_is_refused(model):
    with pytest.raises(ConfigError, match="arm"):
        with_arm(model, "queries")
