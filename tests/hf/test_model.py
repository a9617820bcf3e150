"""What users call: add_shift, KVShiftConfig, KVShiftForCausalLM, to_hf and from_hf; and each
refusal is a sentence.
"""

import copy
import io
import pickle
import re
import subprocess
import sys

import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
)

from ihlab import ConfigError, ModelConfig, Transformer
from ihlab.hf import KVShiftConfig, KVShiftForCausalLM, add_shift, from_hf, to_hf, unshifted
from ihlab.hf.conformance.shifted import taps_of
from tests.hf.conftest import SIZES, maker, plain

IDS = torch.randint(1, 50, (2, 9), generator=torch.Generator().manual_seed(0))


def refused(sentence):
    return pytest.raises(ConfigError, match=f"^{re.escape(sentence)}")


def test_shift_is_added_in_place_and_the_original_config_is_left_alone():
    model = plain("mistral")
    config, again = model.config, copy.deepcopy(model)
    assert add_shift(model) is model
    assert isinstance(model, KVShiftForCausalLM)
    assert isinstance(model, MistralForCausalLM)
    assert model.model.config is model.config
    assert type(config) is type(again.config)
    assert torch.equal(model(IDS).logits, again(IDS).logits)
    assert torch.equal(unshifted(model)(IDS).logits, again(IDS).logits)


@pytest.mark.parametrize("cast", [False, True])
def test_the_unshifted_model_has_the_frequencies_of_the_shifted_one(cast):
    """transformers loads weights in half precision and keeps frequencies in float32; `model.to` rounds both."""
    model = plain("mistral")
    for weight in model.parameters():
        weight.data = weight.data.bfloat16()
    model = model.bfloat16() if cast else model
    model.generation_config.max_new_tokens = 3
    again, copied = copy.deepcopy(model), unshifted(add_shift(model))
    assert torch.equal(copied(IDS).logits, again(IDS).logits)
    assert copied.generation_config.max_new_tokens == 3


def test_half_precision_keeps_rotary_frequencies():
    model = Transformer(
        ModelConfig(d_vocab=50, n_ctx=16, n_layers=1, d_model=32, n_heads=2, attention="kv_shift")
    ).bfloat16()
    shifted = to_hf(model)
    assert shifted.dtype == torch.bfloat16
    assert shifted.model.rotary_emb.inv_freq.dtype == torch.float32


def saved(model):
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)


@pytest.mark.parametrize(
    "copied", [lambda model: pickle.loads(pickle.dumps(model)), saved, copy.deepcopy]
)
def test_a_pickled_model_is_the_same_model(copied):
    model = maker("mistral")()
    again = copied(model)
    assert type(again) is type(model)
    assert again.config is again.model.config
    assert (type(again.config), again.config.to_dict()) == (
        type(model.config),
        model.config.to_dict(),
    )
    assert copied(model.config).to_dict() == model.config.to_dict()
    assert torch.equal(again(IDS).logits, model(IDS).logits)


def test_a_cache_layer_keeps_two_vectors_for_each_earlier_token_and_no_more_memory():
    cache = maker(window=3)()(IDS, use_cache=True).past_key_values
    for layer in cache.layers:
        for side in ("key", "value"):
            held = layer.raw[side]
            assert held.shape == (2, 2, 2 * 8)  # batch, window - 1, kv_head * d_head
            assert held.untyped_storage().nbytes() == 4 * held.numel()


def test_fresh_taps_start_as_in_the_paper():
    torch.manual_seed(0)
    model = KVShiftForCausalLM(KVShiftConfig(**SIZES, base_model_type="qwen2"))
    assert type(model).__name__ == "KVShiftQwen2ForCausalLM"
    for taps in taps_of(model):
        assert (taps[:, 0] > 0).all()
        torch.testing.assert_close(taps.sum(dim=1), torch.ones(2))


def test_auto_classes_know_the_config(tmp_path):
    model = maker("qwen3", window=3, first="own", values=False)()
    model.save_pretrained(tmp_path)
    for loaded in (
        AutoModelForCausalLM.from_pretrained(tmp_path),
        KVShiftForCausalLM.from_pretrained(tmp_path),
    ):
        assert type(loaded) is type(model)
        assert (loaded.config.shift_window, loaded.config.shift_first) == (3, "own")
        assert torch.equal(loaded.eval()(IDS).logits, model(IDS).logits)
    assert type(AutoModelForCausalLM.from_config(model.config)) is type(model)


def test_a_decoder_is_loaded_without_its_head(tmp_path):
    model = maker("mistral", window=3)()
    for taps in taps_of(model):
        torch.nn.init.normal_(taps)
    model.save_pretrained(tmp_path)
    decoder = AutoModel.from_pretrained(tmp_path).eval()
    assert not decoder.can_generate()
    assert torch.equal(decoder(IDS).last_hidden_state, model.model(IDS).last_hidden_state)


