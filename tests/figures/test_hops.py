"""Figure 8: errors counted slowly, and sentences about sizes that only larger scales have."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from figures.hops.horizon import hop_measures
from figures.hops.study import FIGURE8, origin
from ihlab.measure.batches import EVAL_SEED
from ihlab.model.transformer import Transformer
from ihlab.recipes.labels import VANILLA
from ihlab.study.claim import NOT_TESTED, judged


def test_errors_are_wrong_letters_counted_one_by_one():
    config = FIGURE8.runs("smoke")[0].config
    model, task = Transformer(config.model, seed=0), config.task
    run = SimpleNamespace(config=config, model=lambda: model)
    measured = hop_measures(run)
    for k in range(task.max_hops + 1):
        rows = task.batch_of(k, 100, np.random.default_rng(EVAL_SEED))
        guesses = model(torch.from_numpy(rows.inputs.copy())).argmax(dim=-1)
        wrong = []
        for row, t in np.ndindex(rows.targets.shape):
            if rows.targets[row, t] < task.none and t > 0:
                wrong.append(int(guesses[row, t]) != rows.targets[row, t])
        assert measured[f"error_{k}"] == pytest.approx(np.mean(wrong))


@pytest.mark.parametrize(
    ("scale", "shift", "verdicts"),
    [
        ("laptop", 0.01, [NOT_TESTED] * 2),
        ("gpu", 0.01, ["holds", "holds", "holds"]),
        ("paper", 0.2, ["holds", "holds", "fails"]),
    ],
)
def test_sentences_about_five_layers_need_five_layers_and_the_published_curve(
    scale, shift, verdicts
):
    """Vanilla makes the published errors and `shift` more; KV shifting makes a tenth of them."""
    published = origin().set_index(["n_layers", "hops"])["error"]
    rows = []
    for cell in FIGURE8.at_scale(scale).cells:
        for seed in range(5):
            row = {**cell, "seed": seed}
            for k in range(17):
                error = published[cell["n_layers"], k] + shift + 0.001 * seed
                row[f"error_{k}"] = error if cell["attention"] == VANILLA else error / 10
            rows.append(row)
    claims = judged(FIGURE8.claims(pd.DataFrame(rows), scale))
    assert [claim.verdict for claim in claims[-len(verdicts) :]] == verdicts
    if scale == "laptop":
        assert claims[-1].why.startswith("The models have 3 layers and sequences at most 8 hops")
