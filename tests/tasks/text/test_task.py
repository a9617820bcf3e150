"""Rows of text: windows of documents, next tokens as targets, held out where evaluations draw."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ihlab.measure.batches import draw
from tasks import IGNORE, ConfigError, Task, TextTask
from tasks.codec import from_plain, to_plain
from tasks.config import name_path
from tasks.text.corpus import SAMPLE, read, split


def rng():
    return np.random.default_rng(0)


TASK = TextTask(corpus=SAMPLE, vocab_size=300, length=24)


@given(st.integers(0, 2**32), st.sampled_from([1, 24, 100]), st.sampled_from([256, 300]))
def test_a_row_is_a_window_of_a_document_and_its_targets_are_the_next_tokens(
    seed, length, vocab_size
):
    task = TextTask(corpus=SAMPLE, vocab_size=vocab_size, length=length)
    batch = task.batch(3, np.random.default_rng(seed))
    assert batch.inputs.shape == batch.targets.shape == (3, length)
    assert np.array_equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    contents = [document.content for document in split(read(SAMPLE)).train]
    for row in range(3):
        text = task.decode(np.append(batch.inputs[row], batch.targets[row, -1]))
        assert any(text in content for content in contents)


def test_every_window_is_as_likely(tmp_path):
    (tmp_path / "a").write_bytes(bytes(range(100, 110)))
    (tmp_path / "b").write_bytes(bytes(range(200, 204)))
    (tmp_path / "c").write_bytes(b"z")
    sides = split(read(str(tmp_path)))
    assert [document.path for document in sides.test] == ["c"]
    task = TextTask(corpus=str(tmp_path), vocab_size=256, length=2)
    first = task.batch(20_000, rng()).inputs[:, 0]
    drawn, counts = np.unique(first, return_counts=True)
    assert drawn.tolist() == [*range(100, 108), 200, 201]  # windows of three bytes
    assert np.abs(counts - 2000).max() < 5 * np.sqrt(2000)


def test_evaluations_draw_from_held_out_documents_and_training_never_does():
    sides = split(read(SAMPLE))
    for at, side in (("train", sides.train), ("probe", sides.train), ("eval", sides.test)):
        for row in draw(TASK, 0, at, 0, 20).inputs:
            assert any(TASK.decode(row) in document.content for document in side)
    assert TASK.held_out.split == "test"
    assert TASK.held_out.held_out == TASK.held_out


def test_a_corpus_shorter_than_a_row_says_how_long_it_is(tmp_path):
    (tmp_path / "a").write_text("some text of 24 letters.")
    (tmp_path / "b").write_text("short")
    with pytest.raises(
        ConfigError, match=r"length is 24, but no document of .* \(train\) has more than 24 tokens"
    ):
        TextTask(corpus=str(tmp_path), vocab_size=256, length=24).batch(1, rng())


def test_a_folder_that_only_a_file_names_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.config._named", set())
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"private {name} " * 50)
    task = TextTask(corpus=str(tmp_path), vocab_size=256, length=24)
    stored = from_plain(Task, json.loads(json.dumps(to_plain(task))))
    assert stored == task
    for changed in (
        stored.held_out,
        replace(stored, length=12),
        pickle.loads(pickle.dumps(stored)),
    ):
        for read_by in (
            lambda changed=changed: changed.batch(1, rng()),
            lambda: stored.words(np.array([1])),
        ):
            with pytest.raises(ConfigError, match="is named only in a stored file"):
                read_by()
    assert task.batch(1, rng()).inputs.shape == (1, 24)
    name_path(str(tmp_path))
    assert stored.batch(1, rng()).inputs.shape == (1, 24)
    named = from_plain(Task, to_plain(task))
    assert type(named.corpus) is str  # worker processes, which the user told nothing, read it too


PACKED = TextTask(corpus=SAMPLE, vocab_size=300, length=24, pack=True)


@given(
    st.integers(0, 2**32),
    st.sampled_from([5, 24, 3000]),
    st.booleans(),
    st.sampled_from([256, 300]),
)
def test_packed_sequences_are_documents_one_after_another_without_targets_across_them(
    seed, length, bos, vocab_size
):
    task = replace(PACKED, length=length, bos=bos, vocab_size=vocab_size)
    batch, size = task.batch(3, np.random.default_rng(seed)), 3 * length
    stream, targets, starts = (
        x.ravel() for x in (batch.inputs, batch.targets, batch.document_starts)
    )
    contents, text = {document.content for document in split(read(SAMPLE)).train}, []
    for ids in np.split(stream, np.flatnonzero(starts)[1:]):
        assert (ids == task.bos_id).nonzero()[0].tolist() == [0] * bos
        text.append(task.decode(ids[bos:]))
    assert starts[0]
    assert set(text[:-1]) <= contents
    assert any(content.startswith(text[-1]) for content in contents)
    few = len(text) <= len(contents)
    assert not few or len(set(text)) == len(text)
    wanted = np.where(starts[1:], IGNORE, stream[1:])
    assert np.array_equal(targets[:-1], wanted[: size - 1])
    again = task.batch(3, np.random.default_rng(seed))
    assert np.array_equal(again.inputs, batch.inputs)
    assert np.array_equal(again.document_starts, batch.document_starts)


def test_packing_uses_every_token_equally_often_and_short_documents_too(tmp_path):
    (tmp_path / "a").write_bytes(bytes(range(100, 109)))
    (tmp_path / "b").write_bytes(b"xy")
    (tmp_path / "c").write_bytes(b"z")
    assert [document.path for document in split(read(str(tmp_path))).test] == ["c"]
    task = TextTask(corpus=str(tmp_path), vocab_size=256, length=11, pack=True)
    counts = np.unique(task.batch(2000, rng()).inputs, return_counts=True)
    assert counts[0].tolist() == [*range(100, 109), ord("x"), ord("y")]
    assert set(counts[1]) == {2000}
    shown = task.show(task.batch(4, np.random.default_rng(1)), 0)
    assert "the first of each document is a target" in shown


def test_bos_needs_packing_and_text_without_its_byte(tmp_path):
    with pytest.raises(ConfigError, match=r"TextTask.bos is True, but only packed documents"):
        TextTask(bos=True)
    (tmp_path / "a").write_bytes(b"ab\xff" * 9)
    (tmp_path / "b").write_bytes(b"c")
    task = TextTask(corpus=str(tmp_path), vocab_size=256, length=8, pack=True, bos=True)
    with pytest.raises(ConfigError, match="has the byte 0xFF: it must be UTF-8"):
        task.batch(2, rng())


def test_a_folder_is_the_one_that_its_name_means_here(tmp_path, monkeypatch):
    digests = set()
    for place in ("one", "two"):
        folder = tmp_path / place / "data"
        folder.mkdir(parents=True)
        for name in "ab":
            (folder / name).write_text(f"{place} {name} " * 50)
        monkeypatch.chdir(tmp_path / place)
        digests.add(TextTask(corpus="data", vocab_size=256, length=8).provenance["corpus_sha256"])
    assert len(digests) == 2
