"""Theorem 3.4: the loss of a KV shifting head that learns induction, its gradient, descent paths
and a simulation.
"""

from typing import TYPE_CHECKING

from ihlab.runtime.lazy import lazy
from ihlab.theory.landscape.basins import basins
from ihlab.theory.landscape.field import Field, field
from ihlab.theory.landscape.forms import LOGITS, Gradient, gradient, loss
from ihlab.theory.landscape.paths import Path, descend, flow

if TYPE_CHECKING:
    from ihlab.theory.landscape.simulation import Simulated, simulate

__all__ = [
    "LOGITS",
    "Field",
    "Gradient",
    "Path",
    "Simulated",
    "basins",
    "descend",
    "field",
    "flow",
    "gradient",
    "loss",
    "simulate",
]

# The simulation imports torch, which the figure of the loss does not need.
__getattr__, __dir__ = lazy(
    __name__, dict.fromkeys(("Simulated", "simulate"), f"{__name__}.simulation")
)
