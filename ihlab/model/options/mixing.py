"""Parts that mix tokens: shifts of keys, values and queries (`ihlab.model.shift`), and all others."""

from dataclasses import dataclass
from typing import Literal

from ihlab.model.options.sizes import Sizes
from ihlab.model.registry import VARIANTS
from tasks.config import require

PLACES = "ABCDKVOM"
"""The places of Canon layers (`ihlab.model.mixes.depthwise`), in order."""


@dataclass(frozen=True, kw_only=True)
class MixingOptions(Sizes):
    """Parts that mix tokens.

    Attributes:
        shift_window: Number of tokens that a shift mixes: the current token and those right before it.
        shift_start: Initial weights of a shift. equal: the current token's from U(0, 1), and the others equal, with a
            sum of 1. uniform: all except the last from U(0, 1), and the last 1 minus their sum (the paper's choice for
            windows of 3 and 4), the same as equal for a window of 2. identity: the current token's is 1, the others 0;
            and Canon layers start as the identity too (Marin's issue 8387), otherwise as torch.nn.Conv1d does.
        shift_first: What a shift does to the first token of a sequence. zero: it mixes in zeros. own: it leaves the
            token's own keys, values and queries unchanged.
        stream_shift: Where each layer mixes in the residual stream of the previous token, with a learned weight per
            channel: in attention's input (before_norm or after_norm), or added to the residual stream.
        canon: Places of Canon layers, such as ABCD: A, the input of attention's projections; B, queries, keys and
            values; C, the MLP's input; D, the input of its activation. K, V, O, M: the same convolution of keys, of
            values, of the output of attention, and of the output of the MLP. Empty: none.
        smear: Add the previous token to each embedding, with a gate per token (modded-nanogpt's smear).
    """

    shift_window: int = 2
    shift_start: Literal["equal", "uniform", "identity"] = "equal"
    shift_first: Literal["zero", "own"] = "zero"
    stream_shift: Literal["none", "before_norm", "after_norm", "added"] = "none"
    canon: str = ""
    smear: Literal["none", "embedding"] = "none"

    def check(self) -> None:
        """Raise `ConfigError` for impossible windows, and for places that do not exist or are convolved twice."""
        require(
            self.shift_window >= 2,
            f"ModelConfig.shift_window is {self.shift_window}, but must be at least 2.",
        )
        require(
            self.shift_window <= max(2, self.n_ctx),
            f"ModelConfig.shift_window is {self.shift_window}, but must be at most n_ctx={self.n_ctx}: no token has "
            "more tokens before it.",
        )
        require(
            self.canon == "".join(place for place in PLACES if place in self.canon),
            f"ModelConfig.canon is {self.canon!r}, but must be some of the letters of {PLACES!r}, each once and in "
            "order.",
        )
        require(
            self.mlp != "none" or not set(self.canon) & set("CDM"),
            f"ModelConfig.canon is {self.canon!r}, but mlp is 'none': 'C', 'D' and 'M' are places of an MLP.",
        )
        of_heads = "".join(place for place in self.canon if place in "BKV")
        require(
            not (of_heads and (self.shifted or VARIANTS[self.attention].mixes_tokens)),
            f"ModelConfig.canon is {self.canon!r}, but attention={self.attention!r} also mixes keys or values, as "
            f"{of_heads!r} does: leave {of_heads!r} out, or choose another attention.",
        )
        require(
            of_heads in ("", "B", "K", "V", "KV"),
            f"ModelConfig.canon is {self.canon!r}, but 'B' convolves keys and values already: leave 'K' and 'V' out.",
        )

    @property
    def mixes_tokens(self) -> str | None:
        """The field that makes keys or values mix tokens in a way that alpha and beta do not describe, if any."""
        if VARIANTS[self.attention].mixes_tokens:
            return f"attention={self.attention!r}"
        unmixed = {"stream_shift": "none", "smear": "none", "shift_first": "zero"}
        for name, plain in unmixed.items():
            if getattr(self, name) != plain:
                return f"{name}={getattr(self, name)!r}"
        return f"canon={self.canon!r}" if set(self.canon) & set("ABKVO") else None

    @property
    def learned_shifts(self) -> tuple[str, ...]:
        """The mixing weights of attention, out of "alpha" (keys), "beta" (values) and "gamma" (queries).

        Each is a parameter with a hook point.
        """
        return tuple(VARIANTS[self.attention].rules)

    @property
    def learns_both(self) -> bool:
        """True if attention learns both alpha and beta, the subject of the paper's Table 5 and Theorem 3.4."""
        return {"alpha", "beta"} <= set(self.learned_shifts)

    @property
    def shifted(self) -> bool:
        """True if attention mixes keys, values or queries with earlier ones."""
        return bool(self.learned_shifts)
