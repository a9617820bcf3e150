"""Real text at smoke scale. (`test_rederived.py` has the verdicts.)"""

import numpy as np
import pytest
import torch

from figures.text.study import KV2, TEXT
from ihlab import Run
from ihlab.measure.batches import EVAL_SEED, draw


@pytest.fixture(scope="module")
def made(smoke):
    return smoke("text")


@pytest.mark.slow
def test_a_row_is_what_the_model_costs_on_held_out_text(made):
    root, folder = made
    data = folder.data()
    planned = TEXT.follow(
        [(p.cell_name, Run.create(p.config, root / "runs")) for p in TEXT.runs("smoke")], "smoke"
    )
    run = Run.create(
        next(p.config for p in planned if p.cell_name == KV2 and p.config.seed == 1), root / "runs"
    )
    model, batch, spent = (
        run.model(),
        draw(run.config.task, EVAL_SEED, "eval", 2, 4 * run.config.eval_rows),
        0.0,
    )
    for inputs, targets in zip(batch.inputs, batch.targets, strict=True):
        with torch.no_grad():
            log_p = model(torch.from_numpy(inputs)[None])[0].double().log_softmax(-1)
        spent -= sum(log_p[t, token].item() for t, token in enumerate(targets))
    n_bytes = sum(len(run.config.task.decode(row)) for row in batch.targets)
    row = data[(data["arm"] == KV2) & (data["seed"] == 1) & (data["kind"] == "run")].iloc[-1]
    assert row["bits_per_byte"] == pytest.approx(spent / np.log(2) / n_bytes, rel=1e-4)
