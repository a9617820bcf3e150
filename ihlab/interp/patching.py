"""Path patching: what one head tells another, through its queries, keys or values.

Activation patching is TransformerLens' (`transformer_lens.patching`), which works on our models as it is. Its
path patching (`get_act_patch_direct_path`) is not: it needs one copy of the stream for each head and refuses
keys and values that heads share. Here is the same intervention with the hook points there are.
"""

from collections.abc import Callable, Iterable, Sequence

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ihlab.interp.ablation import Head, check_heads, replace_heads, replacement
from ihlab.interp.patterns import effective_pattern, gauge_fixed
from ihlab.model.transformer import Transformer
from tasks.config import choose, require

INTO = ("q", "k", "v")


def path_patch(
    model: Transformer,
    tokens: Int[Tensor, "batch pos"],
    source: Int[Tensor, "source_batch source_pos"],
    sender: tuple[int, int],
    receiver: tuple[int, int],
    into: str,
) -> Float[Tensor, "batch pos d_vocab"]:
    """The logits on `tokens` when one head hears another one as it is on `source`, and nobody else does.

    Direct path patching (Wang et al. 2023, arXiv 2211.00593). Heads are (layer, head), the receiver in a later
    layer. At every position, the receiver's queries, keys or values (`into`: "q", "k", "v") are made from

        stream + (what the sender writes on `source`) - (what it writes on `tokens`),

    through the receiver's own norm and shift; its other two inputs, the other heads, and the MLPs between see the
    sender as it is on `tokens`. Head numbers are those of query heads: a receiver that shares its keys
    and values with others is the only one to read the patched ones. Raises `ConfigError` for heads that do not
    exist, a receiver not after the sender, a stream that is replaced between them, and a source of another shape.
    """
    choose("input of a head", into, INTO)
    _check(model, tokens, source, sender, receiver)
    heard = _heard(model, tokens, _write(model, source, sender) - _write(model, tokens, sender), receiver[0], into)
    return _with_heard(model, tokens, heard, receiver)


@torch.no_grad()
def path_effects(
    model: Transformer,
    tokens: Int[Tensor, "batch pos"],
    source: Int[Tensor, "source_batch source_pos"],
    metric: Callable[[Float[Tensor, "batch pos d_vocab"]], Tensor],
    into: Iterable[str] = INTO,
) -> pd.DataFrame:
    """Every path from a head to one of a later layer: a row for each, with the metric of the patched logits.

    Columns: sender_layer, sender_head, receiver_layer, receiver_head, into, value (the metric with the path
    patched) and effect (value minus the metric on `tokens` untouched). Raises `ConfigError` as `path_patch` does.
    """
    before = float(metric(model(tokens)))
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    require(n_layers >= 2, f"The model has {n_layers} layer, but a path between heads needs at least 2.")
    inputs = [choose("input of a head", name, INTO) for name in into]
    rows = []
    for sender in ((layer, head) for layer in range(n_layers - 1) for head in range(n_heads)):
        _check(model, tokens, source, sender, (n_layers - 1, 0))
        change = _write(model, source, sender) - _write(model, tokens, sender)
        for layer in range(sender[0] + 1, n_layers):
            for name in inputs:
                heard = _heard(model, tokens, change, layer, name)
                for head in range(n_heads):
                    value = float(metric(_with_heard(model, tokens, heard, (layer, head))))
                    rows.append((*sender, layer, head, name, value, value - before))
    columns = ["sender_layer", "sender_head", "receiver_layer", "receiver_head", "into", "value", "effect"]
    return pd.DataFrame(rows, columns=columns)


def _write(model: Transformer, tokens: Tensor, head: tuple[int, int]) -> Float[Tensor, "batch pos d_model"]:
    """What a head adds to the stream."""
    name = f"blocks.{head[0]}.attn.hook_result"
    _, cache = model.run_with_cache(tokens, names_filter=name)
    return cache[name][:, :, head[1]]


def _heard(
    model: Transformer, tokens: Tensor, change: Tensor, layer: int, into: str
) -> Float[Tensor, "batch pos head d_head"]:
    """A layer's z if all its heads made their q, k or v from the changed stream, and nothing else of them changed.

    Two runs: one on the changed stream for the input, one on the stream as it is with that input put in.
    """
    name, z = f"blocks.{layer}.attn.hook_{into}", f"blocks.{layer}.attn.hook_z"
    with model.hooks(fwd_hooks=[(f"blocks.{layer}.hook_resid_pre", lambda stream, hook: stream + change)]):
        _, changed = model.run_with_cache(tokens, names_filter=name)
    with model.hooks(fwd_hooks=[(name, lambda _, hook: changed[name])]):
        _, cache = model.run_with_cache(tokens, names_filter=z)
    return cache[z]


