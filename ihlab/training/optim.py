"""The optimiser and its learning rate."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ihlab.model.shift import TokenMix
from ihlab.model.transformer import Transformer
from ihlab.training.config import RunConfig, constant_steps


def make_optimizer(
    model: Transformer, run: RunConfig, parameters: Mapping[str, Tensor] | None = None
) -> torch.optim.AdamW:
    """Return fused AdamW. Weight decay acts on matrices only: not on norms, and never on what mixes tokens.

    `parameters`: the tensors to optimise, by the model's parameter names; by default the model's own.
    """
    mixing = {id(p) for module in model.modules() if isinstance(module, TokenMix) for p in module.parameters()}
    own = dict(model.named_parameters())
    given = own if parameters is None else parameters
    matrices = {name for name, p in own.items() if p.ndim >= 2 and id(p) not in mixing}
    groups = [
        {"params": [given[name] for name in own if name in matrices], "weight_decay": run.weight_decay},
        {"params": [given[name] for name in own if name not in matrices], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=run.lr, betas=run.betas, fused=True)


def learning_rate(run: RunConfig, step: int) -> float:
    """Return the learning rate of step `step` (0 .. steps - 1): linear warm-up, then `RunConfig.schedule`."""
    if step < run.warmup:
        return run.lr * (step + 1) / run.warmup
    if run.schedule == "constant":
        return run.lr
    if run.schedule == "trapezoid":
        falling = run.horizon - constant_steps(run)  # 0 for a run of fewer than five steps
        return run.lr * min(1.0, (run.horizon - step) / max(1, falling))
    done = (step - run.warmup) / max(1, run.horizon - run.warmup)
    return run.lr * (0.5 * (1 + math.cos(math.pi * done)) if run.schedule == "cosine" else 1 - done)
