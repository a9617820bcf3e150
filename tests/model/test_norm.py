"""RMSNorm and LayerNorm of half precision."""

import pytest
import torch

from ihlab.model.norm import LayerNorm, RMSNorm


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("norm", "function"),
    [
        (RMSNorm(4, eps=1e-6), torch.nn.functional.rms_norm),
        (LayerNorm(4, eps=1e-6), torch.nn.functional.layer_norm),
    ],
)
def test_half_precision_comes_out_as_it_came_in_but_is_normalised_in_float32(norm, function, dtype):
    """Entries that half precision holds exactly, but not the sum of their squares."""
    x = torch.tensor([[[-300.0, 300.0, -300.0, 304.0]]], dtype=dtype)
    expected = function(x.double(), (4,), eps=1e-6)
    torch.testing.assert_close(norm(x), expected.to(dtype))
