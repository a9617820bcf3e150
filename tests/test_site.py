"""The rendered API pages keep the asterisks of docstrings, and show none that was meant as emphasis."""

import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup, SoupStrainer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
LEFT = re.compile(r"(?<![\w*\[])\*{1,2}\w[^*\n]*\w\*{1,2}(?![\w*])")
"""`*words*` or `**words**`: Markdown's emphasis, as the reader should not see it."""


@pytest.fixture(scope="module")
def articles(tmp_path_factory):
    """The text of every API page as parsed HTML, by the name of its module."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)  # mkdocstrings' paths are relative
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    pages = sorted((folder / "api").glob("*.html"))
    article = SoupStrainer("article")
    return {page.stem: BeautifulSoup(page.read_text("utf-8"), "html.parser", parse_only=article) for page in pages}


def source(module):
    path = ROOT / module.replace(".", "/")
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8")


def test_emphasis_is_written_as_such_in_the_source(articles):
    """A product or a shape such as [*panel, n] is not read as emphasis, which takes its asterisks."""
    assert articles
    for module, article in articles.items():
        written = " ".join(source(module).split())
        for element in article.find_all("em"):
            text = " ".join(element.get_text().split())
            assert re.search(rf"(?<![\w*\[])([*_]){re.escape(text)}\1(?![\w*])", written), (module, text)


def test_no_asterisk_of_emphasis_is_left_in_the_text(articles):
    for module, article in articles.items():
        for code in article.select("code, pre, math"):
            code.replace_with("`")
        assert not LEFT.findall(article.get_text()), module
