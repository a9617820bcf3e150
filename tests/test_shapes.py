"""The shapes of arrays are checked in a test's first calls, and no further."""

import pytest
import torch
from jaxtyping import Float, TypeCheckError, jaxtyped
from torch import Tensor

from tests.shapes import MOST, check_again, checked

LONG, SHORT = torch.zeros(3), torch.zeros(2)


@jaxtyped(typechecker=checked)
def added(x: Float[Tensor, " n"], y: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    return x + y[:1]


def test_a_wrong_shape_is_refused_among_the_first_calls_of_each_test():
    check_again()
    for _ in range(MOST // 2 - 1):
        added(LONG, LONG)
    with pytest.raises(TypeCheckError):
        added(LONG, SHORT)
    assert len(added(LONG, SHORT)) == 3
    check_again()
    with pytest.raises(TypeCheckError):
        added(LONG, SHORT)
