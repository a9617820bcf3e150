"""A user's script, for type checkers: the types that the installed package gives, and two mistakes that it shows."""

from pathlib import Path
from typing import assert_type

import pandas as pd

from ihlab import ModelConfig, Run, RunConfig, Transformer, train
from ihlab.attribution import exact, problem
from ihlab.certify import Certificate, certify
from ihlab.interp import locate_induction_heads
from tasks import InductionTask

task = InductionTask(vocab_size=16, length=16, min_token=0)
model_config = ModelConfig(
    n_layers=1, d_model=8, n_heads=1, d_vocab=16, n_ctx=16, attention="kv_shift"
)
config = RunConfig(task=task, model=model_config, steps=10)
assert_type(train(config, root=Path("runs")), Run)
assert_type(Run.open("vanilla-2-layers").metrics, pd.DataFrame)
assert_type(Run.open("vanilla-2-layers").model(), Transformer)
assert_type(locate_induction_heads(Run.open("vanilla-2-layers")), pd.DataFrame)
assert_type(certify(Run.open("kv-shift-1-layer")), Certificate)
assert_type(exact(problem(Run.open("vanilla-2-layers"))), pd.DataFrame)

RunConfig(task=task, schedule="cosin")  # type: ignore[arg-type]
train(model_config)  # type: ignore[call-overload]
