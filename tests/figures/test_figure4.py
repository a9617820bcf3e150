"""Learning rates on text: what the runs differ in, which of them diverged, and verdicts either way."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from figures.figure4.study import ARMS, FIGURE4
from ihlab.recipes.labels import KV, VANILLA
from ihlab.study.claim import NOT_TESTED
from tests.figures import made_up

NEVER = math.inf


@pytest.mark.parametrize(
    ("losses", "stopped", "last", "diverged"),
    [
        (
            [5.0, 1.0, 3.2, 3.4, 3.3],
            False,
            3.3,
            False,
        ),  # it has been better, but knows more than frequencies
        ([5.0, 3.0, 4.0, 4.0, 4.0], False, 4.0, True),
        ([5.0, 4.5, 4.5, 4.5, 4.5], False, 4.5, True),  # it never learned
        ([5.0, 3.0, 3.0, 3.0, 4.8], False, 3.6, False),  # a spike at the end
        ([5.0, 3.0], True, math.log(1024), True),
    ],
)
def test_a_run_has_diverged_if_it_ends_no_better_than_the_frequencies_of_tokens(
    losses, stopped, last, diverged, monkeypatch
):
    monkeypatch.setattr("figures.figure4.study._frequencies", lambda task: 4.0)
    plan = FIGURE4.runs("smoke")[-1]
    run = SimpleNamespace(
        config=plan.config, diverged=stopped, metrics=pd.DataFrame({"eval_loss": losses})
    )
    row = FIGURE4.gather([(plan.cell_name, run)], "smoke").iloc[0]
    assert row["last"] == pytest.approx(last, abs=1e-6)
    assert bool(row["diverged"]) == diverged
    assert row["frequencies"] == 4.0


def planted(gain, diverging):
    """A table in which an arm gains so many nats on vanilla, and diverges from such a rate on."""
    rng = np.random.default_rng(1)

    def row(cell):
        gone = cell["lr"] >= diverging[cell["arm"]]
        last = (
            4
            + 0.1 * abs(math.log2(cell["lr"] / 4e-3))
            + 0.01 * rng.normal()
            - gain[cell["arm"]]
            + 2 * gone
        )
        return {"least": last - gone, "last": last, "frequencies": 5.5, "diverged": gone}

    data = made_up.table(FIGURE4, row, noise=0.0)
    return data.assign(diverged=data["diverged"].astype(bool))


def verdicts(data):
    return list(made_up.verdicts(FIGURE4, data).values())


def test_verdicts_come_out_each_way():
    better = planted({VANILLA: 0, KV: 0.1}, {VANILLA: 0.362, KV: 0.512})
    assert verdicts(better) == ["holds"] * 2
    worse = planted({VANILLA: 0.1, KV: 0}, dict.fromkeys(ARMS, 0.362))
    assert verdicts(worse) == ["fails", NOT_TESTED], "both diverge alike"
    equal = planted(dict.fromkeys(ARMS, 0), dict.fromkeys(ARMS, NEVER))
    assert verdicts(equal) == ["undecided", NOT_TESTED]
    assert "Neither diverges" in FIGURE4.claims(equal, "laptop")[1].why


def test_figure_4b_is_decided_by_the_new_seeds_and_the_other_by_the_first():
    data = planted({VANILLA: 0, KV: 0.1}, dict.fromkeys(ARMS, 0.362))
    claim, other = FIGURE4.claims(data, "laptop")
    mine = data[data["seed"].isin(range(6, 12))].groupby("arm")["last"].mean()
    assert claim.seeds == 6
    assert claim.estimate.value == pytest.approx(mine[KV] - mine[VANILLA])
    old = data["seed"] < 6
    first, _ = FIGURE4.claims(data.assign(last=data["last"].where(~old, 0.0)), "laptop")
    _, second = FIGURE4.claims(data.assign(last=data["last"].where(old, 0.0)), "laptop")
    assert (first.estimate, second.estimate) == (claim.estimate, other.estimate)
    assert other.seeds == 6
