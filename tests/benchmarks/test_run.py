"""The page, from made-up figures, and its parts by name."""

import pandas as pd
import pytest
from paired import Bar, figure, missed
from run import PAGE, PARTS, main, page

pytestmark = pytest.mark.slow

FIGURES = pd.DataFrame(
    [
        figure("First", "quick", [1.0, 2.0, 3.0], "s", Bar(2)),
        figure("First", "slow", [1234.5], "s", Bar(2), note="alone"),
        figure("Second", "free", [0.01234], "ms"),
    ]
)


def test_the_page_has_a_table_for_each_title_and_says_what_was_missed():
    text = page(FIGURES, missed(FIGURES))
    assert "| quick | 2 | 1 .. 3 | s | <= 2 kept |  |" in text
    assert "| slow | 1234 | 1234 .. 1234 | s | <= 2 MISSED | alone |" in text
    assert "| free | 0.0123 | 0.0123 .. 0.0123 | ms |  |  |" in text
    assert "- First: slow has the median 1234, but must be <= 2." in text
    assert "All bars are kept" not in text
    assert text.index("## First") < text.index("## Second")


def test_an_unknown_part_is_answered_with_those_there_are():
    with pytest.raises(SystemExit, match=r"There is no part speling: there are generators, .*long_rows\."):
        main(quick=True, only=("speling",))


def test_a_part_at_quick_size_is_shown_and_no_page_is_written(capsys):
    before = PAGE.stat().st_mtime_ns
    main(quick=True, only=("theory",))
    assert "Theorem 3.4" in capsys.readouterr().out
    assert PAGE.stat().st_mtime_ns == before
    assert "theory" in PARTS


def test_a_part_that_fails_loses_no_other(monkeypatch, tmp_path, capsys):
    def fails(quick, **_):
        raise EOFError

    monkeypatch.setattr("run.PAGE", tmp_path / "page.md")
    monkeypatch.setattr("run.PARTS", {"breaks": fails, "igsm": fails, "works": lambda quick: FIGURES.iloc[[2]]})
    with pytest.raises(SystemExit, match=r"breaks: not measured \(EOFError\)\."):
        main()
    text = (tmp_path / "page.md").read_text()
    assert "- breaks: not measured (EOFError)." in text
    assert "| free | 0.0123" in text
    assert "EOFError" in capsys.readouterr().err
