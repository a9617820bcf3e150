"""Our weights in TransformerLens' own trainable model, for comparing times."""

import re

import torch
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge.sources import boot_native

from ihlab.model.transformer import Transformer

RENAMED = {  # parts of our parameters' names -> theirs
    r"^embed\b": "tok_embed",
    r"^blocks\b": "layers",
    r"\b([qkvo])_proj\b": r"\1",
    r"\b(gate|in|out)_proj\b": r"\1",
    r"\.w$": ".weight",
    r"^ln_final\b": "ln_out",
    r"^unembed\b": "head",
}
ROTARY = (".q.weight", ".k.weight")


def to_native(model: Transformer) -> torch.nn.Module:
    """Return a vanilla Llama-style model as a TransformerLens bridge around its native model, with hook points.

    Its attention has biases. They start at 0 and are trained.
    """
    cfg = model.cfg
    bridge = boot_native(
        TransformerBridgeConfig(
            d_model=cfg.d_model,
            n_layers=cfg.n_layers,
            n_heads=cfg.n_heads,
            n_key_value_heads=cfg.kv_heads,
            d_head=cfg.head_width,
            n_ctx=cfg.n_ctx,
            d_vocab=cfg.d_vocab,
            d_mlp=cfg.mlp_width,
            act_fn="silu",
            gated_mlp=True,
            normalization_type="RMS",
            final_rms=True,
            positional_embedding_type="rotary",
            rotary_base=cfg.rotary_base,
            rotary_dim=cfg.head_width,
            eps=cfg.eps,
            default_prepend_bos=False,
        )
    )
    theirs = {name.replace("._original_component", ""): p for name, p in bridge.original_model.named_parameters()}
    with torch.no_grad():
        for name, parameter in theirs.items():
            if name.endswith(".bias"):
                parameter.zero_()
        for name, parameter in model.named_parameters():
            for ours, native in RENAMED.items():
                name = re.sub(ours, native, name)  # noqa: PLW2901
            theirs[name].copy_(_interleaved(parameter, cfg.head_width) if name.endswith(ROTARY) else parameter)
    return bridge


def _interleaved(weight: torch.Tensor, d_head: int) -> torch.Tensor:
    """Reorder the rows of each head: TransformerLens' rotary pairs neighbours, ours pairs the two halves of a head."""
    halves = weight.unflatten(0, (-1, 2, d_head // 2))
    return halves.transpose(1, 2).flatten(0, 2)
