"""Make the attention that a config names."""

import inspect
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

import torch
from torch import nn

from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.registry import VARIANTS, require_attention
from ihlab.model.shift import spawned
from tasks.config import require


def make_attention(
    cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
) -> Attention:
    """Return the attention that `cfg.attention` names; `generator` draws its weights, except those
    of linear maps.

    Raises `ConfigError` for an unregistered name, and for a registered function that does not
    return a module.
    """
    require_attention(cfg.attention)
    attention = VARIANTS[cfg.attention].attention
    if isinstance(attention, str):
        return resolve_name(f"ihlab.model.{attention}")(cfg, generator, layer)
    return _registered(attention, cfg, generator, layer)


def _registered(
    attention: Callable[..., Any], cfg: ModelConfig, generator: torch.Generator | None, layer: int
) -> Any:
    """Make a registered attention. It may be any module; tools read the attributes that it has."""
    with torch.random.fork_rng(devices=[]):  # its random numbers depend only on the model's seed
        seeded = spawned(generator, layer, 5)  # Canon layers use the keys 1 to 4
        torch.manual_seed(layer if seeded is None else seeded.initial_seed())
        module = attention(cfg, generator, layer)
    require(
        isinstance(module, nn.Module),
        f"The attention '{cfg.attention}' made a {type(module).__name__}, but must make a torch.nn.Module.",
    )
    buffers = sorted(
        module.state_dict().keys() - dict(module.named_parameters(remove_duplicate=False)).keys()
    )
    require(
        not buffers,
        f"The attention '{cfg.attention}' has the persistent buffer '{', '.join(buffers)}', but checkpoints hold "
        "parameters only: register it with persistent=False if it can be made again, else make it a parameter.",
    )
    require(
        not cfg.shifted or isinstance(module, Attention),
        f"The attention '{cfg.attention}' is registered with shifts of keys or values, but {type(module).__name__} is "
        "not a subclass of ihlab.model.attention.Attention, which makes them.",
    )
    return module


def reads_queries_alone(attention: nn.Module) -> bool:
    """Return True if `queries`, `keys_values` and `read` at some positions give the results of
    `forward` there.

    A class that overrides `forward` must set `queries_alone` itself.
    """
    if not isinstance(attention, Attention):
        return False
    cls = type(attention)
    return attention.queries_alone and (
        cls.forward is Attention.forward or "queries_alone" in vars(cls)
    )


def require_decodable(attention: nn.Module) -> None:
    """Raise `ConfigError` for an attention whose forward takes no cache."""
    require(
        takes_cache(attention),
        f"The forward of {type(attention).__name__} takes no cache, so it cannot continue a sequence: call the model "
        "on the whole sequences, or give it a second argument, cache.",
    )


def takes_cache(attention: nn.Module) -> bool:
    """Return True if the forward of an attention has the argument `cache`."""
    return "cache" in inspect.signature(type(attention).forward).parameters
