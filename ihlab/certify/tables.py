"""A model of one attention layer as tables over pairs of neighbouring tokens, enclosed from the stored weights.

Keys and values of such a layer depend on their token b and on the token a before it, queries on the last token q. With
D_k = w_final * U_k, the direction of the logit of token k before the final norm's positive scale,

    scale * logit_k = direct(q)_k + sum over heads h of [sum_j e^{s_h(q; a_j, b_j, t - j)} read_h(a_j, b_j)_k] / Z_h,
    Z_h = sum_j e^{s_h(q; a_j, b_j, t - j)}.

Rotary angles come from the formula, so the position enters a score only as the distance t - j. With learned positions
everything depends on the position as well. A shifted key is a vector from b plus a vector from a. So e^s is a factor of
b times a factor of a: 2 V exponentials, not V^2. With `qk_norm` this fails, and all V^2 are computed.
"""

from dataclasses import dataclass
from functools import lru_cache, reduce
from math import ceil, log2
from typing import Any

import numpy as np
import torch
from flint import arb, ctx
from jaxtyping import Int

from ihlab.certify.enclosures import PRECISION, Balls, Interval, ends, exact, exp, normalised, plus, product, times
from ihlab.model.registry import VARIANTS
from ihlab.model.shift import ClippedShift, GatedShift, SumToOneShift, TokenShift
from ihlab.model.transformer import Transformer
from tasks.config import require

MOST_BITS = 900
"""Masses are scaled so that the largest is at most 2^900, far from overflow. One that is e^1300 times smaller is
enclosed only as nearly 0."""
LARGEST = 1e250
"""The largest logit that is enclosed."""


ONLY: dict[str, tuple[Any, str]] = {
    "n_layers": (1, "a second layer reads what the first one mixed"),
    "mlp": ("none", "an MLP is not a sum over tokens; `attack` can refute it"),
    "stream_shift": ("none", "a query must depend on the last token only"),
    "canon": ("", "a convolution sees more than two tokens"),
    "smear": ("none", "a query must depend on the last token only"),
    "bigram_table": (0, "a query must depend on the last token only"),
}
"""The only value of some fields of a model's config for which a proof is possible, and why."""


def require_pairs(model: Transformer) -> None:
    """Raise `ConfigError`, with the reason, unless the model is one layer whose keys and values read token pairs."""
    cfg = model.cfg
    said = "The model has {}={!r}, but a proof needs one layer that reads pairs of tokens: {}."
    for name, (only, why) in ONLY.items():
        value = getattr(cfg, name)
        require(value == only, said.format(name, value, why))
    require(cfg.norm != "layer", said.format("norm", cfg.norm, "a LayerNorm's bias is not scaled with the rest"))
    variant = VARIANTS[cfg.attention]
    plain = not (variant.query or variant.mixes_tokens or variant.recurrent)
    why = "its keys, values or queries depend on other tokens than their own and the one before"
    require(plain and variant.attention == "attention:Attention", said.format("attention", cfg.attention, why))
    two = not cfg.shifted or cfg.shift_window == 2
    require(two, said.format("shift_window", cfg.shift_window, "keys see more than two tokens"))
    random = cfg.dropout and model.training
    require(not random, said.format("dropout", cfg.dropout, "in training mode it is random: call eval()"))


@dataclass(frozen=True, eq=False)
class PairTables:
    """The tables of one query, for sequences up to a length. Token V means "none before".

    - `mass` [head, back, token, before]: e^s times a common factor, `back` positions before the query. The axis `back`
      has size 1 if scores do not depend on the distance;
    - `read` [head, output, place, token, before]: the axis `place` has size 1 unless positions are learned. Then it
      counts back from the query;
    - `direct` [output].
    """

    mass: Interval
    read: Interval
    direct: Interval


