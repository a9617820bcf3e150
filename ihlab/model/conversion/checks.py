"""The check of a conversion: on random tokens, the result must have the original's logits.

Configs are not enough: a config may not match its weights, and another class may use them in a way
that the config does not mention.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ihlab.model.transformer import Transformer
from ihlab.runtime.modes import evaluating
from tasks.config import require

ERROR_MOST = 3e-5
"""Largest difference between logits of two implementations in float32, as a fraction of the largest
logit.
"""

ROWS, LENGTH = 2, 64
"""Shape of the random tokens that original and result read: enough positions for rotary tables and
masks to differ.
"""


def precision(original: Any) -> torch.dtype:
    """Return the precision of a conversion: float64 for an original in float64, else float32."""
    return torch.float64 if next(original.parameters()).dtype == torch.float64 else torch.float32


def require_finite(model: Any) -> None:
    """Raise `ConfigError` for a weight that is not finite, naming its tensor. Skips the meta
    device.
    """
    for name, weight in model.named_parameters():
        if weight.is_floating_point() and weight.itemsize > 1 and not weight.is_meta:
            finite = bool(weight.isfinite().all())
            require(
                finite,
                f"The {type(model).__name__}'s tensor '{name}' holds a number that is not finite.",
            )


def require_loaded(model: Any) -> None:
    """Raise `ConfigError` for a weight without values: one on the meta device, or offloaded by
    accelerate.
    """
    missing = next((name for name, weight in model.named_parameters() if weight.is_meta), None)
    require(
        missing is None,
        f"The {type(model).__name__}'s tensor '{missing}' is on the meta device or offloaded, so its weights cannot be "
        "converted: load the model without device_map.",
    )


def exact_rotary(model: Any, rotary: Any) -> Any:
    """Return a model's rotary embedding with its frequencies in float32: `model.to(torch.bfloat16)`
    rounds them.
    """
    rounded = rotary.inv_freq.dtype in (torch.bfloat16, torch.float16)
    return type(rotary)(model.config).to(rotary.inv_freq.device) if rounded else rotary


def require_merged(model: Any) -> None:
    """Raise `ConfigError` for an adapter of peft around a model."""
    require(
        not hasattr(model, "merge_and_unload"),
        f"The model is a {type(model).__name__}, an adapter around a model: give model.merge_and_unload().",
    )


def require_family(model: Any, family: Sequence[str], function: str) -> None:
    """Raise `ConfigError` for a model whose class a function cannot convert."""
    require_merged(model)
    require(
        any(cls.__name__ in family for cls in type(model).__mro__),
        f"The model is a {type(model).__name__}, but {function} takes {', '.join(family)}. The "
        "heads of any causal language model can be scored without conversion.",
    )
    require_loaded(model)


def require_all_used(original: Any, names: Iterable[str], used: Iterable[str]) -> None:
    """Raise `ConfigError` for weights of the original that the conversion did not use."""
    left = sorted(set(names) - set(used))
    require(
        not left,
        f"The {type(original).__name__} has {', '.join(left[:3])}{' ...' if len(left) > 3 else ''}, which a "
        "Transformer cannot hold.",
    )


@torch.no_grad()
def proven(converted: Transformer, original: Any) -> Transformer:
    """Return a converted model, in evaluation mode. Raises `ConfigError` if its logits differ from
    the original's.
    """
    require_finite(original)
    cfg = converted.cfg
    tokens = torch.randint(
        cfg.d_vocab, (ROWS, min(LENGTH, cfg.n_ctx)), generator=torch.Generator().manual_seed(0)
    )
    with evaluating(original):
        right = _logits(original, tokens)
    logits = converted.eval()(tokens)
    size = max(1.0, right.abs().max().item())
    off = (logits - right).abs().max().item()
    require(
        off <= ERROR_MOST * size,  # False for NaN too
        f"The {type(original).__name__} cannot be converted: on random tokens the result's logits differ by {off:.2g} "
        "from its own, so it computes something that its config does not say. Its heads can be scored without "
        "conversion.",
    )
    return converted


def _logits(model: Any, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
    """Return the model's logits, at least in float32."""
    if any(weight.dtype in (torch.bfloat16, torch.float16) for weight in model.parameters()):
        wide = deepcopy(model).float()  # rounding errors would hide small differences
        for ours, theirs in zip(wide.modules(), model.modules(), strict=True):
            if hasattr(theirs, "inv_freq"):
                ours.inv_freq = exact_rotary(model, theirs).inv_freq
        model = wide
    weight = next(model.parameters())
    output = model(input_ids=tokens.to(weight.device), attention_mask=None, use_cache=False)
    logits: Tensor = output.logits
    return logits.cpu()
