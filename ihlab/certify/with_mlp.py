"""Judge a question on a model with an MLP after attention, whose input is enclosed by intervals.

For the stream x after attention, its RMS norm r, and W_gate and W_in with the norm's gain folded
in,

    margin = D . x + sum over neurons of (D W_out) silu(W_gate x / r) (W_in x / r),
    D = w_final (U_y - U_z).

The extremes of every linear function of x (D, the rows of W_gate and W_in, each coordinate) over
all sequences are bounded by sums of each head's least mean. The coordinates and D . x bound r. The
rest is interval arithmetic per neuron. The bound is loose, because no sequence need reach all
extremes at once. `judge_of` returns the judge of any model.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from flint import arb, ctx
from jaxtyping import Int

from ihlab.certify import walks
from ihlab.certify.enclosures import PRECISION, Balls, below, exact, lower, product, upper
from ihlab.certify.judges import OneHead, SeveralHeads, certificate_row
from ihlab.certify.sequences import Sequences
from ihlab.certify.tables import ModelTables, centred_logits
from ihlab.certify.walks import PairTables, Question
from ihlab.model.mlp import SwiGLU
from ihlab.model.transformer import Transformer
from tasks.config import require


class WithMLP(SeveralHeads):
    """Judges questions on a model with a SwiGLU MLP."""

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
            self._logits = centred_logits(model)
            gain, of_stream = exact(block.ln2.w), exact(torch.eye(cfg.d_model))
            gate, linear = exact(block.mlp.gate_proj.weight), exact(block.mlp.in_proj.weight)
            functions = np.concatenate([self._logits, gate * gain, linear * gain, of_stream])
            self._written = product(self._logits, exact(block.mlp.out_proj.weight))
        self._eps = arb(block.ln2.eps)
        self.alphabet = alphabet
        self.tables = lru_cache(maxsize=1)(ModelTables(model, alphabet, longest, functions).of)

    def row(self, tables: PairTables, sequences: Sequences, length: int) -> dict[str, Any] | None:
        """Return the row of a length; None if no sequence has this length."""
        question = sequences.question
        logits, others = self._split(tables)
        margins, of_heads = walks.sums_of_heads(logits, question, length)
        if margins.min() == np.inf:
            return None
        margins[question.answer] = 0.0
        with ctx.workprec(PRECISION):
            towards = np.vectorize(arb, otypes=[object])(margins)
            inputs = _balls(*walks.values(others, question, length, of_heads[0, :0]))
            bound = _least(self._margins(towards, inputs, question.answer))
            known = [self._margin_of(logits, others, question, walk) for walk in of_heads]
        worst = int(np.argmin(known))
        walk, margin = of_heads[worst], known[worst]
        return certificate_row(sequences, length, bound > 0, bound, margin, walk)

    def _margin_of(
        self, logits: PairTables, others: PairTables, question: Question, walk: np.ndarray
    ) -> float:
        """Return an upper bound of the margin of a walk."""
        answer, length = question.answer, len(walk)
        values = _balls(*walks.values(logits, question, length, walk))
        inputs = _balls(*walks.values(others, question, length, walk))
        margins = self._margins(values[answer] - values, inputs, answer)
        return -max(_least(np.array([-margin], object)) for margin in margins)

    def _split(self, tables: PairTables) -> tuple[PairTables, PairTables]:
        """Return the tables of the logits, and of the other functions of the stream."""
        both = []
        for some in (slice(len(self._logits)), slice(len(self._logits), None)):
            read = tables.read.each(lambda end, some=some: np.ascontiguousarray(end[:, some]))  # type: ignore[misc]
            direct = tables.direct.each(lambda end, some=some: end[some])  # type: ignore[misc]
            both.append(PairTables(tables.mass, read, direct))
        return both[0], both[1]

    def _margins(self, towards: Balls, inputs: Balls, answer: int) -> Balls:
        """Enclose the margin against each rival, from D . x [output] and the MLP's inputs."""
        n_neurons = self._written.shape[1]
        gate, linear, stream = np.split(inputs, [n_neurons, 2 * n_neurons])
        mean = _square(stream).sum() / len(stream)
        rivals = [output for output in range(len(towards)) if output != answer]
        towards, directions = towards[rivals], (self._logits[answer] - self._logits)[rivals]
        # A stream is at least as long as its projection on the direction of a logit difference.
        along = _positive(lower(towards), arb(0))
        projected = along * along / (directions * directions).sum(axis=1) / len(stream)
        least = max([mean, *projected], key=lambda ball: float(ball.lower())).lower()
        inverse = (arb(least).union(arb(mean.upper())) + self._eps).rsqrt()
        neurons = _silu(gate * inverse) * (linear * inverse)
        weights = (self._written[answer] - self._written)[rivals]
        return towards + (weights * neurons).sum(axis=1)


def judge_of(model: Transformer, alphabet: Int[np.ndarray, " token"], longest: int) -> OneHead:
    """Return the judge of a model's kind."""
    if model.cfg.mlp != "none":
        return WithMLP(model, alphabet, longest)
    kind = OneHead if model.cfg.n_heads == 1 else SeveralHeads
    return kind(model, alphabet, longest)


def _least(balls: Balls) -> float:
    """Return a float64 below all balls; minus infinity if one has no finite end."""
    lows = lower(balls).astype(float)
    if not np.isfinite(lows).all():  # min() would pass over a number that is none
        return -np.inf
    return float(below.py_func(lows.min()))


def _square_of(x: arb) -> arb:
    """Return the square, which is not negative even if x may be 0."""
    least = arb(0)
    if not x.contains(0):
        least = lower(abs(x))
    size = least.union(upper(abs(x)))
    return size * size


def _silu_of(x: arb) -> arb:
    """Enclose silu on a ball: it falls up to its minimum, which is -W(1/e) at -1 - W(1/e), and
    rises from there.
    """
    least = (-arb(1)).exp().lambertw()
    low, high = (end / (1 + (-end).exp()) for end in (lower(x), upper(x)))
    both = low.union(high)
    if x.overlaps(-1 - least):
        both = both.union(-least)
    return both


_positive: Any = np.frompyfunc(arb.max, 2, 1)
_square, _silu = np.frompyfunc(_square_of, 1, 1), np.frompyfunc(_silu_of, 1, 1)


def _balls(low: np.ndarray, high: np.ndarray) -> Balls:
    ball = np.frompyfunc(lambda least, most: arb(float(least)).union(arb(float(most))), 2, 1)
    return np.asarray(ball(low, high), object)
