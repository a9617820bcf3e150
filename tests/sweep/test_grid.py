"""Grids: the product and the zip against nested loops, and a sentence for whatever is wrong."""

import pytest

from ihlab import ModelConfig, RunConfig
from ihlab.sweep.grid import read_grid
from tasks import ConfigError, InductionTask

BASE = """
steps = 40
{top}
[task]
kind = "induction"
vocab_size = 40
length = 12
[model]
n_layers = 1
d_model = 8
n_heads = 2
d_vocab = 40
n_ctx = 12
{tables}
"""
TASK = InductionTask(vocab_size=40, length=12)
MODEL = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=40, n_ctx=12)


@pytest.fixture
def read(tmp_path):
    def from_text(tables="", top="", text=None):
        path = tmp_path / "rates.toml"
        path.write_text(BASE.format(top=top, tables=tables) if text is None else text)
        return read_grid(path)

    return from_text


def test_grid_zip_and_seeds_multiply_the_last_fastest(read):
    tables = """
[grid]
lr = [3e-3, 1]
task.score = ["all", "first"]
[[zip]]
model.attention = ["kv_shift", "vanilla"]
model.n_layers = [1, 2]
"""
    points = read(tables, top="seeds = 2")
    expected = [
        (lr, score, attention, n_layers, seed)
        for lr in (3e-3, 1)
        for score in ("all", "first")
        for attention, n_layers in (("kv_shift", 1), ("vanilla", 2))
        for seed in (0, 1)
    ]
    assert [tuple(point.swept.values()) for point in points] == expected
    assert list(points[0].swept) == [
        "lr",
        "task.score",
        "model.attention",
        "model.n_layers",
        "seed",
    ]
    for point, (lr, score, attention, n_layers, seed) in zip(points, expected, strict=True):
        task = InductionTask(vocab_size=40, length=12, score=score)
        model = MODEL.replace(attention=attention, n_layers=n_layers)
        run = RunConfig(task=task, model=model, steps=40, lr=lr, seed=seed, name=point.config.name)
        assert point.config == run
        assert point.config.digest == run.digest
    assert points[0].config.name == "rates-0.003-all-kv_shift-1-0"
    assert len({point.config.name for point in points}) == 16


def test_lists_and_none_become_what_configs_hold(read):
    points = read(
        '[grid]\nclip = ["none", 2]\nbetas = [[0.9, 0.99], [0.8, 0.9]]\nmodel.positional = ["none"]'
    )
    assert [(point.config.clip, point.config.betas) for point in points] == [
        (None, (0.9, 0.99)),
        (None, (0.8, 0.9)),
        (2.0, (0.9, 0.99)),
        (2.0, (0.8, 0.9)),
    ]
    assert points[0].config.model.positional == "none"
    residual = read("[grid]\nmodel.residual = [[true, false], true]\nmodel.n_layers = [2]")
    assert [point.config.model.residual for point in residual] == [(True, False), True]


@pytest.mark.parametrize(
    ("tables", "top", "words"),
    [
        ("[grid]\nlrr = [1]", "", "run (lrr=1) is not possible: There is no RunConfig field 'lrr'"),
        ("", "stepz = 3\nseeds = 1", "There is no RunConfig field 'stepz'; did you mean 'steps'?"),
        ("", "", "varies nothing: add a [grid] table of lists, or seeds"),
        ("[grid]\nlr = []", "", "grid.lr is [], but must be a list of values"),
        ("", "grid = 3", "grid is 3, but must be a table: [grid]"),
        (
            "",
            "seeds = 0",
            "seeds is 0, but must be a number of seeds, at least 1, or a list of them",
        ),
        ("[[zip]]", "", "A [[zip]] is empty, but must hold lists"),
        ("", "seeds = [0, -1]", "The sweep's run (seed=-1) is not possible: RunConfig.seed is -1"),
        (
            "[[zip]]\nlr = [1, 2]\nseed = [1]",
            "",
            "lists of one [[zip]] differ in length: lr=2, seed=1",
        ),
        ("[[zip]]\nlr = [1]\n[grid]\nlr = [2]", "", "lr is swept twice"),
        ("[grid]\nname = ['a']", "", "name cannot be swept"),
        (
            "[grid]\nmodel.d_model = [8, 9]",
            "",
            "The sweep's run (model.d_model=9) is not possible: ModelConfig.d_model is 9",
        ),
        (
            "[grid]\nbetas = [['a', 'b']]",
            "",
            "is not possible: RunConfig.betas is ('a', 'b'), but must be two finite",
        ),
    ],
)
def test_what_is_wrong_is_named(read, tables, top, words):
    with pytest.raises(ConfigError) as error:
        read(tables, top)
    assert words in str(error.value)


def test_a_long_word_is_cut(read):
    with pytest.raises(ConfigError, match=r"The sweep's run \(task=xx.*is not possible") as error:
        read(f"[grid]\ntask = ['{'x' * 100_000}']")
    assert len(str(error.value)) < 1000


def test_what_is_missing_is_named(read, tmp_path):
    text = BASE.format(top="seeds = 1", tables="")
    with pytest.raises(ConfigError, match=r"is not possible: model\.d_model is missing"):
        read(text=text.replace("d_model = 8\n", ""))
    with pytest.raises(ConfigError, match="The task's kind is None, but must be a name"):
        read(text=text.replace('kind = "induction"\n', ""))
    with pytest.raises(ConfigError, match=r"rates\.toml is nested too deeply"):
        read(text="a" + ".a" * 3000 + " = 1")
    with pytest.raises(ConfigError, match=r"nowhere\.toml cannot be read \(No such file"):
        read_grid(tmp_path / "nowhere.toml")
