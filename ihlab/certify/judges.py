"""Judge a question on all its sequences: with one head exactly, with several heads or an MLP by a
lower bound.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from flint import arb, ctx
from jaxtyping import Int

from ihlab.certify import walks
from ihlab.certify.enclosures import PRECISION, Interval, below, exact, scaled, stacked
from ihlab.certify.sequences import Sequences
from ihlab.certify.tables import ModelTables, PairTables, centred_logits
from ihlab.certify.walks import Automaton
from ihlab.model.mlp import SwiGLU
from ihlab.model.transformer import Transformer
from tasks.config import require


class Judgement(NamedTuple):
    """What is known of all sequences of a length.

    - `proved`: the margin of each is above 0; `bound`: a lower bound of them, NaN if only the sign
      was computed;
    - `walk`: a sequence, as numbers in the alphabet; `margin`: an upper bound of its margin.
    """

    length: int
    proved: bool
    bound: float
    margin: float
    walk: list[int]


class OneHead:
    """Judges questions on a model of one head without an MLP. Its bounds are the smallest margins."""

    def __init__(
        self, model: Transformer, alphabet: Int[np.ndarray, " token"], longest: int
    ) -> None:
        self.alphabet = alphabet
        self.tables = ModelTables(model, alphabet, longest)
        self._of_query = lru_cache(maxsize=1)(self.tables.of)

    def prepare(self, query: int, length: int) -> None:
        """Compute the tables of a query, before several threads use them."""
        self._of_query(int(np.searchsorted(self.alphabet, query)), length)

    def judge(
        self, question: Sequences, lengths: Sequence[int], with_margin: set[int]
    ) -> list[Judgement]:
        """Return a judgement for each length that has sequences, with the bound at some lengths."""
        query = int(np.searchsorted(self.alphabet, question.query))
        tables, automaton = self._of_query(query, lengths[-1]), automaton_of(question)
        numbers = (tables.mass, tables.read, tables.direct, question.answer)
        given = (*numbers, automaton, query)
        signs, nearest = walks.signs(*given, np.array(lengths))
        judged = []
        for length, sign, near in zip(lengths, signs, nearest, strict=True):
            if sign == NO_WALK:
                continue
            bound = margin = np.nan
            walk = near[:length]
            if length in with_margin:
                bound, margin, walk = walks.smallest_margin(*given, length)
            elif sign == POSITIVE:
                walk = near[:0]
            else:
                margin = walks.margin_above(*numbers, walk)
            if sign == POSITIVE and bound <= 0:
                bound = 0.0  # the sign is known better than the size
            judged.append(
                Judgement(length, sign == POSITIVE or bound > 0, bound, margin, walk.tolist())
            )
        return judged


POSITIVE, NO_WALK = 1, 2
"""Signs of `walks.signs`."""


class SeveralHeads(OneHead):
    """Judges questions on a model of several heads. A bound is the sum of each head's least mean."""

    descends = True
    """Whether to look for a worse sequence than those of the bound, which takes many margins."""

    def judge(
        self, question: Sequences, lengths: Sequence[int], with_margin: set[int]
    ) -> list[Judgement]:
        """Return a judgement for each length that has sequences. The bound is computed at every
        length.
        """
        query = int(np.searchsorted(self.alphabet, question.query))
        tables, judged = self._of_query(query, lengths[-1]), []
        for length in lengths:
            bound, of_heads = self._bound(tables, question, query, length)
            if bound == np.inf:  # no sequence has this length
                continue
            margins = [self._margin(tables, question, walk) for walk in of_heads]
            walk, margin = of_heads[int(np.argmin(margins))], min(margins)
            if bound <= 0 < margin and self.descends:
                walk, margin = self._descend(tables, question, walk, margin)
            judged.append(Judgement(length, bound > 0, bound, margin, walk.tolist()))
        return judged

    def _bound(
        self, tables: PairTables, question: Sequences, query: int, length: int
    ) -> tuple[float, np.ndarray]:
        """Return a lower bound of the margin, and each head's worst walk."""
        bounds, of_heads = walks.bounds_of_rivals(
            tables.mass,
            tables.read,
            tables.direct,
            question.answer,
            automaton_of(question),
            query,
            length,
        )
        return float(bounds.min()), of_heads

    def _margin(self, tables: PairTables, question: Sequences, walk: np.ndarray) -> float:
        """Return an upper bound of the margin of a walk."""
        return walks.margin_above(tables.mass, tables.read, tables.direct, question.answer, walk)

    def _descend(
        self, tables: PairTables, question: Sequences, walk: np.ndarray, margin: float
    ) -> tuple[np.ndarray, float]:
        """Exchange one token of a walk at a time as long as the margin falls. Return the last walk
        and its margin.
        """
        before = np.inf
        while margin < before:
            before = margin
            for number in range(len(walk) - 1):
                for token in range(len(self.alphabet)):
                    near = walk.copy()
                    near[number] = token
                    if question.holds(self.alphabet[near]):
                        known = self._margin(tables, question, near)
                        if known < margin:
                            walk, margin = near, known
        return walk, margin


