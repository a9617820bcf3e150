"""`ihlab sweep`: from a grid file to a table, and sentences for what cannot be."""

import pandas as pd
import pytest

from ihlab import Run
from ihlab.cli import main

pytestmark = pytest.mark.slow

GRID = """
steps = 4
batch_size = 2
eval_rows = 8
eval_every = 2
checkpoints = 2
seeds = 2
[task]
kind = "induction"
vocab_size = 40
length = 12
[model]
d_model = 8
n_heads = 1
d_vocab = 40
n_ctx = 12
[[zip]]
model.attention = ["kv_shift", "vanilla"]
model.n_layers = [1, 2]
"""


@pytest.fixture
def grid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    path = tmp_path / "small.toml"
    path.write_text(GRID)
    return path


def test_a_grid_becomes_a_table_and_is_not_trained_twice(grid, tmp_path, capsys):
    main(["sweep", "small.toml", "--device", "cpu"])
    printed = capsys.readouterr().out
    assert printed.startswith("4 runs, 0 of them ended before.\n")
    assert "small.csv: 4 runs" in printed
    table = pd.read_csv("small.csv")
    assert table[["model.attention", "model.n_layers", "seed"]].to_numpy().tolist() == [
        ["kv_shift", 1, 0], ["kv_shift", 1, 1], ["vanilla", 2, 0], ["vanilla", 2, 1]
    ]  # fmt: skip
    assert table["status"].tolist() == ["done"] * 4
    for row in table.itertuples():
        metrics = Run.open(tmp_path / "runs" / row.run).metrics
        assert metrics["eval_loss"].iloc[-1] == row.eval_loss
    lines = [line.split() for line in printed.splitlines()]
    for attention, n_layers in (("kv_shift", "1"), ("vanilla", "2")):
        accuracy = table.loc[table["model.attention"] == attention, "accuracy_first"]
        mean = f"{accuracy.mean().round(3):g}"  # of two, the median is the mean
        assert [attention, n_layers, "2", "2", mean, "inf"] in lines
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")}
    main(["sweep", "small.toml", "--device", "cpu", "--out", "again.csv"])
    assert capsys.readouterr().out.startswith("4 runs, 4 of them ended before.\n")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")} == before
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "small.csv").read_bytes()


def test_failed_runs_end_with_a_sentence_and_exit_code_1(grid, tmp_path, fails):
    (tmp_path / "runs").write_text("in the way")
    code, printed = fails("sweep", "small.toml", "--device", "cpu")
    assert code == 1
    assert "ihlab: 4 of 4 runs failed; the column error of small.csv says how.\n" in printed
    assert "Traceback" not in printed
    assert pd.read_csv("small.csv")["error"].str.contains("Error: ").all()


@pytest.mark.parametrize(
    ("old", "new", "args", "words"),
    [
        ("n_layers =", "n_layer =", [], "There is no ModelConfig field 'n_layer'; did you mean 'n_layers'?"),
        ("[1, 2]", "[1, 0]", [], "model.n_layers=0, seed=0) is not possible: ModelConfig.n_layers is 0"),
        ("[task]", "[task", [], "small.toml is not TOML"),
        ("", "", ["--out", "table.txt"], "out is 'table.txt', but must end in .csv"),
        ("", "", ["--out", "small.toml/table.csv"], "small.toml is a file"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence_and_trains_nothing(
    grid, tmp_path, fails, old, new, args, words
):
    grid.write_text(GRID.replace(old, new))
    code, printed = fails("sweep", "small.toml", *args)
    assert code == 2
    assert words in printed
    assert "Traceback" not in printed
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]
