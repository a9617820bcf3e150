"""Formation on planted curves whose order is known, on runs that never change, and on runs that are too short."""

import math

import numpy as np
import pandas as pd
import pytest

from ihlab.claims.claim import judged
from ihlab.claims.induction import KV1, V1, V2, guessing_accuracy, induction_run
from ihlab.studies.formation import (
    ACCURACY,
    ALPHA,
    ATTENTION,
    BETA,
    ORDERS,
    PARTS,
    STYLES,
    TOGETHER,
    Formation,
    above_guessing,
    changes,
    crossing,
    induction_heads,
    series,
)
from ihlab.training.run import Run

pytestmark = pytest.mark.slow

AT = np.arange(0, 301, 2)
LASTS = 40
"""Steps from the start of a planted change to its end."""


@pytest.fixture(scope="module")
def made(smoke):
    return smoke("formation")


# Crossings


def ramp(start: float, low: float = 0.1, high: float = 0.9, at: np.ndarray = AT) -> np.ndarray:
    """From low to high in a straight line of `LASTS` steps from `start` on."""
    return low + (high - low) * np.clip((at - start) / LASTS, 0, 1)


@pytest.mark.parametrize("part", [0.2, 0.5, 0.8])
@pytest.mark.parametrize(("low", "high"), [(0.1, 0.9), (0.9, 0.1), (-3.0, 5.0)])
def test_a_line_crosses_a_part_of_its_way_at_that_part_of_its_steps(part, low, high):
    for start in (50, 51.7, 120):
        assert crossing(AT, ramp(start, low, high), part) == pytest.approx(start + part * LASTS)


def test_what_counts_is_the_last_time_and_a_single_evaluation_does_not():
    """Up at 60 and down again at 120, then up for good at 180; and one wild evaluation before or after."""
    twice = ramp(60) - ramp(120) + ramp(180)
    assert crossing(AT, twice, 0.5) == pytest.approx(180 + LASTS / 2)
    for at, value in ((20, 0.9), (130, 0.1), (130, -9.0)):
        wild = ramp(60)
        wild[at] = value
        assert crossing(AT, wild, 0.5) == pytest.approx(60 + LASTS / 2)


def test_noise_at_either_end_does_not_move_where_a_way_begins_and_ends():
    """The ends are means of five evaluations, the curve is a running median of five."""
    rng = np.random.default_rng(0)
    found = [crossing(AT, ramp(100) + 0.02 * rng.standard_normal(len(AT)), 0.5) for _ in range(200)]
    assert np.mean(found) == pytest.approx(120, abs=1)
    assert np.std(found) < 2


def test_what_goes_nowhere_crosses_nothing():
    assert math.isnan(crossing(AT, np.full(len(AT), 0.3), 0.5))
    assert crossing(AT, ramp(-LASTS - 1) + np.where(AT < 2, -1.0, 0.0), 0.2) <= 10  # there from the first on


# What is compared


def test_heads_are_chosen_by_their_attention_to_the_answer_at_the_end():
    """A mean over the last five evaluations; prefix matching is not asked."""
    up, down, never = [0.1] * 5 + [0.6] * 5, [0.9] * 5 + [0.2] * 5, [0.4] * 10
    metrics = pd.DataFrame({"answer_0.0": down, "answer_0.1": up, "answer_1.0": never, "prefix_1.0": [1.0] * 10})
    assert induction_heads(metrics) == ["0.1"]
    assert induction_heads(metrics.iloc[::-1]) == ["0.0"]
    assert induction_heads(metrics * 0.4) == ["0.0", "0.1", "1.0"]
    nearly = metrics.assign(**{"answer_1.0": [0.0] * 5 + [0.25, 0.5, 0.5, 0.5, 0.75]})
    assert induction_heads(nearly) == ["0.1", "1.0"]


