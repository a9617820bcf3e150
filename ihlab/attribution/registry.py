"""The registry of methods, open to your own."""

from collections.abc import Callable

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from tasks.config import require

Method = Callable[..., Float[Tensor, "prompt node"] | pd.DataFrame]

METHODS: dict[str, Method] = {}
"""Every method by its name."""


def register_method(name: str) -> Callable[[Method], Method]:
    """Return a decorator that registers a method under a name.

    A method is a function of a `Problem`, a kind of nodes ("head", "input" or "edge") and options by keyword. It
    returns its estimates of the column `effect` of `exact`: a tensor [prompt, node] in the order of `Problem.nodes`, or
    a table with the columns that name a node and `effect`. Scores of a table have intervals that leave out the noise of
    the method. A method that cannot handle a kind of nodes, or a model, raises `ConfigError` in one sentence.
    """

    def registered(method: Method) -> Method:
        require(METHODS.get(name, method) is method, f"The method {name!r} is registered already: choose another name.")
        METHODS[name] = method
        return method

    return registered
