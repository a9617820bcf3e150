"""Options of latent attention (`ihlab.model.variants.mla`): "mla" and "mla_kv"."""

from dataclasses import dataclass

from ihlab.model.options.positions import PositionOptions
from tasks.config import require


@dataclass(frozen=True, kw_only=True)
class LatentOptions(PositionOptions):
    """Options of latent attention.

    Attributes:
        mla_rank: Width of the latent vector of mla. None: d_model / 3, rounded down (the paper's 256 of 768).
    """

    mla_rank: int | None = None

    def check(self) -> None:
        """Raise `ConfigError` for widths and heads that latent attention cannot have."""
        if self.attention not in ("mla", "mla_kv"):
            return
        require(self.latent_rank >= 1, f"ModelConfig.mla_rank is {self.mla_rank}, but must be at least 1.")
        require(
            self.rope_width < self.head_width,
            f"ModelConfig.d_head is {self.head_width}, but {self.attention!r} rotates only some pairs of a head's "
            "channels, with positional='rope': it must be at least 4.",
        )
        require(
            self.kv_heads == self.n_heads,
            f"ModelConfig.n_key_value_heads is {self.kv_heads}, but with attention={self.attention!r} each "
            f"of the n_heads={self.n_heads} heads has its own keys and values.",
        )
        require(
            self.attention == "mla" or self.n_heads >= 2,
            f"ModelConfig.n_heads is {self.n_heads}, but must be at least 2: 'mla_kv' shifts the key of one head and "
            "the value of another.",
        )

    @property
    def latent_rank(self) -> int:
        """`mla_rank`, or its default if it is None."""
        return max(1, self.d_model // 3) if self.mla_rank is None else self.mla_rank

    @property
    def rope_width(self) -> int:
        """Number of a head's channels that are rotated: half, rounded down to an even number (the paper's 32 of 64)."""
        return max(2, 2 * (self.head_width // 4)) if self.positional == "rope" else 0
