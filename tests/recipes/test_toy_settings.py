"""The toy settings, and each kind of question about two variants: verdicts on made-up tables that
come out each way.
"""

import pandas as pd
import pytest

from ihlab.recipes.labels import KV
from ihlab.recipes.toy_questions import TUNED, asked
from ihlab.recipes.toy_settings import HOPS, INDUCTION1, SETTINGS, setting_config
from ihlab.study.ask import claims_of
from ihlab.study.claim import NOT_TESTED, judged
from tests.comparisons import AROUND, NEVER, cell


@pytest.mark.parametrize("setting", SETTINGS)
def test_variants_of_a_setting_differ_in_the_model_alone_and_end_at_its_accuracy(setting):
    vanilla, kv = setting_config(setting), setting_config(setting, attention="kv_shift")
    assert kv.model == vanilla.model.replace(attention="kv_shift")
    assert kv.replace(model=vanilla.model) == vanilla
    assert vanilla.stop_at_accuracy == 0.9
    # The first answer of a sequence is the easiest where some sequences ask for no hop.
    assert vanilla.stop_at_metric == ("accuracy" if setting == HOPS else "accuracy_first")
    assert TUNED.rates_of({"setting": setting}, "laptop") == SETTINGS[setting].rates


def judge(kind, one, other, best=(1.0, 1.0)):
    data = pd.concat(
        [cell("vanilla", INDUCTION1, one, best[0]), cell(KV, INDUCTION1, other, best[1])]
    )
    ask = asked("vanilla", kind, KV, INDUCTION1, id="a", sentence="A sentence.")
    (claim,) = judged(claims_of([ask], data, "2026-11-22"))
    return claim


@pytest.mark.parametrize(
    ("kind", "holds", "fails", "undecided"),
    [
        ("slower", (2 * AROUND, NEVER), (AROUND,), 1.25 * AROUND),
        ("not faster", (AROUND, NEVER), (0.5 * AROUND,), AROUND / 1.25),
        ("much faster", (0.3 * AROUND,), (0.8 * AROUND, NEVER), AROUND / 2),
    ],
)
def test_a_sentence_can_come_out_each_way(kind, holds, fails, undecided):
    for verdict, cases in (("holds", holds), ("fails", fails), ("undecided", (undecided,))):
        for one in cases:
            assert judge(kind, one, AROUND).verdict == verdict, one
    measure = judge(kind, holds[0], AROUND).measure
    rate, counts = "(learning rate 0.01)", "8 of 8 and 8 of 8 seeds reach it within 1000 steps"
    assert measure.endswith(f"vanilla {rate} / {KV} {rate}, {INDUCTION1} ({counts})")
    assert judge(kind, NEVER, NEVER).verdict == NOT_TESTED
