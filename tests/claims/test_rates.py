"""The rule that chooses a learning rate, and the table of steps to 90%, by hand."""

import numpy as np
import pandas as pd
import pytest

from ihlab.claims.induction import induction_run
from ihlab.claims.rates import fastest_rate, rate_in_words, ratio_in_words, steps_table
from ihlab.training.run import Run


def tuning(steps: dict[float, tuple[float, ...]], horizon: int = 800) -> pd.DataFrame:
    rows = [(lr, value, horizon) for lr, values in steps.items() for value in values]
    return pd.DataFrame(rows, columns=["lr", "steps", "horizon"])


@pytest.mark.parametrize(
    ("steps", "chosen"),
    [
        ({4e-3: (500, 520), 8e-3: (300, 320), 1.6e-2: (310, 330)}, 8e-3),
        ({4e-3: (500, 500), 8e-3: (100, np.inf), 1.6e-2: (700, 700)}, 4e-3),  # (100 + 1600) / 2 is more than 700
        ({4e-3: (np.inf, np.inf), 8e-3: (100, np.inf)}, 8e-3),
        ({1.6e-2: (300, 340), 4e-3: (310, 330), 8e-3: (400, 400)}, 4e-3),
        ({4e-3: (np.inf, np.inf), 8e-3: (np.inf, np.inf)}, 6e-3),
    ],
    ids=["least mean", "never counts as twice the horizon", "one seed is better than none", "ties", "none learns"],
)
def test_fastest_rate(steps, chosen):
    assert fastest_rate(tuning(steps), common=6e-3) == chosen


def test_the_rule_looks_at_nothing_but_the_runs_of_the_table():
    """Neither at another horizon, nor at the order of the rows; without a common rate, never everywhere is a tie."""
    table = tuning({4e-3: (390, 390), 8e-3: (100, np.inf)})
    assert fastest_rate(table) == 4e-3
    assert fastest_rate(table.assign(horizon=300)) == 8e-3  # (100 + 600) / 2
    assert fastest_rate(tuning({8e-3: (np.inf,), 4e-3: (np.inf,)})) == 4e-3
    table = tuning({4e-3: (310, 330), 8e-3: (300, 340), 1.6e-2: (320, 321)})
    assert {fastest_rate(table.sample(frac=1, random_state=seed)) for seed in range(10)} == {4e-3}


@pytest.mark.parametrize(
    ("lr", "steps", "text"),
    [
        (8e-3, 300, "0.008"),
        (4e-3, 300, "0.004 (lowest of the grid)"),
        (1.6e-2, 300, "0.016 (highest of the grid)"),
        (8e-3, np.inf, "0.008 (no rate of the grid learns it within 800 steps)"),
    ],
)
def test_an_edge_of_the_grid_is_said(lr, steps, text):
    assert rate_in_words(lr, tuning({4e-3: (steps,), 8e-3: (steps,), 1.6e-2: (steps,)})) == text


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        ([100, 100], [400, 400], "0.25"),
        ([100, 100], [np.inf, np.inf], "at most 0.1"),
        ([np.inf, np.inf], [400, 400], "at least 2.5"),
        ([100, np.inf], [np.inf, 400], "at least 0.125"),  # 0 to .1, .25, 0 to inf, at least 2.5
        ([100, 100, 100], [400, 400, np.inf], "0.25"),  # six of nine are known, and the median is one of them
        ([100, 100, np.inf], [np.inf, np.inf, np.inf], "at most 0.1"),
        ([np.inf], [np.inf], "unknown"),
    ],
)
def test_a_ratio_with_runs_that_never_learn_is_a_bound(a, b, text):
    assert ratio_in_words([float(x) for x in a], [float(x) for x in b], 1000.0) == text


def test_the_table_is_what_the_metrics_say(tmp_path):
    """The first evaluation at 90% counts, also if the accuracy falls again; a diverged run is one that ends early."""
    run = induction_run("smoke").replace(steps=40)
    learned, diverged = (Run.create(run.replace(seed=seed), tmp_path) for seed in (0, 1))
    learned.write_metrics([{"step": s, "accuracy_first": a} for s, a in ((0, 0.1), (10, 0.9), (20, 0.95), (30, 0.5))])
    diverged.write_metrics([{"step": 0, "accuracy_first": 0.2}])
    diverged.write_diverged(7)
    table = steps_table([("a", learned), ("b", diverged)])
    assert table.to_dict("records") == [
        {"curve": "a", "lr": 1e-3, "seed": 0, "steps_to_90": 10.0, "accuracy_first": 0.5, "horizon": 40},
        {"curve": "b", "lr": 1e-3, "seed": 1, "steps_to_90": np.inf, "accuracy_first": 0.2, "horizon": 40},
    ]
