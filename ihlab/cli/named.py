"""User-defined tasks and experiments, named on the command line as `module:name`."""

import sys
from importlib import import_module
from typing import Any

from tasks.config import ConfigError, require, shown
from tasks.registry import register_task


def registered_task(name: str) -> str:
    """Import and register the task class `module:Class`; return its kind. Raises `ConfigError` if that fails."""
    return str(register_task(_imported(name)).kind)


def registered_experiment(name: str) -> str:
    """Import and register the experiment `module:name`; return its name. Raises `ConfigError` if that fails."""
    from ihlab.study.registry import register_experiment

    experiment = _imported(name)
    register_experiment(experiment)
    return str(experiment.name)


def registered_method(name: str) -> str:
    """Import the attribution method `module:function`, register it if it is not, and return its name.

    Raises `ConfigError` if that fails.
    """
    from ihlab.attribution import METHODS, register_method

    function = _imported(name)
    for method, registered in METHODS.items():
        if registered is function:
            return method
    own = name.rpartition(":")[2]
    register_method(own)(function)
    return own


def _imported(name: str) -> Any:
    """Import a name that the user gave, from this folder or an installed package. Never give it names from files."""
    module, _, attribute = name.partition(":")
    require(
        bool(module) and not module.startswith("."),
        f"{name!r} is not of the form module:name, such as my_tasks:CopyTask.",
    )
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        imported = import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (module, module.partition(".")[0]):
            raise  # the module itself has a missing import
        raise ConfigError(
            f"{name!r}: there is no module {module!r} (written without .py) here or installed."
        ) from None
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:  # SystemExit, say, of a script without an `if __name__` guard
        raise ConfigError(
            f"{name!r}: the module {module!r} ends Python when it is imported ({shown(error)})."
        ) from None
    require(hasattr(imported, attribute), f"{name!r}: the module {module!r} has no {attribute!r}.")
    return getattr(imported, attribute)
