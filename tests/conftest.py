"""For every test: array shapes are checked at run time, torch uses one thread, examples are the same each run."""

from importlib.util import find_spec
from pathlib import Path

import jaxtyping
import torch
from hypothesis import settings


def _checked_modules() -> list[str]:
    """Everything but the numba kernels: numba compiles a function's source and cannot see through a wrapper."""
    home = Path(find_spec("tasks").origin).parent
    names = [path.stem for path in home.iterdir() if path.suffix == ".py" or path.is_dir()]
    compiled = {name for name in names if name.endswith("_kernel")} | {"random64"}
    return ["ihlab", *(f"tasks.{name}" for name in sorted(set(names) - compiled))]


# Before any test module imports these packages.
jaxtyping.install_import_hook(_checked_modules(), "beartype.beartype")

torch.set_num_threads(1)

settings.register_profile("ihlab", deadline=None, derandomize=True, database=None, max_examples=50)
settings.load_profile("ihlab")
