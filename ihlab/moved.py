"""Old module paths: they can be imported until version 0.5, with a `DeprecationWarning` that names the new path."""

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED = {
    **{
        f"ihlab.claims.{name}": f"ihlab.recipes.{name}"
        for name in ("hop_horizon", "induction", "labels", "real_text", "toy_settings")
    },
    "ihlab.claims": "ihlab.study",
    "ihlab.interp.given_patterns": "ihlab.interp.patterns_alone",
    "ihlab.model.mla": "ihlab.model.variants.mla",
}
"""The new path of each moved module or package, by old path. The first match is used, so a package comes last."""


def new_path(name: str) -> str | None:
    """Return the new path of a module; None if it did not move."""
    old = next((old for old in MOVED if f"{name}.".startswith(f"{old}.")), None)
    return None if old is None else MOVED[old] + name.removeprefix(old)


class Moved(MetaPathFinder, Loader):
    """Import hook: importing an old path returns the module of the new path, so the two are one module object."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Warn about an old path and return the spec that loads it; None for any other path."""
        new = new_path(fullname)
        if new is None:
            return None
        warnings.warn(f"{fullname} is {new} now; the old path goes in 0.5.", DeprecationWarning, stacklevel=2)
        return ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        """Put the module of the new path in the place of the empty module that Python made."""
        sys.modules[module.__name__] = import_module(str(new_path(module.__name__)))


sys.meta_path.insert(0, Moved())  # before Python's own finder, which would load a file of a moved package twice
