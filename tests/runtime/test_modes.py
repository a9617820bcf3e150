"""Whatever measures a model does so in evaluation mode: a model in training with dropout measures
the same.
"""

from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
import torch

from ihlab import ModelConfig
from ihlab.interp.ablation import ablation_sweep
from ihlab.interp.heads import head_scores
from ihlab.interp.induction_pair import find_induction_pair
from ihlab.interp.multihop import hop_scores
from ihlab.interp.patching import path_patch
from ihlab.interp.routes import route_effects
from ihlab.measure.gathered import evaluation_batch
from ihlab.measure.metrics import held_out
from ihlab.model.transformer import Transformer
from ihlab.runtime.modes import evaluating
from tasks import MultiHopTask

TASK = MultiHopTask(vocab_size=10, length=16, max_hops=2)
BATCH = TASK.batch(8, np.random.default_rng(0))
TOKENS, OTHER = (
    torch.from_numpy(TASK.batch(4, np.random.default_rng(seed)).inputs.copy()) for seed in (1, 2)
)


@pytest.fixture
def model():
    cfg = ModelConfig(
        n_layers=2,
        d_model=16,
        n_heads=2,
        d_vocab=10,
        n_ctx=16,
        dropout=0.1,
        attention="kv_shift",
    )
    return Transformer(cfg, seed=0)


MEASURES = {
    "head_scores": lambda model: head_scores(model, BATCH, rows=4, length=12),
    "find_induction_pair": lambda model: find_induction_pair(model, BATCH),
    "ablation_sweep": lambda model: ablation_sweep(model, BATCH),
    "hop_scores": lambda model: hop_scores(model, TASK, 2, rows=4),
    "path_patch": lambda model: path_patch(model, TOKENS, OTHER, (0, 0), (1, 1), "q"),
    "route_effects": lambda model: route_effects(model, BATCH),
    "held_out": lambda model: held_out(model, [evaluation_batch(BATCH, torch.device("cpu"))]),
    "generate": lambda model: model.generate(TOKENS[:, :4], 6),
}


def plain(measured):
    if isinstance(measured, pd.DataFrame):
        return measured.to_dict("list")
    return measured.tolist() if isinstance(measured, torch.Tensor) else measured


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
def test_a_model_in_training_measures_as_in_evaluation_and_stays_in_training(model, measure):
    in_training = plain(measure(model.train()))
    assert all(module.training for module in model.modules())
    np.testing.assert_equal(in_training, plain(measure(model.eval())))
    assert not any(module.training for module in model.modules())


def test_every_module_gets_its_own_mode_back_also_after_an_error(model):
    model.train()
    model.blocks[1].eval()
    before = [module.training for module in model.modules()]
    with suppress(RuntimeError), evaluating(model):
        assert not any(module.training for module in model.modules())
        raise RuntimeError
    assert [module.training for module in model.modules()] == before
