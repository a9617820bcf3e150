"""The attention variants: every value of `ModelConfig.attention`, built-in or registered. No torch
is imported here.
"""

import difflib
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tasks.config import ConfigError, require, shown


class Limit(NamedTuple):
    """The values of a field of `ModelConfig` that a variant allows, and why it allows no others."""

    field: str
    allowed: tuple[Any, ...]
    why: str

    def check(self, cfg: Any) -> None:
        """Raise `ConfigError` if the config has a value that is not allowed."""
        value = getattr(cfg, self.field)
        require(
            value in self.allowed,
            f"ModelConfig.{self.field} is {shown(value)}, but attention={cfg.attention!r} {self.why}: it must be "
            f"{' or '.join(map(repr, self.allowed))}.",
        )


class Rule(NamedTuple):
    """A constraint on a row of mixing weights: numbers from `low` to `high`, which sum to 1 if they
    are `tied`.

    A tied row has fewer parameters than columns, so one column cannot be frozen while another
    changes.
    """

    low: float = -math.inf
    high: float = math.inf
    tied: bool = False


RULES = {
    "free": Rule(),
    "gate": Rule(0.001, 0.999, tied=True),
    "sum1": Rule(tied=True),
    "clip": Rule(0.0, 1.0),
    "project": Rule(0.0, 1.0),
}
"""Every rule, keyed by name. `ihlab.model.shift.SHIFT_RULES` has a class for each."""


@dataclass(frozen=True)
class Variant:
    """An attention variant: its readable title, its class, and how it shifts keys, values and
    queries.

    - `attention`: "module:name" of its class in ihlab.model, or of a function that makes it,
      imported when a model is built; or the registered object;
    - `key`, `value`, `query`: the rule (of `RULES`) of their mixing weights; None: not shifted;
    - `mixes_tokens`: True if keys or values hold earlier tokens in a way that alpha and beta do not
      describe;
    - `limits`: the fields of `ModelConfig` that it restricts to some of their values;
    - `head_multiple`: d_head must be a multiple of this number.
    """

    title: str
    attention: str | Callable[..., Any] = "attention:Attention"
    key: str | None = None
    value: str | None = None
    query: str | None = None
    mixes_tokens: bool = False
    limits: tuple[Limit, ...] = ()
    head_multiple: int = 1

    @property
    def rules(self) -> dict[str, str]:
        """The rule of each learned mixing weight: "alpha" (keys), "beta" (values) and "gamma"
        (queries).
        """
        sides = {"alpha": self.key, "beta": self.value, "gamma": self.query}
        return {name: rule for name, rule in sides.items() if rule is not None}

    @property
    def registered(self) -> bool:
        """True if the variant was added by `register_attention`."""
        return not isinstance(self.attention, str)


_GATE = Limit("shift_window", (2,), "has a gate, which chooses between two tokens")


def _kv(title: str, rule: str, *limits: Limit) -> Variant:
    return Variant(title, key=rule, value=rule, limits=limits)


VARIANTS = {
    "vanilla": Variant("vanilla attention"),
    "kv_shift": _kv("KV shifting attention", "free"),
    "k_shift": Variant("K-only shifting attention", key="free"),
    "v_shift": Variant("V-only shifting attention", value="free"),
    "qkv_shift": Variant("QKV shifting attention", key="free", value="free", query="free"),
    "kv_gate": _kv("KV shifting gate", "gate", _GATE),
    "kv_sum1": _kv("KV shifting, weights sum to 1", "sum1"),
    "kv_clip": _kv("KV shifting, weights clipped to 0-1", "clip"),
    "kv_project": _kv("KV shifting, weights projected to 0-1", "project"),
    "key_offset": Variant(
        "partial key offset",
        "variants.partial_offset:PartialOffsetAttention",
        mixes_tokens=True,
        limits=(
            Limit("rotary_frequencies", (None,), "rotates in its own way"),
            Limit("rotary_scale", (1.0,), "rotates in its own way"),
        ),
        head_multiple=4,
    ),
}
"""Every attention variant by its name in a config, in the order of the command line's help. A
built-in variant is one line here. If it has its own parameters or formula, it is also a subclass of
`Attention` in its own file."""


def require_attention(name: str) -> None:
    """Raise `ConfigError` for an attention that is neither built in nor registered in this process."""
    if name in VARIANTS:
        return
    near = difflib.get_close_matches(str(name), VARIANTS, n=1)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    raise ConfigError(
        f"ModelConfig.attention is {shown(name)}{hint}, but must be one of {', '.join(map(repr, VARIANTS))}; for "
        "your own, import its module and call ihlab.register_attention with this name."
    )


def register_attention(
    name: str, attention: Any, shifts: str = "vanilla", mixes_tokens: bool = False
) -> Any:
    """Register a class or function as the attention of `ModelConfig(attention=name)`, and return
    it.

    `attention(cfg, generator, layer)` returns a `torch.nn.Module` whose forward takes the
    normalised residual stream [batch, pos, d_model] and returns the vectors to add to the residual
    stream. The package's tools work fully on a subclass of `ihlab.model.attention.Attention`; on
    any other module they use the attributes that it has (`docs/extend.md`). The model names the
    attention's hook points.

    - `shifts`: the variant (of `VARIANTS`) whose shifts of keys, values and queries a subclass of
      `Attention` gets;
    - `mixes_tokens`: True if keys or values hold earlier tokens in a way that alpha and beta do not
      describe. Then no effective pattern is exact.

    While it is made, the model's seed seeds torch's global generator. Raises `ConfigError` for a
    name that a built-in variant or another class has, for another call signature, and for an
    unknown `shifts`.
    """
    title = getattr(attention, "__name__", shown(attention))
    require(
        isinstance(name, str) and name.isprintable() and bool(name.strip()),
        f"The name of an attention is {shown(name)}, but must be a printable string.",
    )
    require(
        callable(attention),
        f"{title} is not a class or function, so it cannot be registered as an attention.",
    )
    known = [
        known
        for known, of in VARIANTS.items()
        if not of.registered and (of.rules or known == "vanilla")
    ]
    require(
        shifts in known,
        f"shifts is {shown(shifts)}, but must be one of {', '.join(map(repr, sorted(known)))}.",
    )
    there = VARIANTS[name].attention if name in VARIANTS else attention
    taken = "" if isinstance(there, str) else f", {there.__name__}"
    require(
        not isinstance(there, str) and _origin(there) == _origin(attention),
        f"There is an attention '{name}' already{taken}: {title} needs another name.",
    )
    try:
        inspect.signature(attention).bind("cfg", "generator", 0)
    except (TypeError, ValueError):
        raise ConfigError(
            f"{title} cannot be called as {title}(cfg, generator, layer), as a model calls it for each layer."
        ) from None
    VARIANTS[name] = replace(
        VARIANTS[shifts],
        title=name,
        attention=attention,
        mixes_tokens=VARIANTS[shifts].mixes_tokens or mixes_tokens,
    )
    return attention


def _origin(attention: Any) -> tuple[Any, Any]:
    """Return a key that stays the same when a class is redefined, for example by running a notebook
    cell twice.
    """
    return getattr(attention, "__module__", None), getattr(attention, "__qualname__", id(attention))
