"""What TransformerLens' tools need beyond hook names: the config's fields, and numbers gathered where they can be."""

import pytest
import torch
from transformer_lens import patching
from transformer_lens.head_detector import detect_head
from transformer_lens.model_protocol import TransformerLensModel


@pytest.fixture(params=["vanilla", "kv_shift"])
def model(request, make_model):
    return make_model(attention=request.param).eval()


def test_the_model_is_what_transformer_lens_calls_one(model):
    assert isinstance(model, TransformerLensModel)


@torch.no_grad()
def test_the_config_says_where_results_are_gathered(model, tokens):
    _, clean = model.run_with_cache(tokens)
    gathered = patching.get_act_patch_attn_out(model, tokens, clean, lambda logits: logits.sum())
    assert str(gathered.device) == model.cfg.device
    # Patching a run with itself changes nothing.
    torch.testing.assert_close(gathered, model(tokens).sum().expand_as(gathered))


@torch.no_grad()
def test_head_results_can_be_computed_into_a_cache_that_lacks_them(model, tokens):
    _, cache = model.run_with_cache(tokens, names_filter=lambda name: not name.endswith("hook_result"))
    cache.compute_head_results()
    for layer in range(2):
        attn = model.blocks[layer].attn
        expected = torch.stack([cache["z", layer][:, :, head] @ attn.W_O[head] for head in range(4)], dim=2)
        torch.testing.assert_close(cache["result", layer, "attn"], expected)


@torch.no_grad()
def test_heads_and_neurons_attribute_the_whole_logit(model, tokens):
    """Every head, every neuron and the embedding, through the final norm: their direct effects sum to the logit."""
    logits, cache = model.run_with_cache(tokens)
    parts, labels = cache.get_full_resid_decomposition(expand_neurons=True, return_labels=True)
    attributions = cache.logit_attrs(parts, 4)
    assert attributions.shape == (len(labels), *tokens.shape)
    torch.testing.assert_close(attributions.sum(dim=0), logits[:, :, 4], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_one_heads_attribution_by_hand(model, tokens):
    """(z @ W_O) / scale . (w * W_U[:, t]), and the labels name the heads."""
    _, cache = model.run_with_cache(tokens)
    heads, labels = cache.stack_head_results(return_labels=True)
    attributions = cache.logit_attrs(heads, 4)
    at = labels.index("L1H2")
    write = cache["z", 1][:, :, 2] @ model.blocks[1].attn.W_O[2]
    expected = (write / cache["ln_final.hook_scale"] * model.ln_final.w) @ model.W_U[:, 4]
    torch.testing.assert_close(attributions[at], expected, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_one_position_of_one_row_can_be_attributed(model, tokens):
    logits, cache = model.run_with_cache(tokens[:1], remove_batch_dim=True)
    attributions = cache.logit_attrs(cache.decompose_resid(pos_slice=-1), 4, pos_slice=-1, has_batch_dim=False)
    torch.testing.assert_close(attributions.sum(), logits[0, -1, 4], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_head_detector_reads_our_models(model, tokens):
    """Its score of a previous-token head is the attention one back, over the sum of all attention, computed here."""
    row = tokens[:1]
    scores = detect_head(model, row, "previous_token_head", exclude_bos=False, error_measure="mul")
    _, cache = model.run_with_cache(row)
    for layer in range(2):
        pattern = cache["pattern", layer][0]
        back = pattern.diagonal(offset=-1, dim1=-2, dim2=-1).sum(-1)
        torch.testing.assert_close(scores[layer], back / pattern.sum((-2, -1)))
