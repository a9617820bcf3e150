"""Path patching into keys: a later head makes its keys as if earlier heads had not written."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ihlab.interp.ablation import Head, check_heads, replacement
from ihlab.interp.patterns import effective_pattern, gauge_fixed
from ihlab.model.transformer import Transformer
from tasks.config import require


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
        if _reaches(model, layer, late):
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


def _reaches(model: Transformer, early: int, late: int) -> bool:
    """Whether what attention writes in one layer is still in the stream that a later one gets."""
    kept = model.layers[early].residual or model.layers[early].mlp is None
    return kept and all(block.residual for block in model.layers[early + 1 : late])
