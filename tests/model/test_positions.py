"""Rotary positions of any tokens, and ALiBi against another implementation."""

import pytest
import torch

from ihlab.model.positions import Alibi


def ahead(n_keys, start=0):
    """By how much each key is ahead of queries from position `start` on: [1, query, key]."""
    at = torch.arange(n_keys)
    return (at - at[start:, None])[None]


@pytest.mark.parametrize("n_heads", [4, 6, 20])
def test_alibi_slopes_are_those_of_bloom(n_heads):
    """Hugging Face's, which follows Press et al. for any number of heads; it writes slope * key, a
    shift per query.
    """
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    theirs = build_alibi_tensor(torch.ones(1, 7), n_heads, torch.float32).view(n_heads, 7)
    ours = Alibi(n_heads)(ahead(7), torch.float32)[0, :, -1]
    torch.testing.assert_close(ours - ours[:, :1], theirs)


def test_alibi_keeps_long_distances_in_bfloat16():
    """Positions 999 and 1000 are one number in bfloat16; their distance is not."""
    bias = Alibi(1, [1.0]).to(torch.bfloat16)(ahead(1001, start=1000), torch.bfloat16)[0]
    assert bias[0, 0, 998:].tolist() == [-2, -1, 0]
