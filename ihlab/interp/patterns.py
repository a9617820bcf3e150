"""Effective attention (which token's value a query reads), and attention scores split by the key's
route.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from transformer_lens import ActivationCache

from ihlab.interp.checks import require_routes
from ihlab.model.transformer import Transformer
from ihlab.runtime.modes import in_eval_mode
from ihlab.runtime.settings import own_settings
from tasks.config import require


def effective_pattern(
    pattern: Float[Tensor, "..."], beta: Float[Tensor, "..."]
) -> Float[Tensor, "..."]:
    """Return the attention over raw values that is equivalent to `pattern` over shifted values:

        A_eff[q, j] = sum over b of beta[b] A[q, j + b],  so that  z = A v_hat = A_eff v_raw
        exactly.

    `pattern` is [..., head, query, key], `beta` [kv_head, window]; consecutive query heads share a
    row of beta, as in grouped-query attention. The result can be negative, and its rows need not
    sum to 1. It follows from arXiv 2411.19574, equation 5. Raises `ConfigError` for other ranks,
    and if the number of heads is not a multiple of the number of rows of beta.
    """
    require(
        pattern.ndim >= 3,
        f"The pattern has the shape {list(pattern.shape)}, but must be [..., head, query, key].",
    )
    require(
        beta.ndim == 2,
        f"beta has the shape {list(beta.shape)}, but must be [kv_head, window]: if each channel has its own "
        "weights, a head has no single effective pattern.",
    )
    n_heads, n_keys = pattern.shape[-3], pattern.shape[-1]
    require(
        n_heads % len(beta) == 0,
        f"The pattern has {n_heads} heads, which beta's {len(beta)} key/value heads do not divide.",
    )
    weight = beta.to(pattern.dtype).repeat_interleave(n_heads // len(beta), dim=0)[:, :, None, None]
    effective = pattern * weight[:, 0]
    for back in range(1, min(beta.shape[1], n_keys)):
        effective = effective + F.pad(pattern[..., back:], (0, back)) * weight[:, back]
    return effective


def gauge_fixed(beta: Float[Tensor, "kv_head window"]) -> Float[Tensor, "kv_head window"]:
    """Return beta scaled so that its absolute values sum to 1 and its largest entry is positive.

    (beta, W_V) -> (c beta, W_V / c) leaves a model unchanged and multiplies its effective pattern
    by c. A score must not depend on c, so scores use this beta. A beta of zeros stays zero.
    """
    largest = beta.gather(1, beta.abs().argmax(dim=1, keepdim=True))
    size = beta.abs().sum(dim=1, keepdim=True)
    return torch.where(size > 0, beta * largest.sign() / size, beta)


def raw_patterns(cache: ActivationCache) -> Float[Tensor, "layer *batch head query key"]:
    """Return all layers' raw patterns: which key is matched. Raises `ConfigError` if the cache
    lacks one.
    """
    return torch.stack(
        [_cached(cache, layer, "pattern") for layer in range(cache.model.cfg.n_layers)]
    )


def effective_patterns(
    cache: ActivationCache, fix_gauge: bool = False
) -> Float[Tensor, "layer *batch head query key"]:
    """Return all layers' effective patterns: which token's value is read. In vanilla layers they
    equal raw ones. A cache does not say where packed documents begin: give whole sequences.

    `fix_gauge` uses `gauge_fixed(beta)`. Raises `ConfigError` if the cache lacks a pattern or a
    beta, and as `require_routes` does.
    """
    require_routes(cache.model.cfg)
    patterns = raw_patterns(cache)
    if "beta" not in _mixing(cache):
        return patterns
    effective = []
    for layer, pattern in enumerate(patterns):
        beta = _cached(cache, layer, "beta")
        if fix_gauge:
            beta = gauge_fixed(beta)
        effective.append(effective_pattern(pattern, beta))
    return torch.stack(effective)


@in_eval_mode
@torch.no_grad()
def probed(model: Transformer, tokens: Int[Tensor, "batch pos"]) -> ActivationCache:
    """Run the model on tokens and cache patterns and beta."""
    model.name_new_hook_points()
    names = [name for name in model.hook_dict if name.endswith(("hook_pattern", "hook_beta"))]
    return model.run_with_cache(tokens, names_filter=names)[1]


def patterns_of_kind(
    cache: ActivationCache, kind: str
) -> Float[Tensor, "layer *batch head query key"]:
    """Return all layers' "raw" or "effective" patterns. Effective ones have beta's gauge fixed."""
    if kind == "raw":
        return raw_patterns(cache)
    return effective_patterns(cache, fix_gauge=True)


@own_settings()
def score_routes(
    cache: ActivationCache, layer: int
) -> Float[Tensor, "window batch head query key"]:
    """Split a layer's attention scores by the key's route: this token's raw key, the previous
    token's, ...:

        S_r[q, s] = rot_q(q_q) . rot_s(alpha[r] k_raw[s - r]) / sqrt(d_head)
        scores = bias + sum over r of S_r

    The rotary embedding comes after the shift: a raw key is rotated at the position it is shifted
    to. Keys that are not shifted have one route. The bias is -inf at masked keys, else ALiBi's or 0.
    The cache must have a batch axis and all positions. Raises `ConfigError` for a cache that lacks
    a needed activation, for attention whose scores are not such a sum, and as `require_routes` does.
    """
    cfg, attn = cache.model.cfg, cache.model.blocks[layer].attn
    require_routes(cfg)
    require(
        getattr(attn, "additive_scores", True),
        f"The model's attention is {getattr(cfg, 'attention', None)!r}"
        f"{' with qk_norm' if getattr(cfg, 'qk_norm', False) else ''}, whose scores are not one sum over routes: "
        "they cannot be split.",
    )
    q = _cached(cache, layer, "q" if attn.rotary is None else "rot_q")
    if "alpha" in _mixing(cache):
        k, alpha = _cached(cache, layer, "k_raw"), _cached(cache, layer, "alpha")
    else:
        k = _cached(cache, layer, "k")
        alpha = k.new_ones(k.shape[2], 1)
    routes, rotary = [], attn.rotary or nn.Identity()
    for back, weight in enumerate(alpha.unbind(dim=1)):
        moved = F.pad(k * weight.reshape(len(weight), -1), (0, 0, 0, 0, back, 0))[:, : k.shape[1]]
        rotated = rotary(moved).repeat_interleave(q.shape[2] // k.shape[2], dim=2)
        routes.append(torch.einsum("bqhd,bkhd->bhqk", q, rotated) / math.sqrt(q.shape[-1]))
    return torch.stack(routes)


def _mixing(cache: ActivationCache) -> tuple[str, ...]:
    # TransformerLens' own configs lack this field.
    return getattr(cache.model.cfg, "learned_shifts", ())


def _cached(cache: ActivationCache, layer: int, kind: str) -> Tensor:
    name = f"blocks.{layer}.attn.hook_{kind}"
    require(
        name in cache.cache_dict,
        f"The cache lacks {name}: run_with_cache without a names_filter keeps it, if the attention has the HookPoint "
        f"hook_{kind} and its forward calls it.",
    )
    return cache[name]
