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
from ihlab.studies.figure4 import (
    ARMS,
    FROZEN,
    NEW_SEEDS,
    RATES,
    SEEDS,
    STABLE_RATES,
    UNIT,
    Figure4,
    critical_rate,
    less_vanilla,
)

FIGURE = Figure4()


@pytest.mark.parametrize("scale", SCALES)
def test_arms_differ_in_attention_and_nothing_else(scale):
    runs = FIGURE.runs(scale)
    assert len(runs) == len({run.config.digest for run in runs})
    planned = [(run.curve, run.config.lr, run.config.seed) for run in runs]
    grid = list(itertools.product(ARMS, RATES[scale], range(SEEDS[scale])))
    new = itertools.product((VANILLA, KV), STABLE_RATES.get(scale, ()), NEW_SEEDS.get(scale, ()))
    assert planned == grid + list(new)
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


def planted(gain, diverging, noise=0.01):
    """The laptop's table, in which an arm gains so many nats on vanilla, and diverges from such a rate on."""
    rng, rows = np.random.default_rng(0), []
    for plan in FIGURE.runs("laptop"):
        arm, lr, seed = plan.curve, plan.config.lr, plan.config.seed
        gone = lr >= diverging[arm]
        last = 4 + 0.1 * abs(math.log2(lr / 4e-3)) + noise * rng.standard_normal() - gain[arm] + 2 * gone
        facts = {"arm": arm, "lr": lr, "seed": seed, "least": last - gone, "last": last}
        rows.append({**facts, "frequencies": 5.5, "diverged": gone})
    return pd.DataFrame(rows)


def verdicts(data):
    claims = judged(FIGURE.claims(data, "laptop"))
    return [claim.verdict for claim in claims], claims


NEVER = math.inf


def test_verdicts_come_out_each_way():
    better = planted({VANILLA: 0, KV: 0.1, FROZEN: 0.05, UNIT: 0}, {VANILLA: 0.362, KV: 0.512, FROZEN: 0.512, UNIT: 1})
    given, claims = verdicts(better)
    assert given == ["holds"] * 5
    assert claims[0].estimate.value == pytest.approx(-0.1, abs=0.01)
    assert [claim.declared for claim in claims] == ["2026-11-26"] + ["2026-11-23"] * 4
    worse = planted({VANILLA: 0.1, KV: 0, FROZEN: 0, UNIT: 0}, dict.fromkeys(ARMS, 0.362))
    given, claims = verdicts(worse)
    assert given == ["fails", *[NOT_TESTED] * 3, "fails"], "all diverge alike"
    assert sum(claim.of_paper for claim in claims) == 2
    equal = planted(dict.fromkeys(ARMS, 0), dict.fromkeys(ARMS, NEVER))
    given, claims = verdicts(equal)
    assert given == ["undecided", *[NOT_TESTED] * 3, "undecided"]
    assert "Neither diverges" in claims[1].why


def on_average(data, scale="laptop"):
    return FIGURE.claims(data, scale)[0]


def test_figure_4b_is_decided_by_the_new_seeds_at_the_rates_that_were_fixed_before():
    data = planted({VANILLA: 0, KV: 0.1, FROZEN: 0, UNIT: 0}, dict.fromkeys(ARMS, 0.362))
    claim = on_average(data)
    mine = data[data["seed"].isin(range(6, 12))].groupby("arm")["last"].mean()
    assert claim.seeds == 6
    assert claim.estimate.value == pytest.approx(mine[KV] - mine[VANILLA])
    old = data["seed"] < 6
    elsewhere = data.assign(last=data["last"].where(~old, 0.0), diverged=True)
    assert on_average(elsewhere).estimate == claim.estimate, "old runs are not read"
    others = claim.verdict, *[row.verdict for row in FIGURE.claims(data, "laptop")[1:]]
    shifted = data.assign(last=data["last"].where(old | (data["arm"] == KV), 0.0))
    again = FIGURE.claims(shifted, "laptop")
    assert (again[0].verdict, others[0]) == ("fails", "holds")
    assert tuple(row.verdict for row in again[1:]) == others[1:], "the other rows do not read the new runs"


def test_a_new_run_that_diverges_counts_and_is_told():
    data = planted({VANILLA: 0, KV: 0.1, FROZEN: 0, UNIT: 0}, dict.fromkeys(ARMS, NEVER))
    lost = (data["arm"] == KV) & (data["seed"] == 7) & (data["lr"] == 0.128)
    claim = on_average(data.assign(last=data["last"].where(~lost, 7.0), diverged=lost))
    plain = on_average(data)
    more = (7.0 - data.loc[lost, "last"].item()) / (6 * 8)
    assert claim.estimate.value == pytest.approx(plain.estimate.value + more)
    assert claim.measure.endswith("; 1 of these runs diverged and count with their last loss")
    assert "diverged and" not in plain.measure


