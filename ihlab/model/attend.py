"""From queries, keys and values to each head's weighted sum of values: fused, or with the pattern
exposed to hooks.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F
from transformer_lens.hook_points import HookPoint

Stream = Float[Tensor, "batch pos d_model"]
"""The residual stream, or the input or output of one of its parts, such as attention or the MLP."""

Heads = Float[Tensor, "batch pos head d_head"]
"""Queries, keys or values: a vector for each head at each position."""

Queries = Float[Tensor, "batch query head d_head"]
"""Queries, or z (the weighted sums of values): a vector for each head at each query position."""

Keys = Float[Tensor, "batch key kv_head d_head"]
"""Keys: a vector for each key/value head at each position."""

Values = Float[Tensor, "batch key kv_head d_head"]
"""Values: a vector for each key/value head at each position."""

Scores = Float[Tensor, "#batch #head query key"]
"""Attention scores, or a bias that is added to them."""


def is_hooked(*points: HookPoint) -> bool:
    """Return True if one of these hook points has a hook."""
    return any(point.fwd_hooks or point.bwd_hooks for point in points)


def at_positions(
    x: Float[Tensor, "batch pos *wide"], positions: Int[Tensor, "batch query"]
) -> Float[Tensor, "batch query *wide"]:
    """Return the vectors of x at the given positions, which may differ between sequences."""
    return x.take_along_dim(positions.reshape(*positions.shape, *[1] * (x.ndim - 2)), 1)


def fused(
    q: Queries,
    k: Keys,
    v: Float[Tensor, "batch key kv_head d_value"],
    bias: Scores | None,
    dropout: float,
) -> Float[Tensor, "batch query head d_value"]:
    """Compute z with PyTorch's fused kernel, which never stores the pattern.

    Without a bias, attention is causal. Then there must be as many queries as keys, or one query,
    which sees all keys.
    """
    if q.is_cuda and torch._C._functorch.is_batchedtensor(q):
        return _unfused(q, k, v, bias, dropout)
    group = q.shape[2] // k.shape[2]
    if group > 1 and bias is not None and q.is_cuda:
        # The CUDA kernel that takes a bias has no grouped-query attention.
        k, v = k.repeat_interleave(group, dim=2), v.repeat_interleave(group, dim=2)
        group = 1
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    z = F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=bias,
        dropout_p=dropout,
        is_causal=bias is None and q.shape[2] > 1,
        enable_gqa=group > 1,
    )
    return z.transpose(1, 2)


def _unfused(
    q: Queries,
    k: Keys,
    v: Float[Tensor, "batch key kv_head d_value"],
    bias: Scores | None,
    dropout: float,
) -> Float[Tensor, "batch query head d_value"]:
    """Compute `fused` without fused kernels, which fail under torch.vmap on a GPU (seen with torch
    2.11, H200).

    One kernel rejects a bias that all members of the vmap share (pytorch/pytorch issue 151558),
    cuDNN's kernel cannot be compiled, and PyTorch's unfused fallback has no backward pass in bf16.
    """
    if bias is None:
        bias = torch.full((q.shape[1], k.shape[1]), -torch.inf, dtype=q.dtype, device=q.device)
        bias = bias.triu(1 + k.shape[1] - q.shape[1])[None, None]
    return read_values(softmax_of(scores_of(q, k) + bias), v, dropout)


def explicit_pattern(
    q: Queries, k: Keys, bias: Scores, hook_scores: HookPoint, hook_pattern: HookPoint
) -> Float[Tensor, "batch head query key"]:
    """Return the pattern of the attention that `fused` computes, with scores and pattern exposed to
    hooks.
    """
    return hook_pattern(softmax_of(hook_scores(scores_of(q, k) + bias)))


def scores_of(q: Queries, k: Keys) -> Float[Tensor, "batch head query key"]:
    """Return q . k / sqrt(d_head) of every query and key, keys after the query included."""
    k = k.repeat_interleave(q.shape[2] // k.shape[2], dim=2)
    return torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])


def softmax_of(
    scores: Float[Tensor, "batch head query key"],
) -> Float[Tensor, "batch head query key"]:
    """Return the softmax over keys; 0 everywhere for a query that sees no key.

    With the strict mask, the first token sees no key. A hook can also mask every key, by setting
    scores to -inf.
    """
    nothing = torch.isneginf(scores.amax(dim=-1, keepdim=True))
    return scores.masked_fill(nothing, 0).softmax(dim=-1).masked_fill(nothing, 0)


def read_values(
    pattern: Float[Tensor, "batch head query key"],
    v: Float[Tensor, "batch key kv_head d_value"],
    dropout: float,
) -> Float[Tensor, "batch query head d_value"]:
    """Return z, each head's weighted sum of values."""
    v = v.repeat_interleave(pattern.shape[1] // v.shape[2], dim=2)
    if dropout:
        pattern = F.dropout(pattern, dropout)
    return torch.einsum("bhqk,bkhd->bqhd", pattern.to(v.dtype), v)
