"""Names of a package that are imported on first use: torch and transformer_lens take seconds to
load.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package, given the module of each name that it
    imports on first use.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return getattr(import_module(modules[name]), name)

    def names() -> list[str]:
        return sorted(
            {*vars(sys.modules[package]), *modules}
        )  # a notebook completes names that are not loaded yet

    return get, names
