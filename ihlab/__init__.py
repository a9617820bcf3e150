"""ihlab, the induction-head lab: train small transformers, watch induction heads form, check the
paper's claims.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ihlab.runtime.lazy import lazy

_tasks = find_spec("tasks")
_places = [] if _tasks is None else list(_tasks.submodule_search_locations or [_tasks.origin or ""])
if _places and not any(
    (Path(place) / "induction.py").is_file() for place in _places
):  # not our package
    raise ImportError(
        f"{_places[0]} hides the package 'tasks' that ihlab comes with: give it another name.",
        name="tasks",
    )

if TYPE_CHECKING:
    from ihlab.model.config import ModelConfig
    from ihlab.model.registry import register_attention
    from ihlab.model.transformer import Transformer
    from ihlab.study.registry import register_experiment
    from ihlab.training.clamp import Clamp
    from ihlab.training.config import RunConfig
    from ihlab.training.fork import fork
    from ihlab.training.listing import runs
    from ihlab.training.run import Run
    from ihlab.training.train import train
    from tasks import (
        Batch,
        ConfigError,
        IGSMTask,
        InductionTask,
        MQARTask,
        MultiHopTask,
        NGramTask,
        RepeatTask,
        Task,
        TextTask,
        TriggerTask,
        register_task,
    )

__all__ = [
    "Batch",
    "Clamp",
    "ConfigError",
    "IGSMTask",
    "InductionTask",
    "MQARTask",
    "ModelConfig",
    "MultiHopTask",
    "NGramTask",
    "RepeatTask",
    "Run",
    "RunConfig",
    "Task",
    "TextTask",
    "Transformer",
    "TriggerTask",
    "fork",
    "register_attention",
    "register_experiment",
    "register_task",
    "runs",
    "train",
]

_HOME = dict.fromkeys(__all__, "tasks") | {
    "ModelConfig": "ihlab.model.config",
    "Transformer": "ihlab.model.transformer",
    "Clamp": "ihlab.training.clamp",
    "RunConfig": "ihlab.training.config",
    "fork": "ihlab.training.fork",
    "runs": "ihlab.training.listing",
    "Run": "ihlab.training.run",
    "train": "ihlab.training.train",
    "register_attention": "ihlab.model.registry",
    "register_experiment": "ihlab.study.registry",
}

__getattr__, __dir__ = lazy(__name__, _HOME)
