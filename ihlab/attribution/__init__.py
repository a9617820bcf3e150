"""Methods that estimate which heads and paths matter, compared with exact activation patching."""

from typing import TYPE_CHECKING

from ihlab.runtime.lazy import lazy

if TYPE_CHECKING:
    from ihlab.attribution.estimates import attribute
    from ihlab.attribution.methods import METHODS
    from ihlab.attribution.problems import Problem, problem
    from ihlab.attribution.registry import register_method
    from ihlab.attribution.scores import compare
    from ihlab.attribution.truth import exact

_HOME = {
    "METHODS": "ihlab.attribution.methods",
    "Problem": "ihlab.attribution.problems",
    "attribute": "ihlab.attribution.estimates",
    "compare": "ihlab.attribution.scores",
    "exact": "ihlab.attribution.truth",
    "problem": "ihlab.attribution.problems",
    "register_method": "ihlab.attribution.registry",
}

__all__ = [
    "METHODS",
    "TRUE_LEAST",
    "Problem",
    "attribute",
    "compare",
    "exact",
    "problem",
    "register_method",
]

TRUE_LEAST = 0.1
"""A true node has an exact effect of at least this fraction of the swing, in absolute value."""

__getattr__, __dir__ = lazy(__name__, _HOME)
