"""What experiments of learning curves share."""

import pytest

from ihlab import ModelConfig, RunConfig, train
from ihlab.experiments.curves import learning_curve_table, plan
from tasks import InductionTask


@pytest.fixture
def base():
    task = InductionTask(vocab_size=40, length=12)
    model = ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=40, n_ctx=12)
    return RunConfig(task=task, model=model, steps=4, batch_size=2, warmup=0, eval_rows=8, checkpoints=2, eval_every=2)


def test_every_curve_has_every_seed_and_differs_in_the_fields_named(base):
    planned = plan("figure", base, {"plain, 1 (a)": {}, "deep": {"n_layers": 2}}, seeds=3)
    assert [(p.curve, p.config.seed, p.config.model.n_layers) for p in planned] == [
        *(("plain, 1 (a)", seed, 1) for seed in range(3)),
        *(("deep", seed, 2) for seed in range(3)),
    ]
    assert planned[0].config.name == "figure-plain-1-a-0"


def test_the_table_holds_every_evaluation_of_every_run(base, tmp_path):
    runs = [("a", train(base, tmp_path)), ("b", train(base.but(seed=1), tmp_path))]
    table = learning_curve_table(runs)
    assert table.groupby("curve")["step"].apply(list).to_dict() == {"a": [0, 2, 4], "b": [0, 2, 4]}
    assert table["n_params"].unique().tolist() == [runs[0][1].done["n_params"]]
    assert table[table["curve"] == "b"]["eval_loss"].tolist() == runs[1][1].metrics["eval_loss"].tolist()
