"""Partial key offset: which channels of a key hold the previous token."""

import torch

from ihlab.model.variants.partial_offset import offset
from tests.model.weights import alike


def test_the_second_and_fourth_quarter_are_the_other_vectors():
    own, previous = torch.arange(8.0).reshape(1, 8), -torch.arange(8.0).reshape(1, 8)
    assert offset(own, previous).tolist() == [[0, 1, -2, -3, 4, 5, -6, -7]]


@torch.no_grad()
def test_an_adaptive_offset_of_shrinking_values_is_a_key_shift_and_of_equal_values_nothing(
    make, tokens
):
    """Values of 3^-t: every key but the first is the previous token's. The choice needs no more
    than their lengths.
    """
    model, shift, vanilla = (
        make(attention=name, d_head=8, positional="none", shift_first=first, n_layers=1)
        for name, first in (("adaptive_offset", "zero"), ("k_shift", "own"), ("vanilla", "zero"))
    )
    shift.layers[0].attn.alpha[:] = torch.tensor([0.0, 1.0])
    for other in (shift, vanilla):
        alike(model, other)
    for shrinks, other in ((3.0, shift), (1.0, vanilla)):
        size = shrinks ** -torch.arange(9.0, dtype=torch.float64)[:, None, None].expand(3, 9, 2, 8)
        values = [("blocks.0.attn.hook_v", lambda v, hook, size=size: size)]
        wanted = other.run_with_hooks(tokens, fwd_hooks=values)
        torch.testing.assert_close(
            model.run_with_hooks(tokens, fwd_hooks=values), wanted, atol=1e-12, rtol=0
        )
