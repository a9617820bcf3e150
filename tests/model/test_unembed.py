"""Logits without an unembedding."""

import torch

from ihlab.model.unembed import FirstEntries


def test_the_first_entries_are_the_logits():
    x = torch.randn(2, 3, 7)
    assert torch.equal(FirstEntries(7, 5)(x), x[:, :, :5])
    assert torch.equal(FirstEntries(7, 7)(x), x)


def test_the_weight_says_the_same_and_is_no_parameter():
    unembed, x = FirstEntries(7, 5), torch.randn(4, 7)
    torch.testing.assert_close(x @ unembed.weight.T, unembed(x))
    assert not list(unembed.parameters())
    assert not unembed.state_dict()
