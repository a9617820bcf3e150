"""Model and optimiser state as safetensors."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as serialised
from torch import Tensor, nn

from ihlab.files import write_atomically
from tasks.config import ConfigError, require


def save(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors atomically. (safetensors' own `save_file` makes files that only their owner may read.)"""
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    content = serialised(contiguous)
    write_atomically(path, lambda aside: aside.write_bytes(content))  # type: ignore[arg-type]


def load(path: Path, device: str | torch.device = "cpu") -> dict[str, Tensor]:
    """Read tensors. Raises `ConfigError` for a file that is missing, cut short or not safetensors."""
    try:
        path.open("rb").close()  # safetensors takes one that may not be read for one that is missing
        return load_file(path, device=str(device))
    except FileNotFoundError:
        raise ConfigError(f"There is no checkpoint {path}.") from None
    except PermissionError as error:
        raise ConfigError(f"The checkpoint {path} cannot be read: {error.strerror}.") from None
    except (SafetensorError, OSError) as error:
        raise ConfigError(
            f"The checkpoint {path} cannot be read ({error}); delete it to go on from an earlier one."
        ) from None


def model_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's tensors, a tied one once (safetensors stores no shared memory)."""
    return dict(model.named_parameters(remove_duplicate=True))


def load_model_state(model: nn.Module, tensors: dict[str, Tensor], source: Path) -> None:
    """Copy tensors into the model. Raises `ConfigError` when names or shapes do not fit it."""
    parameters = dict(model.named_parameters(remove_duplicate=True))
    if {n: tuple(p.shape) for n, p in parameters.items()} != {n: tuple(t.shape) for n, t in tensors.items()}:
        raise ConfigError(f"The checkpoint {source} holds another model than the run's config describes.")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])


def optimizer_state(parameters: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return AdamW's moments and step counts of the named parameters, named `<what>/<parameter>`."""
    return {
        f"{what}/{name}": tensor
        for name, parameter in parameters.items()
        for what, tensor in optimizer.state[parameter].items()
    }


def load_optimizer_state(
    parameters: Mapping[str, Tensor], optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]
) -> None:
    """Restore AdamW's moments and step counts, on the parameter's device, where the fused kernel needs them."""
    for key, tensor in tensors.items():
        what, name = key.split("/", 1)
        require(name in parameters, f"The optimiser state holds '{name}', which the run's model does not have.")
        optimizer.state[parameters[name]][what] = tensor.to(parameters[name].device)
