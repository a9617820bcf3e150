"""Python files that are imported by their path, here and in every worker process."""

import hashlib
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

from tasks.config import ConfigError, require

IMPORTED: list[Path] = []
"""The files that this process has imported with `import_file`. Worker processes import them when
they start.
"""


def import_file(path: Path) -> ModuleType:
    """Import a file that the user named, and return its module.

    It imports files beside it as `from .helper import name`. Its folder is a package with a name of
    its own, so that files of two folders never mix. Raises `ConfigError` for a path that is no file
    of Python.
    """
    file = path.resolve()
    sound = file.is_file() and file.suffix == ".py" and "." not in file.stem
    require(
        sound,
        f"{path} is no Python file: it must be an existing file with a name such as study.py.",
    )
    package = f"folder_{hashlib.sha256(str(file.parent).encode()).hexdigest()[:12]}"
    if package not in sys.modules:
        spec = ModuleSpec(package, None, is_package=True)
        spec.submodule_search_locations = [str(file.parent)]
        sys.modules[package] = module_from_spec(spec)
    try:
        module = import_module(f"{package}.{file.stem}")
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:  # SystemExit, say, of a script without an `if __name__` guard
        raise ConfigError(
            f"{path} ends Python when it is imported ({type(error).__name__})."
        ) from None
    if file not in IMPORTED:
        IMPORTED.append(file)
    return module
