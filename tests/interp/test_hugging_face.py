"""Models of other libraries: what is read of them from the outside is what ours say of the same
weights.

The GPT-2 of `gpt2_induction/train.py` learned induction: on new rows it ends at a loss of .002 nats
a token and an accuracy of 1.000. All four heads of its last layer match prefixes (.98 to .99), fed
by head 0.3; three of them are needed, the fourth's work is done by the others.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Model,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.utils import logging

from ihlab.hf import add_shift, from_hf
from ihlab.interp import head_scores, hugging_face, locate_induction_heads
from ihlab.interp.ablation import ablate_heads, ablation_sweep
from ihlab.interp.hugging_face import HuggingFaceModel
from ihlab.interp.sources import attention_patterns
from ihlab.measure.probe import repeated_batch, repeated_rows
from ihlab.model.conversion import from_gpt2, from_llama
from tasks import ConfigError, InductionTask

INDUCTION_HEADS = [(1, 0), (1, 2), (1, 3)]
STORED = Path(__file__).parent / "gpt2_induction"
SMALL = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
}
GROUPED = SMALL | {"num_key_value_heads": 2}
GPT2_SMALL = {"vocab_size": 50, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 4}

MODELS = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**GPT2_SMALL)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**GROUPED)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**GROUPED)),
    "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SMALL)),
    "kv_shift": lambda: add_shift(LlamaForCausalLM(LlamaConfig(**GROUPED)), window=3),
}
TOKENS = torch.randint(3, 50, (3, 12), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    logging.disable_progress_bar()
    yield
    logging.enable_progress_bar()


def made(name):
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    with torch.no_grad():
        for (
            parameter
        ) in model.parameters():  # as they start, patterns are all but uniform and biases zero
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def gpt2():
    return AutoModelForCausalLM.from_pretrained(
        STORED, dtype=torch.float32, use_safetensors=True
    ).eval()


@pytest.fixture(scope="module")
def batch():
    """Random tokens read twice."""
    return repeated_batch(repeated_rows(range(63), rows=16, period=32, repeats=2, seed=5), 2)


def by_head(table):
    return table.sort_values(["layer", "head"]).reset_index(drop=True)


# The GPT-2 that learned induction


@pytest.fixture(scope="module")
def three_ways(gpt2, batch):
    """The located heads of one set of weights: by transformers, by TransformerLens' bridge, by our
    own model.
    """
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_transformers(str(STORED), device="cpu")
    sources = {"transformers": gpt2, "bridge": bridge, "ours": from_gpt2(gpt2)}
    return {
        name: locate_induction_heads(source, batch=batch, ids=range(63), seed=1)
        for name, source in sources.items()
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_three_libraries_find_the_same_heads_with_the_same_scores(three_ways):
    ours = three_ways["ours"]
    found = by_head(ours[ours["induction"]])[["layer", "head"]]
    assert [tuple(head) for head in found.to_numpy()] == INDUCTION_HEADS
    assert (ours[ours["layer"] == 1]["prefix_matching"] > 0.98).all()
    assert (ours[ours["layer"] == 0]["prefix_matching"] < 0.2).all()
    for name in ("transformers", "bridge"):
        theirs = three_ways[name]
        pd.testing.assert_frame_equal(
            by_head(theirs[theirs["induction"]])[["layer", "head"]], found
        )
        pd.testing.assert_frame_equal(
            by_head(theirs), by_head(ours), check_dtype=False, rtol=1e-4, atol=1e-4
        )


def test_special_tokens_are_in_no_probe(gpt2):
    """Id 63 is the config's bos and eos."""
    assert HuggingFaceModel(gpt2).tokens.content == list(range(63))
    rows = HuggingFaceModel(gpt2).probe_rows(2, 50, None, None, 0)
    assert rows.shape == (50, 64)
    assert 63 not in rows


# Patterns


def pre_hooks(model):
    return [len(module._forward_pre_hooks) for module in model.modules()]


@pytest.mark.parametrize("name", MODELS)
def test_patterns_are_those_that_the_model_returns_itself(name):
    model = made(name)
    before, hooks = model.config._attn_implementation, pre_hooks(model)
    model.train()
    patterns = attention_patterns(model, TOKENS)
    assert model.training
    assert model.config._attn_implementation == before
    assert pre_hooks(model) == hooks
    model.eval().set_attn_implementation("eager")
    with torch.no_grad():
        theirs = torch.stack(model(TOKENS, output_attentions=True).attentions)
    torch.testing.assert_close(patterns, theirs)


