"""The shape of a model, in TransformerLens' field names. No torch here: configs must load fast."""

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from ihlab.model.variants import VARIANTS, require_attention
from tasks.config import config, require, shown

if TYPE_CHECKING:
    import torch

    AttentionName = str
else:
    AttentionName = Literal[tuple(VARIANTS)] | str  # the command line lists the names

_PLACES = "ABCDKVOM"

# The switches of a GPT-2 block (Radford et al. 2019), where they are not the defaults: ModelConfig(..., **GPT2).
GPT2 = {"positional": "learned", "norm": "layer", "eps": 1e-5, "mlp": "gelu", "bias": True}


@config
class ModelConfig:
    """A pre-norm Llama block: RMSNorm -> attention -> residual -> RMSNorm -> SwiGLU -> residual.

    The switches turn it into a GPT-2 block (`GPT2` holds them), or into what the paper's theorems use. The attention
    variants are listed in `ihlab.model.variants`.

    Attributes:
        n_layers: Layers.
        d_model: Width of the residual stream.
        n_heads: Query heads a layer.
        d_vocab: Size of the vocabulary: token ids are 0 .. d_vocab - 1. At least the task's vocab_size.
        n_ctx: Context length: the most positions of a sequence. At least the task's length.
        attention: The attention variant: vanilla, or kv_shift (arXiv 2411.19574, equation 5: each key and value head
            mixes in the shift_window - 1 tokens before, with learned scalars alpha and beta). Only keys (k_shift) or
            values (v_shift) are shifted, or queries as well (qkv_shift); with constrained weights: kv_gate, kv_sum1,
            kv_clip, kv_project (its Appendix F.1); with weights that stay as drawn: kv_frozen, kv_frozen_unit (divided
            by their norm). Tokens are mixed elsewhere: rwkv_shift, in what queries, keys and values are projected from;
            mdha, in each channel of all three, by a kernel of 3; input_gate, a kv_gate whose weights depend on the
            token; key_offset, in half of each key (partial_rotary: its control); multi_token, in the scores
            (arXiv 2504.00927). Or keys and values come from a latent vector (mla; mla_kv: one head's key and another's
            value from the token before, Appendix J), a pattern is the difference of two (differential, arXiv
            2410.05258: pass half as many heads as a baseline has), or tokens mask earlier ones for later ones
            (selective, arXiv 2410.02703). docs/variants.md lists them all. Any other name: a class of your own, given
            to ihlab.register_attention.
        stream_shift: Each layer mixes the residual stream with that of the token before, by learned weights of each
            channel: for attention, before_norm or after_norm, or as something added to the residual stream.
        canon: Places of Canon layers, such as ABCD: A, what attention projects; B, queries, keys and values; C, the
            MLP's input; D, what its activation acts on. K, V, O, M: the same convolution of keys, of values, of what
            attention adds to the residual stream, and of what the MLP adds. Empty: none.
        smear: Mix the token before into each embedding, or into what the attention of each layer reads, by a gate of
            each token (modded-nanogpt's smear).
        shift_window: Tokens that a shift mixes: this one and those right before it.
        shift_start: Initial weights of a shift: equal (this token's from U(0, 1), the others share the rest of 1
            equally), or uniform (all but the last from U(0, 1), the last is 1 minus their sum: the paper's for
            windows of 3 and 4). They agree for a window of 2.
        shift_share: How a shift's weights are shared: one row for each head (head), for all heads of a layer (layer)
            or of all layers (model), or for each channel of a head (channel).
        shift_first: What the first token of a sequence, which has none before it, gets from a shift of keys, values or
            queries: zero (zeros are mixed in), or own (its own are left as they are).
        shift_place: Keys are mixed before their rotation (the paper's order), or after it.
        n_key_value_heads: Key/value heads a layer: fewer than n_heads for grouped-query attention. None: as many.
        d_head: Width of a head. None: d_model / n_heads.
        d_mlp: Width of the MLP. None: 8/3 d_model, rounded up to even; for gelu 4 d_model.
        positional: How positions enter: rope (rotary), alibi (a slope on attention scores), learned (a vector for each
            position, added to the embedding), or none.
        rotary_base: Base of the rotary frequencies (the paper's is 100,000).
        rotary_frequencies: Angle per position of each pair of a head's channels. None: rotary_base^(-2i / d_head).
        rotary_scale: Factor on rotated queries and keys (YaRN's).
        rotary_layers: Which layers rotate, a value for each. None: all.
        qk_norm: Pass each head's queries and keys through an RMSNorm before they are rotated (Qwen3's).
        alibi_slopes: Slopes of ALiBi, a position: one a head, or one a head for each layer in turn. None: those of
            Press et al. (arXiv 2108.12409).
        mask: What a token attends to: itself and earlier tokens (causal), or earlier ones only, the first one to none
            (strict: the convention in which Theorems 3.2 and 3.3 are written).
        norm: The norm before each part: rms (RMSNorm), layer (LayerNorm, with a bias of its own) or none.
        eps: Added to the variance in the norms (GPT-2's is 1e-5).
        mlp: The MLP: swiglu, gelu (in the tanh approximation) or none.
        bias: Give the linear maps of attention and MLP biases. They start at 0.
        dropout: The chance that in training an entry of the embedded tokens, of a pattern or of what attention or MLP
            adds to the residual stream is set to 0; what stays is divided by 1 - dropout.
        residual: Attention and MLP add to the residual stream (True) or replace it (False); one value, or one a layer.
        tied_embeddings: Unembed with the embedding matrix.
        unembedding: How logits are made: linear, or none: the first d_vocab entries of the final normalised residual
            stream are the logits (Sanford et al. 2024, arXiv 2402.09268, take all of it: d_vocab = d_model).
        init_std: Standard deviation of every initial weight matrix. None: 1 / sqrt(fan in), an untied embedding 1, and
            learned positions as wide as the embedding.
        scaled_residual_init: Start matrices that write to the residual stream 1 / sqrt(2 n_layers) as wide, as GPT-2
            does.
        embed_std: Standard deviation of the initial embedding and learned positions alone. None: as init_std says.
        mla_rank: Width of the latent vector of mla. None: d_model / 3, rounded down (the paper's 256 of 768).
        mla_rope_width: How many of a head's d_head channels are the rotated part of queries and keys in mla, which the
            keys of all heads share. None: half of them, rounded down to even (the paper's 32 of 64); 0 unless
            positional is rope.
        mla_norm: Pass the latent vector of mla through an RMSNorm (as DeepSeek-V2 does; the paper does not say).
        diff_norm: Normalise and scale each head's output in differential attention, as its paper does.
    """

    n_layers: int
    d_model: int
    n_heads: int
    d_vocab: int
    n_ctx: int
    attention: AttentionName = "vanilla"
    stream_shift: Literal["none", "before_norm", "after_norm", "added"] = "none"
    canon: str = ""
    smear: Literal["none", "embedding", "attention"] = "none"
    shift_window: int = 2
    shift_start: Literal["equal", "uniform"] = "equal"
    shift_share: Literal["head", "layer", "model", "channel"] = "head"
    shift_place: Literal["before_rotary", "after_rotary"] = "before_rotary"
    shift_first: Literal["zero", "own"] = "zero"
    n_key_value_heads: int | None = None
    d_head: int | None = None
    d_mlp: int | None = None
    positional: Literal["rope", "alibi", "learned", "none"] = "rope"
    rotary_base: float = 100_000.0
    alibi_slopes: tuple[float, ...] | None = None
    mask: Literal["causal", "strict"] = "causal"
    norm: Literal["rms", "layer", "none"] = "rms"
    eps: float = 1e-6
    mlp: Literal["swiglu", "gelu", "none"] = "swiglu"
    bias: bool = False
    dropout: float = 0.0
    residual: bool | tuple[bool, ...] = True
    tied_embeddings: bool = False
    unembedding: Literal["linear", "none"] = "linear"
    init_std: float | None = None
    scaled_residual_init: bool = False
    embed_std: float | None = None
    mla_rank: int | None = None
    mla_rope_width: int | None = None
    mla_norm: bool = False
    diff_norm: bool = True
    rotary_frequencies: tuple[float, ...] | None = None
    rotary_scale: float = 1.0
    rotary_layers: tuple[bool, ...] | None = None
    qk_norm: bool = False

    def __post_init__(self) -> None:
        require_attention(self.attention)
        self._fill_in()
        for name in ("n_layers", "d_model", "n_heads", "n_key_value_heads", "d_head", "d_mlp", "d_vocab", "n_ctx"):
            require(getattr(self, name) >= 1, f"ModelConfig.{name} is {getattr(self, name)}, but must be at least 1.")
        require(
            self.n_heads % self.kv_heads == 0,
            f"ModelConfig.n_key_value_heads is {self.kv_heads}, which does not divide n_heads={self.n_heads}.",
        )
        require(
            self.positional != "rope" or self.head_width % 2 == 0,
            f"ModelConfig.d_head is {self.head_width}, but rotary positions rotate pairs: d_head must be even.",
        )
        self._check_shift()
        self._check_latent()
        self._check_halves()
        self._check_rotary()
        self._check_canon()
        require(self.eps > 0, f"ModelConfig.eps is {self.eps}, but must be positive.")
        require(self.rotary_base > 0, f"ModelConfig.rotary_base is {self.rotary_base}, but must be positive.")
        for name in ("init_std", "embed_std"):
            std = getattr(self, name)
            require(std is None or std >= 0, f"ModelConfig.{name} is {std}, but must not be negative.")
        require(
            self.embed_std is None or not self.tied_embeddings,
            f"ModelConfig.embed_std is {self.embed_std}, but tied embeddings start as the unembedding does: "
            "it must be None.",
        )
        require(
            0 <= self.dropout < 1, f"ModelConfig.dropout is {self.dropout}, but must be at least 0 and less than 1."
        )
        self._check_unembedding()
        self._check_layers()

    def _check_shift(self) -> None:
        """Raise `ConfigError` for a window too small, or too large for a rule that knows two columns."""
        require(self.shift_window >= 2, f"ModelConfig.shift_window is {self.shift_window}, but must be at least 2.")
        require(
            self.shift_window <= max(2, self.n_ctx),
            f"ModelConfig.shift_window is {self.shift_window}, but must be at most n_ctx={self.n_ctx}: no token has "
            "more tokens before it.",
        )
        require(
            self.shift_window == 2 or ("gate" not in self.shift_rules.values() and self.attention != "input_gate"),
            f"ModelConfig.shift_window is {self.shift_window}, but a gate ({self.attention!r}) chooses between two "
            "tokens: it must be 2.",
        )
        for name, value in (("shift_share", "head"), ("shift_place", "before_rotary")):
            require(
                getattr(self, name) == value or self.attention != "input_gate",
                f"ModelConfig.{name} is {getattr(self, name)!r}, but a gate of the input is each head's own and acts "
                f"before the rotation: it must be {value!r}.",
            )

    def _check_canon(self) -> None:
        """Raise `ConfigError` for places that do not exist, or are taken."""
        require(
            isinstance(self.canon, str) and self.canon == "".join(place for place in _PLACES if place in self.canon),
            f"ModelConfig.canon is {self.canon!r}, but must be some of the letters of {_PLACES!r}, each once and in "
            "order.",
        )
        require(
            self.mlp != "none" or not set(self.canon) & set("CDM"),
            f"ModelConfig.canon is {self.canon!r}, but mlp is 'none': 'C', 'D' and 'M' are places of an MLP.",
        )
        of_heads = "".join(place for place in self.canon if place in "BKV")
        mixed = self.shifted or self.latent or self.attention in ("mdha", "input_gate", "key_offset")
        require(
            not (of_heads and mixed),
            f"ModelConfig.canon is {self.canon!r}, but attention={self.attention!r} mixes keys or values too, where "
            f"{of_heads!r} does: leave {of_heads!r} out, or choose another attention.",
        )
        require(
            of_heads in ("", "B", "K", "V", "KV"),
            f"ModelConfig.canon is {self.canon!r}, but 'B' convolves keys and values already: leave 'K' and 'V' out.",
        )

    def _check_latent(self) -> None:
        """Raise `ConfigError` for widths and parts that latent attention does not have."""
        if not self.latent:
            return
        name, rope = self.attention, self.rope_width
        require(self.latent_rank >= 1, f"ModelConfig.mla_rank is {self.mla_rank}, but must be at least 1.")
        require(
            (rope % 2 == 0 and 2 <= rope < self.head_width) if self.positional == "rope" else rope == 0,
            f"ModelConfig.mla_rope_width is {rope}, but with positional={self.positional!r} and "
            f"d_head={self.head_width} it must be "
            + ("even, at least 2 and less than d_head." if self.positional == "rope" else "0: nothing is rotated."),
        )
        require(
            self.kv_heads == self.n_heads,
            f"ModelConfig.n_key_value_heads is {self.kv_heads}, but under {name!r} each of the n_heads={self.n_heads} "
            "heads has keys and values of its own.",
        )
        require(not self.bias, f"ModelConfig.bias is True, but the maps of {name!r} have no biases: it must be False.")
        require(
            name == "mla" or (self.n_heads >= 2 and self.shift_window == 2),
            f"ModelConfig.n_heads is {self.n_heads} and shift_window {self.shift_window}, but 'mla_kv' takes one "
            "head's key and another's value from the token before: at least 2 heads, and a window of 2.",
        )

    def _check_halves(self) -> None:
        """Raise `ConfigError` unless a head of differential attention can be halved."""
        pairs = 4 if self.positional == "rope" else 2
        require(
            self.attention != "differential" or self.head_width % pairs == 0,
            f"ModelConfig.d_head is {self.head_width}, but 'differential' halves it, with positional="
            f"{self.positional!r}: it must be a multiple of {pairs}.",
        )

    def _check_rotary(self) -> None:
        """Raise `ConfigError` for rotary fields that do not fit, and for a norm of queries and keys without a place."""
        given = {"rotary_frequencies": self.head_width // 2, "rotary_layers": self.n_layers}
        for name, size in given.items():
            value = getattr(self, name)
            require(
                value is None or (self.positional == "rope" and len(value) == size),
                f"ModelConfig.{name} is {shown(value)}, but must have {size} values, with positional='rope'.",
            )
        own, half = self.latent or self.attention == "differential", self.attention in ("partial_rotary", "key_offset")
        altered = self.rotary_frequencies is not None or self.rotary_scale != 1
        require(
            not (own and (self.qk_norm or altered)),
            f"ModelConfig.attention is {self.attention!r}, which takes no qk_norm, rotary_frequencies or rotary_scale.",
        )
        require(
            not (half and altered),
            f"ModelConfig.attention is {self.attention!r}, which takes no rotary_frequencies or rotary_scale.",
        )
        require(
            not self.qk_norm or self.shift_place == "before_rotary",
            f"ModelConfig.shift_place is {self.shift_place!r}, but with qk_norm it must be 'before_rotary'.",
        )
        require(
            not half or self.head_width % 4 == 0,
            f"ModelConfig.d_head is {self.head_width}, but {self.attention!r} halves each half of a head: it must be a "
            "multiple of 4.",
        )

    def rotates_in(self, layer: int) -> bool:
        """Return True if a layer's queries and keys are rotated."""
        return self.positional == "rope" and (self.rotary_layers is None or self.rotary_layers[layer])

    def _check_unembedding(self) -> None:
        """Raise `ConfigError` unless the model can do without an unembedding, if it has none."""
        if self.unembedding == "linear":
            return
        require(
            self.d_vocab <= self.d_model,
            f"ModelConfig.d_vocab is {self.d_vocab}, but without an unembedding the {self.d_model} entries of the "
            "stream (d_model) are the logits: at most that many.",
        )
        require(
            not self.tied_embeddings,
            "ModelConfig.tied_embeddings is True, but unembedding is 'none': there is nothing to tie.",
        )

    def _check_layers(self) -> None:
        """Raise `ConfigError` unless the fields that can hold a value for each layer do so."""
        given = self.residual if isinstance(self.residual, tuple) else (self.residual,)
        require(
            len(given) in (1, self.n_layers),
            f"ModelConfig.residual is {shown(self.residual)}, but must be a bool, "
            f"or one for each of {self.n_layers} layers.",
        )
        slopes = self.alibi_slopes
        if slopes is None:
            return
        require(
            self.positional == "alibi",
            f"ModelConfig.alibi_slopes is {shown(slopes)}, but positional is {self.positional!r}: slopes need 'alibi'.",
        )
        require(
            len(slopes) in (self.n_heads, self.n_layers * self.n_heads),
            f"ModelConfig.alibi_slopes is {shown(slopes)}, but must be {self.n_heads} finite numbers, one a head, "
            f"or {self.n_layers * self.n_heads}, one a head for each layer.",
        )

    def _fill_in(self) -> None:
        """Give the fields left out their values, so that a stored config says all it means."""
        require(self.n_heads >= 1, f"ModelConfig.n_heads is {self.n_heads}, but must be at least 1.")
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
            object.__setattr__(self, "d_mlp", self._usual_mlp_width())

    def _usual_mlp_width(self) -> int:
        return 4 * self.d_model if self.mlp == "gelu" else 2 * -(-4 * self.d_model // 3)

    @property
    def kv_heads(self) -> int:
        """`n_key_value_heads`, known to be a number."""
        assert self.n_key_value_heads is not None
        return self.n_key_value_heads

    @property
    def head_width(self) -> int:
        """`d_head`, known to be a number."""
        assert self.d_head is not None
        return self.d_head

    @property
    def mlp_width(self) -> int:
        """`d_mlp`, known to be a number."""
        assert self.d_mlp is not None
        return self.d_mlp

    @property
    def learned_shifts(self) -> tuple[str, ...]:
        """The mixing weights that are parameters, of "alpha" (keys), "beta" (values) and "gamma" (queries)."""
        return tuple(self.shift_rules)

    @property
    def shift_rules(self) -> dict[str, str]:
        """The rule (`ihlab.model.variants.RULES`) of each of the mixing weights that are parameters."""
        return VARIANTS[self.attention].rules

    @property
    def mixing_weights(self) -> tuple[str, ...]:
        """The mixing weights that attention has, with a hook point each: those that it learns, and fixed ones."""
        return self.learned_shifts + VARIANTS[self.attention].fixed

    @property
    def learns_both(self) -> bool:
        """True if attention learns alpha and beta: the two that the paper's Table 5 and Theorem 3.4 are about."""
        return {"alpha", "beta"} <= set(self.learned_shifts)

    @property
    def shifted(self) -> bool:
        """True if attention mixes keys, values or queries with earlier ones."""
        return bool(self.mixing_weights)

    @property
    def latent(self) -> bool:
        """True if keys and values are made from a latent vector."""
        return self.attention in ("mla", "mla_kv")

    @property
    def latent_rank(self) -> int:
        """`mla_rank`, known to be a number."""
        return max(1, self.d_model // 3) if self.mla_rank is None else self.mla_rank

    @property
    def rope_width(self) -> int:
        """`mla_rope_width`, known to be a number."""
        if self.mla_rope_width is not None:
            return self.mla_rope_width
        return max(2, 2 * (self.head_width // 4)) if self.positional == "rope" else 0

    @property
    def values_mixed_elsewhere(self) -> str | None:
        """The field by which keys or values hold earlier tokens as alpha and beta do not describe, if any."""
        if VARIANTS[self.attention].elsewhere:
            return f"attention={self.attention!r}"
        for name, plain in (("stream_shift", "none"), ("smear", "none"), ("shift_first", "zero")):
            if getattr(self, name) != plain:
                return f"{name}={getattr(self, name)!r}"
        return f"canon={self.canon!r}" if set(self.canon) & set("ABKVO") else None

    def residual_in(self, layer: int) -> bool:
        """Return True if the parts of a layer add to the residual stream."""
        return self.residual[layer % len(self.residual)] if isinstance(self.residual, tuple) else self.residual

    def slopes_in(self, layer: int) -> tuple[float, ...] | None:
        """Return the ALiBi slopes of a layer's heads, if they are given."""
        if self.alibi_slopes is None or len(self.alibi_slopes) == self.n_heads:
            return self.alibi_slopes
        return self.alibi_slopes[layer * self.n_heads : (layer + 1) * self.n_heads]

    # TransformerLens' interface of a config:

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
        """The device on which TransformerLens gathers its measurements, on whichever the model is."""
        return "cpu"

    @property
    def dtype(self) -> "torch.dtype":
        """The type of the scores of TransformerLens' head detector."""
        import torch  # whoever asks has it; a config alone does not need it

        return torch.float32

    @property
    def default_prepend_bos(self) -> bool:
        """Synthetic sequences have no beginning-of-sequence token."""
        return False

    def replace(self, **changes: object) -> "ModelConfig":
        """Return a copy of this config with some fields replaced; widths that follow from others follow again."""
        followed = set()
        if changes.keys() & {"d_model", "n_heads"} and self.head_width * self.n_heads == self.d_model:
            followed.add("d_head")
        if changes.keys() & {"d_model", "mlp"} and self.mlp_width == self._usual_mlp_width():
            followed.add("d_mlp")
        if "n_heads" in changes and self.kv_heads == self.n_heads:
            followed.add("n_key_value_heads")
        derived = {name: None for name in followed if name not in changes}
        return replace(self, **{**derived, **changes})  # type: ignore[arg-type]

    but = replace  # its name in older notebooks
