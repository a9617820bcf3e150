"""Edits of hand-set models: a rotated basis and split heads leave the logits, noise has the size
that it says.
"""

import pytest
import torch

from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer
from ihlab.theory.constructions import kv_shift_induction_head, two_layer_induction_head
from ihlab.theory.edits import add_noise, rotate, split_head
from ihlab.theory.k_hop import k_hop
from tasks import ConfigError, MultiHopTask

TASK = MultiHopTask(vocab_size=9, length=12, max_hops=2)
BUILDS = {
    "two layers": lambda: two_layer_induction_head(
        torch.eye(9), 12, sigma=0.1, slope=0.1, first_slope=3.0
    ),
    "one layer": lambda: kv_shift_induction_head(torch.eye(9), 12, sigma=0.1, slope=0.1),
    "hops": lambda: k_hop(3, "vanilla", TASK),
    "shifted hops": lambda: k_hop(2, "kv_shift", TASK),
}


@torch.no_grad()
@pytest.mark.parametrize("name", BUILDS)
def test_another_basis_and_split_heads_leave_the_logits(name):
    build = BUILDS[name]
    tokens = torch.randint(9, (16, 12), generator=torch.Generator().manual_seed(0))
    right, n_heads = build()(tokens), build().cfg.n_heads
    rotated = rotate(build())
    torch.testing.assert_close(rotated(tokens), right, rtol=0, atol=1e-9)
    assert (rotated.embed.weight.abs() > 1e-3).double().mean() > 0.9, (
        "no entry of the stream means anything alone"
    )
    for layer in range(build().cfg.n_layers):
        parted = split_head(build(), layer, 3)
        torch.testing.assert_close(parted(tokens), right, rtol=0, atol=1e-9)
        _, cache = parted.run_with_cache(tokens)
        written = torch.einsum("bqhd,hdm->bqhm", cache["z", layer], parted.W_O[layer])
        for copy in (n_heads, n_heads + 1):
            torch.testing.assert_close(written[:, :, 0], written[:, :, copy])


def test_noise_has_a_size_relative_to_each_matrix():
    model, noisy = (k_hop(2, "kv_shift", TASK) for _ in range(2))
    before, after = model.state_dict(), add_noise(noisy, 0.01).state_dict()
    for name, weight in before.items():
        size = (after[name] - weight).norm() / weight.norm()
        assert size == (0 if "shift" in name else pytest.approx(0.01, rel=0.1)), name


def test_a_norm_and_shared_keys_are_refused():
    cfg = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=9, n_ctx=12, n_key_value_heads=1)
    with pytest.raises(ConfigError, match="norm is 'rms'"):
        rotate(Transformer(cfg))
    with pytest.raises(ConfigError, match="bias is True"):
        rotate(Transformer(cfg.replace(norm="none", bias=True)))
    with pytest.raises(ConfigError, match="n_key_value_heads is 1, but must be n_heads=2"):
        split_head(Transformer(cfg), 0, 2)
    whole = Transformer(cfg.replace(n_key_value_heads=2))
    for change in ({"bias": True}, {"qk_norm": True}, {"positional": "alibi"}):
        with pytest.raises(ConfigError, match="cannot be split"):
            split_head(Transformer(whole.cfg.replace(**change)), 0, 2)
    with pytest.raises(ConfigError, match=r"layer is 1, but must be in 0 \.\. 0"):
        split_head(whole, 1, 2)
    with pytest.raises(ConfigError, match="copies is 0"):
        split_head(whole, 0, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"qk_norm": True},
        {"unembedding": "none"},
        {"stream_shift": "added", "attention": "kv_shift"},
        {"smear": "embedding"},
        {"canon": "A"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_parts_that_belong_to_one_basis_are_not_rotated(change):
    cfg = ModelConfig(n_layers=1, d_model=16, n_heads=2, d_vocab=9, n_ctx=12, norm="none")
    model = Transformer(cfg.replace(**change))
    with pytest.raises(ConfigError, match=f"^{next(iter(change))} is "):
        rotate(model)
