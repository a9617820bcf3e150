"""Corpora: what is read, what is left out as a copy, and that no directory stands on both sides."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import ConfigError
from tasks.text.corpus import HELD_OUT, STDLIB, Corpus, Document, digest, distinct, read, split


def text_of(name, lines=20):
    """A file of lines that are in no other."""
    return "".join(f"line {i} of {name} and of no other\n" for i in range(lines)).encode()


def test_a_folder_is_read_file_by_file_in_the_order_of_paths(tmp_path):
    for name in ("b.txt", "a/c.md", "a/b.py", ".hidden", ".git/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text_of(name))
    (tmp_path / "empty").write_bytes(b" \n")
    found = read(str(tmp_path))
    assert [document.path for document in found] == ["a/b.py", "a/c.md", "b.txt"]
    assert found[0].content == text_of("a/b.py")
    assert [document.directory for document in found] == ["a", "a", "b.txt"]


def test_a_folder_that_is_not_there_or_empty_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"missing.* must be 'stdlib', 'sample' or a folder"):
        read(str(tmp_path / "missing"))
    (tmp_path / "a.txt").write_bytes(b"\n")
    with pytest.raises(ConfigError, match=rf"{tmp_path.name}.* no file there holds any text"):
        read(str(tmp_path))


def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_bytes(b"text")

    def denied(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(ConfigError, match=r"a\.txt cannot be read: Permission denied"):
        read(str(tmp_path))


def test_a_file_is_a_copy_if_more_than_half_of_its_lines_stood_before():
    first = Document("a", text_of("a", 10))
    half = Document("b", text_of("a", 5) + text_of("b", 5))
    more = Document("c", text_of("a", 6) + text_of("c", 5))
    of_two = Document("d", text_of("a", 3) + text_of("b", 3) + text_of("d", 5))
    short = Document("e", b"}\n  }\nx\n")  # no line is compared, but all of it
    again = Document("f", short.content)
    documents = [first, half, more, of_two, short, again]
    assert [document.path for document in distinct(documents)] == ["a", "b", "e"]


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 40)), min_size=2, max_size=40))
def test_each_directory_is_on_one_side_and_at_most_a_tenth_is_held_out(files):
    documents = [
        Document(f"{directory}/{i}", text_of(str(i), lines))
        for i, (directory, lines) in enumerate(files)
    ]
    sides = split(documents)
    assert sides == split(documents)
    assert sorted(d.path for d in sides.train + sides.test) == sorted(d.path for d in documents)
    assert sides.train
    assert sides.test
    held, total = (sum(len(d.content) for d in side) for side in (sides.test, documents))
    if len({directory for directory, _ in files}) > 1:
        assert not {d.directory for d in sides.train} & {d.directory for d in sides.test}
        assert held <= HELD_OUT * total or len({d.directory for d in sides.test}) == 1
    else:
        assert held <= HELD_OUT * total or len(sides.test) == 1


def test_sides_of_the_standard_library_share_no_directory():
    sides = split(read(STDLIB))
    assert isinstance(sides, Corpus)
    assert not {d.directory for d in sides.train} & {d.directory for d in sides.test}
    tables = [d.path for d in sides.train + sides.test if d.path.startswith("encodings/cp")]
    assert 0 < len(tables) < 12  # of some sixty


def test_a_folder_with_more_than_fits_is_refused_before_it_is_read(tmp_path, monkeypatch):
    for i in range(3):
        (tmp_path / f"{i}").write_bytes(text_of(f"{i}"))
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    assert len(read(str(tmp_path))) == 3
    monkeypatch.setattr("tasks.text.corpus.MOST_BYTES", 1000)
    with pytest.raises(ConfigError, match="holds more than 1000 bytes or"):
        read(str(tmp_path))


def test_a_file_may_have_a_name_that_is_not_utf8(tmp_path):
    for name in (b"a", b"\xff"):
        path = os.fsencode(tmp_path) + b"/" + name
        with open(path, "wb") as file:
            file.write(name * 99)
    documents = read(str(tmp_path))
    assert len(digest(documents)) == 64
    assert len(split(documents).test) == 1


def test_a_single_file_cannot_be_split():
    with pytest.raises(ConfigError, match="must have at least two"):
        split([Document("a", b"text")])
