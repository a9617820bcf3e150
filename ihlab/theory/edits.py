"""Edit a model with hand-set weights so that its circuit stays known: rotate the basis, split
heads, add noise.
"""

import torch
from torch import Tensor

from ihlab.model.transformer import Transformer
from ihlab.runtime.settings import own_settings
from tasks.config import require

ROTATED = {
    "norm": "none",
    "bias": False,
    "qk_norm": False,
    "unembedding": "linear",
    "stream_shift": "none",
    "smear": "none",
    "canon": "",
}
"""Settings of a model whose stream can be rotated."""


@torch.no_grad()
@own_settings()
def rotate(model: Transformer, seed: int = 0) -> Transformer:
    """Write the residual stream in a random orthonormal basis, in place, and return the model.

    Embeddings and the outputs of heads and MLPs become x R, and weights that read the stream undo
    R, so every pattern and logit stays as it is. Raises `ConfigError` for a model with parts that
    belong to one basis (`ROTATED`).
    """
    d = model.cfg.d_model
    for name, only in ROTATED.items():
        value = getattr(model.cfg, name)
        require(
            value == only,
            f"{name} is {value!r}, but only the stream of a model with {name}={only!r} can be rotated.",
        )
    generator = torch.Generator().manual_seed(seed)
    rotation = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))[0]
    for name, weight in model.named_parameters():
        if name.endswith(("o_proj.weight", "out_proj.weight")):
            weight.copy_(rotation.T.to(weight) @ weight)
        elif "shift" not in name:
            weight.copy_(weight @ rotation.to(weight))
    return model


@torch.no_grad()
@own_settings()
def add_noise(model: Transformer, size: float) -> Transformer:
    """Add normal noise to every matrix, in place, and return the model.

    The noise has `size` times the Frobenius norm of the matrix, in expectation. Shifts stay as they
    are.
    """
    generator = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        if "shift" not in name:
            noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            weight.add_((size * weight.square().mean().sqrt() * noise).to(weight))
    return model


@torch.no_grad()
@own_settings()
def split_head(model: Transformer, layer: int, copies: int) -> Transformer:
    """Return a model in which head 0 of a layer is replaced by several copies, each with an equal
    part of its output.

    The copies are head 0 and the last `copies` - 1 heads; the other layers get as many additional
    heads, whose weights are 0. So the logits stay as they are. Raises `ConfigError` for grouped
    keys, biases, qk_norm, ALiBi without slopes of its own, an unknown layer and no copies.
    """
    cfg, extra = model.cfg, copies - 1
    require(
        cfg.kv_heads == cfg.n_heads,
        f"n_key_value_heads is {cfg.kv_heads}, but must be n_heads={cfg.n_heads}: a head that shares its keys cannot "
        "be split.",
    )
    require(0 <= layer < cfg.n_layers, f"layer is {layer}, but must be in 0 .. {cfg.n_layers - 1}.")
    require(copies >= 1, f"copies is {copies}, but must be at least 1.")
    slopes = cfg.alibi_slopes
    require(
        not (cfg.bias or cfg.qk_norm) and (cfg.positional != "alibi" or slopes is not None),
        "A head with biases or qk_norm cannot be split, nor one with ALiBi but without alibi_slopes.",
    )
    if slopes is not None:
        of_layers = [cfg.slopes_in(i) or () for i in range(cfg.n_layers)]
        slopes = tuple(slope for each in of_layers for slope in (*each, *each[:1] * extra))
    n_heads = cfg.n_heads + extra
    cfg_of_all = cfg.replace(
        n_heads=n_heads, n_key_value_heads=n_heads, d_head=cfg.head_width, alibi_slopes=slopes
    )
    wider = Transformer(cfg_of_all).to(model.embed.weight).eval()

    def widened(name: str, weight: Tensor) -> Tensor:
        if ".attn." not in name:
            return weight
        axis = int("o_proj" in name)
        of_head = weight.unflatten(axis, (cfg.n_heads, -1))
        copy = of_head.narrow(axis, 0, 1)
        if f"blocks.{layer}." not in name:
            copy = torch.zeros_like(copy)
        elif axis:
            copy = copy / copies
            of_head = torch.cat([copy, of_head.narrow(axis, 1, cfg.n_heads - 1)], axis)
        return torch.cat([of_head, *[copy] * extra], axis).flatten(axis, axis + 1)

    wider.load_state_dict(
        {name: widened(name, weight) for name, weight in model.state_dict().items()}
    )
    return wider
