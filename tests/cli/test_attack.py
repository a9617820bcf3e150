"""`ihlab attack`: what it prints and writes is what `ihlab.certify.attack` finds, and its exit
status says it.
"""

import ast
import re

import pandas as pd
import pytest

from ihlab import Run
from ihlab.certify import attack
from ihlab.cli import main
from tasks import InductionTask

pytestmark = pytest.mark.slow

QUICK = ["--questions", "6", "--sweeps", "1"]


def test_an_untrained_run_is_refuted_with_the_worst_sequence_in_lines(root, tmp_path, capsys):
    csv = tmp_path / "worst.csv"
    outputs = f"--root {root} --csv {csv}".split()
    with pytest.raises(SystemExit) as stopped:
        main(["attack", "plain", *QUICK, *outputs])
    assert stopped.value.code == 1
    printed = capsys.readouterr().out
    [run] = [Run.open(path) for path in root.iterdir() if path.name.startswith("plain-")]
    expected = attack(run, questions=6, sweeps=1)
    written = [ast.literal_eval(tokens) for tokens in pd.read_csv(csv)["worst"]]
    assert written == expected.table["worst"].tolist()
    worst = expected.table.iloc[0]
    assert f"{run.folder.name}, step 12: {expected.verdict}" in printed
    assert worst["how"] in printed
    lines = {line.split()[0]: line for line in printed.splitlines() if line.strip()}
    assert lines["token"].split()[1:] == list(map(str, worst["worst"]))
    assert lines["target"].split()[1:] == [str(worst["answer"])]
    roles = lines["role"].ljust(9 + 12 * 5)
    for position, role in ((worst["position"], "K"), (worst["answer_position"], "A"), (11, "Q")):
        start = 9 + 5 * position
        assert roles[start : start + 5].strip() == role
    assert len(lines["role"].split()) == 4


def test_a_run_that_stands_exits_with_0(capsys):
    main(["attack", "induction-kv-shift-narrow", "--questions", "2", "--sweeps", "1"])
    printed = capsys.readouterr().out
    assert "2 of 2 questions are answered rightly as drawn, and 2 in the worst sequence" in printed


def test_tokens_are_printed_and_drawn_as_words(root, tmp_path, capsys, monkeypatch):
    words = lambda task, ids: [f"w{i}" for i in ids]  # noqa: E731
    monkeypatch.setattr(InductionTask, "words", words, raising=False)
    picture = tmp_path / "worst.svg"
    with pytest.raises(SystemExit):
        main(["attack", "plain", *QUICK, "--root", str(root), "--out", str(picture)])
    assert re.search(r"^token( +w\d+){12}$", capsys.readouterr().out, re.MULTILINE)
    assert re.search(r"answer w\d+, rival", picture.read_text())


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ("igsm-vanilla", "it is not known which sequences the task 'igsm' can draw"),
        ("2-hop-vanilla-2", "The task is 'multihop', but attack has no rule for it"),
        ("vanilla-2-layers --length 900", "length is 900, but must be from 2 to the task's"),
    ],
)
def test_bad_input_ends_with_a_sentence(fails, args, sentence):
    code, said = fails("attack", *args.split())
    assert code == 2
    assert sentence in said
