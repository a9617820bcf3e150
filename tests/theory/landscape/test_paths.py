"""Gradient descent and gradient flow."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ihlab.theory import landscape
from ihlab.theory.constructions import shifted_head
from tasks import ConfigError

START = (0.4, 0.6, 0.3, 0.7)


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


def test_on_the_square_alpha2_and_beta2_follow_alpha1_and_beta1():
    start = (0.2, 0.8, 0.5, 0.5)
    path = landscape.descend(*start, n_tokens=9, lr=0.3, steps=1, square=True)
    by = landscape.gradient(*start, 9)
    alpha1 = 0.2 - 0.3 * (by.alpha1 - by.alpha2)
    beta1 = 0.5 - 0.3 * (by.beta1 - by.beta2)
    expected = [alpha1, 1 - alpha1, beta1, 1 - beta1]
    np.testing.assert_allclose(path.parameters[:, 1], expected, atol=1e-12)


def test_the_flow_is_descent_with_small_steps():
    times = np.array([0.0, 1.0, 5.0, 20.0])
    flow = landscape.flow(*START, times=times, n_tokens=12)
    steps = landscape.descend(*START, n_tokens=12, lr=0.005, steps=4000, every=200)
    np.testing.assert_allclose(flow.parameters, steps.parameters[:, [0, 1, 5, 20]], atol=1e-2)


@pytest.mark.parametrize("times", [[1.0, 1.0], [], [-1.0, 1.0], [1.0, math.inf], [math.nan]])
def test_times_must_rise_to_a_finite_one(times):
    with pytest.raises(ConfigError, match="times must increase"):
        landscape.flow(*START, times=np.array(times), n_tokens=9)