def test_shares_are_those_of_the_heads_own_groups_whatever_their_scale():
    """Heads 0 and 1 share key/value head 0, heads 2 and 3 share 1; by hand for heads 1 and 2."""
    alpha = {"alpha1_0.0": [0.5, 0.1], "alpha2_0.0": [0.5, 0.3], "alpha1_0.1": [0.2, 0.0], "alpha2_0.1": [0.6, 0.4]}
    beta = {name.replace("alpha", "beta"): values for name, values in alpha.items()}
    rest = {"accuracy_first": [0.0, 1.0], "answer_0.1": [0.2, 0.6], "answer_0.2": [0.4, 0.8], "answer_0.3": [1.0, 1.0]}
    metrics = pd.DataFrame({**alpha, **beta, **rest})
    by_name = series(metrics, ["0.1", "0.2"], group=2, guess=0.2)
    assert by_name[ACCURACY].tolist() == [0.0, 1.0]
    assert by_name[ATTENTION].tolist() == pytest.approx([0.3, 0.7])
    assert by_name[ALPHA].tolist() == pytest.approx([(0.5 + 0.75) / 2, (0.75 + 1) / 2])
    assert by_name[BETA].tolist() == pytest.approx([(0.5 + 0.25) / 2, (0.25 + 0) / 2])
    turned = metrics.assign(**{name: -3 * metrics[name] for name in alpha})
    assert np.allclose(series(turned, ["0.1", "0.2"], group=2, guess=0.2)[ALPHA], by_name[ALPHA])
    assert set(series(metrics.drop(columns=[*alpha, *beta]), ["0.1"], group=2, guess=0.2)) == {ACCURACY, ATTENTION}


def test_accuracy_begins_where_guessing_in_the_row_ends():
    """A model that first learns to guess and long after to match has risen when it matches, not when it guesses."""
    guess = 0.25
    accuracy = pd.Series(guess * np.clip(AT / 60, 0, 1) + ramp(200, 0.0, 1 - guess))
    above = above_guessing(accuracy, guess)
    np.testing.assert_allclose(above, ramp(200, 0.0, 1.0), atol=1e-12)
    assert above_guessing(pd.Series([0.0, 0.1, 0.25, 0.625, 1.0]), guess).tolist() == pytest.approx([0, 0, 0, 0.5, 1])
    assert crossing(AT, accuracy, PARTS["start"]) < 70 + LASTS
    assert crossing(AT, above, PARTS["start"]) == pytest.approx(200 + 0.2 * LASTS)


def written(root, curve: str, seed: int, columns: dict[str, np.ndarray], at: np.ndarray = AT) -> tuple[str, Run]:
    """A run folder of the laptop's plan with hand-written metrics."""
    [config] = [p.config for p in Formation().runs("laptop") if (p.curve, p.config.seed) == (curve, seed)]
    run = Run.create(config, root)
    run.write_metrics(pd.DataFrame({"step": at, **columns}).to_dict("records"))
    return curve, run


