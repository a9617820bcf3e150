"""For every test: array shapes are checked at run time, torch uses one thread, examples are the same each run."""

from importlib.util import find_spec
from pkgutil import iter_modules

import jaxtyping
import torch
from hypothesis import settings


def _checked_modules() -> list[str]:
    """Everything but the numba kernels: numba compiles a function's source and cannot see through a wrapper."""
    names = [module.name for module in iter_modules(find_spec("tasks").submodule_search_locations)]
    return ["ihlab", *(f"tasks.{name}" for name in names if not name.endswith(("_kernel", "random64")))]


# Before any test module imports these packages.
jaxtyping.install_import_hook(_checked_modules(), "beartype.beartype")

torch.set_num_threads(1)

settings.register_profile("ihlab", deadline=None, derandomize=True, database=None, max_examples=50)
settings.load_profile("ihlab")