class ModelTables:
    """Encloses the tables of a model, for sequences of tokens of an alphabet.

    The outputs are the logits, each minus the mean of all, which leaves margins as they are. Raises `ConfigError` as
    `require_pairs` and `ends` do.

    Arrays [place, ..] have one place for all positions, or with learned positions one for each.
    """

    def __init__(
        self,
        model: Transformer,
        alphabet: Int[np.ndarray, " token"],
        longest: int,
    ) -> None:
        self.cfg, self.attn, self.longest = model.cfg, model.layers[0].attn, longest
        self.n_tokens, self.learned = len(alphabet), model.pos_embed is not None
        heads = range(self.cfg.n_heads)
        with ctx.workprec(PRECISION):
            streams = exact(model.embed.weight[torch.tensor(alphabet)])[None]
            if model.pos_embed is not None:
                streams = streams + exact(model.pos_embed.weight[:longest])[:, None]
            self.functions = _centred_logits(model)
            self._normed = _with_norm(streams, model.layers[0].ln1)
            self._keys = [self._key_rows(head) for head in heads]
            self._queries = [_with_norm(self._projected("q", head), self.attn.q_norm) for head in heads]
            reads = [self._reads(head) for head in heads]
            self._direct = self._directs(streams)
        self._read = Interval(np.stack([read.low for read in reads]), np.stack([read.high for read in reads]))
        ends_of_logits = (*self._read, *self._direct)
        largest = max(np.abs(table).max() for table in ends_of_logits)
        require(largest < LARGEST, f"A logit of the model can be {largest:.3g}, which is too large to be enclosed.")
        self._bits = min(MOST_BITS, 1000 - ceil(log2(4 * longest * (largest + 1))))
        self._masses = lru_cache(maxsize=1)(self._masses_at)
        self._reads_at = lru_cache(maxsize=1)(self._placed)

    def of(self, query: int, length: int) -> PairTables:
        """Return the tables of a query, the token of this number in the alphabet."""
        factors = self._masses(length)
        low, high = (table[self._place(length, 0), query] for table in self._direct)
        return PairTables(self._mass(factors, query), self._reads_at(length), Interval(low, high))

    def _place(self, length: int, back: int) -> int:
        """Return the index on an axis `place` of a position, counted back from the last one."""
        return length - 1 - back if self.learned else 0

    def _placed(self, length: int) -> Interval:
        """Return the reads of each place, counted back from the last position of a length."""
        if not self.learned:
            return self._read
        return Interval(*(np.ascontiguousarray(table[:, :, length - 1 :: -1]) for table in self._read))

    def _projected(self, side: str, head: int) -> Balls:
        """Return a head's queries, keys or values before the shift [place, V, d_head]."""
        linear, d_head = getattr(self.attn, f"{side}_proj"), self.attn.d_head
        rows = slice(head * d_head, (head + 1) * d_head)
        projected = product(self._normed, exact(linear.weight[rows]).T)
        if linear.bias is not None:
            projected = projected + exact(linear.bias[rows])
        return projected

    def _parts(self, side: str, head: int) -> tuple[Balls, Balls, Balls]:
        """Return a head's keys or values [place, V, d_head]: what a token adds, what the next gets, a first token's."""
        shift: TokenShift | None = {"k": self.attn.key_shift, "v": self.attn.value_shift}[side]
        own = head // (self.attn.n_heads // self.attn.n_key_value_heads)
        vectors = self._projected(side, own)
        if shift is None:
            return vectors, vectors * 0, vectors
        now, before = mixing(shift, own, self.attn.d_head)
        earlier = np.concatenate([vectors[:1], vectors[:-1]])
        first = vectors if self.attn.first_own else vectors * now
        return vectors * now, earlier * before, first

    def _key_rows(self, head: int) -> Balls:
        """Return the rows of which scores are taken: the parts, or every whole key if it is normalised."""
        now, before, first = self._parts("k", head)
        if self.attn.k_norm is None:
            return np.concatenate([now, before, first], axis=1)
        keys = np.concatenate([now[:, :, None] + before[:, None], first[:, :, None]], axis=2)
        return _with_norm(keys.reshape(len(keys), -1, self.attn.d_head), self.attn.k_norm)

    def _reads(self, head: int) -> Interval:
        """Return what every pair of tokens writes [output, place, V, V + 1]."""
        columns = slice(head * self.attn.d_head, (head + 1) * self.attn.d_head)
        to_outputs = product(self.functions, exact(self.attn.o_proj.weight[:, columns])).T
        now, before, first = (ends(product(part, to_outputs)) for part in self._parts("v", head))
        of_token = Interval(now.low[:, :, None], now.high[:, :, None])
        of_before = Interval(before.low[:, None], before.high[:, None])
        pairs = plus(of_token, of_before)
        low = np.concatenate([pairs.low, first.low[:, :, None]], axis=2)
        high = np.concatenate([pairs.high, first.high[:, :, None]], axis=2)
        return Interval(np.moveaxis(low, -1, 0).copy(), np.moveaxis(high, -1, 0).copy())

    def _directs(self, streams: Balls) -> Interval:
        if not self.cfg.residual_in(0):
            streams = streams * 0
        if self.attn.o_proj.bias is not None:
            streams = streams + exact(self.attn.o_proj.bias)
        return ends(product(streams, self.functions.T))

    def _masses_at(self, length: int) -> list[Interval]:
        """Return each head's e^(s - largest s) of all queries [query, back, row], for rows as in `_key_rows`."""
        with ctx.workprec(PRECISION):
            return [self._factors(head, length) for head in range(self.cfg.n_heads)]

    def _factors(self, head: int, length: int) -> Interval:
        attn, n_tokens = self.attn, self.n_tokens
        far_apart = attn.rotary is not None or attn.alibi is not None or attn.strict or self.learned
        scores = []
        for back in range(length if far_apart else 1):
            place = self._place(length, back)
            query = self._queries[head][self._place(length, 0)]
            if attn.rotary is not None:
                query = self._rotated(query, back)
            scores.append(product(query, self._keys[head][place].T) / arb(attn.d_head).sqrt())
        table = np.stack(scores, axis=1)  # [query, back, row]
        slope = 0.0 if attn.alibi is None else float(attn.alibi.slopes[head])
        far = arb(slope) * np.arange(len(scores)).astype(object)[:, None]
        half = arb(2) ** (self._bits // 2)
        if attn.k_norm is not None:
            table = table - far
            factors = ends(exp(table - _largest(table)) * half * half)
        else:
            now, before, first = (
                table[:, :, :n_tokens],
                table[:, :, n_tokens : 2 * n_tokens],
                table[:, :, 2 * n_tokens :],
            )
            now, first = now - far, first - far
            top_now = _largest(now)
            top = _largest(np.concatenate([top_now + _largest(before), _largest(first)], axis=1))
            balls = [exp(now - top_now) * half, exp(before - (top - top_now)) * half, exp(first - top) * half * half]
            factors = ends(np.concatenate(balls, axis=2))
        if attn.strict:  # a query does not see its own token
            factors.low[:, 0], factors.high[:, 0] = 0, 0
        return Interval(np.maximum(factors.low, 0), factors.high)

    def _rotated(self, query: Balls, back: int) -> Balls:
        """Rotate queries by the distance back to the key: the score of q at t and k at j is (R(t - j) q) . k."""
        d_head, cfg = self.attn.d_head, self.cfg
        half = d_head // 2
        if cfg.rotary_frequencies is None:
            frequencies = [arb(cfg.rotary_base) ** (arb(-2 * i) / d_head) for i in range(half)]
        else:
            frequencies = [arb(frequency) for frequency in cfg.rotary_frequencies]
        turns = np.array([(frequency * back).sin_cos() for frequency in frequencies], object)
        sin, cos = turns[:, 0], turns[:, 1]
        first, second = query[:, :half], query[:, half:]
        turned = np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=1)
        return turned * arb(cfg.rotary_scale) ** 2

    def _mass(self, factors: list[Interval], query: int) -> Interval:
        """Return the masses of a query [head, back, token, before]."""
        n_tokens, of_heads = self.n_tokens, []
        for of_head in factors:
            low, high = of_head.low[query], of_head.high[query]
            if self.attn.k_norm is not None:
                shape = (len(low), n_tokens, n_tokens + 1)
                of_heads.append((low.reshape(shape), high.reshape(shape)))
                continue
            low, high = (part.reshape(len(part), 3, n_tokens) for part in (low, high))
            now = Interval(low[:, 0, :, None], high[:, 0, :, None])
            before = Interval(low[:, 1, None], high[:, 1, None])
            pairs = times(now, before)
            of_heads.append((np.dstack([pairs.low, low[:, 2]]), np.dstack([pairs.high, high[:, 2]])))
        masses = Interval(*map(np.stack, zip(*of_heads, strict=True)))
        # A number that is not finite would be lost in comparisons, and its row with it.
        require(bool(np.isfinite(masses.high).all()), "The model's scores are too large to be enclosed.")
        return masses


