"""A model of one attention-only layer as tables over pairs of neighbouring tokens.

Keys and values of such a layer depend on their token b and on the token a before it, queries on the last token q. With
D_k = w_final * U_k, the direction of the logit of token k before the final norm's positive scale,

    scale * logit_k = direct(q)_k + sum over heads h of  [ sum_j e^{s_h(q; a_j, b_j, t - j)} read_h(a_j, b_j)_k ] / Z_h,
    Z_h = sum_j e^{s_h(q; a_j, b_j, t - j)}.

These tables hold direct, s and read, in float64, from the weights as stored. Rotary angles are exact, so scores depend
on the distance t - j only; with learned positions everything depends on the position as well.
"""

import math
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ihlab.model.config import ModelConfig
from ihlab.model.registry import VARIANTS
from ihlab.model.shift import TokenShift
from ihlab.model.transformer import Transformer
from tasks.config import require

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24}
"""Largest relative error of one floating-point operation, by type."""


def require_pairs(model: Transformer) -> None:
    """Raise `ConfigError`, with the reason, unless the model is one layer whose keys and values read token pairs."""
    cfg = model.cfg
    variant = VARIANTS[cfg.attention]
    plain = not (variant.query or variant.mixes_tokens or variant.recurrent or variant.fixed)
    settings: list[tuple[bool, str, str]] = [
        (cfg.n_layers == 1, f"n_layers={cfg.n_layers}", "a second layer reads what the first one mixed"),
        (cfg.mlp != "gelu", f"mlp={cfg.mlp!r}", "an MLP is not a sum over tokens, and only swiglu is enclosed"),
        (cfg.norm != "layer", "norm='layer'", "a LayerNorm's bias is not scaled with the rest"),
        (
            plain and variant.attention == "attention:Attention",
            f"attention={cfg.attention!r}",
            "its keys, values or queries depend on other tokens than their own and the one before",
        ),
        (not cfg.shifted or cfg.shift_window == 2, f"shift_window={cfg.shift_window}", "keys see more than two tokens"),
        (cfg.stream_shift == "none", f"stream_shift={cfg.stream_shift!r}", "queries see two tokens"),
        (cfg.canon == "", f"canon={cfg.canon!r}", "a convolution sees more than two tokens"),
        (cfg.smear == "none", f"smear={cfg.smear!r}", "queries see two tokens"),
        (cfg.bigram_table == 0, f"bigram_table={cfg.bigram_table}", "queries see two tokens"),
        (not (cfg.dropout and model.training), f"dropout={cfg.dropout} in training mode", "it is random: call eval()"),
    ]
    for allowed, setting, why in settings:
        require(allowed, f"The model has {setting}, but a proof needs one layer that reads pairs of tokens: {why}.")


def lengthened(model: Transformer, length: int) -> Transformer:
    """Return the model, or a copy with a larger n_ctx if `length` needs one. Learned positions cannot be extended."""
    if length <= model.cfg.n_ctx:
        return model
    longer = Transformer(model.cfg.replace(n_ctx=length)).to(model.embed.weight.dtype).eval()
    longer.load_state_dict(model.state_dict())
    return longer


@dataclass(frozen=True, eq=False)
class PairTables:
    """The tables of a model for one length. Tokens are numbered as in the alphabet; token V means "none before".

    - `direct` [query, output];
    - `read` [head, output, place, token, before]: one place for all positions, or with learned positions one for each,
      counted back from the query;
    - `query` [query, head, back, d_head]: queries, rotated by the distance back to the key;
    - `key` [head, place, token, before, d_head];
    - `slopes` [head]: ALiBi slopes; `strict`: whether a query does not see its own token;
    - `rounding`: bounds of the rounding error of a margin, by type: any margin above it is positive in real arithmetic.
    """

    length: int
    direct: Float[np.ndarray, "query output"]
    read: Float[np.ndarray, "head output place token before"]
    query: Float[np.ndarray, "query head back d_head"]
    key: Float[np.ndarray, "head place token before d_head"]
    slopes: Float[np.ndarray, " head"]
    strict: bool
    rounding: dict[str, float]

    def masses(self, query: int) -> Float[np.ndarray, "head back token before"]:
        """Return e^(s - largest s) of a query for each key, `back` positions before it."""
        scores = np.einsum("hkd,hptad->hkpta", self.query[query], self.key, optimize=True)
        places = self.key.shape[1]
        scores = scores[:, :, 0] if places == 1 else scores[:, np.arange(places), np.arange(places)]
        scores = scores - self.slopes[:, None, None, None] * np.arange(self.length)[:, None, None]
        if self.strict:
            scores[:, 0] = -np.inf
        return np.exp(scores - scores.max(axis=(1, 2, 3), keepdims=True))


