"""TransformerLens' call surface: every call here returns what a `TransformerBridge` with the same
weights returns.

The bridge is over a GPT-2 of Hugging Face that was given our model's weights.
`docs/transformerlens.md` is made from this table: `python tests/model/lens/test_lens_calls.py`
writes it.
"""

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

WITH_WORDS = (
    'model("text")',
    "model.tokenizer",
    'model.to_tokens("text")',
    "model.to_str_tokens(...)",
    "model.to_string(...)",
)
"""Calls with text. They are tested in `tests/model/lens/test_task_tokenizer.py`."""

REFUSED = {
    "model.set_use_split_qkv_input(True)": (
        lambda m: m.set_use_split_qkv_input(True),
        "path_patch",
    ),
}
"""Calls that are refused, and what they answer."""

ABSENT = {
    "model(tokens, prepend_bos=True)": "put the token in front yourself",
    "model(tokens, past_kv_cache=...)": "`generate` keeps its own cache",
    "SVDInterpreter(model)": "`torch.linalg.svd(model.OV.AB)`",
    "hook_q_input, hook_k_input, hook_v_input": "all three read one stream: use `ihlab.interp.patching.path_patch`",
    "hook_attn_in, hook_mlp_in": "use `hook_resid_pre` and `hook_resid_mid`, or `path_patch`",
    "fold_ln, center_writing_weights, center_unembed": "ihlab's tools read the weights as trained, with the norms",
    "generate(top_k=, top_p=, ...)": "`to_llama(model)` and Hugging Face's `generate` have them",
    "HookedTransformer.from_pretrained(...)": "give a Hugging Face model to ihlab's tools, or use `from_llama`",
}
"""What TransformerLens has and a model of ihlab has not, with what to do instead."""


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


@pytest.mark.parametrize("call", REFUSED)
@pytest.mark.usefixtures("unchecked")
def test_what_is_not_taken_says_so(models, call):
    act, said = REFUSED[call]
    with pytest.raises((ConfigError, AttributeError), match=said):
        act(models[0])


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


def test_shared_heads_are_repeated_where_query_heads_are_asked_for():
    model = Transformer(ModelConfig(**SIZES, n_key_value_heads=2)).eval()
    assert model.W_K.shape == (3, 2, 24, 6)
    assert model.QK.shape == (3, 4, 24, 24)
    by_hand = model.blocks[1].attn.W_Q[3] @ model.blocks[1].attn.W_K[1].T
    torch.testing.assert_close(model.QK.AB[1, 3], by_hand)


def page():
    """The page of calls."""
    lines = [
        "# TransformerLens' calls",
        "",
        "An `ihlab` model supports these calls of TransformerLens 4.3. For each call, a test compares a model of",
        "three GPT-2 blocks with a `TransformerBridge` that has the same weights. Models with other blocks support the",
        "calls, too. Calls not listed here may be missing.",
        "",
        "With the shift, `W_K`, `W_V`, `QK`, `OV` and results computed from them use the stored weights, without alpha",
        "and beta. `ihlab.interp.circuits` has the matrices of each route, with alpha and beta.",
        "",
        "The result is the same:",
        "",
        *(f"- `{call.replace('`', '')}`" for call in CALLS),
        "",
        "The result is the same, for a run of a task with words (`TextTask`, `IGSMTask`). Other tasks have ids only:",
        'the text of the token 7 is then "7", and text is refused.',
        "",
        *(f"- `{call}`" for call in WITH_WORDS),
        "",
        "Something differs:",
        "",
        "| call | difference |",
        "| --- | --- |",
        "| `model.generate(tokens, n, temperature=1.0)` | the same distribution; greedy by default |",
        *(f"| `{call}` | refused: a sentence says what to do |" for call in REFUSED),
        *(f"| `{call}` | not there: {instead} |" for call, instead in ABSENT.items()),
        "",
    ]
    return "\n".join(lines)


def test_the_page_is_this_table():
    assert PAGE.read_text(encoding="utf-8") == page(), (
        f"{PAGE.name} is stale: python {Path(__file__).name} writes it"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
