"""The model at finite width: equal to a real transformer, and converging to the exact form as it
should.
"""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ihlab.theory import landscape
from ihlab.theory.constructions import shifted_head

POINT = (0.3, 0.7, 0.4, 0.6)


@pytest.mark.parametrize("repeat", [2, 5, 7])
def test_each_sample_is_a_transformer_with_random_embeddings(repeat):
    """The same embeddings, drawn here from the same generator."""
    samples, n_tokens, d_model = 3, 9, 16
    generator = torch.Generator().manual_seed(4)
    drawn = torch.randn(samples, n_tokens, d_model, generator=generator, dtype=torch.float64)
    tokens = torch.tensor([[*range(n_tokens), repeat - 1]])
    losses = []
    for x in drawn / 4:
        model = shifted_head(x, n_tokens + 1, POINT[:2], POINT[2:])
        losses.append(F.cross_entropy(model(tokens)[:, -1], torch.tensor([repeat])).item())
    simulated = landscape.simulate(*POINT, n_tokens, d_model, samples, seed=4, repeat=repeat)
    assert simulated.loss == pytest.approx(np.mean(losses), rel=0, abs=1e-12)
    assert simulated.error == pytest.approx(np.std(losses, ddof=1) / samples**0.5, rel=1e-9)


def test_orthonormal_embeddings_give_the_exact_form():
    alpha1, beta1 = np.random.default_rng(0).normal(size=(2, 20))
    for repeat in (2, 6, 10):
        simulated = landscape.simulate(
            alpha1, 1 - alpha1, beta1, 1 - beta1, 12, None, repeat=repeat
        )
        np.testing.assert_allclose(
            simulated.loss, landscape.loss(alpha1, 1 - alpha1, beta1, 1 - beta1, 12), atol=1e-12
        )
        assert not simulated.error.any()


def test_it_converges_as_one_over_d_and_its_spread_as_one_over_root_d():
    """Mean deviation: a bias c / d within the error bars. Deviation of one sample: 1 / sqrt(d)."""
    widths, samples = np.array([16, 64, 256, 1024]), 2000
    exact = landscape.loss(*POINT, 12)
    results = [landscape.simulate(*POINT, 12, int(d), samples, seed=int(d)) for d in widths]
    spread = np.array([float(r.error) for r in results]) * samples**0.5
    assert np.polyfit(np.log(widths), np.log(spread), 1)[0] == pytest.approx(-0.5, abs=0.05)
    bias = np.array([float(r.loss) - exact for r in results])
    error = np.array([float(r.error) for r in results])
    c = np.sum(bias / widths / error**2) / np.sum(
        1 / widths**2 / error**2
    )  # weighted least squares
    assert np.all(np.abs(bias - c / widths) < 3.5 * error)
    assert abs(bias[-1]) < 3.5 * error[-1] + c / widths[-1]


def test_points_computed_in_pieces_are_the_same_points(monkeypatch):
    points = ([0.1, 0.2], 0.5, 0.3, [[0.2], [0.9]])
    whole = landscape.simulate(*points, 7, 8, 10)
    monkeypatch.setattr("ihlab.theory.landscape.simulation._NUMBERS_AT_A_TIME", 60)
    pieces = landscape.simulate(*points, 7, 8, 10)
    assert pieces.loss.shape == (2, 2)
    np.testing.assert_allclose(pieces.loss, whole.loss, rtol=1e-12)
