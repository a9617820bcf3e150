"""Evaluation mode for measurements: in training mode, dropout gives a different result at each
call.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from torch import nn

from ihlab.runtime.settings import own_settings

M = TypeVar("M", bound=nn.Module)
P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model in `eval()` mode and torch in `own_settings`. Restore each module's mode and
    torch afterwards.
    """
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with own_settings():
            yield
    finally:
        for module in training:
            module.training = True


def in_eval_mode(measure: Callable[Concatenate[M, P], T]) -> Callable[Concatenate[M, P], T]:
    """Decorate a function of a model so that it runs with the model in evaluation mode."""

    @wraps(measure)
    def measured(model: M, *args: P.args, **kwargs: P.kwargs) -> T:
        with evaluating(model):
            return measure(model, *args, **kwargs)

    return measured
