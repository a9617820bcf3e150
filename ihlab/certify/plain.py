"""Refuse models that compute something other than their config and weights say: a proof reads only
these.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook
from transformer_lens.hook_points import HookPoint

from ihlab.certify.tables import require_pairs
from ihlab.interp.sources import opened_model
from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer
from ihlab.runtime.modes import evaluating
from tasks.config import require, shown

TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
FREE = {
    "training", "trained_on", "special_tokens", "tokenizer", "_parameters", "_buffers", "_modules", "hook_dict",
    "mod_dict", "_non_persistent_buffers_set", "_forward_hooks_with_kwargs", "_is_full_backward_hook",
}  # fmt: skip
"""Attributes that are compared by themselves, or that change no logit."""
TRIED = 32
"""Number of tokens on which a model is compared with a new model of its weights."""


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Run torch on one thread. In a forked process its other threads do not exist, and it would
    wait for them.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def opened_transformer(source: Any) -> Transformer:
    """Return the `Transformer` of a source. Raises `ConfigError` for another class of model."""
    require(
        not hasattr(source, "_orig_mod"),
        "The source is a compiled wrapper, which can do more than its weights say: give the model itself.",
    )
    model = opened_model(source).module
    require(
        type(model) is Transformer,
        f"The model is a {type(model).__name__}, but a proof needs a Transformer: convert it.",
    )
    assert isinstance(model, Transformer)
    require(
        type(model.cfg) is ModelConfig,
        f"model.cfg is a {type(model.cfg).__name__}, but must be a ModelConfig.",
    )
    require_pairs(model)
    return model


@torch.no_grad()
def plain_copy(model: Transformer, n_ctx: int) -> Transformer:
    """Return a new model with the same config and weights, in float64 on the CPU, with a larger
    n_ctx if needed.

    Raises `ConfigError`, with the reason, for what the given model has beyond such a new model:
    hooks, replaced modules, methods or settings, buffers that differ from their formula, and
    weights that are not finite. Changes of the package's own classes are not seen.
    """
    fresh = Transformer(model.cfg)
    _require_same_parts(model, fresh)
    _require_same_tensors(model, fresh)
    weights = {name: weight.detach().cpu().double() for name, weight in model.named_parameters()}
    fresh = _loaded(fresh, weights)
    _require_same_logits(model, fresh)
    if n_ctx <= model.cfg.n_ctx or model.pos_embed is not None:
        return fresh
    return _loaded(Transformer(model.cfg.replace(n_ctx=n_ctx)), weights)


def longer(model: Transformer, length: int) -> Transformer:
    """Return the model, or a copy that reads `length` tokens. Learned positions cannot be extended."""
    if length <= model.cfg.n_ctx:
        return model
    copy = Transformer(model.cfg.replace(n_ctx=length)).to(model.embed.weight).eval()
    copy.load_state_dict(model.state_dict())
    return copy


def _loaded(fresh: Transformer, weights: dict[str, Tensor]) -> Transformer:
    """Fill a new model with weights. Tied weights are stored once, and missing in `weights` a
    second time.
    """
    fresh.double().eval()
    parameters = dict(fresh.named_parameters())
    for name, weight in weights.items():
        parameters[name].copy_(weight)
    return fresh


def _require_same_parts(model: Transformer, fresh: Transformer) -> None:
    _require_no_hooks(model)
    expected = dict(fresh.named_modules())
    parts = dict(model.named_modules())
    _require_same_names("modules", parts, expected)
    for name, module in parts.items():
        where = f"The model's {name or 'network'}"
        require(
            type(module) is type(expected[name]),
            f"{where} is a {type(module).__name__}, but by its config a {type(expected[name]).__name__}.",
        )
        for key, value in vars(module).items():
            if key in FREE:
                continue
            own = vars(expected[name])
            require(
                key in own,
                f"{where} has its own attribute {key}, which its class does not set: remove it.",
            )
            same = isinstance(module, HookPoint) or _outline(value) == _outline(own[key])
            require(same, f"{where} has {key}={shown(value)}, but by its config {shown(own[key])}.")
        still = not module.training or model.cfg.dropout == 0
        require(still, f"{where} is in training mode with dropout: call eval().")


def _require_same_names(what: str, given: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    odd = sorted(given.keys() ^ expected.keys())
    require(
        not odd,
        f"The model's {what} are not those of its config: {odd[:1]} is too many or missing.",
    )


def _require_no_hooks(model: nn.Module) -> None:
    require(
        not _has_any_global_hook(),
        "torch has a global module hook, but a proof speaks of the weights alone.",
    )
    for name, module in model.named_modules():
        hooked = module._forward_hooks or module._forward_pre_hooks
        where = name or "network"
        require(
            not hooked,
            f"The model's {where} has a hook, but a proof speaks of the weights alone: remove it.",
        )


def _outline(value: Any) -> Any:
    """Return what can be compared of an attribute: plain values, and the same of what containers
    hold.
    """
    if isinstance(value, Mapping):
        return type(value), [(key, _outline(each)) for key, each in value.items()]
    if isinstance(value, list | tuple | set):
        return type(value), [_outline(each) for each in value]
    plain = isinstance(value, bool | int | float | str | None)
    return (type(value), value) if plain else type(value)


def _require_same_tensors(model: Transformer, fresh: Transformer) -> None:
    expected = dict(fresh.named_parameters())
    weights = dict(model.named_parameters())
    _require_same_names("weights", weights, expected)
    dtype = model.embed.weight.dtype
    require(
        dtype in TYPES,
        f"The weights are {dtype}, but must be of one of these types: {shown(TYPES)}.",
    )
    for name, weight in weights.items():
        usual = (
            type(weight) is nn.Parameter
            and weight.dtype == dtype
            and weight.shape == expected[name].shape
            and weight.device.type != "meta"
            and weight.layout == torch.strided
        )
        require(
            usual,
            f"The weight {name} is a {type(weight).__name__} of {list(weight.shape)} {weight.dtype} "
            f"on {weight.device}, but must be a parameter of {list(expected[name].shape)} {dtype}.",
        )
        finite = bool(torch.isfinite(weight).all())
        require(
            finite,
            f"The weight {name} has a number that is NaN or infinite: nothing can be proved of it.",
        )
    buffers = dict(model.named_buffers())
    for name, formula in fresh.named_buffers():
        buffer = buffers.get(name)
        require(
            buffer is not None
            and buffer.dtype in (formula.dtype, dtype)
            and torch.equal(buffer.cpu(), formula.to(buffer.dtype)),
            f"The buffer {name} differs from its formula, from which a proof takes it: make the model anew from its "
            "config and weights.",
        )


@on_one_thread()
def _require_same_logits(model: Transformer, fresh: Transformer) -> None:
    """Compare with a copy in the model's own type: what hides from the checks above may show in the
    logits.
    """
    cfg, weight = model.cfg, model.embed.weight
    copy = Transformer(cfg).to(weight).eval()
    copy.load_state_dict(fresh.state_dict())
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(cfg.d_vocab, (1, min(cfg.n_ctx, TRIED)), generator=generator).to(
        weight.device
    )
    with evaluating(model):
        given, expected = model(tokens).double(), copy(tokens).double()
    finite = expected.isfinite()  # large weights can overflow the type in which the model runs
    apart = (given - expected)[finite].abs()
    near = apart <= 1e-3 * (1 + expected[finite].abs())
    require(
        bool(near.all()),
        "The model's logits are not those of its config and weights: something changes them.",
    )
