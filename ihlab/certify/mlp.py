"""A lower bound of the margin with an MLP after the attention layer: the MLP's input is enclosed by intervals.

For the stream x after attention, the RMS norm's scale r, and W_gate and W_in with the norm's gain folded in,

    margin * scale = D . x + sum over neurons of (D W_out) silu(W_gate x / r) (W_in x / r),     D = w_final (U_y - U_z).

The extremes of every linear function of x (D, the rows of W_gate and W_in, each coordinate) over all sequences are sums
of each head's smallest mean, as without an MLP (`ihlab.certify.walks`). The coordinates and D . x bound r. What is left
is interval arithmetic on each neuron, which forgets that one sequence must reach all extremes at once.
"""

from copy import deepcopy

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.special import expit

from ihlab.certify import walks
from ihlab.certify.tables import PairTables, lengthened, pair_tables
from ihlab.model.mlp import SwiGLU
from ihlab.model.transformer import Transformer
from tasks.config import require

Ends = tuple[np.ndarray, np.ndarray]
"""The lower and the upper ends of intervals."""

WIDER = 1e-9
"""Intervals are widened by this fraction of their ends: a million times what float64 rounds off."""
SILU_LEAST = -1.2784645427610738
"""The input at which silu is smallest."""


class Enclosed:
    """Bounds the margin of a one-layer model with an MLP, from linear functions of the stream after attention."""

    def __init__(self, model: Transformer, alphabet: Int[np.ndarray, " token"], length: int) -> None:
        exact = deepcopy(lengthened(model, length)).eval().cpu().double()
        block, cfg = exact.layers[0], model.cfg
        require(
            isinstance(block.mlp, SwiGLU) and block.residual and cfg.norm == "rms" and not cfg.bias,
            f"The model has mlp={cfg.mlp!r}, norm={cfg.norm!r}, residual={cfg.residual!r} and bias={cfg.bias!r}, but "
            "with an MLP a bound needs swiglu, rms, residual connections and no bias.",
        )
        assert isinstance(block.mlp, SwiGLU)
        assert block.ln2 is not None
        with torch.no_grad():
            logits = exact.tokens_to_residual_directions(torch.arange(cfg.d_vocab)).double()
            into = [(weight * block.ln2.w[:, None]).T for weight in (block.mlp.W_gate, block.mlp.W_in)]
            functions = torch.cat([logits, *into, torch.eye(cfg.d_model, dtype=torch.float64)])
            self.written = (logits @ block.mlp.out_proj.weight).numpy()  # [output, neuron]
        self.n_outputs, self.n_neurons, self.eps = cfg.d_vocab, len(into[0]), block.ln2.eps
        self.tables: PairTables = pair_tables(model, alphabet, length, functions)
        self._exact, self._logits = exact, logits.numpy()

    @torch.no_grad()
    def margin(self, tokens: Int[np.ndarray, "walk pos"], answer: int) -> Float[np.ndarray, " walk"]:
        """Return the margin of sequences of ids, in float64."""
        stream = self._exact.layers[0](self._exact.embedded(torch.from_numpy(tokens)))[:, -1]
        logits = stream.numpy() @ self._logits.T
        return logits[:, answer] - np.delete(logits, answer, axis=1).max(axis=1)

    def bound(
        self,
        mass: Float[np.ndarray, "head back token before"],
        automaton: walks.Automaton,
        query: int,
        answer: int,
        length: int,
    ) -> tuple[float, np.ndarray]:
        """Return a lower bound of the margin over all walks of a length, and each head's worst walk; inf if none."""
        read, direct = self.tables.read, self.tables.direct[query]
        margins, worst = walks.smallest_margins(
            mass, read[:, : self.n_outputs], direct[: self.n_outputs], answer, automaton, query, length
        )
        if np.isinf(margins).all():
            return np.inf, worst
        ends = walks.extremes(mass, read[:, self.n_outputs :], direct[self.n_outputs :], automaton, query, length)
        low, high = _wider(*ends)
        gate, linear = (slice(n * self.n_neurons, (n + 1) * self.n_neurons) for n in range(2))
        size = np.where((low > 0) | (high < 0), np.minimum(abs(low), abs(high)), 0), np.maximum(abs(low), abs(high))
        least, most = (np.sqrt((each[2 * self.n_neurons :] ** 2).mean() + self.eps) for each in size)
        # The norm of a stream is at least the length of its projection on the direction of a logit difference.
        others = np.delete(np.arange(self.n_outputs), answer)
        parts = margins[others] / np.linalg.norm(self._logits[answer] - self._logits[others], axis=1)
        least = max(least, (1 - WIDER) * parts.max() / self._logits.shape[1] ** 0.5)
        neuron = _product(
            _silu(*_product((low[gate], high[gate]), (1 / most, 1 / least))),
            _product((low[linear], high[linear]), (1 / most, 1 / least)),
        )
        weight = self.written[answer] - self.written
        added = np.minimum(weight * neuron[0], weight * neuron[1]).sum(axis=1)
        bounds = np.delete(margins, answer) + np.delete(added, answer)
        off = WIDER * (abs(np.delete(margins, answer)) + abs(weight).sum(axis=1).max() * abs(np.array(neuron)).max())
        return float((bounds - off).min()), worst


def _wider(low: np.ndarray, high: np.ndarray) -> Ends:
    off = WIDER * (abs(low) + abs(high))
    return low - off, high + off


def _product(one: Ends, other: tuple[np.ndarray | float, np.ndarray | float]) -> Ends:
    each = np.array([a * b for a in one for b in other])
    return _wider(each.min(axis=0), each.max(axis=0))


def _silu(low: np.ndarray, high: np.ndarray) -> Ends:
    """Return silu of intervals: it falls up to `SILU_LEAST` and rises from there."""
    at_low, at_high, least = (x * expit(x) for x in (low, high, np.full_like(low, SILU_LEAST)))
    inside = (low < SILU_LEAST) & (high > SILU_LEAST)
    return _wider(np.where(inside, least, np.minimum(at_low, at_high)), np.maximum(at_low, at_high))
