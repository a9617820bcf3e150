"""Save and load checkpoints: model and optimiser state as safetensors, with a checksum that `load`
verifies.
"""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save as serialised
from torch import Tensor, nn

from ihlab.training.stored_checkpoint import ENTRY, About, read_checkpoint
from tasks.config import require
from tasks.files import write_atomically

CHECKSUM = "crc32"
"""Key of the checksum in a file's metadata. Checkpoints written before it was introduced have none.
"""

RUNNING_LOSS = {
    "tally/loss": torch.zeros(()),
    "tally/steps": torch.zeros((), dtype=torch.int64),
    "tally/seconds": torch.zeros((), dtype=torch.float64),
}
"""Stored with AdamW's state: training loss summed since the last evaluation, the steps in it, and
seconds trained.
"""


def save(path: Path, tensors: Mapping[str, Tensor], about: About | None = None) -> None:
    """Write tensors atomically, with `about` and a checksum in the file's metadata.

    safetensors' own `save_file` is not used: it makes files that only their owner may read.
    """
    about = about or {}
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    entry = json.dumps({**about, CHECKSUM: checksum(stored, about)}, sort_keys=True)
    content = serialised(stored, {ENTRY: entry})
    write_atomically(path, lambda aside: aside.write_bytes(content))  # type: ignore[arg-type]


def load(
    path: Path,
    device: str | torch.device = "cpu",
    like: Mapping[str, Tensor] | None = None,
    about: About | None = None,
) -> dict[str, Tensor]:
    """Read tensors.

    - `like`: tensors with the required names, types and shapes; None: nothing is required;
    - `about`: entries of the metadata that must be equal in the file, unless the file lacks them.

    Raises `ConfigError` for a file that is missing, cut short or not safetensors, whose tensors do
    not match `like`, whose entries differ from `about`, or whose checksum does not match its
    content.
    """
    tensors, metadata = read_checkpoint(path)
    if like is not None:
        _require_layout(path, tensors, like)
    stored = metadata.pop(CHECKSUM, None)
    require(
        stored is None or stored == checksum(tensors, metadata),
        f"The checkpoint {path} is damaged: it has another checksum than when it was written; "
        "delete it to go on from an earlier one.",
    )
    for name, wanted in (about or {}).items():
        stated = metadata.get(name, wanted)
        require(
            stated == wanted,
            f"The checkpoint {path} does not belong here: its {name} is {stated}, not {wanted}.",
        )
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def _require_layout(path: Path, tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> None:
    """Raise for tensors of other names, types or shapes: the optimiser would read past the end of
    smaller ones.
    """
    for name in sorted({*tensors, *like}):
        held, wanted = _described(tensors.get(name)), _described(like.get(name))
        require(
            held == wanted,
            f"The checkpoint {path} holds another model than the run's config describes: its tensor '{name}' is "
            f"{held}, not {wanted}.",
        )


def _described(tensor: Tensor | None) -> str:
    if tensor is None:
        return "missing"
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def checksum(tensors: Mapping[str, Tensor], about: About) -> str:
    """Return the CRC-32 of tensors on the CPU, of their names, types and shapes, and of `about`."""
    crc = zlib.crc32(repr(sorted(about.items())).encode())
    for name, tensor in sorted(tensors.items()):
        crc = zlib.crc32(f"{name} {_described(tensor)}".encode(), crc)
        crc = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, crc)
    return f"{crc:08x}"


def model_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's parameters, each tied parameter once (safetensors stores no shared
    memory).
    """
    return dict(model.named_parameters())


def load_weights(
    path: Path, model: nn.Module, about: About | None = None, device: str | torch.device = "cpu"
) -> dict[str, Tensor]:
    """Read a model's tensors. Raises `ConfigError` as `load` does, and for a weight that is not
    finite.
    """
    weights = load(path, device, model_state(model), about)
    for name, tensor in weights.items():
        finite = bool(tensor.isfinite().all())
        require(
            finite,
            f"The checkpoint {path} is damaged: its tensor '{name}' holds a number that is not finite.",
        )
    return weights


def load_model_state(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors of `load_weights` into the model."""
    with torch.no_grad():
        for name, parameter in model_state(model).items():
            parameter.copy_(tensors[name])


def optimizer_state(
    parameters: Mapping[str, Tensor], optimizer: torch.optim.Optimizer
) -> dict[str, Tensor]:
    """Return AdamW's moments and step counts of the given parameters, keyed by
    `<what>/<parameter>`.

    A parameter that has had no gradient (such as one that a registered attention does not use) gets
    AdamW's initial zeros.
    """
    state: dict[str, Tensor] = {}
    if not optimizer.state:  # before the first step
        return state
    for name, parameter in parameters.items():
        for what, tensor in (optimizer.state.get(parameter) or _beginning(parameter)).items():
            state[f"{what}/{name}"] = tensor
    return state


def _beginning(parameter: Tensor) -> dict[str, Tensor]:
    zeros = torch.zeros_like(parameter, requires_grad=False)
    return {
        "step": torch.zeros((), device=parameter.device),
        "exp_avg": zeros,
        "exp_avg_sq": zeros.clone(),
    }


def empty_optimizer(step: int, model: nn.Module) -> dict[str, Tensor]:
    """Return what `load_optimizer` returns after `step` steps, but with all moments zero."""
    empty = dict(RUNNING_LOSS)
    if step == 0:  # no moments before the first step
        return empty
    for name, parameter in model_state(model).items():
        moments = _beginning(parameter) | {"step": torch.tensor(float(step))}
        empty |= {f"{what}/{name}": tensor for what, tensor in moments.items()}
    return empty


def load_optimizer(
    path: Path,
    step: int,
    model: nn.Module,
    about: About | None = None,
    device: str | torch.device = "cpu",
) -> dict[str, Tensor]:
    """Read AdamW's state of a model after `step` steps, and its `RUNNING_LOSS`.

    Raises `ConfigError` as `load` does, for NaN, and for a step count that is not 0 .. `step`. A
    moment may be infinite: its weight then no longer changes.
    """
    state = load(path, device, empty_optimizer(step, model), about)
    for name, tensor in state.items():
        missing = bool(tensor.isnan().any())
        require(not missing, f"The checkpoint {path} is damaged: its tensor '{name}' holds a NaN.")
        # Fewer: the parameter has had no gradient in some steps.
        require(
            not name.startswith("step/") or 0 <= tensor.item() <= step,
            f"The checkpoint {path} is damaged: its tensor '{name}' is {tensor.tolist()}, but must be 0 to {step}.",
        )
    return state


def load_optimizer_state(
    parameters: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    tensors: Mapping[str, Tensor],
) -> None:
    """Restore AdamW's moments and step counts on each parameter's device, where the fused kernel
    needs them.
    """
    for key, tensor in tensors.items():
        what, name = key.split("/", 1)
        optimizer.state[parameters[name]][what] = tensor.to(parameters[name].device)
