"""Other parts that mix tokens: shifts of the residual stream, Canon layers, smear, and embeddings of token pairs."""

from dataclasses import dataclass
from typing import Literal

from ihlab.model.options.shift import ShiftOptions
from ihlab.model.registry import VARIANTS
from tasks.config import require

PLACES = "ABCDKVOM"
"""The places of Canon layers (`ihlab.model.mixes.depthwise`), in order."""


@dataclass(frozen=True, kw_only=True)
class MixingOptions(ShiftOptions):
    """Parts other than attention's shift that mix tokens.

    Attributes:
        stream_shift: Where each layer mixes in the residual stream of the previous token, with a learned weight per
            channel: in attention's input (before_norm or after_norm), or added to the residual stream.
        canon: Places of Canon layers, such as ABCD: A, the input of attention's projections; B, queries, keys and
            values; C, the MLP's input; D, the input of its activation. K, V, O, M: the same convolution of keys, of
            values, of the output of attention, and of the output of the MLP. Empty: none.
        canon_taps: Number of tokens that a Canon layer mixes: the current token and those right before it.
        smear: Add the previous token to each embedding, or to the input of each layer's attention, by a gate of each
            token (modded-nanogpt's smear); or interpolate between both embeddings by a gate of each channel.
        bigram_table: Rows of a hash table with a vector for each pair of a token and the previous one, added to the
            embedding (ihlab.model.mixes.bigram). 0: none.
        document_leak: What tokens see of earlier documents in the same sequence, if a task packs several into one
            (ihlab.model.documents): nothing (none); the last tokens, in shifts, convolutions and other local mixers
            (shift); every token, in attention (attention); or both. No effect on sequences of one document.
    """

    stream_shift: Literal["none", "before_norm", "after_norm", "added"] = "none"
    canon: str = ""
    canon_taps: int = 4
    smear: Literal["none", "embedding", "attention", "interpolation"] = "none"
    bigram_table: int = 0
    document_leak: Literal["none", "shift", "attention", "both"] = "none"

    def check(self) -> None:
        """Raise `ConfigError` for places that the model does not have, or where its attention already mixes tokens."""
        require(
            self.canon == "".join(place for place in PLACES if place in self.canon),
            f"ModelConfig.canon is {self.canon!r}, but must be some of the letters of {PLACES!r}, each once and in "
            "order.",
        )
        require(self.canon_taps >= 1, f"ModelConfig.canon_taps is {self.canon_taps}, but must be at least 1.")
        require(
            self.mlp != "none" or not set(self.canon) & set("CDM"),
            f"ModelConfig.canon is {self.canon!r}, but mlp is 'none': 'C', 'D' and 'M' are places of an MLP.",
        )
        of_heads = "".join(place for place in self.canon if place in "BKV")
        require(
            not (of_heads and VARIANTS[self.attention].mixes_heads),
            f"ModelConfig.canon is {self.canon!r}, but attention={self.attention!r} also mixes keys or values, as "
            f"{of_heads!r} does: leave {of_heads!r} out, or choose another attention.",
        )
        require(
            of_heads in ("", "B", "K", "V", "KV"),
            f"ModelConfig.canon is {self.canon!r}, but 'B' convolves keys and values already: leave 'K' and 'V' out.",
        )
        require(
            self.bigram_table == 0 or self.bigram_table >= 2,
            f"ModelConfig.bigram_table is {self.bigram_table}, but must be 0 or at least 2: the last row is for the "
            "first token.",
        )

    @property
    def mixes_tokens(self) -> str | None:
        """The field that makes keys or values mix tokens in a way that alpha and beta do not describe, if any."""
        if VARIANTS[self.attention].mixes_tokens:
            return f"attention={self.attention!r}"
        unmixed = {"stream_shift": "none", "smear": "none", "shift_first": "zero", "bigram_table": 0}
        for name, plain in unmixed.items():
            if getattr(self, name) != plain:
                return f"{name}={getattr(self, name)!r}"
        return f"canon={self.canon!r}" if set(self.canon) & set("ABKVO") else None
