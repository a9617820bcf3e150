"""Formation laws: equal batches, slopes of known power laws, censored runs, verdicts on made-up tables."""

import numpy as np
import pytest

from ihlab.paper.studies.formation_laws import FORMATION_LAWS, K1, LENGTHS, slopes
from ihlab.recipes.induction import GIVEN, V2
from tests.paper.studies.made_up import HORIZON, table, verdicts


def made_up(powers, noise=0.03, never=()):
    """A table in which the steps of a variant are L^power, and infinite in some cells."""

    def of(cell):
        steps = (
            np.inf if (cell["variant"], cell["length"]) in never else 1.0 * cell["length"] ** powers[cell["variant"]]
        )
        return {"steps_to_90": steps, "best": 0.95}

    return table(FORMATION_LAWS, of, noise=noise).assign(horizon=4 * HORIZON)


def test_slopes_are_the_powers_and_a_run_that_never_learns_makes_a_bound():
    powers = {V2: 1.3, GIVEN: 1, K1: 0.4}
    for variant, power in powers.items():
        found, missed = slopes(made_up(powers, noise=0.0), variant)
        assert found == pytest.approx([power] * 6)
        assert missed == 0
    late, missed = slopes(made_up(powers, 0.0, [(V2, LENGTHS[-1])]), V2)
    assert missed == 6
    assert np.mean(late) > 1.3
    early, _ = slopes(made_up(powers, 0.0, [(V2, LENGTHS[0])]), V2)
    assert np.isnan(early).all()


def test_verdicts_can_come_out_either_way():
    def judge(*powers):
        return list(verdicts(FORMATION_LAWS, made_up(dict(zip((V2, GIVEN, K1), powers, strict=True)))).values())[:4]

    assert judge(1.7, 1.0, 0.5) == ["holds"] * 4
    assert judge(0.5, 1.0, 1.5) == ["fails"] * 4
