"""A grid of runs: what each label of an axis changes."""

import pytest

from ihlab import InductionTask, ModelConfig, RunConfig
from ihlab.study.ask import Ask, mean_over_seeds
from ihlab.study.grid import Grid
from tasks import ConfigError

TASK = InductionTask(vocab_size=24, length=8)
MODEL = ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=24, n_ctx=8)
GRID = Grid(
    RunConfig(task=TASK, model=MODEL, steps=10),
    {
        "model": {"one": {}, "two": {"n_layers": 2, "steps": 20}},
        "length": {8: {}, 12: {"length": 12}},
    },
)


def test_cells_are_all_combinations_and_configs_have_the_changes_of_their_labels():
    assert GRID.cells == [
        {"model": "one", "length": 8},
        {"model": "one", "length": 12},
        {"model": "two", "length": 8},
        {"model": "two", "length": 12},
    ]
    assert GRID(GRID.cells[0]) == GRID.run
    last = GRID({**GRID.cells[3], "seed": 4})
    assert (last.steps, last.model.n_layers, last.task.length) == (20, 2, 12)
    assert (last.model.n_ctx, last.model.d_vocab) == (12, 24), "the model follows its task"


def test_a_field_that_nothing_has_is_refused():
    with pytest.raises(ConfigError, match="n_layrs"):
        Grid(GRID.run, {"model": {"two": {"n_layrs": 2}}})({"model": "two"})


def test_a_question_at_labels_has_them_as_its_setting_and_in_its_id():
    ask = Ask("faster", "It is.", mean_over_seeds("x", {"a": 1}), above=0)
    placed = ask.at(model="KV, 1 layer", hidden_size=8)
    assert placed.id == "faster.kv_1_layer.8"
    assert placed.setting == {"model": "KV, 1 layer", "hidden size": "8"}
    assert (placed.sentence, placed.above) == (ask.sentence, ask.above)
