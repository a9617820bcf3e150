"""Where hops lead, against strings; scores and ablation against models whose heads are known."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ihlab import ModelConfig, Transformer
from ihlab.interp.multihop import find_hops, hop_scores
from ihlab.measure.batches import EVAL_SEED
from tasks import MultiHopTask

TASK = MultiHopTask(vocab_size=9, length=20, max_hops=2)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=20), st.integers(0, 6))
def test_found_is_the_definition_on_strings(letters, hops):
    text = "".join("abcd"[letter] for letter in letters)
    places = find_hops(np.array([letters]), hops)
    for i in range(len(text)):
        at = i
        for j in range(hops + 1):
            assert places[j, 0, i] == at
            at = (text.rfind(text[at], 0, at) + 1 or -1) if at >= 0 else -1


@pytest.fixture(scope="module")
def model():
    cfg = ModelConfig(n_layers=2, d_model=12, n_heads=2, d_vocab=9, n_ctx=20, attention="kv_shift")
    return Transformer(cfg, seed=3)


def test_a_head_that_attends_where_one_hop_leads_scores_one(model):
    """Patterns put in by hand: head 1 of layer 0 attends to find_1, all else to itself; beta reads
    the own value.
    """
    with torch.no_grad():
        for block in model.blocks:
            block.attn.beta.copy_(torch.tensor([[1.0, 0.0]] * 2))
    place = find_hops(TASK.batch_of(2, 16, np.random.default_rng(EVAL_SEED)).inputs[:, 1:], 1)[1]

    def put(pattern, hook):
        pattern = torch.eye(20).expand_as(pattern).clone()
        if hook.name.startswith("blocks.0"):
            for row, i in zip(*np.nonzero(place >= 0), strict=True):
                pattern[row, 1, i + 1] = 0
                pattern[row, 1, i + 1, place[row, i] + 1] = 1
        return pattern

    with model.hooks(fwd_hooks=[(lambda name: name.endswith("hook_pattern"), put)]):
        table = hop_scores(model, TASK, 2, rows=16).set_index(["layer", "head", "j"])["attention"]
    assert table[0, 1, 1] == pytest.approx(1)
    assert table[0, 0, 0] == pytest.approx(1)
    assert table[0, 0, 1] == table[1, 1, 1] == 0
