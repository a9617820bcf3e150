"""Attention of narrow heads on one thread of a CPU, in a third to three quarters of PyTorch's time.

That one multiplies a matrix for each head of each row. With a few channels and some dozens of positions these are so
small that they run at a tenth of the speed of large ones; `ihlab.model.narrow_kernels` takes 64 at a time.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

WIDEST = 12
"""Most channels of a head: with 16 a step is longer at 32 positions, and hardly shorter at 63 (docs/LOG.md)."""

FEWEST_PAIRS = 32
"""Fewest pairs of a row and a head: half of a tile, which takes as long half empty."""


def is_narrow(
    q: Float[Tensor, "batch query head d_head"],
    k: Float[Tensor, "batch key kv_head d_head"],
    v: Float[Tensor, "batch key kv_head d_value"],
) -> bool:
    """Return True if `narrow_attention` takes these queries, keys and values, and is the faster one for them."""
    return (
        k.shape[2:] == v.shape[2:] == q.shape[2:]
        and q.shape[3] <= WIDEST
        and q.shape[0] * q.shape[2] >= FEWEST_PAIRS
        and all(x.dtype == torch.float32 and x.device.type == "cpu" for x in (q, k, v))
        and _is_suited()
    )


def narrow_attention(
    q: Float[Tensor, "batch query head d_head"],
    k: Float[Tensor, "batch key head d_head"],
    v: Float[Tensor, "batch key head d_head"],
    last: Int[Tensor, "batch query"] | None = None,
) -> Float[Tensor, "batch query head d_head"]:
    """Return softmax(q k^T / sqrt(d_head)) v, in float32, over the keys up to each query's last.

    - `last`: position of the last key that each query sees; None: its own position, for as many queries as keys.

    It can be compiled, stacked (torch.vmap) and differentiated backward: once by a kernel, further by the formula.
    """
    attend = torch.ops.ihlab.narrow_attention if torch.compiler.is_compiling() else _Attention.apply
    z: Tensor = attend(q, k, v, last)[0]
    return z


@torch.compiler.assume_constant_result
def _is_suited() -> bool:
    """Return True on one thread, as PyTorch's kernel shares rows among more, and outside forward mode AD."""
    return torch.get_num_threads() == 1 and forward_ad._current_level < 0


@torch.library.custom_op("ihlab::narrow_attention", mutates_args=())
def _attention(q: Tensor, k: Tensor, v: Tensor, last: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the attention, and for its gradient the logarithm of each pattern's sum, [batch, query, head, 1]."""
    from ihlab.model import narrow_kernels  # numba loads only when narrow heads attend

    out, log_z = _empty(q, k, v, last)
    narrow_kernels.forward(*_arrays(q, k, v), _last(last, q), _scale(q), out.numpy(), log_z.numpy())
    return out, log_z


@torch.library.custom_op("ihlab::narrow_attention_gradient", mutates_args=())
def _gradient(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, last: Tensor | None, out: Tensor, log_z: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q, k and v from that of `out`."""
    from ihlab.model import narrow_kernels

    grads = _empty_gradients(grad, q, k, v, last, out, log_z)
    arrays = (*_arrays(grad, q, k, v), _last(last, q), _scale(q), *_arrays(out, log_z))
    narrow_kernels.backward(*arrays, *(x.numpy() for x in grads))
    return grads


@_attention.register_fake
def _empty(q: Tensor, k: Tensor, v: Tensor, last: Tensor | None) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty((*q.shape[:3], 1))


@_gradient.register_fake
def _empty_gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, last: Tensor | None, out: Tensor, log_z: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save(ctx: Any, inputs: tuple[Tensor | None, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)


def _backward(ctx: Any, grad: Tensor, of_log_z: Tensor) -> tuple[Tensor | None, ...]:
    return *_gradient(grad, *ctx.saved_tensors), None


_attention.register_autograd(_backward, setup_context=_save)


class _Attention(torch.autograd.Function):
    """The same outside the compiler, which cannot trace this: torch.func takes gradients of functions alone."""

    generate_vmap_rule = True

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, last: Tensor | None) -> tuple[Tensor, Tensor]:
        return _attention(q, k, v, last)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs, *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, of_log_z: Tensor) -> tuple[Tensor | None, ...]:
        return *_Gradient.apply(grad, *ctx.saved_tensors), None


class _Gradient(torch.autograd.Function):
    """The gradient, and its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        grad: Tensor, q: Tensor, k: Tensor, v: Tensor, last: Tensor | None, out: Tensor, log_z: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        return _gradient(grad, q, k, v, last, out, log_z)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[:5])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad, q, k, v, last = ctx.saved_tensors
        pulled = torch.func.vjp(lambda g, q, k, v: _plain_gradient(g, q, k, v, last), grad, q, k, v)[1]
        return *pulled(grads), None, None, None


def _plain_attention(q: Tensor, k: Tensor, v: Tensor, last: Tensor | None) -> Tensor:
    """Return the same attention by operations of which torch knows every derivative."""
    at = torch.arange(q.shape[1])[None] if last is None else last
    visible = torch.arange(k.shape[1]) <= at[:, None, :, None]
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=visible).transpose(1, 2)


def _plain_gradient(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, last: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients likewise."""
    pulled = torch.func.vjp(lambda q, k, v: _plain_attention(q, k, v, last), q, k, v)[1]
    gradients: tuple[Tensor, Tensor, Tensor] = pulled(grad)
    return gradients


def _as_further_rows(operation: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    """Return an operation's rule for stacks: the rows of all members, one after another, are those of one call."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor | None) -> tuple[Any, Any]:
        rows: list[Tensor | None] = []
        for x, at in zip(inputs, in_dims, strict=True):
            members = x if x is None else x.expand(info.batch_size, *x.shape) if at is None else x.movedim(at, 0)
            rows.append(None if members is None else members.flatten(0, 1))
        outputs = operation(*rows)
        return tuple(x.unflatten(0, (info.batch_size, -1)) for x in outputs), (0,) * len(outputs)

    return rule


_attention.register_vmap(_as_further_rows(_attention))
_gradient.register_vmap(_as_further_rows(_gradient))


def _arrays(*tensors: Tensor) -> tuple[np.ndarray, ...]:
    return tuple(x.detach().contiguous().numpy() for x in tensors)


def _last(last: Tensor | None, q: Tensor) -> np.ndarray:
    """Return the last key of each query, for every row or once for all."""
    return np.arange(q.shape[1])[None] if last is None else _arrays(last)[0]


def _scale(q: Tensor) -> np.float32:
    return np.float32(1 / math.sqrt(q.shape[3]))
