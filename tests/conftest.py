"""For every test: array shapes are checked at run time, torch uses one thread, examples are the same each run."""

import signal
from importlib.util import find_spec
from pathlib import Path

import jaxtyping
import torch
from hypothesis import settings


def _checked_modules() -> list[str]:
    """Everything but the numba kernels: numba compiles a function's source and cannot see through a wrapper."""
    root = Path(find_spec("tasks").submodule_search_locations[0])
    paths = [path.relative_to(root).with_suffix("") for path in root.rglob("*.py") if path.stem != "__init__"]
    checked = [path.parts for path in paths if not path.stem.endswith(("_kernel", "random64"))]
    return ["ihlab", *(".".join(("tasks", *parts)) for parts in checked)]


# Before any test module imports these packages.
jaxtyping.install_import_hook(_checked_modules(), "beartype.beartype")

torch.set_num_threads(1)

# A shell starts what it puts in the background with Ctrl-C ignored, and every process started from there inherits it.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("ihlab", deadline=None, derandomize=True, database=None, max_examples=50)
settings.load_profile("ihlab")
