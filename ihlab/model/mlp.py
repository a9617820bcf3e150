"""The feed-forward half of a block."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from transformer_lens.hook_points import HookPoint

from ihlab.model.config import ModelConfig


class SwiGLU(nn.Module):
    """W_out (silu(W_gate x) * W_in x) (Shazeer 2020, arXiv 2002.05202).

    hook_pre is W_gate x, hook_pre_linear is W_in x, hook_post their gated product,
    each [batch, pos, d_mlp].
    """

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(cfg.d_model, cfg.mlp_width, bias=False)
        self.in_proj = nn.Linear(cfg.d_model, cfg.mlp_width, bias=False)
        self.out_proj = nn.Linear(cfg.mlp_width, cfg.d_model, bias=False)
        self.hook_pre, self.hook_pre_linear, self.hook_post = HookPoint(), HookPoint(), HookPoint()

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """The gated MLP of every position on its own."""
        pre, pre_linear = self.hook_pre(self.gate_proj(x)), self.hook_pre_linear(self.in_proj(x))
        return self.out_proj(self.hook_post(F.silu(pre) * pre_linear))

    @property
    def W_gate(self) -> Float[Tensor, "d_model d_mlp"]:
        """A view of the gate's weights in TransformerLens' layout."""
        return self.gate_proj.weight.T

    @property
    def W_in(self) -> Float[Tensor, "d_model d_mlp"]:
        """A view of the linear branch's weights."""
        return self.in_proj.weight.T

    @property
    def W_out(self) -> Float[Tensor, "d_mlp d_model"]:
        """A view of the output weights."""
        return self.out_proj.weight.T
