"""Methods that estimate which heads and paths matter, held against exact patching."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ihlab.attribution.estimates import attribute
    from ihlab.attribution.libraries import METHODS
    from ihlab.attribution.problems import Problem, problem
    from ihlab.attribution.registry import register_method
    from ihlab.attribution.scores import compare
    from ihlab.attribution.truth import exact

_HOME = {
    "METHODS": "libraries",
    "Problem": "problems",
    "attribute": "estimates",
    "compare": "scores",
    "exact": "truth",
    "problem": "problems",
    "register_method": "registry",
}

__all__ = ["METHODS", "TRUE_LEAST", "Problem", "attribute", "compare", "exact", "problem", "register_method"]

TRUE_LEAST = 0.1
"""A true node has an exact effect of at least this fraction of the swing, in absolute value."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ihlab.attribution' has no attribute '{name}'")
    return getattr(import_module(f"ihlab.attribution.{_HOME[name]}"), name)
