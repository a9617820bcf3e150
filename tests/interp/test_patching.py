"""Path patching against patches made by hand in the network's own equations."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from ihlab.interp.patching import path_effects, path_patch, without_key_path
from tasks.config import ConfigError
from tests.interp.conftest import VOCAB

HEADS, GROUPS, D_HEAD, POS = 4, 2, 6, 9
SLOPES = 2.0 ** (-8 * (torch.arange(HEADS, dtype=torch.float64) + 1) / HEADS)


@pytest.fixture(scope="module")
def source():
    return torch.randint(VOCAB, (3, POS), generator=torch.Generator().manual_seed(9))


@pytest.fixture(scope="module")
def model(make_model):
    return make_model(n_layers=3, positional="alibi")


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
        k = shifted(torch.einsum("bpm,hmd->bphd", normal, attn.W_K), attn.alpha)
        v = shifted(torch.einsum("bpm,hmd->bphd", normal, attn.W_V), attn.beta)
        # Sharing undone: a copy for each query head, which can be exchanged on its own.
        k = patch("k", layer, k.repeat_interleave(group, dim=2))
        v = patch("v", layer, v.repeat_interleave(group, dim=2))
        pattern = torch.zeros(len(x), HEADS, POS, POS, dtype=x.dtype)
        for t in range(POS):
            scores = (q[:, t, None] * k[:, : t + 1]).sum(-1) / math.sqrt(D_HEAD)  # [batch, s, head]
            pattern[:, :, t, : t + 1] = (
                (scores - SLOPES * (t - torch.arange(t + 1))[:, None]).softmax(1).mT
            )
        z = patch("z", layer, torch.einsum("bhqk,bkhd->bqhd", pattern, v))
        x = x + torch.einsum("bphd,hdm->bpm", z, attn.W_O)
        normal, mlp = rms(x, block.ln2), block.mlp
        x = x + (F.silu(normal @ mlp.W_gate) * (normal @ mlp.W_in)) @ mlp.W_out
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


# Path patching: ours


def path_by_hand(model, tokens, source, sender, receiver, into):
    own, other = recorded(model, tokens), recorded(model, source)
    W_O = model.layers[sender[0]].attn.W_O[sender[1]]
    change = (other["z", sender[0]] - own["z", sender[0]])[:, :, sender[1]] @ W_O
    block, head, group = model.layers[receiver[0]], receiver[1], receiver[1] // (HEADS // GROUPS)
    heard = rms(own["resid_pre", receiver[0]] + change, block.ln1)
    attn = block.attn
    matrix, weight = {
        "q": (attn.W_Q[head], torch.ones(1, 1)),
        "k": (attn.W_K[group], attn.alpha[[group]]),
        "v": (attn.W_V[group], attn.beta[[group]]),
    }[into]

    def patch(at, at_layer, x):
        if (at, at_layer) == (into, receiver[0]):
            x = x.clone()
            x[:, :, [head]] = shifted((heard @ matrix)[:, :, None], weight)
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
def test_effects_lists_every_path(make_model, tokens, source):
    model = make_model()
    table = path_effects(model, tokens, source, metric, into=["k", "q"])
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
        ({"receiver": (0, 1)}, r"\(0, 1\) is not in a later layer than the sender \(0, 0\)"),
        ({"into": "z"}, "There is no input of a head 'z'; known: k, q, v"),
        ({"source": torch.ones(3, 6).long()}, r"source is \[3, 6\], but must have the shape"),
    ],
)
def test_paths_that_do_not_exist_are_named(model, tokens, source, change, message):
    given = {"source": source, "sender": (0, 0), "receiver": (1, 0), "into": "q", **change}
    with pytest.raises(ConfigError, match=message):
        path_patch(model, tokens, **given)


@pytest.mark.parametrize(
    ("residual", "mlp", "ends"),
    [
        ((True, False, True), "none", 1),
        ((False, True, True), "swiglu", 0),
        ((False, True, True), "none", None),
    ],
)
def test_a_layer_without_residual_ends_the_path(make_model, tokens, source, residual, mlp, ends):
    """But an attention that replaces the residual stream writes to it all the same, if no MLP
    replaces it after.
    """
    model = make_model(n_layers=3, residual=residual, mlp=mlp)
    if ends is None:
        logits = path_patch(model, tokens, source, (0, 0), (2, 0), "q")
        assert not torch.allclose(logits, model(tokens))
        return
    with pytest.raises(ConfigError, match=f"Layer {ends} has no residual"):
        path_patch(model, tokens, source, (0, 0), (2, 0), "q")


def test_a_tasks_padding_is_in_no_mean(make_model, tokens):
    model, n = make_model(), tokens.shape[1]
    real = tokens % (VOCAB - 1)
    alone, _ = without_key_path(model, real, (0, 1), (1, 2))
    model.trained_on = SimpleNamespace(padding_id=VOCAB - 1)
    padded = torch.cat([real, torch.full((3, 4), VOCAB - 1)], dim=1)
    found, _ = without_key_path(model, padded, (0, 1), (1, 2))
    torch.testing.assert_close(found[:, :n, :n], alone)
