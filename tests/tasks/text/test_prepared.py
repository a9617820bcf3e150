"""Prepared corpora: the ids give the documents back, and the cache is whole, or not there."""

import numpy as np
import pytest

from tasks import ConfigError
from tasks.text.corpus import SAMPLE, read, split
from tasks.text.prepared import cache, prepare
from tests.forked import killed


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("IHLAB_CACHE", str(tmp_path / "cache"))
    prepare.cache_clear()
    yield tmp_path / "cache"
    prepare.cache_clear()


@pytest.mark.parametrize("vocab_size", [256, 300])
def test_ids_of_each_document_spell_its_bytes(vocab_size):
    prepared = prepare(SAMPLE, vocab_size)
    sides = split(read(SAMPLE))
    assert len(prepared.vocabulary) == len(set(prepared.vocabulary)) == vocab_size
    for part, documents in ((prepared.train, sides.train), (prepared.test, sides.test)):
        assert len(part.bounds) == len(documents) + 1
        for document, start, end in zip(documents, part.bounds, part.bounds[1:], strict=False):
            assert b"".join(prepared.vocabulary[i] for i in part.ids[start:end]) == document.content


def test_it_is_trained_on_the_training_side_alone(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / "texts" / name).mkdir(parents=True)
    (tmp_path / "texts" / "a" / "x").write_text("abcabcabc " * 40)
    (tmp_path / "texts" / "b" / "x").write_text("defdefdef " * 40)
    (tmp_path / "texts" / "c" / "x").write_text("ghighighi " * 3)
    sides = split(read(str(tmp_path / "texts")))
    (held,) = sides.test
    unseen = held.content[:3]
    assert not [
        token for token in prepare(str(tmp_path / "texts"), 260).vocabulary[256:] if unseen in token
    ]


def test_it_is_read_again_from_files_and_made_again_if_they_are_damaged(own_cache):
    first = prepare(SAMPLE, 300)
    (file,) = own_cache.iterdir()
    prepare.cache_clear()
    written = file.stat().st_mtime_ns
    assert prepare(SAMPLE, 300).sha256 == first.sha256
    assert file.stat().st_mtime_ns == written
    with np.load(file) as stored:
        contents = dict(stored)
    del contents["test_bounds"]
    for damage in (
        lambda: file.write_bytes(file.read_bytes()[:-300]),
        lambda: np.savez(file, **contents),
        lambda: np.savez(file, **dict(np.load(file)) | {"sha256": np.array("of another")}),
        lambda: file.write_bytes(b""),
    ):
        prepare.cache_clear()
        damage()
        again = prepare(SAMPLE, 300)
        assert np.array_equal(again.train.ids, first.train.ids)
        assert list(own_cache.iterdir()) == [file]  # nothing is left beside it
        with np.load(file) as stored:
            assert stored["sha256"] == first.sha256


def test_the_next_preparation_removes_what_a_killed_one_left(own_cache):
    killed(lambda: prepare(SAMPLE, 256))
    assert [left.suffix for left in own_cache.iterdir()] == [".partial"]
    prepare(SAMPLE, 300)
    assert [left.suffix for left in own_cache.iterdir()] == [".npz"]


def test_a_file_that_is_not_utf8_is_named_and_bytes_take_it(tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "good").write_bytes(b"some text " * 9)
    (texts / "latin").write_bytes(b"caf\xe9 " * 9)
    assert prepare(str(texts), 256).vocabulary[0xE9] == b"\xe9"
    with pytest.raises(
        ConfigError, match="latin of the corpus is not UTF-8: it can only be read as bytes"
    ):
        prepare(str(texts), 300)


def test_a_corpus_too_small_for_the_vocabulary_says_how_large_it_can_be(tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a").write_text("abab abab")
    (texts / "b").write_text("cdcd")
    with pytest.raises(ConfigError, match=r"vocab_size is 2000, but the corpus has only 2\d\d"):
        prepare(str(texts), 2000)


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("IHLAB_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="set IHLAB_CACHE to a folder"):
        prepare(SAMPLE, 256)


def test_the_cache_is_the_users_unless_told_otherwise(monkeypatch, tmp_path):
    monkeypatch.delenv("IHLAB_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "~")  # what remains of the path for a user without a home folder
    with pytest.raises(ConfigError, match="no home for prepared corpora: set IHLAB_CACHE"):
        cache()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache() == tmp_path / "ihlab"