def _with_norm(rows: Balls, norm: torch.nn.Module | None) -> Balls:
    return rows if norm is None else normalised(rows, exact(norm.w), norm.eps)  # type: ignore[arg-type]


def _largest(scores: Balls) -> Balls:
    """Return, for each query [query, 1, 1], a number that no score [query, back, row] is above."""
    largest = [arb(reduce(arb.max, of_query.ravel()).upper()) for of_query in scores]
    return np.array(largest, object)[:, None, None]


def mixing(shift: TokenShift, head: int, d_head: int) -> tuple[Balls, Balls]:
    """Return the weights of the token and of the one before, for each channel of a head, from the stored parameter."""
    row = shift.weight.detach()[head if len(shift.weight) > 1 else 0]
    if isinstance(shift, ClippedShift):
        row = row.clamp(0, 1)
    stored = exact(row.reshape(len(row), -1))
    now = before = stored[0]
    if isinstance(shift, GatedShift):
        now, before = 1 / (1 + exp(-now)), 1 / (1 + exp(now))
    elif isinstance(shift, SumToOneShift):
        before = 1 - now
    else:
        before = stored[1]
    return np.resize(now, d_head), np.resize(before, d_head)


def _centred_logits(model: Transformer) -> Balls:
    """Return the direction of each logit in the stream [output, d_model], minus their mean.

    No margin depends on that mean.
    """
    directions = exact(model.unembed.weight)
    if model.cfg.norm != "none":
        directions = directions * exact(model.ln_final.w)  # type: ignore[arg-type]
    return directions - directions.sum(axis=0) / len(directions)