def _with_heard(model: Transformer, tokens: Tensor, heard: Tensor, head: tuple[int, int]) -> Tensor:
    """The logits with one head's z from `heard`."""
    hook = replace_heads([head[1]], heard)
    return model.run_with_hooks(tokens, fwd_hooks=[(f"blocks.{head[0]}.attn.hook_z", hook)])


def _check(
    model: Transformer, tokens: Tensor, source: Tensor, sender: tuple[int, int], receiver: tuple[int, int]
) -> None:
    """Raise `ConfigError` unless there is a direct path between the two heads."""
    check_heads(model, [sender, receiver])
    require(sender[0] < receiver[0], f"The receiver {receiver} is not in a later layer than the sender {sender}.")
    # Without residual, the attention of a layer between, or an MLP from the sender's layer on, ends the path.
    first = sender[0] + (1 if model.cfg.attn_only else 0)
    replaced = [layer for layer in range(first, receiver[0]) if not model.cfg.residual_in(layer)]
    require(
        not replaced,
        f"Layer {replaced[0] if replaced else ''} has no residual: nothing passes it directly "
        f"from {sender} to {receiver}.",
    )
    require(
        tokens.shape == source.shape,
        f"source is {list(source.shape)}, but must have the shape of tokens, {list(tokens.shape)}.",
    )


@torch.no_grad()
def without_key_path(
    model: Transformer,
    tokens: Int[Tensor, "batch pos"],
    senders: Sequence[Head],
    receiver: Head,
    how: str = "mean",
    seed: int = 0,
) -> tuple[Float[Tensor, "batch query key"], Float[Tensor, "batch pos d_head"]]:
    """The receiver's effective pattern (gauge fixed) and z when its keys lack what the senders write into the stream.

    The senders' z is replaced as in `ablate_heads`, the change of their output is taken from the stream that the
    receiver's layer gets, and of what is computed from that stream only the receiver's keys are used: queries and
    values, and every other head, are undisturbed. The direct path, that is: what later parts make of the senders'
    output still arrives. Under grouped queries the other heads of the receiver's group keep their keys.
    Raises `ConfigError` for heads that do not exist or a receiver not in a later layer than all senders.
    """
    check_heads(model, [*senders, receiver])
    late, head = receiver
    for layer, sender in senders:
        require(
            layer < late, f"The path runs from head {layer}.{sender} to {late}.{head}, but must run to a later layer."
        )
    stream_name = f"blocks.{late}.hook_resid_pre"
    names = [stream_name, *(f"blocks.{layer}.attn.hook_z" for layer, _ in senders)]
    _, cache = model.run_with_cache(tokens, names_filter=lambda name: name in names)
    stream = cache[stream_name]
    for layer, sender in senders:
        if _reaches_layer(model, layer, late):
            z = cache["z", layer]
            lost = (z - replacement(z, how, seed))[:, :, sender]
            stream = stream - lost @ model.layers[layer].attn.W_O[sender]
    block = model.layers[late]
    attn = block.attn
    keys = attn.k_proj(stream if block.ln1 is None else block.ln1(stream)).unflatten(-1, (attn.n_key_value_heads, -1))
    seen = [f"blocks.{late}.attn.hook_{kind}" for kind in ("pattern", "z")]
    hook_name = f"blocks.{late}.attn.hook_{'k_raw' if attn.shifted else 'k'}"
    with model.hooks(fwd_hooks=[(hook_name, lambda k, hook: keys)]):
        _, patched = model.run_with_cache(tokens, names_filter=lambda name: name in seen)
    pattern = patched["pattern", late]
    if attn.shifted:
        pattern = effective_pattern(pattern, gauge_fixed(attn.beta))
    return pattern[:, head], patched["z", late][:, :, head]


def _reaches_layer(model: Transformer, early: int, late: int) -> bool:
    """Whether what attention writes in one layer is still in the stream that a later one gets."""
    kept = model.layers[early].residual or model.layers[early].mlp is None
    return kept and all(block.residual for block in model.layers[early + 1 : late])
