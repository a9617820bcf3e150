"""How a model encodes positions: rotary, ALiBi, learned or none."""

from dataclasses import dataclass
from typing import Literal

from ihlab.model.options.sizes import Sizes
from ihlab.model.registry import VARIANTS
from tasks.config import require, shown


@dataclass(frozen=True, kw_only=True)
class PositionOptions(Sizes):
    """How a model encodes positions.

    Attributes:
        positional: Position encoding: rope (rotary), alibi (a linear bias on attention scores), learned (a vector per
            position, added to the embedding), or none.
        rotary_base: Base of the rotary frequencies (the paper's is 100,000).
        rotary_frequencies: Angle per position for each pair of a head's channels. None: rotary_base^(-2i / d_head).
        rotary_scale: Factor on rotated queries and keys (YaRN's).
        rotary_layers: Whether each layer rotates, one value per layer. None: all do.
        alibi_slopes: Slopes of ALiBi, per token of distance: one per head, or one per head for each layer in turn.
            None: those of Press et al. (arXiv 2108.12409).
    """

    positional: Literal["rope", "alibi", "learned", "none"] = "rope"
    rotary_base: float = 100_000.0
    rotary_frequencies: tuple[float, ...] | None = None
    rotary_scale: float = 1.0
    rotary_layers: tuple[bool, ...] | None = None
    alibi_slopes: tuple[float, ...] | None = None

    def check(self) -> None:
        """Raise `ConfigError` for options of another encoding, and for values that do not fit the sizes."""
        rotates = self.positional == "rope"
        require(
            not rotates or self.head_width % 2 == 0,
            f"ModelConfig.d_head is {self.head_width}, but rotary positions rotate pairs: d_head must be even.",
        )
        parts = VARIANTS[self.attention].head_multiple
        require(
            self.head_width % parts == 0,
            f"ModelConfig.d_head is {self.head_width}, but {self.attention!r} cuts each head into parts: it must be "
            f"a multiple of {parts}.",
        )
        require(
            self.rotary_base > 0,
            f"ModelConfig.rotary_base is {self.rotary_base}, but must be positive.",
        )
        for name, size in {
            "rotary_frequencies": self.head_width // 2,
            "rotary_layers": self.n_layers,
        }.items():
            value = getattr(self, name)
            require(
                value is None or (rotates and len(value) == size),
                f"ModelConfig.{name} is {shown(value)}, but must have {size} values, with positional='rope'.",
            )
        slopes = self.alibi_slopes
        require(
            slopes is None or self.positional == "alibi",
            f"ModelConfig.alibi_slopes is {shown(slopes)}, but positional is {self.positional!r}: slopes need 'alibi'.",
        )
        require(
            slopes is None or len(slopes) in (self.n_heads, self.n_layers * self.n_heads),
            f"ModelConfig.alibi_slopes is {shown(slopes)}, but must be {self.n_heads} finite numbers, one per head, "
            f"or {self.n_layers * self.n_heads}, one per head and layer.",
        )

    def rotates_in(self, layer: int) -> bool:
        """Return True if a layer's queries and keys are rotated."""
        return self.positional == "rope" and (
            self.rotary_layers is None or self.rotary_layers[layer]
        )

    def slopes_in(self, layer: int) -> tuple[float, ...] | None:
        """Return the given ALiBi slopes of a layer's heads; None without `alibi_slopes`."""
        if self.alibi_slopes is None or len(self.alibi_slopes) == self.n_heads:
            return self.alibi_slopes
        return self.alibi_slopes[layer * self.n_heads : (layer + 1) * self.n_heads]
