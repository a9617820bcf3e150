"""ihlab, the induction-head lab: train small transformers, watch induction heads form, check the paper's claims."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ihlab.model.config import ModelConfig
    from ihlab.model.transformer import Transformer
    from ihlab.training.clamp import Clamp
    from ihlab.training.config import RunConfig
    from ihlab.training.fork import fork
    from ihlab.training.loop import train
    from ihlab.training.run import Run

_HOME = {
    "ModelConfig": "ihlab.model.config",
    "Transformer": "ihlab.model.transformer",
    "Clamp": "ihlab.training.clamp",
    "RunConfig": "ihlab.training.config",
    "fork": "ihlab.training.fork",
    "Run": "ihlab.training.run",
    "train": "ihlab.training.loop",
}

__all__ = ["Clamp", "ModelConfig", "Run", "RunConfig", "Transformer", "fork", "train"]


# Names load on first use, because torch and transformer_lens take seconds and `ihlab --help` needs neither.
def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ihlab' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)
