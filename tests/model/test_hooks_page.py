"""docs/hooks.md against real models: every hook point is on the page, with its shape, and nothing else is."""

import itertools
import re
from pathlib import Path

import pytest
import torch

from ihlab.model.config import GPT2

PAGE = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| `(?P<name>[^`]+)` \| (?P<shape>[^|]+) \| (?P<when>[^|]+) \| (?P<meaning>[^|]+) \|$", re.MULTILINE
)
BATCH, POS = 3, 9

SWITCHES = {
    "attention": ["vanilla", "kv_shift"],
    "positional": ["rope", "alibi", "learned", "none"],
    "norm": ["rms", "layer", "none"],
    "mlp": ["swiglu", "gelu", "none"],
}
MODELS = [dict(zip(SWITCHES, values, strict=True)) for values in itertools.product(*SWITCHES.values())]
MODELS += [{"attention": attention} for attention in ("k_shift", "v_shift", "qkv_shift", "kv_sum1", "selective")]
LATENT = {"n_key_value_heads": 4, "shift_window": 2, "mla_rank": 8}
MODELS += [{"attention": attention, **LATENT} for attention in ("mla", "mla_kv")]
MODELS += [{"attention": "differential", "d_head": 8}]
MODELS += [{"stream_shift": "added"}, {"stream_shift": "after_norm"}, {"canon": "ABCD"}, {"attention": "rwkv_shift"}]
MODELS += [{"attention": "multi_token"}, {"smear": "embedding"}, {"smear": "attention"}, {"canon": "KVOM"}]
MODELS += [{"attention": "key_offset", "d_head": 8}, {"attention": "partial_rotary", "d_head": 8}]
MODELS += [{"attention": "adaptive_offset", "d_head": 8}, {"attention": "dynamic_conv"}, {"smear": "interpolation"}]
MODELS += [{"attention": "mdha"}, {"attention": "input_gate", "shift_window": 2}, {"bigram_table": 11}]
MODELS += [{"attention": name} for name in ("forgetting", "output_gate", "gated_linear", "gated_delta", "trapezoid")]


def rows():
    return [match.groupdict() for match in ROW.finditer(PAGE)]


def is_there(when, cfg):
    """Whether a config meets 'always', 'alpha learned' (or fixed), or conditions such as norm="rms"/"layer"."""
    if when.endswith(" learned"):
        return when.removesuffix(" learned") in cfg.mixing_weights
    conditions = re.findall(r'(\w+)(!?=)((?:"\w+"/?)+)', when)
    assert when == "always" or ", ".join("".join(condition) for condition in conditions) == when
    return all((f'"{getattr(cfg, name)}"' in values.split("/")) == (sign == "=") for name, sign, values in conditions)


def numbers(shape, cfg):
    known = {"batch": BATCH, "pos": POS, "query": POS, "key": POS, "1": 1, "6": 6, "11": 11}
    return tuple(known[axis] if axis in known else getattr(cfg, axis) for axis in shape.split(", "))


@pytest.mark.parametrize("switches", MODELS, ids=lambda switches: "-".join(map(str, switches.values())))
def test_the_page_lists_exactly_the_hook_points_of_a_model_with_their_shapes(make_model, tokens, switches):
    """Sizes are all different in these models, but for batch (3), so that no axis passes for another."""
    model = make_model(**{"shift_window": 5, **switches})
    _, cache = model.run_with_cache(tokens)
    expected = {}
    for row in rows():
        if is_there(row["when"], model.cfg):
            layers = range(model.cfg.n_layers) if "blocks.L." in row["name"] else [None]
            names = [row["name"].replace("blocks.L.", f"blocks.{layer}.") for layer in layers]
            expected |= dict.fromkeys(names, numbers(row["shape"], model.cfg))
            if row["name"].endswith("hook_alpha") and model.cfg.attention == "mla_kv":  # "good to know"
                expected |= dict.fromkeys(names, (*numbers(row["shape"], model.cfg), model.cfg.d_head))
    assert {name: tuple(x.shape) for name, x in cache.items()} == expected
    assert set(model.hook_dict) == set(expected)


def test_every_line_of_a_table_is_read():
    """A row with a slip in it would otherwise be skipped in silence."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(lines) == len(rows()) == len({row["name"] for row in rows()})


@torch.no_grad()
def test_what_the_page_says_of_the_numbers(make_model, tokens):
    """The equations in the column of meanings."""
    model = make_model(attention="kv_shift", shift_window=3)
    logits, cache = model.run_with_cache(tokens)
    for layer in range(model.cfg.n_layers):
        x = cache["resid_pre", layer]
        scale = (x.pow(2).mean(-1, keepdim=True) + model.cfg.eps).sqrt()
        torch.testing.assert_close(cache["scale", layer, "ln1"], scale)
        torch.testing.assert_close(cache["normalized", layer, "ln1"], x / scale)
        torch.testing.assert_close(cache["result", layer, "attn"].sum(dim=2), cache["attn_out", layer])
        torch.testing.assert_close(cache["attn_scores", layer].softmax(dim=-1), cache["pattern", layer])
        pre, linear = cache["pre", layer], cache["pre_linear", layer]
        torch.testing.assert_close(cache["post", layer], pre * pre.sigmoid() * linear)
        q, k = cache["rot_q", layer][:, :, 3], cache["rot_k", layer][:, :, 3 // 2]
        scores = cache["attn_scores", layer][:, 3]
        seen = ~scores.isneginf()
        assert torch.equal(seen[0], torch.ones(POS, POS, dtype=torch.bool).tril())
        torch.testing.assert_close(scores[seen], (q @ k.mT / model.cfg.d_head**0.5)[seen])
    final = cache["ln_final.hook_normalized"] * model.ln_final.w
    torch.testing.assert_close(final @ model.W_U, logits)


@torch.no_grad()
def test_what_the_page_says_of_the_numbers_of_gpt2_blocks(make_model, tokens):
    """The same column, where LayerNorm, GELU, biases and learned positions make a difference."""
    model = make_model(**GPT2, attention="kv_shift")
    logits, cache = model.run_with_cache(tokens)
    torch.testing.assert_close(cache["hook_pos_embed"], model.W_pos[:POS].expand(BATCH, -1, -1))
    torch.testing.assert_close(cache["resid_pre", 0], cache["hook_embed"] + cache["hook_pos_embed"])
    for layer, block in enumerate(model.blocks):
        x = cache["resid_pre", layer] - cache["resid_pre", layer].mean(-1, keepdim=True)
        scale = (x.pow(2).mean(-1, keepdim=True) + model.cfg.eps).sqrt()
        torch.testing.assert_close(cache["scale", layer, "ln1"], scale)
        torch.testing.assert_close(cache["normalized", layer, "ln1"], x / scale)
        summed = cache["result", layer, "attn"].sum(dim=2) + block.attn.b_O
        torch.testing.assert_close(summed, cache["attn_out", layer])
        read = cache["normalized", layer, "ln1"] * block.ln1.w + block.ln1.b
        torch.testing.assert_close(cache["k_raw", layer, "attn"][:, :, 1], read @ block.attn.W_K[1] + block.attn.b_K[1])
        read = cache["normalized", layer, "ln2"] * block.ln2.w + block.ln2.b
        torch.testing.assert_close(cache["pre", layer], read @ block.mlp.W_in + block.mlp.b_in)
        gelu = torch.nn.functional.gelu(cache["pre", layer], approximate="tanh")
        torch.testing.assert_close(cache["post", layer], gelu)
    final = cache["ln_final.hook_normalized"] * model.ln_final.w + model.ln_final.b
    torch.testing.assert_close(final @ model.W_U, logits)
