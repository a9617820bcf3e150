"""Corpora made of Python sources by rules, so that text differs in how often a sequence repeats itself."""

import ast
import io
import keyword
import re
import tokenize
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tasks.config import choose
from tasks.text.corpus import SAMPLE, STDLIB, Document, distinct

Documents = list[Document]
SEED = 0
_WORD = re.compile(r"[^\W\d]\w*")


def prose(documents: Documents) -> Documents:
    """Return the docstrings and comments of each file, in the order of the file."""
    return [replace(document, content="\n".join(_prose(document)).encode() + b"\n") for document in documents]


def paragraphs(documents: Documents) -> Documents:
    """Return each paragraph of a docstring as a document of its own. Its directory is its file, for the split."""
    return [
        replace(document, path=f"{document.path}/{node.lineno:06}-{at:03}", content=paragraph.encode() + b"\n")
        for document in documents
        for node, text in _docstrings(document)
        for at, paragraph in enumerate(text.split("\n\n"))
    ]


def bare(documents: Documents) -> Documents:
    """Return each file without its comments, docstrings and empty lines."""
    return [replace(document, content=_bare(document)) for document in documents]


def names(documents: Documents) -> Documents:
    """Return each file with its names replaced by random ones: each name by the same one everywhere in the file.

    New names are drawn without replacement from the names of all files. Keywords stay. A name is replaced in strings
    and comments, too, so a sequence still repeats its own names, but they tell nothing about what is called so.
    """
    rng = np.random.default_rng(SEED)
    known = [sorted(_names(document)) for document in documents]
    pool = sorted({name for each in known for name in each})
    mixed = []
    for document, old in zip(documents, known, strict=True):
        drawn = rng.permutation(len(pool))[: len(old)].tolist()
        new = {name: pool[at] for name, at in zip(old, drawn, strict=True)}
        text = _WORD.sub(partial(_renamed, new), document.content.decode())
        mixed.append(replace(document, content=text.encode()))
    return mixed


def lines(documents: Documents) -> Documents:
    """Return files of as many lines as before, with the lines of all files in a random order."""
    every = [line for document in documents for line in _lines(document)]
    order = iter(np.random.default_rng(SEED).permutation(len(every)).tolist())
    return [replace(document, content=b"".join(every[next(order)] for _ in _lines(document))) for document in documents]


def half(documents: Documents) -> Documents:
    """Return the prose of every second file, and the others as they are."""
    return [prose([document])[0] if at % 2 else document for at, document in enumerate(documents)]


RULES: dict[str, Callable[[Documents], Documents]] = {
    rule.__name__: rule for rule in (prose, paragraphs, bare, names, lines, half)
}
"""The rules by name."""


def parsed(corpus: str) -> tuple[str, tuple[str, ...]]:
    """Return the source of a corpus and the rules to apply to it: stdlib, names and lines for stdlib:names:lines.

    Raises `ConfigError` for an unknown rule. A folder has no rules.
    """
    source, *rules = corpus.split(":")
    if source not in (STDLIB, SAMPLE):
        return corpus, ()
    return source, tuple(choose("rule of a corpus", rule, RULES) for rule in rules)


def mixed(documents: Sequence[Document], rules: Sequence[str]) -> Sequence[Document]:
    """Return what the rules make of the documents, one after another. Near-copies are left out first."""
    if not rules:
        return documents
    made = distinct(documents)
    for rule in rules:
        made = RULES[rule](made)
    return [document for document in made if document.content.strip()]


def _renamed(new: dict[str, str], word: re.Match[str]) -> str:
    return new.get(word[0], word[0])


def _lines(document: Document) -> list[bytes]:
    return [line + b"\n" for line in document.content.removesuffix(b"\n").split(b"\n")]


def _docstrings(document: Document) -> list[tuple[ast.Constant, str]]:
    """Return the node of each docstring and its text without the indentation."""
    found = []
    for node in ast.walk(ast.parse(document.content)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                statement = node.body[0]
                assert isinstance(statement, ast.Expr)
                assert isinstance(statement.value, ast.Constant)
                found.append((statement.value, text))
    return found


def _comments(document: Document) -> list[tokenize.TokenInfo]:
    reader = io.BytesIO(document.content).readline
    return [token for token in tokenize.tokenize(reader) if token.type == tokenize.COMMENT]


def _prose(document: Document) -> list[str]:
    parts = [(node.lineno, text + "\n") for node, text in _docstrings(document)]
    parts += [(comment.start[0], comment.string.lstrip("#").strip()) for comment in _comments(document)]
    return [text for _, text in sorted(parts)]


def _bare(document: Document) -> bytes:
    rows = _lines(document)
    for comment in _comments(document):
        at, column = comment.start
        start = len(rows[at - 1].decode()[:column].encode())
        rows[at - 1] = rows[at - 1][:start].rstrip() + b"\n"
    for node, _ in _docstrings(document):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        rows[first : last + 1] = [b"\n"] * (last - first + 1)
    return b"".join(row for row in rows if row.strip())


def _names(document: Document) -> set[str]:
    """Return the words of a file that its code uses as names."""
    words: set[str] = set()
    for node in ast.walk(ast.parse(document.content)):
        for field in ("id", "attr", "arg", "name", "module"):
            word = getattr(node, field, None)
            words |= set(word.split(".")) if isinstance(word, str) else set()
    return {word for word in words if word and not keyword.iskeyword(word)}