class WithMLP(SeveralHeads):
    """Judges questions on a model with an MLP after attention: the MLP's input is enclosed by
    intervals.

    For the stream x after attention, its RMS norm r, and W_gate and W_in with the norm's gain
    folded in,

        margin = D . x + sum over neurons of (D W_out) silu(W_gate x / r) (W_in x / r),
        D = w_final (U_y - U_z).

    The extremes of every linear function of x (D, the rows of W_gate and W_in, each coordinate)
    over all sequences are bounded by sums of each head's least mean. The coordinates and D . x
    bound r. The rest is interval arithmetic per neuron. The bound is loose, because no sequence
    need reach all extremes at once.
    """

    descends = False

    def __init__(
        self, model: Transformer, alphabet: Int[np.ndarray, " token"], longest: int
    ) -> None:
        block, cfg = model.layers[0], model.cfg
        require(
            isinstance(block.mlp, SwiGLU) and block.residual and cfg.norm == "rms" and not cfg.bias,
            f"The model has mlp={cfg.mlp!r}, norm={cfg.norm!r}, residual={cfg.residual!r} and bias={cfg.bias!r}, but "
            "with an MLP a bound needs swiglu, rms, residual connections and no bias.",
        )
        assert isinstance(block.mlp, SwiGLU)
        assert block.ln2 is not None
        with ctx.workprec(PRECISION):
            logits, gain = centred_logits(model), exact(block.ln2.w).entries()
            into = [
                scaled(exact(linear.weight), gain)
                for linear in (block.mlp.gate_proj, block.mlp.in_proj)
            ]
            unit = exact(torch.eye(cfg.d_model))
            functions = stacked([logits, *into, unit])
            self.written = logits * exact(block.mlp.out_proj.weight)  # [output, neuron]
            self.logits = logits
        self.alphabet, self.n_outputs, self.n_neurons = alphabet, logits.nrows(), into[0].nrows()
        self.eps, self.d_model = arb(block.ln2.eps), cfg.d_model
        self.tables = ModelTables(model, alphabet, longest, functions)
        self._of_query = lru_cache(maxsize=1)(self.tables.of)

    def _bound(
        self, tables: PairTables, question: Sequences, query: int, length: int
    ) -> tuple[float, np.ndarray]:
        """See `SeveralHeads`."""
        logits, others = self._split(tables)
        asked = (automaton_of(question), query, length)
        margins, of_heads = walks.bounds_of_rivals(tables.mass, *logits, question.answer, *asked)
        if np.isinf(margins).all():
            return np.inf, of_heads
        inputs = walks.extremes(tables.mass, *others, *asked)
        with ctx.workprec(PRECISION):
            towards = [arb(0) if np.isinf(margin) else arb(float(margin)) for margin in margins]
            totals = self._totals(towards, _balls(*inputs), question.answer)
            return min(_float_below(total) for total in totals), of_heads

    def _margin(self, tables: PairTables, question: Sequences, walk: np.ndarray) -> float:
        """See `SeveralHeads`."""
        logits, others = self._split(tables)
        with ctx.workprec(PRECISION):
            values = _balls(*walks.values_on(tables.mass, *logits, walk))
            towards = [values[question.answer] - value for value in values]
            totals = self._totals(
                towards, _balls(*walks.values_on(tables.mass, *others, walk)), question.answer
            )
            return -max(_float_below(-total) for total in totals)

    def _split(
        self, tables: PairTables
    ) -> tuple[tuple[Interval, Interval], tuple[Interval, Interval]]:
        """Return the reads and the direct parts of the logits, and of the other functions of the
        stream.
        """
        parts = []
        for some in (slice(self.n_outputs), slice(self.n_outputs, None)):
            read = Interval(*(np.ascontiguousarray(table[:, some]) for table in tables.read))
            parts.append((read, Interval(tables.direct.low[some], tables.direct.high[some])))
        return parts[0], parts[1]

    def _totals(self, towards: list[arb], inputs: list[arb], answer: int) -> list[arb]:
        """Return an enclosure of the margin against each rival, from those of D . x and of the
        MLP's inputs.
        """
        n, rivals = self.n_neurons, [rival for rival in range(self.n_outputs) if rival != answer]
        gate, linear, stream = inputs[:n], inputs[n : 2 * n], inputs[2 * n :]
        squares = [_square(x) for x in stream]
        mean = sum(squares, arb(0)) / self.d_model
        differences = {
            rival: [self.logits[answer, j] - self.logits[rival, j] for j in range(self.d_model)]
            for rival in rivals
        }
        # The norm of a stream is at least the length of its projection on the direction of a logit
        # difference.
        least = _lower(mean)
        for rival, direction in differences.items():
            along = _lower(towards[rival])
            if along > 0:
                projected = along * along / sum((d * d for d in direction), arb(0)) / self.d_model
                least = least.max(_lower(projected))
        inverse = (_between(least, _upper(mean)) + self.eps).rsqrt()
        neurons = [_silu(g * inverse) * (x * inverse) for g, x in zip(gate, linear, strict=True)]
        totals = []
        for rival in rivals:
            weights = [self.written[answer, j] - self.written[rival, j] for j in range(n)]
            totals.append(
                towards[rival] + sum((w * x for w, x in zip(weights, neurons, strict=True)), arb(0))
            )
        return totals


