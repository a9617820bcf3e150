"""Upcycling: train only a few numbers per head of a pretrained model, and measure what that changes.

Each arm adds a set of trainable numbers to a Hugging Face causal LM whose attention has `k_proj` and `v_proj`, and
freezes all other weights. The numbers start at the identity, so the model starts unchanged. The control "scales" has as
many numbers as "keys and values": it scales each half of a head's keys and values, and mixes in no earlier token.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ihlab.hf.attention import SHIFT, attentions
from ihlab.hf.model import add_shift
from tasks.config import choose

BOTH, KEYS, VALUES, SCALES = "keys and values", "keys", "values", "scales"
ARMS = (BOTH, KEYS, VALUES, SCALES)

Rows = Int[Tensor, "_batch longer"]
"""Sequences of token ids. Each position but the last predicts the next token."""


@dataclass(frozen=True)
class Trained:
    """A trained arm: its model, its learning rate, and a table of the rates that were tried."""

    model: Any
    lr: float
    tried: dict[float, float]


def with_arm(model: Any, arm: str) -> tuple[Any, list[nn.Parameter]]:
    """Return a copy of the model with an arm's numbers, and these numbers, which alone require gradients.

    Raises `ConfigError` for an unknown arm, and as `add_shift` does.
    """
    choose("arm", arm, ARMS)
    changed = copy.deepcopy(model)
    for parameter in changed.parameters():
        parameter.requires_grad_(False)
    if arm == SCALES:
        return changed, _add_scales(changed)
    add_shift(changed, keys=arm != VALUES, values=arm != KEYS)
    return changed, [
        taps.requires_grad_(True) for part in attentions(changed) for taps in getattr(part, SHIFT).parameters()
    ]


def _add_scales(model: Any) -> list[nn.Parameter]:
    """Multiply each half of a head's keys and of its values by its own trainable scale."""
    heads, scales = model.config.num_key_value_heads, []
    for part in attentions(model):
        for projection in (part.k_proj, part.v_proj):
            scale = nn.Parameter(torch.ones(heads, 2, 1))
            scales.append(scale)
            projection.register_forward_hook(
                lambda _, __, out, scale=scale: (out.unflatten(-1, (heads, 2, -1)) * scale).flatten(-3)
            )
    return scales


def losses(model: Any, rows: Rows) -> Float[Tensor, " batch"]:
    """Return the mean next-token loss of each sequence, in nats."""
    logits = model(rows[:, :-1], use_cache=False).logits.float()
    each = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="none")
    return each.view(len(rows), -1).mean(dim=1)


@torch.no_grad()
def held_out_losses(model: Any, rows: Rows) -> list[float]:
    """Return the loss of each sequence, one sequence at a time."""
    return [float(losses(model, row[None])) for row in rows]


def train_arm(
    model: Any, arm: str, training: Rows, tuning: Rows, rates: Sequence[float], trial: int, steps: int
) -> Trained:
    """Train an arm's numbers with Adam, one sequence per step; return its model.

    Every rate is tried for `trial` steps. The one with the lowest loss on `tuning` goes on to `steps`. All arms see the
    same sequences in the same order.
    """
    changed, numbers = with_arm(model, arm)
    start = [number.detach().clone() for number in numbers]
    tried: dict[float, float] = {}
    ended: dict[float, tuple[list[Tensor], dict[str, Any]]] = {}
    for lr in rates:
        _set(numbers, start)
        optimizer = torch.optim.Adam(numbers, lr=lr)
        _steps(changed, optimizer, training[:trial])
        losses_of = held_out_losses(changed, tuning)
        tried[lr] = sum(losses_of) / len(losses_of)
        ended[lr] = [number.detach().clone() for number in numbers], copy.deepcopy(optimizer.state_dict())
    lr = min(tried, key=tried.__getitem__)
    _set(numbers, ended[lr][0])
    optimizer = torch.optim.Adam(numbers, lr=lr)
    optimizer.load_state_dict(ended[lr][1])
    _steps(changed, optimizer, training[trial:steps])
    return Trained(changed, lr, tried)


def _set(numbers: Sequence[nn.Parameter], values: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for number, value in zip(numbers, values, strict=True):
            number.copy_(value)


def _steps(model: Any, optimizer: torch.optim.Adam, rows: Rows) -> None:
    for row in rows:
        losses(model, row[None]).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def shares(model: Any, side: str) -> Float[Tensor, "layer kv_head"]:
    """Return the fraction of each key (side "alpha") or value ("beta") that comes from the previous token.

    It is |w[1]| / (|w[0]| + |w[1]|), which no rescaling of the projection changes.
    """
    taps = torch.stack([getattr(getattr(part, SHIFT), side).detach().abs() for part in attentions(model)])
    return taps[..., 1] / taps.sum(dim=-1)
