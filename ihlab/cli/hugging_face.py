"""Names of Hugging Face models given to a command. The models are read by `ihlab.stored`."""

import os
from pathlib import Path


def model_name(name: str) -> str:
    """Return a model's name for titles and files: the last part of its name, or the name of its folder."""
    place = Path(os.path.expanduser(name))
    return (place.resolve() if place.is_dir() else place).name
