"""Partial key offset against a key shift with weights for each channel, and its control against given frequencies."""

import pytest
import torch

from ihlab.model.partial_offset import offset
from tests.model.weights import alike

HALF = (1.0, 100_000.0**-0.25, 0.0, 0.0)
"""Frequencies of the four pairs of a head of 8, with base 100,000, of which the slower half is not rotated."""
OFFSET = torch.tensor([0, 0, 1, 1] * 2, dtype=torch.float64)
"""1 at channels d/4 to d/2 and 3d/4 to d of a head of 8."""


def test_the_second_and_fourth_quarter_are_the_other_vectors():
    own, previous = torch.arange(8.0).reshape(1, 8), -torch.arange(8.0).reshape(1, 8)
    assert offset(own, previous).tolist() == [[0, 1, -2, -3, 4, 5, -6, -7]]


@torch.no_grad()
@pytest.mark.parametrize("changes", [{}, {"positional": "alibi"}, {"positional": "none"}, {"qk_norm": True}], ids=str)
def test_it_is_a_key_shift_by_channel_with_half_of_the_pairs_unrotated(make_model, tokens, changes):
    """alpha = (1, 0) in half of the channels and (0, 1) in the others; the first token keeps its own key."""
    model = make_model(attention="key_offset", d_head=8, **changes).double()
    frequencies = None if "positional" in changes else HALF
    shifted = make_model(
        attention="k_shift",
        d_head=8,
        shift_share="channel",
        shift_first="own",
        rotary_frequencies=frequencies,
        **changes,
    ).double()
    alike(model, shifted)
    for block in shifted.layers:
        block.attn.alpha[:] = torch.stack([1 - OFFSET, OFFSET])
    torch.testing.assert_close(model(tokens), shifted(tokens), atol=1e-6, rtol=0)  # angles are stored in float32


@torch.no_grad()
def test_its_control_rotates_alike_and_offsets_nothing(make_model, tokens):
    control = make_model(attention="partial_rotary", d_head=8).double()
    vanilla = make_model(d_head=8, rotary_frequencies=HALF).double()
    alike(control, vanilla)
    torch.testing.assert_close(control(tokens), vanilla(tokens), atol=1e-12, rtol=0)
    assert control.n_params == make_model(attention="key_offset", d_head=8).n_params == vanilla.n_params


@torch.no_grad()
def test_half_of_a_key_depends_on_the_token_before_alone(make_model, tokens):
    model = make_model(attention="key_offset", d_head=8)
    _, cache = model.run_with_cache(tokens)
    changed = tokens.clone()
    changed[:, 4] = (changed[:, 4] + 1) % 19
    _, after = model.run_with_cache(changed)
    moved = (after["k", 0, "attn"] - cache["k", 0, "attn"]).abs().amax(dim=(0, 2)) > 0  # [pos, channel]
    assert moved[4].tolist() == [each == 0 for each in OFFSET]
    assert moved[5].tolist() == [each == 1 for each in OFFSET]
    assert not moved[[0, 1, 2, 3, 6, 7, 8]].any()
