"""Metrics read back bit for bit; cut, changed or of something else, they are refused."""

import shutil

import pytest

from ihlab import Run, train
from ihlab.training.stored_metrics import as_csv, read_metrics, record
from tasks import ConfigError

ROWS = [
    {"step": s, "train_loss": float("nan") if s == 0 else 1 / 3, "accuracy": s / 7}
    for s in (0, 5, 10, 15)
]
TABLE = as_csv(ROWS)


def of_table(table):
    return record(table.encode())


LINES = TABLE.splitlines(keepends=True)


def test_whole_metrics_read_back_and_may_go_on_after_what_is_known(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text(TABLE)
    table = read_metrics(path, [0, 5, 10], of_table(as_csv(ROWS[:2])))
    assert as_csv(table.to_dict("records")) == TABLE
    assert read_metrics(path, []).equals(table)
    assert read_metrics(path, [], of_table("")).equals(table)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        (TABLE[:-1], "is cut off: it has no line of step 15"),
        ("step," * 10_001 + "x\n", "has 10002 columns, but must have at most 10000"),
        ("".join([*LINES[:3], LINES[3][:4] + "\n", LINES[4]]), "has 2 cells in line 4, not 3"),
        ("".join([*LINES[:3], *LINES[2:]]), "steps must increase, but step 5 follows"),
        (TABLE.replace("step", "stop"), "it has no column 'step'"),
        (
            TABLE.replace(",0.3333333333333333,", ",inf,"),
            "the column 'train_loss' holds something that is not",
        ),
        (
            TABLE.replace("0.3333333333333333", "0.3333333333333334", 1),
            "does not match what the last checkpoint",
        ),
    ],
)
def test_damaged_metrics_are_refused(tmp_path, text, sentence):
    path = tmp_path / "metrics.csv"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_metrics(path, [0, 5, 10, 15], of_table(TABLE))
    assert str(refused.value).startswith(str(path))
    assert sentence in str(refused.value)


def test_a_run_is_not_resumed_from_metrics_that_are_cut(small, tmp_path, finished):
    """A finished run without checkpoints still knows where it ended."""
    path, sentence = (
        finished.folder / "metrics.csv",
        r"metrics\.csv is cut off: it has no line of step 24",
    )
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    done = (finished.folder / "done.json").read_bytes()
    (finished.folder / "done.json").unlink()
    for read in (lambda: Run.open(finished.folder).metrics, lambda: train(small, tmp_path)):
        with pytest.raises(ConfigError, match=sentence):
            read()
    (finished.folder / "done.json").write_bytes(done)
    shutil.rmtree(finished.folder / "checkpoints")
    with pytest.raises(ConfigError, match=sentence):
        _ = finished.metrics
