"""Induction by two tokens: what is trained, and verdicts on made-up tables."""

import numpy as np
import pandas as pd
import pytest

from ihlab.claims.claim import judged
from ihlab.studies.pairs import ARMS, KV3, LEARNERS, Q2K3, SETTING, Pairs


def table(best):
    """A laptop table: a highest accuracy for each arm."""
    rng, rows = np.random.default_rng(0), []
    for arm in ARMS:
        for kind, seeds in (("tuning", (100, 101)), ("run", range(8))):
            for seed in seeds:
                accuracy = best(arm) + rng.uniform(-0.01, 0.01)
                rows.append((kind, arm, SETTING, 1e-2, seed, 100.0 if accuracy >= 0.9 else np.inf, accuracy, 400))
    columns = ["kind", "variant", "setting", "lr", "seed", "steps_to_90", "best", "horizon"]
    return pd.DataFrame(rows, columns=columns)


def verdicts(best):
    return [claim.verdict for claim in judged(Pairs().claims(table(best), "laptop"))]


def test_verdicts_can_come_out_either_way():
    def as_expected(arm):
        return 0.97 if arm in LEARNERS else 1 / 3

    assert verdicts(as_expected) == ["holds"] * 6
    assert verdicts(lambda arm: 1.3 - as_expected(arm)) == ["fails"] * 6
    assert verdicts(lambda arm: 0.9 if arm in LEARNERS else 0.7) == ["undecided"] * 6


def test_the_paper_says_it_of_one_arm():
    claims = Pairs().claims(table(lambda arm: 0.5), "laptop")
    assert [c.sentence for c in claims if c.of_paper] == [f"{Q2K3}: one layer learns induction by two tokens."]


def test_only_the_window_of_the_queries_is_one_shorter():
    shifts = {arm: Pairs().cell_config((arm, SETTING), "laptop").model for arm in (KV3, Q2K3)}
    assert [model.shift_window for model in shifts.values()] == [3, 3]
    assert shifts[Q2K3].window_of("alpha") == shifts[Q2K3].window_of("beta") == 3
    assert shifts[Q2K3].window_of("gamma") == 2


def test_the_picture_has_a_row_for_every_arm():
    figure = Pairs().draw(table(lambda arm: 0.5), "laptop")
    drawn = [len(line.get_xdata()) for line in figure.axes[0].get_lines()[: len(ARMS)]]
    assert drawn == [8] * len(ARMS)


def test_the_summary_names_the_steps_of_those_that_learn():
    said = Pairs().summary(table(lambda arm: 0.97 if arm == Q2K3 else 1 / 3), "laptop")
    assert said.count("90% after 100 steps") == 1
    assert pytest.approx(0.97, abs=0.01) == float(said.split(f" ({Q2K3},")[0].split()[-1])
