"""TransformerLens' tools on GPT-2's and on Llama's blocks: what they sum to, and what is left."""

import pytest
import torch
from transformer_lens.model_protocol import TransformerLensModel

from ihlab.model.config import GPT2

KINDS = {
    "gpt2": {**GPT2, "attention": "kv_shift"},
    "gpt2, no unembedding": {**GPT2, "unembedding": "none"},
    "llama": {"attention": "kv_shift"},
    "no norm": {"norm": "none"},
}


@pytest.fixture(params=KINDS)
def model(request, make_model):
    """Norm weights are not 1 and biases not 0. Without an unembedding it has one entry more than
    tokens.
    """
    return make_model(**KINDS[request.param]).eval()


@pytest.fixture
def cached(model, tokens):
    with torch.no_grad():
        return model.run_with_cache(tokens)


def constant(model):
    """What the final norm's bias adds to every token's logit, wherever it comes from."""
    return model.ln_final.b @ model.W_U if model.cfg.norm == "layer" else torch.zeros(19)


def embeddings(model):
    return ["embed", "pos_embed"] if model.cfg.positional == "learned" else ["embed"]


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_the_model_is_what_transformer_lens_calls_one(model):
    assert isinstance(model, TransformerLensModel)
    assert (
        model.cfg.normalization_type == {"layer": "LN", "rms": "RMS", "none": None}[model.cfg.norm]
    )


# The residual stream


@pytest.mark.parametrize(("layer", "mlp_input"), [(0, True), (1, False), (2, False)])
def test_heads_neurons_positions_and_biases_sum_to_the_stream(model, cached, layer, mlp_input):
    _, cache = cached
    parts, labels = cache.get_full_resid_decomposition(
        layer=layer, mlp_input=mlp_input, expand_neurons=True, return_labels=True
    )
    assert labels[-1 - len(embeddings(model)) :] == [*embeddings(model), "bias"]
    stream = (
        cache["resid_post", 1]
        if layer == 2
        else cache["resid_mid" if mlp_input else "resid_pre", layer]
    )
    close(parts.sum(dim=0), stream)


# Through the norms


@pytest.mark.parametrize("mlp_input", [False, True])
def test_parts_put_through_an_inner_norm_sum_to_the_normalised_stream(model, cached, mlp_input):
    """Divided by the scale (and by a LayerNorm centred), part by part; w and b come after."""
    _, cache = cached
    if model.cfg.norm == "none":
        return
    parts = cache.decompose_resid(layer=1, mlp_input=mlp_input, apply_ln=True)
    close(parts.sum(dim=0), cache["normalized", 1, "ln2" if mlp_input else "ln1"])
    if model.cfg.norm == "layer":
        close(parts.mean(dim=-1), torch.zeros(parts.shape[:-1]))


# Logits


def test_attributions_sum_to_the_logits_less_the_final_bias(model, cached, tokens):
    logits, cache = cached
    wanted = tokens.roll(-1, dims=1)
    attributions = cache.logit_attrs(cache.decompose_resid(), wanted)
    expected = logits.gather(2, wanted[:, :, None])[:, :, 0] - constant(model)[wanted]
    close(attributions.sum(dim=0), expected)


# Patching


@torch.no_grad()
def test_a_hook_may_write_into_the_positions(make_model, tokens):
    """They are copies: the model and the other rows keep theirs."""
    model = make_model(**GPT2)
    before = model.W_pos.clone()

    def forget(positions, hook):
        positions[0] = 0
        return positions

    logits, hooked = (
        model(tokens),
        model.run_with_hooks(tokens, fwd_hooks=[("hook_pos_embed", forget)]),
    )
    assert torch.equal(model.W_pos, before)
    assert not torch.allclose(hooked[0], logits[0])
    torch.testing.assert_close(hooked[1:], logits[1:])