@pytest.mark.parametrize(
    ("name", "convert"), [("gpt2", from_gpt2), ("llama", from_llama), ("kv_shift", from_hf)]
)
def test_scores_are_those_of_our_model_with_the_same_weights(name, convert):
    """Grouped queries, a learned norm, biases, shifted values; heads ablated on a task."""
    model = made(name)
    batch = InductionTask(vocab_size=50, length=32).batch(8, np.random.default_rng(0))
    theirs, ours = (
        by_head(head_scores(source, batch, ids=range(50))) for source in (model, convert(model))
    )
    pd.testing.assert_frame_equal(theirs, ours, check_dtype=False, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_ablation_is_the_head_taken_out_of_the_output_projection(name):
    """Zeros in the columns of the matrix that read the head."""
    model = made(name)
    batch = InductionTask(vocab_size=50, length=32).batch(8, np.random.default_rng(0))
    ablated = ablate_heads(model, batch, [(1, 2)], "zero")
    output = {
        "gpt2": lambda: model.transformer.h[1].attn.c_proj.weight[8:12],
        "gpt_neox": lambda: model.gpt_neox.layers[1].attention.dense.weight[:, 8:12],
    }.get(name, lambda: model.model.layers[1].self_attn.o_proj.weight[:, 8:12])()
    with torch.no_grad():
        output.zero_()
    assert ablate_heads(model, batch, []) == pytest.approx(ablated, abs=1e-6)
    with pytest.raises(ConfigError, match=r"There is no head 1\.4"):
        ablate_heads(model, batch, [(1, 4)])


def test_values_that_are_not_linear_have_no_eigenvalues():
    """DeepSeek's come from a latent vector that is normalised."""
    ranks = {
        "kv_lora_rank": 8,
        "q_lora_rank": 8,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 4,
        "v_head_dim": 4,
    }
    config = DeepseekV3Config(**SMALL, num_key_value_heads=4, first_k_dense_replace=2, **ranks)
    scores = head_scores(DeepseekV3ForCausalLM(config), rows=4)
    assert scores["eigenvalue_copying"].isna().all()
    assert scores.drop(columns="eigenvalue_copying").notna().all(axis=None)


def test_norms_that_divide_zeros_by_zero_have_no_eigenvalues():
    """LAPACK ends the process at some matrices of NaN."""
    model = GPT2LMHeadModel(GPT2Config(**GPT2_SMALL, layer_norm_epsilon=0)).eval()
    scores = head_scores(model, rows=4)
    assert scores["eigenvalue_copying"].isna().all()
    assert scores["prefix_matching"].notna().all()


def test_embeddings_narrower_than_the_residual_stream():
    """OPT-350m's shape: patterns are scored and heads ablated; what heads write as tokens is not
    known.
    """
    torch.manual_seed(0)
    config = OPTConfig(
        vocab_size=60,
        hidden_size=32,
        ffn_dim=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        word_embed_proj_dim=16,
    )
    model = OPTForCausalLM(config).eval()
    batch = repeated_batch(repeated_rows(range(3, 60), rows=4, period=8, repeats=2), 2)
    scores = head_scores(model, batch, rows=4)
    assert scores["eigenvalue_copying"].isna().all()
    assert scores.drop(columns="eigenvalue_copying").notna().all(axis=None)
    ablated = ablate_heads(model, batch, [(1, 1)], "zero")
    with torch.no_grad():
        model.model.decoder.layers[1].self_attn.out_proj.weight[:, 8:16] = 0
    assert ablate_heads(model, batch, []) == pytest.approx(ablated)


# Bad input


def windowed():
    return MistralForCausalLM(MistralConfig(**GROUPED, sliding_window=16))


def test_a_probe_fits_into_a_sliding_window():
    assert HuggingFaceModel(windowed()).probe_rows(4, 2, None, None, 0).shape == (2, 16)
    with pytest.raises(
        ConfigError, match="length is 24, but some layers of the MistralForCausalLM see the last 16"
    ):
        head_scores(windowed(), length=24)


def half_cached():
    """A model whose attention cannot be switched, as those from before there were interfaces."""
    model = made("gpt2")
    model.set_attn_implementation = lambda implementation: None
    return model


def filled(name, tensor, number):
    model = made(name)
    with torch.no_grad():
        model.get_parameter(tensor).fill_(number)
    return model


TAPS = "model.layers.1.self_attn.shift_norm."


def bare():
    return GPT2Model(GPT2Config(**GPT2_SMALL))


def t5():
    return T5ForConditionalGeneration(
        T5Config(vocab_size=50, d_model=16, d_ff=32, num_layers=1, num_heads=4, d_kv=4)
    )


def mamba():
    return MambaForCausalLM(MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1))


def own_first():
    return add_shift(made("llama"), first="own")