@torch.no_grad()
def pair_tables(
    model: Transformer,
    alphabet: Int[np.ndarray, " token"],
    length: int,
    directions: Float[Tensor, "output d_model"] | None = None,
) -> PairTables:
    """Return the tables of a model for sequences of `length` tokens of the alphabet.

    The outputs are the logits, or other `directions` of the stream after attention. Raises `ConfigError` as
    `require_pairs` does, and with learned positions for a length above n_ctx.
    """
    require_pairs(model)
    cfg, exact = model.cfg, deepcopy(model).eval().cpu().double()
    require(
        exact.pos_embed is None or length <= cfg.n_ctx,
        f"The length is {length}, but the model has learned positions for n_ctx={cfg.n_ctx} tokens.",
    )
    block = exact.layers[0]
    attn = block.attn
    stream = exact.embed.weight[torch.from_numpy(alphabet)][None]  # [place, token, d_model]
    if exact.pos_embed is not None:  # counted back from the query
        stream = stream + exact.pos_embed.weight[:length].flip(0)[:, None]
    normed = stream if block.ln1 is None else block.ln1(stream)
    k, v = attn.project(normed)
    k = _pairs(attn.key_shift, k, attn.first_own)
    v = _pairs(attn.value_shift, v, attn.first_own)
    k = k if attn.k_norm is None else attn.k_norm(k)
    q = attn.q_proj(normed[0]).unflatten(-1, (attn.n_heads, -1))  # the query is at place 0
    q = q if attn.q_norm is None else attn.q_norm(q)
    group = attn.n_heads // attn.n_key_value_heads
    k, v = (x.repeat_interleave(group, dim=3) for x in (k, v))  # [place, token, before, head, d_head]
    direction = directions
    if direction is None:
        direction = exact.tokens_to_residual_directions(torch.arange(cfg.d_vocab)).double()
    direct = attn.b_O.expand_as(stream[0]) + (stream[0] if block.residual else 0)
    slopes = attn.alibi.slopes if attn.alibi is not None else torch.zeros(attn.n_heads)
    read = torch.einsum("ptahd,hdm,om->hopta", v, attn.W_O, direction)
    rotated = _rotated(q, cfg, length) if attn.rotary is not None else q[:, None].expand(-1, length, -1, -1)
    tables = PairTables(
        length=length,
        direct=(direct @ direction.T).numpy(),
        read=np.ascontiguousarray(read.numpy()),
        query=(rotated.transpose(1, 2) / attn.d_head**0.5).numpy(),
        key=k.permute(3, 0, 1, 2, 4).contiguous().numpy(),
        slopes=slopes.double().numpy(),
        strict=attn.strict,
        rounding={},
    )
    tables.rounding.update(_rounding(exact, tables, normed, v, direction))
    return tables


def _pairs(
    shift: TokenShift | None, x: Float[Tensor, "place token kv_head d_head"], first_own: bool
) -> Float[Tensor, "place token before kv_head d_head"]:
    """Return the shifted vectors of each token after every possible previous token; the last column is for none."""
    n_tokens = x.shape[1]
    if shift is None:
        return x[:, :, None].expand(-1, -1, n_tokens + 1, -1, -1)
    weight = shift.weights()
    now, before = (weight[:, back].reshape(len(weight), -1) for back in (0, 1))
    earlier = x if len(x) == 1 else torch.cat([x[1:], x[-1:]])  # one place further back
    pairs = (now * x)[:, :, None] + (before * earlier)[:, None]
    alone = x if first_own else now * x
    return torch.cat([pairs, alone[:, :, None]], dim=2)


