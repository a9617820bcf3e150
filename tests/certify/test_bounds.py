"""The bound for two vanilla layers against every sequence, for random models."""

from itertools import permutations

import numpy as np
import pytest
import torch

from ihlab import ModelConfig, Transformer
from ihlab.certify.bounds import every_question, margin_bound, proved_fraction, two_layers
from ihlab.certify.rows import smallest_of_row
from tasks import ConfigError

N_TOKENS = 5
FIELDS = {
    "n_layers": 2,
    "n_heads": 1,
    "d_model": 8,
    "d_head": 4,
    "norm": "none",
    "mlp": "none",
    "positional": "learned",
    "attention": "vanilla",
    "d_vocab": N_TOKENS,
    "n_ctx": 6,
}


def peaked(seed, scale):
    """A random model whose scores are of the size of `scale`, so that attention is neither even nor one-hot."""
    model = Transformer(ModelConfig(**FIELDS), seed=seed).double().eval()
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        weight.data = scale * torch.randn(weight.shape, generator=generator, dtype=torch.float64) / 8**0.5
    return model


def sequences_of(query, answer, place, length):
    """Every sequence of a question, from the definition: distinct tokens, then the query again."""
    fillers = [token for token in range(N_TOKENS) if token not in (query, answer)]
    for chosen in permutations(fillers, length - 3):
        yield [*chosen[:place], query, answer, *chosen[place:], query]


@torch.no_grad()
def smallest_margin(model, query, answer, place, length):
    logits = model(torch.tensor(list(sequences_of(query, answer, place, length))))[:, -1]
    right = logits[:, answer].clone()
    logits[:, answer] = -torch.inf
    return (right - logits.amax(dim=1)).min().item()


def copying(scale):
    """A model with an induction head by hand: layer 1 copies the token before to other channels, layer 2 reads them."""
    width = 3 * N_TOKENS + 6
    cfg = {**FIELDS, "d_model": width, "d_head": width}
    model = Transformer(ModelConfig(**cfg), seed=0).double().eval()
    for weight in model.parameters():
        weight.data.zero_()
    one = torch.eye(width, dtype=torch.float64)
    token, earlier, out = (slice(N_TOKENS * number, N_TOKENS * (number + 1)) for number in range(3))
    at = 3 * N_TOKENS
    model.embed.weight.data[:] = one[token]
    model.pos_embed.weight.data[:] = one[at : at + 6]
    first, second = (block.attn for block in model.layers)
    first.q_proj.weight.data[at : at + 5, at + 1 : at + 6] = scale * torch.eye(5, dtype=torch.float64)
    first.k_proj.weight.data[at : at + 5, at : at + 5] = torch.eye(5, dtype=torch.float64)
    first.v_proj.weight.data[token, token] = torch.eye(N_TOKENS, dtype=torch.float64)
    first.o_proj.weight.data[earlier, token] = torch.eye(N_TOKENS, dtype=torch.float64)
    second.q_proj.weight.data[token, token] = scale * torch.eye(N_TOKENS, dtype=torch.float64)
    second.k_proj.weight.data[token, earlier] = torch.eye(N_TOKENS, dtype=torch.float64)
    second.v_proj.weight.data[token, token] = torch.eye(N_TOKENS, dtype=torch.float64)
    second.o_proj.weight.data[out, token] = torch.eye(N_TOKENS, dtype=torch.float64)
    model.unembed.weight.data[:] = one[out]
    return model


@pytest.mark.parametrize("length", [4, 6])
@pytest.mark.parametrize("model", [peaked(1, 1.0), peaked(3, 3.0), copying(18.0)])
def test_no_question_is_proved_that_some_sequence_refutes(model, length):
    tables = two_layers(model, length)
    questions = every_question(N_TOKENS, length).tolist()
    refuted = [smallest_margin(model, *question, length) <= 0 for question in questions]
    proved = [margin_bound(tables, *question) > 0 for question in questions]
    assert not np.any(np.logical_and(refuted, proved))
    assert proved_fraction(model, length) == np.mean(proved)


@pytest.mark.parametrize("length", [4, 5, 6])
def test_an_induction_head_made_by_hand_is_proved_except_at_the_first_position(length):
    tables = two_layers(copying(60.0), length)
    for query, answer, place in every_question(N_TOKENS, length).tolist():
        # Position 0 has no token before it, so its row copies its own: a query from there attends to itself as much.
        assert (margin_bound(tables, query, answer, place) > 0) == (place > 0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_smallest_mean_of_a_row_is_that_of_every_choice(seed, sign):
    rng = np.random.default_rng(seed)
    mass, gain = np.exp(2 * rng.normal(size=(3, 4))), rng.normal(size=(3, 4))
    fixed, used = np.array([-1, 2, -1]), np.array([False, False, True, False])
    free = [0, 1, 3]
    means = [
        np.average(sign * gain[[0, 1, 2], [a, 2, b]], weights=mass[[0, 1, 2], [a, 2, b]]) for a in free for b in free
    ]
    bound = smallest_of_row(mass, gain, fixed, used, 2, sign)
    assert bound <= min(means) + 1e-12
    assert bound == pytest.approx(min(means), abs=1e-3)


@pytest.mark.parametrize("fields", [{"norm": "rms"}, {"n_layers": 1}, {"attention": "k_shift"}, {"positional": "rope"}])
def test_a_model_outside_the_bound_is_refused_by_the_field(fields):
    with pytest.raises(ConfigError, match=next(iter(fields))):
        two_layers(Transformer(ModelConfig(**{**FIELDS, **fields})), 4)
