"""RMSNorm and LayerNorm of half precision."""

import pytest
import torch

from ihlab.model.norm import LayerNorm, RMSNorm


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_comes_out_as_it_came_in_but_is_normalised_in_float32(dtype):
    x = torch.full((1, 1, 4), 300.0, dtype=dtype)  # 300^2 does not fit float16
    out = RMSNorm(4, eps=1e-6)(x)
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), torch.ones(1, 1, 4))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_layer_norm_is_computed_in_float32(dtype):
    """Entries that half precision holds exactly, but not the sum of their squares."""
    x = torch.tensor([[[-300.0, 300.0, -300.0, 304.0]]], dtype=dtype)
    out = LayerNorm(4, eps=1e-6)(x)
    assert out.dtype == dtype
    expected = torch.nn.functional.layer_norm(x.double(), (4,), eps=1e-6)
    torch.testing.assert_close(out, expected.to(dtype))
