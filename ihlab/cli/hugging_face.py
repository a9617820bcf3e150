"""Names of models of transformers that a command is given. The models are read by `ihlab.stored`."""

import os
from pathlib import Path


def model_name(name: str) -> str:
    """Return what a model is called in titles and files: the last part of a name, or the name of a folder."""
    place = Path(os.path.expanduser(name))
    return (place.resolve() if place.is_dir() else place).name
