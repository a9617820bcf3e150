"""Measures on text, against hand-made texts, counting by hand, and models whose answer is known."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from figures.figure4.study import frequency_loss
from figures.text.study import repeat_gain, repeated_text
from ihlab import ModelConfig, Transformer
from ihlab.measure.batches import EVAL_SEED
from ihlab.measure.text import (
    ELIGIBLE,
    MISLED,
    REST,
    bits_per_byte,
    position_classes,
    token_losses,
)
from tasks import IGNORE, ConfigError, TextTask
from tasks.text.corpus import SAMPLE

BYTES = TextTask(corpus=SAMPLE, vocab_size=256, length=16)
BYTES_MODEL = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=256, n_ctx=16)
TOKENS = TextTask(corpus=SAMPLE, vocab_size=300, length=32)


def test_losses_are_the_cross_entropy_in_evaluation_mode_and_in_pieces(monkeypatch):
    torch.manual_seed(0)
    model = Transformer(
        ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=300, n_ctx=32, dropout=0.3)
    ).train()
    batch = TOKENS.batch(5, np.random.default_rng(0))
    whole = token_losses(model, batch.inputs, batch.targets)
    assert model.training
    monkeypatch.setattr("ihlab.measure.text.CHUNK_LOGITS", 300 * 32 * 2)
    assert token_losses(model, batch.inputs, batch.targets) == pytest.approx(whole, rel=1e-6)
    logits = model.eval()(torch.from_numpy(batch.inputs))
    by_hand = [-F.log_softmax(logits[2, t], -1)[batch.targets[2, t]].item() for t in range(32)]
    assert whole[2] == pytest.approx(by_hand, rel=1e-5)
    assert bits_per_byte(np.log([2, 4]), np.array([1, 2])) == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "context", "classes"),
    [
        #  a  b  c  x  a  b  c  y: after "ab" comes c both times, after "bc" x and then y
        (b"abcxabcy", 2, ".....em"),
        (b"aaaa", 2, "..e"),  # "aa" after which a came; the first "aa" has no earlier one
        (b"abacab", 1, "..m.e"),  # after a: b, then c (misled), then b again (any of them will do)
    ],
)
def test_classes_of_bytes_are_those_found_by_eye(text, context, classes):
    ids = np.frombuffer(text, np.uint8).astype(np.int64)[None]
    found = position_classes(BYTES, ids[:, :-1], ids[:, 1:], context)
    letters = {ELIGIBLE: "e", MISLED: "m", REST: "."}
    assert "".join(letters[each] for each in found[0]) == classes


def test_classes_of_tokens_are_counted_in_bytes():
    rng = np.random.default_rng(1)
    batch = TOKENS.batch(20, rng)
    found = position_classes(TOKENS, batch.inputs, batch.targets, 3)
    assert {ELIGIBLE, MISLED, REST} == set(np.unique(found))
    vocabulary = TOKENS.prepared.vocabulary
    for row, t in np.ndindex(20, 32):
        text = TOKENS.decode(batch.inputs[row, : t + 1])
        truth = vocabulary[batch.targets[row, t]]
        expected = REST
        for i in range(len(text) - 3):
            if text[i : i + 3] == text[-3:] and expected != ELIGIBLE:
                expected = ELIGIBLE if text[i + 3 :].startswith(truth) else MISLED
        assert found[row, t] == expected


def test_repeated_text_is_read_twice_and_its_gain_leaves_out_the_first_token_of_the_copy():
    inputs, targets = repeated_text(TOKENS, rows=2)
    assert np.array_equal(inputs[:, :15], inputs[:, 16:])
    assert np.array_equal(inputs[:, 1:], targets[:, :-1])
    losses = np.full((2, 31), 5.0)
    losses[:, 15], losses[:, 16:] = 1000.0, 2.0
    assert repeat_gain(losses) == pytest.approx(3.0)


def test_packed_documents_cost_their_targets_alone_and_are_refused_where_contexts_would_mix():
    packed = TextTask(corpus=SAMPLE, vocab_size=256, length=16, pack=True)
    rng = np.random.default_rng(EVAL_SEED)
    batches = [each.batch(1024, rng) for each in (packed, packed.held_out)]
    seen, held_out = (batch.targets[batch.targets != IGNORE] for batch in batches)
    assert (batches[0].targets == IGNORE).any()
    losses = -np.log((np.bincount(seen, minlength=256) + 1) / (len(seen) + 256))
    assert frequency_loss(packed) == pytest.approx(losses[held_out].mean())
    some = (batches[0].targets == IGNORE).any(axis=1)
    inputs, targets = batches[0].inputs[some], batches[0].targets[some]
    for measure in (
        lambda: token_losses(Transformer(BYTES_MODEL), inputs, targets),
        lambda: position_classes(packed, inputs, targets),
    ):
        with pytest.raises(
            ConfigError, match=r"positions have no target \(-100\), as in packed documents"
        ):
            measure()
