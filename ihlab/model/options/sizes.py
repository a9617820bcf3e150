"""The sizes of a model, its attention variant and its MLP, which the other families of options read."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ihlab.model.registry import VARIANTS, require_attention
from tasks.config import require

if TYPE_CHECKING:
    AttentionName = str
else:
    AttentionName = Literal[tuple(VARIANTS)] | str  # the command line lists the names


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a model, its attention variant and its MLP.

    Attributes:
        n_layers: Number of layers.
        d_model: Width of the residual stream.
        n_heads: Query heads per layer.
        d_vocab: Size of the vocabulary: token ids are 0 .. d_vocab - 1. At least the task's vocab_size.
        n_ctx: Context length, the maximum number of positions. At least the task's length.
        attention: The attention variant. vanilla; or kv_shift (arXiv 2411.19574, equation 5): each key and value head
            mixes in the shift_window - 1 tokens before, with learned scalars alpha and beta. k_shift shifts keys only,
            v_shift values only, qkv_shift also queries; kv_gate to kv_project constrain the weights; key_offset takes
            half of each key from the token before. docs/variants.md explains each. Any other name is your own class,
            registered with ihlab.register_attention.
        n_key_value_heads: Key/value heads per layer: fewer than n_heads for grouped-query attention. None: n_heads.
        d_head: Width of a head. None: d_model / n_heads.
        d_mlp: Width of the MLP. None: 8/3 d_model, rounded up to an even number; 4 d_model for gelu.
        mlp: The MLP: swiglu, gelu (in the tanh approximation) or none.
    """

    n_layers: int
    d_model: int
    n_heads: int
    d_vocab: int
    n_ctx: int
    attention: AttentionName = "vanilla"
    n_key_value_heads: int | None = None
    d_head: int | None = None
    d_mlp: int | None = None
    mlp: Literal["swiglu", "gelu", "none"] = "swiglu"

    def check(self) -> None:
        """Fill in the sizes that are None, so that a stored config is complete. Raise `ConfigError` for bad sizes."""
        require_attention(self.attention)
        require(
            self.n_heads >= 1, f"ModelConfig.n_heads is {self.n_heads}, but must be at least 1."
        )
        if self.d_head is None:
            require(
                self.d_model % self.n_heads == 0,
                f"ModelConfig.d_model is {self.d_model}, which n_heads={self.n_heads} does not divide "
                "(or give d_head).",
            )
            object.__setattr__(self, "d_head", self.d_model // self.n_heads)
        if self.n_key_value_heads is None:
            object.__setattr__(self, "n_key_value_heads", self.n_heads)
        if self.d_mlp is None:
            object.__setattr__(self, "d_mlp", self.usual_mlp_width)
        for name in (
            "n_layers",
            "d_model",
            "n_key_value_heads",
            "d_head",
            "d_mlp",
            "d_vocab",
            "n_ctx",
        ):
            require(
                getattr(self, name) >= 1,
                f"ModelConfig.{name} is {getattr(self, name)}, but must be at least 1.",
            )
        require(
            self.n_heads % self.kv_heads == 0,
            f"ModelConfig.n_key_value_heads is {self.kv_heads}, which does not divide n_heads={self.n_heads}.",
        )

    @property
    def kv_heads(self) -> int:
        """`n_key_value_heads`, typed as a number."""
        assert self.n_key_value_heads is not None
        return self.n_key_value_heads

    @property
    def head_width(self) -> int:
        """`d_head`, typed as a number."""
        assert self.d_head is not None
        return self.d_head

    @property
    def mlp_width(self) -> int:
        """`d_mlp`, typed as a number."""
        assert self.d_mlp is not None
        return self.d_mlp

    @property
    def usual_mlp_width(self) -> int:
        """The width of an MLP whose `d_mlp` is not given."""
        return 4 * self.d_model if self.mlp == "gelu" else 2 * -(-4 * self.d_model // 3)
