"""The basin map: distances without signs, what is measured, and verdicts on maps made by hand."""

import functools

import numpy as np
import pandas as pd
import pytest

from figures.basin_map.study import BASIN_MAP, STARTS
from ihlab.theory.gauge import angular_distance, coordinates, paper_distance
from ihlab.training.run import Run

pytestmark = pytest.mark.slow


# Distances


# Rank correlations


# The table


def test_what_is_measured_is_what_the_metrics_say(tmp_path):
    """By hand: found at step 20 and lost again."""
    [plan] = [
        p
        for p in BASIN_MAP.runs("laptop")
        if p.config.init_shift == (0.2, 1.4) and p.config.seed == 3
    ]
    run = Run.create(plan.config, tmp_path)
    at_end = {"alpha1_0.0": -0.5, "alpha2_0.0": 1.5, "beta1_0.0": 3.0, "beta2_0.0": -1.0}
    accuracies = enumerate((0.125, 0.89, 0.9, 0.5))
    run.write_metrics(
        [{"step": 10 * i, "accuracy": 0.0, "accuracy_first": a} | at_end for i, a in accuracies]
    )
    [row] = BASIN_MAP.gather([(plan.cell_name, run)], "laptop").to_dict("records")
    known = {
        "alpha1": 0.2, "beta1": 1.4, "seed": 3, "key_angle": 0.244979, "value_angle": -0.2783,
        "key_norm": 0.824621, "value_norm": 1.456022, "distance": 0.447214, "angular_distance": 0.370764,
        "end_key_angle": -0.321751, "end_value_angle": -0.321751, "end_key_norm": 1.581139, "rows": 128,
        "end_value_norm": 3.162278, "accuracy_start": 0.125, "kind": "run", "steps": 20, "accuracy": 0.5,
    }  # fmt: skip
    assert {name: row[name] for name in known} == known


# Verdicts

CLAIMS = ("corner", "distance", "angular", "before")


@functools.cache
def grid():
    alpha1, beta1 = pd.DataFrame(STARTS)[["alpha1", "beta1"]].to_numpy().T
    at = coordinates(alpha1, 1 - alpha1, beta1, 1 - beta1)
    table = pd.DataFrame({"alpha1": alpha1, "beta1": beta1, **at})
    table["distance"] = paper_distance(alpha1, beta1)
    table["angular_distance"] = angular_distance(at["key_angle"], at["value_angle"])
    return table


def planted(law, corner=1.0, before=0.02, scatter=0.01, seeds=10):
    """A laptop map with `law(start, rng)` as steps to induction.

    `corner`: the share of the ends nearer induction than any other corner; `before`: the accuracy
    at step 0.
    """
    rng = np.random.default_rng(0)
    table = pd.concat([grid().assign(seed=seed) for seed in range(seeds)], ignore_index=True)
    steps = np.asarray(law(table, rng)) * rng.uniform(1 - scatter, 1 + scatter, len(table))
    at_corner, sign = rng.random(len(table)) < corner, rng.choice([-1, 1], len(table))
    table["end_key_angle"] = sign * np.where(at_corner, 0.1, 1.5)
    table["end_value_angle"], table["accuracy_start"] = sign * 0.2, before

    reached = np.where(steps <= 600, steps, np.inf)
    return table.assign(
        kind="run",
        horizon=600,
        rows=128,
        steps=reached,
        accuracy=np.where(np.isinf(reached), 0.2, 1.0),
    )


def verdicts(data):
    claims = [
        claim for claim in BASIN_MAP.claims(data, "laptop") if claim.seeds
    ]  # the theorem's own needs no map
    assert {claim.seeds for claim in claims} == {data["seed"].nunique()}
    return dict(zip(CLAIMS, (claim.verdict for claim in claims), strict=True))


MAPS = {
    # the letters of the four verdicts: holds, fails, undecided
    "the angles": (
        lambda start, rng: 100 + 100 * start["angular_distance"],
        {"before": 0.9},
        "hhhh",
    ),
    "only near the corner": (
        lambda start, rng: np.where(start["distance"] < 0.7, 100 + 100 * start["distance"], np.inf),
        {"scatter": 0.1},
        "hhhf",
    ),
    "chance": (lambda start, rng: rng.uniform(100, 500, len(start)), {"corner": 0.9}, "uuuf"),
}


@pytest.mark.parametrize(("law", "options", "letters"), MAPS.values(), ids=MAPS)
def test_verdicts_on_maps_made_by_hand(law, options, letters):
    expected = [{"h": "holds", "f": "fails", "u": "undecided"}[letter] for letter in letters]
    assert verdicts(planted(law, **options)) == dict(zip(CLAIMS, expected, strict=True))
