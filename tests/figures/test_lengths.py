"""Length generalisation: an accuracy counted one by one."""

import numpy as np
import pytest
import torch

from figures.lengths.study import (
    FACTORS,
    LENGTHS,
    ROWS,
    TEST_SEED,
    accuracy_by_length,
)
from ihlab import train
from ihlab.measure.batches import draw
from ihlab.study.experiment import smoke
from tasks import IGNORE, InductionTask


@pytest.mark.slow
def test_accuracy_by_length_counts_answers_one_by_one(tmp_path):
    config = smoke(LENGTHS.config(LENGTHS.cells[0])).replace(steps=60, lr=2e-2)
    run = train(config, tmp_path)
    model, found = run.model(), accuracy_by_length(run)
    assert list(found) == [f"accuracy_at_{32 * factor}" for factor in FACTORS]
    for length in (32, 128):
        task = InductionTask(vocab_size=config.task.vocab_size, length=length)
        batch = draw(task, TEST_SEED, "eval", 0, ROWS)
        right = []
        for row in range(ROWS):
            with torch.no_grad():
                logits = model(torch.from_numpy(batch.inputs[row : row + 1].copy()))[0]
            for position in np.flatnonzero(batch.answers[row] != IGNORE):
                right.append(int(logits[position].argmax()) == batch.answers[row, position])
        assert found[f"accuracy_at_{length}"] == pytest.approx(np.mean(right), abs=1e-6)
