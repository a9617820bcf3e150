"""Helpers of the checks: random tokens, a model's logits with and without a cache, and comparisons
of results.
"""

import copy
import dis
import inspect
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

MakeModel = Callable[[], Any]
CLOSE = 1e-5
"""Largest difference of float32 logits, as a fraction of the largest logit (at least 1)."""
ROUGH = 1e-3
"""Largest difference after so many tokens that rounding adds up."""
ROWS = 33
"""Size of a large batch. It is more than a kernel may take at once."""


class Check(NamedTuple):
    """A check of a model.

    `run` raises `FaultError` unless the model meets the `requirement`; `cause`: the usual cause of
    a failure; `after`: the checks whose failure may make it fail.
    """

    requirement: str
    run: Callable[[Any], None]
    cause: str
    after: tuple[str, ...] = ()


class NotApplicableError(Exception):
    """A check does not apply to this model."""


class FaultError(AssertionError):
    """The requirement of a check is not met."""


def is_refusal(error: BaseException) -> bool:
    """Return whether an error deliberately refuses something unsupported, and is not a crash.

    A refusal has a message, is a `ValueError`, `RuntimeError` or `ImportError`, and comes from a
    `raise` statement outside torch, einops and the standard library.
    """
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if (
        place is None
        or not str(error)
        or not isinstance(error, ValueError | RuntimeError | ImportError)
    ):
        return False
    package = str(place.tb_frame.f_globals.get("__name__")).split(".")[0]
    is_raised = place.tb_frame.f_code.co_code[place.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    return is_raised and package not in {"torch", "einops", *sys.stdlib_module_names}


def demand(condition: bool, message: str) -> None:
    """Raise `FaultError` unless a condition holds."""
    if not condition:
        raise FaultError(message)


def off(result: Tensor, right: Tensor) -> float:
    """Return the largest difference, as a fraction of the largest correct value (at least 1).
    Infinite for NaN.
    """
    difference = ((result - right).abs().max() / right.abs().max().clamp(min=1)).item()
    return math.inf if math.isnan(difference) else difference


def same(result: Tensor, right: Tensor, what: str, most: float = CLOSE) -> None:
    """Raise `FaultError` unless two results agree."""
    demand(off(result, right) <= most, f"{what}: logits differ by {off(result, right):.1e}")


def tokens(model: Any, rows: int, length: int, seed: int = 0) -> Tensor:
    """Return random tokens [rows, length], none of them 0."""
    return torch.randint(
        1, model.config.vocab_size, (rows, length), generator=torch.Generator().manual_seed(seed)
    )


def _named(ids: Tensor) -> dict[str, Tensor]:
    """Return token ids [batch, pos], or their embeddings [batch, pos, d_model], keyed by the
    argument's name.
    """
    return {"inputs_embeds" if ids.is_floating_point() else "input_ids": ids}


def logits(model: Any, ids: Tensor, **inputs: Any) -> Tensor:
    """Return the logits of a forward pass without a cache, of token ids or embeddings."""
    return model(**_named(ids), use_cache=False, **inputs).logits


def precise(model: Any) -> Any:
    """Return a copy in float64, or the model itself if it does not run so. Over many tokens,
    rounding adds up.
    """
    double = copy.deepcopy(model).double()
    try:
        logits(double, tokens(model, 1, 4))
    except RuntimeError:
        return model
    return double


def reach(model: Any) -> float:
    """Return by how much the logits at the last of 8 tokens change if the 7 tokens before it are
    replaced.
    """
    ids = tokens(model, 1, 8)
    other = torch.cat([tokens(model, 1, 7, seed=1), ids[:, 7:]], dim=1)
    return off(logits(model, other)[:, 7], logits(model, ids)[:, 7])


def read(model: Any, cache: Any, ids: Tensor, **inputs: Any) -> tuple[Tensor, Any]:
    """Return the logits of the next tokens, and the cache after them: `past_key_values`,
    `cache_params` or `state`.
    """
    names = inspect.signature(model.forward).parameters
    name = next(
        (name for name in ("past_key_values", "cache_params", "state") if name in names),
        "past_key_values",
    )
    output = model(**_named(ids), use_cache=True, **{name: cache}, **inputs)
    if output.get(name) is None:
        raise NotApplicableError("it returns no cache")
    return output.logits, output[name]


def generated(model: Any, ids: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Return the ids that `generate` returns, and the logits [step, row, d_vocab] that chose the
    new ones.
    """
    result = model.generate(ids, output_logits=True, return_dict_in_generate=True, **options)
    return result.sequences, torch.stack(result.logits)


def same_generation(result: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], what: str) -> None:
    """Raise `FaultError` unless two results of `generated` agree. A model that repeats one token
    shows a fault in its logits alone.
    """
    demand(torch.equal(result[0], right[0]), f"{what}: tokens differ")
    same(result[1], right[1], what, ROUGH)


def takes(model: Any, name: str) -> bool:
    """Return whether a model's forward has an argument of this name."""
    return name in inspect.signature(model.forward).parameters


def positions_of(model: Any) -> float:
    """Return how many positions a model has. Rotary embeddings that are not scaled have no end."""
    config = model.config
    ropes = getattr(config, "rope_parameters", None) or {}
    kinds = {
        rope.get("rope_type") for rope in (ropes, *ropes.values()) if isinstance(rope, dict)
    } - {None}
    most = getattr(config, "max_position_embeddings", None)
    return math.inf if most is None or kinds == {"default"} else most


def in_chunks(
    model: Any,
    ids: Tensor,
    sizes: Iterable[int],
    cache: Any = None,
    mask: Any = None,
    position_ids: Any = None,
) -> Tensor:
    """Return the logits of tokens that are read in chunks, with an optional cache of earlier
    tokens.

    `mask` ([batch, pos] or [batch, 1, query, key]) and `position_ids` cover the tokens of all
    chunks.
    """
    results, start = [], 0
    for chunk in ids.split(list(sizes), dim=1):
        stop, inputs = start + chunk.shape[1], {}
        if mask is not None:
            inputs["attention_mask"] = (
                mask[:, :stop] if mask.ndim == 2 else mask[:, :, start:stop, :stop]
            )
        if position_ids is not None:
            inputs["position_ids"] = position_ids[:, start:stop]
        result, cache = read(model, cache, chunk, **inputs)
        results.append(result)
        start = stop
    return torch.cat(results, dim=1)


def method(cache: Any, name: str) -> Any:
    """Return a method of a cache. Raises `NotApplicableError` if it has none of this name."""
    if not hasattr(cache, name):
        raise NotApplicableError(f"its cache, a {type(cache).__name__}, has no {name}")
    return getattr(cache, name)


def padded(model: Any, lengths: list[int], left: bool) -> tuple[Tensor, Tensor]:
    """Return tokens and mask [rows, longest]. Padding consists of random tokens."""
    longest = max(lengths)
    places = torch.arange(longest)
    ends = torch.tensor(lengths)[:, None]
    mask = places < ends
    if left:
        mask = mask.flip(1)
    return tokens(model, len(lengths), longest, seed=3), mask.long()


def off_alone(model: Any, results: Tensor, ids: Tensor, sequences: Tensor) -> float:
    """Return the largest difference to a sequence alone. `sequences`: each token's sequence number;
    0 is padding.
    """
    errors = []
    for row, numbers in enumerate(sequences):
        for number in numbers[numbers > 0].unique():
            places = numbers == number
            errors.append(off(results[row, places], logits(model, ids[row, places][None])[0]))
    return max(errors)


def same_as_alone(
    model: Any, results: Tensor, ids: Tensor, sequences: Tensor, what: str, most: float = CLOSE
) -> None:
    """Raise `FaultError` unless logits are those of each sequence alone."""
    error = off_alone(model, results, ids, sequences)
    demand(error <= most, f"{what}: logits differ by {error:.1e}")


def counted(mask: Tensor) -> Tensor:
    """Return position numbers that do not count padding, as `generate` computes them."""
    return (mask.cumsum(-1) - 1).clamp(min=0)


def numbering(model: Any, mask: Tensor) -> dict[str, Tensor]:
    """Return the `position_ids` of tokens with a mask, for a model that takes them."""
    return {"position_ids": counted(mask)} if takes(model, "position_ids") else {}
