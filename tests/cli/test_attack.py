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
from ihlab.plots.worst import worst_sequences
from tasks import ConfigError

pytestmark = pytest.mark.slow

QUICK = ["--questions", "6", "--sweeps", "1"]


def test_an_untrained_run_is_refuted_with_the_worst_sequence_in_lines(root, tmp_path, capsys):
    csv, picture = tmp_path / "worst.csv", tmp_path / "worst.svg"
    with pytest.raises(SystemExit) as stopped:
        main(
            [
                "attack",
                "plain",
                "--root",
                str(root),
                *QUICK,
                "--csv",
                str(csv),
                "--out",
                str(picture),
            ]
        )
    assert stopped.value.code == 1
    printed = capsys.readouterr().out
    [run] = [Run.open(path) for path in root.iterdir() if path.name.startswith("plain-")]
    expected = attack(run, questions=6, sweeps=1)
    table = pd.read_csv(csv)
    assert [ast.literal_eval(tokens) for tokens in table["worst"]] == expected.table[
        "worst"
    ].tolist()
    worst = expected.table.iloc[0]
    assert f"{run.folder.name}, step 12: {expected.verdict}" in printed
    assert worst["how"] in printed
    token, role, target = (
        re.search(rf"^{label}.*$", printed, re.MULTILINE)[0]
        for label in ("token", "role", "target")
    )
    assert token.split()[1:] == list(map(str, worst["worst"]))
    cells = [role.ljust(9 + 12 * 5)[start : start + 5].strip() for start in range(9, 9 + 12 * 5, 5)]
    assert [cells[i] for i in (worst["position"], worst["answer_position"], -1)] == ["K", "A", "Q"]
    assert cells.count("") == 9
    assert target.split()[1:] == [str(worst["answer"])]
    drawn = picture.read_text()
    for _, row in expected.table.head(3).iterrows():
        assert (
            f"answer {row['answer']}, rival {row['mistaken_for']}, margin {row['margin']:.2f}"
            in drawn.replace("−", "-")
        )


def test_a_run_that_stands_exits_with_0(capsys):
    main(["attack", "induction-kv-shift-narrow", "--questions", "2", "--sweeps", "1"])
    printed = capsys.readouterr().out
    assert "2 of 2 questions are answered rightly as drawn, and 2 in the worst sequence" in printed


def test_letters_are_printed_and_drawn_as_words(tmp_path, capsys):
    picture = tmp_path / "hops.svg"
    with pytest.raises(SystemExit):
        main(["attack", "2-hop-vanilla-2", *QUICK, "--out", str(picture)])
    assert re.search(r"^token +k=\d( +[a-d]){15}$", capsys.readouterr().out, re.MULTILINE)
    assert re.search(r"answer [a-d], rival", picture.read_text())


def test_bad_input_ends_with_a_sentence(fails):
    code, said = fails("attack", "igsm-vanilla")
    assert code == 2
    assert "it is not known which sequences the task 'igsm' can draw" in said
    code, said = fails("attack", "2-hop-vanilla-2", "--length", "90")
    assert code == 2
    assert "length is 90, but must be from 2 to the task's length, 33" in said


def test_a_model_without_patterns_is_not_drawn():
    with pytest.raises(ConfigError, match="no attention patterns"):
        worst_sequences(pd.DataFrame(), None, "a title")
