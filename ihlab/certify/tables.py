"""A model of one attention layer as tables over pairs of neighbouring tokens, enclosed from the
stored weights.

Keys and values of such a layer depend on their token b and on the token a before it, queries on the
last token q. With D_k = w_final * U_k, the direction of the logit of token k before the final
norm's positive scale,

    scale * logit_k = direct(q)_k + sum over heads h of [sum_j e^{s_h(q; a_j, b_j, t - j)}
    read_h(a_j, b_j)_k] / Z_h, Z_h = sum_j e^{s_h(q; a_j, b_j, t - j)}.

Rotary angles come from the formula, so the position enters a score only as the distance t - j. With
learned positions everything depends on the position as well. A shifted key is a vector from b plus
a vector from a. So e^s is a factor of b times a factor of a: 2 V exponentials, not V^2. With
`qk_norm` this fails, and all V^2 are computed.
"""

from dataclasses import dataclass
from functools import lru_cache, reduce
from math import ceil, log2

import numpy as np
import torch
from flint import arb, arb_mat, ctx
from jaxtyping import Int

from ihlab.certify.enclosures import (
    PRECISION,
    Interval,
    columns_of,
    ends,
    exact,
    normalised,
    plus,
    scaled,
    stacked,
    times,
)
from ihlab.model.registry import VARIANTS
from ihlab.model.shift import ClippedShift, GatedShift, SumToOneShift, TokenShift
from ihlab.model.transformer import Transformer
from tasks.config import require

MOST_BITS = 900
"""Masses are scaled so that the largest is at most 2^900, far from overflow. One that is e^1300
times smaller is enclosed only as nearly 0."""
LARGEST = 1e250
"""The largest logit that is enclosed."""


def require_pairs(model: Transformer) -> None:
    """Raise `ConfigError`, with the reason, unless the model is one layer whose keys and values
    read token pairs.
    """
    cfg = model.cfg
    variant = VARIANTS[cfg.attention]
    plain = not (variant.query or variant.mixes_tokens or variant.recurrent)
    settings: list[tuple[bool, str, str]] = [
        (
            cfg.n_layers == 1,
            f"n_layers={cfg.n_layers}",
            "a second layer reads what the first one mixed",
        ),
        (
            cfg.mlp != "gelu",
            f"mlp={cfg.mlp!r}",
            "an MLP is not a sum over tokens, and only swiglu is enclosed",
        ),
        (cfg.norm != "layer", "norm='layer'", "a LayerNorm's bias is not scaled with the rest"),
        (
            plain and variant.attention == "attention:Attention",
            f"attention={cfg.attention!r}",
            "its keys, values or queries depend on other tokens than their own and the one before",
        ),
        (
            not cfg.shifted or cfg.shift_window == 2,
            f"shift_window={cfg.shift_window}",
            "keys see more than two tokens",
        ),
        (
            cfg.stream_shift == "none",
            f"stream_shift={cfg.stream_shift!r}",
            "a query must depend on the last token only",
        ),
        (cfg.canon == "", f"canon={cfg.canon!r}", "a convolution sees more than two tokens"),
        (cfg.smear == "none", f"smear={cfg.smear!r}", "a query must depend on the last token only"),
        (
            cfg.bigram_table == 0,
            f"bigram_table={cfg.bigram_table}",
            "a query must depend on the last token only",
        ),
        (
            not (cfg.dropout and model.training),
            f"dropout={cfg.dropout} in training mode",
            "it is random: call eval()",
        ),
    ]
    for allowed, setting, why in settings:
        require(
            allowed,
            f"The model has {setting}, but a proof needs one layer that reads pairs of tokens: {why}.",
        )


@dataclass(frozen=True, eq=False)
class PairTables:
    """The tables of one query, for sequences up to a length. Token V means "none before".

    - `mass` [head, back, token, before]: e^s times a common factor, `back` positions before the
      query. The axis `back` has size 1 if scores do not depend on the distance;
    - `read` [head, output, place, token, before]: the axis `place` has size 1 unless positions are
      learned. Then it counts back from the query;
    - `direct` [output].
    """

    mass: Interval
    read: Interval
    direct: Interval


