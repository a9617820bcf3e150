"""Figure 2: its numbers against a slow count, its verdicts on planted numbers, and the paths that
it draws.
"""

import numpy as np
import pytest

from figures.figure2 import study as figure2
from figures.figure2.study import FIGURE2, FINE, OTHERS, numbers
from ihlab.study.claim import judged
from ihlab.theory import landscape

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("form", "size"), [("printed", {"other": 0}), ("exact", {"n_tokens": 5})])
def test_the_fractions_that_move_away_are_counts_of_starts(form, size):
    """A short step of descent from each start; the distance to (0, 1), and alpha1 and beta1, before
    and after.
    """
    axis = np.linspace(0, 1, FINE)[::20]
    alpha1, beta1 = (x.ravel() for x in np.meshgrid(axis, axis))
    walked = landscape.descend(
        alpha1, 1 - alpha1, beta1, 1 - beta1, form=form, **size, lr=1e-4, steps=1, square=True
    )
    before, after = (np.hypot(walked.alpha1[i], 1 - walked.beta1[i]) for i in (0, 1))
    counted = {
        "away": np.mean(after > before + 1e-9),
        "alpha1_away": np.mean(walked.alpha1[1] > walked.alpha1[0]),
        "beta1_away": np.mean(walked.beta1[1] < walked.beta1[0]),
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


@pytest.mark.parametrize(
    ("leads", "slopes", "away", "beta1", "verdict"),
    [
        (0.995, (1.0, 0.9, 0.8), (0.2, 0.0), 0.005, "holds"),
        (0.98, (1.0, 0.9, 1.0), (0.0, 0.2), 0.005, "fails"),
        (0.99, (1.0, 1.0, 0.5), (0.01, 0.01), 0.0, "undecided"),
    ],
)
def test_the_exact_form_is_judged_and_can_come_out_each_way(
    monkeypatch, leads, slopes, away, beta1, verdict
):
    """`away`: at the least O(T) and at the others; `beta1`: how many more starts have beta1 move
    away.
    """

    def planted(form, other):
        moves = away[min(OTHERS.index(other), 1)]
        exact = {"leads": leads, "slope": slopes[OTHERS.index(other)], "away": moves}
        exact |= {"alpha1_away": 0.0, "beta1_away": moves + beta1}
        return exact if form == "exact" else dict.fromkeys(exact, 0.5)

    monkeypatch.setattr(figure2, "numbers", planted)
    claims = judged(FIGURE2.claims(None, "laptop"))
    assert [claim.verdict for claim in claims] == [verdict] * 6, [
        claim.to_dict() for claim in claims
    ]
    assert {claim.p for claim in claims} == {None}  # counted, not sampled
    assert "exact form (printed form 0.5, the paper's script 0.5)" in claims[0].measure
