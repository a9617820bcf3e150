"""Refused arguments end in one sentence, whatever box tyro draws."""

import pytest

from ihlab.cli import main
from ihlab.cli.usage import in_one_sentence


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (
            "train induction --steps abc",
            "--steps takes INT, not 'abc'. For all options: ihlab train induction --help",
        ),
        (
            "train induction --stepss 3",
            "Unrecognized options: --stepss, 3. Perhaps you meant --steps INT. For all options: "
            "ihlab train induction --help",
        ),
        ("shift", "Missing from ihlab shift: RUN. For all options: ihlab shift --help"),
        (
            "train --task.score al",
            "invalid choice 'al' for argument '--task.score'. Expected one of ('all', 'first',",
        ),
        (
            "train --task.min-token -5",
            "InductionTask.min_token is -5, but must be at least 0. For all options: ",
        ),
        ("trian", "There is no command 'trian'; did you mean 'train'?"),
    ],
)
@pytest.mark.parametrize("width", ["40", "200"])
def test_refused_arguments_end_in_one_sentence(command, sentence, width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert said.err.startswith(f"ihlab: {sentence}")
    assert said.err.count("\n") == 1
    assert not said.out


FRAMED = """╭─ Value error ─────╮
│ No such thing: a. │
│ ───────────────── │
│ See ihlab x --help│
╰───────────────────╯
"""


@pytest.mark.parametrize(
    "box", [FRAMED, FRAMED.translate(str.maketrans("╭╮│╰╯─", "     -"))], ids=["utf-8", "ascii"]
)
def test_both_frames_are_read(box):
    assert in_one_sentence(box) == "ihlab: No such thing: a. For all options: ihlab x --help\n"


def test_a_text_of_another_form_is_left_as_it_is():
    assert in_one_sentence("Something else.\n") == "Something else.\n"
    assert in_one_sentence("") == ""
