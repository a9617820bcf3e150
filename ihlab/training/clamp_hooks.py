"""Clamps in training: written into a checkpoint, then kept in every forward pass by TransformerLens
hooks.

A clamp of alpha or beta is stored in the parameter itself. The hook at `hook_alpha` or `hook_beta`
detaches the clamped weights, and their AdamW moments are zero; weight decay never acts on alpha or
beta. So AdamW adds exactly 0 to them at every step, the stored parameter is what the forward pass
reads, and the gradient's norm, by which all gradients are clipped, excludes them. A clamped pattern
is set at `hook_pattern`, which makes attention compute explicit patterns. The head's query weights,
and key weights that no free head shares, then get no gradient (except with "last"), and weight
decay shrinks them without effect.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from ihlab.model.shift import TokenShift
from ihlab.model.transformer import Transformer
from ihlab.training.clamp import Clamp
from tasks.config import require

Hook = Callable[[Tensor, HookPoint], Tensor]


def install(model: Transformer, clamps: Sequence[Clamp]) -> None:
    """Add the clamps to a model as permanent hooks: `model.reset_hooks(including_permanent=True)`
    removes them.

    Call this before `torch.compile` and before any other hook is added, so that later hooks see the
    clamped values.
    """
    for clamp in clamps:
        attention = model.layers[clamp.layer].attn
        if clamp.what == "pattern":
            hook = _set_pattern(clamp, attention.strict)
        else:
            hook = _freeze_weight(clamp, shift_of(model, clamp))
        model.add_hook(f"blocks.{clamp.layer}.attn.hook_{clamp.what}", hook, is_permanent=True)


@torch.no_grad()
def impose(model: Transformer, optimizer_state: dict[str, Tensor], clamps: Sequence[Clamp]) -> None:
    """Write clamped values of alpha and beta into a model, and zero the moments of clamped entries.

    `optimizer_state` comes from `checkpoint.optimizer_state`; its moments are changed in place.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for clamp in clamps:
        if clamp.what == "pattern":
            continue
        shift = shift_of(model, clamp)
        heads, columns = _entries(clamp, shift)
        if isinstance(clamp.value, float):
            shift.hold(heads, _all_or(clamp.column), clamp.value)
        for moment in ("exp_avg", "exp_avg_sq"):
            key = f"{moment}/{names[id(shift.weight)]}"
            if key in optimizer_state:  # no moments before the first step
                optimizer_state[key][heads, columns] = 0


def shift_of(model: Transformer, clamp: Clamp) -> TokenShift:
    """Return the shift, of keys or of values, whose weights a clamp acts on."""
    side = {"alpha": "key", "beta": "value"}[clamp.what]
    shift = model.layers[clamp.layer].attn.shift_of(side)
    assert shift is not None  # `Clamp.check` guarantees it
    return shift


def set_pattern(
    name: str, visible: Bool[Tensor, "query key"], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "query key"]:
    """Return the named pattern of `PATTERNS` over the keys that are visible to each query.

    The pattern "last" is all zeros. Its last row is not used, because the last token's attention is
    not clamped.
    """
    if name in ("zero", "last"):
        return torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    if name == "previous":
        before = torch.ones_like(visible).tril(-1).triu(-1)
        before[0] = visible[0]  # the first token has no previous one
        return before.to(dtype)
    return visible.to(dtype) / visible.sum(dim=-1, keepdim=True).clamp(min=1)


def _all_or(index: int | None) -> int | slice:
    """Return an index; for None, all."""
    return slice(None) if index is None else index


def _entries(clamp: Clamp, shift: TokenShift) -> tuple[int | slice, int | slice]:
    """Return the indices of the frozen heads and columns: all columns if the shift ties them (a
    head's weights sum to 1).
    """
    column = None if shift.rule.tied else clamp.column
    return _all_or(clamp.head), _all_or(column)


def _freeze_weight(clamp: Clamp, shift: TokenShift) -> Hook:
    entries = torch.zeros_like(shift.weights(), dtype=torch.bool)
    entries[_entries(clamp, shift)] = True

    def freeze(weight: Tensor, hook: HookPoint) -> Tensor:
        return torch.where(entries.to(weight.device), weight.detach(), weight)

    return freeze


def _set_pattern(clamp: Clamp, strict: bool) -> Hook:
    def put(pattern: Tensor, hook: HookPoint) -> Tensor:
        queries, n_pos = pattern.shape[-2:]  # in decoding, the queries are only the last positions
        require(
            queries == n_pos or clamp.value != "last",
            'A pattern clamped to "last" changes at each token, so it is not decoded: read whole sequences.',
        )
        visible = torch.ones((n_pos, n_pos), dtype=torch.bool, device=pattern.device)
        wanted = set_pattern(str(clamp.value), visible.tril(-int(strict)), pattern.dtype)
        end = n_pos - (clamp.value == "last")
        clamped = pattern.clone()
        clamped[:, _all_or(clamp.head), : end - n_pos + queries] = wanted[n_pos - queries : end]
        return clamped

    return put
