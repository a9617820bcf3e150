"""Where a run computes."""

import torch

from tasks.config import ConfigError


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