def test_a_scale_without_new_seeds_takes_the_rates_at_which_none_of_its_own_diverges():
    data = planted({VANILLA: 0, KV: 0.1, FROZEN: 0, UNIT: 0}, dict.fromkeys(ARMS, NEVER))
    data = data[data["seed"] < SEEDS["gpu"]]
    lost = (data["arm"] == VANILLA) & (data["seed"] == 2) & (data["lr"] >= 0.064)
    claim = on_average(data.assign(diverged=lost), "gpu")
    mine = data[data["lr"] < 0.064].groupby("arm")["last"].mean()
    assert claim.estimate.value == pytest.approx(mine[KV] - mine[VANILLA])
    assert "(0.002 to 0.032)" in claim.measure
    none = on_average(data.assign(diverged=True), "gpu")
    assert (none.verdict, none.seeds) == (NOT_TESTED, 0)


def test_diverging_at_a_lower_rate_than_vanilla_fails():
    data = planted(dict.fromkeys(ARMS, 0), {VANILLA: 0.512, KV: 0.256, FROZEN: NEVER, UNIT: NEVER})
    assert verdicts(data)[0][1:4] == ["fails", "holds", "holds"]
    assert critical_rate(data, VANILLA) == 0.512
    [frozen] = [claim for claim in FIGURE.claims(data, "laptop") if claim.sentence.startswith("Neither")]
    assert frozen.first.measure.endswith("0.5 nats above their own least loss there (6 and 0 of 6)")
    assert frozen.first.estimate.value == 1.0
    assert critical_rate(data, KV) == 0.256
    assert critical_rate(data, UNIT) is None
    told = FIGURE.summary(data, "laptop").set_index("model")
    assert told.loc[KV, "least held-out loss (nats a token)"].startswith("4.0")
    assert told["most runs diverge"].tolist() == ["from 0.512", "from 0.256", "never", "never"]


def test_the_picture_has_every_difference_their_means_and_what_diverges_above():
    data = planted({VANILLA: 0, KV: 0.1, FROZEN: 0.05, UNIT: 0}, {VANILLA: 0.362, KV: 0.512, FROZEN: NEVER, UNIT: 1})
    figure = FIGURE.draw(data, "laptop")
    assert isinstance(figure, Figure)
    losses, shares = figure.axes
    n = len(STABLE_RATES["laptop"])
    lines = {line.get_label(): line for line in losses.lines}
    old, new = (lines[f"KV shifting, {seeds}"] for seeds in ("earlier seeds", "seeds of the claim"))
    gap = less_vanilla(data[data["lr"] <= 0.256], KV)
    for dots, seeds in ((old, range(6)), (new, range(6, 12))):
        assert len(dots.get_ydata()) == (n + 1) * 6, "and each seed's mean"
        assert dots.get_ydata()[:6] == pytest.approx(gap.loc[seeds, 2e-3])
        assert dots.get_ydata()[-6:] == pytest.approx(gap.loc[seeds].mean(axis=1))
    bars = [segment[0][1] for segment in losses.collections[0].get_segments()]
    assert bars[:-1] == pytest.approx(gap.loc[range(6, 12)].mean())
    assert bars[-1] == pytest.approx(on_average(data).estimate.value)
    assert len(lines["frozen (mean)"].get_ydata()) == n
    assert [label.get_text() for label in shares.get_xticklabels()] == ["0.256", "0.362", "0.512"]
    assert [bar.get_height() for bar in shares.patches] == [0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]


def test_the_summary_and_the_picture_do_without_a_stable_rate():
    data = planted({VANILLA: 0, KV: 0.1, FROZEN: 0, UNIT: 0}, dict.fromkeys(ARMS, NEVER))
    nowhere = data[data["seed"] < SEEDS["gpu"]].assign(diverged=True)
    assert set(FIGURE.summary(nowhere, "gpu")["most runs diverge"]) == {"from 0.002"}
    assert len(FIGURE.draw(nowhere, "gpu").axes[1].patches) == len(ARMS) * len(RATES["laptop"])


@pytest.mark.slow
def test_runs_at_smoke_scale_are_gathered(tmp_path):
    trained = [(plan.curve, train(plan.config, tmp_path)) for plan in FIGURE.runs("smoke") if plan.config.seed == 0]
    data = FIGURE.gather(trained, "smoke")
    assert list(data["arm"].unique()) == list(ARMS)
    assert np.isfinite(data["last"]).all()
