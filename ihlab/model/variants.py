"""The attention variants: every value of `ModelConfig.attention`, built-in or registered. No torch here."""

import difflib
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tasks.config import require, shown


class Rule(NamedTuple):
    """A constraint on a row of mixing weights: numbers from `low` to `high`, which sum to 1 if they are `tied`.

    Tied columns have fewer free parameters than columns, so one cannot be frozen while another changes.
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
    "frozen": Rule(),
    "frozen_unit": Rule(),
}
"""The rules by name. `ihlab.model.shift.SHIFT_RULES` has a class for each."""


@dataclass(frozen=True)
class Variant:
    """An attention variant: its readable title, its class, and how it shifts keys, values and queries.

    - `attention`: "module:name" of its class, imported when a model is built, or the registered object;
    - `key`, `value`, `query`: the rule (of `RULES`) of their mixing weights; None: not shifted;
    - `fixed`: mixing weights that the attention has but does not learn;
    - `elsewhere`: True if keys or values hold earlier tokens in a way that alpha and beta do not describe;
    - `recurrent`: True for a recurrence, which has no attention scores and no pattern.
    """

    title: str
    attention: str | Callable[..., Any] = "ihlab.model.attention:Attention"
    key: str | None = None
    value: str | None = None
    query: str | None = None
    fixed: tuple[str, ...] = ()
    elsewhere: bool = False
    recurrent: bool = False

    @property
    def rules(self) -> dict[str, str]:
        """The rule of each learned mixing weight: "alpha" (keys), "beta" (values) and "gamma" (queries)."""
        sides = {"alpha": self.key, "beta": self.value, "gamma": self.query}
        return {name: rule for name, rule in sides.items() if rule is not None}

    @property
    def registered(self) -> bool:
        """True if it comes from `register_attention`."""
        return not isinstance(self.attention, str)


def _kv(title: str, rule: str) -> Variant:
    return Variant(title, key=rule, value=rule)


def _recurrence(title: str, attention: str) -> Variant:
    return Variant(title, attention, recurrent=True)


_LATENT = "ihlab.model.mla:LatentAttention"

VARIANTS = {
    "vanilla": Variant("vanilla attention"),
    "kv_shift": _kv("KV shifting attention", "free"),
    "k_shift": Variant("K-only shifting attention", key="free"),
    "v_shift": Variant("V-only shifting attention", value="free"),
    "qkv_shift": Variant("QKV shifting attention", key="free", value="free", query="free"),
    "kv_gate": _kv("KV shifting gate", "gate"),
    "kv_sum1": _kv("KV shifting, weights sum to 1", "sum1"),
    "kv_clip": _kv("KV shifting, weights clipped to 0-1", "clip"),
    "kv_project": _kv("KV shifting, weights projected to 0-1", "project"),
    "kv_frozen": _kv("KV shifting, weights frozen", "frozen"),
    "kv_frozen_unit": _kv("KV shifting, weights frozen at norm 1", "frozen_unit"),
    "mla": Variant("multi-head latent attention", _LATENT),
    "mla_kv": Variant("multi-head latent attention, a key and a value shifted", _LATENT, fixed=("alpha", "beta")),
    "differential": Variant("differential attention", "ihlab.model.differential:DifferentialAttention"),
    "selective": Variant("selective attention", "ihlab.model.selective:SelectiveAttention"),
    "rwkv_shift": Variant("RWKV's token shift", "ihlab.model.rwkv:RWKVAttention", elsewhere=True),
    "mdha": Variant("Primer's multi-DConv-head attention", "ihlab.model.primer:PrimerAttention", elsewhere=True),
    "partial_rotary": Variant("attention, half of a head rotated", "ihlab.model.partial_offset:PartialRotaryAttention"),
    "key_offset": Variant("partial key offset", "ihlab.model.partial_offset:PartialOffsetAttention", elsewhere=True),
    "multi_token": Variant("multi-token attention", "ihlab.model.multi_token:MultiTokenAttention", elsewhere=True),
    "input_gate": Variant("KV shifting gate of the input", "ihlab.model.input_gate:GatedAttention", elsewhere=True),
    "forgetting": Variant("forgetting attention", "ihlab.model.forgetting:ForgettingAttention"),
    "output_gate": Variant("attention with an output gate", "ihlab.model.output_gate:OutputGatedAttention"),
    "gated_linear": _recurrence("gated linear recurrence", "ihlab.model.recurrence:LinearRecurrence"),
    "gated_delta": _recurrence("gated delta rule", "ihlab.model.delta_rule:GatedDeltaRule"),
    "trapezoid": _recurrence("trapezoidal recurrence", "ihlab.model.trapezoid:Trapezoid"),
}
"""Every attention variant by its name in a config, in the order of the command line's help. A built-in variant is one
line here. If it has its own parameters or formula, it is also a subclass of `Attention` in its own file."""


def require_attention(name: str) -> None:
    """Raise `ConfigError` for an attention that is neither built in nor registered in this process."""
    near = difflib.get_close_matches(str(name), VARIANTS, n=1)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    require(
        name in VARIANTS,
        f"ModelConfig.attention is {shown(name)}{hint}, but must be one of {', '.join(map(repr, VARIANTS))}; for "
        "your own, import its module and call ihlab.register_attention with this name.",
    )


def register_attention(name: str, attention: Any, shifts: str = "vanilla", mixes_tokens: bool = False) -> Any:
    """Register a class or function as the attention of `ModelConfig(attention=name)`, and return it.

    `attention(cfg, generator, layer)` returns a `torch.nn.Module` whose forward takes the normalised residual stream
    [batch, pos, d_model] and returns the vectors to add to the residual stream. The package's tools work fully on a
    subclass of `ihlab.model.attention.Attention`; on any other module they use the attributes that it has
    (`docs/extend.md`). Its hook points are named with the model's.

    - `shifts`: the variant (of `VARIANTS`) whose shifts of keys, values and queries a subclass of `Attention` gets;
    - `mixes_tokens`: True if keys or values hold earlier tokens in a way that alpha and beta do not describe. Then no
      effective pattern is exact.

    Its draws from torch's global generator are seeded by the model's seed. Raises `ConfigError` for a name that a
    built-in variant or another class has, for another call signature, and for an unknown `shifts`.
    """
    title = getattr(attention, "__name__", shown(attention))
    require(
        isinstance(name, str) and name.isprintable() and bool(name.strip()),
        f"The name of an attention is {shown(name)}, but must be a printable string.",
    )
    require(callable(attention), f"{title} is not a class or function, so it cannot be registered as an attention.")
    known = [known for known, of in VARIANTS.items() if not of.registered and (of.rules or known == "vanilla")]
    require(shifts in known, f"shifts is {shown(shifts)}, but must be one of {', '.join(map(repr, sorted(known)))}.")
    there = VARIANTS[name].attention if name in VARIANTS else attention
    taken = "" if isinstance(there, str) else f", {there.__name__}"
    require(
        not isinstance(there, str) and _origin(there) == _origin(attention),
        f"There is an attention '{name}' already{taken}: {title} needs another name.",
    )
    try:
        inspect.signature(attention).bind("cfg", "generator", 0)
    except (TypeError, ValueError):
        fits = False
    else:
        fits = True
    require(fits, f"{title} cannot be called as {title}(cfg, generator, layer), as a model calls it for each layer.")
    VARIANTS[name] = replace(
        VARIANTS[shifts], title=name, attention=attention, elsewhere=VARIANTS[shifts].elsewhere or mixes_tokens
    )
    return attention


def _origin(attention: Any) -> tuple[Any, Any]:
    """Return a key that stays the same when a class is redefined, for example by running a notebook cell twice."""
    return getattr(attention, "__module__", None), getattr(attention, "__qualname__", id(attention))
