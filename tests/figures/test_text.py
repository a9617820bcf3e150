"""Real text at smoke scale. (`test_rederived.py` has the verdicts.)"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from figures.text.study import KV2, TEXT, measure_tuning
from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.model.transformer import Transformer


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
