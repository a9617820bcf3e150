"""Learning rates on text: what is planned, planted tables whose verdicts come out each way, and runs at smoke scale."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from ihlab import train
from ihlab.claims.claim import NOT_TESTED, judged
from ihlab.claims.experiment import SCALES
from ihlab.claims.labels import KV, VANILLA
from ihlab.studies.figure4 import ARMS, FROZEN, RATES, SEEDS, UNIT, Figure4, critical_rate

FIGURE = Figure4()


@pytest.mark.parametrize("scale", SCALES)
def test_arms_differ_in_attention_and_nothing_else(scale):
    runs = FIGURE.runs(scale)
    assert len(runs) == len(ARMS) * len(RATES[scale]) * SEEDS[scale] == len({run.config.digest for run in runs})
    one = runs[0].config
    for run in runs:
        config = run.config
        assert config.model.attention == ARMS[run.curve]
        plain = config.model.replace(attention="vanilla")
        assert config.replace(model=plain, lr=one.lr, seed=0, name=one.name) == one
        assert config.clip is None
        assert config.schedule == "constant"


class Run:
    """A run, as far as the table reads it."""

    def __init__(self, losses, diverged=False):
        self.config, self.diverged = FIGURE.runs("smoke")[0].config, diverged
        self.metrics = pd.DataFrame({"eval_loss": losses})


@pytest.mark.parametrize(
    ("run", "last", "diverged"),
    [
        (Run([5.0, 4.0, 3.0, 3.0, 3.0]), 3.0, False),
        (Run([5.0, 1.0, 3.2, 3.4, 3.3]), 3.3, False),  # it has been better, but knows more than frequencies
        (Run([5.0, 3.0, 4.0, 4.0, 4.0]), 4.0, True),
        (Run([5.0, 4.5, 4.5, 4.5, 4.5]), 4.5, True),  # it never learned
        (Run([5.0, 3.0, 3.0, 3.0, 4.8]), 3.6, False),  # a spike at the end
        (Run([5.0, 3.0, math.nan, 9.0, 9.0]), math.log(300), True),
        (Run([5.0, 3.0], diverged=True), math.log(300), True),  # stopped there
    ],
)
def test_a_run_has_diverged_if_it_ends_no_better_than_the_frequencies_of_tokens(run, last, diverged, monkeypatch):
    monkeypatch.setattr("ihlab.studies.figure4._frequencies", lambda task: 4.0)
    row = FIGURE.gather([(VANILLA, run)], "smoke").iloc[0]
    assert row["last"] == pytest.approx(last, abs=1e-6)
    assert bool(row["diverged"]) == diverged
    assert row["frequencies"] == 4.0


def planted(gain, diverging, seeds=6):
    """A table in which an arm gains so many nats on vanilla, and diverges from such a rate on."""
    rng, rows = np.random.default_rng(0), []
    for arm, (number, lr), seed in itertools.product(ARMS, enumerate(RATES["laptop"]), range(seeds)):
        gone = lr >= diverging[arm]
        last = 4 + 0.1 * abs(number - 1) + 0.01 * rng.standard_normal() - gain[arm] + 2 * gone
        facts = {"arm": arm, "lr": lr, "seed": seed, "least": last - gone, "last": last}
        rows.append({**facts, "frequencies": 5.5, "diverged": gone})
    return pd.DataFrame(rows)


def verdicts(data):
    claims = judged(FIGURE.claims(data, "laptop"))
    return [claim.verdict for claim in claims], claims


NEVER = math.inf


def test_verdicts_come_out_each_way():
    better = planted({VANILLA: 0, KV: 0.1, FROZEN: 0.05, UNIT: 0}, {VANILLA: 0.256, KV: 0.512, FROZEN: 0.512, UNIT: 1})
    rates = RATES["laptop"]
    n = len(rates)
    given, claims = verdicts(better)
    told = dict(zip(rates, claims[:n], strict=True))
    assert {told[lr].verdict for lr in rates if lr < 0.512} == {"holds"}
    assert {told[lr].verdict for lr in rates if lr >= 0.512} == {NOT_TESTED}, "all of both have diverged there"
    assert told[0.512].first.verdict == "holds"
    assert set(given[n:]) == {"holds"}
    worse = planted({VANILLA: 0.1, KV: 0, FROZEN: 0, UNIT: 0}, dict.fromkeys(ARMS, 0.256))
    given, claims = verdicts(worse)
    assert given[:n] == ["fails" if lr < 0.256 else NOT_TESTED for lr in rates]
    assert {claim.first.verdict for lr, claim in zip(rates, claims, strict=False) if lr >= 0.256} == {"fails"}
    assert given[n : n + 3] == [NOT_TESTED] * 3, "all diverge alike"
    assert given[-1] == "fails"
    assert sum(claim.of_paper for claim in claims) == n + 1
    equal = planted(dict.fromkeys(ARMS, 0), dict.fromkeys(ARMS, NEVER))
    given, claims = verdicts(equal)
    assert "holds" not in given
    assert given[n : n + 3] == [NOT_TESTED] * 3
    assert "Neither diverges" in claims[n].why


def test_diverging_at_a_lower_rate_than_vanilla_fails():
    data = planted(dict.fromkeys(ARMS, 0), {VANILLA: 0.512, KV: 0.256, FROZEN: NEVER, UNIT: NEVER})
    n = len(RATES["laptop"])
    assert verdicts(data)[0][n : n + 3] == ["fails", "holds", "holds"]
    assert critical_rate(data, VANILLA) == 0.512
    [frozen] = [claim for claim in FIGURE.claims(data, "laptop") if claim.sentence.startswith("Neither")]
    assert frozen.first.measure.endswith("0.5 nats above their own least loss there (6 and 0 of 6)")
    assert frozen.first.estimate.value == 1.0
    assert critical_rate(data, KV) == 0.256
    assert critical_rate(data, UNIT) is None
    told = FIGURE.summary(data, "laptop")
    assert "KV shifting 4.0" in told
    assert "most runs diverge from 0.256 on" in told
    assert "most runs diverge at no rate of the grid" in told


def test_the_picture_has_each_arm_in_both_panels():
    data = planted(dict.fromkeys(ARMS, 0), {VANILLA: 0.256, KV: 0.512, FROZEN: NEVER, UNIT: NEVER})
    figure = FIGURE.draw(data, "laptop")
    assert isinstance(figure, Figure)
    losses, shares = figure.axes
    assert [line.get_label() for line in losses.lines if not line.get_label().startswith("_")] == [
        *ARMS, "a run that diverged", "frequencies of tokens alone",
    ]  # fmt: skip
    crosses = [line for line in losses.lines if line.get_marker() == "x" and len(line.get_xdata())]
    assert sum(len(line.get_xdata()) for line in crosses) == data["diverged"].sum()
    assert len(shares.patches) == len(ARMS) * len(RATES["laptop"])


@pytest.mark.slow
def test_runs_at_smoke_scale_are_gathered(tmp_path):
    trained = [(plan.curve, train(plan.config, tmp_path)) for plan in FIGURE.runs("smoke") if plan.config.seed == 0]
    data = FIGURE.gather(trained, "smoke")
    assert list(data["arm"].unique()) == list(ARMS)
    assert np.isfinite(data["last"]).all()
