"""Atomic files: a failed write leaves the old content and nothing beside it."""

import pytest

from ihlab.files import write_atomically, write_json, write_text


def test_a_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "note.txt"
    write_text(path, "old")

    def fail(aside):
        aside.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_folders_are_made_and_json_ends_with_a_newline(tmp_path):
    write_json(tmp_path / "a" / "b.json", {"x": 1})
    assert (tmp_path / "a" / "b.json").read_text() == '{\n  "x": 1\n}\n'
