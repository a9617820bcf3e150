"""The command line as a user meets it: in a process of its own where start-up or exit codes matter."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from ihlab import ModelConfig, Run, RunConfig
from ihlab.cli import COMMANDS, SYSTEM_ERROR, main
from ihlab.study.find import declared
from tasks import TASKS, InductionTask, MultiHopTask

pytestmark = pytest.mark.slow

TINY = (
    "--steps 12 --batch-size 4 --eval-rows 8 --eval-every 4 --checkpoints 3 --task.vocab-size 40 --task.length 12 "
    "--model.n-layers 1 --model.d-model 8 --model.n-heads 2 --model.d-vocab 40 --model.n-ctx 12"
).split()


def test_help_names_every_command_and_loads_no_torch():
    script = """
import sys
from ihlab.cli import main
try:
    main(["--help"])
except SystemExit as stopped:
    assert stopped.code == 0
heavy = {"torch", "transformer_lens", "numba", "pandas", "matplotlib", "plotly"}
assert not heavy & set(sys.modules), "help loads too much"
from ihlab import Run
assert "plotly" not in sys.modules, "import ihlab loads plotly"
"""
    shown = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout
    assert all(command in shown for command in COMMANDS)


def test_members_are_the_seeds_from_the_runs_own_on_and_print_a_line_each(capsys, tmp_path):
    """Seeds 4, 5 and 6, the last of them trained before, alone."""
    small = ["train", "induction", "--root", str(tmp_path), "--model.attention", "kv_shift", *TINY]
    main([*small, "--seed", "6"])
    alone, _ = capsys.readouterr().out.splitlines()
    main([*small, "--seed", "4", "--members", "3"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[2] == alone
    by_folder = {str(run.folder): run for run in map(Run.open, tmp_path.iterdir())}
    trained = [by_folder[line.split(": step 12, loss ")[0]] for line in lines]
    assert [run.config.seed for run in trained] == [4, 5, 6]
    assert all(run.done for run in trained)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ["reproduce", "figure1a"],
            "There is no figures/*/study.py: the paper's studies come with",
        ),
        (["train", "mutlihop", "--help"], "There is no task 'mutlihop'; did you mean 'multihop'?"),
        (["train", *TINY, "--root", "/not/there/runs"], "--root is '/not/there/runs'"),
        (["runs", "/nowhere/at/all"], "no runs in /nowhere/at/all"),
        (["train", *TINY, "--stop-at-accuracy", "90"], "RunConfig.stop_at_accuracy is 90.0"),
    ],
)
def test_bad_input_gets_a_sentence_and_exit_code_2(fails, tmp_path, monkeypatch, args, words):
    monkeypatch.chdir(tmp_path)
    code, printed = fails(*args)
    assert code == 2
    assert words in printed
    assert not list(tmp_path.rglob("metrics.csv"))


def test_train_says_what_it_trains_and_what_to_type_next(tmp_path, capsys):
    main(["train", "--root", str(tmp_path), *TINY, "--name", "tiny"])
    printed, (run,) = capsys.readouterr(), tmp_path.iterdir()
    said = [line for line in printed.err.splitlines() if "task" in line]
    assert said == [
        "tiny: task induction (vocab_size 40, length 12); model kv_shift (1 layer, d_model 8, n_heads 2); "
        "12 steps of 4 sequences; lr 0.001, 100 steps of warmup"
    ]
    ending, following = printed.out.splitlines()[-2:]
    assert str(run) in ending
    assert following == f"Its heads: ihlab heads {run}    and on a page: ihlab view {run}"


def test_a_diverging_run_ends_with_a_sentence_and_exit_code_1(fails, tmp_path):
    code, printed = fails("train", "--root", str(tmp_path), *TINY, "--lr", "1e30", "--clip", "None")
    assert code == 1
    assert "the loss is not finite" in printed
    assert "Traceback" not in printed


def long_training(root):
    """Start `ihlab train` in a process, wait for its first checkpoint, and return its arguments and
    the process.
    """
    args = ["train", "--root", str(root), *TINY, "--steps", "200000", "--eval-growth", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ihlab", *args],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not list(root.rglob("step-0.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.05)
    return args, process


def test_ctrl_c_leaves_a_resumable_run_and_says_how_to_go_on(tmp_path):
    args, process = long_training(tmp_path)
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Stopped at step" in errors
    assert f"To go on: ihlab {' '.join(args)}" in errors
    assert "Traceback" not in errors
    [folder] = tmp_path.iterdir()
    assert Run.open(folder).checkpoints[-1] > 0
    assert json.loads((folder / "config.json").read_text())["steps"] == 200_000


def test_a_command_that_the_system_ends_says_how_to_go_on(tmp_path):
    """As the kernel kills when memory runs out."""
    args, process = long_training(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert "ihlab: The system ended this command: it was killed, or memory ran out." in errors
    assert errors.endswith(f"To go on from the last checkpoint: ihlab {' '.join(args)}\n")


def test_a_panic_of_a_library_is_one_sentence(fails, monkeypatch):
    class PanicException(BaseException):
        """As pyo3's."""

    def panic(*args, **more):
        raise PanicException("capacity overflow")

    monkeypatch.setattr("ihlab.training.train.train", panic)
    assert fails("train", *TINY) == (
        SYSTEM_ERROR,
        "ihlab: A library stopped (capacity overflow), most likely because memory ran out.\n",
    )


