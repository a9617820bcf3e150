"""Every page of the site has its own title; API pages keep the asterisks of docstrings, and show none of emphasis."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bs4 import BeautifulSoup, SoupStrainer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
LEFT = re.compile(r"(?<![\w*\[])\*{1,2}\w[^*\n]*\w\*{1,2}(?![\w*])")
"""`*words*` or `**words**`: Markdown's emphasis, as the reader should not see it."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr  # as `make docs`: a broken link fails
    return folder


@pytest.fixture(scope="module")
def articles(site):
    """The text of every API page as parsed HTML, by the name of its module."""
    pages = sorted((site / "api").glob("*.html"))
    article = SoupStrainer("article")
    return {page.stem: BeautifulSoup(page.read_text("utf-8"), "html.parser", parse_only=article) for page in pages}


def source(module):
    path = ROOT / module.replace(".", "/")
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8")


def test_every_page_has_its_own_title(site):
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    titles = [re.search(r"<title>(.*?)</title>", page.read_text("utf-8"))[1] for page in pages]
    assert not {(title, str(page)) for page, title in zip(pages, titles, strict=True) if titles.count(title) > 1}
    assert not [title for title in titles if title.startswith("Index")]


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
