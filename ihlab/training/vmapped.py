"""Stacked members of an ensemble (torch.vmap): their batches, functions of each member, gradient norms."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ihlab.measure.loss import OfModel, gathered_loss
from ihlab.measure.rows import Scored, each_tensor
from ihlab.model.transformer import Transformer
from ihlab.model.variants import VARIANTS
from ihlab.training.config import RunConfig
from ihlab.training.data import Stream, prefetch
from tasks import IGNORE
from tasks.config import ConfigError

MemberLosses = Callable[[dict[str, Tensor], Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""Loss [member] of stacked weights and the `tensors` of a `Stacked`, each with a leading member dimension."""


@dataclass(frozen=True)
class Stacked:
    """`Scored` rows of every member: index and targets are padded with (0, IGNORE) to the longest, queries with 0.

    `queries` is None if any member's is: all members then have queries at all positions.
    `totals` float32 [member]: how many targets each member's whole step has.
    """

    tokens: Int64[Tensor, "member batch pos"]
    index: Int64[Tensor, "member scored"]
    targets: Int64[Tensor, "member scored"]
    queries: Int64[Tensor, "member batch query"] | None
    totals: Float[Tensor, " member"]

    def to(self, device: torch.device) -> "Stacked":
        """Return a copy on a device, without waiting for it."""
        return each_tensor(self, lambda x: x.to(device, non_blocking=True))

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Arguments of `MemberLosses` after the weights."""
        return self.tokens, self.index, self.targets, self.queries


def stacked(members: Sequence[Scored], pin: bool = False, half: bool = False) -> Stacked:
    """Stack the members' rows; with `pin`, in page-locked memory for an asynchronous copy.

    With `half`, queries are padded to half of the row, the most that they are. A compiled stack is compiled for each
    size it meets, since torch.vmap takes sizes for constants (in a run of its own they are symbols), and that takes as
    long as several hundred steps.
    """
    queries = [member.queries for member in members if member.queries is not None]
    n_pos = members[0].tokens.shape[1]
    rows = Stacked(
        torch.stack([member.tokens for member in members]),
        _padded_stack([member.index for member in members], 0),
        _padded_stack([member.targets for member in members], IGNORE),
        _padded_stack(queries, 0, math.ceil(n_pos / 2) if half else 0) if len(queries) == len(members) else None,
        torch.tensor([member.total for member in members], dtype=torch.float32),
    )
    return each_tensor(rows, Tensor.pin_memory) if pin else rows


def _padded_stack(tensors: Sequence[Tensor], value: int, least: int = 0) -> Tensor:
    """Stack tensors, padded with `value` on the last axis to the longest, and to a length of at least `least`."""
    longest = max(least, *(tensor.shape[-1] for tensor in tensors))
    missing = [longest - tensor.shape[-1] for tensor in tensors]
    return torch.stack([F.pad(x, (0, n), value=value) if n else x for x, n in zip(tensors, missing, strict=True)])


class StackedStream:
    """Training batches of every member, each drawn from its own seed as in a solo run."""

    def __init__(self, configs: Sequence[RunConfig], pin: bool = False) -> None:
        self.streams = [Stream(c.task, c.seed, c.batch_size, c.accumulate) for c in configs]
        self.pin, self.compiled = pin, configs[0].compile

    def step(self, step: int) -> list[Stacked]:
        """Return the microbatches of one step."""
        by_member = [stream.step(step) for stream in self.streams]
        return [stacked(microbatches, self.pin, self.compiled) for microbatches in zip(*by_member, strict=True)]

    def steps(self, start: int, stop: int) -> Iterator[list[Stacked]]:
        """Yield the microbatches of steps start .. stop - 1, prefetched."""
        return prefetch(self.step, start, stop)


def over_members(module: OfModel, weights: dict[str, Tensor], *arguments: Tensor, at_once: int | None = None) -> Tensor:
    """Map a function of a model (`OfModel`) over stacked weights and arguments; return its results, stacked.

    Weights are named as the model's; the module's own are not read. `at_once`: members per vmap chunk, which bounds
    memory; None: all.
    """

    def one(weights: dict[str, Tensor], *arguments: Tensor) -> Tensor:
        named = {f"model.{name}": weight for name, weight in weights.items()}
        result: Tensor = functional_call(module, named, arguments)
        return result

    results: Tensor = torch.vmap(one, chunk_size=at_once)(weights, *arguments)
    return results


def member_losses(model: Transformer, mapped: Callable[..., Tensor] = over_members) -> MemberLosses:
    """Return a function of stacked weights (named as the model's) and batches: each member's summed loss [member].

    The gradient of the sum over members is, on each member's weights, that member's own gradient. `mapped`:
    `over_members`, or the same compiled.
    """
    every = of_each_member(model, gathered_loss, mapped)

    def losses(
        weights: dict[str, Tensor], tokens: Tensor, index: Tensor, targets: Tensor, queries: Tensor | None
    ) -> Tensor:
        return every(weights, tokens, index, targets, *([] if queries is None else [queries]))

    return losses


def of_each_member(
    model: Transformer, function: Callable[..., Tensor], mapped: Callable[..., Tensor] = over_members
) -> Callable[..., Tensor]:
    """Return `mapped` for `function(model, ...)`: a function of stacked weights and stacked arguments."""
    module = OfModel(model, function)
    plain = _needs_plain_attention(model)

    def stacked_function(weights: dict[str, Tensor], *arguments: Tensor) -> Tensor:
        try:
            with sdpa_kernel(SDPBackend.MATH) if plain else nullcontext():
                return mapped(module, weights, *arguments)
        except RuntimeError as error:
            if not VARIANTS[model.cfg.attention].registered or "vmap" not in str(error):
                raise
            raise ConfigError(
                f"The attention '{model.cfg.attention}' cannot be stacked by torch.vmap: train its runs one "
                f"by one, each by a call of train ({str(error).partition(chr(10))[0]})."
            ) from error

    return stacked_function


@torch.no_grad()
def clip_members(parameters: Iterable[Tensor], limit: float) -> Float[Tensor, " member"]:
    """Scale each member's gradient to a norm of at most `limit`, as `clip_grad_norm_` does one model's.

    Parameters have a leading member dimension. Returns the norms before clipping.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
    scale = (limit / (norms + 1e-6)).clamp(max=1)
    for gradient in gradients:
        gradient.mul_(scale.view(-1, *[1] * (gradient.ndim - 1)))
    return norms


def _needs_plain_attention(model: Transformer) -> bool:
    """Return whether fused attention cannot be vmapped.

    The CPU kernel would be called member by member. A GPU kernel takes a bias that is the same for all members
    (ALiBi's, the strict mask's) for one of the wrong shape (https://github.com/pytorch/pytorch/issues/151558).
    """
    on_cpu = next(model.parameters()).device.type == "cpu"
    return on_cpu or model.cfg.positional == "alibi" or model.cfg.mask == "strict"
