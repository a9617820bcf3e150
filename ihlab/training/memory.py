"""Memory of a training step, estimated before anything is trained."""

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
    """Estimate the peak memory of a training step in bytes, on a CPU to within a quarter, without allocating it.

        4 P + A + 2 max(a)

    with P the bytes of the parameters (stored with their gradient and AdamW's two moments), A the bytes of the
    activations that backward keeps of one microbatch, and max(a) the largest tensor in A, twice, since backward makes
    gradients as large. A is read from a forward pass on fake tensors of the `device` type, because kernels differ in
    what they keep; only the first batch is drawn. Torch's own overhead, the evaluation and `torch.compile` (which keeps
    less) are left out. Raises `ConfigError` for a device that is not available.
    """
    where = pick_device(device)
    microbatch = Stream(config.task, config.seed, config.batch_size, config.accumulate).step(0)[0]
    kept: dict[int, Tensor] = {}

    def keep(x: Tensor) -> Tensor:
        kept[x.untyped_storage()._cdata] = x  # the tensor too: the address of a freed storage is reused
        return x

    with FakeTensorMode(allow_non_fake_inputs=True), where:
        model = Transformer(config.model)
        batch = each_tensor(microbatch, lambda x: torch.zeros(x.shape, dtype=torch.int64))
        with (
            saved_tensors_hooks(keep, lambda x: x),
            torch.autocast(where.type, torch.bfloat16, enabled=config.precision == "bf16"),
        ):
            summed_loss(model, *batch.tensors)
    own = {p.untyped_storage()._cdata for p in model.parameters()}
    activations = [x.untyped_storage().nbytes() for number, x in kept.items() if number not in own]
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    return 4 * parameters + sum(activations) + 2 * max(activations)
