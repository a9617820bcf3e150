"""The campaign of strangers' folders, cut down: it finds nothing wrong, and it notices a check that is taken away."""

import pytest

from tests.faults import strangers


def failures(rows):
    return {row.what: row.failed for row in rows if row.failed}


def test_a_few_openings_of_every_kind_harm_nobody(tmp_path, capsys):
    rows = strangers.campaign(4, 0, tmp_path)
    assert failures(rows) == {}, capsys.readouterr().err


@pytest.mark.slow
def test_a_corpus_that_nobody_named_would_be_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.text.task.named", lambda path: True)
    assert strangers.RUNS in failures(strangers.campaign(12, 0, tmp_path))
