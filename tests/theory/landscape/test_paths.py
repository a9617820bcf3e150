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
    np.testing.assert_allclose(path.time, 0.3 * np.arange(21))
    alpha1, alpha2, beta1, beta2 = path.parameters
    np.testing.assert_allclose(path.loss, landscape.loss(alpha1, alpha2, beta1, beta2, 9))


def test_the_flow_is_descent_with_small_steps():
    times = np.array([0.0, 1.0, 5.0, 20.0])
    flow = landscape.flow(*START, times=times, n_tokens=12)
    steps = landscape.descend(*START, n_tokens=12, lr=0.005, steps=4000).parameters
    np.testing.assert_allclose(flow.parameters, steps[:, [0, 200, 1000, 4000]], atol=1e-2)


@pytest.mark.parametrize("times", [[1.0, 1.0], [], [-1.0, 1.0], [1.0, math.inf], [math.nan]])
def test_times_must_rise_to_a_finite_one(times):
    with pytest.raises(ConfigError, match="times must increase"):
        landscape.flow(*START, times=np.array(times), n_tokens=9)
