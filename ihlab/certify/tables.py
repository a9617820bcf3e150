"""A model of one attention layer as tables over pairs of neighbouring tokens, enclosed from the
stored weights.

Keys and values of such a layer depend on their token b and on the token a before it, queries on the
last token q. With D_k = w_final * U_k, the direction of the logit of token k before the final
norm's positive scale,

    scale * logit_k = direct(q)_k + sum over heads h of [sum_j e^{s_h(q; a_j, b_j, t - j)}
    read_h(a_j, b_j)_k] / Z_h, Z_h = sum_j e^{s_h(q; a_j, b_j, t - j)}.

Rotary angles come from the formula, so the position enters a score only as the distance t - j. With
learned positions everything depends on the position as well. A shifted key is a vector from b plus
a vector from a. So e^s is a factor of b times a factor of a: 2 V exponentials, not V^2.
"""

from collections.abc import Callable
from functools import lru_cache
from math import ceil, log2

import numpy as np
import torch
from flint import arb, ctx
from jaxtyping import Int

from ihlab.certify.enclosures import (
    PRECISION,
    Balls,
    Interval,
    ends,
    exact,
    largest,
    normalised,
    plus,
    product,
    times,
)
from ihlab.certify.walks import PairTables
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
    plain = not (variant.query or variant.mixes_tokens)
    only_last = "a query must depend on the last token only"
    two_tokens = "keys and values may see two tokens, not more"
    refused = {
        f"n_layers={cfg.n_layers}": (
            cfg.n_layers > 1,
            "a second layer reads what the first one mixed",
        ),
        f"mlp={cfg.mlp!r}": (
            cfg.mlp == "gelu",
            "an MLP is not a sum over tokens, and only swiglu is enclosed",
        ),
        "norm='layer'": (cfg.norm == "layer", "a LayerNorm's bias is not scaled with the rest"),
        "qk_norm=True": (cfg.qk_norm, "the norm of a key is not a sum over two tokens"),
        f"attention={cfg.attention!r}": (
            not plain or variant.attention != "attention:Attention",
            "its keys, values or queries depend on other tokens than their own and the one before",
        ),
        f"shift_window={cfg.shift_window}": (cfg.shifted and cfg.shift_window != 2, two_tokens),
        f"canon={cfg.canon!r}": (cfg.canon != "", two_tokens),
        f"stream_shift={cfg.stream_shift!r}": (cfg.stream_shift != "none", only_last),
        f"smear={cfg.smear!r}": (cfg.smear != "none", only_last),
        f"dropout={cfg.dropout} in training mode": (
            bool(cfg.dropout) and model.training,
            "it is random: call eval()",
        ),
    }
    for setting, (is_set, why) in refused.items():
        require(
            not is_set,
            f"The model has {setting}, but a proof needs one layer that reads pairs of tokens: {why}.",
        )


