"""Corpora by rules: what each rule keeps and takes away, on a file small enough to read."""

import ast
import keyword
import re
from collections import Counter

import pytest

from tasks import ConfigError, TextTask
from tasks.text.corpus import SAMPLE, STDLIB, Document, digest, distinct, read
from tasks.text.mixes import RULES, bare, half, lines, mixed, names, paragraphs, parsed, prose
from tasks.text.prepared import prepare

SOURCE = '''"""What this is."""

import json  # the format


def load(path, deep=False):
    """Load a file.

    Two lines.
    """
    text = "load # no comment"  # read path
    # Deep files are slow.
    return json.loads(text) if deep else path.read(text)
'''
FILE = Document("a.py", SOURCE.encode())
OTHER = Document("b.py", b"x = 1\ny = x  # sum\n")


def text(documents, at=0):
    return documents[at].content.decode()


def test_prose_is_docstrings_and_comments_in_order():
    said = ["What this is.", "the format", "Load a file.", "Two lines.", "read path", "Deep files are slow."]
    assert [line for line in text(prose([FILE])).split("\n") if line] == said


def test_bare_code_is_the_same_program_without_them():
    left = text(bare([FILE]))
    assert "Deep" not in left
    assert "Two lines" not in left
    assert '"load # no comment"\n' in left
    stripped = ast.parse(SOURCE)
    for node in (stripped, stripped.body[2]):
        node.body = node.body[1:]
    assert ast.dump(ast.parse(left)) == ast.dump(stripped)


def test_names_are_replaced_by_names_of_any_file_one_for_one():
    new = text(names([FILE, OTHER]))
    pool = {"json", "load", "path", "deep", "text", "loads", "read", "x", "y"}
    pairs = Counter(zip(re.findall(r"\w+", SOURCE), re.findall(r"\w+", new), strict=True))
    of = dict(pairs)
    assert len({old for old, _ in of}) == len(of)  # a name has one new name
    replaced = {old: after for old, after in of if old in pool}
    assert set(replaced) == pool - {"x", "y"}
    assert set(replaced.values()) <= pool
    assert len(set(replaced.values())) == len(replaced)  # and two names never the same
    assert all(old == after for old, after in of if old not in pool or keyword.iskeyword(old))
    assert re.sub(r"\w+", "", new) == re.sub(r"\w+", "", SOURCE)
    assert [d.path for d in names([FILE, OTHER])] == ["a.py", "b.py"]
    assert names([FILE, OTHER]) == names([FILE, OTHER])


def test_paragraphs_of_docstrings_are_documents_whose_directory_is_their_file():
    found = paragraphs([FILE, OTHER])
    assert [d.content for d in found] == [b"What this is.\n", b"Load a file.\n", b"Two lines.\n"]
    assert {d.directory for d in found} == {"a.py"}


def test_lines_are_those_of_all_files_in_another_order():
    documents = [Document(str(i), b"".join(b"%d %d\n" % (i, j) for j in range(20 + i))) for i in range(3)]
    shuffled = lines(documents)
    before, after = ([d.content.split(b"\n") for d in each] for each in (documents, shuffled))
    assert [len(each) for each in after] == [len(each) for each in before]
    assert sorted(line for each in after for line in each) == sorted(line for each in before for line in each)
    assert len({line.split()[0] for line in after[0] if line}) == 3
    assert lines([Document("c", b"no end")])[0].content == b"no end\n"


def test_half_is_prose_in_every_second_file():
    assert half([FILE, OTHER, FILE]) == [FILE, *prose([OTHER]), FILE]


@pytest.mark.parametrize(
    ("corpus", "found"),
    [
        (STDLIB, (STDLIB, ())),
        ("stdlib:names:lines", (STDLIB, ("names", "lines"))),
        ("sample:prose", (SAMPLE, ("prose",))),
        ("C:/texts", ("C:/texts", ())),
        ("folder:prose", ("folder:prose", ())),
    ],
)
def test_rules_follow_the_name_of_a_corpus(corpus, found):
    assert parsed(corpus) == found


def test_an_unknown_rule_names_the_nearest_one():
    with pytest.raises(ConfigError, match=r"There is no rule of a corpus 'line'; did you mean 'lines'\?"):
        prepare("sample:line", 256)


def test_rules_apply_in_turn_to_files_without_copies_and_empty_files_are_left_out():
    documents = [FILE, Document("copy.py", FILE.content), Document("no_prose.py", b"a_number = 1\n")]
    kept = [documents[0], documents[2]]
    assert distinct(documents) == kept
    assert mixed(documents, ()) == documents
    assert mixed(documents, ("prose",)) == prose([FILE])
    assert mixed(documents, ("bare", "lines")) == lines(bare(kept))


@pytest.mark.parametrize("rule", RULES)
def test_a_task_reads_a_corpus_by_rules(rule):
    task = TextTask(corpus=f"sample:{rule}", vocab_size=256)
    kept = mixed(read(SAMPLE), (rule,))
    assert len(task.prepared.train.ids) + len(task.prepared.test.ids) == pytest.approx(
        sum(len(document.content) for document in kept), rel=0.03
    )
    assert task.provenance["corpus_sha256"] == digest(read(SAMPLE), (rule,)) != digest(read(SAMPLE))
