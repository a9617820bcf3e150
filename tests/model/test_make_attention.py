"""What every attention with code of its own must do, whatever it computes."""

from pathlib import Path

import pytest
import torch

from ihlab.model.attention import Attention
from ihlab.model.decode import Decoder
from ihlab.model.delta_rule import GatedDeltaRule
from ihlab.model.differential import DifferentialAttention
from ihlab.model.forgetting import ForgettingAttention
from ihlab.model.make_attention import make_attention
from ihlab.model.mla import LatentAttention
from ihlab.model.output_gate import OutputGatedAttention
from ihlab.model.recurrence import LinearRecurrence
from ihlab.model.selective import SelectiveAttention
from ihlab.model.trapezoid import Trapezoid
from ihlab.model.variants import VARIANTS

CASES = {
    "latent": {"attention": "mla", "n_key_value_heads": 4},
    "latent, narrow, strict": {"attention": "mla", "n_key_value_heads": 4, "mla_rank": 5, "mask": "strict"},
    "latent, ALiBi": {"attention": "mla", "n_key_value_heads": 4, "positional": "alibi"},
    "latent, shifted": {"attention": "mla_kv", "n_key_value_heads": 4},
    "selective": {"attention": "selective"},
    "selective, ALiBi, strict": {
        "attention": "selective", "positional": "alibi", "mask": "strict", "alibi_slopes": (-0.1, 0.2, 0.1, 0.0),
    },
    "differential": {"attention": "differential", "d_head": 8},
    "differential, strict, ALiBi": {"attention": "differential", "mask": "strict", "positional": "alibi"},
    "latent, shifted, no positions": {"attention": "mla_kv", "n_key_value_heads": 4, "positional": "none"},
    "key offset": {"attention": "key_offset", "d_head": 8},
    "key offset, ALiBi, norm": {"attention": "key_offset", "d_head": 8, "positional": "alibi", "qk_norm": True},
    "half rotated": {"attention": "partial_rotary", "d_head": 8},
    "multi-token": {"attention": "multi_token"},
    "multi-token, strict, ALiBi": {"attention": "multi_token", "mask": "strict", "positional": "alibi"},
    "forgetting": {"attention": "forgetting"},
    "forgetting, strict, ALiBi, norm": {
        "attention": "forgetting", "mask": "strict", "positional": "alibi", "qk_norm": True,
    },
    "output gate": {"attention": "output_gate", "bias": True},
    "linear recurrence": {"attention": "gated_linear"},
    "delta rule": {"attention": "gated_delta", "positional": "none"},
    "delta rule, a head each, convolved": {"attention": "gated_delta", "n_key_value_heads": 4, "canon": "B"},
    "trapezoid": {"attention": "trapezoid", "positional": "learned"},
    "bigrams": {"bigram_table": 17},
}  # fmt: skip
EVERY = pytest.mark.parametrize("case", CASES.values(), ids=CASES)

CACHED = {
    "latent": 2 + 6, "latent, shifted": 2 + 6, "differential": 2 * 2 * 8, "selective": 2 * 2 * 6 + 1,
    "forgetting": 2 * 2 * 6 + 4, "output gate": 2 * 2 * 6,
}  # fmt: skip
"""Numbers that a cache holds of each token in each layer."""

STATES = {
    "linear recurrence": 2 * 6 * 6, "delta rule": 2 * 6 * 6, "trapezoid": 2 * 2 * 6 * 6,
    "delta rule, a head each, convolved": 4 * 6 * 6 + 3 * 3 * 4 * 6,
}  # fmt: skip
"""Numbers that a cache holds in each layer, however many tokens there are."""


@pytest.fixture
def make(make_model):
    """Models in float64, in which nothing that starts as 0 is 0."""

    def moved(**changes):
        model = make_model(**changes).double()
        with torch.no_grad():
            for weight in model.parameters():
                if not weight.any():
                    weight.normal_(std=0.3, generator=torch.Generator().manual_seed(3))
        return model

    return moved


def test_a_config_says_which_attention_a_layer_has(make_config):
    assert type(make_attention(make_config())) is Attention
    assert type(make_attention(make_config(attention="kv_shift"))) is Attention
    for name in ("mla", "mla_kv"):
        assert type(make_attention(make_config(attention=name, n_key_value_heads=4))) is LatentAttention
    assert type(make_attention(make_config(attention="differential", d_head=8))) is DifferentialAttention
    own = {
        "selective": SelectiveAttention, "forgetting": ForgettingAttention, "output_gate": OutputGatedAttention,
        "gated_linear": LinearRecurrence, "gated_delta": GatedDeltaRule, "trapezoid": Trapezoid,
    }  # fmt: skip
    for name, cls in own.items():
        assert type(make_attention(make_config(attention=name))) is cls


