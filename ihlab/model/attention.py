"""Causal attention, vanilla or with shifted keys and values."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from transformer_lens.hook_points import HookPoint

from ihlab.model.config import ModelConfig
from ihlab.model.kv_cache import KVCache
from ihlab.model.linear import bias_of
from ihlab.model.positions import Alibi, Rotary
from ihlab.model.shift import TokenShift


def positions_of(
    x: Float[Tensor, "batch pos d_model"], at: Int[Tensor, "batch asked"]
) -> Float[Tensor, "batch asked d_model"]:
    """Some positions of each row."""
    return x.gather(1, at[:, :, None].expand(-1, -1, x.shape[-1]))


def is_hooked(*points: HookPoint) -> bool:
    """Whether anything listens at one of these hook points."""
    return any(point.fwd_hooks or point.bwd_hooks for point in points)


class Attention(nn.Module):
    """project q, k, v -> shift k and v -> rotary or ALiBi -> scores -> softmax -> values -> output.

    Equations 4 to 6 of arXiv 2411.19574. Shapes, with h = n_heads and g = n_key_value_heads:

    - hook_q [batch, pos, h, d_head]; hook_k_raw, hook_v_raw [batch, pos, g, d_head] before the shift;
    - hook_alpha, hook_beta [g, window]; hook_k, hook_v [batch, pos, g, d_head] after it;
    - hook_rot_q, hook_rot_k: after the rotary turn;
    - hook_attn_scores, hook_pattern [batch, h, query, key]; hook_z [batch, pos, h, d_head], z = pattern @ v;
    - hook_result [batch, pos, h, d_model]: each head's own output. Their sum, plus b_O, is the output.

    The fused kernel is used unless something listens at the scores or the pattern, and hook_result
    is computed only when something listens there. In training, dropout falls on the pattern after its hook.

    With a cache, x goes on where the cache ends: pos and query are the tokens of x, key is those and all before.
    With queries `at` some positions only, those are pos and query of hook_q, hook_rot_q and of all from the scores on.
    """

    def __init__(self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0) -> None:
        super().__init__()
        self.n_heads, self.n_key_value_heads, self.d_head = cfg.n_heads, cfg.kv_heads, cfg.head_width
        self.q_proj = nn.Linear(cfg.d_model, self.n_heads * self.d_head, bias=cfg.bias)
        self.k_proj = nn.Linear(cfg.d_model, self.n_key_value_heads * self.d_head, bias=cfg.bias)
        self.v_proj = nn.Linear(cfg.d_model, self.n_key_value_heads * self.d_head, bias=cfg.bias)
        self.o_proj = nn.Linear(self.n_heads * self.d_head, cfg.d_model, bias=cfg.bias)
        self.shifted = cfg.attention == "kv_shift"
        if self.shifted:
            self.key_shift = TokenShift(self.n_key_value_heads, cfg.shift_window, generator)
            self.value_shift = TokenShift(self.n_key_value_heads, cfg.shift_window, generator)
            self.hook_alpha, self.hook_beta = HookPoint(), HookPoint()
            self.hook_k_raw, self.hook_v_raw = HookPoint(), HookPoint()
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

    def forward(
        self,
        x: Float[Tensor, "batch pos d_model"],
        cache: KVCache | None = None,
        at: Int[Tensor, "batch asked"] | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """The sum of the heads' outputs for the normalised residual stream x; the cache then holds x as well.

        Without a cache, queries may be made `at` some positions of each row only; keys and values are of all.
        """
        assert cache is None or at is None, "where a cache goes on, every position asks"
        start = 0 if cache is None else cache.length
        q = self.hook_q(self._heads(self.q_proj(x if at is None else positions_of(x, at)), self.n_heads))
        k = self._heads(self.k_proj(x), self.n_key_value_heads)
        v = self._heads(self.v_proj(x), self.n_key_value_heads)
        if self.shifted:
            k, v = self.hook_k_raw(k), self.hook_v_raw(v)
            k_before, v_before = (None, None) if cache is None else cache.exchange_raw(k, v)
            # Copies: a hook that writes into what it is given must not write into the parameters.
            k = self.key_shift(k, self.hook_alpha(self.alpha.clone()), k_before)
            v = self.value_shift(v, self.hook_beta(self.beta.clone()), v_before)
        k, v = self.hook_k(k), self.hook_v(v)
        if self.rotary is not None:
            turned = self.rotary(q, start) if at is None else self.rotary.at(q, at)
            q, k = self.hook_rot_q(turned), self.hook_rot_k(self.rotary(k, start))
        own = k
        if cache is not None:
            k, v = cache.append(k, v)
        dropout = self.dropout if self.training else 0.0
        if is_hooked(self.hook_attn_scores, self.hook_pattern):
            bias = self._bias(own, start, at)
            z = _explicit(q, k, v, bias, self.hook_attn_scores, self.hook_pattern, dropout)
        else:
            # What the kernel can do without a bias: a row from its beginning, or its last token.
            plain = not self.strict and self.alibi is None and at is None and (start == 0 or q.shape[1] == 1)
            z = _fused(q, k, v, None if plain else self._bias(own, start, at), dropout)
        z = self.hook_z(z)
        if is_hooked(self.hook_result):
            return self.hook_result(torch.einsum("bphd,hdm->bphm", z, self.W_O)).sum(dim=2) + self.b_O
        return self.o_proj(z.flatten(start_dim=2))

    def _bias(
        self, k: Float[Tensor, "batch pos kv_head d_head"], start: int, at: Int[Tensor, "batch asked"] | None
    ) -> Float[Tensor, "#batch #head query key"]:
        """`score_bias` of every position of k, or of those that are asked."""
        bias = self.score_bias(k, start)
        return bias[None] if at is None else bias[:, at].transpose(0, 1)

    def score_bias(self, q: Float[Tensor, "batch query _ d_head"], start: int = 0) -> Float[Tensor, "#head query key"]:
        """What is added to the scores: -inf at keys that a query may not see, and ALiBi where there is one.

        The first query is at the position `start`; the keys are those of all positions up to the last query's.
        Of q, only the number of positions, the type and the device are read.
        """
        n_pos = q.shape[1]
        hidden = torch.ones((n_pos, start + n_pos), dtype=torch.bool, device=q.device)
        hidden = hidden.triu(start + (0 if self.strict else 1))
        bias = q.new_zeros(1, n_pos, start + n_pos) if self.alibi is None else self.alibi(n_pos, q.dtype, start)
        return bias.masked_fill(hidden, -torch.inf)

    @property
    def asking_hooks(self) -> list[HookPoint]:
        """The hook points at which `at` leaves positions out."""
        own = [self.hook_q, self.hook_attn_scores, self.hook_pattern, self.hook_z, self.hook_result]
        return own if self.rotary is None else [*own, self.hook_rot_q]

    @staticmethod
    def _heads(x: Tensor, n_heads: int) -> Float[Tensor, "batch pos head d_head"]:
        return x.unflatten(-1, (n_heads, -1))

    @property
    def alpha(self) -> Tensor:
        """The key shift's weights [n_key_value_heads, window]; the paper's alpha1, alpha2 are columns 0, 1."""
        return self.key_shift.weight

    @property
    def beta(self) -> Tensor:
        """The value shift's weights [n_key_value_heads, window]; the paper's beta1, beta2 are columns 0, 1."""
        return self.value_shift.weight

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


def _fused(
    q: Float[Tensor, "batch query head d_head"],
    k: Float[Tensor, "batch key kv_head d_head"],
    v: Float[Tensor, "batch key kv_head d_head"],
    bias: Float[Tensor, "#batch #head query key"] | None,
    dropout: float,
) -> Float[Tensor, "batch query head d_head"]:
    """Attention by PyTorch's fused kernel, which never holds the pattern.

    Without a bias plainly causal for as many queries as keys; a single query then sees all keys.
    """
    grouped = q.shape[2] != k.shape[2]
    if grouped and bias is not None and q.is_cuda:  # there the kernel that takes a bias knows no groups
        k, v, grouped = *(x.repeat_interleave(q.shape[2] // x.shape[2], dim=2) for x in (k, v)), False
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    z = F.scaled_dot_product_attention(
        q, k, v, attn_mask=bias, dropout_p=dropout, is_causal=bias is None and q.shape[2] > 1, enable_gqa=grouped
    )
    return z.transpose(1, 2)


def _explicit(
    q: Float[Tensor, "batch query head d_head"],
    k: Float[Tensor, "batch key kv_head d_head"],
    v: Float[Tensor, "batch key kv_head d_head"],
    bias: Float[Tensor, "#batch #head query key"],
    hook_scores: HookPoint,
    hook_pattern: HookPoint,
    dropout: float,
) -> Float[Tensor, "batch query head d_head"]:
    """The same attention with scores and pattern laid open to hooks."""
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, dim=2), v.repeat_interleave(group, dim=2)
    scores = hook_scores(torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1]) + bias)
    # A query left with no key attends to nothing: the first token under the strict mask, or what a hook hides.
    nothing = torch.isneginf(scores).all(dim=-1, keepdim=True)
    pattern = hook_pattern(scores.masked_fill(nothing, 0).softmax(dim=-1).masked_fill(nothing, 0))
    if dropout:
        pattern = F.dropout(pattern, dropout)
    return torch.einsum("bhqk,bkhd->bqhd", pattern.to(v.dtype), v)
