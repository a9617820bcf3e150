"""The largest run of each figure at `gpu` scale takes a step, without a GPU."""

from pathlib import Path

import numpy as np
import pytest

from ihlab import train
from ihlab.study.find import chosen

FIGURES = Path(__file__).parents[2] / "figures"


@pytest.mark.rare
@pytest.mark.parametrize("name", ["figure1a", "figure1b", "figure8", "figure9"])
def test_the_largest_run_takes_a_step(name, tmp_path):
    [(experiment, _)] = chosen(name, FIGURES)
    configs = [plan.config for plan in experiment.runs("gpu")]
    largest = max(configs, key=lambda config: config.model.n_layers * config.model.d_model)
    once = largest.replace(steps=1, warmup=0, eval_rows=8, checkpoints=2, compile=False)
    losses = train(once, tmp_path, "cpu").metrics["eval_loss"]
    assert losses.iloc[0] == pytest.approx(np.log(once.model.d_vocab), rel=0.3)  # as a guess
    assert np.isfinite(losses.iloc[-1])
