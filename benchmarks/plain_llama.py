"""A minimal hand-written Llama with an optional KV shift: no hooks, no options, logits and loss at
every position.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ihlab.model.transformer import Transformer


class Layer(nn.Module):
    """Attention with rotary positions, then SwiGLU, each after a norm and added to the residual
    stream.
    """

    def __init__(self, d_model: int, n_heads: int, d_mlp: int, eps: float, shift: bool) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.norm1, self.norm2 = (nn.RMSNorm(d_model, eps=eps) for _ in range(2))
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)
        self.up = nn.Linear(d_model, 2 * d_mlp, bias=False)
        self.down = nn.Linear(d_mlp, d_model, bias=False)
        self.alpha, self.beta = (
            nn.Parameter(torch.empty(n_heads, 2)) if shift else None for _ in range(2)
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = (
            y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for y in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        k, v = shifted(k, self.alpha), shifted(v, self.beta)
        z = F.scaled_dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True
        )
        x = x + self.out(z.transpose(1, 2).flatten(-2))
        gate, up = self.up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class PlainLlama(nn.Module):
    """The network of a vanilla or KV-shifted `Transformer`, with a copy of its weights. It returns
    the summed loss.
    """

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        cfg = model.cfg
        self.embed = nn.Embedding(cfg.d_vocab, cfg.d_model)
        self.layers = nn.ModuleList(
            Layer(cfg.d_model, cfg.n_heads, cfg.mlp_width, cfg.eps, cfg.attention == "kv_shift")
            for _ in range(cfg.n_layers)
        )
        self.norm = nn.RMSNorm(cfg.d_model, eps=cfg.eps)
        self.unembed = nn.Linear(cfg.d_model, cfg.d_vocab, bias=False)
        angles = torch.outer(
            torch.arange(cfg.n_ctx),
            cfg.rotary_base ** (-torch.arange(0, cfg.head_width, 2) / cfg.head_width),
        )
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self._copy(model)

    @torch.no_grad()
    def _copy(self, model: Transformer) -> None:
        pairs = [(self.embed.weight, model.embed.weight), (self.norm.weight, model.ln_final.w)]
        pairs += [(self.unembed.weight, model.unembed.weight)]
        for ours, theirs in zip(self.layers, model.blocks, strict=True):
            attn, mlp = theirs.attn, theirs.mlp
            pairs += [
                (ours.norm1.weight, theirs.ln1.w),
                (ours.norm2.weight, theirs.ln2.w),
                (
                    ours.qkv.weight,
                    torch.cat([attn.q_proj.weight, attn.k_proj.weight, attn.v_proj.weight]),
                ),
                (ours.out.weight, attn.o_proj.weight),
                (ours.up.weight, torch.cat([mlp.gate_proj.weight, mlp.in_proj.weight])),
                (ours.down.weight, mlp.out_proj.weight),
            ]
            if ours.alpha is not None:
                pairs += [(ours.alpha, attn.alpha), (ours.beta, attn.beta)]
        for mine, given in pairs:
            mine.copy_(given)

    def forward(self, tokens: Tensor, targets: Tensor, ignore: int) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]])
        logits = self.unembed(self.norm(x)).float()
        return F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=ignore, reduction="sum"
        )


def shifted(x: Tensor, weight: Tensor | None) -> Tensor:
    """Mix each vector [batch, head, pos, d_head] with the one before, by weights [head, 2]."""
    if weight is None:
        return x
    before = F.pad(x, (0, 0, 1, -1))
    return weight[:, 0, None, None] * x + weight[:, 1, None, None] * before


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (x_i, x_{i + d/2}) of vectors [batch, head, pos, d_head] by their positions'
    angles.
    """
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)
