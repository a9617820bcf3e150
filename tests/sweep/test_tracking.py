"""wandb, offline: what its own file of a run holds is what the run folder holds."""

import json
import math
import struct

import pytest

from ihlab import Run, train
from ihlab.sweep import tracking
from ihlab.sweep.retry import attempt
from ihlab.training.config import to_dict
from tasks import ConfigError
from tests.faults import ways_in

CONFIG = ways_in.CONFIG.replace(name="watched", steps=12, batch_size=2, checkpoints=2)


def records(folder):
    """Every record of the one offline run in wandb's folder.

    The file is a LevelDB log: after 7 bytes, chunks with a checksum, their length and whether they are whole (1) or
    a first, middle or last part (2, 3, 4) of a record; none crosses a multiple of 32768 bytes.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    [path] = folder.rglob("*.wandb")
    data, at, record, found = path.read_bytes(), 7, b"", []
    while at < len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
        _, length, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            found.append(Record.FromString(record))
            record = b""
    return found


def content(items):
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def history(written):
    return [content(record.history.item) for record in written if record.HasField("history")]


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """wandb writes to this folder, and nowhere else."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "wandb"))
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    (tmp_path / "wandb").mkdir()
    return tmp_path / "wandb"


@pytest.mark.slow
def test_every_evaluation_and_the_config_are_logged(tmp_path, offline):
    heard = []
    outcome = attempt(tmp_path / "runs", "cpu", True, CONFIG, lambda step, row: heard.append(step))
    assert outcome.status == "done", outcome.error
    assert heard[-1] == 12
    written = records(offline)
    [started] = [record.run for record in written if record.HasField("run")]
    assert (started.project, started.display_name, started.run_id) == ("ihlab", "watched", CONFIG.digest)
    config = content(started.config.update)
    expected = json.loads(json.dumps(to_dict(CONFIG)))
    assert {name: config[name] for name in expected} == expected
    logged = history(written)
    metrics = Run.open(CONFIG.folder(tmp_path / "runs")).metrics
    assert metrics["step"].tolist() == [0, 3, 6, 9, 12]
    assert [row["_step"] for row in logged] == [0, 3, 6, 9, 12]
    for row, (_, stored) in zip(logged, metrics.iterrows(), strict=True):
        known = {name: value for name, value in stored.items() if not math.isnan(value)}
        assert {name: value for name, value in row.items() if not name.startswith("_")} == known
    assert "alpha1_0.0" in logged[0]
    assert "train_loss" not in logged[0]


def test_a_diverging_run_is_logged_up_to_its_end(tmp_path, offline):
    config = CONFIG.replace(lr=1e30, clip=None, warmup=0)
    assert attempt(tmp_path / "runs", "cpu", True, config, lambda step, row: None).status == "diverged"
    metrics = Run.open(config.folder(tmp_path / "runs")).metrics
    assert [row["step"] for row in history(records(offline))] == metrics["step"].tolist() == [0]


@pytest.mark.slow
def test_what_a_run_has_is_logged_first_and_nothing_twice(tmp_path, offline):
    """A finished run is logged whole; of a resumed one what wandb has, by its step, is left out."""
    run = train(CONFIG, tmp_path / "runs")
    with tracking.tracked(run) as callback:
        callback({"run": run.folder.name, **run.metrics.iloc[-1].to_dict()})
    assert [row["_step"] for row in history(records(offline))] == [0, 3, 6, 9, 12]


def test_without_wandb_a_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"wandb is not installed: pip install 'wandb>=0\.22'\."):
        tracking.require_wandb()
