"""RMSNorm and LayerNorm by hand, LayerNorm against PyTorch's."""

import pytest
import torch

from ihlab.model.norm import LayerNorm, RMSNorm, make_norm


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


def test_layer_norm_of_a_vector_worked_by_hand():
    norm = LayerNorm(3, eps=0.5)
    norm.w.data, norm.b.data = torch.tensor([1.0, 10.0, 100.0]), torch.tensor([0.0, 0.0, 7.0])
    scale = (8 / 3 + 0.5) ** 0.5  # 1, 3, 5 less their mean are -2, 0, 2
    torch.testing.assert_close(
        norm(torch.tensor([[[1.0, 3.0, 5.0]]])), torch.tensor([[[-2 / scale, 0.0, 200 / scale + 7]]])
    )


@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_layer_norm_is_pytorchs_and_so_are_its_gradients(eps):
    norm = LayerNorm(20, eps)
    norm.w.data, norm.b.data = torch.randn(20), torch.randn(20)
    x, weight = (3 + 2 * torch.randn(4, 5, 20)).requires_grad_(), torch.randn(4, 5, 20)
    theirs = torch.nn.functional.layer_norm(x, (20,), norm.w, norm.b, eps)
    torch.testing.assert_close(norm(x), theirs)
    wanted = [x, norm.w, norm.b]
    for ours, other in zip(
        torch.autograd.grad((norm(x) * weight).sum(), wanted),
        torch.autograd.grad((theirs * weight).sum(), wanted),
        strict=True,
    ):
        torch.testing.assert_close(ours, other, rtol=1e-5, atol=1e-5)


def test_layer_norms_hooks_see_the_scale_and_the_centred_vector_before_w_and_b():
    norm, seen = LayerNorm(4, eps=1e-6), {}
    norm.w.data, norm.b.data = torch.randn(4), torch.randn(4)
    norm.hook_scale.add_hook(lambda scale, hook: seen.update(scale=scale))
    norm.hook_normalized.add_hook(lambda normalized, hook: seen.update(normalized=normalized))
    x = torch.randn(2, 3, 4)
    out = norm(x)
    torch.testing.assert_close(seen["scale"], (x.var(dim=-1, correction=0, keepdim=True) + 1e-6).sqrt())
    torch.testing.assert_close(seen["normalized"], (x - x.mean(dim=-1, keepdim=True)) / seen["scale"])
    torch.testing.assert_close(out, seen["normalized"] * norm.w + norm.b)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_layer_norm_is_computed_in_float32(dtype):
    """Entries that half precision holds exactly, but not the sum of their squares."""
    x = torch.tensor([[[-300.0, 300.0, -300.0, 304.0]]], dtype=dtype)
    out = LayerNorm(4, eps=1e-6)(x)
    assert out.dtype == dtype
    expected = torch.nn.functional.layer_norm(x.double(), (4,), eps=1e-6)
    torch.testing.assert_close(out, expected.to(dtype))


@pytest.mark.parametrize(("name", "kind"), [("rms", RMSNorm), ("layer", LayerNorm), ("none", type(None))])
def test_a_config_gets_the_norm_it_names_with_its_eps(make_config, name, kind):
    norm = make_norm(make_config(norm=name, eps=0.25))
    assert type(norm) is kind
    assert norm is None or norm.eps == 0.25
