"""Patching by TransformerLens and by us, against patches made by hand in the network's own
equations.
"""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformer_lens import patching

from ihlab.interp.patching import path_effects, path_patch, without_key_path
from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer
from tasks.config import ConfigError

HEADS, GROUPS, D_HEAD, POS = 4, 2, 6, 7
SLOPES = 2.0 ** (-8 * (torch.arange(HEADS, dtype=torch.float64) + 1) / HEADS)


def random_model(**changes):
    """Grouped queries, windows of 3, ALiBi (no float32 tables) and norm weights that are not 1."""
    fields = {
        "n_layers": 3,
        "d_model": 20,
        "n_heads": HEADS,
        "n_key_value_heads": GROUPS,
        "d_head": D_HEAD,
    }
    fields |= {"d_mlp": 14, "d_vocab": 19, "n_ctx": 12, "attention": "kv_shift", "shift_window": 3}
    model = (
        Transformer(ModelConfig(**{**fields, "positional": "alibi", **changes}), seed=3)
        .double()
        .eval()
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(".w"):
                weight.uniform_(0.5, 1.5, generator=generator)
    return model


@pytest.fixture(scope="module")
def model():
    return random_model()


@pytest.fixture(scope="module")
def tokens():
    return torch.randint(19, (3, POS), generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="module")
def source():
    return torch.randint(19, (3, POS), generator=torch.Generator().manual_seed(9))


def metric(logits):
    """A different number for every logit that changes."""
    weights = torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).reshape(logits.shape)
    return (weights * logits).sum()


# The network written out, so that a patch is an assignment between two of its lines


def rms(x, norm):
    return x / (x.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * norm.w


def shifted(x, weight):
    """[batch, pos, group, d] mixed with the tokens before."""
    mixed = torch.zeros_like(x)
    for back in range(weight.shape[1]):
        mixed[:, back:] += weight[:, back, None] * x[:, : x.shape[1] - back]
    return mixed


def by_hand(model, tokens, patch=lambda place, layer, x: x):
    """Logits, with `patch(place, layer, x)` free to exchange any activation."""
    x = model.W_E[tokens]
    for layer, block in enumerate(model.layers):
        attn, group = block.attn, HEADS // GROUPS
        x = patch("resid_pre", layer, x)
        normal = rms(x, block.ln1)
        q = patch("q", layer, torch.einsum("bpm,hmd->bphd", normal, attn.W_Q))
        k = patch("k", layer, shifted(torch.einsum("bpm,hmd->bphd", normal, attn.W_K), attn.alpha))
        v = patch("v", layer, shifted(torch.einsum("bpm,hmd->bphd", normal, attn.W_V), attn.beta))
        # Sharing undone: a copy for each query head, which can be exchanged on its own.
        k = patch("k of each query head", layer, k.repeat_interleave(group, dim=2))
        v = patch("v of each query head", layer, v.repeat_interleave(group, dim=2))
        pattern = torch.zeros(len(x), HEADS, POS, POS, dtype=x.dtype)
        for t in range(POS):
            scores = (q[:, t, None] * k[:, : t + 1]).sum(-1) / math.sqrt(D_HEAD)  # [batch, s, head]
            pattern[:, :, t, : t + 1] = (
                (scores - SLOPES * (t - torch.arange(t + 1))[:, None]).softmax(1).mT
            )
        pattern = patch("pattern", layer, pattern)
        z = patch("z", layer, torch.einsum("bhqk,bkhd->bqhd", pattern, v))
        attn_out = patch("attn_out", layer, torch.einsum("bphd,hdm->bpm", z, attn.W_O))
        x = patch("resid_mid", layer, x + attn_out)
        normal, mlp = rms(x, block.ln2), block.mlp
        x = x + patch(
            "mlp_out", layer, (F.silu(normal @ mlp.W_gate) * (normal @ mlp.W_in)) @ mlp.W_out
        )
    return rms(x, model.ln_final) @ model.W_U


@torch.no_grad()
def test_the_network_written_out_is_the_network(model, tokens):
    torch.testing.assert_close(by_hand(model, tokens), model(tokens))


def recorded(model, tokens):
    """All activations of the network written out."""
    record = {}

    def keep(place, layer, x):
        record[place, layer] = x
        return x

    by_hand(model, tokens, keep)
    return record


# Activation patching: TransformerLens' own

EVERY = slice(None)
PLACES = [
    ("z", "out", HEADS),
    ("q", "q", HEADS),
    ("k", "k", GROUPS),
    ("v", "v", GROUPS),
    ("pattern", "pattern", HEADS),
]


@torch.no_grad()
@pytest.mark.parametrize(("place", "kind", "n"), PLACES)
def test_activation_patching_also_where_heads_share_keys_and_values(
    model, tokens, source, place, kind, n
):
    """Each entry [layer, head]."""
    _, clean = model.run_with_cache(source)
    patched = getattr(patching, f"get_act_patch_attn_head_{kind}_all_pos")(
        model, tokens, clean, metric
    )
    record = recorded(model, source)
    assert patched.shape == (3, n)
    for layer, head in np.ndindex(3, n):
        axis = (EVERY, head) if place == "pattern" else (EVERY, EVERY, head)

        def patch(at, at_layer, x, layer=layer, axis=axis):
            if (at, at_layer) == (place, layer):
                x = x.clone()
                x[axis] = record[place, layer][axis]
            return x

        expected = metric(by_hand(model, tokens, patch)).item()
        assert patched[layer, head].item() == pytest.approx(expected, rel=1e-5)


# Path patching: ours


def path_by_hand(model, tokens, source, sender, receiver, into):
    own, other = recorded(model, tokens), recorded(model, source)
    W_O = model.layers[sender[0]].attn.W_O[sender[1]]
    change = (other["z", sender[0]] - own["z", sender[0]])[:, :, sender[1]] @ W_O
    block, head, group = model.layers[receiver[0]], receiver[1], receiver[1] // (HEADS // GROUPS)
    heard = rms(own["resid_pre", receiver[0]] + change, block.ln1)
    place = into if into == "q" else f"{into} of each query head"

    def patch(at, at_layer, x):
        if (at, at_layer) == (place, receiver[0]):
            x = x.clone()
            if into == "q":
                x[:, :, head] = heard @ block.attn.W_Q[head]
            elif into == "k":
                x[:, :, head] = shifted(
                    torch.einsum("bpm,hmd->bphd", heard, block.attn.W_K), block.attn.alpha
                )[:, :, group]
            else:
                x[:, :, head] = shifted(
                    torch.einsum("bpm,hmd->bphd", heard, block.attn.W_V), block.attn.beta
                )[:, :, group]
        return x

    return by_hand(model, tokens, patch)


@torch.no_grad()
@pytest.mark.parametrize("into", ["q", "k", "v"])
@pytest.mark.parametrize(
    ("sender", "receiver"), [((0, 1), (1, 3)), ((0, 2), (2, 0)), ((1, 0), (2, 2))]
)
def test_a_path_is_an_exchange_in_one_head_alone(model, tokens, source, sender, receiver, into):
    expected = path_by_hand(model, tokens, source, sender, receiver, into)
    torch.testing.assert_close(path_patch(model, tokens, source, sender, receiver, into), expected)
    assert not torch.allclose(expected, model(tokens))


@torch.no_grad()
def test_effects_lists_every_path(tokens, source):
    model = random_model(n_layers=2)
    table = path_effects(model, tokens, source, metric, into=["k", "q"])
    assert list(table.columns) == [
        "sender_layer",
        "sender_head",
        "receiver_layer",
        "receiver_head",
        "into",
        "value",
        "effect",
    ]
    assert len(table) == HEADS * HEADS * 2
    before = metric(model(tokens)).item()
    for row in table.itertuples():
        paths = (row.sender_layer, row.sender_head), (row.receiver_layer, row.receiver_head)
        expected = metric(path_patch(model, tokens, source, *paths, row.into)).item()
        assert row.value == pytest.approx(expected)
        assert row.effect == pytest.approx(expected - before)


# Bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sender": (0, 4)}, "There is no head 0.4: the model has layers 0 to 2 with heads 0 to 3"),
        ({"receiver": (3, 0)}, "There is no head 3.0: "),
        (
            {"receiver": (0, 1)},
            r"The receiver \(0, 1\) is not in a later layer than the sender \(0, 0\)",
        ),
        ({"into": "z"}, "There is no input of a head 'z'; known: k, q, v"),
    ],
    ids=["sender", "receiver", "order", "into"],
)
def test_paths_that_do_not_exist_are_named(model, tokens, source, change, message):
    given = {"sender": (0, 0), "receiver": (1, 0), "into": "q", **change}
    with pytest.raises(ConfigError, match=message):
        path_patch(model, tokens, source, **given)


