"""The training loss, computed at scored positions only."""

from collections.abc import Callable

from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from ihlab.model.transformer import Transformer
from tasks import IGNORE

try:
    from torch.nn import LinearCrossEntropyOptions
except ImportError:  # before torch 2.13: all logits are kept in memory
    LinearCrossEntropyOptions = None  # type: ignore[assignment, misc]


def summed_loss(
    model: Transformer,
    tokens: Int64[Tensor, "batch pos"],
    index: Int64[Tensor, " scored"] | None,
    targets: Int64[Tensor, " scored"],
    queries: Int64[Tensor, "batch query"] | None = None,
    starts: Bool[Tensor, "batch pos"] | None = None,
) -> Float[Tensor, ""]:
    """Return the cross-entropy of a `TrainingBatch` in nats, summed over targets.

    Only scored positions are unembedded: at vocabulary 8000 and length 512 the other logits would
    take four fifths of the step's memory. At other positions the last layer computes only keys and
    values (and queries, if `query_positions` returns None). If every position is scored (`index` is
    None), `linear_cross_entropy` processes a large vocabulary in chunks instead of keeping all
    logits in memory.
    """
    if index is not None:
        residual = model.residual_at(tokens, index, queries, starts)
    else:
        residual = model.final_residual(tokens, document_starts=starts).flatten(0, 1)
        if LinearCrossEntropyOptions is not None and model.cfg.d_vocab > model.cfg.d_model:
            weight, options = model.unembed.weight, LinearCrossEntropyOptions()
            residual = residual.to(weight.dtype)  # half precision would round the sum
            return F.linear_cross_entropy(
                residual, weight, targets, reduction="sum", ignore_index=IGNORE, options=options
            ).float()
    return F.cross_entropy(
        model.unembed(residual).float(), targets, ignore_index=IGNORE, reduction="sum"
    )


class OfModel(nn.Module):
    """A function of a model, such as its loss, as a module for `functional_call`."""

    def __init__(self, model: Transformer, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *arguments: Tensor | None) -> Tensor:
        """Call the function with the model and its other arguments."""
        return self.function(self.model, *arguments)