@EVERY
def test_no_token_sees_a_later_one(make, case, tokens):
    model = make(**case)
    before, changed = model(tokens), tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 19
    after = model(changed)
    torch.testing.assert_close(after[:, :5], before[:, :5], atol=1e-13, rtol=0)
    assert ((after - before)[:, 5:].abs().amax(dim=-1) > 1e-9).any()


@EVERY
def test_attention_with_hooks_equals_attention_without(make, case, tokens):
    model = make(**case)
    hooked, _ = model.run_with_cache(tokens)
    torch.testing.assert_close(hooked, model(tokens), atol=1e-12, rtol=0)


@EVERY
@pytest.mark.parametrize("chunk", [1, 2, 5])
@pytest.mark.parametrize("hooked", [False, True])
def test_decoding_in_any_chunks_equals_the_full_forward(make, case, tokens, chunk, hooked):
    model = make(**case)
    decoder, patterns = Decoder(model, 3, 9), []
    with model.hooks(fwd_hooks=[(lambda name: hooked, lambda x, hook: patterns.append(x))]):
        logits = torch.cat([decoder.forward(piece) for piece in tokens.split(chunk, dim=1)], dim=1)
    torch.testing.assert_close(logits, model(tokens), atol=1e-10, rtol=0)
    assert bool(patterns) == hooked


@pytest.mark.parametrize(("name", "wanted"), CACHED.items())
def test_a_cache_holds_no_more_than_decoding_needs(make, tokens, name, wanted):
    """Measured on everything that the cache keeps."""
    assert held(make(**CASES[name]), tokens) == 3 * 9 * wanted


@pytest.mark.parametrize(("name", "wanted"), STATES.items())
def test_the_state_of_a_recurrence_does_not_grow(make, tokens, name, wanted):
    assert held(make(**CASES[name]), tokens) == held(make(**CASES[name]), tokens[:, :4]) == 3 * wanted


def held(model, tokens):
    """Return how many numbers the first layer's cache holds once it has read all it has room for."""
    decoder = Decoder(model, *tokens.shape)
    decoder.forward(tokens)
    cache = decoder.caches[0]
    kept = [x for x in [*vars(cache).values(), *cache.raw.values()] if isinstance(x, torch.Tensor)]
    return sum(x.numel() for x in kept)


@EVERY
@pytest.mark.parametrize("at", [None, [[0, 4, 1], [4, 0, 0], [2, 8, 7]]])
def test_the_residual_at_some_positions_is_that_of_all(make, case, tokens, at):
    model, index = make(**case), torch.tensor([4, 0, 26, 13, 4])
    queries = None if at is None else torch.tensor(at)
    wanted = model.final_residual(tokens).flatten(0, 1)[index]
    torch.testing.assert_close(model.residual_at(tokens, index, queries), wanted, atol=1e-12, rtol=0)
    seen = []
    for name in model.hook_dict:
        for run in (model, lambda tokens: model.residual_at(tokens, index, queries)):
            with model.hooks(fwd_hooks=[(name, lambda x, hook: seen.append(x))]):
                run(tokens)
        torch.testing.assert_close(seen[-1], seen[-2], atol=1e-12, rtol=0)
    assert len(seen) == 2 * len(model.hook_dict)


@EVERY
def test_gradients_equal_finite_differences(make, case, tokens):
    """Along a random direction of each parameter."""
    model, at = make(**case), torch.randn(3, 9, 19, dtype=torch.float64)
    (model(tokens) * at).sum().backward()
    for name, weight in model.named_parameters():
        direction, values, step = torch.randn_like(weight), [], 1e-6
        for moved in (step, -2 * step):
            with torch.no_grad():
                weight.add_(moved * direction)
                values.append((model(tokens) * at).sum())
        with torch.no_grad():
            weight.add_(step * direction)
        slope = (values[0] - values[1]) / (2 * step)
        torch.testing.assert_close((weight.grad * direction).sum(), slope, atol=1e-5, rtol=1e-5, msg=name)


def test_the_page_of_variants_has_every_one():
    page = (Path(__file__).parents[2] / "docs" / "variants.md").read_text(encoding="utf-8")
    assert [name for name in VARIANTS if f"`{name}`" not in page] == []
