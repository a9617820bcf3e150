"""The feed-forward half of a block: SwiGLU as in Llama, or GELU as in GPT-2."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from transformer_lens.hook_points import HookPoint

from ihlab.model.attend import Stream
from ihlab.model.config import ModelConfig
from ihlab.model.kv_cache import Past
from ihlab.model.lens.linear import bias_of
from ihlab.model.mixes.places import NeuronMixes


class MLP(NeuronMixes):
    """The base class of `SwiGLU` and `GeluMLP`: the weights into and out of the neurons, in
    TransformerLens' layout.
    """

    branches = 1
    """The number of inputs of the activation: one, or two with a gate."""

    def __init__(
        self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
    ) -> None:
        super().__init__()
        self._make_mixes(cfg, self.branches, generator, layer)
        if self.branches == 2:
            self.gate_proj = nn.Linear(cfg.d_model, cfg.mlp_width, bias=cfg.bias)
            self.hook_pre_linear = HookPoint()
        self.in_proj = nn.Linear(cfg.d_model, cfg.mlp_width, bias=cfg.bias)
        self.out_proj = nn.Linear(cfg.mlp_width, cfg.d_model, bias=cfg.bias)
        self.hook_pre, self.hook_post = HookPoint(), HookPoint()

    @property
    def W_in(self) -> Float[Tensor, "d_model d_mlp"]:
        """A view of the input weights (for SwiGLU, of the linear branch)."""
        return self.in_proj.weight.T

    @property
    def b_in(self) -> Float[Tensor, " d_mlp"]:
        """The input biases; zeros if the config has none."""
        return bias_of(self.in_proj)

    @property
    def W_out(self) -> Float[Tensor, "d_mlp d_model"]:
        """A view of the output weights."""
        return self.out_proj.weight.T

    @property
    def b_out(self) -> Float[Tensor, " d_model"]:
        """The output biases; zeros if the config has none."""
        return bias_of(self.out_proj)


class SwiGLU(MLP):
    """Gated MLP, W_out (silu(W_gate x) * W_in x), plus biases if the config has them (Shazeer 2020,
    arXiv 2002.05202).

    hook_pre is W_gate x, hook_pre_linear is W_in x, hook_post is silu(W_gate x) * W_in x,
    each [batch, pos, d_mlp].
    """

    branches = 2

    def forward(self, x: Stream, cache: Past | None = None) -> Stream:
        """Return the gated MLP's output at every position. Only a Canon layer reads other positions
        and the cache.
        """
        pre, pre_linear = self.mixed(cache, self.gate_proj(x), self.in_proj(x))
        pre, pre_linear = self.hook_pre(pre), self.hook_pre_linear(pre_linear)
        return self.out_proj(self.hook_post(F.silu(pre) * pre_linear))

    @property
    def W_gate(self) -> Float[Tensor, "d_model d_mlp"]:
        """A view of the gate's weights."""
        return self.gate_proj.weight.T


class GeluMLP(MLP):
    """W_out gelu(W_in x + b_in) + b_out, gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715
    x^3))).

    The tanh approximation of Hendrycks and Gimpel 2016 (arXiv 1606.08415), which GPT-2 uses.
    hook_pre is W_in x + b_in, hook_post is its gelu, each [batch, pos, d_mlp].
    """

    def forward(self, x: Stream, cache: Past | None = None) -> Stream:
        """Return the MLP's output at every position. Only a Canon layer reads other positions and
        the cache.
        """
        (pre,) = self.mixed(cache, self.in_proj(x))
        return self.out_proj(self.hook_post(F.gelu(self.hook_pre(pre), approximate="tanh")))


def make_mlp(
    cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
) -> MLP | None:
    """Return the MLP of a config; None if it has none."""
    if cfg.mlp == "none":
        return None
    if cfg.mlp == "gelu":
        return GeluMLP(cfg, generator, layer)
    return SwiGLU(cfg, generator, layer)
