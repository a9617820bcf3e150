"""The config of a model, with TransformerLens' field names. No torch here: configs must load fast."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from ihlab.model.options.mixing import MixingOptions
from ihlab.model.options.positions import PositionOptions
from ihlab.model.options.sizes import Sizes
from ihlab.model.registry import VARIANTS
from tasks.config import config, require, shown

if TYPE_CHECKING:
    import torch

# The fields of a GPT-2 block (Radford et al. 2019) that differ from the defaults: ModelConfig(..., **GPT2).
GPT2 = {"positional": "learned", "norm": "layer", "eps": 1e-5, "mlp": "gelu", "bias": True}


@config
class ModelConfig(PositionOptions, MixingOptions):
    """Config of a model of pre-norm Llama blocks: RMSNorm -> attention -> residual -> RMSNorm -> SwiGLU -> residual.

    Some fields turn the blocks into GPT-2's (see `GPT2`), or into those of the paper's theorems. The attention variants
    are listed in `ihlab.model.registry`. This class has the fields of whole blocks; fields of one part of the model
    are in `ihlab.model.options`.

    Attributes:
        qk_norm: Apply an RMSNorm to each head's queries and keys before they are rotated (as Qwen3 does).
        mask: The keys that a token sees: its own and earlier ones (causal), or only earlier ones, so that the first
            token sees none (strict: the convention of Theorems 3.2 and 3.3).
        norm: The norm before attention and MLP: rms (RMSNorm), layer (LayerNorm, with its own bias) or none.
        eps: Added to the variance in the norms (GPT-2's is 1e-5).
        bias: Use biases in the linear maps of attention and MLP. They start at 0.
        dropout: Dropout probability in training, for the embedded tokens, the attention pattern, and the outputs of
            attention and MLP. Kept entries are divided by 1 - dropout.
        residual: Attention and MLP add to the residual stream (True) or replace it (False); one value, or one per
            layer.
        tied_embeddings: Unembed with the embedding matrix.
        unembedding: Source of the logits: linear, or none: the first d_vocab entries of the final normalised residual
            stream are the logits (Sanford et al. 2024, arXiv 2402.09268, with d_vocab = d_model).
        init_std: Standard deviation of every initial weight matrix. None: 1 / sqrt(fan in), and 1 for an untied
            embedding; learned position embeddings start like token embeddings.
        scaled_residual_init: Scale initial matrices that write to the residual stream by 1 / sqrt(2 n_layers), as GPT-2
            does.
    """

    qk_norm: bool = False
    mask: Literal["causal", "strict"] = "causal"
    norm: Literal["rms", "layer", "none"] = "rms"
    eps: float = 1e-6
    bias: bool = False
    dropout: float = 0.0
    residual: bool | tuple[bool, ...] = True
    tied_embeddings: bool = False
    unembedding: Literal["linear", "none"] = "linear"
    init_std: float | None = None
    scaled_residual_init: bool = False

    removed: ClassVar[Mapping[str, object]] = {
        "mla_rank": None,
        "mla_norm": False,
        "mla_rope_width": None,
        "diff_norm": True,
        "shift_place": "before_rotary",
        "canon_taps": 4,
        "embed_std": None,
        "document_leak": "none",
        "query_window": None,
        "shift_share": "head",
        "bigram_table": 0,
    }
    """Removed fields, each with the only value that a stored config may still have for it."""

    def __post_init__(self) -> None:
        for family in (Sizes, PositionOptions, MixingOptions):
            family.check(self)
        for limit in VARIANTS[self.attention].limits:
            limit.check(self)
        require(self.eps > 0, f"ModelConfig.eps is {self.eps}, but must be positive.")
        require(
            0 <= self.dropout < 1,
            f"ModelConfig.dropout is {self.dropout}, but must be at least 0 and less than 1.",
        )
        flags = self.residual if isinstance(self.residual, tuple) else (self.residual,)
        require(
            len(flags) in (1, self.n_layers),
            f"ModelConfig.residual is {shown(self.residual)}, but must be a bool, "
            f"or one for each of {self.n_layers} layers.",
        )
        self._check_embeddings()

    def _check_embeddings(self) -> None:
        require(
            self.init_std is None or self.init_std >= 0,
            f"ModelConfig.init_std is {self.init_std}, but must not be negative.",
        )
        require(
            self.unembedding == "linear" or self.d_vocab <= self.d_model,
            f"ModelConfig.d_vocab is {self.d_vocab}, but without an unembedding the {self.d_model} entries of the "
            "residual stream (d_model) are the logits: it must be at most that.",
        )
        require(
            self.unembedding == "linear" or not self.tied_embeddings,
            "ModelConfig.tied_embeddings is True, but unembedding is 'none': there is nothing to tie.",
        )

    def untrained_positions(self, length: int) -> range:
        """Return the positions beyond this length: their learned embeddings get no gradient, only weight decay."""
        return range(min(length, self.n_ctx), self.n_ctx if self.positional == "learned" else 0)

    def residual_in(self, layer: int) -> bool:
        """Return True if attention and MLP of a layer add to the residual stream."""
        return (
            self.residual[layer % len(self.residual)]
            if isinstance(self.residual, tuple)
            else self.residual
        )

    # TransformerLens' interface for a config:

    @property
    def attn_only(self) -> bool:
        """True if blocks have no MLP."""
        return self.mlp == "none"

    @property
    def normalization_type(self) -> str | None:
        """TransformerLens' name of the norm."""
        return {"rms": "RMS", "layer": "LN", "none": None}[self.norm]

    @property
    def device(self) -> str:
        """The device on which TransformerLens gathers its results, wherever the model is."""
        return "cpu"

    @property
    def dtype(self) -> "torch.dtype":
        """The dtype in which TransformerLens' head detector returns its scores."""
        import torch  # only here: a config must load without torch

        return torch.float32

    @property
    def default_prepend_bos(self) -> bool:
        """False: synthetic sequences have no beginning-of-sequence token to prepend."""
        return False

    def replace(self, **changes: object) -> "ModelConfig":
        """Return a copy of this config with some fields replaced; widths that had default values are recomputed."""
        followed = set()
        if (
            changes.keys() & {"d_model", "n_heads"}
            and self.head_width * self.n_heads == self.d_model
        ):
            followed.add("d_head")
        if changes.keys() & {"d_model", "mlp"} and self.mlp_width == self.usual_mlp_width:
            followed.add("d_mlp")
        if "n_heads" in changes and self.kv_heads == self.n_heads:
            followed.add("n_key_value_heads")
        derived = {name: None for name in followed if name not in changes}
        return replace(self, **{**derived, **changes})  # type: ignore[arg-type]