def test_a_source_of_another_shape_is_refused(model, tokens, source):
    with pytest.raises(
        ConfigError, match=r"source is \[3, 6\], but must have the shape of tokens, \[3, 7\]"
    ):
        path_patch(model, tokens, source[:, :6], (0, 0), (1, 0), "q")


@pytest.mark.parametrize(
    ("residual", "mlp", "ends"),
    [
        ((True, False, True), "none", 1),
        ((False, True, True), "swiglu", 0),
        ((False, True, True), "none", None),
    ],
)
def test_a_layer_without_residual_ends_the_path(tokens, source, residual, mlp, ends):
    """But an attention that replaces the residual stream writes to it all the same, if no MLP
    replaces it after.
    """
    model = random_model(residual=residual, mlp=mlp)
    if ends is None:
        assert not torch.allclose(
            path_patch(model, tokens, source, (0, 0), (2, 0), "q"), model(tokens)
        )
        return
    with pytest.raises(ConfigError, match=f"Layer {ends} has no residual"):
        path_patch(model, tokens, source, (0, 0), (2, 0), "q")


def test_padding_is_in_no_mean_and_must_come_last(make_model, tokens):
    model = make_model(n_layers=2)
    n = tokens.shape[1]
    padded = torch.cat([tokens, torch.full((3, 4), 5)], dim=1)
    mask = torch.arange(n + 4) < n
    alone, _ = without_key_path(model, tokens, (0, 1), (1, 2))
    found, _ = without_key_path(model, padded, (0, 1), (1, 2), attention_mask=mask.expand(3, -1))
    torch.testing.assert_close(found[:, :n, :n], alone)
    for call in (
        lambda m: without_key_path(model, padded, (0, 1), (1, 2), attention_mask=m),
        lambda m: path_patch(model, padded, padded, (0, 1), (1, 2), "k", attention_mask=m),
        lambda m: path_effects(model, padded, padded, torch.mean, attention_mask=m),
    ):
        with pytest.raises(ConfigError, match="padding before a token"):
            call(mask.flip(0).expand(3, -1))
