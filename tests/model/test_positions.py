"""Rotary positions against complex numbers."""

import pytest
import torch

from ihlab.model.positions import Rotary

BASES = pytest.mark.parametrize("base", [100.0, 100_000.0])


@BASES
def test_turning_is_multiplication_by_a_complex_number(base):
    """Coordinate i is the real and i + d/2 the imaginary part, turned by t / base^(2i / d)."""
    x = torch.randn(2, 9, 3, 6)
    turned = Rotary(6, 9, base)(x)
    for t in range(9):
        for i in range(3):
            number = torch.complex(x[:, t, :, i], x[:, t, :, i + 3]) * torch.exp(torch.tensor(1j * t / base ** (i / 3)))
            torch.testing.assert_close(turned[:, t, :, i], number.real)
            torch.testing.assert_close(turned[:, t, :, i + 3], number.imag)


@BASES
def test_a_product_of_turned_vectors_depends_on_their_distance_only(base):
    q, k = torch.randn(6), torch.randn(6)
    rotary = Rotary(6, 20, base)
    turned_q, turned_k = (rotary(vector.expand(1, 20, 1, 6))[0, :, 0] for vector in (q, k))
    near, far = turned_q[5] @ turned_k[2], turned_q[19] @ turned_k[16]
    torch.testing.assert_close(near, far)


def test_the_first_token_is_not_turned():
    x = torch.randn(2, 4, 3, 6)
    assert torch.equal(Rotary(6, 4, 100.0)(x)[:, 0], x[:, 0])


def test_angles_are_no_weights():
    rotary = Rotary(6, 4, 100.0)
    assert not list(rotary.parameters())
    assert not rotary.state_dict()
