"""TransformerLens' call surface: every call here returns what a `TransformerBridge` with the same
weights returns.

The bridge is over a GPT-2 of Hugging Face that was given our model's weights.
`docs/transformerlens.md` lists the calls of this table.
"""

import re
from pathlib import Path

import pytest
import torch
from transformer_lens import patching
from transformer_lens.model_bridge import TransformerBridge

from ihlab import ModelConfig, Transformer
from ihlab.model.config import GPT2
from ihlab.model.conversion import to_gpt2
from tasks import ConfigError

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "transformerlens.md"
SIZES = {"n_layers": 3, "d_model": 24, "n_heads": 4, "d_vocab": 19, "n_ctx": 12}
TOKENS = torch.randint(19, (3, 9), generator=torch.Generator().manual_seed(2))


def cached(model, name, **kwargs):
    model.zero_grad()
    return model.run_with_cache(TOKENS, **kwargs)[1][name]


def gradient(model):
    _, cache = model.run_with_cache(TOKENS, return_type="loss", incl_bwd=True)
    return cache["blocks.1.hook_resid_post_grad"]


def results(model):
    """The output of each head, which TransformerLens computes only if it was switched on before."""
    model.set_use_attn_result(True)
    return model.run_with_cache(TOKENS)[1]["result", 1]


def doubled(model):
    hook = ("blocks.1.hook_attn_out", lambda x, hook: 2 * x)
    return model.run_with_hooks(TOKENS, return_type="loss", fwd_hooks=[hook])


def patched(model, patch):
    other = TOKENS.flip(1)
    with torch.no_grad():
        _, clean = model.run_with_cache(TOKENS)
        return patch(model, other, clean, lambda logits: logits[:, -1, 3].sum())


CALLS = {
    "model(tokens)": lambda m: m(TOKENS),
    "model(tokens) of one row, `[pos]`": lambda m: m(TOKENS[0]),
    'model(tokens, return_type="loss")': lambda m: m(TOKENS, return_type="loss"),
    'model(tokens, return_type="loss", loss_per_token=True)': lambda m: m(
        TOKENS, return_type="loss", loss_per_token=True
    ),
    'model(tokens, return_type="both")': lambda m: m(TOKENS, return_type="both"),
    "model(tokens, return_type=None)": lambda m: m(TOKENS, return_type=None),
    "model(tokens, stop_at_layer=1)": lambda m: m(TOKENS, stop_at_layer=1),
    "model(tokens, stop_at_layer=-1)": lambda m: m(TOKENS, stop_at_layer=-1),
    "model(residual, start_at_layer=1)": lambda m: m(
        cached(m, "blocks.1.hook_resid_pre"), start_at_layer=1
    ),
    "model.loss_fn(logits, tokens)": lambda m: m.loss_fn(m(TOKENS), TOKENS),
    "model.run_with_cache(tokens)": lambda m: cached(m, "blocks.2.attn.hook_pattern"),
    'model.run_with_cache(tokens, return_type="loss", incl_bwd=True)': gradient,
    'model.run_with_hooks(tokens, return_type="loss", fwd_hooks=...)': doubled,
    **{
        f"model.{name}": lambda m, name=name: getattr(m, name)
        for name in (
            "W_E",
            "W_pos",
            "W_U",
            "W_Q",
            "W_K",
            "W_V",
            "W_O",
            "W_in",
            "W_out",
            "b_Q",
            "b_K",
            "b_V",
            "b_O",
            "b_in",
            "b_out",
            "all_head_labels",
        )
    },
    "model.QK": lambda m: m.QK.AB,
    "model.OV": lambda m: m.OV.AB,
    **{
        f'model.all_composition_scores("{mode}")': lambda m, mode=mode: (
            m.all_composition_scores(mode).scores
        )
        for mode in "QKV"
    },
    "model.embed.W_E": lambda m: m.embed.W_E,
    "model.pos_embed.W_pos": lambda m: m.pos_embed.W_pos,
    "model.unembed.W_U": lambda m: m.unembed.W_U,
    "model.unembed.b_U": lambda m: m.unembed.b_U,
    'model.set_use_attn_result(True); cache["result", 1]': results,
    "cache.accumulated_resid(apply_ln=True)": lambda m: m.run_with_cache(TOKENS)[
        1
    ].accumulated_resid(apply_ln=True),
    "cache.decompose_resid()": lambda m: m.run_with_cache(TOKENS)[1].decompose_resid(),
    "cache.stack_head_results()": lambda m: m.run_with_cache(TOKENS)[1].stack_head_results(),
    "patching.get_act_patch_resid_pre(...)": lambda m: patched(m, patching.get_act_patch_resid_pre),
    "patching.get_act_patch_attn_head_out_all_pos(...)": lambda m: patched(
        m, patching.get_act_patch_attn_head_out_all_pos
    ),
    "patching.get_act_patch_mlp_out(...)": lambda m: patched(m, patching.get_act_patch_mlp_out),
}
"""Calls by how they are written."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model of ours with GPT-2's parts, and a bridge over the same weights."""
    model = Transformer(ModelConfig(**SIZES, **GPT2)).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith((".b", ".bias")):
                weight.normal_(std=0.3, generator=generator)
    folder = tmp_path_factory.mktemp("gpt2")
    to_gpt2(model).save_pretrained(folder)
    return model, TransformerBridge.boot_transformers(str(folder), device="cpu").eval()


def same(ours, theirs):
    assert type(ours) is type(theirs) or isinstance(ours, torch.Tensor)
    if isinstance(ours, torch.Tensor):
        torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-4, atol=2e-5)
    elif isinstance(ours, tuple | list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    elif hasattr(ours, "__dataclass_fields__"):
        for name in ours.__dataclass_fields__:
            same(getattr(ours, name), getattr(theirs, name))
    else:
        assert ours == theirs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS)
def test_a_call_returns_what_transformer_lens_own_model_returns(models, call):
    ours, theirs = (CALLS[call](model) for model in models)
    same(ours, theirs)


def test_stopping_and_starting_at_a_layer_makes_the_whole():
    model = Transformer(ModelConfig(**SIZES, attention="kv_shift")).eval()
    for layer in (0, 1, 2, 3, -1, -2):
        assert torch.equal(
            model(model(TOKENS, stop_at_layer=layer), start_at_layer=layer), model(TOKENS)
        )
    with pytest.raises(ConfigError, match="stop_at_layer is 4, but the model has layers 0 to 2"):
        model(TOKENS, stop_at_layer=4)
    with pytest.raises(ConfigError, match="starts at layer 1 has no tokens to score"):
        model(model(TOKENS, stop_at_layer=1), start_at_layer=1, return_type="loss")
    with pytest.raises(ConfigError, match="return_type is 'losses'"):
        model(TOKENS, return_type="losses")
    with pytest.raises(ConfigError, match="path_patch"):
        model.set_use_split_qkv_input(True)


def test_shared_heads_are_repeated_where_query_heads_are_asked_for():
    model = Transformer(ModelConfig(**SIZES, n_key_value_heads=2)).eval()
    assert model.W_K.shape == (3, 2, 24, 6)
    assert model.QK.shape == (3, 4, 24, 24)
    by_hand = model.blocks[1].attn.W_Q[3] @ model.blocks[1].attn.W_K[1].T
    torch.testing.assert_close(model.QK.AB[1, 3], by_hand)


def test_the_page_lists_the_calls_of_this_table():
    listed = re.findall(r"^- `(.+)`$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed[: len(CALLS)] == [call.replace("`", "") for call in CALLS]
