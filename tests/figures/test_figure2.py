"""Figure 2: its numbers against a slow count."""

import numpy as np
import pytest

from figures.figure2.study import FINE, OTHERS, numbers
from ihlab.theory import landscape

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("form", "size"), [("printed", {"other": 0}), ("exact", {"n_tokens": 5})])
def test_the_fractions_that_move_away_are_counts_of_starts(form, size):
    """A short step of descent from each start; the distance to (0, 1), and alpha1 and beta1, before
    and after.
    """
    axis = np.linspace(0, 1, FINE)[::20]
    alpha1, beta1 = (x.ravel() for x in np.meshgrid(axis, axis))
    by = landscape.gradient(alpha1, 1 - alpha1, beta1, 1 - beta1, form=form, **size)
    rise, fall = by.alpha2 - by.alpha1, by.beta1 - by.beta2
    before = np.hypot(alpha1, 1 - beta1)
    after = np.hypot(alpha1 + 1e-4 * rise, 1 - beta1 + 1e-4 * fall)
    counted = {
        "away": np.mean(after > before + 1e-9),
        "alpha1_away": np.mean(rise > 0),
        "beta1_away": np.mean(fall > 0),
    }
    for name, fraction in counted.items():
        assert numbers(form, 0)[name] == pytest.approx(fraction, abs=0.03), name


def test_the_printed_form_has_a_second_valley_and_the_exact_one_has_not():
    """Descent by small steps from the printed field's far corner stays there."""
    for form, size, reaches in (("printed", {"other": 0}, False), ("exact", {"n_tokens": 5}, True)):
        at = np.array([0.9, 0.1])
        for _ in range(4000):
            by = landscape.gradient(at[0], 1 - at[0], at[1], 1 - at[1], form=form, **size)
            at = np.clip(at - 0.02 * np.array([by.alpha1 - by.alpha2, by.beta1 - by.beta2]), 0, 1)
        assert (np.hypot(at[0], 1 - at[1]) < 0.05) == reaches
    assert [numbers("exact", other)["leads"] for other in OTHERS] == [1.0] * 3
    assert numbers("printed", 0)["leads"] < 0.8
