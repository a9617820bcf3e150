"""ihlab, the induction-head lab: train small transformers, watch induction heads form, check the paper's claims."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ihlab.model.config import ModelConfig
    from ihlab.model.transformer import Transformer
    from ihlab.training.config import RunConfig
    from ihlab.training.loop import train
    from ihlab.training.run import Run

_HOME = {
    "ModelConfig": "ihlab.model.config",
    "Transformer": "ihlab.model.transformer",
    "RunConfig": "ihlab.training.config",
    "Run": "ihlab.training.run",
    "train": "ihlab.training.loop",
}

__all__ = ["ModelConfig", "Run", "RunConfig", "Transformer", "train"]


# Names load on first use, because torch and transformer_lens take seconds and `ihlab --help` needs neither.
def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ihlab' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)
