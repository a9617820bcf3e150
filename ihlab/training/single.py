"""What a training step needs of one model, alone or on one of several ranks."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ihlab.measure.batches import SPLITS
from ihlab.measure.gathered import TrainingBatch
from ihlab.measure.loss import summed_loss
from ihlab.measure.metrics import Evaluator
from ihlab.model.modes import evaluating
from ihlab.model.transformer import Transformer
from ihlab.model.variants import VARIANTS
from ihlab.training.compiled import compiled, compiled_on_ranks
from ihlab.training.config import RunConfig
from ihlab.training.distributed import Ranks


def dropout_seed(seed: int, step: int, rank: int = 0) -> int:
    """Return the seed of a step's dropout, counter-based like the batches: a resumed run draws the same masks."""
    own = [rank] if rank else []
    return int(np.random.default_rng([len(SPLITS), seed, step, *own]).integers(2**63))


class SingleModel:
    """One model in training: the single member of its step (`ihlab.training.loop`)."""

    def __init__(self, model: Transformer, config: RunConfig, ranks: Ranks) -> None:
        self.model, self.config, self.ranks = model, config, ranks
        self.parameters = dict(model.named_parameters())
        self._draws = config.model.dropout > 0 or VARIANTS[config.model.attention].registered  # no other model draws
        self._parallel = ranks.data_parallel(model) if ranks.size > 1 else None
        # Train through a compiled function and hook the plain model: hooks added to a module that was
        # compiled in place silently never fire.
        if self._parallel is not None:
            self._loss = compiled_on_ranks(self._parallel, config, ranks.device)
        else:
            function = compiled(summed_loss, config, ranks.device)
            self._loss = lambda *tensors: function(model, *tensors)

    def joined(self, batches: Sequence[TrainingBatch]) -> TrainingBatch:
        """Return the only member's batch."""
        return batches[0]

    def joined_states(self, states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Return the only member's state of the optimiser."""
        return states[0]

    def member(self, tensors: dict[str, Tensor], i: int) -> dict[str, Tensor]:
        """Return the only member's tensors."""
        return tensors

    def summed_losses(self, batch: TrainingBatch) -> Float[Tensor, " member=1"]:
        """Return the summed loss of a microbatch."""
        return self._loss(*batch.tensors).reshape(1)

    def all_reduce(self, last: bool) -> AbstractContextManager[None]:
        """Return a context for forward and backward that all-reduces gradients at a step's last microbatch only."""
        return nullcontext() if self._parallel is None or last else self._parallel.no_sync()

    def seed_dropout(self, step: int) -> None:
        """Seed a step's dropout: ours, and that of a registered attention."""
        if self._draws:
            # torch.manual_seed asks after every kind of device first, which takes a thirtieth of a small step.
            generator = torch.default_generator if self.ranks.device.type == "cpu" else torch
            generator.manual_seed(dropout_seed(self.config.seed, step, self.ranks.rank))

    def clip(self, limit: float) -> None:
        """Scale the gradient to a norm of at most `limit`."""
        torch.nn.utils.clip_grad_norm_(self.parameters.values(), limit)

    def take_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Update the weights."""
        optimizer.step()

    def evaluate(self, evaluator: Evaluator) -> list[dict[str, float]]:
        """Return the metrics of the model."""
        with evaluating(self.model):
            return [evaluator(self.model)]
