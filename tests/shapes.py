"""Run-time checks of array shapes, in the first calls of each test: a check takes as long as the
checked call.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jaxtyping
from beartype import beartype

MOST = 1000
"""Number of checks per test: arguments and results of 500 calls, which is an evaluation and a few
training steps.
"""

_left = MOST


def check_again() -> None:
    """Turn the checks on for the first calls of a test."""
    global _left  # noqa: PLW0603  # a jaxtyping checker has no state of its own
    _left = MOST
    jaxtyping.config.update("jaxtyping_disable", False)


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check as beartype does, and turn the checks off after the last one of a test."""
    check = beartype(function)

    @wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        global _left  # noqa: PLW0603
        _left -= 1
        if _left == 0:
            jaxtyping.config.update("jaxtyping_disable", True)
        return check(*args, **kwargs)

    return counted
