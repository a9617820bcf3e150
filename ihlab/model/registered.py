"""Attention from outside the package, by the name that a config knows it by. No torch here."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ihlab.model.config import VARIANTS
from tasks.config import require, shown

ATTENTIONS: dict[str, Callable[..., Any]] = {}
"""Registered attention constructors, by value of `ModelConfig.attention`."""


def register_attention(name: str, attention: Any, shifts: str = "vanilla", mixes_tokens: bool = False) -> Any:
    """Make a class or function an attention that `ModelConfig(attention=name)` asks for, and return it.

    `attention(cfg, generator, layer)` returns a `torch.nn.Module` whose forward takes the normalised residual stream
    [batch, pos, d_model] and returns what is added to it. A subclass of `ihlab.model.attention.Attention` has all that
    the package's own tools read; of any other module they read what it has (`docs/extend.md`). Its hook points are
    named with the model's.

    - `shifts`: the variant (of `VARIANTS`) whose shifts of keys, values and queries it has: a subclass makes them;
    - `mixes_tokens`: True if keys or values hold earlier tokens as alpha and beta do not describe, so that no
      effective pattern is exact.

    Its draws from torch's global generator are seeded by the model's seed. Raises `ConfigError` for a name taken by
    a variant of the package or another class, for another call signature, and for an unknown `shifts`.
    """
    title = getattr(attention, "__name__", shown(attention))
    require(
        isinstance(name, str) and name.isprintable() and bool(name.strip()),
        f"The name of an attention is {shown(name)}, but must be a printable string.",
    )
    require(callable(attention), f"{title} is not a class or function, so it cannot be registered as an attention.")
    known = {
        kind for kind, variant in VARIANTS.items() if kind == "vanilla" or (variant.kinds and kind not in ATTENTIONS)
    }
    require(shifts in known, f"shifts is {shown(shifts)}, but must be one of {', '.join(map(repr, sorted(known)))}.")
    there = ATTENTIONS.get(name)
    same = there is None or _origin(there) == _origin(attention)
    require(
        (name not in VARIANTS or name in ATTENTIONS) and same,
        f"There is an attention '{name}' already{'' if same else f', {there.__name__}'}: {title} needs another name.",  # type: ignore[union-attr]
    )
    try:
        inspect.signature(attention).bind("cfg", "generator", 0)
    except (TypeError, ValueError):
        fits = False
    else:
        fits = True
    require(fits, f"{title} cannot be called as {title}(cfg, generator, layer), as a model calls it for each layer.")
    ATTENTIONS[name] = attention
    VARIANTS[name] = replace(VARIANTS[shifts], name=name, elsewhere=VARIANTS[shifts].elsewhere or mixes_tokens)
    return attention


def _origin(attention: Any) -> tuple[Any, Any]:
    """Return an identity that stays the same when a class is redefined, as by running a notebook's cell twice."""
    return getattr(attention, "__module__", None), getattr(attention, "__qualname__", id(attention))
