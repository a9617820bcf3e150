"""Random tokens read twice, as a task: the prompts on which models of unknown training are
measured.
"""

from dataclasses import dataclass

import numpy as np

from ihlab.interp.head_model import HeadModel
from ihlab.measure.probe import STRIPE_REPEATS, repeated_batch
from tasks import Batch


@dataclass(frozen=True)
class RepeatedTokens:
    """Sequences of random tokens of a model, read twice. Each token of the second reading is to be
    predicted.

    `ihlab heads --hf` and `ihlab attribute --hf` draw their prompts here: without special tokens,
    and after the token that the model's tokenizer puts first. `length`: the maximum number of
    positions; None: that of the model's probes.
    """

    model: HeadModel
    length: int | None = None
    kind = "repeated"

    @property
    def begins_with(self) -> tuple[int, ...]:
        """The ids before the random tokens."""
        return self.model.tokens.begin

    def drawn(self, size: int, seed: int) -> Batch:
        """Return the sequences of a seed. Raises `ConfigError` as `HeadModel.probe_rows` does."""
        rows = self.model.probe_rows(STRIPE_REPEATS, size, self.length, None, seed)
        return repeated_batch(rows, STRIPE_REPEATS, len(self.begins_with))

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """Return random sequences."""
        return self.drawn(size, int(rng.integers(2**32)))

    def described(self, batch: Batch) -> str:
        """Say what the sequences of a batch are."""
        first = "".join(f" after the id {i}" for i in self.begins_with) or " without a bos token"
        period = (batch.inputs.shape[1] - len(self.begins_with)) // STRIPE_REPEATS
        return f"sequences of {period} random tokens read twice,{first}"
