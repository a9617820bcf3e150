"""Checks of gradients: against finite differences, and through what a cache holds."""

from typing import Any

import torch
from torch import Tensor, nn

from ihlab.hf.conformance.compare import (
    ROUGH,
    Check,
    NotApplicableError,
    demand,
    in_chunks,
    logits,
    off,
    precise,
    tokens,
)

STEPS = (1e-3, 5e-4, 2.5e-4)
"""Finite differences of a parameter, as fractions of its root mean square."""


def _loss(results: Tensor, ids: Tensor) -> Tensor:
    return nn.functional.cross_entropy(results[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def _weights(model: Any) -> dict[str, Tensor]:
    return {
        name: x for name, x in model.named_parameters() if x.requires_grad and x.is_floating_point()
    }


def gradient(model: Any) -> None:
    """Compare the gradient along a random direction of each parameter with finite differences, in
    float64.

    A loss that is computed in float32 somewhere goes in steps, and jumps where a router selects
    other experts: then the differences of several steps disagree, and nothing can be said.
    """
    model = precise(model)
    if model.dtype != torch.float64:
        raise NotApplicableError("it does not run in float64")
    weights, random = _weights(model), torch.Generator().manual_seed(0)
    ids = tokens(model, 2, 6)
    with torch.enable_grad():
        start = _loss(logits(model, ids), ids)
    gradients = torch.autograd.grad(
        start, list(weights.values()), allow_unused=True, materialize_grads=True
    )
    slopes = {}
    for (name, weight), of_weight in zip(weights.items(), gradients, strict=True):
        before = weight.detach().clone()
        direction = torch.randn(weight.shape, generator=random, dtype=weight.dtype)
        direction *= before.pow(2).mean().sqrt()
        measured = []
        for step in STEPS:
            weight.data = before + step * direction
            ahead = _loss(logits(model, ids), ids).item()
            weight.data = before - step * direction
            measured.append((ahead - _loss(logits(model, ids), ids).item()) / (2 * step))
        weight.data = before
        slope, spread = (of_weight * direction).sum().item(), max(measured) - min(measured)
        slopes[name] = slope, measured[1], spread
    largest, unclear = max(abs(right) for _, right, _ in slopes.values()), ""
    for name, (slope, right, spread) in slopes.items():
        most = 0.02 * max(abs(right), 0.05 * largest)
        if abs(slope - right) > most:
            demand(
                spread > most / 2,
                f"along a random direction of {name}, the gradient is {slope:.3g}, a finite difference {right:.3g}",
            )
            unclear = name
    if unclear:
        raise NotApplicableError(f"not measurable: along {unclear}, the loss goes in steps")


@torch.enable_grad()
def cached_gradient(model: Any) -> None:
    """Compare gradients of a loss that reads in two chunks with those of one pass."""
    ids, weights = tokens(model, 2, 8), _weights(model)
    gradients = []
    for results in (in_chunks(model, ids, [4, 4]), logits(model, ids)):
        try:
            of_weights = torch.autograd.grad(
                _loss(results, ids),
                list(weights.values()),
                allow_unused=True,
                materialize_grads=True,
            )
        except RuntimeError as error:
            if "inplace operation" not in str(error):
                raise
            raise NotApplicableError(
                "autograd refuses it: the cache changes its state in place"
            ) from error
        gradients.append(of_weights)
    largest = nn.utils.get_total_norm(gradients[1], torch.inf).item()
    for name, chunked, right in zip(weights, *gradients, strict=True):
        difference = off(chunked / largest, right / largest)
        demand(
            difference <= ROUGH,
            f"read in two chunks, the gradients of {name} differ by {difference:.1e}",
        )


CHECKS: dict[str, Check] = {
    "gradient": Check(
        "the gradient: as finite differences",
        gradient,
        "the state is detached, or its backward pass is wrong",
    ),
    "cached_gradient": Check(
        "the gradient through a cache: as that of one pass",
        cached_gradient,
        "the state is detached when the cache stores it",
        ("chunks", "gradient"),
    ),
}
