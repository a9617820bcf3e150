"""RMSNorm by hand."""

import pytest
import torch

from ihlab.model.norm import RMSNorm


def test_a_vector_worked_by_hand():
    norm = RMSNorm(2, eps=0.5)
    norm.w.data = torch.tensor([1.0, 10.0])
    scale = (12.5 + 0.5) ** 0.5  # mean of 9 and 16, plus eps
    torch.testing.assert_close(norm(torch.tensor([[[3.0, 4.0]]])), torch.tensor([[[3 / scale, 40 / scale]]]))


def test_hooks_see_the_scale_and_the_vector_before_w():
    norm, seen = RMSNorm(4, eps=1e-6), {}
    norm.w.data = torch.randn(4)
    norm.hook_scale.add_hook(lambda scale, hook: seen.update(scale=scale))
    norm.hook_normalized.add_hook(lambda normalized, hook: seen.update(normalized=normalized))
    x = torch.randn(2, 3, 4)
    out = norm(x)
    assert seen["scale"].shape == (2, 3, 1)
    torch.testing.assert_close(seen["normalized"], x / seen["scale"])
    torch.testing.assert_close(out, seen["normalized"] * norm.w)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_comes_out_as_it_came_in_but_is_normalised_in_float32(dtype):
    x = torch.full((1, 1, 4), 300.0, dtype=dtype)  # 300^2 does not fit float16
    out = RMSNorm(4, eps=1e-6)(x)
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), torch.ones(1, 1, 4))
