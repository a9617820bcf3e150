"""The config of a model, with TransformerLens' field names. No torch here: configs must load fast."""

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

# The fields of a GPT-2 block (Radford et al. 2019) that differ from the defaults: ModelConfig(..., **GPT2).
GPT2 = {"positional": "learned", "norm": "layer", "eps": 1e-5, "mlp": "gelu", "bias": True}


@config
class ModelConfig:
    """A pre-norm Llama block: RMSNorm -> attention -> residual -> RMSNorm -> SwiGLU -> residual.

    Fields turn it into a GPT-2 block (see `GPT2`), or into the block of the paper's theorems. The attention variants
    are listed in `ihlab.model.variants`.

    Attributes:
        n_layers: Number of layers.
        d_model: Width of the residual stream.
        n_heads: Query heads per layer.
        d_vocab: Size of the vocabulary: token ids are 0 .. d_vocab - 1. At least the task's vocab_size.
        n_ctx: Context length, the maximum number of positions. At least the task's length.
        attention: The attention variant. vanilla; or kv_shift (arXiv 2411.19574, equation 5): each key and value head
            mixes in the shift_window - 1 previous tokens, with learned scalars alpha and beta. k_shift and v_shift
            shift only keys or only values; qkv_shift shifts queries too. kv_gate, kv_sum1, kv_clip and kv_project
            constrain the weights (Appendix F.1). kv_frozen keeps the initial weights, kv_frozen_unit divides them by
            their norm. rwkv_shift mixes tokens in the inputs of the projections. mdha convolves each channel of
            queries, keys and values with a kernel of 3. input_gate is a kv_gate whose weights depend on the token.
            key_offset takes half of each key from the previous token; partial_rotary is its control. multi_token mixes
            the scores of neighbouring queries and keys (arXiv 2504.00927). mla computes keys and values from a latent
            vector; mla_kv takes one head's key and another's value from the previous token (Appendix J). differential
            subtracts two patterns (arXiv 2410.05258: use half the heads of the baseline). selective lets tokens mask
            earlier ones for later ones (arXiv 2410.02703). forgetting lets tokens lower the scores of all earlier ones
            (arXiv 2503.02130). output_gate gates what each head reads. gated_linear (Mamba-2), gated_delta (Gated
            DeltaNet) and trapezoid (Mamba-3) are recurrences without softmax. docs/variants.md lists them all. Any
            other name is your own class, registered with ihlab.register_attention.
        stream_shift: Where each layer mixes in the residual stream of the previous token, with a learned weight per
            channel: in attention's input (before_norm or after_norm), or added to the residual stream.
        canon: Places of Canon layers, such as ABCD: A, the input of attention's projections; B, queries, keys and
            values; C, the MLP's input; D, the input of its activation. K, V, O, M: the same convolution of keys, of
            values, of the output of attention, and of the output of the MLP. Empty: none.
        canon_taps: Number of tokens that a Canon layer mixes: the current token and those right before it.
        smear: Add the previous token to each embedding, or to the input of each layer's attention, by a gate of each
            token (modded-nanogpt's smear).
        bigram_table: Rows of a hash table with a vector for each pair of a token and the previous one, added to the
            embedding (ihlab.model.bigram). 0: none.
        shift_window: Number of tokens that a shift mixes: the current token and those right before it.
        query_window: Number of tokens that a shift of queries mixes. None: shift_window.
        shift_start: Initial weights of a shift. equal: the current token's from U(0, 1), and the others equal, with a
            sum of 1. uniform: all except the last from U(0, 1), and the last 1 minus their sum (the paper's choice for
            windows of 3 and 4). They agree for a window of 2.
        shift_share: Which parts of the model use the same shift weights: each head has its own (head), all heads of a
            layer or of the model share them (layer, model), or each channel of a head has its own (channel).
        shift_first: What a shift does to the first token of a sequence. zero: it mixes in zeros. own: it leaves the
            token's own keys, values and queries unchanged.
        shift_place: Shift keys before their rotation (the paper's order), or after it.
        n_key_value_heads: Key/value heads per layer: fewer than n_heads for grouped-query attention. None: n_heads.
        d_head: Width of a head. None: d_model / n_heads.
        d_mlp: Width of the MLP. None: 8/3 d_model, rounded up to an even number; 4 d_model for gelu.
        positional: Position encoding: rope (rotary), alibi (a linear bias on attention scores), learned (a vector per
            position, added to the embedding), or none.
        rotary_base: Base of the rotary frequencies (the paper's is 100,000).
        rotary_frequencies: Angle per position for each pair of a head's channels. None: rotary_base^(-2i / d_head).
        rotary_scale: Factor on rotated queries and keys (YaRN's).
        rotary_layers: Whether each layer rotates, one value per layer. None: all do.
        qk_norm: Apply an RMSNorm to each head's queries and keys before they are rotated (as Qwen3 does).
        alibi_slopes: Slopes of ALiBi, per position of distance: one per head, or for each layer in turn one per head.
            None: those of Press et al. (arXiv 2108.12409).
        mask: Visible keys of a token: itself and earlier tokens (causal), or only earlier tokens, which leaves the
            first token none (strict: the convention of Theorems 3.2 and 3.3).
        norm: The norm before attention and MLP: rms (RMSNorm), layer (LayerNorm, with its own bias) or none.
        eps: Added to the variance in the norms (GPT-2's is 1e-5).
        mlp: The MLP: swiglu, gelu (in the tanh approximation) or none.
        bias: Use biases in the linear maps of attention and MLP. They start at 0.
        dropout: Dropout probability in training, for the embedded tokens, the attention pattern, and the outputs of
            attention and MLP. Kept entries are divided by 1 - dropout.
        residual: Attention and MLP add to the residual stream (True) or replace it (False); one value, or one per
            layer.
        tied_embeddings: Unembed with the embedding matrix.
        unembedding: Source of the logits: linear, or none: the first d_vocab entries of the final normalised residual
            stream are the logits (Sanford et al. 2024, arXiv 2402.09268, use all of it: d_vocab = d_model).
        init_std: Standard deviation of every initial weight matrix. None: 1 / sqrt(fan in), and 1 for an untied
            embedding; learned positions have the embedding's.
        scaled_residual_init: Scale initial matrices that write to the residual stream by 1 / sqrt(2 n_layers), as GPT-2
            does.
        embed_std: Standard deviation of only the initial embedding and learned positions. None: as for init_std.
        mla_rank: Width of the latent vector of mla. None: d_model / 3, rounded down (the paper's 256 of 768).
        mla_rope_width: Number of a head's d_head channels that mla rotates in queries and keys; all heads share this
            part of the keys. None: half of d_head, rounded down to an even number (the paper's 32 of 64); 0 unless
            positional is rope.
        mla_norm: Apply an RMSNorm to the latent vector of mla (as DeepSeek-V2 does; the paper does not say).
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
    bigram_table: int = 0
    canon_taps: int = 4
    query_window: int | None = None

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
        self._check_recurrent()
        require(
            self.bigram_table == 0 or self.bigram_table >= 2,
            f"ModelConfig.bigram_table is {self.bigram_table}, but must be 0 or at least 2: the last row is for the "
            "first token.",
        )
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
        """Raise `ConfigError` for a window that is too small, or too large for a rule with only two columns."""
        require(self.shift_window >= 2, f"ModelConfig.shift_window is {self.shift_window}, but must be at least 2.")
        require(
            self.shift_window <= max(2, self.n_ctx),
            f"ModelConfig.shift_window is {self.shift_window}, but must be at most n_ctx={self.n_ctx}: no token has "
            "more tokens before it.",
        )
        require(
            self.query_window is None or "gamma" in self.shift_rules,
            f"ModelConfig.query_window is {self.query_window}, but attention={self.attention!r} does not shift "
            "queries: it must be None.",
        )
        require(
            self.query_window is None or 2 <= self.query_window <= self.shift_window,
            f"ModelConfig.query_window is {self.query_window}, but must be from 2 to shift_window={self.shift_window}.",
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
        """Raise `ConfigError` for places that the model does not have, or where its attention already mixes tokens."""
        require(
            isinstance(self.canon, str) and self.canon == "".join(place for place in _PLACES if place in self.canon),
            f"ModelConfig.canon is {self.canon!r}, but must be some of the letters of {_PLACES!r}, each once and in "
            "order.",
        )
        require(self.canon_taps >= 1, f"ModelConfig.canon_taps is {self.canon_taps}, but must be at least 1.")
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

    def _check_recurrent(self) -> None:
        """Raise `ConfigError` for fields that say something of attention scores, which a recurrence does not have."""
        fields: dict[str, tuple[object, ...]] = {
            "positional": ("rope", "learned", "none"), "mask": ("causal",), "qk_norm": (False,),
        }  # fmt: skip
        for name, allowed in fields.items():
            require(
                not self.recurrent or getattr(self, name) in allowed,
                f"ModelConfig.{name} is {getattr(self, name)!r}, but attention={self.attention!r} is a recurrence, "
                f"without attention scores: it must be {' or '.join(map(repr, allowed))}.",
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
        """Raise `ConfigError` for rotary fields that do not fit the model, and for an unsupported `qk_norm`."""
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
        """Raise `ConfigError` for unembedding="none" in a model that needs an unembedding."""
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
        """Raise `ConfigError` if a field with one value per layer has another number of values."""
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
        """Fill in the fields that are None, so that a stored config is complete."""
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

    def window_of(self, weight: str) -> int:
        """Return the number of tokens that a mixing weight mixes: `query_window` for gamma, if given."""
        return self.query_window or self.shift_window if weight == "gamma" else self.shift_window

    @property
    def learned_shifts(self) -> tuple[str, ...]:
        """The mixing weights that are parameters, out of "alpha" (keys), "beta" (values) and "gamma" (queries)."""
        return tuple(self.shift_rules)

    @property
    def shift_rules(self) -> dict[str, str]:
        """The rule (`ihlab.model.variants.RULES`) of each mixing weight that is a parameter."""
        return VARIANTS[self.attention].rules

    @property
    def mixing_weights(self) -> tuple[str, ...]:
        """The mixing weights of attention, learned and fixed. Each has a hook point."""
        return self.learned_shifts + VARIANTS[self.attention].fixed

    @property
    def learns_both(self) -> bool:
        """True if attention learns both alpha and beta, the subject of the paper's Table 5 and Theorem 3.4."""
        return {"alpha", "beta"} <= set(self.learned_shifts)

    @property
    def shifted(self) -> bool:
        """True if attention mixes keys, values or queries with earlier ones."""
        return bool(self.mixing_weights)

    @property
    def recurrent(self) -> bool:
        """True if attention is a recurrence, without attention scores and pattern."""
        return VARIANTS[self.attention].recurrent

    @property
    def latent(self) -> bool:
        """True if keys and values are computed from a latent vector."""
        return self.attention in ("mla", "mla_kv")

    @property
    def latent_rank(self) -> int:
        """`mla_rank`, typed as a number."""
        return max(1, self.d_model // 3) if self.mla_rank is None else self.mla_rank

    @property
    def rope_width(self) -> int:
        """`mla_rope_width`, typed as a number."""
        if self.mla_rope_width is not None:
            return self.mla_rope_width
        return max(2, 2 * (self.head_width // 4)) if self.positional == "rope" else 0

    @property
    def values_mixed_elsewhere(self) -> str | None:
        """The field that makes keys or values mix tokens in a way that alpha and beta do not describe, if any."""
        if VARIANTS[self.attention].elsewhere:
            return f"attention={self.attention!r}"
        unmixed = {"stream_shift": "none", "smear": "none", "shift_first": "zero", "bigram_table": 0}
        for name, plain in unmixed.items():
            if getattr(self, name) != plain:
                return f"{name}={getattr(self, name)!r}"
        return f"canon={self.canon!r}" if set(self.canon) & set("ABKVO") else None

    def residual_in(self, layer: int) -> bool:
        """Return True if attention and MLP of a layer add to the residual stream."""
        return self.residual[layer % len(self.residual)] if isinstance(self.residual, tuple) else self.residual

    def slopes_in(self, layer: int) -> tuple[float, ...] | None:
        """Return the given ALiBi slopes of a layer's heads; None without `alibi_slopes`."""
        if self.alibi_slopes is None or len(self.alibi_slopes) == self.n_heads:
            return self.alibi_slopes
        return self.alibi_slopes[layer * self.n_heads : (layer + 1) * self.n_heads]

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
        """The type of the scores of TransformerLens' head detector."""
        import torch  # only here: a config must load without torch

        return torch.float32

    @property
    def default_prepend_bos(self) -> bool:
        """Synthetic sequences have no beginning-of-sequence token."""
        return False

    def replace(self, **changes: object) -> "ModelConfig":
        """Return a copy of this config with some fields replaced; widths at their defaults are computed again."""
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
