"""Pick the device that a process trains on."""

import os

import torch

from tasks.config import ConfigError, require, shown


def pick_device(name: str = "auto") -> torch.device:
    """Return a torch device by name; "auto" is a GPU if there is one.

    Raises `ConfigError` if it is not available or cannot compute (such as the meta device), and
    under `torchrun`, whose processes would all train the same run.
    """
    require_one_process()
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()  # on the meta device tensors have no values
    except Exception as error:  # of any backend
        raise ConfigError(
            f"The device {shown(name)} cannot be used here ({shown(str(error))})."
        ) from None
    return device


def require_one_process() -> None:
    """Raise `ConfigError` under `torchrun`."""
    require(
        os.environ.get("WORLD_SIZE", "1") == "1",
        "One process trains a run: leave torchrun out, and use a sweep (ihlab sweep) for many runs at a time.",
    )
