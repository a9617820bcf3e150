"""Ensembles: which runs can be trained as one stacked model, how many at once, and the stacked
model.

A stack holds the weights of several models; torch.vmap maps the model over them.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import fields
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import functional_call, stack_module_state
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ihlab.measure.gathered import TrainingBatch
from ihlab.measure.loss import OfModel, summed_loss
from ihlab.measure.metrics import CHUNK_POSITIONS, Evaluator
from ihlab.model.registry import VARIANTS
from ihlab.model.transformer import Transformer
from ihlab.training.compiled import compiled
from ihlab.training.config import RunConfig
from tasks import IGNORE
from tasks.config import ConfigError, require

T = TypeVar("T")

FREE = ("name", "seed", "lr", "init_shift")
"""Fields in which members may differ."""

CPU_VALUES = 524_288
"""Largest d_model x positions of a stacked step on a CPU, summed over all members.

If fewer than eight fit, one member fills the cache, and sequential training is faster. Stacked
training of eight takes .54 to .71 of the sequential time at 32,768 values per member, .73 to .80 at
65,536, and 1.0 to 1.5 from 131,072.
"""

MOST_MEMBERS = 10_000

EVALUATED_LOGITS = 2**28
"""Maximum number of logits evaluated at a time: 1 GiB in float32. Members beyond it are evaluated
afterwards.
"""


def seeds(config: RunConfig, members: int) -> list[RunConfig]:
    """Return one config per member, with consecutive seeds that begin with this config's."""
    require(
        1 <= members <= MOST_MEMBERS,
        f"members is {members}, but must be from 1 to {MOST_MEMBERS}: each has a folder.",
    )
    return [config.replace(seed=config.seed + i) for i in range(members)]


def check_members(configs: Sequence[RunConfig]) -> None:
    """Raise `ConfigError` for members that cannot be stacked, naming the field."""
    require(bool(configs), "An ensemble needs at least one member.")
    first, digests = configs[0], set[str]()
    for config in configs:
        require(
            type(config) is RunConfig and not config.clamped,
            f"'{config.name}' is a fork, or has lessons or clamps, but such runs are trained one at a time.",
        )
        dropout = config.model.dropout
        require(
            not dropout,
            f"ModelConfig.dropout is {dropout}, but members of an ensemble are trained without dropout.",
        )
        for field in fields(config):
            same = getattr(config, field.name) == getattr(first, field.name)
            require(
                same or field.name in FREE,
                f"Members of an ensemble may differ in {', '.join(FREE)}, but {field.name} is not the same in all of "
                "them.",
            )
        require(
            config.digest not in digests,
            f"Two members are the same run: seed {config.seed}, lr {config.lr}.",
        )
        digests.add(config.digest)


def kind(config: RunConfig) -> str:
    """Return the key that members have in common: the digest of a config whose `FREE` fields are at
    their defaults.
    """
    usual = {name: RunConfig.__dataclass_fields__[name].default for name in FREE}
    return config.replace(**usual).digest


def best_stack(config: RunConfig, members: int, device: torch.device) -> int:
    """Return the number of members to stack: on a CPU as many as fit in `CPU_VALUES`, or one if
    fewer than eight do.
    """
    if device.type != "cpu":
        return max(1, members)
    values = config.batch_size // config.accumulate * config.task.length * config.model.d_model
    fit = CPU_VALUES // values
    return min(fit, members) if fit >= 8 else 1


def stacks(members: Sequence[T], most: int) -> list[list[T]]:
    """Split the members into the fewest groups of at most `most`, about equally large."""
    groups = max(1, math.ceil(len(members) / most))
    split = np.array_split(np.array(members, object), groups)
    return [group.tolist() for group in split if len(group)]


