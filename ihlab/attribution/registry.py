"""The registry of attribution methods. `register_method` adds your own."""

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

    A method is a function of a `Problem`, a kind of nodes ("head", "input", "position" or "edge")
    and keyword options. It estimates the effects that `exact` measures (column `effect`). It
    returns a tensor [prompt, node] in the order of `Problem.nodes`, or a table with one row per
    node: the columns that name the node, and `effect`. With a table, intervals of scores leave out how estimates vary
    between prompts. A method that cannot handle a kind of nodes, or a model, raises a one-sentence
    `ConfigError`.
    """

    def registered(method: M) -> M:
        there = METHODS.get(
            name, method
        )  # running a notebook's cell again defines the same method again
        same = (there.__module__, there.__qualname__) == (method.__module__, method.__qualname__)
        require(same, f"The method {name!r} is registered already: choose another name.")
        METHODS[name] = method
        return method

    return registered


def heads_only(method: str, nodes: str) -> None:
    """Raise `ConfigError` unless the nodes are heads."""
    require(nodes == "head", f"The method {method!r} scores heads only, not nodes={nodes!r}.")
