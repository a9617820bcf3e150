"""Corpora extracted from Python sources by a rule: the paragraphs of docstrings, each a short document."""

import ast
from collections.abc import Sequence

from tasks.config import choose
from tasks.text.corpus import SAMPLE, STDLIB, Document, distinct

PARAGRAPHS = "paragraphs"


def parsed(corpus: str) -> tuple[str, str]:
    """Split the name of a corpus: "stdlib:paragraphs" gives the source "stdlib" and the rule "paragraphs".

    Raises `ConfigError` for an unknown rule. A folder has no rule.
    """
    source, _, rule = corpus.partition(":")
    if source not in (STDLIB, SAMPLE):
        return corpus, ""
    return source, choose("rule of a corpus", rule, [PARAGRAPHS]) if rule else ""


def mixed(documents: Sequence[Document], rule: str) -> Sequence[Document]:
    """Leave out near-copies and apply the rule to the documents. Without a rule, return them unchanged."""
    return paragraphs(distinct(documents)) if rule else documents


def paragraphs(documents: Sequence[Document]) -> list[Document]:
    """Return each docstring paragraph as a document. Its directory is its file, so the split keeps each file whole."""
    parts = []
    for document in documents:
        for line, docstring in _docstrings(document):
            for place, paragraph in enumerate(docstring.split("\n\n")):
                if paragraph.strip():
                    path = f"{document.path}/{line:06}-{place:03}"
                    parts.append(Document(path, paragraph.encode() + b"\n"))
    return parts


def _docstrings(document: Document) -> list[tuple[int, str]]:
    """Return the first line of each docstring and its text without the indentation."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    docstrings = []
    for node in ast.walk(ast.parse(document.content)):
        if isinstance(node, documented) and (text := ast.get_docstring(node)) is not None:
            docstrings.append((node.body[0].lineno, text))
    return docstrings
