"""Names as text and ASCII for terminals that know nothing else, in every command that prints a
table.
"""

import os
import shutil
import subprocess
import sys

import pytest

from ihlab.cli import main

pytestmark = pytest.mark.slow

COMMANDS = [
    "runs ROOT",
    "heads small --root ROOT",
    "shift small --root ROOT",
    "heads smal --root ROOT",
    "--help",
    "train --help",
]


def test_ascii_terminals_get_ascii(root):
    """All commands in one process, whose streams are ASCII from its start."""
    script = """
import sys
from ihlab.cli import main
for command in sys.argv[1].split(","):
    try:
        main([word.replace("ROOT", sys.argv[2]) for word in command.split()])
    except SystemExit as ended:
        assert ended.code in (None, 0, 2), ended.code
"""
    ascii_only = {
        **os.environ,
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONIOENCODING": "ascii",
        "PYTHONCOERCECLOCALE": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", script, ",".join(COMMANDS), str(root)],
        env=ascii_only,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    printed = done.stdout.decode("ascii") + done.stderr.decode("ascii")
    assert "+-" in printed  # of a table's frame, and for the sign of the error
    assert "\\u" not in printed


@pytest.mark.parametrize(
    ("command", "closed"),
    [
        ("sample induction --rows 1", "<&- >&- 2>&-"),
        ("runs nowhere", "2>&-"),
    ],
)
def test_closed_streams_are_as_if_nobody_read_them(tmp_path, closed, command):
    script = f'exec "$0" -m ihlab {command} {closed}'
    done = subprocess.run(
        ["bash", "-c", script, sys.executable], capture_output=True, cwd=tmp_path, check=False
    )
    assert done.returncode == (2 if command == "runs nowhere" else 0)
    assert done.stderr.count(b"\n") == (command == "runs nowhere" and "2>&-" not in closed)
    assert bool(done.stdout) == (
        command != "runs nowhere" and ">&-" not in closed.replace("2>&-", "")
    )


@pytest.mark.parametrize("name", ["[red]x[", ":smile:", "a\x1b[31mb\nc"])
@pytest.mark.parametrize("command", ["runs", "heads", "shift"])
def test_names_are_shown_as_text(root, tmp_path, capsys, monkeypatch, name, command):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ihlab.training.find_runs.kept.names", lambda: [])
    shutil.copytree(next(root.glob("small-*")), tmp_path / "runs" / f"{name}-copied")
    typed = name.partition("\x1b")[0]  # a user can type no control characters
    main([command] if command == "runs" else [command, typed])
    printed = "".join(capsys.readouterr())
    assert "\x1b" not in printed
    assert name.replace("\x1b", "\\x1b").replace("\n", "\\n") in printed
