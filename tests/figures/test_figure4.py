"""Learning rates on text: which runs have diverged, and what is asked of them."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from figures.figure4.study import FIGURE4
from ihlab.recipes.labels import KV, VANILLA
from ihlab.study.claim import NOT_TESTED, judged
from ihlab.study.ledger import Folder
from tests.figures.live import HOMES


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
        ([5.0, 3.0, 3.0, 3.0, 4.8], False, 3.6, False),  # a spike at the end
        ([5.0, 3.0], True, math.log(1024), True),
    ],
)
def test_a_run_has_diverged_if_it_ends_no_better_than_the_frequencies_of_tokens(
    losses, stopped, last, diverged, monkeypatch
):
    monkeypatch.setattr("figures.figure4.study.frequency_loss", lambda task: 4.0)
    plan = FIGURE4.runs("smoke")[-1]
    run = SimpleNamespace(
        config=plan.config, diverged=stopped, metrics=pd.DataFrame({"eval_loss": losses})
    )
    row = FIGURE4.gather([(plan.cell_name, run)], "smoke").iloc[0]
    assert row["last"] == pytest.approx(last, abs=1e-6)
    assert bool(row["diverged"]) == diverged
    assert row["frequencies"] == 4.0


@pytest.mark.parametrize(
    ("diverging", "verdict", "why"),
    [
        ({VANILLA: 0.362, KV: 1.0}, "holds", ""),
        ({VANILLA: 0.362, KV: 0.362}, NOT_TESTED, "All runs of both models diverge at 0.362"),
        ({VANILLA: 1.0, KV: 1.0}, NOT_TESTED, "Neither diverges at any rate"),
    ],
)
def test_who_diverges_less_often_is_asked_where_one_does(diverging, verdict, why):
    """The committed table, if all runs of an arm diverge from a learning rate on."""
    data = Folder(HOMES["figure4"]).data()
    data["diverged"] = data["lr"] >= data["arm"].map(diverging)
    claim = judged(FIGURE4.claims(data, "laptop"))[1]
    assert claim.verdict == verdict
    assert claim.why.startswith(why)