def on_meta():
    with torch.device("meta"):
        return MODELS["gpt2"]()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (t5, "The T5ForConditionalGeneration has an encoder and a decoder"),
        (mamba, "The MambaForCausalLM has no attention heads"),
        (
            lambda: BertForMaskedLM(BertConfig(**SMALL)),
            "The BertForMaskedLM attends to later tokens",
        ),
        (bare, "The GPT2Model has no unembedding: give the whole language model"),
        (
            half_cached,
            "attends by 'sdpa', which gives no patterns, and it cannot be switched: load it with",
        ),
        (
            lambda: filled("gpt2", "transformer.h.0.attn.c_attn.weight", 1e30),
            "The patterns of the GPT2LMHeadModel are",
        ),
        (
            lambda: filled("gpt2", "transformer.ln_f.bias", torch.inf),
            "The GPT2LMHeadModel's tensor 'transformer.ln_f.bias' holds a number that is not finite",
        ),
        (
            lambda: filled("kv_shift", f"{TAPS}beta", torch.nan),
            f"'{TAPS}beta' holds a number that is not finite",
        ),
        (own_first, "The KVShiftLlamaForCausalLM has shift_first='own' and shifted values"),
        (on_meta, "The GPT2LMHeadModel is on the meta device"),
        (lambda: torch.rand(2, 3, 4, 12, 12), "tokens are not given"),
        (lambda: {"a": 1}, "The source is a dict, but must be a Run"),
    ],
)
def test_what_cannot_be_scored_says_why(make, sentence):
    with pytest.raises(ConfigError, match=sentence):
        locate_induction_heads(make())


def test_a_compiled_model_is_read_as_it_is():
    model = made("gpt2")
    assert torch.equal(
        attention_patterns(torch.compile(model, backend="eager"), TOKENS),
        attention_patterns(model, TOKENS),
    )


def test_without_the_output_projections_patterns_are_scored_all_the_same(monkeypatch, batch):
    monkeypatch.setattr(hugging_face, "OUTPUT_PROJECTIONS", ())
    model = made("llama")
    scores = head_scores(model)
    assert scores["prefix_matching"].notna().all()
    assert scores["eigenvalue_copying"].isna().all()
    with pytest.raises(
        ConfigError,
        match="The output projections of the LlamaForCausalLM's attention were not found",
    ):
        ablate_heads(model, batch, [(0, 0)])


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        (TOKENS + 40, "ids from .* but the vocabulary is 0 to 49"),
        (TOKENS.repeat(1, 3), "The tokens have 36 positions, but the model's n_ctx is 32"),
        (TOKENS.float(), "whole numbers"),
        ([[1, 2], [3]], "sequences of one length"),
        (TOKENS[None], r"shape \[1, 3, 12\], but must be \[batch, pos\]"),
        (TOKENS[:0], "at least one"),
    ],
)
def test_tokens_that_a_model_cannot_read_say_why(tokens, sentence):
    with pytest.raises(ConfigError, match=sentence):
        attention_patterns(made("gpt2"), tokens)


def test_patterns_alone_cannot_be_ablated(batch):
    patterns = torch.rand(2, 3, 4, 12, 12)
    with pytest.raises(ConfigError, match="patterns alone cannot be ablated"):
        head_scores(patterns, batch, tokens=TOKENS)
    with pytest.raises(
        ConfigError, match="holds patterns alone, but heads are ablated by running a model"
    ):
        ablate_heads(patterns, batch, [(0, 0)])
    with pytest.raises(ConfigError, match="probed with tokens of its own"):
        head_scores(made("gpt2"), tokens=TOKENS)
    with pytest.raises(ConfigError, match="ids from 3 to 60, but the vocabulary is 0 to 49"):
        head_scores(made("gpt2"), ids=[3, 4, 5, 60])


@pytest.mark.parametrize("kind", ["llama", "kv_shift"])
@pytest.mark.parametrize("offloaded", ["model.layers.1", "model.embed_tokens", ""])
def test_a_model_with_parts_on_disk_has_the_scores_of_the_whole_one(kind, offloaded, tmp_path):
    whole = made(kind).eval()
    whole.save_pretrained(tmp_path / "saved")
    parts = (
        "model.embed_tokens",
        "model.layers.0",
        "model.layers.1",
        "model.norm",
        "model.rotary_emb",
        "lm_head",
    )
    places = {part: "disk" if part.startswith(offloaded) else "cpu" for part in parts}
    options = {"device_map": places, "offload_folder": str(tmp_path / "offload")}
    model = type(whole).from_pretrained(tmp_path / "saved", **options)
    batch = InductionTask(vocab_size=50, length=16).batch(4, np.random.default_rng(0))
    for measure in (
        lambda m: head_scores(m, batch),
        lambda m: ablation_sweep(m, batch, heads=[(0, 1)]),
    ):
        found, right = measure(model), measure(whole)
        pd.testing.assert_frame_equal(
            found,
            right,
            atol=1e-4,
        )
    convert = from_hf if kind == "kv_shift" else from_llama
    with pytest.raises(
        ConfigError, match=r"is on the meta device or offloaded.*load the model without device_map"
    ):
        convert(model)
