"""Models of other libraries: what is read of them from the outside is what ours say of the same
weights.

The GPT-2 of `gpt2_induction` (two layers of width 64) learned induction with transformers alone: on
sequences of 64 random tokens that repeat after 8 to 32, whose special id 63 never occurs. On new
sequences it has a loss of .002 nats a token and an accuracy of 1.000. All four heads of its last
layer match prefixes (.98 to .99), fed by head 0.3; three of them are needed, the fourth's work is
done by the others.
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
    Qwen2Config,
    Qwen2ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.utils import logging

from ihlab.hf import add_shift, from_hf
from ihlab.hf.conformance.families import tiny
from ihlab.interp import head_scores, hugging_face, locate_induction_heads
from ihlab.interp.ablation import ablate_heads
from ihlab.interp.hugging_face import HuggingFaceModel
from ihlab.interp.sources import attention_patterns
from ihlab.measure.probe import repeated_batch, repeated_rows
from ihlab.model.conversion import from_gpt2, from_llama
from tasks import ConfigError, InductionTask

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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_three_libraries_find_the_same_heads_with_the_same_scores(gpt2, batch):
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_transformers(str(STORED), device="cpu")
    ours, *theirs = [
        by_head(locate_induction_heads(source, batch=batch, ids=range(63), seed=1))
        for source in (from_gpt2(gpt2), gpt2, bridge)
    ]
    assert ours["induction"].tolist() == [False] * 4 + [True, False, True, True]
    assert ((ours["prefix_matching"] > 0.98) == (ours["layer"] == 1)).all()
    ours = ours.assign(eigenvalue_copying=np.nan)
    for table in theirs:
        pd.testing.assert_frame_equal(table, ours, check_dtype=False, rtol=1e-4, atol=1e-4)


def test_special_tokens_are_in_no_probe(gpt2):
    """Id 63 is the config's bos and eos."""
    assert HuggingFaceModel(gpt2).tokens.content == list(range(63))
    rows = HuggingFaceModel(gpt2).probe_rows(2, 50, None, None, 0)
    assert rows.shape == (50, 64)
    assert 63 not in rows


# Patterns


@pytest.mark.parametrize("name", MODELS)
def test_patterns_are_those_that_the_model_returns_itself(name):
    model = made(name)
    before = model.config._attn_implementation
    model.train()
    patterns = attention_patterns(model, TOKENS)
    assert model.training
    assert model.config._attn_implementation == before
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
    ours = ours.assign(eigenvalue_copying=np.nan)
    pd.testing.assert_frame_equal(theirs, ours, check_dtype=False, rtol=1e-4, atol=1e-5)


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


T5 = T5Config(vocab_size=50, d_model=16, d_ff=32, num_layers=1, num_heads=4, d_kv=4)
MAMBA = MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1)


def huge():
    model = made("gpt2")
    torch.nn.init.constant_(model.transformer.h[0].attn.c_attn.weight, 1e30)
    return model


def on_meta():
    with torch.device("meta"):
        return MODELS["gpt2"]()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: T5ForConditionalGeneration(T5), "T5.* has an encoder and a decoder"),
        (lambda: MambaForCausalLM(MAMBA), "The MambaForCausalLM has no attention heads"),
        (lambda: BertForMaskedLM(BertConfig(**SMALL)), "BertForMaskedLM attends to later tokens"),
        (half_cached, "attends by 'sdpa', which gives no patterns, and it cannot be switched"),
        (huge, "The patterns of the GPT2LMHeadModel are"),
        (
            lambda: add_shift(made("llama"), first="own"),
            "The KVShiftLlamaForCausalLM has shifted values with shift_first='own'",
        ),
        (  # it norms values after the shift, and its last layers share earlier values
            lambda: add_shift(tiny("gemma3n_text")),
            "shifted values .* in some layers only, or changed after the shift",
        ),
        (on_meta, "The GPT2LMHeadModel is on the meta device"),
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
    assert head_scores(model)["prefix_matching"].notna().all()
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
        ([[1, 2], [3]], "sequences of one length"),
        (TOKENS[:0], "at least one"),
    ],
)
def test_tokens_that_a_model_cannot_read_say_why(tokens, sentence):
    with pytest.raises(ConfigError, match=sentence):
        attention_patterns(made("gpt2"), tokens)


def test_without_logits_nothing_can_be_ablated(batch):
    patterns = torch.rand(2, 3, 4, 12, 12)
    with pytest.raises(ConfigError, match="patterns alone cannot be ablated"):
        head_scores(patterns, batch, tokens=TOKENS)
    with pytest.raises(
        ConfigError, match="holds patterns alone, but heads are ablated by running a model"
    ):
        ablate_heads(patterns, batch, [(0, 0)])
    bare = GPT2Model(GPT2Config(**GPT2_SMALL))
    with pytest.raises(ConfigError, match="The GPT2Model has no unembedding"):
        ablate_heads(
            bare, InductionTask(vocab_size=50, length=16).batch(2, np.random.default_rng(0)), []
        )


@pytest.mark.parametrize("kept", [{}, {"model.layers.0": "cpu", "model.rotary_emb": "cpu"}])
def test_a_model_with_parts_on_disk_has_the_scores_of_the_whole_one(kept, tmp_path):
    whole = made("kv_shift").eval()
    whole.save_pretrained(tmp_path / "saved")
    parts = ("embed_tokens", "layers.0", "layers.1", "norm", "rotary_emb")
    places = dict.fromkeys(["lm_head", *(f"model.{part}" for part in parts)], "disk") | kept
    options = {"device_map": places, "offload_folder": str(tmp_path / "offload")}
    model = type(whole).from_pretrained(tmp_path / "saved", **options)
    batch = InductionTask(vocab_size=50, length=16).batch(4, np.random.default_rng(0))
    found, right = head_scores(model, batch), head_scores(whole, batch)
    pd.testing.assert_frame_equal(found, right, atol=1e-4)
    with pytest.raises(ConfigError, match=r"offloaded.*load the model without device_map"):
        from_hf(model)
