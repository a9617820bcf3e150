"""A model on the device computes what it computes on the CPU: logits, gradients, caches, head
scores, decoding.
"""

import copy

import pytest
import torch

from ihlab import ModelConfig, Transformer

pytestmark = pytest.mark.slow

SIZES = {"n_layers": 2, "d_model": 32, "n_heads": 4, "d_vocab": 23, "n_ctx": 16}
KINDS = {
    "window 5, one kv head": {"attention": "kv_shift", "shift_window": 5, "n_key_value_heads": 1},
    "alibi, strict, grouped": {"positional": "alibi", "mask": "strict", "n_key_value_heads": 2},
    "gpt2": {
        "positional": "learned",
        "norm": "layer",
        "mlp": "gelu",
        "bias": True,
        "attention": "kv_shift",
    },
}
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(params=KINDS)
def model(request):
    return Transformer(ModelConfig(**SIZES, **KINDS[request.param]), seed=1)


def random_tokens(rows=3, n_pos=16):
    return torch.randint(23, (rows, n_pos), generator=torch.Generator().manual_seed(0))


def test_logits_and_gradients_are_those_of_the_cpu(model, device):
    """Under the strict mask the first query of a row sees no key, which a fused kernel must
    survive, backwards too.
    """
    tokens, there = random_tokens(), copy.deepcopy(model).to(device)
    torch.testing.assert_close(there(tokens.to(device)).cpu(), model(tokens), **CLOSE)
    for each in (model, there):
        each(tokens.to(each.embed.weight.device)).log_softmax(dim=-1)[..., 0].sum().backward()
    for (name, ours), theirs in zip(there.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(
            ours.grad.cpu(), theirs.grad, rtol=1e-3, atol=1e-3, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_a_cache_holds_what_it_holds_on_the_cpu(model, device):
    tokens, there = random_tokens(), copy.deepcopy(model).to(device)
    _, expected = model.run_with_cache(tokens)
    _, cache = there.run_with_cache(tokens.to(device))
    assert cache.keys() == expected.keys()
    for name, x in cache.items():
        assert x.device.type == device.type
        torch.testing.assert_close(x.cpu(), expected[name], **CLOSE)
    direct, attributed = (held.logit_attrs(held.decompose_resid(), 4) for held in (cache, expected))
    torch.testing.assert_close(direct.cpu(), attributed, **CLOSE)


def test_decoding_with_a_cache_writes_what_full_forwards_do(model, device):
    """In float64, where no two logits are equal."""
    model, tokens = model.double().eval().to(device), random_tokens(3, 4).to(device)
    expected = tokens
    with torch.no_grad():
        for _ in range(12):
            expected = torch.cat([expected, model(expected)[:, -1:].argmax(dim=-1)], dim=1)
    assert torch.equal(model.generate(tokens, 12), expected)
