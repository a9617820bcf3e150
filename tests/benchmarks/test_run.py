"""The page, from made-up figures, and its parts by name."""

import numpy as np
import pandas as pd
import pytest
import wait
from paired import figure, missed, ratio
from run import PAGE, STORED, main, page, read_figures

pytestmark = pytest.mark.slow

FIGURES = pd.DataFrame(
    [
        ratio("First", "ours", np.array([1.0, 2.0, 3.0]), np.full(3, 2.0), 1.0, "theirs"),
        ratio("First", "slow", np.full((2, 3), 1234.5), np.ones((2, 3)), 2.0, "theirs"),
        figure("Second", "free", [0.01234], "ms", note="alone"),
        figure(wait.TABLE, "a command", [3.0, 1.0, 8.0], "s", 2.0, "reading"),
    ]
).assign(part="works", sitting="2026-01-01, a machine")


def test_the_page_opens_with_the_goals_and_folds_everything_else():
    text = page(FIGURES, ["third: not measured (EOFError)."])
    opened, folded = text.split("<details", maxsplit=1)
    assert "| ours | theirs | 1.00 | 1.00 | 0.50 to 1.50 | kept |" in opened
    assert "| slow | theirs | 2.00 | 1234.50 | 1234.50 to 1234.50 | **missed** |" in opened
    assert "third: not measured" in opened
    assert "| free |  | 0.0123 | 0.0123 to 0.0123 | ms | alone |" in folded
    assert "| a command | 2 | 3 | 1 to 8 | **missed** | reading |" in folded
    assert text.count("<details") == text.count("</details>") == 3
    assert [sentence.partition(" has")[0] for sentence in missed(FIGURES)] == [
        "First: slow",
        f"{wait.TABLE}: a command",
    ]


def test_the_page_is_that_of_the_stored_figures():
    assert page(read_figures(STORED), []) == PAGE.read_text(encoding="utf-8")


def test_an_unknown_part_is_answered_with_those_there_are():
    with pytest.raises(
        SystemExit, match=r"There is no part speling: there are train_step, .*variants\."
    ):
        main(quick=True, only=("speling",))


def test_a_part_that_fails_loses_no_other_and_the_page_keeps_parts_that_are_not_chosen(
    monkeypatch, tmp_path, capsys
):
    def fails(quick):
        raise EOFError

    written = tmp_path / "page.md"
    parts = {"breaks": fails, "works": lambda quick: FIGURES.iloc[[2]]}
    monkeypatch.setattr("run.PAGE", written)
    monkeypatch.setattr("run.STORED", tmp_path / "figures.csv")
    monkeypatch.setattr("run.PARTS", parts | {"late": lambda quick: FIGURES.iloc[[1]]})
    main(only=("works",), quick=True)
    assert not written.exists()
    with pytest.raises(SystemExit, match="Missed: First: slow has the median"):
        main(only=("late",))
    main(only=("works",))
    text = written.read_text()
    assert "| slow |" in text
    assert "| free |" in text
    with pytest.raises(SystemExit, match=r"breaks: not measured \(EOFError\)\."):
        main()
    text = written.read_text()
    assert "breaks: not measured (EOFError)." in text
    assert "| free |" in text
    assert "EOFError" in capsys.readouterr().err
    assert PAGE.name == "results.md"
