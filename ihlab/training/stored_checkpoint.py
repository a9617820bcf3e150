"""Read a checkpoint's file: its tensors, and its metadata (`About`). No torch here: `ihlab runs`
reads thousands.
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ihlab.storage.stored import one_by_key, present, read_tensors
from tasks.config import ConfigError, require

if TYPE_CHECKING:
    from torch import Tensor

ENTRY = "ihlab"
"""The only entry of a file's metadata, in JSON: safetensors does not order entries, so equal files
could differ.
"""

About = Mapping[str, str]
"""The metadata of a checkpoint: its run's digest, its step, digests of its data, and a record of
the metrics.
"""


def stored_about(path: Path) -> dict[str, str]:
    """Return a file's `About` without reading its tensors. Raises `ConfigError` if it cannot be
    read.
    """
    return read_checkpoint(path, tensors=False)[1]


def read_checkpoint(path: Path, tensors: bool = True) -> "tuple[dict[str, Tensor], dict[str, str]]":
    """Return a file's tensors (none if `tensors` is False) and its `About`.

    Raises `ConfigError` if it cannot be read.
    """
    require(present(path), f"There is no checkpoint {path}.")
    try:
        content, metadata = read_tensors(path, tensors)
        try:
            about = json.loads(
                metadata.get(ENTRY, "{}"), object_pairs_hook=partial(one_by_key, path)
            )
        except ConfigError:
            raise
        except (ValueError, RecursionError):
            about = None
        require(
            isinstance(about, dict), f"{path} cannot be read: its metadata is not a JSON object."
        )
    except ConfigError as error:
        raise ConfigError(
            f"The checkpoint {str(error).rstrip('.')}; delete it to go on from an earlier one."
        ) from None
    return content, {str(name): str(value) for name, value in about.items()}
