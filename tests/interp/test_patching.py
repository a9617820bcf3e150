"""Path patching against heads computed by hand from exchanged residual streams."""

from types import SimpleNamespace

import pytest
import torch

from ihlab.interp.patching import path_effects, path_patch, without_key_path
from tasks.config import ConfigError
from tests.interp.conftest import VOCAB, attention_by_hand

HEADS, POS = 4, 9
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


@torch.no_grad()
@pytest.mark.parametrize("into", ["q", "k", "v"])
@pytest.mark.parametrize(
    ("sender", "receiver"), [((0, 1), (1, 3)), ((0, 2), (2, 0)), ((1, 0), (2, 2))]
)
def test_a_path_is_an_exchange_in_one_head_alone(model, tokens, source, sender, receiver, into):
    """One input of the receiver hears the sender's output on the source, by the equations."""
    (early, sending), (late, head) = sender, receiver
    own, other = (model.run_with_cache(each)[1] for each in (tokens, source))
    sent = (each["result", early, "attn"][:, :, sending] for each in (other, own))
    change = next(sent) - next(sent)
    norm, stream = model.layers[late].ln1, own["resid_pre", late]
    streams = [norm(stream + change * (name == into)) for name in "qkv"]
    _, z = attention_by_hand(model, late, head, streams, SLOPES[head])

    def put(value, hook):
        value[:, :, head] = z
        return value

    expected = model.run_with_hooks(tokens, fwd_hooks=[(f"blocks.{late}.attn.hook_z", put)])
    torch.testing.assert_close(path_patch(model, tokens, source, sender, receiver, into), expected)
    assert not torch.allclose(expected, model(tokens))


@torch.no_grad()
def test_effects_lists_every_path(make_model, tokens, source):
    model = make_model()
    table = path_effects(model, tokens, source, metric)
    assert len(table) == HEADS * HEADS * 3
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
        ({"receiver": (0, 1)}, r"\(0, 1\) is not in a later layer than the sender \(0, 0\)"),
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
