"""A corpus by the rule of paragraphs, on a file small enough to read."""

import pytest

from tasks import ConfigError, TextTask
from tasks.text.corpus import SAMPLE, STDLIB, Document, digest, read
from tasks.text.mixes import PARAGRAPHS, mixed, parsed
from tasks.text.prepared import prepare

SOURCE = '''"""What this is."""

import json  # the format


def load(path, deep=False):
    """Load a file.

    Two lines.
    """
    return json.loads("load # no comment")
'''
FILE, OTHER = Document("a.py", SOURCE.encode()), Document("b.py", b"x = 1\ny = x  # sum\n")


def test_paragraphs_of_docstrings_are_documents_whose_directory_is_their_file():
    documents = mixed([FILE, Document("copy.py", FILE.content), OTHER], PARAGRAPHS)
    assert [d.content for d in documents] == [
        b"What this is.\n",
        b"Load a file.\n",
        b"Two lines.\n",
    ]
    assert {d.directory for d in documents} == {"a.py"}
    assert mixed([FILE, FILE], "") == [FILE, FILE]


@pytest.mark.parametrize(
    ("corpus", "source_and_rule"),
    [
        (STDLIB, (STDLIB, "")),
        ("sample:paragraphs", (SAMPLE, PARAGRAPHS)),
        ("C:/texts", ("C:/texts", "")),
        ("folder:paragraphs", ("folder:paragraphs", "")),
    ],
)
def test_a_rule_follows_the_name_of_a_corpus(corpus, source_and_rule):
    assert parsed(corpus) == source_and_rule


def test_an_unknown_rule_names_the_nearest_one():
    with pytest.raises(
        ConfigError, match=r"There is no rule of a corpus 'paragraph'; did you mean 'paragraphs'\?"
    ):
        prepare("sample:paragraph", 256)


def test_a_task_reads_a_corpus_by_its_rule():
    task = TextTask(corpus="sample:paragraphs", vocab_size=256)
    size = len(task.prepared.train.ids) + len(task.prepared.test.ids)
    assert size == pytest.approx(
        sum(len(d.content) for d in mixed(read(SAMPLE), PARAGRAPHS)), rel=0.03
    )
    assert (
        task.provenance["corpus_sha256"] == digest(read(SAMPLE), PARAGRAPHS) != digest(read(SAMPLE))
    )
