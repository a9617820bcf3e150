"""The README's examples run as printed, in order, in an empty folder."""

import re
import shlex
from pathlib import Path

import pytest

from ihlab.cli import main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


def test_python_examples(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), names)
    assert "accuracy_first" in capsys.readouterr().out
    assert names["run"].metrics["accuracy_first"].iloc[-1] > 0.9  # type: ignore[attr-defined]
    assert not names["no_shift"].allclose(names["logits"])  # type: ignore[attr-defined]


def test_shell_examples(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    [sweep] = blocks("toml")
    (tmp_path / sweep.split(":")[0].removeprefix("# ")).write_text(sweep, encoding="utf-8")
    commands = [shlex.split(line, comments=True) for block in blocks("sh") for line in block.splitlines()]
    ours = [command[1:] for command in commands if command[0] == "ihlab"]
    assert len(ours) == 11
    for command in ours:
        main(command)
    printed = capsys.readouterr().out
    assert "Claims against what was measured" in printed
    assert "Runs in runs" in printed
    assert "rates.csv: 8 runs" in printed


def test_what_torchrun_starts_runs_as_one_process_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    [command] = re.findall(r"^    torchrun .* -m ihlab (.*)$", README, flags=re.M)
    main(shlex.split(command))
    assert "step 40" in capsys.readouterr().out


@pytest.mark.parametrize(
    "path", re.findall(r"\]\((?!http)([^)]+)\)|`((?:ihlab|tasks|tests|docs|notebooks)/[\w/.]+)`", README)
)
def test_every_file_it_names_exists(path):
    name = path[0] or path[1]
    assert (ROOT / name).exists(), name


def test_it_names_the_make_targets_that_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", "\n".join(blocks("sh")), flags=re.M):
        assert f"\n{target}:" in makefile