@pytest.mark.parametrize(
    ("attention", "first"),
    [("k_shift", "zero"), ("v_shift", "zero"), ("kv_shift", "own")],
)
def test_our_models_there_and_back(attention, first, tmp_path):
    sizes = {
        "n_layers": 2,
        "d_model": 16,
        "n_heads": 4,
        "n_key_value_heads": 2,
        "d_vocab": 50,
        "n_ctx": 32,
    }
    ours = Transformer(
        ModelConfig(**sizes, attention=attention, shift_window=3, shift_first=first), seed=0
    ).eval()
    made = to_hf(ours)
    torch.testing.assert_close(made(IDS).logits, ours(IDS), atol=1e-5, rtol=1e-5)
    made.save_pretrained(tmp_path)
    assert torch.equal(from_hf(str(tmp_path))(IDS), ours(IDS))
    for taps in taps_of(made):
        taps.data = taps.data.flip(1)
    assert torch.equal(from_hf(made, reversed_taps=True)(IDS), ours(IDS))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_a_shifted_model_in_half_precision_is_converted_as_its_weights_in_float32(dtype):
    half, wide = maker("qwen3")().to(dtype), maker("qwen3")()
    wide.load_state_dict(half.state_dict())
    torch.testing.assert_close(from_hf(half)(IDS), wide(IDS).logits, atol=1e-4, rtol=1e-4)


GPT2 = GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
VANILLA = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=9, n_ctx=8)
REFUSED = [
    (
        lambda: add_shift(GPT2LMHeadModel(GPT2)),
        "The GPT2LMHeadModel cannot be shifted: it has no decoder whose attention has separate k_proj and v_proj.",
    ),
    (lambda: add_shift(maker()()), "The KVShiftLlamaForCausalLM is shifted already."),
    (
        lambda: add_shift(plain(), window=1025),
        "shift_window is 1025, but must be 2 to max_position_embeddings=1024.",
    ),
    (
        lambda: add_shift(plain(), keys=False, values=False),
        "shift_keys and shift_values are (False, False), but must be True or False, one of",
    ),
    (
        lambda: KVShiftConfig(shift_rule="partial_key_offset"),
        "shift_rule is 'partial_key_offset', but only 'taps' is known since 0.5.0.",
    ),
    (
        lambda: KVShiftConfig(base_model_type="nothing"),
        "base_model_type is 'nothing', which transformers does not",
    ),
    (lambda: to_hf(Transformer(VANILLA)), "The model has attention='vanilla'"),
    (lambda: from_hf(plain()), "The model is a LlamaForCausalLM, but must be shifted."),
]


@pytest.mark.parametrize(("call", "sentence"), REFUSED)
def test_models_and_shifts_that_do_not_exist_are_refused(call, sentence):
    with refused(sentence):
        call()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda model: None,
            "The OPTForCausalLM cannot be shifted. The layers around OPTAttention do not pass keyword",
        ),
        (
            lambda model: setattr(model.model.decoder.layers[0].self_attn, "head_dim", 5),
            "The k_proj of OPTAttention has 8 outputs, no mult",
        ),
    ],
)
def test_a_model_that_cannot_be_shifted_stays_as_it_is(change, sentence):
    model = OPTForCausalLM(
        OPTConfig(
            vocab_size=50, hidden_size=8, ffn_dim=8, num_hidden_layers=1, num_attention_heads=2
        )
    )
    before = model.config, [type(part) for part in model.modules()]
    change(model)
    with refused(sentence):
        add_shift(model)
    assert (model.config, [type(part) for part in model.modules()]) == before
    assert not any(part._forward_pre_hooks for part in model.modules())


def test_a_window_longer_than_the_sequence_mixes_zeros():
    model = maker(window=8)()
    for taps in taps_of(model):
        torch.nn.init.normal_(taps)
    assert torch.allclose(model(IDS[:, :3]).logits, model(IDS).logits[:, :3], atol=1e-5)


def test_refuses_caches_it_cannot_use():
    model = maker()()
    cache = plain()(IDS, use_cache=True).past_key_values
    with refused(
        "The cache holds tokens that an unshifted model read, without their raw keys and values"
    ):
        model(IDS[:, :1], past_key_values=cache)
    cache = maker(keys=False)()(IDS, use_cache=True).past_key_values
    with refused("The cache holds tokens without their raw keys"):
        model(IDS[:, :1], past_key_values=cache)
    cache = DynamicCache(config=model.config)
    model(IDS, past_key_values=cache)
    with refused(
        "crop(-2) takes back more tokens than the 0 whose raw keys the cache has recorded"
    ):
        cache.crop(-2)


def test_the_package_alone_does_not_load_transformers():
    code = "import sys, ihlab; assert 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_model_whose_weights_are_offloaded_is_refused():
    accelerate = pytest.importorskip("accelerate")
    model = plain()
    accelerate.cpu_offload(model, torch.device("cpu"))
    with pytest.raises(ConfigError, match="offloaded: add the shift before"):
        add_shift(model)
