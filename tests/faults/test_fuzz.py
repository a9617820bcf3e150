"""A sample of the fuzz campaign, and the campaign itself: with a check taken away it must report
failures.
"""

import pytest

from tasks.codec import to_plain
from tests.faults import fuzz
from tests.faults.fuzz import COMMANDS, CONFIGS, KINDS, STORED, TRAININGS, campaign
from tests.faults.ways_in import said

pytestmark = pytest.mark.slow


def test_no_value_ends_in_a_traceback_or_a_hang(tmp_path, capsys):
    rows = campaign(250, 0, tmp_path)
    assert [row.what for row in rows] == list(KINDS)
    assert [row for row in rows if row.failed] == [], capsys.readouterr().err
    tried = {row.what: row.tried for row in rows}
    assert tried[CONFIGS] + tried[COMMANDS] >= 200
    assert tried[STORED] >= 10  # accepted ones, or nothing is tried of what follows
    assert tried[TRAININGS] >= 1


def test_help_amid_other_words_is_an_answer(tmp_path):
    printed, wrong = said(["runs", "W", "--out", "-h"], tmp_path)
    assert printed.startswith("usage: ihlab runs")
    assert not wrong


def test_a_config_that_comes_back_changed_is_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fuzz, "to_plain", lambda run: {**to_plain(run), "seed": 7})
    failed = {row.what: row.failed for row in campaign(150, 0, tmp_path)}
    assert failed[STORED] > 0
    assert "Error" in capsys.readouterr().err


def test_a_sentence_that_is_not_printed_is_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("ihlab.cli.ConfigError", KeyboardInterrupt)
    failed = {row.what: row.failed for row in campaign(100, 0, tmp_path)}
    assert failed[COMMANDS] > 0
    assert "no sentence: " in capsys.readouterr().err
