"""Load the paper's studies into the registry of experiments, before those of users and of installed packages."""

from pkgutil import resolve_name

from ihlab.paper.figures import FIGURES
from ihlab.study.registry import EXPERIMENTS, register_experiment
from tasks.registry import load_plugins

__all__ = ["EXPERIMENTS", "register_experiment"]

GROUP = "ihlab.experiments"
"""Entry point group for experiments of installed packages."""

_registered = list(EXPERIMENTS.values())
EXPERIMENTS.clear()
for _figure in FIGURES.values():
    register_experiment(resolve_name(f"ihlab.paper.studies.{_figure.study}"))
for _experiment in _registered:
    register_experiment(_experiment)
load_plugins(GROUP, register_experiment)