def _rotated(
    q: Float[Tensor, "query head d_head"], cfg: ModelConfig, length: int
) -> Float[Tensor, "query back head d_head"]:
    """Return queries rotated by the distance back to each key: the score of q at t and k at j is (R(t - j) q) . k."""
    d = q.shape[-1]
    frequency = cfg.rotary_base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    if cfg.rotary_frequencies is not None:
        frequency = torch.tensor(cfg.rotary_frequencies, dtype=torch.float64)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    cos, sin = (x.repeat(1, 2)[:, None] for x in (angle.cos(), angle.sin()))
    first, second = q[:, None].chunk(2, dim=-1)
    return cfg.rotary_scale**2 * (q[:, None] * cos + torch.cat([-second, first], dim=-1) * sin)


def _rounding(
    exact: Transformer, tables: PairTables, normed: Tensor, v: Tensor, directions: Tensor
) -> dict[str, float]:
    """Return a bound of the rounding error of a margin, for each type.

    This is a first-order analysis of vector norms, in units of u (`UNIT`). If x has an error of e, a linear map W of n
    inputs gives W x with an error of at most |W|_2 e + n |W|_F |x|. If scores have errors of at most e, a key's weight
    relative to others is off by at most a factor of exp(2 e). The factor 2 at the end covers products of errors.
    """
    attn, d_model, d_head = exact.layers[0].attn, exact.cfg.d_model, exact.layers[0].attn.d_head
    size = normed.norm(dim=-1).max().item()

    def mapped(weight: Tensor, error: float, size: float) -> float:
        largest = torch.linalg.matrix_norm(weight, 2).item()
        return largest * error + weight.shape[1] * torch.linalg.matrix_norm(weight).item() * size

    def of_heads(side: str) -> float:
        """Return the error of a head's query, key or value."""
        error = mapped(getattr(attn, f"{side[0]}_proj").weight, (d_model + 6) * size, size)
        if (shift := getattr(attn, f"{side}_shift")) is not None:
            error = (shift.weights().abs().sum(dim=1).max().item()) * (error + 4 * error / d_model)
        return error

    vectors = {"query": torch.from_numpy(tables.query) * d_head**0.5, "key": torch.from_numpy(tables.key)}
    norms = {side: vectors[side].norm(dim=-1).max().item() for side in vectors}
    errors = {side: of_heads(side) for side in ("query", "key", "value")}
    for side, norm in (("query", attn.q_norm), ("key", attn.k_norm)):
        if norm is not None:  # x / scale: a small scale enlarges the error
            smallest = (vectors[side] / norm.w).norm(dim=-1).min().item() / norms[side]
            errors[side] = 2 * errors[side] / max(smallest, 1e-12) + (d_head + 6) * norms[side]
    score = (
        norms["query"] * errors["key"] + errors["query"] * norms["key"] + (d_head + 8) * norms["query"] * norms["key"]
    )
    score = score / d_head**0.5 + np.abs(tables.slopes).max() * tables.length
    longest = 2 * directions.norm(dim=-1).max().item()
    written, constant = 0.0, size if exact.layers[0].residual else 0.0
    for head, weight in enumerate(attn.W_O):
        largest = v[..., head, :].norm(dim=-1).max().item()
        written += (
            mapped(weight.T, errors["value"], largest) + d_model * torch.linalg.matrix_norm(weight, 2).item() * largest
        )
    gains = 2 * np.abs(tables.read).max(axis=(1, 2, 3, 4)).sum()
    read = longest * (written + (d_model + 6) * constant)
    return {
        name: 2 * (read * unit + gains * math.expm1(2 * (score + 2 * tables.length + 16) * unit))
        if score * unit < 1
        else math.inf
        for name, unit in UNIT.items()
    }
