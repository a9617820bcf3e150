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
TINY = 1e-6
"""A step in which a loss in float64 is a straight line, so that what is left is rounding."""


def _loss(results: Tensor, ids: Tensor) -> Tensor:
    return nn.functional.cross_entropy(results[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def _weights(model: Any) -> dict[str, Tensor]:
    return {
        name: x for name, x in model.named_parameters() if x.requires_grad and x.is_floating_point()
    }


def _unclear(model: Any, weights: dict[str, Tensor], seed: int) -> list[str]:
    """Compare gradients at random tokens, and return the parameters along which the loss is no
    smooth curve.
    """
    ids, random = tokens(model, 2, 6, seed), torch.Generator().manual_seed(seed)
    with torch.enable_grad():
        start = _loss(logits(model, ids), ids)
    gradients = torch.autograd.grad(start, list(weights.values()), materialize_grads=True)
    slopes, noise = {}, 0.0
    for (name, weight), of_weight in zip(weights.items(), gradients, strict=True):
        before = weight.detach().clone()
        direction = (
            torch.randn(weight.shape, generator=random, dtype=weight.dtype)
            * before.pow(2).mean().sqrt()
        )
        losses = {}
        for step in (*STEPS, TINY):
            for signed in (step, -step):
                weight.data = before + signed * direction
                losses[signed] = _loss(logits(model, ids), ids).item()
        weight.data = before
        measured = [(losses[step] - losses[-step]) / (2 * step) for step in STEPS]
        noise = max(noise, abs(losses[TINY] + losses[-TINY] - 2 * start.item()) / STEPS[0])
        slopes[name] = (
            (of_weight * direction).sum().item(),
            measured[1],
            max(measured) - min(measured),
        )
    largest = max(abs(right) for _, right, _ in slopes.values())
    unclear = []
    for name, (slope, right, spread) in slopes.items():
        most = 0.02 * max(abs(right), 0.05 * largest)
        if abs(slope - right) <= most:
            continue
        demand(
            max(noise, spread) > most / 2,
            f"along a random direction of {name}, the gradient is {slope:.3g}, a finite difference {right:.3g}",
        )
        unclear.append(name)
    return unclear


def gradient(model: Any) -> None:
    """Compare the gradient along a random direction of each parameter with a finite difference, in
    float64.

    A loss that is computed in float32 somewhere goes in steps, and jumps where a router selects
    other experts. So the check measures both, and takes other tokens for the parameters that are
    concerned.
    """
    model = precise(model)
    if model.dtype != torch.float64:
        raise NotApplicableError("it does not run in float64")
    left = _weights(model)
    for seed in range(3):
        unclear = _unclear(model, left, seed)
        left = {name: left[name] for name in unclear}
        if not left:
            return
    raise NotApplicableError(
        f"not measurable: along {unclear[0]}, the loss goes in steps, as if computed in float32"
    )


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