class ModelTables:
    """Encloses the tables of a model, for sequences of tokens of an alphabet.

    The outputs are the `functions` [output, d_model] of the stream, by default the logits, each minus
    the mean of all, which leaves margins as they are. Raises `ConfigError` as `require_pairs` and
    `ends` do.
    """

    def __init__(
        self,
        model: Transformer,
        alphabet: Int[np.ndarray, " token"],
        longest: int,
        functions: Balls | None = None,
    ) -> None:
        self.cfg, self.attn = model.cfg, model.layers[0].attn
        self.learned = model.pos_embed is not None
        with ctx.workprec(PRECISION):
            streams = exact(model.embed.weight[torch.tensor(alphabet)])[None]
            if model.pos_embed is not None:
                streams = streams + exact(model.pos_embed.weight[:longest])[:, None]
            normed, norm = streams, model.layers[0].ln1
            if norm is not None:
                normed = normalised(streams, exact(norm.w), norm.eps)
            self._queries = self._projected(normed, self.attn.q_proj)
            keys = self._projected(normed, self.attn.k_proj)
            self._keys = self._parts(keys, self.attn.key_shift)
            values = self._projected(normed, self.attn.v_proj)
            if functions is None:
                functions = centred_logits(model)
            self._read = self._reads(self._parts(values, self.attn.value_shift), functions)
            self._direct = self._directs(streams, functions)
        largest_logit = max(np.abs((*self._read,)).max(), np.abs((*self._direct,)).max())
        require(
            largest_logit < LARGEST,
            f"A logit of the model can be {largest_logit:.3g}, which is too large to be enclosed.",
        )
        self._bits = min(MOST_BITS, 1000 - ceil(log2(4 * longest * (largest_logit + 1))))
        self._factors_at = lru_cache(maxsize=1)(self._factors)
        self._reads_at = lru_cache(maxsize=1)(self._placed)

    def of(self, query: int, length: int) -> PairTables:
        """Return the tables of a query, the token of this number in the alphabet."""
        place = length - 1 if self.learned else 0
        factors = self._factors_at(length).each(lambda end: end[:, :, query])
        mass = _over_pairs(factors, times)
        # A number that is not finite would be lost in comparisons, and its row with it.
        require(
            bool(np.isfinite(mass.high).all()), "The model's scores are too large to be enclosed."
        )
        direct = self._direct.each(lambda end: end[place, query])
        return PairTables(mass, self._reads_at(length), direct)

    def _placed(self, length: int) -> Interval:
        """Return the reads of each place, counted back from the last position of a length."""
        if not self.learned:
            return self._read
        return self._read.each(lambda end: np.ascontiguousarray(end[:, :, length - 1 :: -1]))

    def _projected(self, normed: Balls, linear: torch.nn.Linear) -> Balls:
        """Return queries, keys or values before the shift [place, token, its heads, d_head]."""
        vectors = product(normed, exact(linear.weight).T)
        if linear.bias is not None:
            vectors = vectors + exact(linear.bias)
        return vectors.reshape(*vectors.shape[:2], -1, self.attn.d_head)

    def _parts(self, vectors: Balls, shift: TokenShift | None) -> Balls:
        """Return the parts of keys or values [part, place, token, head, d_head]: of the token, of
        the one before; the first.
        """
        now = first = vectors
        before = vectors * 0
        if shift is not None:
            of_token, of_before = mixing(shift)
            now = vectors * of_token
            before = np.concatenate([vectors[:1], vectors[:-1]]) * of_before  # at the place before
            first = vectors if self.attn.first_own else now
        parts = np.stack([now, before, first])
        return parts.repeat(self.attn.n_heads // parts.shape[3], axis=3)

    def _reads(self, values: Balls, functions: Balls) -> Interval:
        """Return what every pair of tokens writes [head, output, place, token, before]."""
        tables, d_head = [], self.attn.d_head
        for head in range(self.cfg.n_heads):
            columns = exact(self.attn.o_proj.weight[:, head * d_head : (head + 1) * d_head])
            written = product(functions, columns)
            tables.append(product(values[..., head, :], written.T))
        of_parts = ends(np.stack(tables, axis=1))  # [part, head, place, token, output]
        return _over_pairs(of_parts.each(lambda end: np.moveaxis(end, -1, 2)), plus)

    def _directs(self, streams: Balls, functions: Balls) -> Interval:
        """Return what reaches the outputs without attention [place, token, output]."""
        direct = streams if self.cfg.residual_in(0) else streams * 0
        if self.attn.o_proj.bias is not None:
            direct = direct + exact(self.attn.o_proj.bias)
        return ends(product(direct, functions.T))

    def _factors(self, length: int) -> Interval:
        """Return the factors of each head's e^(s - largest s) [part, head, query, back, token]."""
        with ctx.workprec(PRECISION):
            of_heads = [self._factors_of(head, length) for head in range(self.cfg.n_heads)]
            factors = ends(np.stack(of_heads, axis=1))
        if self.attn.strict:  # a query does not see its own token
            factors.low[:, :, :, 0], factors.high[:, :, :, 0] = 0, 0
        return Interval(np.maximum(factors.low, 0), factors.high)

    def _factors_of(self, head: int, length: int) -> Balls:
        attn = self.attn
        by_distance = attn.rotary is not None or attn.alibi is not None
        n_backs = length if by_distance or self.learned or attn.strict else 1
        last = length - 1 if self.learned else 0
        query, scores = self._queries[last, :, head], []
        for back in range(n_backs):
            place = last - back if self.learned else 0
            keys = self._keys[:, place, :, head]  # [part, token, d_head]
            turned = query if attn.rotary is None else self._rotated(query, back)
            of_back = product(turned, keys.reshape(-1, attn.d_head).T)
            scores.append(of_back.reshape(len(query), 3, -1))
        # [part, query, back, token]
        now, before, first = np.stack(scores).transpose(2, 1, 0, 3) / arb(attn.d_head).sqrt()
        if attn.alibi is not None:
            far = arb(float(attn.alibi.slopes[head])) * np.arange(n_backs).astype(object)
            now, first = now - far[:, None], first - far[:, None]
        top_now, top_before, top_first = (largest(part, 1, 2) for part in (now, before, first))
        top = largest(np.concatenate([top_now + top_before, top_first], axis=2), 2)
        half = arb(2) ** (self._bits // 2)
        factors = [
            np.exp(now - top_now) * half,
            np.exp(before - (top - top_now)) * half,
            np.exp(first - top) * half * half,
        ]
        return np.stack(factors)

    def _rotated(self, query: Balls, back: int) -> Balls:
        """Rotate queries [token, d_head] by the distance back to the key: the score of q at t and k
        at j is (R(t - j) q) . k.
        """
        d_head, cfg = self.attn.d_head, self.cfg
        half = d_head // 2
        if cfg.rotary_frequencies is None:
            frequencies = [arb(cfg.rotary_base) ** (arb(-2 * i) / d_head) for i in range(half)]
        else:
            frequencies = [arb(frequency) for frequency in cfg.rotary_frequencies]
        turns = np.array([(frequency * back).sin_cos() for frequency in frequencies], object)
        sin, cos = turns.T
        first, second = query[:, :half], query[:, half:]
        turned = np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=1)
        return turned * arb(cfg.rotary_scale) ** 2


def _over_pairs(parts: Interval, combine: Callable[[Interval, Interval], Interval]) -> Interval:
    """Combine the part of a token with that of the one before: from [part, ..., token] to
    [..., token, before].
    """
    now = parts.each(lambda end: end[0][..., :, None])
    before = parts.each(lambda end: end[1][..., None, :])
    pairs, first = combine(now, before), parts.each(lambda end: end[2][..., None])
    whole = (np.concatenate(both, axis=-1) for both in zip(pairs, first, strict=True))
    return Interval(*whole).each(np.ascontiguousarray)


def mixing(shift: TokenShift) -> tuple[Balls, Balls]:
    """Return the weights of the token and of the one before, each [head or 1, channel or 1], from
    the stored parameter.
    """
    stored = shift.weight.detach()
    if isinstance(shift, ClippedShift):
        stored = stored.clamp(0, 1)
    weights = exact(stored.reshape(*stored.shape[:2], -1))
    now = weights[:, 0]
    if isinstance(shift, GatedShift):
        return 1 / (1 + np.exp(-now)), 1 / (1 + np.exp(now))
    if isinstance(shift, SumToOneShift):
        return now, 1 - now
    return now, weights[:, 1]


def centred_logits(model: Transformer) -> Balls:
    """Return the direction of each logit in the stream, minus their mean, which no margin depends
    on.
    """
    directions = exact(model.unembed.weight)
    if model.cfg.norm != "none":
        directions = directions * exact(model.ln_final.w)  # type: ignore[arg-type]
    return directions - directions.sum(axis=0) / len(directions)
