"""Induction by two tokens: what is trained, and verdicts on made-up tables."""

import numpy as np
import pandas as pd
import pytest

from ihlab.claims.claim import judged
from ihlab.claims.labels import VANILLA
from ihlab.studies.pairs import ARMS, CELLS, KV3, LEARNERS, ONE, Q2K3, TWO, Pairs


def table(best):
    """A laptop table: a highest accuracy for each cell."""
    rng, rows = np.random.default_rng(0), []
    for arm, setting in CELLS:
        for kind, seeds in (("tuning", (100, 101)), ("run", range(8))):
            for seed in seeds:
                accuracy = best(arm, setting) + rng.uniform(-0.01, 0.01)
                rows.append((kind, arm, setting, 1e-2, seed, 100.0 if accuracy >= 0.9 else np.inf, accuracy, 400))
    columns = ["kind", "variant", "setting", "lr", "seed", "steps_to_90", "best", "horizon"]
    return pd.DataFrame(rows, columns=columns)


def verdicts(best):
    return [claim.verdict for claim in judged(Pairs().claims(table(best), "laptop"))]


def test_verdicts_can_come_out_either_way():
    def as_expected(arm, setting):
        return 0.97 if arm in LEARNERS else 1 / 3

    assert verdicts(as_expected) == ["holds"] * 9
    assert verdicts(lambda arm, setting: 1.3 - as_expected(arm, setting)) == ["fails"] * 9
    assert verdicts(lambda arm, setting: 0.9 if arm in LEARNERS else 0.7) == ["undecided"] * 9


def test_vanilla_attention_is_a_control_without_a_claim():
    claims = Pairs().claims(table(lambda arm, setting: 0.5), "laptop")
    assert not any(claim.sentence.startswith(VANILLA) for claim in claims)
    assert [claim.sentence for claim in claims if claim.of_paper] == [f"{Q2K3}: {ONE} learns induction by two tokens."]


def test_only_the_window_of_the_queries_is_one_shorter():
    shifts = {arm: Pairs().cell_config((arm, TWO), "laptop").model for arm in (KV3, Q2K3)}
    assert [model.shift_window for model in shifts.values()] == [3, 3]
    assert shifts[Q2K3].window_of("alpha") == shifts[Q2K3].window_of("beta") == 3
    assert shifts[Q2K3].window_of("gamma") == 2


def test_the_picture_has_a_row_for_every_arm_that_was_tried():
    figure = Pairs().draw(table(lambda arm, setting: 0.5), "laptop")
    for axes, setting in zip(figure.axes, (ONE, TWO), strict=True):
        drawn = [len(line.get_xdata()) for line in axes.get_lines()[: len(ARMS)]]
        assert drawn == [8 * ((arm, setting) in CELLS) for arm in ARMS]


def test_the_summary_names_the_steps_of_those_that_learn():
    said = Pairs().summary(table(lambda arm, setting: 0.97 if arm == Q2K3 else 1 / 3), "laptop")
    assert said.count("90% after 100 steps") == 2
    assert pytest.approx(0.97, abs=0.01) == float(said.split(f" ({Q2K3}, {ONE}")[0].split()[-1])
