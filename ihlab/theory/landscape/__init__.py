"""Theorem 3.4: the loss of a KV shifting head that learns induction, its field, paths and simulation."""

from ihlab.theory.landscape.basins import basins
from ihlab.theory.landscape.field import Field, field
from ihlab.theory.landscape.forms import LOGITS, Gradient, gradient, loss
from ihlab.theory.landscape.paths import Path, descend, flow
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
