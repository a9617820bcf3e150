"""The processes that train one run together, as `torchrun` starts them: one model each, other rows of each batch.

    torchrun --nproc-per-node 4 -m ihlab train ...

Every rank draws the global batch and keeps its rows; DistributedDataParallel sums the gradients, so that a step is
that of one process to rounding. The first rank evaluates and writes. All must see the same run folder.
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
    """How many processes `torchrun` started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def require_alone(what: str) -> None:
    """Raise `ConfigError` under `torchrun`, for what one process does."""
    require(n_ranks() == 1, f"{what} by one process: leave torchrun out.")


def join_ranks(device: str) -> "Ranks":
    """This process among those that train together, which has its own GPU if `device` is "auto" or "cuda".

    The process group is joined once and left when the process ends: joined a second time, it may never come about.
    """
    size = n_ranks()
    if size == 1:
        return Ranks(0, 1, pick_device(device))
    where = pick_device(own_device(device))
    if where.type == "cuda":
        torch.cuda.set_device(where)
    if not dist.is_initialized():  # gloo beside nccl: whether to stop is agreed on without asking the GPU
        on_gpu = where.type == "cuda"
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", device_id=where if on_gpu else None)
        atexit.register(dist.destroy_process_group)
    return Ranks(dist.get_rank(), size, where)


def pick_device(name: str = "auto") -> torch.device:
    """A torch device by name; "auto" is a GPU if there is one. Raises `ConfigError` for one that is not here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"The device '{name}' cannot be used here ({str(error).splitlines()[0]}).") from None
    return device


def own_device(device: str) -> str:
    """The name of this process' own GPU for "auto" and "cuda" where there are GPUs; any other as it is."""
    own = device in ("auto", "cuda") and torch.cuda.is_available()
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if own else device


class Ranks:
    """Process `rank` of `size`, on its `device`. Alone, nothing here does anything."""

    def __init__(self, rank: int, size: int, device: torch.device) -> None:
        self.rank, self.size, self.device = rank, size, device
        self._asked: tuple[Tensor, dist.Work] | None = None

    @property
    def first(self) -> bool:
        """Whether this is the process that evaluates and writes."""
        return self.rank == 0

    def wait(self) -> None:
        """Go on when all are here."""
        if self.size > 1:
            self._settle()
            dist.all_reduce(torch.zeros(1))

    def require_same(self, what: str, value: int) -> None:
        """Raise `ConfigError` unless all have the same value."""
        if self.size > 1:
            bounds = torch.tensor([value, -value])
            dist.all_reduce(bounds, dist.ReduceOp.MAX)
            most, least = bounds[0].item(), -bounds[1].item()
            require(
                most == least,
                f"The processes that train together have {what} {least} to {most}: all must see the same run folder.",
            )

    def collect(self, share: Tensor) -> Tensor:
        """The sum of all ranks' shares. The first rank keeps the sum as its share, the others keep 0."""
        if self.size == 1:
            return share
        total = share.clone()
        dist.all_reduce(total)
        share.copy_(total if self.first else torch.zeros_like(total))
        return total

    def from_first(self, value: float) -> float:
        """The first rank's value."""
        if self.size == 1:
            return value
        sent = torch.tensor(value, dtype=torch.float64)
        dist.broadcast(sent, src=0)
        return sent.item()

    def any_asked(self, asked: bool) -> bool:
        """Whether any rank had been asked (to stop) by the call before. All ranks get the same answer.

        A call late, so that no step waits for word from the others; alone at once.
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
        """Let the question that is under way end: a process that leaves with one open takes the others down."""
        if self._asked is not None:
            self._asked[1].wait()
            self._asked = None

    def share(self, model: Transformer) -> DistributedDataParallel:
        """`summed_loss` of the model as a module of a batch's `tensors`, whose gradients all ranks get the mean of.

        The mean of `size` times the loss is the sum over all rows. Weights become those of the first rank.
        """
        ids = [self.device] if self.device.type == "cuda" else None
        # Buffers are tables of angles and slopes, the same everywhere: they need not be sent at each step.
        known = inspect.signature(DistributedDataParallel).parameters
        sent: Any = {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False}
        return DistributedDataParallel(
            OfModel(model, summed_loss), device_ids=ids, gradient_as_bucket_view=True, **sent
        )
