"""Selective attention: a head that finds copies, built by hand, and what reads its activations."""

import pytest
import torch

from ihlab.interp.heads import head_scores
from ihlab.interp.patching import without_key_path
from ihlab.model.decode import Decoder
from tasks import ConfigError


@pytest.fixture
def make(make):
    """Models with this attention, in float64."""
    return lambda **changes: make(**{"attention": "selective", **changes})


def test_a_cache_holds_what_was_selected(make, tokens):
    """The sum over queries of the last layer's selection, whatever the chunks."""
    model = make()
    _, cache = model.run_with_cache(tokens)
    decoder = Decoder(model, 3, 12)
    for piece in tokens.split(4, dim=1):
        decoder.forward(piece)
    held = decoder.caches[1].selection
    torch.testing.assert_close(held[:, :9], cache["blocks.1.attn.hook_selection"].sum(dim=1), atol=1e-12, rtol=0)
    assert (held[:, 9:] == 0).all()


# What reads its weights and activations


def test_head_scores_run_and_paths_into_one_head_are_refused(make, tokens):
    """The first head's queries and keys act on every head's pattern."""
    model = make()
    assert head_scores(model, length=12, rows=2).notna().all(axis=None)
    with pytest.raises(ConfigError, match="attention='selective': its first head masks for all"):
        without_key_path(model, tokens, (0, 0), (1, 0))
