"""The training loss, computed at scored positions only."""

from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from ihlab.model.transformer import Transformer
from tasks import IGNORE

try:
    from torch.nn import LinearCrossEntropyOptions
except ImportError:  # before torch 2.13: all logits are held
    LinearCrossEntropyOptions = None  # type: ignore[assignment, misc]


def summed_loss(
    model: Transformer,
    tokens: Int64[Tensor, "batch pos"],
    index: Int64[Tensor, " scored"],
    targets: Int64[Tensor, " scored"],
) -> Float[Tensor, ""]:
    """Cross-entropy in nats, summed over targets.

    Only the scored rows of the final residual are unembedded: at vocabulary 8000 and length 512 the
    other logits are four fifths of the step's memory and are never looked at. Where (almost) every
    position is scored, `linear_cross_entropy` goes through a wide vocabulary in chunks instead of
    holding all logits at once.
    """
    residual = model.final_residual(tokens).flatten(0, 1)
    if len(index) < len(residual):
        residual = residual[index]
    elif LinearCrossEntropyOptions is not None and model.cfg.d_vocab > model.cfg.d_model:
        return F.linear_cross_entropy(
            residual,
            model.unembed.weight.to(residual.dtype),
            targets,
            reduction="sum",
            ignore_index=IGNORE,
            options=LinearCrossEntropyOptions(),
        ).float()
    return F.cross_entropy(model.unembed(residual).float(), targets, ignore_index=IGNORE, reduction="sum")