def test_the_table_holds_the_series_of_the_induction_heads(tmp_path):
    """Head 0.1 of four becomes one; head 0.0 moves far earlier, and further, and is not asked."""
    rng = np.random.default_rng(0)
    columns = {"accuracy_first": ramp(110), "answer_0.0": ramp(10, 0.0, 0.4), "answer_0.1": ramp(100, 0.0, 0.8)}
    columns |= {f"answer_0.{head}": np.full(len(AT), 0.2) for head in (2, 3)}
    for head, start in enumerate((10, 60, 10, 10)):
        for mine, other in (("alpha2", "alpha1"), ("beta1", "beta2")):
            share = ramp(start, 0.4, 0.9)
            columns |= {f"{mine}_0.{head}": -1.7 * share, f"{other}_0.{head}": 1.7 * (1 - share)}
    few = AT[::5]
    flat = {"accuracy_first": 0.06 + 0.01 * rng.random(len(few))}
    flat |= {f"answer_0.{head}": 0.1 + 0.01 * rng.random(len(few)) for head in range(4)}
    jump = {**flat, **{f"answer_0.{head}": ramp(100, at=few) for head in range(4)}}
    two_layers = {"accuracy_first": ramp(90)} | {f"answer_0.{head}": np.full(len(AT), 0.1) for head in range(4)}
    two_layers |= {f"answer_1.{head}": ramp(80, 0.0, 0.2 + 0.1 * head) for head in range(4)}
    trained = [
        written(tmp_path, KV1, 3, columns), written(tmp_path, V1, 0, flat, few), written(tmp_path, V1, 1, jump, few),
        written(tmp_path, V2, 0, two_layers),
    ]  # fmt: skip
    data = Formation().gather(trained, "laptop")
    assert list(data.columns) == ["curve", "seed", "heads", "step", *STYLES, "alarms", "accuracy", "guess"]
    mine = data[data["curve"] == KV1]
    assert mine["heads"].unique().tolist() == ["0.1"]
    guess = guessing_accuracy(induction_run("laptop").task)
    assert data["guess"].unique() == pytest.approx(guess, abs=1e-4)
    np.testing.assert_allclose(mine["accuracy"], ramp(110), atol=1e-5)
    np.testing.assert_allclose(mine[ACCURACY], above_guessing(pd.Series(ramp(110)), guess), atol=1e-4)
    np.testing.assert_allclose(mine[ATTENTION], ramp(100, 0.0, 0.8), atol=1e-5)
    for weight in (ALPHA, BETA):
        np.testing.assert_allclose(mine[weight], ramp(60, 0.4, 0.9), atol=1e-5)
    both = data[data["curve"] == V2]
    assert both["heads"].unique().tolist() == ["1.3"]
    assert both[[ALPHA, BETA]].isna().all(axis=None)
    control = data[data["curve"] == V1]
    assert control.groupby("seed")["alarms"].last().tolist() == [0, 1]
    assert control["alarms"].notna().sum() == 2
    assert mine["alarms"].isna().all()
    at = changes(data, KV1, "middle")
    assert at.index.tolist() == [3]
    above = 110 + LASTS * ((0.9 + guess) / 2 - 0.1) / 0.8  # half of the way from the guess to .9, on a line from .1
    assert at.loc[3].to_dict() == pytest.approx({ALPHA: 80, BETA: 80, ATTENTION: 120, ACCURACY: above}, abs=0.02)
    assert set(changes(data, V2, "start").columns) == {ACCURACY, ATTENTION}


# Verdicts

Starts = dict[str, dict[str, float]]


def planted(starts: Starts, seeds: int = 16, jitter: float = 0.0) -> pd.DataFrame:
    """Series that change at the given steps, those of a seed later by its number.

    `jitter` moves the accuracy, and the attention of KV shifting with it, later in odd seeds and earlier in even ones.
    """
    parts = []
    for curve in (KV1, V2, V1):
        for seed in range(seeds):
            part = pd.DataFrame({"curve": curve, "seed": seed, "heads": "0.0", "step": AT}).assign(
                **dict.fromkeys(STYLES, np.nan), alarms=np.nan, accuracy=np.nan, guess=0.0
            )
            part[ACCURACY] = part[ATTENTION] = 0.1
            for name, start in starts.get(curve, {}).items():
                moves = name == ACCURACY or (name, curve) == (ATTENTION, KV1)
                part[name] = ramp(start + seed + (jitter * (-1) ** (seed + 1) if moves else 0.0))
            part["accuracy"] = part[ACCURACY]
            if curve == V1:
                part.loc[part.index[-1], "alarms"] = 0
            parts.append(part)
    return pd.concat(parts, ignore_index=True)


def verdicts(data: pd.DataFrame) -> list[str]:
    return [claim.verdict for claim in judged(Formation().claims(data, "laptop"))]


RIGHT: Starts = {KV1: {ALPHA: 60, BETA: 64, ATTENTION: 90, ACCURACY: 100}, V2: {ATTENTION: 90, ACCURACY: 100}}
WRONG: Starts = {KV1: {ALPHA: 120, BETA: 110, ATTENTION: 100, ACCURACY: 90}, V2: {ATTENTION: 100, ACCURACY: 90}}


