"""Circuits, composition and the induction pair, against what models compute and on the theorems'
models.
"""

import numpy as np
import pytest
import torch

from ihlab.interp.circuits import (
    ov_circuit,
    qk_circuit,
)
from ihlab.interp.induction_pair import find_induction_pair
from ihlab.interp.patching import without_key_path
from ihlab.interp.patterns import score_routes
from ihlab.model.transformer import Transformer
from tasks import ConfigError
from tests.interp.conftest import attention_by_hand

# W_QK and W_OV


def moved(stream, route):
    """The residual stream `route` tokens earlier, zeros in front."""
    return torch.cat([torch.zeros_like(stream[:, :route]), stream[:, : stream.shape[1] - route]], 1)


def test_w_qk_gives_the_scores_of_each_route(make_model, tokens):
    """Without positions, from the normalised residual stream (before the norm's weight) to the
    scores.
    """
    model = make_model(positional="none")
    _, cache = model.run_with_cache(tokens)
    for layer in range(2):
        stream = cache["normalized", layer, "ln1"]
        routes = score_routes(cache, layer)
        for head in range(4):
            for route in range(3):
                before = moved(stream, route)
                scores = stream @ qk_circuit(model, layer, head, route).AB @ before.mT
                torch.testing.assert_close(scores, routes[route][:, head])


def test_w_qk_is_the_score_at_the_same_position_with_yarns_factor(make_model, tokens):
    model = make_model(positional="rope", rotary_scale=1.2)
    _, cache = model.run_with_cache(tokens)
    stream = cache["normalized", 0, "ln1"]
    scores = stream @ qk_circuit(model, 0, 0, 0).AB @ stream.mT
    own = score_routes(cache, 0)[0][:, 0]
    scores, own = (each.diagonal(dim1=1, dim2=2) for each in (scores, own))
    torch.testing.assert_close(scores, own, rtol=1e-4, atol=1e-5)


def test_a_layer_norms_centring_is_folded_in(make_model, tokens):
    """The circuits read the residual stream uncentred, as the head reads it centred; the scale is
    divided out.
    """
    model = make_model(norm="layer", positional="none", attention="vanilla")
    _, cache = model.run_with_cache(tokens)
    stream = cache["resid_pre", 1] + 3.0  # a mean that only centring takes away
    scaled = stream / cache["blocks.1.ln1.hook_scale"]
    attn, norm = model.blocks[1].attn, model.blocks[1].ln1
    read = (stream - stream.mean(dim=-1, keepdim=True)) / cache["blocks.1.ln1.hook_scale"] * norm.w
    q, k = read @ attn.W_Q[3], read @ attn.W_K[1]
    torch.testing.assert_close(
        scaled @ qk_circuit(model, 1, 3).AB @ scaled.mT, q @ k.mT / attn.d_head**0.5
    )
    written = read @ attn.W_V[1] @ attn.W_O[3]
    torch.testing.assert_close(scaled @ ov_circuit(model, 1, 3).AB, written)


def test_w_ov_gives_what_each_head_writes(make_model, tokens):
    model = make_model()
    _, cache = model.run_with_cache(tokens)
    for layer in range(2):
        stream = cache["normalized", layer, "ln1"]
        for head in range(4):
            written = torch.zeros_like(stream)
            for route in range(3):
                read = cache["pattern", layer][:, head] @ moved(stream, route)
                written += read @ ov_circuit(model, layer, head, route).AB
            torch.testing.assert_close(written, cache["result", layer, "attn"][:, :, head])


def test_circuits_that_do_not_exist_are_refused(make_model):
    with pytest.raises(ConfigError, match="no route 3: alpha has columns 0 to 2"):
        qk_circuit(make_model(), 0, 0, route=3)
    with pytest.raises(ConfigError, match="no route 1: a vanilla head has route 0 only"):
        ov_circuit(make_model(attention="vanilla"), 0, 0, route=1)


# Composition


def test_composition_is_the_norm_of_the_product(make_model):
    """alpha and beta have no say: the matrices here are without them."""
    model = make_model(n_layers=3)
    table = find_induction_pair(model)
    assert len(table) == 3 * 16
    with torch.no_grad():
        for line in table.itertuples():
            one, two = model.blocks[line.from_layer], model.blocks[line.to_layer]
            norms = [torch.diag(block.ln1.w) for block in (one, two)]
            groups = line.from_head // 2, line.to_head // 2
            writes = norms[0] @ one.attn.W_V[groups[0]] @ one.attn.W_O[line.from_head]
            reads = norms[1] @ two.attn.W_K[groups[1]] @ two.attn.W_Q[line.to_head].T @ norms[1]
            expected = (writes @ reads).norm() / writes.norm() / reads.norm()
            assert line.k_composition == pytest.approx(expected.item())


# The key path


@pytest.mark.parametrize("attention", ["vanilla", "kv_shift"])
def test_only_the_receivers_keys_change(make_model, tokens, attention):
    """Against attention from residual streams with and without the sender, for one of two heads
    that share keys.
    """
    model = make_model(attention=attention, positional="none")
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
        sent = cache["result", 0, "attn"][:, :, 3]
        norm, stream = model.layers[1].ln1, cache["resid_pre", 1]
        with_it, without = norm(stream), norm(stream - sent + sent.mean(dim=(0, 1)))
        found, z = without_key_path(model, tokens, (0, 3), (1, 2))
    pattern, expected = attention_by_hand(model, 1, 2, (with_it, without, with_it))
    torch.testing.assert_close(z, expected)
    if attention == "vanilla":
        torch.testing.assert_close(found, pattern)


def test_a_path_that_a_layer_without_residual_cuts_carries_nothing(make_model, tokens):
    model = make_model(n_layers=3, residual=(True, False, True), mlp="none")
    _, cache = model.run_with_cache(tokens)
    _, z = without_key_path(model, tokens, (0, 0), (2, 0))
    torch.testing.assert_close(z, cache["z", 2][:, :, 0])


# The pair


def test_the_pair_of_theorem_3_2_is_found_and_confirmed(theorem_3_2, batch):
    table = find_induction_pair(theorem_3_2, batch)
    assert len(table) == 1
    pair = table.iloc[0]
    assert pair["pair"]
    assert pair["k_composition"] == pytest.approx(
        40**-0.5
    )  # W_OV and W_QK^T are both an identity of rank 40
    assert pair["previous_token"] == pytest.approx(1, abs=1e-6)
    assert pair["induction_stripe"] == pytest.approx(1, abs=1e-6)
    # Without the path its keys are all alike; what is left is the even share of 1 in q keys, for q
    # from 12 to 23.
    assert pair["stripe_without"] == pytest.approx(
        np.mean([1 / q for q in range(12, 24)]), rel=0.05
    )
    assert pair["accuracy_fall"] > 0.5  # the row's most frequent token is still right now and then
    assert pair["loss_rise"] > 0


def test_a_previous_token_head_that_nobody_listens_to_makes_no_pair(theorem_3_2):
    """The later head makes no keys at all."""
    deaf = Transformer(theorem_3_2.cfg).double()
    deaf.load_state_dict(theorem_3_2.state_dict())
    with torch.no_grad():
        deaf.blocks[1].attn.k_proj.weight.zero_()
    table = find_induction_pair(deaf)
    assert table["previous_token"].item() == pytest.approx(1, abs=1e-6)
    assert table["stripe_fall"].item() == pytest.approx(0, abs=1e-9)
    assert not table["pair"].any()
