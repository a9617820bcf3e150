"""Data-parallel training: the processes of `torchrun` train one run together, each on its part of every batch.

    torchrun --nproc-per-node 4 -m ihlab train ...

Every rank draws the global batch and keeps its own sequences. Gradients are summed over ranks, so a step equals that
of a single process, to rounding. The first rank evaluates and writes. All ranks must see the same run folder.
"""

import atexit
import inspect
import os
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ihlab.measure.loss import OfModel, summed_loss
from ihlab.model.transformer import Transformer
from tasks.config import ConfigError, require


def n_ranks() -> int:
    """Return the world size under `torchrun`; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def require_alone(what: str) -> None:
    """Raise `ConfigError` under `torchrun`, for work of a single process."""
    require(n_ranks() == 1, f"{what} by one process: leave torchrun out.")


def join_ranks(device: str) -> "Ranks":
    """Join the process group and return this process's rank, on its own GPU if `device` is "auto" or "cuda".

    The group is joined once and left when the process ends: joining it a second time may hang.
    """
    size = n_ranks()
    if size == 1:
        return Ranks(0, 1, pick_device(device))
    where = pick_device(own_device(device))
    if where.type == "cuda":
        torch.cuda.set_device(where)
    if not dist.is_initialized():  # gloo as well as nccl: the stop flag is all-reduced on the CPU
        on_gpu = where.type == "cuda"
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", device_id=where if on_gpu else None)
        atexit.register(dist.destroy_process_group)
    return Ranks(dist.get_rank(), size, where)


def pick_device(name: str = "auto") -> torch.device:
    """Return a torch device by name; "auto" is a GPU if there is one. Raises `ConfigError` if it is not available."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"The device '{name}' cannot be used here ({str(error).splitlines()[0]}).") from None
    return device


def own_device(device: str) -> str:
    """Return the name of this process's own GPU for "auto" and "cuda" if there are GPUs, else the given name."""
    own = device in ("auto", "cuda") and torch.cuda.is_available()
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if own else device


class Ranks:
    """Rank `rank` of world size `size`, on its `device`. With world size 1 nothing is communicated."""

    def __init__(self, rank: int, size: int, device: torch.device) -> None:
        self.rank, self.size, self.device = rank, size, device
        self._asked: tuple[Tensor, dist.Work] | None = None

    @property
    def first(self) -> bool:
        """True for rank 0, which evaluates and writes."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait until all ranks have arrived (a barrier)."""
        if self.size > 1:
            self._settle()
            dist.all_reduce(torch.zeros(1))

    def require_same(self, what: str, value: int) -> None:
        """Raise `ConfigError` unless all ranks have the same value."""
        if self.size > 1:
            bounds = torch.tensor([value, -value])
            dist.all_reduce(bounds, dist.ReduceOp.MAX)
            most, least = bounds[0].item(), -bounds[1].item()
            require(
                most == least,
                f"The processes that train together have {what} {least} to {most}: all must see the same run folder.",
            )

    def collect(self, own: Tensor) -> Tensor:
        """Return the sum of all ranks' tensors. In place, rank 0's tensor becomes the sum and the others become 0."""
        if self.size == 1:
            return own
        total = own.clone()
        dist.all_reduce(total)
        own.copy_(total if self.first else torch.zeros_like(total))
        return total

    def from_first(self, value: float) -> float:
        """Broadcast the value of rank 0."""
        if self.size == 1:
            return value
        sent = torch.tensor(value, dtype=torch.float64)
        dist.broadcast(sent, src=0)
        return sent.item()

    def any_asked(self, asked: bool) -> bool:
        """Return whether any rank was asked to stop at the previous call; all ranks get the same answer.

        The answer is one call late, so that no step waits for the all-reduce; with world size 1 it is immediate.
        """
        if self.size == 1:
            return asked
        before, mine = self._asked, torch.tensor([int(asked)])
        self._asked = mine, dist.all_reduce(mine, dist.ReduceOp.MAX, async_op=True)
        if before is None:
            return False
        answer, work = before
        work.wait()
        stop = bool(answer.numpy()[0])
        if stop:
            self._settle()
        return stop

    def _settle(self) -> None:
        """Finish the pending all-reduce: a process that exits during one makes the others fail."""
        if self._asked is not None:
            self._asked[1].wait()
            self._asked = None

    def data_parallel(self, model: Transformer) -> DistributedDataParallel:
        """Wrap the model's `summed_loss`, as a module of a batch's `tensors`, to average gradients over ranks.

        The mean over ranks of `size` times the loss is the sum over all sequences. All ranks get the weights of rank 0.
        """
        ids = [self.device] if self.device.type == "cuda" else None
        # Buffers (rotary angles, ALiBi slopes) are the same on all ranks: they need no broadcast at each step.
        known = inspect.signature(DistributedDataParallel).parameters
        sent: Any = {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False}
        return DistributedDataParallel(
            OfModel(model, summed_loss), device_ids=ids, gradient_as_bucket_view=True, **sent
        )
