"""Real text at smoke scale. (`test_rederived.py` has the verdicts.)"""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from figures.text.study import KV1, KV2, TEXT, measure_tuning, shown
from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.model.transformer import Transformer
from ihlab.study.claim import judged
from tests.figures.live import FIGURES


@pytest.mark.slow
def test_a_row_is_what_the_model_costs_on_held_out_text():
    config = next(plan.config for plan in TEXT.runs("smoke") if plan.cell_name == KV2)
    model, task = Transformer(config.model, seed=0), config.task
    run = SimpleNamespace(config=config, model=lambda step: model, checkpoints=[12], diverged=None)
    batch, spent = draw(task, EVAL_SEED, "eval", 2, 4 * config.eval_rows), 0.0
    for inputs, targets in zip(batch.inputs, batch.targets, strict=True):
        with torch.no_grad():
            log_p = model(torch.from_numpy(inputs)[None])[0].double().log_softmax(-1)
        spent -= log_p[np.arange(len(targets)), targets].sum().item()
    n_bytes = sum(len(task.decode(row)) for row in batch.targets)
    assert measure_tuning(run)["bits_per_byte"] == pytest.approx(
        spent / np.log(2) / n_bytes, rel=1e-4
    )


def test_a_diverged_seed_is_not_left_out():
    """A run that diverges has no numbers: nothing is then said of every seed, or of their mean."""
    data = pd.read_csv(FIGURES / "text" / "data.csv", keep_default_na=False, na_values=[""])
    lost = (data["kind"] == "run") & (data["arm"] == KV1) & (data["seed"] == 0)
    assert lost.any()
    measured = data.columns.get_loc("seed") + 1
    data.loc[lost, list(data.columns[measured:])] = np.nan
    claims = {claim.id: claim for claim in judged(TEXT.claims(data, "laptop"))}
    assert claims["with_every_seed"].verdict != "holds"
    assert claims["better_on_text.1_layer_byte_pairs"].verdict == "undecided"
    row = shown(data[data["kind"] == "run"]).set_index("arm").loc[KV1]
    assert row["bits per byte"] == ""
    assert row["% copyable"] == ""
