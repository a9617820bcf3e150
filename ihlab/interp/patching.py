"""Path patching: the direct effect of one head on another, through its queries, keys or values.

For activation patching, use `transformer_lens.patching`, which works on our models unchanged.
TransformerLens' path patching (`get_act_patch_direct_path`) does not work on them: it needs one
copy of the residual stream per head, and rejects grouped keys and values. This module makes the
same intervention on our hook points.
"""

from collections.abc import Callable
from itertools import product

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import ActivationCache

from ihlab.interp.ablation import Head, replacement, replacer
from ihlab.interp.checks import require_heads, require_routes, transformer_only
from ihlab.interp.patterns import effective_pattern, gauge_fixed
from ihlab.measure.probe import padding_id
from ihlab.model.lens.padding import mask_of
from ihlab.model.transformer import Transformer
from ihlab.runtime.modes import in_eval_mode
from tasks.config import choose, require, shown

INTO = ("q", "k", "v")


@transformer_only
@in_eval_mode
def path_patch(
    model: Transformer,
    tokens: Int[Tensor, "batch pos"],
    source: Int[Tensor, "source_batch source_pos"],
    sender: Head,
    receiver: Head,
    into: str,
) -> Float[Tensor, "batch pos d_vocab"]:
    """Return the logits on `tokens` with the direct path from sender to receiver patched from
    `source`.

    Direct path patching (Wang et al. 2023, arXiv 2211.00593). Heads are (layer, head), the receiver
    in a later layer. At every position, the receiver's queries, keys or values (`into`: "q", "k",
    "v") are computed from

        residual stream + (sender's output on `source`) - (sender's output on `tokens`),

    through the receiver's own norm and shift. The receiver's other two inputs, the other heads, and
    the MLPs in between read the sender's output on `tokens`. Head numbers are those of query heads:
    if several heads share keys and values, only the receiver reads the patched ones. Padding must
    come last in a sequence: then no token reads it. Raises `ConfigError` for heads that do not
    exist, a receiver not after the sender, a layer without a residual connection between them, and
    a source of another shape.
    """
    choose("input of a head", into, INTO)
    _check(model, tokens, source, sender, receiver)
    change = _exchanged(model, tokens, source, sender)
    z = _patched(model, tokens, change, receiver[0], into)["z", receiver[0]]
    return _with_z(model, tokens, z, receiver)


@transformer_only
@in_eval_mode
@torch.no_grad()
def path_effects(
    model: Transformer,
    tokens: Int[Tensor, "batch pos"],
    source: Int[Tensor, "source_batch source_pos"],
    metric: Callable[[Float[Tensor, "batch pos d_vocab"]], Tensor],
) -> pd.DataFrame:
    """Patch every path from a head to a head of a later layer. The table has one row per path.

    Columns: sender_layer, sender_head, receiver_layer, receiver_head, into, value (the metric with
    the path patched) and effect (value minus the metric of the clean run). The metric should leave
    out padding. Raises `ConfigError` as `path_patch` does.
    """
    before = float(metric(model(tokens)))
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    require(
        n_layers >= 2, f"The model has {n_layers} layer, but a path between heads needs at least 2."
    )
    rows = []
    for sender in product(range(n_layers - 1), range(n_heads)):
        _check(model, tokens, source, sender, (n_layers - 1, 0))
        change = _exchanged(model, tokens, source, sender)
        for layer, name in product(range(sender[0] + 1, n_layers), INTO):
            z = _patched(model, tokens, change, layer, name)["z", layer]
            for head in range(n_heads):
                value = float(metric(_with_z(model, tokens, z, (layer, head))))
                rows.append((*sender, layer, head, name, value, value - before))
    ends = ["sender_layer", "sender_head", "receiver_layer", "receiver_head"]
    return pd.DataFrame(rows, columns=[*ends, "into", "value", "effect"])


def _exchanged(
    model: Transformer, tokens: Tensor, source: Tensor, sender: Head
) -> Callable[[Tensor], Tensor]:
    """Return a function of the residual stream that replaces a head's output on `tokens` by its
    output on `source`.
    """
    name = f"blocks.{sender[0]}.attn.hook_result"
    on_source, on_tokens = (
        model.run_with_cache(each, names_filter=name)[1][name][:, :, sender[1]]
        for each in (source, tokens)
    )
    change = on_source - on_tokens
    return lambda resid: resid + change


def _patched(
    model: Transformer,
    tokens: Tensor,
    change: Callable[[Tensor], Tensor],
    layer: int,
    into: str,
) -> ActivationCache:
    """Return a layer's pattern and z, with only its q, k or v (`into`) read from the changed
    residual stream.

    The first run computes that input from the changed residual stream. The second patches it into a
    clean run.
    """
    name = f"blocks.{layer}.attn.hook_{into}"
    names = [f"blocks.{layer}.attn.hook_{kind}" for kind in ("pattern", "z")]
    with model.hooks(
        fwd_hooks=[(f"blocks.{layer}.hook_resid_pre", lambda resid, hook: change(resid))]
    ):
        _, changed = model.run_with_cache(tokens, names_filter=name)
    with model.hooks(fwd_hooks=[(name, lambda _, hook: changed[name])]):
        return model.run_with_cache(tokens, names_filter=names)[1]


