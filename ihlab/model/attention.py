"""Causal attention, vanilla or with shifted keys, values and queries."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from ihlab.model.attend import (
    Heads,
    Keys,
    Queries,
    Scores,
    Stream,
    Values,
    at_positions,
    explicit_pattern,
    fused,
    is_hooked,
    read_values,
)
from ihlab.model.config import ModelConfig
from ihlab.model.documents import Documents, other_documents
from ihlab.model.kv_cache import KVCache, Past, next_positions
from ihlab.model.lens.head_weights import HeadWeights
from ihlab.model.mixes.places import HeadMixes
from ihlab.model.norm import RMSNorm
from ihlab.model.positions import Alibi, Positions, Rotary, as_tensor


class Attention(HeadMixes, HeadWeights):
    """project q, k, v -> shift k and v -> rotary or ALiBi -> scores -> softmax -> values -> output.

    Equations 4 to 6 of arXiv 2411.19574. Shapes, with h = n_heads and g = n_key_value_heads:

    - hook_q [batch, pos, h, d_head]; hook_k_raw, hook_v_raw [batch, pos, g, d_head] before the
      shift;
    - hook_alpha, hook_beta [g, window]; hook_k, hook_v [batch, pos, g, d_head] after the shift;
    - hook_q_raw, hook_gamma [h, window]: the same for shifted queries. The hooks of a shift exist
      only if `cfg.attention` learns it;
    - q_norm, k_norm: with `cfg.qk_norm`, the hooks of the norms between hook_q, hook_k and the
      rotation;
    - hook_rot_q, hook_rot_k: after the rotation;
    - hook_attn_scores, hook_pattern [batch, h, query, key]; hook_z [batch, pos, h, d_head], z =
      pattern @ v;
    - hook_result [batch, pos, h, d_model]: each head's own output. Their sum, plus b_O, is the
      output.

    PyTorch's fused kernel is used unless the scores or the pattern have a hook, and hook_result is
    computed only if it has one. In training, dropout acts on the pattern after its hook.

    With a cache, x continues the sequences that the cache holds: the axes pos and query run over
    the tokens of x, and key over all tokens so far. If queries are gathered at some positions
    (`ihlab.model.query_positions`), only these are in the pos axis of hook_q, hook_rot_q, hook_z
    and hook_result.
    """

    queries_alone = True
    """True if a query's result does not depend on other queries, so that some positions can be left
    out.
    """

    additive_scores = True
    """True if scores are q . k / sqrt(d_head) plus a bias that depends only on positions, with one
    pattern per head.
    """

    def __init__(
        self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
    ) -> None:
        super().__init__()
        self.n_heads = cfg.n_heads
        self.n_key_value_heads = cfg.kv_heads
        self.d_head = cfg.head_width
        self.q_proj = nn.Linear(cfg.d_model, self.n_heads * self.d_head, bias=cfg.bias)
        self._make_key_value_maps(cfg)
        self.o_proj = nn.Linear(self.n_heads * self.d_head, cfg.d_model, bias=cfg.bias)
        self._make_mixes(cfg, generator, layer)
        self.rotary: Rotary | None = None
        self.alibi: Alibi | None = None
        self.q_norm: RMSNorm | None = None
        self.k_norm: RMSNorm | None = None
        if cfg.rotates_in(layer):
            angles = cfg.rotary_frequencies, cfg.rotary_scale
            self.rotary = Rotary(self.d_head, cfg.n_ctx, cfg.rotary_base, *angles)
        if cfg.positional == "alibi":
            self.alibi = Alibi(cfg.n_heads, cfg.slopes_in(layer))
        if cfg.qk_norm:
            self.q_norm = RMSNorm(self.d_head, cfg.eps)
            self.k_norm = RMSNorm(self.d_head, cfg.eps)
        self.additive_scores = type(self).additive_scores and not cfg.qk_norm
        self.strict, self.dropout = cfg.mask == "strict", cfg.dropout
        own_bias = type(self).score_bias is not Attention.score_bias  # a subclass overrides it
        self.only_causal = not (self.strict or own_bias) and self.alibi is None
        self._make_hook_points()

    def forward(self, x: Stream, cache: Past | None = None) -> Stream:
        """Return the sum of the heads' outputs for the normalised residual stream x; add its tokens
        to the cache.
        """
        positions = next_positions(cache, x.shape[1])
        q = self.queries(x, cache=cache)
        k, v = self.keys_values(x, cache)
        return self.read(q, k, v, positions, cache)

    def queries(
        self, x: Stream, at: Int[Tensor, "batch query"] | None = None, cache: Past | None = None
    ) -> Queries:
        """Project the queries at positions `at` (None: all), mixed with earlier queries if the
        config says so.
        """
        if at is not None and not self.mixes_queries:
            x = at_positions(x, at)  # fewer vectors to project
        q = self.mixed("query", self._heads(self.q_proj(x), self.n_heads), cache)
        if at is not None and self.mixes_queries:
            q = at_positions(q, at)
        return self.hook_q(q)

    def keys_values(self, x: Stream, cache: Past | None = None) -> tuple[Keys, Values]:
        """Return the shifted and rotated keys and the shifted values of all tokens, including those
        in the cache.
        """
        k, v = self.shifted_and_rotated(*self.project(x, cache), cache)
        if isinstance(cache, KVCache):
            return cache.append(k, v)
        return k, v

    def project(self, x: Stream, cache: Past | None = None) -> tuple[Keys, Values]:
        """Return the keys and values before any convolution, shift or rotation."""
        k, v = self.k_proj(x), self.v_proj(x)
        return self._heads(k, self.n_key_value_heads), self._heads(v, self.n_key_value_heads)

    def shifted_and_rotated(self, k: Keys, v: Values, cache: Past | None) -> tuple[Keys, Values]:
        """Return the keys and values of `project` after mixing, norm and rotation, as attention
        reads them.
        """
        k, v = self.hook_k(self.mixed("key", k, cache)), self.hook_v(self.mixed("value", v, cache))
        if self.k_norm is not None:
            k = self.k_norm(k)
        if self.rotary is not None:
            k = self.hook_rot_k(self.rotary(k, next_positions(cache, k.shape[1])))
        return k, v

    def read(
        self, q: Queries, k: Keys, v: Values, positions: Positions, cache: Past | None = None
    ) -> Float[Tensor, "batch query d_model"]:
        """Return softmax(q k^T / sqrt(d_head) + bias) v, through W_O, for the `queries` at
        `positions`.

        Keys and values are those of all tokens from position 0 on, including the cached ones.
        `cache` is for variants that store more than these. It may also be packed documents.
        """
        return self.output(self._attend(self.rotated(q, positions), k, v, positions, cache))

    def rotated(self, q: Queries, positions: Positions) -> Queries:
        """Normalise and rotate queries, where the config says so."""
        if self.q_norm is not None:
            q = self.q_norm(q)
        if self.rotary is not None:
            q = self.hook_rot_q(self.rotary(q, positions))
        return q

    def output(self, z: Queries) -> Float[Tensor, "batch query d_model"]:
        """Return the sum over heads of z @ W_O, plus b_O."""
        z = self.hook_z(z)
        if is_hooked(self.hook_result):
            return (
                self.hook_result(torch.einsum("bphd,hdm->bphm", z, self.W_O)).sum(dim=2) + self.b_O
            )
        return self.o_proj(z.flatten(start_dim=2))

    def _attend(
        self, q: Queries, k: Keys, v: Values, positions: Positions, cache: Past | None
    ) -> Queries:
        dropout = self.dropout if self.training else 0.0
        if not is_hooked(self.hook_attn_scores, self.hook_pattern):
            return fused(q, k, v, self._fused_bias(k, positions, cache), dropout)
        bias = self.masked_bias(k, positions, cache)
        pattern = explicit_pattern(q, k, bias, self.hook_attn_scores, self.hook_pattern)
        return read_values(pattern, v, dropout)

    def _fused_bias(self, k: Keys, positions: Positions, cache: Past | None) -> Scores | None:
        """Return the bias for the fused kernel; None if it is causal and queries are at all
        positions or the last.
        """
        whole_or_last = isinstance(positions, slice) and (
            positions.stop == k.shape[1] and positions.start in (0, positions.stop - 1)
        )
        if self.only_causal and whole_or_last and not isinstance(cache, Documents):
            return None
        return self.masked_bias(k, positions, cache)

    def masked_bias(self, k: Keys, positions: Positions, cache: Past | None) -> Scores:
        """Return `score_bias`, with -inf at keys of other packed documents."""
        bias = self.score_bias(k, positions)
        others = other_documents(cache, positions)
        if others is None:
            return bias
        return bias.masked_fill(others[:, None], -torch.inf)

    def score_bias(self, k: Float[Tensor, "batch key _ d_head"], positions: Positions) -> Scores:
        """Return the bias on the scores: -inf at keys that a query may not see, plus ALiBi if the
        model has it.

        The queries are at `positions`. Of k, only the number of keys, the dtype and the device are
        used.
        """
        key = torch.arange(k.shape[1], device=k.device)
        query = as_tensor(positions, k.device)[:, :, None]
        hidden = key > query - int(self.strict)  # a strict mask hides the query's own token, too
        if self.alibi is None:  # do not compute distances: they take 8 bytes per score
            bias = torch.zeros_like(hidden, dtype=k.dtype)[:, None]
        else:
            bias = self.alibi(key - query, k.dtype)
        return bias.masked_fill(hidden[:, None], -torch.inf)

    @staticmethod
    def _heads(x: Tensor, n_heads: int) -> Heads:
        return x.unflatten(-1, (n_heads, -1))

    # Parts that variants override:

    def _make_key_value_maps(self, cfg: ModelConfig) -> None:
        self.k_proj = nn.Linear(cfg.d_model, self.n_key_value_heads * self.d_head, bias=cfg.bias)
        self.v_proj = nn.Linear(cfg.d_model, self.n_key_value_heads * self.d_head, bias=cfg.bias)

    def _make_hook_points(self) -> None:
        self._make_shift_hooks()
        self.hook_q, self.hook_k, self.hook_v = HookPoint(), HookPoint(), HookPoint()
        if self.rotary is not None:
            self.hook_rot_q, self.hook_rot_k = HookPoint(), HookPoint()
        self.hook_attn_scores, self.hook_pattern = HookPoint(), HookPoint()
        self.hook_z, self.hook_result = HookPoint(), HookPoint()
