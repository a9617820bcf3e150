"""A system that says no: a full disk, a place that cannot be written, hostile surroundings of all
kinds.
"""

import os
import stat
import subprocess
import sys

import pytest

from ihlab import train
from ihlab.cli import SYSTEM_ERROR, main
from ihlab.storage.files import write_text
from tests.faults import surroundings

pytestmark = pytest.mark.slow

TINY = (
    "--steps 6 --batch-size 4 --eval-rows 8 --eval-every 2 --checkpoints 3 --task.vocab-size 40 --task.length 12 "
    "--model.n-layers 1 --model.d-model 8 --model.n-heads 2 --model.d-vocab 40 --model.n-ctx 12 --device cpu"
).split()


def test_commands_in_hostile_surroundings_end_in_a_sentence_and_go_on_later(tmp_path, capsys):
    rows = surroundings.campaign(5, 0, tmp_path, ["train"])
    assert sum(row.tried for row in rows) == 5
    assert [row for row in rows if row.failed] == [], capsys.readouterr().err


@pytest.mark.parametrize(("place", "loading"), [("create_module", True), ("batch", False)])
def test_a_command_that_hangs_is_a_fault_unless_it_loads_a_library(place, loading):
    said = "Timeout (0:01:00)!\nThread 0x1 (most recent call first):\n"
    frames = (
        f'  File "a", line 1 in _call\n  File "b", line 2 in {place}\n  File "c", line 3 in main\n'
    )
    case = surroundings.Case(surroundings.MEMORY, "train", list)
    done = subprocess.CompletedProcess([], 1, "", said + frames)
    assert surroundings.is_loading(said + frames) == loading
    assert (surroundings.fault(case, done) == "") == loading


@pytest.mark.parametrize(
    ("root", "words"),
    [
        ("/proc/x", "No such file or directory"),
        ("a\0b", "control character"),
    ],
    ids=["proc", "nul"],
)
def test_a_place_that_cannot_be_gets_one_sentence(capsys, tmp_path, monkeypatch, root, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["train", *TINY, "--root", root])
    printed = capsys.readouterr().err
    assert ended.value.code in (2, SYSTEM_ERROR)
    assert printed.startswith("ihlab: ")
    assert printed.count("\n") == 1
    assert words in printed


def test_files_follow_the_umask(small, tmp_path):
    before = os.umask(0o027)
    try:
        run = train(small, tmp_path, "cpu")
        write_text(tmp_path / "a.txt", "a")
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o640}
    assert run.checkpoint_path(0) in files


def test_a_variable_that_torch_refuses_is_named(tmp_path):
    command = [sys.executable, "-m", "ihlab", "train", *TINY]
    given = {**os.environ, "TORCH_LOGS": "x"}
    done = subprocess.run(
        command, cwd=tmp_path, env=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == SYSTEM_ERROR
    assert done.stderr.startswith("ihlab: torch cannot be loaded (Invalid log settings: x, ")
    assert "Check the environment: " in done.stderr
    assert "TORCH_LOGS" in done.stderr
    assert done.stderr.count("\n") == 1
