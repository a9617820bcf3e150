"""Length generalisation: what is trained and tested, an accuracy counted one by one, verdicts on
made-up tables.
"""

import numpy as np
import pandas as pd
import pytest
import torch

from figures.lengths.study import (
    FACTORS,
    LENGTHS,
    LENGTHS_16,
    QUESTIONS,
    ROWS,
    TEST_SEED,
    UNTRAINED_POSITIONS,
    accuracy_by_length,
)
from ihlab import train
from ihlab.measure.batches import draw
from ihlab.recipes.induction import KV1, V2
from ihlab.study.claim import judged
from ihlab.study.experiment import smoke
from tasks import IGNORE, InductionTask
from tests.figures import made_up

pytestmark = pytest.mark.slow


def test_accuracy_by_length_counts_answers_one_by_one(tmp_path):
    config = smoke(LENGTHS.config(LENGTHS.cells[0])).replace(steps=60, lr=2e-2)
    run = train(config, tmp_path)
    model, found = run.model(), accuracy_by_length(run)
    assert list(found) == [f"accuracy_at_{32 * factor}" for factor in FACTORS]
    for length in (32, 128):
        task = InductionTask(vocab_size=config.task.vocab_size, length=length)
        batch = draw(task, TEST_SEED, "eval", 0, ROWS)
        right = total = 0
        for row in range(ROWS):
            with torch.no_grad():
                logits = model(torch.from_numpy(batch.inputs[row : row + 1].copy()))[0]
            for position in np.flatnonzero(batch.answers[row] != IGNORE):
                total += 1
                right += int(logits[position].argmax()) == batch.answers[row, position]
        assert found[f"accuracy_at_{length}"] == pytest.approx(right / total, abs=1e-6)


def verdicts(short, long, ahead=0.0):
    """Verdicts if every model has an accuracy at the trained length and one at the longest, KV
    shifting `ahead`.
    """
    rng = np.random.default_rng(0)
    rows = [
        (
            "run",
            model,
            positions,
            0.01,
            seed,
            short,
            long[positions] + ahead * (model == KV1) + rng.normal(0, 0.005),
        )
        for model, positions, _ in QUESTIONS
        for seed in range(8)
    ]
    columns = ["kind", "variant", "setting", "lr", "seed", "accuracy_at_32", "accuracy_at_256"]
    claims = judged(LENGTHS.claims(pd.DataFrame(rows, columns=columns), "laptop"))
    first = [(claim.first or claim).verdict for claim in claims]
    untested = {
        claim.verdict for claim in claims if claim.setting["positions"] == "learned positions"
    }
    assert untested == {"not tested at this scale"}, "what decay decides"
    return first


def test_verdicts_can_come_out_either_way():
    expected = {"no positions": 0.97, "RoPE": 0.95, "ALiBi": 0.98, "learned positions": 0.2}
    assert verdicts(0.99, expected)[:7] == ["holds"] * 7
    contrary = {"no positions": 0.6, "RoPE": 0.5, "ALiBi": 0.2, "learned positions": 0.9}
    assert verdicts(0.99, contrary)[:7] == ["fails"] * 7


def test_equally_good_models_are_compared_on_longer_sequences():
    def judge(short, ahead):
        def of(cell):
            return {
                "accuracy_at_16": short,
                "accuracy_at_128": 0.5 + ahead * (cell["variant"] != V2),
            }

        return set(made_up.verdicts(LENGTHS_16, made_up.table(LENGTHS_16, of, noise=0.01)).values())

    assert judge(0.99, 0.2) == {"holds"}
    assert judge(0.99, -0.2) == {"fails"}
    assert judge(0.9, 0.2) == {"not tested at this scale"}
    runs = [plan.config for plan in LENGTHS_16.runs("laptop")]
    same = {run.replace(model=runs[0].model, name="same", seed=0) for run in runs}
    assert len(same) == 1
    assert len({run.model for run in runs}) == 9


@pytest.mark.parametrize(
    ("undecayed", "zeroed", "expected"), [(0.1, 0.99, "explains"), (0.99, 0.1, "does not")]
)
def test_weight_decay_explains_the_accuracy_on_longer_sequences_or_does_not(
    undecayed, zeroed, expected
):
    def of(cell):
        loses = cell["variant"] == V2
        long = 0.99 if cell["table"] == "decayed" else undecayed
        return {
            "accuracy_at_32": 0.99,
            "accuracy_at_256": max(long - 0.3 * loses, 0.01),
            "zeroed_at_256": max(zeroed - 0.6 * loses, 0.01),
        }

    judged = made_up.verdicts(
        UNTRAINED_POSITIONS, made_up.table(UNTRAINED_POSITIONS, of, noise=0.001)
    )
    explains = expected == "explains"
    assert judged["decay.kv_shifting_1_layer"] == ("holds" if explains else "fails")
    assert judged["keeps.kv_shifting_1_layer"] == ("holds" if explains else "fails")
    assert judged["keeps.vanilla_2_layers"] == "fails"
