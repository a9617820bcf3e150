"""What the checks share: tokens, a model's logits with and without a cache, and the demand that two results agree."""

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

MakeModel = Callable[[], Any]
CLOSE = 1e-5
"""Largest difference of float32 logits, as a fraction of the largest logit (at least 1)."""


class NotApplicableError(Exception):
    """A check does not apply to this model."""


class FaultError(AssertionError):
    """The requirement of a check is not met."""


def demand(condition: bool, message: str) -> None:
    """Raise `FaultError` unless a condition holds."""
    if not condition:
        raise FaultError(message)


def off(found: Tensor, right: Tensor) -> float:
    """Return the largest difference, as a fraction of the largest correct value (at least 1). Infinite for NaN."""
    difference = ((found - right).abs().max() / right.abs().max().clamp(min=1)).item()
    return math.inf if math.isnan(difference) else difference


def same(found: Tensor, right: Tensor, what: str, most: float = CLOSE) -> None:
    """Raise `FaultError` unless two results agree."""
    demand(off(found, right) <= most, f"{what}: logits differ by {off(found, right):.1e}")


def tokens(model: Any, rows: int, length: int, seed: int = 0) -> Tensor:
    """Return random tokens [rows, length], none of them 0."""
    return torch.randint(1, model.config.vocab_size, (rows, length), generator=torch.Generator().manual_seed(seed))


def logits(model: Any, ids: Tensor, **inputs: Any) -> Tensor:
    """Return the logits of a forward pass without a cache."""
    found: Tensor = model(input_ids=ids, use_cache=False, **inputs).logits
    return found


def reach(model: Any) -> float:
    """Return by how much other earlier tokens change the logits of the last of 8 tokens."""
    ids = tokens(model, 1, 8)
    other = torch.cat([tokens(model, 1, 7, seed=1), ids[:, 7:]], dim=1)
    return off(logits(model, other)[:, 7], logits(model, ids)[:, 7])


def read(model: Any, cache: Any, ids: Tensor, **inputs: Any) -> tuple[Tensor, Any]:
    """Return the logits of the next tokens, and the cache with them: `past_key_values`, `cache_params` or `state`."""
    names = inspect.signature(model.forward).parameters
    name = next((name for name in ("past_key_values", "cache_params", "state") if name in names), "past_key_values")
    output = model(input_ids=ids, use_cache=True, **{name: cache}, **inputs)
    if output.get(name) is None:
        raise NotApplicableError("it returns no cache")
    return output.logits, output[name]


def in_chunks(model: Any, ids: Tensor, sizes: Iterable[int], cache: Any = None) -> Tensor:
    """Return the logits of tokens that are read in chunks, with an optional cache of earlier tokens."""
    found = []
    for chunk in ids.split(list(sizes), dim=1):
        part, cache = read(model, cache, chunk)
        found.append(part)
    return torch.cat(found, dim=1)


def padded(model: Any, lengths: list[int], left: bool) -> tuple[Tensor, Tensor, list[slice]]:
    """Return tokens and mask [rows, longest], and each sequence's slice. Padding consists of random tokens."""
    ids = tokens(model, len(lengths), max(lengths), seed=3)
    places = [slice(max(lengths) - n, max(lengths)) if left else slice(0, n) for n in lengths]
    mask = torch.zeros_like(ids)
    for row, place in enumerate(places):
        mask[row, place] = 1
    return ids, mask, places


def counted(mask: Tensor) -> Tensor:
    """Return position numbers that do not count padding, as `generate` computes them."""
    return (mask.cumsum(-1) - 1).clamp(min=0)