def judge_of(model: Transformer, alphabet: Int[np.ndarray, " token"], longest: int) -> OneHead:
    """Return the judge of a model's kind."""
    if model.cfg.mlp != "none":
        return WithMLP(model, alphabet, longest)
    kind = OneHead if model.cfg.n_heads == 1 else SeveralHeads
    return kind(model, alphabet, longest)


def automaton_of(question: Sequences) -> Automaton:
    """Return a question's arrays, as compiled code takes them."""
    return Automaton(question.first, question.rule, question.follow, question.asks)


def _lower(ball: arb) -> arb:
    return arb(ball.lower())


def _upper(ball: arb) -> arb:
    return arb(ball.upper())


def _between(low: arb, high: arb) -> arb:
    return low.union(high)


def _float_below(ball: arb) -> float:
    """Return a float64 below a ball; minus infinity if it has no finite end."""
    low = float(ball.lower())
    return float(below.py_func(low)) if np.isfinite(low) else -np.inf


def _balls(low: np.ndarray, high: np.ndarray) -> list[arb]:
    return [_between(arb(float(a)), arb(float(b))) for a, b in zip(low, high, strict=True)]


def _square(x: arb) -> arb:
    """Return the square, which is not negative even if x may be 0."""
    size = _between(_lower(abs(x)) if not x.contains(0) else arb(0), _upper(abs(x)))
    return size * size


def _silu(x: arb) -> arb:
    """Enclose silu on a ball: it falls up to its minimum, which is -W(1/e) at -1 - W(1/e), and
    rises from there.
    """
    least = (-arb(1)).exp().lambertw()
    ends = [end / (1 + (-end).exp()) for end in (_lower(x), _upper(x))]
    both = _between(*ends)
    return both.union(-least) if x.overlaps(-1 - least) else both
