"""Gradient descent and gradient flow."""

import math

import numpy as np
import pytest
import torch
from torch.func import functional_call
from torch.nn import functional as F

from ihlab.theory import landscape
from ihlab.theory.constructions import shifted_head
from tasks import ConfigError

START = (0.4, 0.6, 0.3, 0.7)
SHIFTS = ("blocks.0.attn.key_shift.weight", "blocks.0.attn.value_shift.weight")


def test_one_step_is_one_gradient():
    path = landscape.descend(*START, n_tokens=12, lr=0.5, steps=1)
    moved = np.array(START) - 0.5 * np.array(landscape.gradient(*START, 12))
    np.testing.assert_allclose(path.parameters[:, 1], moved, rtol=1e-14)
    alpha1, alpha2, beta1, beta2 = moved
    assert path.loss.tolist() == [
        landscape.loss(*START, 12),
        landscape.loss(alpha1, alpha2, beta1, beta2, 12),
    ]
    assert path.time.tolist() == [0.0, 0.5]


def test_the_steps_are_those_of_torchs_sgd_on_a_real_transformer():
    """The free four parameters of a whole model with one-hot embeddings, W = I held."""
    model = shifted_head(torch.eye(9), 10, START[:2], START[2:])
    attn = model.layers[0].attn
    optimiser = torch.optim.SGD([attn.alpha, attn.beta], lr=0.3)
    tokens = torch.tensor([[*range(9), 3]])
    for _ in range(20):
        optimiser.zero_grad()
        F.cross_entropy(model(tokens)[:, -1], torch.tensor([4])).backward()
        optimiser.step()
    path = landscape.descend(*START, n_tokens=9, lr=0.3, steps=20)
    trained = [*attn.alpha[0].tolist(), *attn.beta[0].tolist()]
    np.testing.assert_allclose(path.parameters[:, -1], trained, atol=1e-10)


@pytest.mark.parametrize("start", [(0.2, 0.5), (0.9, 0.1), (0.0, 1.0), (1.0, 0.0)])
def test_on_the_square_the_steps_are_those_of_torchs_sgd_on_alpha1_and_beta1(start):
    """Of a whole model whose alpha2 = 1 - alpha1 and beta2 = 1 - beta1 are computed, so autograd
    has the chain rule.
    """
    model = shifted_head(torch.eye(9), 10, (0.5, 0.5), (0.5, 0.5))
    two = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in start]
    optimiser = torch.optim.SGD(two, lr=0.3)
    tokens = torch.tensor([[*range(9), 3]])
    for _ in range(20):
        optimiser.zero_grad()
        weights = {name: torch.stack([x, 1 - x])[None] for name, x in zip(SHIFTS, two, strict=True)}
        F.cross_entropy(
            functional_call(model, weights, (tokens,))[:, -1], torch.tensor([4])
        ).backward()
        optimiser.step()
    alpha1, beta1 = start
    path = landscape.descend(
        alpha1, 1 - alpha1, beta1, 1 - beta1, n_tokens=9, lr=0.3, steps=20, square=True
    )
    alpha1, beta1 = (x.item() for x in two)
    np.testing.assert_allclose(
        path.parameters[:, -1], [alpha1, 1 - alpha1, beta1, 1 - beta1], atol=1e-10
    )


def test_the_flow_is_descent_with_small_steps():
    times = np.array([0.0, 1.0, 5.0, 20.0])
    flow = landscape.flow(*START, times=times, n_tokens=12)
    steps = landscape.descend(*START, n_tokens=12, lr=0.005, steps=4000, every=200)
    np.testing.assert_allclose(flow.parameters, steps.parameters[:, [0, 1, 5, 20]], atol=1e-2)


@pytest.mark.parametrize("times", [[1.0, 1.0], [], [-1.0, 1.0], [1.0, math.inf], [math.nan]])
def test_times_must_rise_to_a_finite_one(times):
    with pytest.raises(ConfigError, match="times must increase"):
        landscape.flow(*START, times=np.array(times), n_tokens=9)
