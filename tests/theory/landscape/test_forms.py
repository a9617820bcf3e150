"""Theorem 3.4's three forms: against a real transformer, against the page they were printed on,
against differences.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.nn import functional as F

from ihlab.theory import landscape
from ihlab.theory.constructions import shifted_head

PARAMETER = st.floats(-4, 4)
Four = tuple[float, float, float, float]
FOUR = st.tuples(PARAMETER, PARAMETER, PARAMETER, PARAMETER)
FORMS = pytest.mark.parametrize("form", ["exact", "printed", "listing"])


def size(form):
    return {"n_tokens": 9} if form == "exact" else {"other": 6.5}


def loss_of_a_transformer(alpha1, alpha2, beta1, beta2, n_tokens, repeat):
    """x_1 .. x_T, x_i through a whole model with one-hot embeddings; cross-entropy of x_{i+1}."""
    model = shifted_head(torch.eye(n_tokens), n_tokens + 1, (alpha1, alpha2), (beta1, beta2))
    tokens = torch.tensor([[*range(n_tokens), repeat - 1]])
    return F.cross_entropy(model(tokens)[:, -1], torch.tensor([repeat])).item()


@given(FOUR, st.integers(5, 40), st.data())
def test_the_exact_form_is_the_loss_of_a_transformer(
    parameters: Four, n_tokens: int, data: st.DataObject
) -> None:
    repeat = data.draw(st.integers(2, n_tokens - 2))
    expected = loss_of_a_transformer(*parameters, n_tokens, repeat)
    assert landscape.loss(*parameters, n_tokens) == pytest.approx(expected, rel=0, abs=1e-12)


def printed_by_hand(alpha1, alpha2, beta1, beta2, other):
    """Theorem 3.4 as it stands in print."""
    s = math.exp(alpha2) + 2 * math.exp(alpha1) + other
    a1, a2 = math.exp(alpha1) / s, math.exp(alpha2) / s
    top = math.exp(a2 * beta1 + beta2 / s)
    middle = 2 * math.exp(beta1 / s + beta2 * a2)
    return -math.log(top / (top + middle + math.exp(2 * a1 * beta1 + a2 * beta2) + other))


def listing_by_hand(alpha1, alpha2, beta1, beta2, other):
    """Appendix L's function body."""
    s = 2 * math.exp(alpha1) + math.exp(alpha2) + other
    a1, a2 = math.exp(alpha1) / s, math.exp(alpha2) / s
    target = a2 * beta1 + (beta2 / s)
    no1 = (beta1 / s) + beta2 * a2
    no2 = 2 * a1 * beta1 + a2 + beta2
    denominator = math.exp(target) + 2 * math.exp(no1) + math.exp(no2) + math.exp(other)
    return -math.log(math.exp(target) / denominator)


@given(FOUR, st.floats(0, 100))
@example((0.0, 1.0, 1.0, 0.0), 0.0)
def test_printed_and_listing_are_what_stands_on_the_page(parameters: Four, other: float) -> None:
    by_hand = {
        "printed": printed_by_hand(*parameters, other),
        "listing": listing_by_hand(*parameters, other),
    }
    for form, expected in by_hand.items():
        assert landscape.loss(*parameters, form=form, other=other) == pytest.approx(
            expected, rel=1e-12, abs=1e-12
        )


def test_a_length_stands_for_two_others_fewer():
    for form in ("printed", "listing"):
        by_length = landscape.loss(0.2, 0.8, 0.3, 0.7, n_tokens=12, form=form)
        assert by_length == landscape.loss(0.2, 0.8, 0.3, 0.7, other=10, form=form)
    losses = landscape.loss(0.1, 0.9, 0.8, 0.2, n_tokens=[5, 50])  # lengths broadcast, too
    assert losses.tolist() == [
        landscape.loss(0.1, 0.9, 0.8, 0.2, 5),
        landscape.loss(0.1, 0.9, 0.8, 0.2, 50),
    ]


@FORMS
@given(FOUR)
def test_gradients_equal_differences(form: str, parameters: Four) -> None:
    def loss_along(step: float, axis: int) -> float:
        one, two, three, four = [x + step * (i == axis) for i, x in enumerate(parameters)]
        return landscape.loss(one, two, three, four, form=form, **size(form)).item()

    for axis, ours in enumerate(landscape.gradient(*parameters, form=form, **size(form))):
        differences = [(loss_along(h, axis) - loss_along(-h, axis)) / (2 * h) for h in (1e-3, 2e-3)]
        assert ours == pytest.approx(
            (4 * differences[0] - differences[1]) / 3, rel=0, abs=1e-8
        )  # Richardson


def test_nothing_overflows_far_out():
    assert landscape.loss(-900.0, 900.0, 900.0, -900.0, 12) == pytest.approx(0, abs=1e-12)
    assert landscape.loss(900.0, -900.0, 900.0, 0.0, 12) == pytest.approx(900.0)
    assert all(np.isfinite(landscape.gradient(800.0, 900.0, 700.0, -700.0, 12)))


def test_a_small_loss_keeps_its_digits():
    """By hand: at (0, 40, 40, 0) and T = 12 all attention is on the answer, whose logit is 40."""
    rest = 2 * np.exp(-40.0) + 9 * np.exp(-40.0)
    assert landscape.loss(0.0, 40.0, 40.0, 0.0, 12) == pytest.approx(rest, rel=1e-3)
    assert landscape.gradient(0.0, 40.0, 40.0, 0.0, 12).beta1 == pytest.approx(-rest, rel=1e-3)
