"""Figure 9: the mean accuracy over training, and sizes that have the parameters of their names."""

from types import SimpleNamespace

import pandas as pd
import pytest

from figures.figure9.study import FIGURE9, SIZES, SMALLEST, measure, ngram_run
from ihlab.model.transformer import Transformer


def test_the_mean_of_a_line_is_half_its_end():
    config = FIGURE9.config({"curve": f"vanilla, {SMALLEST}"})
    rising = pd.DataFrame({"step": [0, 2, 10], "accuracy": [0.0, 0.16, 0.8]})
    run = SimpleNamespace(config=config, done={"n_params": 800}, metrics=rising)
    assert measure(run)["mean"] == pytest.approx(0.4)


@pytest.mark.parametrize(("name", "n_params"), [("0.8K", 0.8e3), ("0.4M", 0.4e6), ("50M", 50e6)])
def test_sizes_have_the_parameters_that_they_are_named_for(name, n_params):
    model = ngram_run({"curve": f"vanilla, {name}"}).model
    counted = 12 * model.n_layers * model.d_model**2  # the largest is counted by hand
    if SIZES[name][1] <= 128:
        counted = Transformer(model).n_params
    assert counted == pytest.approx(n_params, rel=0.2)