class ModelTables:
    """Encloses the tables of a model, for sequences of tokens of an alphabet.

    The outputs are the logits, each minus the mean of all, which leaves margins as they are, or
    other `functions`: rows [output, d_model] of the stream after attention. Raises `ConfigError` as
    `require_pairs` and `ends` do.
    """

    def __init__(
        self,
        model: Transformer,
        alphabet: Int[np.ndarray, " token"],
        longest: int,
        functions: arb_mat | None = None,
    ) -> None:
        self.cfg, self.attn, self.longest = model.cfg, model.layers[0].attn, longest
        self.n_tokens, self.learned = len(alphabet), model.pos_embed is not None
        with ctx.workprec(PRECISION):
            tokens = exact(model.embed.weight[torch.tensor(alphabet)])
            self.streams = [tokens]
            if model.pos_embed is not None:
                self.streams = [
                    tokens + _repeated(place, self.n_tokens)
                    for place in model.pos_embed.weight[:longest]
                ]
            self._norm = model.layers[0].ln1
            self.functions = centred_logits(model) if functions is None else functions
            self._normed = [self._with_norm(stream, self._norm) for stream in self.streams]
            self._keys = [self._key_rows(head) for head in range(self.cfg.n_heads)]
            self._queries = [
                self._projected("q", head, self.attn.q_norm) for head in range(self.cfg.n_heads)
            ]
            self._read = self._reads()
            self._direct = self._directs()
        largest = max(np.abs(each).max() for table in (self._read, self._direct) for each in table)
        require(
            largest < LARGEST,
            f"A logit of the model can be {largest:.3g}, which is too large to be enclosed.",
        )
        self._bits = min(MOST_BITS, 1000 - ceil(log2(4 * longest * (largest + 1))))
        self._masses = lru_cache(maxsize=1)(self._masses_at)
        self._reads_at = lru_cache(maxsize=1)(self._placed)

    def of(self, query: int, length: int) -> PairTables:
        """Return the tables of a query, the token of this number in the alphabet."""
        factors = self._masses(length)
        place = length - 1 if self.learned else 0
        low, high = (table[place, query] for table in self._direct)
        return PairTables(self._mass(factors, query), self._reads_at(length), Interval(low, high))

    def _placed(self, length: int) -> Interval:
        """Return the reads of each place, counted back from the last position of a length."""
        if not self.learned:
            return self._read
        return Interval(
            *(np.ascontiguousarray(table[:, :, length - 1 :: -1]) for table in self._read)
        )

    def _with_norm(self, matrix: arb_mat, norm: torch.nn.Module | None) -> arb_mat:
        return matrix if norm is None else normalised(matrix, exact(norm.w).entries(), norm.eps)  # type: ignore[arg-type]

    def _projected(
        self, side: str, head: int, norm: torch.nn.Module | None = None
    ) -> list[arb_mat]:
        """Return a head's queries, keys or values before the shift, at each position."""
        linear, d_head = getattr(self.attn, f"{side}_proj"), self.attn.d_head
        rows = slice(head * d_head, (head + 1) * d_head)
        weight = exact(linear.weight[rows]).transpose()
        projected = [normed * weight for normed in self._normed]
        if linear.bias is not None:
            projected = [x + _repeated(linear.bias[rows], self.n_tokens) for x in projected]
        return [self._with_norm(x, norm) for x in projected]

    def _parts(self, side: str, head: int) -> list[tuple[arb_mat, arb_mat, arb_mat]]:
        """Return the parts of a head's keys or values at each position: of the token, of the one
        before; the first.
        """
        shift: TokenShift | None = getattr(self.attn, f"{'key' if side == 'k' else 'value'}_shift")
        own = head // (self.attn.n_heads // self.attn.n_key_value_heads)
        vectors = self._projected(side, own)
        if shift is None:
            return [(x, x * 0, x) for x in vectors]
        now, before = mixing(shift, own, self.attn.d_head)
        earlier = [vectors[0], *vectors[:-1]]
        shifted = [
            (scaled(x, now), scaled(y, before)) for x, y in zip(vectors, earlier, strict=True)
        ]
        return [
            (*parts, x if self.attn.first_own else parts[0])
            for parts, x in zip(shifted, vectors, strict=True)
        ]

    def _key_rows(self, head: int) -> list[arb_mat]:
        """Return the rows of which scores are taken: the parts, or every whole key if it is
        normalised.
        """
        parts, norm = self._parts("k", head), self.attn.k_norm
        if norm is None:
            return [stacked(each) for each in parts]
        rows = []
        for now, before, first in parts:
            keys = [
                row
                for token in range(self.n_tokens)
                for row in _pairs_of(now, before, first, token)
            ]
            rows.append(self._with_norm(stacked(keys), norm))
        return rows

    def _reads(self) -> Interval:
        low, high = [], []
        for head in range(self.cfg.n_heads):
            d_head = self.attn.d_head
            written = columns_of(exact(self.attn.o_proj.weight), head * d_head, (head + 1) * d_head)
            to_outputs = (self.functions * written).transpose()
            tables = [self._read_pairs(parts, to_outputs) for parts in self._parts("v", head)]
            low.append(np.stack([table.low for table in tables], axis=1))
            high.append(np.stack([table.high for table in tables], axis=1))
        return Interval(np.stack(low), np.stack(high))

    def _read_pairs(self, parts: tuple[arb_mat, arb_mat, arb_mat], to_outputs: arb_mat) -> Interval:
        """Return what every pair of tokens writes [output, token, before]."""
        table = ends(
            (stacked(parts) * to_outputs).entries(), (3, self.n_tokens, to_outputs.ncols())
        )
        now, before, first = (Interval(table.low[i].T, table.high[i].T) for i in range(3))
        pairs = plus(
            Interval(now.low[:, :, None], now.high[:, :, None]),
            Interval(before.low[:, None], before.high[:, None]),
        )
        return Interval(
            np.concatenate([pairs.low, first.low[:, :, None]], axis=2),
            np.concatenate([pairs.high, first.high[:, :, None]], axis=2),
        )

    def _directs(self) -> Interval:
        streams = [stream if self.cfg.residual_in(0) else stream * 0 for stream in self.streams]
        bias = self.attn.o_proj.bias
        if bias is not None:
            streams = [stream + _repeated(bias, self.n_tokens) for stream in streams]
        shape = (len(streams), self.n_tokens, self.functions.nrows())
        return ends((stacked(streams) * self.functions.transpose()).entries(), shape)

    def _masses_at(self, length: int) -> list[Interval]:
        """Return each head's e^(s - largest s) of all queries [query, back, row], for rows as in
        `_key_rows`.
        """
        with ctx.workprec(PRECISION):
            return [self._factors(head, length) for head in range(self.cfg.n_heads)]

    def _factors(self, head: int, length: int) -> Interval:
        attn, n_tokens = self.attn, self.n_tokens
        by_distance = (
            attn.rotary is not None or attn.alibi is not None or self.learned or attn.strict
        )
        n_backs = length if by_distance else 1
        slope = arb(0) if attn.alibi is None else arb(float(attn.alibi.slopes[head]))
        query = self._queries[head][length - 1 if self.learned else 0]
        scores = []  # [back][query][row]
        for back in range(n_backs):
            rows = self._keys[head][length - 1 - back if self.learned else 0]
            turned = query if attn.rotary is None else self._rotated(query, back)
            each = turned * rows.transpose() / arb(attn.d_head).sqrt()
            scores.append([[each[q, row] for row in range(rows.nrows())] for q in range(n_tokens)])
        half = arb(2) ** (self._bits // 2)
        balls = []
        for q in range(n_tokens):
            table = [of_back[q] for of_back in scores]
            far = [slope * back for back in range(n_backs)]
            if attn.k_norm is not None:
                top = _largest([s - far[back] for back in range(n_backs) for s in table[back]])
                balls += [
                    (s - far[back] - top).exp() * half * half
                    for back in range(n_backs)
                    for s in table[back]
                ]
                continue
            now = [[s - far[back] for s in table[back][:n_tokens]] for back in range(n_backs)]
            before = [table[back][n_tokens : 2 * n_tokens] for back in range(n_backs)]
            first = [
                [s - far[back] for s in table[back][2 * n_tokens :]] for back in range(n_backs)
            ]
            top_now, top_before, top_first = (
                _largest([s for row in x for s in row]) for x in (now, before, first)
            )
            top = _largest([top_now + top_before, top_first])
            for back in range(n_backs):
                balls += [(s - top_now).exp() * half for s in now[back]]
                balls += [(s - (top - top_now)).exp() * half for s in before[back]]
                balls += [(s - top).exp() * half * half for s in first[back]]
        factors = ends(balls, (n_tokens, n_backs, -1))
        if attn.strict:  # a query does not see its own token
            factors.low[:, 0], factors.high[:, 0] = 0, 0
        return Interval(np.maximum(factors.low, 0), factors.high)

    def _rotated(self, query: arb_mat, back: int) -> arb_mat:
        """Rotate queries by the distance back to the key: the score of q at t and k at j is (R(t -
        j) q) . k.
        """
        d_head, cfg = self.attn.d_head, self.cfg
        half, rows = d_head // 2, []
        frequencies = [arb(cfg.rotary_base) ** (arb(-2 * i) / d_head) for i in range(half)]
        if cfg.rotary_frequencies is not None:
            frequencies = [arb(frequency) for frequency in cfg.rotary_frequencies]
        turns = [(frequency * back).sin_cos() for frequency in frequencies]
        scale = arb(cfg.rotary_scale) ** 2
        for i in range(query.nrows()):
            first = [
                query[i, j] * turns[j][1] - query[i, half + j] * turns[j][0] for j in range(half)
            ]
            second = [
                query[i, half + j] * turns[j][1] + query[i, j] * turns[j][0] for j in range(half)
            ]
            rows += [x * scale for x in first + second]
        return arb_mat(query.nrows(), d_head, rows)

    def _mass(self, factors: list[Interval], query: int) -> Interval:
        """Return the masses of a query [head, back, token, before]."""
        low, high = [], []
        for of_head in factors:
            n_backs, n_tokens = of_head.low.shape[1], self.n_tokens
            if self.attn.k_norm is not None:
                pairs = Interval(
                    *(each[query].reshape(n_backs, n_tokens, n_tokens + 1) for each in of_head)
                )
            else:
                parts = [each[query].reshape(n_backs, 3, n_tokens) for each in of_head]
                now, before = (Interval(*(part[:, i] for part in parts)) for i in (0, 1))
                product = times(
                    Interval(now.low[:, :, None], now.high[:, :, None]),
                    Interval(before.low[:, None], before.high[:, None]),
                )
                whole = (
                    np.dstack([part, first[:, 2]])
                    for part, first in zip(product, parts, strict=True)
                )
                pairs = Interval(*whole)
            low.append(pairs.low)
            high.append(pairs.high)
        masses = Interval(np.stack(low), np.stack(high))
        # A number that is not finite would be lost in comparisons, and its row with it.
        require(
            bool(np.isfinite(masses.high).all()), "The model's scores are too large to be enclosed."
        )
        return masses


def _largest(scores: list[arb]) -> arb:
    """Return a number that no score is above."""
    return arb(reduce(arb.max, scores).upper())


def mixing(shift: TokenShift, head: int, d_head: int) -> tuple[list[arb], list[arb]]:
    """Return the weights of the token and of the one before, for each channel of a head, from the
    stored parameter.
    """
    row = shift.weight.detach()[head if len(shift.weight) > 1 else 0]
    if isinstance(shift, ClippedShift):
        row = row.clamp(0, 1)
    columns = exact(row.reshape(len(row), -1))
    stored = [[columns[i, j] for j in range(columns.ncols())] for i in range(columns.nrows())]
    if isinstance(shift, GatedShift):
        stored = [[1 / (1 + (-x).exp()) for x in stored[0]], [1 / (1 + x.exp()) for x in stored[0]]]
    if isinstance(shift, SumToOneShift):
        stored.append([1 - x for x in stored[0]])
    now, before = ([*weights] * (d_head // len(weights)) for weights in stored)
    return now, before


def centred_logits(model: Transformer) -> arb_mat:
    """Return the direction of each logit in the stream, minus their mean, which no margin depends
    on.
    """
    directions = exact(model.unembed.weight)
    if model.cfg.norm != "none":
        directions = scaled(directions, exact(model.ln_final.w).entries())  # type: ignore[arg-type]
    n_outputs = directions.nrows()
    ones = arb_mat(1, n_outputs, [arb(1) / n_outputs] * n_outputs)
    return directions - arb_mat(n_outputs, 1, [arb(1)] * n_outputs) * (ones * directions)


def _repeated(vector: torch.Tensor, n_rows: int) -> arb_mat:
    return arb_mat(n_rows, 1, [arb(1)] * n_rows) * exact(vector)


def _pairs_of(now: arb_mat, before: arb_mat, first: arb_mat, token: int) -> list[arb_mat]:
    """Return a token's whole keys after every token, and at last as the first of a sequence."""
    d_head = now.ncols()
    own = [now[token, j] for j in range(d_head)]
    rows = [[own[j] + before[a, j] for j in range(d_head)] for a in range(now.nrows())]
    rows.append([first[token, j] for j in range(d_head)])
    return [arb_mat(1, d_head, row) for row in rows]
