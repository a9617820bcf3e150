"""The rule that chooses a learning rate, and the table of steps to 90%, by hand."""

import numpy as np
import pandas as pd
import pytest

from ihlab.study.rates import fastest_rate, rate_in_words


def tuning(steps: dict[float, tuple[float, ...]], horizon: int = 800) -> pd.DataFrame:
    rows = [(lr, value, horizon) for lr, values in steps.items() for value in values]
    return pd.DataFrame(rows, columns=["lr", "steps_to_90", "horizon"])


def test_the_rule_looks_at_nothing_but_the_runs_of_the_table():
    """Not at another horizon. Never everywhere is a tie, and the smallest rate wins."""
    table = tuning({4e-3: (390, 390), 8e-3: (100, np.inf)})
    assert fastest_rate(table) == 4e-3
    assert fastest_rate(table.assign(horizon=300)) == 8e-3  # (100 + 600) / 2
    assert fastest_rate(tuning({8e-3: (np.inf,), 4e-3: (np.inf,)})) == 4e-3
    tied = tuning({8e-3: (300, 340), 4e-3: (310, 330), 1.6e-2: (320, 321)})
    assert fastest_rate(tied) == 4e-3


@pytest.mark.parametrize(
    ("lr", "steps", "text"),
    [
        (8e-3, 300, "0.008"),
        (4e-3, 300, "0.004, the lowest tried"),
        (1.6e-2, 300, "0.016, the highest tried"),
        (8e-3, np.inf, "0.008; no rate tried learns it within 800 steps"),
    ],
)
def test_an_edge_of_the_grid_is_said(lr, steps, text):
    assert rate_in_words(lr, tuning({4e-3: (steps,), 8e-3: (steps,), 1.6e-2: (steps,)})) == text
