"""Memory of a run, estimated before anything is trained: closely by `memory_estimate`, at once by `least_memory`."""

import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

from ihlab.measure.loss import summed_loss
from ihlab.measure.rows import each_tensor
from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer
from ihlab.model.variants import VARIANTS
from ihlab.training.config import RunConfig
from ihlab.training.data import Stream
from ihlab.training.distributed import pick_device
from tasks.config import require
from tasks.memory import in_units, machine_memory, require_memory, rows_memory

LAYER_OBJECTS = 40_000  # bytes of a layer's Python objects: modules and hook points


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


def require_fits(config: RunConfig, device: torch.device, ranks: int = 1, members: int = 1) -> None:
    """Raise `ConfigError` for a run that cannot be in memory, before anything is allocated or written.

    `members` are trained at once, on each of `ranks` processes.
    """
    parts = least_memory(config, ranks, members)
    if device.type == "cuda":  # rows are drawn on the host
        _require_within(torch.cuda.get_device_properties(device).total_memory, dict(list(parts.items())[:2]))
        parts = dict(list(parts.items())[2:])
    _require_within(machine_memory(), parts)


def require_model_fits(model: ModelConfig) -> None:
    """Raise `ConfigError` for a model whose weights cannot be in the machine's memory."""
    require_memory(f"A model of {_shape(model)}", weights_memory(model) + _fixed(model))


def _require_within(limit: int, parts: dict[str, int]) -> None:
    needed, (most, _) = sum(parts.values()), max(parts.items(), key=lambda part: part[1])
    require(
        needed <= limit,
        f"The run takes at least {in_units(needed)} of memory, most of it for {most}, but there are {in_units(limit)}.",
    )


def least_memory(config: RunConfig, ranks: int = 1, members: int = 1) -> dict[str, int]:
    """Return lower bounds of the bytes that a run takes, by what takes them. Nothing is drawn or built.

        4 P,  and of a microbatch the inputs of each layer's key projection, its keys and its values

    with P the weights' bytes. `memory_estimate` is never less than these two and the rows; it takes seconds, and
    does not end for impossible sizes.
    """
    model, length = config.model, config.task.length
    rows = config.batch_size // (config.accumulate * ranks)
    kept = model.n_layers * (model.d_model + 2 * model.kv_heads * model.head_width)
    of_microbatch = rows * length * kept * (2 if config.precision == "bf16" else 4)
    return {
        f"the weights of {_shape(model)}, their gradient and AdamW's moments": members * 4 * weights_memory(model)
        + _fixed(model),
        f"the activations of {rows} rows of {length} positions (batch_size / accumulate)": members * of_microbatch,
        f"a batch of {config.batch_size} rows (batch_size)": members * rows_memory(config.task, config.batch_size),
        f"{config.eval_rows} held-out rows (eval_rows)": rows_memory(config.task, config.eval_rows),
    }


def weights_memory(model: ModelConfig) -> int:
    """Return the bytes of a model's matrices: a little less than it takes."""
    if VARIANTS[model.attention].registered:  # its weights are not known
        attention = 0
    elif model.attention in ("mla", "mla_kv"):
        made = model.n_heads * (2 * model.head_width - model.rope_width)  # keys but for their shared part, and values
        attention = 2 * model.d_model * model.n_heads * model.head_width + model.latent_rank * made
        attention += model.d_model * (model.latent_rank + model.rope_width)
    else:
        attention = 2 * model.d_model * model.head_width * (model.n_heads + model.kv_heads)
    mlp = {"none": 0, "gelu": 2, "swiglu": 3}[model.mlp] * model.d_model * model.mlp_width
    shifts = 2 * model.kv_heads * model.shift_window if model.shifted else 0
    tables = 1 if model.tied_embeddings or model.unembedding == "none" else 2
    positions = model.n_ctx if model.positional == "learned" else 0
    matrices = (tables * model.d_vocab + positions) * model.d_model
    return 4 * (matrices + model.n_layers * (attention + mlp + shifts))


def _fixed(model: ModelConfig) -> int:
    """Return the bytes of what is not trained: a layer's objects, and the rotary angles' sines and cosines."""
    angles = 2 * model.n_ctx * model.head_width if model.positional == "rope" else 0
    return model.n_layers * LAYER_OBJECTS + 4 * angles


def _shape(model: ModelConfig) -> str:
    names = ("n_layers", "d_model", "n_heads", "d_mlp", "d_vocab", "n_ctx")
    return ", ".join(f"{name}={getattr(model, name)}" for name in names)
