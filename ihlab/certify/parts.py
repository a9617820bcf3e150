"""Prove statements about parts of a model: what it does without them, on every sequence of a set.

The parts of one attention layer are its heads, its direct path (the residual stream around
attention) and, with a shift, four terms of it: a token's own key and value, and those of the token
before, each weighted by alpha or beta. A part that is left out has the weight 0. The rest of the
model stays as it was trained.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ihlab.certify.plain import opened_transformer, plain_copy
from ihlab.model.registry import VARIANTS
from ihlab.model.transformer import Transformer
from tasks.config import choose, require, shown

DIRECT = "direct path"
SHIFTED = {"key": "key_shift", "value": "value_shift"}
STORED_AS_MIXED = ("free", "project", "clip")
"""The rules of shifts whose stored weights are alpha or beta itself, so that one of them can be 0.
"""


def parts_of(source: Any) -> list[str]:
    """Return the names of the parts of a one-layer model that can be left out."""
    return [*_parts(opened_transformer(source))]


@torch.no_grad()
def left_out(source: Any, parts: Sequence[str]) -> Transformer:
    """Return a copy of a one-layer model without some of its parts, which `parts_of` names; the
    model if none is named.

    Raises `ConfigError` for another part, with the nearest name, and for models as `certify` does.
    """
    model = opened_transformer(source)
    require(not isinstance(parts, str), f"without is {shown(parts)}, but must be a list of parts.")
    if not parts:
        return model
    # This refuses hooks and the like, which the copy below would lose.
    plain_copy(model, model.cfg.n_ctx)
    named = [choose("part", name, _parts(model)) for name in parts]
    cfg = model.cfg.replace(residual=False) if DIRECT in named else model.cfg
    copy = Transformer(cfg).to(model.embed.weight).eval()
    copy.load_state_dict(model.state_dict())
    copy.trained_on = model.trained_on
    silence = _parts(copy)
    for name in named:
        if name != DIRECT:
            silence[name]()
    return copy


def _parts(model: Transformer) -> dict[str, Callable[[], object]]:
    """Return what sets the weights of each part to 0, by the name of the part."""
    attn, variant = model.layers[0].attn, VARIANTS[model.cfg.attention]
    parts: dict[str, Callable[[], object]] = {}
    for what, attribute in SHIFTED.items():
        if getattr(variant, what) in STORED_AS_MIXED:
            weight = getattr(attn, attribute).weight
            parts[f"own {what}"] = weight[:, 0].zero_
            parts[f"previous {what}"] = weight[:, 1].zero_
    if attn.n_heads > 1:
        for head in range(attn.n_heads):
            rows = slice(head * attn.d_head, (head + 1) * attn.d_head)
            parts[f"head {head}"] = attn.o_proj.weight[:, rows].zero_
    if model.cfg.residual_in(0):
        parts[DIRECT] = lambda: None  # it has no weights
    return parts
