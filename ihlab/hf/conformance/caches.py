"""Checks of what a cache can do: start again, have a fixed size, be read by compiled code, and
change its batch.
"""

from functools import partial
from typing import Any

import torch
from transformers import CompileConfig, DynamicCache, StaticCache

from ihlab.hf.conformance.compare import (
    Check,
    NotApplicableError,
    generated,
    in_chunks,
    method,
    padded,
    read,
    same,
    same_generation,
    tokens,
)


def fixed(model: Any) -> StaticCache:
    """Return an empty static cache. Raises `NotApplicableError` for a model with its own type of
    cache.
    """
    _, cache = read(model, None, tokens(model, 1, 2))
    if not isinstance(cache, DynamicCache):
        raise NotApplicableError(f"its cache, a {type(cache).__name__}, has no static form")
    return StaticCache(model.config, max_cache_len=16)


def reset(model: Any) -> None:
    """Read a sequence, reset the cache, and read another."""
    ids, other = tokens(model, 2, 6), tokens(model, 2, 6, seed=5)
    _, cache = read(model, None, ids)
    method(cache, "reset")()
    same(
        in_chunks(model, other, [4, 1, 1], cache), in_chunks(model, other, [4, 1, 1]), "after reset"
    )


def static(model: Any) -> None:
    """Read in chunks with a static cache, reset it and read again. Then generate twice with the
    static cache that `generate` keeps.
    """
    cache = fixed(model)
    for seed, sizes in enumerate(([5, *[1] * 7], [1] * 12, [5, 4, 1, 2])):
        ids = tokens(model, 2, 12, seed)
        result, right = in_chunks(model, ids, sizes, cache), in_chunks(model, ids, sizes)
        same(result, right, f"with a static cache, in chunks of {sizes}")
        cache.reset()
    for lengths in ([5, 5], [4, 2]):  # generate keeps the cache, and resets it
        _generated(model, lengths, "a static cache", cache_implementation="static")


def compiled(model: Any) -> None:
    """Read with compiled steps and a static cache, and generate with them."""
    torch.compiler.reset()  # the limit of recompilations is per process
    ids, sizes, cache = tokens(model, 2, 8), [4, *[1] * 4], fixed(model)
    right, forward = in_chunks(model, ids, sizes), model.forward
    model.forward = torch.compile(forward, backend="eager")
    same(in_chunks(model, ids, sizes, cache), right, "with compiled steps")
    model.forward = forward
    config = CompileConfig(backend="eager", fullgraph=False, mode=None)
    config._compile_all_devices = True
    _generated(
        model, [4, 2], "compiled steps", cache_implementation="static", compile_config=config
    )


def _generated(model: Any, lengths: list[int], what: str, **options: Any) -> None:
    """Raise `FaultError` unless a batch, padded on the left, is continued as without these options."""
    ids, mask = padded(model, lengths, left=True)
    continued, right = (
        generated(model, ids, attention_mask=mask, max_new_tokens=6, do_sample=False, **arguments)
        for arguments in (options, {})
    )
    same_generation(continued, right, f"with {what}, and with a dynamic cache")


def changed(model: Any, name: str, argument: Any, rows: list[int]) -> None:
    """Change a cache's batch with one of its methods, and read further tokens."""
    ids, more = tokens(model, 2, 5), tokens(model, len(rows), 2, seed=4)
    _, cache = read(model, None, ids)
    method(cache, name)(argument)
    result = in_chunks(model, more, [1, 1], cache)
    right = in_chunks(model, torch.cat([ids[rows], more], dim=1), [5, 1, 1])[:, 5:]
    same(result, right, f"after {name}")


TURNED = torch.tensor([1, 0])
CHECKS: dict[str, Check] = {
    "reorder": Check(
        "a reordered cache: as a new one",
        partial(changed, name="reorder_cache", argument=TURNED, rows=[1, 0]),
        "reorder_cache moves keys and values, but not the state",
    ),
    "select": Check(
        "a cache of selected sequences: as a new one",
        partial(changed, name="batch_select_indices", argument=TURNED, rows=[1, 0]),
        "batch_select_indices selects keys and values, but not the state",
    ),
    "repeat": Check(
        "a cache of repeated sequences: as a new one",
        partial(changed, name="batch_repeat_interleave", argument=2, rows=[0, 0, 1, 1]),
        "batch_repeat_interleave repeats keys and values, but not the state",
    ),
    "reset": Check(
        "reset: as a new cache", reset, "reset empties keys and values, but not the state"
    ),
    "static": Check(
        "a static cache: as a dynamic one",
        static,
        "a step with a static cache reads or writes the wrong slot, or takes empty slots for tokens",
    ),
    "compiled": Check(
        "compiled steps: as steps that are not compiled",
        compiled,
        "a number of the first step is fixed in the compiled code, or the code has a branch for compilation",
        ("static",),
    ),
}
