"""Models with known heads, built by hand, and small random models."""

import numpy as np
import pytest
import torch

from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer
from ihlab.theory.constructions import (
    kv_shift_induction_head,
    shifted_head,
    two_layer_induction_head,
)
from tasks import InductionTask

VOCAB, N_CTX = 40, 24

# Grouped-query attention, a window of 3, and heads that together are wider than the residual
# stream.
SIZES = {
    "n_layers": 2,
    "d_model": 20,
    "n_heads": 4,
    "n_key_value_heads": 2,
    "d_head": 6,
    "d_mlp": 14,
    "d_vocab": VOCAB,
    "n_ctx": N_CTX,
    "attention": "kv_shift",
    "shift_window": 3,
}


@pytest.fixture(scope="session")
def make_model():
    """Random Transformers of SIZES with some fields changed. Norm weights and shifts are not at
    initial values.
    """

    def make(seed=0, **changes):
        model = Transformer(ModelConfig(**{**SIZES, **changes}), seed=seed).double()
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if name.endswith(".w"):
                    weight.uniform_(0.5, 1.5, generator=generator)
                elif "_shift" in name:
                    weight.normal_(generator=generator)
        return model

    return make


def mixed(x, weight):
    """Vectors [batch, pos, d] mixed with those of earlier tokens, zeros in front."""
    total = torch.zeros_like(x)
    for back, w in enumerate(weight):
        total[:, back:] += w * x[:, : x.shape[1] - back]
    return total


@torch.no_grad()
def attention_by_hand(model, layer, head, streams, slope=0.0):
    """The pattern and z of a head that reads q, k and v from three normalised `streams`, by the
    equations, with ALiBi or without positions.
    """
    attn, group = model.layers[layer].attn, head // (model.cfg.n_heads // model.cfg.kv_heads)
    weights = attn.W_Q[head], attn.W_K[group], attn.W_V[group]
    q, k, v = (stream @ weight for stream, weight in zip(streams, weights, strict=True))
    if attn.shifted:
        k, v = mixed(k, attn.alpha[group]), mixed(v, attn.beta[group])
    place = torch.arange(q.shape[1])
    scores = q @ k.mT / q.shape[-1] ** 0.5 - slope * (place[:, None] - place)
    pattern = scores.masked_fill(place > place[:, None], -torch.inf).softmax(dim=-1)
    return pattern, pattern @ v


@torch.no_grad()
def regauged(model):
    """(alpha, W_K) -> (c alpha, W_K / c) and (beta, W_V) -> (c beta, W_V / c), a c of either sign
    for each head.
    """
    generator = torch.Generator().manual_seed(0)
    changed = Transformer(model.cfg).double().eval()
    changed.load_state_dict(model.state_dict())
    for layer in changed.layers:
        attn = layer.attn
        for weight, matrix in ((attn.alpha, attn.W_K), (attn.beta, attn.W_V)):
            c = torch.empty(len(weight)).double().uniform_(0.1, 5, generator=generator)
            c *= torch.randint(2, c.shape, generator=generator) * 2 - 1
            weight.mul_(c[:, None])
            matrix.div_(c[:, None, None])
    return changed


@pytest.fixture(scope="session")
def tokens():
    """Tokens [3, 9] of the vocabulary."""
    return torch.randint(VOCAB, (3, 9), generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="session")
def task():
    """The induction task at the size of these models."""
    return InductionTask(vocab_size=VOCAB, length=N_CTX)


@pytest.fixture(scope="session")
def batch(task):
    """64 sequences of the task."""
    return task.batch(64, np.random.default_rng(3))


@pytest.fixture(scope="session")
def theorem_3_3():
    """One shifted layer that is an induction head."""
    return kv_shift_induction_head(torch.eye(VOCAB).double(), N_CTX, sigma=0.05, slope=0.01)


@pytest.fixture(scope="session")
def theorem_3_2():
    """Two vanilla layers: head 0.0 is a previous-token head, head 1.0 an induction head."""
    return two_layer_induction_head(
        torch.eye(VOCAB).double(), N_CTX, sigma=0.05, slope=0.01, first_slope=20.0
    )


@pytest.fixture(scope="session")
def self_reader():
    """A head that attends to itself and reads the previous token's value: alpha = (1, 0), beta =
    (0, 1).
    """
    return shifted_head(
        torch.eye(VOCAB).double(), N_CTX, alpha=(1.0, 0.0), beta=(0.0, 1.0), sigma=0.05, slope=30.0
    )
