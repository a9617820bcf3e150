"""The registry of methods, open to your own."""

from collections.abc import Callable
from typing import TypeVar

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from tasks.config import require

Method = Callable[..., Float[Tensor, "prompt node"] | pd.DataFrame]

METHODS: dict[str, Method] = {}
"""Every method by its name."""


M = TypeVar("M", bound=Method)


def register_method(name: str) -> Callable[[M], M]:
    """Return a decorator that registers a method under a name.

    A method is a function of a `Problem`, a kind of nodes ("head", "input" or "edge") and options by keyword. It
    returns its estimates of the column `effect` of `exact`: a tensor [prompt, node] in the order of `Problem.nodes`, or
    a table with the columns that name a node and `effect`. Scores of a table have intervals that leave out the noise of
    the method. A method that cannot handle a kind of nodes, or a model, raises `ConfigError` in one sentence.
    """

    def registered(method: M) -> M:
        require(METHODS.get(name, method) is method, f"The method {name!r} is registered already: choose another name.")
        METHODS[name] = method
        return method

    return registered


def heads_only(method: str, nodes: str) -> None:
    """Raise `ConfigError` unless the nodes are heads."""
    require(nodes == "head", f"The method {method!r} scores heads only, not nodes={nodes!r}.")