class Stack:
    """Models of one shape in training, as one model whose weights have a leading member dimension.

    The gradient of the summed losses with respect to a member's weights is that member's own
    gradient. AdamW updates all members with the largest learning rate. A member with a smaller rate
    takes the matching fraction of each update, weight decay included, since the update is
    proportional to the rate.
    """

    def __init__(self, models: Sequence[Transformer], configs: Sequence[RunConfig]) -> None:
        self.config = configs[0]
        self.model = models[0]  # the module that is called with stacked weights
        self.parameters, buffers = stack_module_state(models)
        require(
            all(torch.equal(of[:1].expand_as(of), of) for of in buffers.values()),
            "The members' models have different buffers, but a stack has those of one: train each by a call of train.",
        )
        device = next(models[0].parameters()).device
        rates = np.array([config.lr for config in configs])
        self._rates = torch.tensor(rates / rates.max(), dtype=torch.float32, device=device)
        self._one_rate = bool((rates == rates[0]).all())
        mapped = compiled(over_members, self.config, device, len(models))
        self._losses = of_each_member(self.model, summed_loss, mapped)

    def joined(self, batches: Sequence[TrainingBatch]) -> TrainingBatch:
        """Stack the members' microbatches (`stack_batches`). Raises `ConfigError` for packed
        documents.
        """
        require(
            all(batch.starts is None for batch in batches),
            f"{type(self.config.task).__name__} packs documents, which stacked runs do not read: train each alone.",
        )
        return stack_batches(batches, half=self.config.compile)

    def joined_states(self, states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Stack the members' optimiser states. All members share one step count."""
        joined = dict(states[0])
        for name in states[0]:
            if not name.startswith(("step/", "tally/")):
                joined[name] = torch.stack([state[name] for state in states])
        return joined

    def member(self, tensors: dict[str, Tensor], i: int) -> dict[str, Tensor]:
        """Return one member's tensors. The step count has no member dimension, since all members
        share it.
        """
        return {name: tensor[i] if tensor.ndim else tensor for name, tensor in tensors.items()}

    def summed_losses(self, batch: TrainingBatch) -> Float[Tensor, " member"]:
        """Return each member's summed loss of its microbatch."""
        given = [
            x for x in batch.tensors if x is not None
        ]  # a stack has no `starts`, and may have no `queries`
        return self._losses(self.parameters, *given)

    def clip(self, limit: float) -> None:
        """Scale each member's gradient to a norm of at most `limit`."""
        clip_members(self.parameters.values(), limit)

    @torch.no_grad()
    def take_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Update the weights, each member's with its own learning rate."""
        if self._one_rate:
            optimizer.step()
            return
        before = {name: parameter.clone() for name, parameter in self.parameters.items()}
        optimizer.step()
        for name, old in before.items():
            now = self.parameters[name]
            now.copy_(old.lerp(now, self._rates.view(-1, *[1] * (now.ndim - 1))))

    def evaluate(self, evaluator: Evaluator) -> list[dict[str, float]]:
        """Return the metrics of each member."""
        at_once = max(1, EVALUATED_LOGITS // (CHUNK_POSITIONS * self.config.model.d_vocab))
        numbers = of_each_member(
            self.model, evaluator.numbers, partial(over_members, at_once=at_once)
        )
        return [evaluator.row(of_member) for of_member in numbers(self.parameters).tolist()]


def stack_batches(members: Sequence[TrainingBatch], half: bool = False) -> TrainingBatch:
    """Stack the members' microbatches. Index and targets are padded with (0, IGNORE) to the
    longest, queries with 0.

    Scored positions are always gathered, since they may differ between members. If any member's
    `queries` is None, the result is None: all members then have queries at all positions. With
    `half`, queries are padded to half of the length, which is their maximum. A compiled stack needs
    this: torch.vmap treats sizes as constants, so each new size is compiled again, which takes as
    long as several hundred steps. (In a solo run, sizes are dynamic.)
    """
    everywhere = torch.arange(members[0].tokens.numel())
    index = [everywhere if member.index is None else member.index for member in members]
    gathered = [member.queries for member in members if member.queries is not None]
    queries = None
    if len(gathered) == len(members):
        queries = _padded_stack(gathered, 0, math.ceil(half * members[0].tokens.shape[1] / 2))
    return TrainingBatch(
        tokens=torch.stack([member.tokens for member in members]),
        index=_padded_stack(index, 0),
        targets=_padded_stack([member.targets for member in members], IGNORE),
        queries=queries,
        count=sum(member.count for member in members),
        total=torch.tensor([member.total for member in members], dtype=torch.float32),
    )


def _padded_stack(tensors: Sequence[Tensor], value: int, least: int = 0) -> Tensor:
    """Stack tensors, padded with `value` on the last axis to the longest, and to a length of at
    least `least`.
    """
    longest = max(least, *(tensor.shape[-1] for tensor in tensors))
    return torch.stack([F.pad(x, (0, longest - x.shape[-1]), value=value) for x in tensors])


def over_members(
    module: OfModel, weights: dict[str, Tensor], *arguments: Tensor, at_once: int | None = None
) -> Tensor:
    """Map a function of a model (`OfModel`) over stacked weights and arguments; return its results,
    stacked.

    Weights have the model's parameter names; the module's own weights are not read. `at_once`:
    members per vmap chunk, which bounds memory; None: all.
    """

    def one(weights: dict[str, Tensor], *arguments: Tensor) -> Tensor:
        named = {f"model.{name}": weight for name, weight in weights.items()}
        return functional_call(module, named, arguments)

    return torch.vmap(one, chunk_size=at_once)(weights, *arguments)


def of_each_member(
    model: Transformer,
    function: Callable[..., Tensor],
    mapped: Callable[..., Tensor] = over_members,
) -> Callable[..., Tensor]:
    """Return a function of stacked weights and stacked arguments that maps `function(model, ...)`
    over members.

    `mapped`: `over_members`, or its compiled version.
    """
    module = OfModel(model, function)
    # The CPU's fused kernel would be called member by member.
    plain = next(model.parameters()).device.type == "cpu"

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
    """Scale each member's gradient to a norm of at most `limit`, as `clip_grad_norm_` does one
    model's.

    Parameters have a leading member dimension. Returns the norms before clipping.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norms = torch.stack(
        [gradient.reshape(len(gradient), -1).norm(dim=1) for gradient in gradients]
    ).norm(dim=0)
    scale = (limit / (norms + 1e-6)).clamp(max=1)
    for gradient in gradients:
        gradient.mul_(scale.view(-1, *[1] * (gradient.ndim - 1)))
    return norms
