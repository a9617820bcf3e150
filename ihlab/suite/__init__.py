"""A suite of small trained models whose answers are known: test your method on them.

`models` lists them, `load` opens one, `truth` says which of its heads, inputs and edges matter, `export` writes a
Hugging Face folder, `build` trains those that do not come with the package. A member is "induction-vanilla-2", say.
"""

from ihlab.suite.export import card, export, read_truth
from ihlab.suite.gallery import gallery
from ihlab.suite.members import build, load, models, run
from ihlab.suite.truth import problem, truth

__all__ = ["build", "card", "export", "gallery", "load", "models", "problem", "read_truth", "run", "truth"]
