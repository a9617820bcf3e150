"""A lower bound on a run's memory, compared with the machine's before anything is written or
trained.
"""

import torch

from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.measure.metrics import ANSWER_ROWS, answer_places
from ihlab.measure.probe import PREFIX_REPEATS, TASK_ROWS, task_period
from ihlab.model.config import ModelConfig
from ihlab.training.config import RunConfig
from tasks.config import require
from tasks.memory import in_units, machine_memory, require_memory, rows_memory
from tasks.registry import require_registered

LAYER_OBJECTS = 40_000
"""Bytes of a layer's Python objects: modules and hook points."""


def require_fits(config: RunConfig, device: torch.device, members: int = 1) -> None:
    """Raise `ConfigError` for a run, or a stack of `members`, that does not fit in memory.

    The bound is 4 P + activations + patterns. P is the size of the weights, of their gradient and
    of each AdamW moment. Activations are the inputs of each layer's projections, the keys and the
    values of one microbatch. Patterns are the attention patterns of one layer, for the sequences
    that an evaluation scores.
    """
    model, length = config.model, config.task.length
    sequences = config.batch_size // config.accumulate
    width = model.n_layers * (model.d_model + 2 * model.kv_heads * model.head_width)
    activations = sequences * length * width * (2 if config.precision == "bf16" else 4)
    weights = members * 4 * _trained_bytes(model) + _other_bytes(model)
    batch = members * rows_memory(config.task, config.batch_size)
    held_out = rows_memory(config.task, config.eval_rows)
    read = f"the activations of {sequences} sequences of {length} positions (batch_size)"
    on_device = {f"the weights of {_shape(model)}": weights, read: members * activations}
    on_host = {
        f"a batch of {config.batch_size} sequences (batch_size)": batch,
        f"{config.eval_rows} held-out sequences (eval_rows)": held_out,
    }
    limit = machine_memory()
    if device.type == "cuda":  # batches are drawn on the host
        _require_within(limit, on_host)
        limit = torch.cuda.get_device_properties(device).total_memory
    else:
        on_device |= on_host
    _require_within(limit, on_device)
    require_registered(config.task)
    most = min(config.eval_rows, ANSWER_ROWS)
    scored = draw(config.task, EVAL_SEED, "eval", 0, most, packed=True)
    shapes = [(TASK_ROWS, PREFIX_REPEATS * task_period(config.task))]
    if answer_places(scored) is not None:
        shapes.insert(0, scored.inputs.shape)
    for rows, positions in shapes:
        what = f"the attention patterns of {rows} sequences of {positions} positions (length), which evaluations score"
        _require_within(limit, on_device | {what: 4 * rows * model.n_heads * positions**2})


def require_model_fits(model: ModelConfig) -> None:
    """Raise `ConfigError` for a model whose weights do not fit in the machine's memory."""
    require_memory(f"A model of {_shape(model)}", _trained_bytes(model) + _other_bytes(model))


def _trained_bytes(model: ModelConfig) -> int:
    """Return the bytes of embeddings and MLPs, a lower bound: attention's weights depend on its
    variant.
    """
    mlps = model.n_layers * {"none": 0, "gelu": 2, "swiglu": 3}[model.mlp] * model.mlp_width
    tables = (1 if model.tied_embeddings or model.unembedding == "none" else 2) * model.d_vocab
    positions = model.n_ctx if model.positional == "learned" else 0
    return 4 * model.d_model * (mlps + tables + positions)


def _other_bytes(model: ModelConfig) -> int:
    """Return the bytes of untrained parts: Python objects, and the sines and cosines of rotary
    positions.
    """
    angles = 2 * model.n_ctx * model.head_width if model.positional == "rope" else 0
    return model.n_layers * LAYER_OBJECTS + 4 * angles


def _require_within(limit: int, parts: dict[str, int]) -> None:
    needed, most = sum(parts.values()), max(parts, key=parts.__getitem__)
    require(
        needed <= limit,
        f"The run takes at least {in_units(needed)} of memory, most of it for {most}, but only {in_units(limit)} is "
        "available.",
    )


def _shape(model: ModelConfig) -> str:
    names = ("n_layers", "d_model", "n_heads", "d_mlp", "d_vocab", "n_ctx")
    return ", ".join(f"{name}={getattr(model, name)}" for name in names)