@pytest.mark.parametrize("error", [ImportError("failed to map segment"), RuntimeError])
def test_any_error_of_a_library_is_one_sentence_when_memory_is_short(fails, monkeypatch, error):
    """As the loader gives an ImportError when an allocation fails in its place."""

    def fail(*args, **more):
        monkeypatch.setattr("ihlab.cli.SPARE", 2**60)
        raise error

    monkeypatch.setattr("ihlab.training.train.train", fail)
    code, printed = fails("train", *TINY)
    assert code == SYSTEM_ERROR
    assert "memory" in printed
    assert printed.count("\n") == 1


def test_the_help_of_reproduce_names_every_figure_where_it_belongs(capsys):
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    listed = capsys.readouterr().out.split("if none is named,")[1].split("--scale")[0]
    usual, longer = listed.split("Others")
    for name, figure in declared(Path("figures")).items():
        assert bool(re.search(rf"\b{name}\b", usual)) == figure.by_default
        assert bool(re.search(rf"\b{name}\b", longer)) != figure.by_default


TASK = InductionTask(vocab_size=128, length=32)
MODEL = ModelConfig(n_layers=1, d_model=64, n_heads=4, d_vocab=128, n_ctx=32, attention="kv_shift")


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ([], {}),
        (["--model.n_layers=2"], {"model": MODEL.replace(n_layers=2)}),
        (
            ["induction", "--task.length=20"],
            {"task": InductionTask(vocab_size=128, length=20), "model": MODEL.replace(n_ctx=20)},
        ),
        (
            ["multihop", "--task.max-hops", "2"],
            {"task": MultiHopTask(max_hops=2), "model": MODEL.replace(d_vocab=23, n_ctx=99)},
        ),
    ],
)
def test_naming_a_field_changes_that_field_alone(monkeypatch, given, changed):
    """What `ihlab train` trains is `RunConfig()` with the fields that are named; d_vocab and n_ctx
    are the task's.
    """
    asked = []

    def caught(run, *args, **more):
        asked.append(run)
        raise KeyboardInterrupt

    monkeypatch.setattr("ihlab.training.train.train", caught)
    with pytest.raises(SystemExit):
        main(["train", *given])
    assert asked == [RunConfig(task=TASK, model=MODEL).replace(**changed)]
    assert type(asked[0].task) in TASKS.values()
    assert type(asked[0].model) is ModelConfig


def test_runs_are_written_as_a_table_and_piped_names_are_whole(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    name = "a-name-that-is-far-too-long-for-a-terminal-of-sixty-columns"
    main(["train", "--root", str(tmp_path / "runs"), "--name", name, *TINY])
    capsys.readouterr()
    main(["runs", str(tmp_path / "runs"), "--csv", str(tmp_path / "runs.csv")])
    printed = capsys.readouterr().out
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name in printed
    table = pd.read_csv(tmp_path / "runs.csv")
    assert table["run"].tolist() == [str(run)]
    assert {"status", "accuracy", "seconds", "problem"} <= set(table.columns)
