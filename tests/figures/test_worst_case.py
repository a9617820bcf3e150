"""Worst case: what is searched after which training, and how search and certificate are compared."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from figures.worst_case.study import CELLS, GRID, KV1, KV2, LONG, SHORT, V2, WORST_CASE, measure
from ihlab.study.claim import judged

PROOF = pd.DataFrame(
    {"query": [0, 0, 1, 1], "answer": [1, 2, 0, 2], "verdict": ["proved", "refuted"] * 2}
)
FOUND = pd.DataFrame(
    {"query": [0, 0, 1], "answer": [1, 2, 2], "wrong": [False, True, False], "margin": [3.0, -1.0, 2.0]}
)  # fmt: skip


def trained(variant, training):
    cell = {**CELLS[0], "variant": variant, "training": training}
    return SimpleNamespace(config=GRID(cell), metrics=pd.DataFrame({"accuracy": [0.1, 0.99]}))


@pytest.mark.parametrize(
    ("variant", "training", "expected"),
    [
        (V2, SHORT, {}),
        (KV2, LONG, {"worst_case_longer": 2 / 3}),
        (KV1, LONG, {"certified": 0.5, "agree": 2 / 3}),
    ],
)
def test_after_the_longest_training_the_search_is_checked(monkeypatch, variant, training, expected):
    search = SimpleNamespace(accuracy=2 / 3, table=FOUND)
    monkeypatch.setattr("ihlab.certify.attack", lambda *_, **__: search)
    monkeypatch.setattr("ihlab.certify.certify", lambda *_, **__: SimpleNamespace(table=PROOF))
    checks = dict.fromkeys(["worst_case_longer", "certified", "agree"], np.nan)
    expected = {"accuracy": 0.99, "worst_case": 2 / 3, "smallest_margin": -1.0} | checks | expected
    assert measure(trained(variant, training)) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(("shifted", "vanilla"), [(0.97, 0.3), (0.3, 0.97)])
def test_each_question_can_be_answered_either_way(shifted, vanilla):
    draws = np.random.default_rng(0)
    rows = []
    for cell in CELLS:
        level = vanilla if cell["variant"] == V2 else shifted
        for seed in WORST_CASE.seeds:
            # vanilla gains with training if it ends low, as both verdicts are to come up
            share = level + 0.3 * (cell["training"] == SHORT) * (vanilla - shifted)
            found = np.clip(share + draws.normal(scale=0.01), 0, 1)
            run = {"worst_case": found, "agree": found, "accuracy": 1.0}
            rows.append({"kind": "run", **cell, "lr": 0.016, "seed": seed, **run})
    verdicts = {claim.verdict for claim in judged(WORST_CASE.claims(pd.DataFrame(rows), "laptop"))}
    assert verdicts == {"holds" if shifted > vanilla else "fails"}
