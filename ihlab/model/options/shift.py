"""The shift of keys, values and queries (`ihlab.model.shift`), which the variants with mixing weights read."""

from dataclasses import dataclass
from typing import Literal

from ihlab.model.options.sizes import Sizes
from ihlab.model.registry import VARIANTS
from tasks.config import require


@dataclass(frozen=True, kw_only=True)
class ShiftOptions(Sizes):
    """The shift of keys, values and queries.

    Attributes:
        shift_window: Number of tokens that a shift mixes: the current token and those right before it.
        query_window: Number of tokens that a shift of queries mixes. None: shift_window.
        shift_start: Initial weights of a shift. equal: the current token's from U(0, 1), and the others equal, with a
            sum of 1. uniform: all except the last from U(0, 1), and the last 1 minus their sum (the paper's choice for
            windows of 3 and 4). They agree for a window of 2. identity: the current token's is 1 and the others 0, in
            Canon layers, too (Marin's issue 8387), which otherwise start as torch.nn.Conv1d does.
        shift_share: Which parts of the model use the same shift weights: each head has its own (head), all heads of a
            layer or of the model share them (layer, model), or each channel of a head has its own (channel).
        shift_first: What a shift does to the first token of a sequence. zero: it mixes in zeros. own: it leaves the
            token's own keys, values and queries unchanged.
    """

    shift_window: int = 2
    query_window: int | None = None
    shift_start: Literal["equal", "uniform", "identity"] = "equal"
    shift_share: Literal["head", "layer", "model", "channel"] = "head"
    shift_first: Literal["zero", "own"] = "zero"

    def check(self) -> None:
        """Raise `ConfigError` for a window that no shift can have."""
        require(self.shift_window >= 2, f"ModelConfig.shift_window is {self.shift_window}, but must be at least 2.")
        require(
            self.shift_window <= max(2, self.n_ctx),
            f"ModelConfig.shift_window is {self.shift_window}, but must be at most n_ctx={self.n_ctx}: no token has "
            "more tokens before it.",
        )
        require(
            self.query_window is None or "gamma" in self.shift_rules,
            f"ModelConfig.query_window is {self.query_window}, but attention={self.attention!r} does not shift "
            "queries: it must be None.",
        )
        require(
            self.query_window is None or 2 <= self.query_window <= self.shift_window,
            f"ModelConfig.query_window is {self.query_window}, but must be from 2 to shift_window={self.shift_window}.",
        )

    def window_of(self, weight: str) -> int:
        """Return the number of tokens that a mixing weight mixes: `query_window` for gamma, if given."""
        return self.query_window or self.shift_window if weight == "gamma" else self.shift_window

    @property
    def shift_rules(self) -> dict[str, str]:
        """The rule (`ihlab.model.registry.RULES`) of each mixing weight that is a parameter."""
        return VARIANTS[self.attention].rules

    @property
    def learned_shifts(self) -> tuple[str, ...]:
        """The mixing weights that are parameters, out of "alpha" (keys), "beta" (values) and "gamma" (queries)."""
        return tuple(self.shift_rules)

    @property
    def mixing_weights(self) -> tuple[str, ...]:
        """The mixing weights of attention, learned and fixed. Each has a hook point."""
        return self.learned_shifts + VARIANTS[self.attention].fixed

    @property
    def learns_both(self) -> bool:
        """True if attention learns both alpha and beta, the subject of the paper's Table 5 and Theorem 3.4."""
        return {"alpha", "beta"} <= set(self.learned_shifts)

    @property
    def shifted(self) -> bool:
        """True if attention mixes keys, values or queries with earlier ones."""
        return bool(self.mixing_weights)