@pytest.mark.parametrize(("starts", "verdict"), [(RIGHT, "holds"), (WRONG, "fails")])
def test_a_planted_order_is_found_and_judged(starts, verdict):
    data = planted(starts)
    claims = Formation().claims(data, "laptop")
    assert verdicts(data) == [verdict] * 8, [claim.to_dict() for claim in claims]
    assert {claim.seeds for claim in claims} == {16}
    for part in PARTS:
        for curve, first, second in ORDERS:
            at, apart = changes(data, curve, part), starts[curve][first] - starts[curve][second]
            assert (at[first] - at[second]).tolist() == pytest.approx([apart] * 16)
    attention, _, alpha, beta = (claim.estimate for claim in claims[:4])
    assert attention.value == pytest.approx(starts[KV1][ATTENTION] - starts[KV1][ACCURACY])
    earlier = min(starts[KV1][ATTENTION], starts[KV1][ACCURACY])
    assert (alpha.value, beta.value) == pytest.approx((starts[KV1][ALPHA] - earlier, starts[KV1][BETA] - earlier))


def test_changes_at_once_are_with_it_and_not_before_both():
    """Within `TOGETHER` steps the attention rises with the accuracy, and alpha does not move before."""
    together: Starts = {KV1: {ALPHA: 90, BETA: 87, ATTENTION: 92, ACCURACY: 90}, V2: {ATTENTION: 94, ACCURACY: 90}}
    assert verdicts(planted(together)) == ["holds", "holds", "fails", "fails"] * 2
    assert TOGETHER == 5


def test_an_order_that_differs_from_seed_to_seed_is_none():
    """In one half of the seeds 15 steps earlier, in the other 15 later, about the threshold."""
    around: Starts = {KV1: {ALPHA: 90, BETA: 90, ATTENTION: 95, ACCURACY: 95}, V2: {ATTENTION: 95, ACCURACY: 90}}
    found = verdicts(planted(around, jitter=15))
    assert found == ["holds", "undecided", "undecided", "undecided"] * 2


def test_seeds_that_change_nowhere_leave_the_order_open():
    """Of 16 the fourth from either end is the bound: three that are not known are too few to move it past there."""
    data = planted(RIGHT)
    for lost, verdict in ((3, "holds"), (4, "undecided")):
        flat = data.copy()
        flat.loc[(data["curve"] == V2) & (data["seed"] < lost), ATTENTION] = 0.1
        claim = Formation().claims(flat, "laptop")[1]
        assert claim.measure.startswith(f"{V2}: step at the start")
        assert claim.verdict == verdict
        assert math.isinf(claim.estimate.high) == (lost == 4)
    said = [text.get_text() for axes in Formation().draw(flat, "laptop").get_axes() for text in axes.texts]
    assert said.count("4 of 16 not known") == 2


# Made at smoke scale


def test_runs_too_short_for_the_rule_decide_nothing(made):
    _, folder = made
    data = folder.data()
    assert data["alarms"].isna().all()
    assert data.groupby("curve")["seed"].nunique().tolist() == [2] * 3
    claims = folder.claims()
    assert {claim["verdict"] for claim in claims} == {"undecided"}
    assert list(data.columns) == list(planted(RIGHT).columns)


def test_claims_keep_what_the_accuracy_with_its_guesses_gives():
    """It was declared: here it rises before the heads attend, and what is above guessing after."""
    data = planted(RIGHT)
    guesses = np.where((data["curve"] == V2) & (data["step"] > 50), 0.4, 0.1)
    data["accuracy"] = np.maximum(data["accuracy"], guesses)
    now = [claim for claim in judged(Formation().claims(data, "laptop")) if claim.measure.startswith(V2)]
    assert [claim.verdict for claim in now] == ["holds", "holds"]
    assert [claim.first.verdict for claim in now] == ["fails", "holds"]
    assert all(claim.first.measure.endswith("minus that of the accuracy") for claim in now)
