"""Shifted attention: an attention module of transformers whose `k_proj` and `v_proj` return mixed
keys and values.

The module's own forward runs unchanged, on a stand-in whose two projections also shift. A forward
pass leaves no state on the model: vectors that later tokens need are in the cache.
"""

import inspect
from collections import Counter
from contextlib import ExitStack
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from ihlab.hf.cache import RawStates, shift_layer
from ihlab.hf.links import Links, find_links, links_of_mask
from ihlab.hf.pickled import pickled_by
from ihlab.hf.shift import Taps
from ihlab.runtime.modes import evaluating
from tasks.config import ConfigError, require

SHIFT = "shift_norm"
"""Name of the shift module. It ends in "_norm" because transformers' Trainer exempts weights from
decay by name.
"""


class _Projecting:
    """A stand-in for an attention whose `k_proj` and `v_proj` also shift. All other attributes are
    the attention's.
    """

    def __init__(self, attention: Any, links: Links, layer: RawStates | None) -> None:
        self._attention, self._links, self._layer = attention, links, layer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._attention, name)

    def k_proj(self, hidden: Tensor) -> Tensor:
        return self._shifted("key", self._attention.k_proj(hidden))

    def v_proj(self, hidden: Tensor) -> Tensor:
        return self._shifted("value", self._attention.v_proj(hidden))

    def _shifted(self, side: str, raw: Tensor) -> Tensor:
        shift: Taps = getattr(self._attention, SHIFT)
        if side not in shift.sides:
            return raw
        back = shift.window - 1
        if self._layer is None:
            raw_states = nn.functional.pad(raw, (0, 0, back, 0))
        else:
            raw_states = self._layer.exchange(side, raw, self._links, back)
        return shift(side, raw, self._links, raw_states)


@lru_cache
def shifted_attention(base: Any) -> type[nn.Module]:
    """Return a subclass of an attention class that shifts keys and values. Raises `ConfigError` if
    it cannot.
    """
    parameters = inspect.signature(base.forward).parameters
    require(
        "past_key_values" in parameters
        and any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()),
        f"{base.__name__}.forward takes no past_key_values or no further keyword arguments, so it cannot be shifted.",
    )

    class Shifted(base):
        stores_numbers = False  # only the first attention of a model does
        __reduce_ex__ = pickled_by(shifted_attention, base)

        def forward(
            self,
            hidden_states: Tensor,
            *,
            past_key_values: Any = None,
            kv_shift: Any = None,
            **kwargs: Any,
        ) -> Any:
            require(
                kv_shift is not None,
                f"The layers around {base.__name__} do not pass keyword arguments on to it.",
            )
            layer = (
                None if past_key_values is None else shift_layer(past_key_values, self.layer_idx)
            )
            if self.stores_numbers and layer is not None:
                layer.exchange(
                    "number", kv_shift.numbers, kv_shift, getattr(self, SHIFT).window - 1
                )
            stand_in = _Projecting(self, kv_shift, layer)
            return base.forward(stand_in, hidden_states, past_key_values=past_key_values, **kwargs)

    Shifted.__name__ = Shifted.__qualname__ = f"Shifted{base.__name__}"
    return Shifted


def attentions(model: nn.Module) -> list[Any]:
    """Return the parts of a model that have a `k_proj` and a `v_proj`."""
    names = ("k_proj", "v_proj")
    return [
        module
        for module in model.modules()
        if all(isinstance(getattr(module, name, None), nn.Module) for name in names)
    ]


def require_shiftable(model: Any) -> None:
    """Raise `ConfigError` unless a shifted model runs, with and without a cache, and calls each
    attention once.

    A model on the meta device cannot be run, so it is not checked.
    """
    if model.device.type == "meta":
        return
    name, passes = type(model).__name__.removeprefix("KVShift"), Counter[Any]()
    with ExitStack() as hooks, evaluating(model), torch.no_grad():
        for attention in attentions(model):
            hooks.enter_context(
                attention.register_forward_pre_hook(
                    lambda attention, args: passes.update([attention])
                )
            )
        tokens = torch.zeros(1, 2, dtype=torch.long, device=model.device)
        for use_cache in (False, True):
            try:
                model(input_ids=tokens, use_cache=use_cache)
            except ConfigError as error:
                raise ConfigError(f"The {name} cannot be shifted. {error}") from None
            except Exception as error:  # a model may fail in any way
                said = f"{type(error).__name__}: {error}".splitlines()[0]
                raise ConfigError(
                    f"The {name} cannot be shifted: its forward raises {said}"
                ) from error
    for attention in attentions(model):
        kind = type(attention).__name__.removeprefix("Shifted")
        require(
            passes[attention] == 2,
            f"The {name} cannot be shifted: its tokens do not pass each {kind} exactly once.",
        )


def tell_links(
    decoder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Pass the links of the next tokens to a decoder's layers. This is a forward pre-hook of the
    decoder.
    """
    names = inspect.signature(decoder.forward).parameters if args else ()
    inputs = dict(zip(names, args, strict=False)) | kwargs
    tokens = inputs.get("input_ids")
    tokens = inputs["inputs_embeds"] if tokens is None else tokens
    cache, mask, positions = (
        inputs.get(name) for name in ("past_key_values", "attention_mask", "position_ids")
    )
    window, n, layer = decoder.config.shift_window, tokens.shape[1], 0
    if isinstance(
        mask, dict
    ):  # one for each type of layer, as `generate` prepares them for static caches
        kind = "full_attention" if "full_attention" in mask else next(iter(mask))
        mask, layer = mask[kind], decoder.config.layer_types.index(kind)
    require(
        mask is None or (isinstance(mask, Tensor) and mask.ndim in (2, 4)),
        f"attention_mask is a {type(mask).__name__}, but a shifted model reads a tensor [batch, tokens], 0 at padding, "
        "or [batch, head, query, key].",
    )
    past, hidden = (
        (0, 0)
        if cache is None
        else (cache.get_seq_length(layer), cache.get_mask_sizes(n, layer)[1])
    )
    numbers = past + torch.arange(1, n + 1, device=tokens.device)[:, None].expand(len(tokens), n, 1)
    back = window - 1
    if mask is not None and mask.ndim == 4:
        visible = (
            mask[:, 0] if mask.dtype == torch.bool else mask[:, 0] > torch.finfo(mask.dtype).min / 2
        )
        if cache is None:
            seen = nn.functional.pad(numbers, (0, 0, back, 0))
        else:
            seen = shift_layer(cache, decoder.layer_of_numbers).seen(
                "number", numbers, back, tree=True
            )
        links = links_of_mask(back, n, seen[..., 0] - 1 - hidden, visible)
    else:
        positions = None if positions is None or positions.ndim != 2 else positions
        links = find_links(window, n, past, mask, positions, inputs.get("cu_seq_lens_q"))
    return args, {**kwargs, "kv_shift": links._replace(numbers=numbers)}
