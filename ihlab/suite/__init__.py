"""A suite of small trained models whose circuits are known: test your method on them.

`models` lists them, `load` opens one, `truth` says which of its heads, inputs and edges matter,
`export` writes a Hugging Face folder, `build` trains those that do not come with the package. An
example is "induction-vanilla-2".
"""

from typing import TYPE_CHECKING

from ihlab.runtime.lazy import lazy
from ihlab.suite.members import build, load, models, run
from ihlab.suite.truth import problem, truth

if TYPE_CHECKING:
    from ihlab.suite.hub_folder import card, export, read_truth

_HOME = dict.fromkeys(("card", "export", "read_truth"), "ihlab.suite.hub_folder")

__all__ = ["build", "card", "export", "load", "models", "problem", "read_truth", "run", "truth"]

__getattr__, __dir__ = lazy(__name__, _HOME)
