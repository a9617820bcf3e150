"""Registry of all studies by name: the package's own, and those that users register."""

from typing import Any

from ihlab.claims.experiment import METHODS, Experiment
from ihlab.studies.attribution import ATTRIBUTION
from ihlab.studies.basin_map import BasinMap
from ihlab.studies.by_position import BY_POSITION
from ihlab.studies.checker import CHECKER
from ihlab.studies.depo import DEPO
from ihlab.studies.figure1 import Figure1a, Figure1b
from ihlab.studies.figure2 import Figure2
from ihlab.studies.figure4 import FIGURE4
from ihlab.studies.figure9 import Figure9
from ihlab.studies.flatness import FLATNESS
from ihlab.studies.formation_laws import FORMATION_LAWS
from ihlab.studies.fusion import FUSION
from ihlab.studies.hops import FIGURE8_LEARNED, SAVED_LAYER, Figure8
from ihlab.studies.idle_layers import IDLE_LAYERS
from ihlab.studies.lengths import LENGTHS, LENGTHS_16
from ihlab.studies.many_heads import MANY_HEADS
from ihlab.studies.mqar import MQAR
from ihlab.studies.packing import PACKING
from ihlab.studies.pairs import PAIRS
from ihlab.studies.parallel import PARALLEL
from ihlab.studies.period import PERIOD
from ihlab.studies.printed import Table2, Tables6To13
from ihlab.studies.proofs import PROOFS
from ihlab.studies.robustness import ROBUSTNESS
from ihlab.studies.shifts import SHIFTS
from ihlab.studies.table4 import TABLE4
from ihlab.studies.table5 import TABLE5
from ihlab.studies.text import TEXT
from ihlab.studies.variants import COMPARISONS
from ihlab.studies.width import WIDTH
from ihlab.studies.worst_case import WORST_CASE
from tasks.config import require
from tasks.registry import load_plugins

EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        Figure1a(),
        Figure1b(),
        Figure1a("learned"),
        Figure1b("learned"),
        Figure2(),
        FIGURE4,
        Figure8(),
        Figure9(),
        TABLE5,
        PERIOD,
        ATTRIBUTION,
        CHECKER,
        MQAR,
        Table2(),
        Tables6To13(),
        TABLE4,
        BasinMap(),
        MANY_HEADS,
        ROBUSTNESS,
        WIDTH,
        FUSION,
        PARALLEL,
        LENGTHS,
        LENGTHS_16,
        FIGURE8_LEARNED,
        SAVED_LAYER,
        TEXT,
        FLATNESS,
        SHIFTS,
        PAIRS,
        PACKING,
        BY_POSITION,
        DEPO,
        FORMATION_LAWS,
        IDLE_LAYERS,
        PROOFS,
        WORST_CASE,
        *COMPARISONS,
    )
}
"""Every experiment by its name, in the order of the page of results."""

GROUP = "ihlab.experiments"
"""Entry point group for experiments of installed packages."""

ON_REQUEST = EXPERIMENTS.keys() - {
    *("figure1a", "figure1b", "figure2", "figure8", "figure9", "table2", "table5", "tables6to13"),
}
"""Experiments that run only if named. Experiments that users register also run only if named."""


def register_experiment(experiment: Any) -> Any:
    """Register an experiment with `reproduce` under its `name`. It is an object, or a class without arguments.

    Returns its argument, so it works as a decorator. Raises `ConfigError` if a method of `Experiment` is missing (the
    message names it) or if another experiment already has the name.
    """
    made = experiment() if isinstance(experiment, type) else experiment
    name, kind = getattr(made, "name", None), type(made)
    require(isinstance(name, str) and name.isidentifier(), f"{kind.__name__}.name is {name!r}, but must be one word.")
    missing = [method for method in METHODS if not callable(getattr(made, method, None))]
    require(not missing, f"{kind.__name__} is not an experiment: it has no {', '.join(missing)}.")
    known = type(EXPERIMENTS.get(str(name), made))
    same = (known.__module__, known.__qualname__) == (kind.__module__, kind.__qualname__)
    require(same, f"There is an experiment '{name}' already, {known.__qualname__}: {kind.__name__} needs another name.")
    ON_REQUEST.update({str(name)} - EXPERIMENTS.keys())
    EXPERIMENTS[str(name)] = made
    return experiment


load_plugins(GROUP, register_experiment)
