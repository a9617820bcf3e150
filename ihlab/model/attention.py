"""Causal attention, vanilla or with shifted keys, values and queries."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from transformer_lens.hook_points import HookPoint

from ihlab.model.config import ModelConfig
from ihlab.model.depthwise import make_head_convolutions
from ihlab.model.input_gate import make_input_gates
from ihlab.model.input_shift import make_input_shifts
from ihlab.model.kv_cache import KVCache, earlier, next_positions
from ihlab.model.linear import bias_of
from ihlab.model.positions import Alibi, Positions, Rotary, as_tensor
from ihlab.model.shift import TokenShift, make_shifts


def at_positions(
    x: Float[Tensor, "batch pos *wide"], at: Int[Tensor, "batch query"]
) -> Float[Tensor, "batch query *wide"]:
    """Gather vectors at positions of each row."""
    return x.gather(1, at.reshape(*at.shape, *[1] * (x.ndim - 2)).expand(-1, -1, *x.shape[2:]))


def is_hooked(*points: HookPoint) -> bool:
    """Return True if anything listens at one of these hook points."""
    return any(point.fwd_hooks or point.bwd_hooks for point in points)


class Attention(nn.Module):
    """project q, k, v -> shift k and v -> rotary or ALiBi -> scores -> softmax -> values -> output.

    Equations 4 to 6 of arXiv 2411.19574. Shapes, with h = n_heads and g = n_key_value_heads:

    - hook_q [batch, pos, h, d_head]; hook_k_raw, hook_v_raw [batch, pos, g, d_head] before the shift;
    - hook_alpha, hook_beta [g, window]; hook_k, hook_v [batch, pos, g, d_head] after it;
    - hook_q_raw, hook_gamma [h, window]: the same where queries are shifted. The hooks of a shift are there where
      `cfg.attention` learns it, and its weights are [.., window, d_head] where channels learn their own;
    - hook_rot_q, hook_rot_k: after the rotation;
    - hook_attn_scores, hook_pattern [batch, h, query, key]; hook_z [batch, pos, h, d_head], z = pattern @ v;
    - hook_result [batch, pos, h, d_model]: each head's own output. Their sum, plus b_O, is the output.

    PyTorch's fused kernel is used unless the scores or the pattern have a hook, and hook_result is computed only if it
    has one. In training, dropout falls on the pattern after its hook.

    With a cache, x continues the rows that the cache holds: pos and query are the tokens of x, key is those and all
    before. Queries can be taken at some positions only (`ihlab.model.pruned`): those are then pos of hook_q,
    hook_rot_q, hook_z and hook_result.
    """

    def __init__(self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0) -> None:
        super().__init__()
        self.n_heads, self.n_key_value_heads, self.d_head = cfg.n_heads, cfg.kv_heads, cfg.head_width
        self.q_proj = nn.Linear(cfg.d_model, self.n_heads * self.d_head, bias=cfg.bias)
        self._make_key_value_maps(cfg)
        self.o_proj = nn.Linear(self.n_heads * self.d_head, cfg.d_model, bias=cfg.bias)
        self.shifted, self.shift_window = cfg.shifted, cfg.shift_window
        self.key_shift, self.value_shift, self.query_shift = self._make_shifts(cfg, generator, layer)
        self.rotates_first = cfg.shift_place == "after_rotary" and self.key_shift is not None
        if self.key_shift is not None:
            self.hook_k_raw, self.hook_alpha = HookPoint(), HookPoint()
        if self.value_shift is not None:
            self.hook_v_raw, self.hook_beta = HookPoint(), HookPoint()
        if self.query_shift is not None:
            self.hook_q_raw, self.hook_gamma = HookPoint(), HookPoint()
        self.input_shift = make_input_shifts(cfg, layer)
        self.convolution = make_head_convolutions(cfg, generator, layer)
        self.input_gate = make_input_gates(cfg, generator)
        if self.input_gate:
            self.hook_key_gate, self.hook_value_gate = HookPoint(), HookPoint()
        rotary = cfg.positional == "rope"
        self.rotary = Rotary(self.d_head, cfg.n_ctx, cfg.rotary_base, self.n_heads) if rotary else None
        self.alibi = Alibi(cfg.n_heads, cfg.slopes_in(layer)) if cfg.positional == "alibi" else None
        self.strict = cfg.mask == "strict"
        self.dropout = cfg.dropout
        self.hook_q, self.hook_k, self.hook_v = HookPoint(), HookPoint(), HookPoint()
        if self.rotary is not None:
            self.hook_rot_q, self.hook_rot_k = HookPoint(), HookPoint()
        self.hook_attn_scores, self.hook_pattern = HookPoint(), HookPoint()
        self.hook_z, self.hook_result = HookPoint(), HookPoint()

    def _make_key_value_maps(self, cfg: ModelConfig) -> None:
        self.k_proj = nn.Linear(cfg.d_model, self.n_key_value_heads * self.d_head, bias=cfg.bias)
        self.v_proj = nn.Linear(cfg.d_model, self.n_key_value_heads * self.d_head, bias=cfg.bias)

    def _make_shifts(
        self, cfg: ModelConfig, generator: torch.Generator | None, layer: int
    ) -> tuple[TokenShift | None, TokenShift | None, TokenShift | None]:
        return make_shifts(cfg, generator, layer)

    def forward(
        self, x: Float[Tensor, "batch pos d_model"], cache: KVCache | None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        """Return the sum of the heads' outputs for the normalised residual stream x; the cache then holds x as well."""
        positions = next_positions(cache, x.shape[1])
        before = earlier(cache, "input", x, 1) if self.input_shift else None
        q = self.queries(x, cache=cache, before=before)
        k, v = self.keys_values(x, cache, before)
        return self.read(q, k, v, positions, cache)

    def queries(
        self,
        x: Float[Tensor, "batch pos d_model"],
        at: Int[Tensor, "batch query"] | None = None,
        cache: KVCache | None = None,
        before: Float[Tensor, "batch 1 d_model"] | None = None,
    ) -> Float[Tensor, "batch query head d_head"]:
        """Project queries, shifted where they are, at positions `at` of each row (None: all). `read` rotates them.

        `before`: the input of the token before x, if inputs are shifted and x continues a row.
        """
        x = self._input("query", x, before)
        if self.query_shift is None and not self.convolution:
            return self.hook_q(self._heads(self.q_proj(x if at is None else at_positions(x, at)), self.n_heads))
        q = self._convolved("query", self._heads(self.q_proj(x), self.n_heads), cache)
        if self.query_shift is not None:
            q = self.hook_q_raw(q)
            q = self.query_shift(q, self.hook_gamma, earlier(cache, "query", q, self.shift_window - 1))
        return self.hook_q(q if at is None else at_positions(q, at))

    def keys_values(
        self,
        x: Float[Tensor, "batch pos d_model"],
        cache: KVCache | None = None,
        before: Float[Tensor, "batch 1 d_model"] | None = None,
    ) -> tuple[Float[Tensor, "batch key kv_head d_head"], Float[Tensor, "batch key kv_head d_head"]]:
        """Return the keys, shifted and rotated, and the shifted values of all tokens, those in the cache included.

        `before` is that of `queries`.
        """
        k, v = self.project(x, before)
        k, v = self._convolved("key", k, cache), self._convolved("value", v, cache)
        if self.input_gate:
            k = self.input_gate["key"](k, x, self.hook_key_gate, cache, "key")
            v = self.input_gate["value"](v, x, self.hook_value_gate, cache, "value")
        k, v = self._shifted_and_rotated(k, v, next_positions(cache, x.shape[1]), cache)
        return (k, v) if cache is None else cache.append(k, v)

    def project(
        self, x: Float[Tensor, "batch pos d_model"], before: Float[Tensor, "batch 1 d_model"] | None = None
    ) -> tuple[Float[Tensor, "batch pos kv_head d_head"], Float[Tensor, "batch pos kv_head d_head"]]:
        """Return the keys and values before any convolution, shift or rotation."""
        k, v = self.k_proj(self._input("key", x, before)), self.v_proj(self._input("value", x, before))
        return self._heads(k, self.n_key_value_heads), self._heads(v, self.n_key_value_heads)

    def _shifted_and_rotated(
        self,
        k: Float[Tensor, "batch pos kv_head d_head"],
        v: Float[Tensor, "batch pos kv_head d_head"],
        positions: Positions,
        cache: KVCache | None,
    ) -> tuple[Float[Tensor, "batch pos kv_head d_head"], Float[Tensor, "batch pos kv_head d_head"]]:
        if self.key_shift is not None:
            k = self.hook_k_raw(k)
            k = self.rotary(k, positions) if self.rotates_first and self.rotary is not None else k
            k = self.key_shift(k, self.hook_alpha, earlier(cache, "key", k, self.shift_window - 1))
        if self.value_shift is not None:
            v = self.hook_v_raw(v)
            v = self.value_shift(v, self.hook_beta, earlier(cache, "value", v, self.shift_window - 1))
        k, v = self.hook_k(k), self.hook_v(v)
        if self.rotary is not None:
            k = self.hook_rot_k(k if self.rotates_first else self.rotary(k, positions))
        return k, v

    def read(
        self,
        q: Float[Tensor, "batch query head d_head"],
        k: Float[Tensor, "batch key kv_head d_head"],
        v: Float[Tensor, "batch key kv_head d_head"],
        positions: Positions,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """Return softmax(q k^T / sqrt(d_head) + bias) v, through W_O, for queries at `positions` of their rows.

        The queries are those of `queries`; keys and values are those of positions 0, 1, ... of every row. The cache
        already holds them; it is passed on for attention whose queries depend on earlier ones (selective).
        """
        if self.rotary is not None:
            q = self.hook_rot_q(self.rotary(q, positions))
        z = self.hook_z(self._attend(q, k, v, positions, cache))
        if is_hooked(self.hook_result):
            return self.hook_result(torch.einsum("bphd,hdm->bphm", z, self.W_O)).sum(dim=2) + self.b_O
        return self.o_proj(z.flatten(start_dim=2))

    def _attend(
        self,
        q: Float[Tensor, "batch query head d_head"],
        k: Float[Tensor, "batch key kv_head d_head"],
        v: Float[Tensor, "batch key kv_head d_head"],
        positions: Positions,
        cache: KVCache | None,
    ) -> Float[Tensor, "batch query head d_head"]:
        """Return z, for rotated queries."""
        dropout = self.dropout if self.training else 0.0
        if is_hooked(self.hook_attn_scores, self.hook_pattern):
            pattern = explicit_pattern(q, k, self.score_bias(k, positions), self.hook_attn_scores, self.hook_pattern)
            return read_values(pattern, v, dropout)
        return fused(q, k, v, self._fused_bias(k, positions), dropout)

    def _fused_bias(
        self, k: Float[Tensor, "batch key kv_head d_head"], positions: Positions
    ) -> Float[Tensor, "#batch #head query key"] | None:
        """Return the bias that the fused kernel needs, if any."""
        return None if self._plainly_causal(k, positions) else self.score_bias(k, positions)

    def _plainly_causal(self, k: Float[Tensor, "batch key kv_head d_head"], positions: Positions) -> bool:
        """Return True if the fused kernel needs no bias: for queries of whole rows, or of their last tokens alone."""
        if self.strict or self.alibi is not None or not isinstance(positions, slice):
            return False
        return positions.stop == k.shape[1] and positions.start in (0, positions.stop - 1)

    def score_bias(
        self, k: Float[Tensor, "batch key _ d_head"], positions: Positions
    ) -> Float[Tensor, "#batch #head query key"]:
        """Return what is added to the scores: -inf at keys that a query may not see, and ALiBi where there is one.

        The queries are at `positions`. Of k, only the number of keys, the type and the device are read.
        """
        key, query = torch.arange(k.shape[1], device=k.device), as_tensor(positions, k.device)[:, :, None]
        hidden = key >= query if self.strict else key > query
        if self.alibi is None:  # without the distances, which are 8 bytes for each score
            bias = torch.zeros_like(hidden, dtype=k.dtype)[:, None]
        else:
            bias = self.alibi(key - query, k.dtype)
        return bias.masked_fill(hidden[:, None], -torch.inf)

    def _input(self, what: str, x: Tensor, before: Tensor | None) -> Float[Tensor, "batch pos d_model"]:
        """Return what queries, keys or values are projected from: x, shifted where it is."""
        return self.input_shift[what](x, before) if what in self.input_shift else x

    def _convolved(self, what: str, x: Tensor, cache: KVCache | None) -> Float[Tensor, "batch pos head d_head"]:
        """Return queries, keys or values, convolved where they are."""
        return self.convolution[what](x, cache, what) if what in self.convolution else x

    @staticmethod
    def _heads(x: Tensor, n_heads: int) -> Float[Tensor, "batch pos head d_head"]:
        return x.unflatten(-1, (n_heads, -1))

    def share_shifts(self, other: "Attention") -> None:
        """Shift as another layer does, by the same parameters."""
        self.key_shift, self.value_shift, self.query_shift = other.key_shift, other.value_shift, other.query_shift

    @property
    def alpha(self) -> Tensor:
        """The key shift's weights [n_key_value_heads, window]; the paper's alpha1, alpha2 are columns 0, 1.

        They are the parameter itself where the variant stores them so, and (1, 0, ...) where keys are not shifted.
        """
        return self._mixing(self.key_shift, self.n_key_value_heads)

    @property
    def beta(self) -> Tensor:
        """The value shift's weights [n_key_value_heads, window], likewise; beta1, beta2 are columns 0, 1."""
        return self._mixing(self.value_shift, self.n_key_value_heads)

    @property
    def gamma(self) -> Tensor:
        """The query shift's weights [n_heads, window], likewise."""
        return self._mixing(self.query_shift, self.n_heads)

    def _mixing(self, shift: TokenShift | None, n_heads: int) -> Tensor:
        if shift is not None:
            return shift.weights()
        own = self.q_proj.weight.new_zeros(n_heads, self.shift_window)
        return own.index_fill(1, torch.zeros(1, dtype=torch.int64, device=own.device), 1)

    queries_alone = True
    """True if what a query reads does not depend on other queries, so that they can be taken at some positions only."""

    additive_scores = True
    """True if scores are q . k / sqrt(d_head) plus a bias that depends on positions alone, and give one pattern."""

    @property
    def value_gain(self) -> Float[Tensor, " d_head"]:
        """Factor on the channels of every head's values before W_O: 1."""
        return self.o_proj.weight.new_ones(self.d_head)

    @property
    def W_Q(self) -> Float[Tensor, "head d_model d_head"]:
        """A view of the query weights in TransformerLens' layout; writing to it writes to the model."""
        return self.q_proj.weight.unflatten(0, (self.n_heads, -1)).mT

    @property
    def W_K(self) -> Float[Tensor, "kv_head d_model d_head"]:
        """The key weights, likewise."""
        return self.k_proj.weight.unflatten(0, (self.n_key_value_heads, -1)).mT

    @property
    def W_V(self) -> Float[Tensor, "kv_head d_model d_head"]:
        """The value weights, likewise."""
        return self.v_proj.weight.unflatten(0, (self.n_key_value_heads, -1)).mT

    @property
    def W_O(self) -> Float[Tensor, "head d_head d_model"]:
        """The output weights, likewise."""
        return self.o_proj.weight.T.unflatten(0, (self.n_heads, -1))

    @property
    def b_Q(self) -> Float[Tensor, "head d_head"]:
        """The queries' biases, a view; zeros where the config has none."""
        return bias_of(self.q_proj).unflatten(0, (self.n_heads, -1))

    @property
    def b_K(self) -> Float[Tensor, "kv_head d_head"]:
        """The keys' biases, likewise. The shift mixes keys that have them already."""
        return bias_of(self.k_proj).unflatten(0, (self.n_key_value_heads, -1))

    @property
    def b_V(self) -> Float[Tensor, "kv_head d_head"]:
        """The values' biases, likewise."""
        return bias_of(self.v_proj).unflatten(0, (self.n_key_value_heads, -1))

    @property
    def b_O(self) -> Float[Tensor, " d_model"]:
        """The output's biases, likewise. They belong to no head."""
        return bias_of(self.o_proj)


def fused(
    q: Float[Tensor, "batch query head d_head"],
    k: Float[Tensor, "batch key kv_head d_head"],
    v: Float[Tensor, "batch key kv_head d_value"],
    bias: Float[Tensor, "#batch #head query key"] | None,
    dropout: float,
) -> Float[Tensor, "batch query head d_value"]:
    """Attention by PyTorch's fused kernel, which never holds the pattern.

    Without a bias it is causal: for as many queries as keys, or for a single query, which sees all keys.
    """
    grouped = q.shape[2] != k.shape[2]
    if grouped and bias is not None and q.is_cuda:  # there the kernel that takes a bias knows no groups
        k, v, grouped = *(x.repeat_interleave(q.shape[2] // x.shape[2], dim=2) for x in (k, v)), False
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    z = F.scaled_dot_product_attention(
        q, k, v, attn_mask=bias, dropout_p=dropout, is_causal=bias is None and q.shape[2] > 1, enable_gqa=grouped
    )
    return z.transpose(1, 2)


def explicit_pattern(
    q: Float[Tensor, "batch query head d_head"],
    k: Float[Tensor, "batch key kv_head d_head"],
    bias: Float[Tensor, "#batch #head query key"],
    hook_scores: HookPoint,
    hook_pattern: HookPoint,
) -> Float[Tensor, "batch head query key"]:
    """Return the pattern of the same attention, with scores and pattern laid open to hooks."""
    k = k.repeat_interleave(q.shape[2] // k.shape[2], dim=2)
    scores = hook_scores(torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1]) + bias)
    # A query left with no key attends to nothing: the first token under the strict mask, or what a hook hides.
    nothing = torch.isneginf(scores.amax(dim=-1, keepdim=True))
    return hook_pattern(scores.masked_fill(nothing, 0).softmax(dim=-1).masked_fill(nothing, 0))


def read_values(
    pattern: Float[Tensor, "batch head query key"], v: Float[Tensor, "batch key kv_head d_value"], dropout: float
) -> Float[Tensor, "batch query head d_value"]:
    """Return z, each head's mix of values."""
    v = v.repeat_interleave(pattern.shape[1] // v.shape[2], dim=2)
    if dropout:
        pattern = F.dropout(pattern, dropout)
    return torch.einsum("bhqk,bkhd->bqhd", pattern.to(v.dtype), v)
