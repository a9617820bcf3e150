"""Registry of experiments from outside, by name: those that users register, and those of installed
packages.
"""

from functools import cache
from typing import Any

from ihlab.study.experiment import METHODS, Experiment
from tasks.config import require
from tasks.registry import load_plugins

EXPERIMENTS: dict[str, Experiment] = {}
"""Every registered experiment by its name. Those of `figures/` are found there
(`ihlab.study.find`).
"""

GROUP = "ihlab.experiments"
"""Entry point group for experiments of installed packages."""


def register_experiment(experiment: Any) -> Any:
    """Register an experiment, an object or a class without arguments, so that `reproduce` finds it
    by its `name`.

    Returns its argument, so it works as a decorator. Raises `ConfigError` if a method of
    `Experiment` is missing (the message names it) or if an experiment that is defined elsewhere
    already has the name.
    """
    instance = experiment
    if isinstance(experiment, type):
        instance = experiment()
    name, kind = getattr(instance, "name", None), type(instance)
    require(
        isinstance(name, str) and name.isidentifier(),
        f"{kind.__name__}.name is {name!r}, but must be one word.",
    )
    missing = [method for method in METHODS if not callable(getattr(instance, method, None))]
    require(not missing, f"{kind.__name__} is not an experiment: it has no {', '.join(missing)}.")
    old, new = _owner(EXPERIMENTS.get(str(name), instance)), _owner(instance)
    require(
        old == new, f"There is an experiment '{name}' already, {old}: {new} needs another name."
    )
    EXPERIMENTS[str(name)] = instance
    return experiment


@cache
def load_experiments() -> None:
    """Register the experiments of installed packages, once."""
    load_plugins(GROUP, register_experiment)


def _owner(experiment: Any) -> str:
    """Return where an experiment is defined: its class, or for a study, which has no class, its
    `config` function.
    """
    made_by: Any = getattr(experiment, "config", None)
    made_by = getattr(made_by, "func", made_by)  # of a partial
    if not hasattr(made_by, "__qualname__"):
        made_by = type(experiment)
    return f"{made_by.__module__}.{made_by.__qualname__}"
