"""Pickling of classes that are made at run time, which pickle cannot find by their names."""

from collections.abc import Callable
from typing import Any


def pickled_by(make: Callable[[Any], Any], base: Any) -> Callable[..., Any]:
    """Return the `__reduce_ex__` of the class `make(base)`: its objects are pickled with `make` and
    `base`.
    """

    def reduce(self: Any, protocol: Any) -> Any:
        state = object.__reduce_ex__(self, protocol)
        return (
            (_empty, (make, base), *state[2:]) if type(self) is make(base) else state
        )  # not for a subclass of it

    return reduce


def _empty(make: Callable[[Any], Any], base: Any) -> Any:
    cls = make(base)
    return cls.__new__(cls)
