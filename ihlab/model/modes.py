"""Evaluation mode while something is measured: in training mode, dropout makes each call's result different."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)
P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model in `eval()`, and afterwards each of its modules in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def in_eval_mode(measure: Callable[Concatenate[M, P], T]) -> Callable[Concatenate[M, P], T]:
    """Decorate a function of a model to be called with the model in evaluation mode."""

    @wraps(measure)
    def measured(model: M, *args: P.args, **kwargs: P.kwargs) -> T:
        with evaluating(model):
            return measure(model, *args, **kwargs)

    return measured
