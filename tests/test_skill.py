"""Every block of SKILL.md runs as printed, in an empty folder, and prints what the page shows."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ihlab.cli import main
from ihlab.hf.conformance.__main__ import main as conformance

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "SKILL.md").read_text("utf-8")
SECTION = re.compile(r"^## (?P<name>.+?)$(?P<body>.*?)(?=^## |\Z)", re.M | re.S)
SECTIONS = {found["name"]: found["body"] for found in SECTION.finditer(PAGE)}
PAIR = re.compile(r"```(?P<language>sh|python)\n(?P<code>.*?)```\n```text\n(?P<shown>.*?)```", re.S)
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?")


def test_it_has_at_most_80_lines():
    assert len(PAGE.splitlines()) <= 80
    assert list(SECTIONS) == ["Train", "Look", "Certify", "Bench", "Conformance"]


def test_every_block_of_code_has_its_output():
    assert PAGE.count("```sh") + PAGE.count("```python") == len(PAIR.findall(PAGE))


def printed_by(code: str, language: str, capfd: pytest.CaptureFixture[str]) -> str:
    """What a block prints, the errors of its commands included."""
    if language == "python":
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr
    printed = ""
    for line in code.replace("\\\n", "").splitlines():
        program, *arguments = shlex.split(line)
        command = main
        if program == "python":
            assert arguments[:2] == ["-m", "ihlab.hf.conformance"]
            command, arguments = conformance, arguments[2:]
        try:
            command(arguments)
        except SystemExit as stopped:
            printed += stopped.code if isinstance(stopped.code, str) else ""
        printed += "".join(capfd.readouterr())
    return printed


def words(text: str) -> str:
    """A text without its numbers, and with single spaces."""
    return " ".join(NUMBER.sub("#", text).split())


@pytest.mark.slow
@pytest.mark.parametrize("name", SECTIONS)
def test_blocks_print_what_the_page_shows(name, tmp_path, monkeypatch, capfd):
    """Each shown line is printed, in this order; numbers of trained models differ between machines
    by at most .05.
    """
    monkeypatch.chdir(tmp_path)
    if name == "Certify":  # it opens the run that the section before it trains
        train = PAIR.search(SECTIONS["Train"])
        printed_by(train["code"], "sh", capfd)
    for block in PAIR.finditer(SECTIONS[name]):
        lines = iter(printed_by(block["code"], block["language"], capfd).splitlines())
        for shown in block["shown"].splitlines():
            line = next((line for line in lines if words(line) == words(shown)), None)
            assert line is not None, f"{shown!r} is not printed, or not in this place"
            expected = [float(number) for number in NUMBER.findall(shown)]
            assert [float(number) for number in NUMBER.findall(line)] == pytest.approx(
                expected, rel=0.1, abs=0.05
            )
