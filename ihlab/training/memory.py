"""What a training step needs of memory, before anything is trained."""

import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

from ihlab.measure.loss import summed_loss
from ihlab.measure.rows import each_tensor
from ihlab.model.transformer import Transformer
from ihlab.training.config import RunConfig
from ihlab.training.data import Stream
from ihlab.training.distributed import pick_device


def memory_estimate(config: RunConfig, device: str = "cpu") -> int:
    """The bytes that a training step holds at its peak, on a CPU to within a quarter, without allocating them.

        4 P + A + 2 max(a)

    with P the bytes of the parameters (held with their gradient and AdamW's two moments), A those of all that backward
    keeps of one piece of the batch, and max(a) the largest tensor in A, twice: backward makes gradients as large.
    A is read off a forward pass on fake tensors of the `device`'s kind, whose kernels keep different things; only the
    first batch is drawn. What torch itself takes, the evaluation and `torch.compile` (which keeps less) are left out.
    Raises `ConfigError` for a device that is not here.
    """
    where = pick_device(device)
    piece = Stream(config.task, config.seed, config.batch_size, config.accumulate).step(0)[0]
    kept: dict[int, Tensor] = {}

    def keep(x: Tensor) -> Tensor:
        kept[x.untyped_storage()._cdata] = x  # the tensor too: a freed storage's number is given out again
        return x

    with FakeTensorMode(allow_non_fake_inputs=True), where:
        model = Transformer(config.model)
        batch = each_tensor(piece, lambda x: torch.zeros(x.shape, dtype=torch.int64))
        with (
            saved_tensors_hooks(keep, lambda x: x),
            torch.autocast(where.type, torch.bfloat16, enabled=config.precision == "bf16"),
        ):
            summed_loss(model, *batch.tensors)
    own = {p.untyped_storage()._cdata for p in model.parameters()}
    activations = [x.untyped_storage().nbytes() for number, x in kept.items() if number not in own]
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    return 4 * parameters + sum(activations) + 2 * max(activations)