def _with_z(model: Transformer, tokens: Tensor, z: Tensor, head: tuple[int, int]) -> Tensor:
    of_z = replacer([head[1]], z)
    return model.run_with_hooks(
        tokens, fwd_hooks=[(f"blocks.{head[0]}.attn.hook_z", lambda z, hook: of_z(z))]
    )


def require_direct_paths(model: Transformer, early: int, late: int) -> None:
    """Raise `ConfigError` if no path runs directly from a head of layer `early` to a head of layer
    `late`.
    """
    cfg = model.cfg
    require(
        cfg.stream_shift != "added" and "O" not in cfg.canon,
        f"The model has stream_shift={cfg.stream_shift!r} and canon={cfg.canon!r}: 'added' and 'O' carry what heads "
        "write to later tokens, so no path between heads is direct.",
    )
    replaced = replacing_layers(model, early, late)
    require(
        not replaced,
        f"Layer {replaced[0] if replaced else ''} has no residual connection: nothing passes directly from layer "
        f"{early} to layer {late}.",
    )


def require_plain_output(model: Transformer, layer: int) -> None:
    """Raise `ConfigError` if a hook acts between a layer's heads and the residual stream."""
    for name, part in model.layers[layer].named_modules():
        require(
            name not in ("attn", "attn.o_proj", "attn.hook_result", "hook_attn_out")
            or not (part._forward_hooks or part._forward_pre_hooks),
            f"Layer {layer} has a hook at {name}, so what its heads write is not what later heads read: remove it.",
        )


def _check(
    model: Transformer, tokens: Tensor, source: Tensor, sender: Head, receiver: Head
) -> None:
    require_heads(model.cfg, [sender, receiver])
    require(
        sender[0] < receiver[0],
        f"The receiver {receiver} is not in a later layer than the sender {sender}.",
    )
    require_direct_paths(model, sender[0], receiver[0])
    require_plain_output(model, sender[0])
    for name, ids in (("tokens", tokens), ("source", source)):
        require(
            isinstance(ids, Tensor),
            f"{name} is {shown(ids)}, but must be a tensor of ids [batch, pos].",
        )
    require(
        tokens.shape == source.shape,
        f"source is {list(source.shape)}, but must have the shape of tokens, {list(tokens.shape)}.",
    )


@transformer_only
@in_eval_mode
@torch.no_grad()
def without_key_path(
    model: Transformer,
    tokens: Int[Tensor, "batch pos"],
    sender: Head,
    receiver: Head,
) -> tuple[Float[Tensor, "batch query key"], Float[Tensor, "batch pos d_head"]]:
    """Return the receiver's effective pattern (gauge fixed) and z with the sender's direct path to
    its keys ablated.

    The sender is mean-ablated as in `ablate_heads`, and the change of its output is subtracted from
    the residual stream before the receiver's layer. Only the receiver's keys are computed from the
    result. Its queries and values, and every other head, are those of the clean run. Only the
    direct path is ablated: what later layers compute from the sender's output still arrives. With
    grouped-query attention, other heads of the receiver's group keep their keys. The mean leaves
    out the padding of the model's task. Raises `ConfigError` for heads that do not exist or a
    receiver not in a later layer, and as `require_routes` does.
    """
    require_routes(model.cfg)
    require_heads(model.cfg, [sender, receiver])
    (early, sending), (late, head) = sender, receiver
    require(
        early < late,
        f"The path runs from head {early}.{sending} to {late}.{head}, but must run to a later layer.",
    )
    real = mask_of(tokens, padding=padding_id(model))
    z = model.run_with_cache(tokens, names_filter=f"blocks.{early}.attn.hook_z")[1]["z", early]
    W_O = model.layers[early].attn.W_O[sending]
    output = (z - replacement(z, "mean", real=real))[:, :, sending] @ W_O
    if replacing_layers(model, early, late):
        output = torch.zeros_like(output)
    patched = _patched(model, tokens, lambda resid: resid - output, late, "k")
    pattern, attn = patched["pattern", late], model.layers[late].attn
    if attn.value_shift is not None:
        pattern = effective_pattern(pattern, gauge_fixed(attn.beta))
    return pattern[:, head], patched["z", late][:, :, head]


def replacing_layers(model: Transformer, early: int, late: int) -> list[int]:
    """Return the layers without a residual connection, which cut every direct path from `early` to
    `late`.

    In such a layer, attention (between the two layers) or an MLP (from `early` on) replaces the
    residual stream.
    """
    first = early + (1 if model.cfg.attn_only else 0)
    return [layer for layer in range(first, late) if not model.cfg.residual_in(layer)]
