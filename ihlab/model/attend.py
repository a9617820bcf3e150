"""From queries, keys and values to each head's weighted sum of values: fused, or with the pattern exposed to hooks."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F
from transformer_lens.hook_points import HookPoint

Stream = Float[Tensor, "batch pos d_model"]
"""The residual stream, or a part's input from it or output to it."""

Heads = Float[Tensor, "batch pos head d_head"]
"""Queries, keys or values: a vector for each head at each position."""

Queries = Float[Tensor, "batch query head d_head"]
"""Queries, or z: a vector for each head at each query position."""

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
    """Gather vectors at positions of each sequence."""
    return x.gather(1, positions.reshape(*positions.shape, *[1] * (x.ndim - 2)).expand(-1, -1, *x.shape[2:]))


def fused(
    q: Queries, k: Keys, v: Float[Tensor, "batch key kv_head d_value"], bias: Scores | None, dropout: float
) -> Float[Tensor, "batch query head d_value"]:
    """Return z by PyTorch's fused kernel, which never stores the pattern.

    Without a bias, attention is causal. Then there must be as many queries as keys, or one query, which sees all keys.
    """
    if q.is_cuda and torch._C._functorch.is_batchedtensor(q):
        return _unfused(q, k, v, bias, dropout)
    grouped = q.shape[2] != k.shape[2]
    if grouped and bias is not None and q.is_cuda:  # the CUDA kernel that takes a bias has no grouped-query attention
        k, v, grouped = *(x.repeat_interleave(q.shape[2] // x.shape[2], dim=2) for x in (k, v)), False
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    z = F.scaled_dot_product_attention(
        q, k, v, attn_mask=bias, dropout_p=dropout, is_causal=bias is None and q.shape[2] > 1, enable_gqa=grouped
    )
    return z.transpose(1, 2)


def _unfused(
    q: Queries, k: Keys, v: Float[Tensor, "batch key kv_head d_value"], bias: Scores | None, dropout: float
) -> Float[Tensor, "batch query head d_value"]:
    """Return the same under torch.vmap on a GPU, whose fused kernels fail there (seen with torch 2.11 on an H200).

    One rejects a bias that all members share (pytorch/pytorch issue 151558), cuDNN's cannot be compiled, and the
    unfused one of PyTorch has no backward pass in bf16.
    """
    if bias is None:
        bias = torch.full((q.shape[1], k.shape[1]), -torch.inf, dtype=q.dtype, device=q.device)
        bias = bias.triu(1 + k.shape[1] - q.shape[1])[None, None]
    return read_values(softmax_of(scores_of(q, k) + bias), v, dropout)


def explicit_pattern(
    q: Queries, k: Keys, bias: Scores, hook_scores: HookPoint, hook_pattern: HookPoint
) -> Float[Tensor, "batch head query key"]:
    """Return the pattern of the same attention, with scores and pattern exposed to hooks."""
    return pattern_of(scores_of(q, k) + bias, hook_scores, hook_pattern)


def scores_of(q: Queries, k: Keys) -> Float[Tensor, "batch head query key"]:
    """Return q . k / sqrt(d_head) of every query and key, later ones included."""
    k = k.repeat_interleave(q.shape[2] // k.shape[2], dim=2)
    return torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])


def pattern_of(
    scores: Float[Tensor, "batch head query key"], hook_scores: HookPoint, hook_pattern: HookPoint
) -> Float[Tensor, "batch head query key"]:
    """Return the softmax of scores that are -inf at hidden keys; both are exposed to hooks."""
    return hook_pattern(softmax_of(hook_scores(scores)))


def softmax_of(scores: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head query key"]:
    """Return the softmax over keys; 0 everywhere for a query that sees no key.

    Such a query is the first token under the strict mask, or a hook has hidden every key.
    """
    nothing = torch.isneginf(scores.amax(dim=-1, keepdim=True))
    return scores.masked_fill(nothing, 0).softmax(dim=-1).masked_fill(nothing, 0)


def read_values(
    pattern: Float[Tensor, "batch head query key"], v: Float[Tensor, "batch key kv_head d_value"], dropout: float
) -> Float[Tensor, "batch query head d_value"]:
    """Return z, each head's weighted sum of values."""
    v = v.repeat_interleave(pattern.shape[1] // v.shape[2], dim=2)
    if dropout:
        pattern = F.dropout(pattern, dropout)
    return torch.einsum("bhqk,bkhd->bqhd", pattern.to(v.dtype), v)
