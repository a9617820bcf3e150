"""Clamps in training: written into a checkpoint, then kept in every forward pass by TransformerLens hooks.

A clamp of alpha or beta lives in the parameter itself. The hook at `hook_alpha` or `hook_beta` passes the entry on
without its gradient, and the optimiser's moments of the entry are zero; weight decay never acts there. So AdamW adds
exactly 0 at every step, the stored parameter is what the forward pass reads, and the gradient's norm (and with it the
clipping of all others) excludes the entry. A clamped pattern is set at `hook_pattern`, which makes attention take its
explicit path; the head's query and key weights then get no gradient, and weight decay shrinks them without effect.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from ihlab.model.transformer import Transformer
from ihlab.training.clamp import Clamp

Hook = Callable[[Tensor, HookPoint], Tensor]


def install(model: Transformer, clamps: Sequence[Clamp]) -> None:
    """Add the clamps to a model as permanent hooks: `model.reset_hooks(including_permanent=True)` removes them.

    Call this before `torch.compile` and before any other hook is added, so that later hooks see the clamped values.
    """
    for clamp in clamps:
        attention = model.layers[clamp.layer].attn
        if clamp.what == "pattern":
            hook = _set_pattern(clamp, attention.strict)
        else:
            hook = _freeze_weight(_entries(clamp, shift_weight(model, clamp)))
        model.add_hook(f"blocks.{clamp.layer}.attn.hook_{clamp.what}", hook, is_permanent=True)


@torch.no_grad()
def impose(model: Transformer, optimizer_state: dict[str, Tensor], clamps: Sequence[Clamp]) -> None:
    """Write clamped values of alpha and beta into a model, and zero the moments of clamped entries.

    `optimizer_state` is that of `checkpoint.optimizer_state`; its moments are changed in place.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for clamp in clamps:
        if clamp.what == "pattern":
            continue
        weight = shift_weight(model, clamp)
        entries = _entries(clamp, weight)
        if isinstance(clamp.value, float):
            weight[entries] = clamp.value
        for moment in ("exp_avg", "exp_avg_sq"):  # there are none before the first step
            if (key := f"{moment}/{names[id(weight)]}") in optimizer_state:
                optimizer_state[key][entries] = 0


def shift_weight(model: Transformer, clamp: Clamp) -> Tensor:
    """Return the alpha or beta [n_key_value_heads, window] that a clamp acts on."""
    attention = model.layers[clamp.layer].attn
    return attention.alpha if clamp.what == "alpha" else attention.beta


def set_pattern(
    name: str, visible: Bool[Tensor, "query key"], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "query key"]:
    """Return a pattern of `PATTERNS` over the keys that are visible to each query."""
    if name == "zero":
        return torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    if name == "previous":
        before = torch.ones_like(visible).tril(-1).triu(-1)
        before[0] = visible[0]  # the first token has no previous one
        return before.to(dtype)
    return visible.to(dtype) / visible.sum(dim=-1, keepdim=True).clamp(min=1)


def _entries(clamp: Clamp, weight: Tensor) -> Bool[Tensor, "head window"]:
    entries = torch.zeros(weight.shape, dtype=torch.bool, device=weight.device)
    heads = slice(None) if clamp.head is None else clamp.head
    entries[heads, slice(None) if clamp.column is None else clamp.column] = True
    return entries


def _freeze_weight(entries: Bool[Tensor, "head window"]) -> Hook:
    def freeze(weight: Tensor, hook: HookPoint) -> Tensor:
        return torch.where(entries.to(weight.device), weight.detach(), weight)

    return freeze


def _set_pattern(clamp: Clamp, strict: bool) -> Hook:
    def put(pattern: Tensor, hook: HookPoint) -> Tensor:
        n_pos = pattern.shape[-1]
        visible = torch.ones((n_pos, n_pos), dtype=torch.bool, device=pattern.device).tril(-1 if strict else 0)
        heads = torch.zeros((pattern.shape[1], 1, 1), dtype=torch.bool, device=pattern.device)
        heads[slice(None) if clamp.head is None else clamp.head] = True
        return torch.where(heads, set_pattern(str(clamp.value), visible, pattern.dtype), pattern)

    return put
