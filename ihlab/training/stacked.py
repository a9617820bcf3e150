"""What members of an ensemble have side by side: batches, losses and gradient norms."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ihlab.model.transformer import Transformer
from ihlab.training.config import RunConfig
from ihlab.training.loss import LossModule, gathered_loss
from ihlab.training.stream import Scored, Stream, ahead
from tasks import IGNORE

MemberLosses = Callable[[dict[str, Tensor], Tensor, Tensor, Tensor], Tensor]
"""Of stacked weights, tokens, index and targets, each with a leading dimension of members."""


@dataclass(frozen=True)
class Stacked:
    """`Scored` rows of every member: index and targets are padded with (0, IGNORE) to the longest.

    `totals` float32 [member]: how many targets each member's whole step has.
    """

    tokens: Int64[Tensor, "member batch pos"]
    index: Int64[Tensor, "member scored"]
    targets: Int64[Tensor, "member scored"]
    totals: Float[Tensor, " member"]

    def to(self, device: torch.device) -> "Stacked":
        """A copy on a device, without waiting for it."""
        return Stacked(*(x.to(device, non_blocking=True) for x in (self.tokens, self.index, self.targets, self.totals)))


def stacked(members: Sequence[Scored], pin: bool = False) -> Stacked:
    """The members' rows side by side. With `pin`, in page-locked memory for an asynchronous copy."""
    longest = max(len(member.index) for member in members)

    def padded(x: Tensor, value: int) -> Tensor:
        return F.pad(x, (0, longest - len(x)), value=value)

    tensors = (
        torch.stack([member.tokens for member in members]),
        torch.stack([padded(member.index, 0) for member in members]),
        torch.stack([padded(member.targets, IGNORE) for member in members]),
        torch.tensor([member.total for member in members], dtype=torch.float32),
    )
    return Stacked(*(tensor.pin_memory() if pin else tensor for tensor in tensors))


class StackedStream:
    """The training batches of every member, each drawn from its own seed as for a solo run."""

    def __init__(self, configs: Sequence[RunConfig], pin: bool = False) -> None:
        self.streams = [Stream(c.task, c.seed, c.batch_size, c.accumulate) for c in configs]
        self.pin = pin

    def step(self, step: int) -> list[Stacked]:
        """The pieces of one step."""
        by_member = [stream.step(step) for stream in self.streams]
        return [stacked(pieces, self.pin) for pieces in zip(*by_member, strict=True)]

    def steps(self, start: int, stop: int) -> Iterator[list[Stacked]]:
        """The pieces of steps start .. stop - 1, drawn ahead."""
        return ahead(self.step, start, stop)


def member_losses(model: Transformer, compiled: bool = False) -> MemberLosses:
    """A function of stacked weights (named as the model's) and batches: each member's summed loss [member].

    A member's gradient is its part of the gradient of the sum.
    """
    module = LossModule(model, gathered_loss)

    def one(weights: dict[str, Tensor], tokens: Tensor, index: Tensor, targets: Tensor) -> Tensor:
        named = {f"model.{name}": weight for name, weight in weights.items()}
        return functional_call(module, named, (tokens, index, targets))

    if compiled:
        torch.compiler.reset()  # or the ninth model of a process falls back to eager, silently slow
    every = torch.compile(torch.vmap(one)) if compiled else torch.vmap(one)
    device = next(model.parameters()).device

    def losses(weights: dict[str, Tensor], tokens: Tensor, index: Tensor, targets: Tensor) -> Tensor:
        with _attention_on(device):
            return every(weights, tokens, index, targets)

    return losses


@torch.no_grad()
def clip_members(parameters: Iterable[Tensor], limit: float) -> Float[Tensor, " member"]:
    """Scale each member's gradient to a norm of at most `limit`, as `clip_grad_norm_` does one model's.

    Parameters have a leading dimension of members. Returns the norms from before.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
    scale = (limit / (norms + 1e-6)).clamp(max=1)
    for gradient in gradients:
        gradient.mul_(scale.view(-1, *[1] * (gradient.ndim - 1)))
    return norms


def _attention_on(device: torch.device) -> AbstractContextManager[None]:
    """The CPU's fused attention cannot be stacked (it would be called member by member): use the plain one there."""
    return sdpa_kernel(SDPBackend.MATH) if device.type == "cpu" else nullcontext()
