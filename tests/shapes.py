"""The check of array shapes at run time, in the first calls of each test: it takes as long as what it checks."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jaxtyping
from beartype import beartype

MOST = 1000
"""Checks in one test: of the arguments and the results of 500 calls. That is an evaluation and a few training steps."""

_left = MOST


def check_again() -> None:
    """Begin a test: check its first `MOST` calls."""
    global _left  # noqa: PLW0603  # jaxtyping gives a checker nothing to keep a count in
    _left = MOST
    jaxtyping.config.update("jaxtyping_disable", False)


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check as beartype does, and switch the checks off with the last of a test."""
    check = beartype(function)

    @wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        global _left  # noqa: PLW0603
        _left -= 1
        if _left == 0:
            jaxtyping.config.update("jaxtyping_disable", True)
        return check(*args, **kwargs)

    return counted
